"""Erasure in one scope: content goes from both logs and from all that is derived from them, for good."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError, StoreError, UsageError
from backstory.ledger.core.events import SummariesReceived, SummaryUpdated
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.erasure.content import ErasedWords
from backstory.ledger.erasure.requests import (
    Erasure,
    ErasurePlan,
    ForgetEverything,
    ForgetFact,
    ForgetMatching,
    ForgetShared,
    ForgetThread,
)
from backstory.ledger.erasure.walk import words_used
from backstory.ledger.learning.sharing import try_to_deliver
from backstory.ledger.log.commits import read_durable_commits
from backstory.ledger.log.writer import Writer
from backstory.results import ErasedContent, Forgotten
from backstory.services.services import Operations, ScopeServices


def _forget_what(services: ScopeServices, request: Erasure, *, dry_run: bool) -> Forgotten:
    """Erase what is asked for from the memory of one scope; see `MemoryHandle.forget`.

    Where agents share their user's sections, what these say of it is erased from the user's other memories, too.
    """
    services.must_stand()
    try:
        return _forget(services, request, dry_run=dry_run)
    except NotFoundError as error:
        if isinstance(request, ForgetThread) and (agents := _agents_with(services, request.thread)):
            raise NotFoundError(
                f"no thread {request.thread} to erase in the memory of {services.scope}; it is in that of its "
                f"{'agent' if len(agents) == 1 else 'agents'} {', '.join(agents)}: name the agent"
            ) from error
        raise


def _agents_with(services: ScopeServices, thread: str) -> Sequence[str]:
    """Return the agents of a user whose memories hold a thread."""
    found = []
    for writer in () if services.scope.agent is not None else services.agents():
        with writer.reader.state() as state:
            known = state.transcript.threads.get(thread)
            # Of a thread that was erased only its places are left.
            if known is not None and any(turn is not None for turn in known.turns):
                found.append(writer.scope.agent or "")
    return found


def _forget(services: ScopeServices, request: Erasure, *, dry_run: bool) -> Forgotten:
    if not services.shares:
        seq, plan = _erase(services, services.writer, request, dry_run=dry_run)
        return _forgotten([plan], seq)
    if not dry_run:
        _let_in(services, services.writer)
        try_to_deliver(services.writer)
    received = _received(services)
    try:
        first = services.writer.plan_erasure(request)
    except NotFoundError:
        services.must_stand()
        return _forget_sections_only(services, request, dry_run=dry_run)
    # The other memories first: if this is interrupted, this one still says what there is to erase in them.
    plans = _erase_elsewhere(services, first.elsewhere, dry_run=dry_run)
    seq, plan = _erase(services, services.writer, request, dry_run=dry_run)
    if plan.elsewhere != first.elsewhere or _received(services) != received:
        # An update was made meanwhile from what is erased now, or one that was is with the user only now.
        plans += _erase_elsewhere(services, plan.elsewhere, dry_run=dry_run)
    return _forgotten([plan, *plans], seq)


def _received(services: ScopeServices) -> int:
    """Return the last commit that the user's memory has received of this agent."""
    if services.users is None:
        return 0
    return services.users.memory().received.get(services.scope.agent or "", 0)


def _forget_sections_only(services: ScopeServices, request: Erasure, *, dry_run: bool) -> Forgotten:
    """Erase a text that an agent shows only in the sections of its user.

    Raises:
        NotFoundError: They do not hold it either.
    """
    phrases = ((request.text, True),) if isinstance(request, ForgetMatching) else ()
    plans = _erase_elsewhere(services, ForgetShared(phrases), dry_run=dry_run) if phrases else []
    if not plans:
        services.writer.plan_erasure(request)
    with contextlib.suppress(NotFoundError):
        # The user may have received it from one of the agents before it was erased there.
        seq, plan = _erase(services, services.writer, request, dry_run=dry_run)
        return _forgotten([plan, *plans], seq)
    return _forgotten(plans, None)


def _erase_elsewhere(services: ScopeServices, what: ForgetShared, *, dry_run: bool) -> list[ErasurePlan]:
    """Erase from the sections in a user's other memories what they say of erased content."""
    own, scope = services.writer, services.scope
    others = [one for one in (*services.agents(), services.users) if one is not None and one is not own]
    words = what.words - _known_before(services, what)
    for other in others:
        words -= words_used(words, other.memory(), read_durable_commits(other.store, other.transcript_stream))
    plans: list[ErasurePlan] = []
    for other in others:
        request = ForgetShared(
            what.phrases,
            words,
            received=frozenset((scope.agent or "", *text) for text in what.own if other.scope.agent is None),
            own=frozenset((seq, section) for agent, seq, section in what.received if agent == other.scope.agent),
        )
        with contextlib.suppress(NotFoundError):
            plans.append(_erase(services, other, request, dry_run=dry_run)[1])
    return plans


def _forget_everything(services: ScopeServices, *, dry_run: bool) -> Forgotten:
    """Empty all logs of a user, the agents' first, so that an interrupted call can be repeated."""
    services.must_stand()
    alone = services.scope.user is None or services.scope.agent is not None
    if services.shares and alone:
        return _forget_what(services, ForgetEverything(), dry_run=dry_run)
    plans: list[ErasurePlan] = []
    seq: int | None = None
    for writer in (*(() if alone else services.agents()), services.writer):
        try:
            seq, plan = _erase(services, writer, ForgetEverything(), dry_run=dry_run)
        except NotFoundError:
            if writer is services.writer and not plans:
                raise
            seq = None
        else:
            plans.append(plan)
    return _forgotten(plans, seq)


def _erase(
    services: ScopeServices, writer: Writer, request: Erasure, *, dry_run: bool
) -> tuple[int | None, ErasurePlan]:
    if dry_run:
        return None, writer.plan_erasure(request)
    if not isinstance(request, ForgetShared):
        _let_in(services, writer)
    expected = services.expected if writer is services.own else None
    commit, plan = writer.forget(request, actor=services.actor, expected=expected)
    services.home.states(writer.scope).document.flush_document()
    return commit.seq, plan


def _known_before(services: ScopeServices, what: ForgetShared) -> frozenset[str]:
    """Return the words that the user's sections had before they received what is erased: they come from elsewhere."""
    if services.users is None or not what.own:
        return frozenset()
    first = (services.scope.agent, min(seq for seq, _ in what.own))
    texts: list[str] = []
    for commit in services.commits(services.users):
        for event in commit.events:
            if isinstance(event, SummariesReceived) and (event.agent, event.seq) == first:
                return frozenset(ErasedWords(what.words).used_in(texts))
            if isinstance(event, SummaryUpdated):
                texts.append(event.after.summary)
    return frozenset()


def _let_in(services: ScopeServices, writer: Writer) -> None:
    if left := services.home.outbox.let_in(writer.scope):
        raise StoreError(
            f"{left} deliveries still wait to be recorded in the memory of {writer.scope}, and would bring back "
            "what is to be forgotten: mend what `status` shows under faults, then forget again"
        )


def _forgotten(plans: Sequence[ErasurePlan], seq: int | None) -> Forgotten:
    return Forgotten(
        tuple(
            ErasedContent(event.stream, event.seq, event.what, event.fact, event.section)
            for plan in plans
            for event in plan.redacted
        ),
        tuple(sharing for plan in plans for sharing in plan.also),
        seq,
    )


class Forgetting(Operations):
    """What erases content for good; see `MemoryHandle`."""

    # Erasing.

    def forget(
        self,
        fact_id: str | None = None,
        *,
        thread_id: str | None = None,
        matching: str | None = None,
        everything: bool = False,
        with_evidence: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """Erase content for good, from both logs and everything derived from them: one of four things at a time.

        Words that nothing else uses go from sections and refusals, too.

        Args:
            fact_id: A fact, live or gone, by its full id.
            thread_id: A conversation, and what was learned from it.
            matching: Everything that holds this text, in any case and Unicode form.
            everything: All of it; for a user, also what the user's agents remember.
            with_evidence: With a fact, erase also the turns it was learned from.
            dry_run: Write nothing.

        Returns:
            What is erased; `also` lists what was learned from the same turns and stays.

        Raises:
            UsageError: Not exactly one of the four is given, or the text is empty.
            NotFoundError: There is nothing of that to erase.
            StoreError: Deliveries in the outbox cannot be recorded, so they cannot be searched.
        """
        if sum((fact_id is not None, thread_id is not None, matching is not None, everything)) != 1:
            raise UsageError("say what to forget, and one thing at a time: a fact, a thread, a text, or everything")
        if with_evidence and fact_id is None:
            raise UsageError("with_evidence is about a fact: name one, or forget the whole thread")
        services = self._services
        if everything:
            return _forget_everything(services, dry_run=dry_run)
        request: Erasure
        if fact_id is not None:
            named = services.fact_id(services.writer, checks.text("fact_id", fact_id), whole=True)
            request = ForgetFact(named, with_evidence)
        elif thread_id is not None:
            request = ForgetThread(safe_text(checks.text("thread_id", thread_id)))
        else:
            request = ForgetMatching(safe_text(checks.text("matching", matching)))
        return _forget_what(services, request, dry_run=dry_run)

    aforget = in_thread(forget)
