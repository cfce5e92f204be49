"""Reading of one memory: its document and facts, now or earlier, its block, and where it stands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Literal, get_args

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError, UnavailableError, UsageError
from backstory.ledger.core.events import Fact, FactRemoved
from backstory.ledger.core.memory import Memory, lapses
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.log.reader import WaitingThread
from backstory.ledger.text.tags import read_filter
from backstory.ledger.threads.due import Due
from backstory.projections.context import Context
from backstory.projections.context.joined import join_periods, parted
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.moment import FactOrder, FactQuery, MemoryMoment, memory_moment
from backstory.projections.history.times import At, When
from backstory.projections.history.views import diff
from backstory.results import RECENT_COMMITS, EndingFact, Eviction, FaultCount, ParkedThread, PendingThread, Status
from backstory.services.context import context as block_of
from backstory.services.home_services import HomeServices
from backstory.services.named import begun_fact
from backstory.services.services import Operations, ScopeServices

_SOON = timedelta(days=7)


def _status(services: ScopeServices, faults: tuple[FaultCount, ...]) -> Status:
    scope, writer, home = services.scope, services.writer, services.home
    with writer.reader.backlog() as backlog:
        view = backlog.state
        waiting = backlog.waiting(home.timing)
        memory, head, turns = view.memory, view.head, view.transcript.turn_count
        threads = len(view.transcript.threads)
    now = writer.clock.now()
    memory = memory.standing_at(spell_moment(now))
    max_facts = (memory.policy if memory.seq else writer.first_policy()).max_facts
    return Status(
        seq=head.seq,
        hash=head.hash,
        facts=len(memory.facts),
        pending=tuple(_pending(services, waiting)),
        parked=tuple(
            ParkedThread(one.thread, count, item.reason, item.attempts, item.detail)
            for one in waiting
            for item, count in one.parked
        ),
        turns=turns,
        threads=threads,
        ledger_bytes=writer.store.state(scope.stream(LEDGER)).size,
        transcript_bytes=writer.store.state(scope.stream(TRANSCRIPT)).size,
        store=str(writer.store),
        model=home.model_named,
        user=scope.user,
        agent=scope.agent,
        faults=faults,
        max_facts=max_facts,
        evicted=tuple(_evicted(services)) if len(memory.facts) >= max_facts else (),
        ending=tuple(_ending(memory, spell_moment(now + _SOON))),
        assistant_only=sum(fact.rests_on.role == "assistant" for fact in memory.facts.values()),
    )


def _ending(memory: Memory, until: str) -> list[EndingFact]:
    """Return the facts that lapse up to a moment, the first of them first."""
    found = [
        EndingFact(fact.id, fact.content, at)
        for fact in memory.in_order()
        if (at := lapses(fact)) is not None and at <= until
    ]
    return sorted(found, key=lambda one: one.at)


def _evicted(services: ScopeServices) -> Iterator[Eviction]:
    """Yield what the cap evicted in the newest commits; a status reads no more of the log."""
    for commit in islice(services.logs(services.writer).newest(), RECENT_COMMITS):
        removed = (event for event in commit.events if isinstance(event, FactRemoved))
        if facts := tuple(event.fact.id for event in removed if event.reason == "cap"):
            yield Eviction(commit.seq, commit.at, facts)


def _pending(services: ScopeServices, waiting: Iterable[WaitingThread]) -> Iterator[PendingThread]:
    home, now = services.home, services.writer.clock.now()
    for one in waiting:
        if one.due is not None:
            # A clock that was set back delays no update beyond the debounce, or the wait for an answer.
            due = one.due.no_later(home.timing, now)
            due_in = max(0.0, round((due.at - now).total_seconds(), 3))
            yield PendingThread(one.thread, one.turns, due_in, _waiting_for(home, due, due_in))
        elif one.turns:
            yield PendingThread(one.thread, one.turns, None)


def _waiting_for(home: HomeServices, due: Due, due_in: float) -> Literal["answer", "debounce", "model"] | None:
    if due.waits_for and due_in > 0:
        return "answer"
    if home.model is None:
        return "model"
    return "debounce" if due_in > 0 else None


def _spelled(faults: Sequence[FaultCount]) -> str:
    counts = ", ".join(f"{fault.count} x {fault.doing} ({fault.kind})" for fault in faults)
    return f"memory failed since {min(fault.first for fault in faults)}: {counts}"


class Reading(Operations):
    """What reads a memory; see `MemoryHandle`."""

    # Reading.

    def document(self, at: At | None = None) -> Document:
        """Return the content of memory.json, now or at an earlier moment.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.

        Returns:
            The document, in DeerFlow's shape.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future.
            NotFoundError: The ledger has no such commit.
        """
        return document_of(self._services.memory(at))

    def reload(self) -> Document:
        """Return the document afresh from the log and update memory.json.

        Where another process locks the ledger, memory.json follows with the next commit or flush.

        Returns:
            The document.
        """
        self._services.home.states(self._services.reading().scope).document.flush_if_free()
        return document_of(self._services.memory())

    def facts(
        self,
        at: At | None = None,
        *,
        joined: bool = True,
        valid_at: When | None = None,
        include_past: bool = False,
        tags: Sequence[str] | None = None,
    ) -> tuple[Fact, ...]:
        """Return the live facts, now or at an earlier moment, or what was known then of another time.

        An agent reads its user's facts, too, unless `agent_reads` says otherwise: then each is an `OwnedFact`, whose
        `owner` says whose it is, and of equal facts the agent's is there.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.
            joined: False for the facts of this ledger alone.
            valid_at: Only facts that were true at this time, or at some time in this year, month or day, and with them
                those that have ended since; each of these says until when. A fact that does not state when it began
                may always have been true.
            include_past: Also all facts that have ended.
            tags: Only facts with all of these tags; `name=value` is about an attribute.

        Returns:
            The facts, oldest first.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future; or a tag is none.
            NotFoundError: The ledger has no such commit.
        """
        wanted = read_filter(tags or ())
        span = self._services.span_of_truth(valid_at, include_past=include_past)
        return tuple(fact for fact in self._known_facts(at, span, joined=joined) if fact.has(wanted))

    def _known_facts(self, at: At | None, span: tuple[str, str] | None, *, joined: bool) -> tuple[Fact, ...]:
        services = self._services
        if span is None:
            both = services.joined(at) if joined else None
            return tuple(services.memory(at).in_order() if both is None else both.facts(services.scope))
        reading, beside = services.reading(), services.beside() if joined else None
        moment = None if at is None else services.times(reading).cut("at", at)
        own = services.true_in(reading, moment, *span)
        if beside is None:
            return own
        if isinstance(moment, int):
            moment = services.logs(reading).memory_at(moment).at
        return join_periods(own, services.true_in(beside, moment, *span), services.scope)

    def moment(
        self,
        at: At | None = None,
        *,
        sort: FactOrder = "born",
        descending: bool = False,
        category: str | None = None,
        contains: str | None = None,
        tags: Sequence[str] | None = None,
        offset: int = 0,
        limit: int = 100,
        valid_at: When | None = None,
    ) -> MemoryMoment:
        """Return memory after a commit, as a window of its facts, and what that commit changed.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.
            sort: What the facts are sorted by: born, confidence, content or category. Facts that are equal in it are in
                the order of their births.
            descending: The other way round.
            category: Only facts of this category.
            contains: Only facts with this text in them, in any case, width and Unicode form.
            tags: Only facts with all of these tags; `name=value` is about an attribute.
            offset: How many of the matching facts to skip.
            limit: How many to return at most.
            valid_at: Only facts that were true at this time, and with them those that have ended since, as in `facts`.

        Returns:
            The sections and facts at that moment, with the numbers of all facts and of those that match.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future, or another value is not of its kind.
            NotFoundError: The ledger has no such commit.
        """
        if sort not in get_args(FactOrder):
            raise UsageError(
                f"sort must be {', '.join(get_args(FactOrder)[:-1])} or {get_args(FactOrder)[-1]}, got {sort!r}"
            )
        query = FactQuery(
            sort,
            checks.flag("descending", descending),
            None if category is None else checks.text("category", category),
            None if contains is None else checks.text("contains", contains),
            read_filter(tags or ()),
            checks.whole("offset", offset, 0),
            checks.whole("limit", limit, 0),
        )
        services = self._services
        span = None if valid_at is None else services.times().valid_span("valid_at", valid_at)
        if at is None:
            services.memory()  # Delivers what is not received yet.
        reading = services.reading()
        wanted = None if at is None else services.times(reading).cut("at", at)
        found = services.logs(reading).around(wanted)
        when = (
            spell_moment(reading.clock.now())
            if wanted is None
            else found.after.at
            if isinstance(wanted, int)
            else wanted
        )

        def standing(memory: Memory) -> Memory:
            if span is None:
                return memory.standing_at(when)
            true = services.true_in(reading, wanted, *span)
            return msgspec.structs.replace(memory, facts={fact.id: fact for fact in true})

        if services.users is None:
            return memory_moment(standing(found.after), found.commit, diff(found.before, found.after), query)
        users = services.logs(services.users)
        before = found.before.with_sections_of(users.memory_at(found.before.at))
        after = found.after.with_sections_of(users.memory_at(found.after.at))
        # Between two commits of the agent the sections of its user may have changed.
        shown = after
        if not isinstance(wanted, int):
            shown = found.after.with_sections_of(users.memory() if wanted is None else users.memory_at(wanted))
        return memory_moment(standing(shown), found.commit, diff(before, after), query)

    def fact(self, fact_id: str) -> Fact:
        """Return a live fact.

        Args:
            fact_id: Its id, or a unique beginning of it. The id of a fact that is gone is no beginning of another.

        Returns:
            The fact.

        Raises:
            NotFoundError: No live fact's id begins so.
            UsageError: Several do.
        """
        services = self._services
        with services.naming_the_owner(fact_id):
            found = begun_fact(services.memory(), fact_id)
        if found.id != fact_id:
            with contextlib.suppress(UsageError):
                if services.fact_id(services.reading(), fact_id) == fact_id:
                    raise NotFoundError(f"fact {fact_id} is gone from memory: see `why`")
        return found

    def fact_id(self, prefix: str) -> str:
        """Return the full id of a fact, live or gone.

        Args:
            prefix: An id, or a unique beginning of one. A complete id is never a beginning of another.

        Returns:
            The id.

        Raises:
            NotFoundError: There is and was no such fact.
            UsageError: Several ids begin so.
        """
        return self._services.fact_id(self._services.reading(), prefix)

    def context(
        self,
        messages: str | Iterable[object] | None = None,
        max_tokens: int | None = None,
        *,
        thread: str | None = None,
        facts: bool = True,
        tags: Sequence[str] | None = None,
    ) -> Context:
        """Return the block of memory to put before a model, in two parts.

        `standing` is for the system message: it depends on memory and policy alone (and, with `thread`, on that
        conversation's summaries), so it is the same text while memory is the same. `found` is what the question brings
        besides; it goes directly before the newest question. If all facts fit, all stand and nothing is found.
        `text` is both.

        The first block of a process waits until the vocabulary is loaded that counts its tokens, unless
        `Backstory.warm` was waited for.

        Args:
            messages: What the conversation is about, as messages or a text: it finds facts. With None those are found
                that rank next by themselves.
            max_tokens: The text never has more; `max_injection_tokens` unless given.
            thread: Add the summaries of this conversation.
            facts: Without them only sections and summaries are in the block, for an agent that searches facts itself.
            tags: Of the facts that have tags or attributes only those with all of these; `name=value` is about an
                attribute. Facts without any are about the user in general and stay, and so do sections.

        Returns:
            Both parts, their tokens and how they were counted, and the ids of the facts. Its `note()` is for the
            `metadata` of the answer, so that `why_said` can tell what the answer was given.

        Raises:
            InputError: `messages` is no list, or one of the last cannot be read.
            UsageError: `max_tokens` is no number above 0, `thread` is no text, or a tag is none.
        """
        wanted = read_filter(tags or ())
        return block_of(self._services, messages, max_tokens, thread=thread, facts=facts, tags=wanted)

    def touch(self, *fact_ids: str) -> int:
        """Count live facts as used: with `fact_eviction_policy: hybrid`, facts in use stay longer.

        Args:
            *fact_ids: Ids of facts that a host has put in a prompt.

        Returns:
            How many of them are live.
        """
        own, users = parted(fact_ids)
        states, beside = self._services.home.states, self._services.beside()
        counted = states(self._services.reading().scope).use.touch(own)
        return counted if beside is None else counted + states(beside.scope).use.touch(users)

    def status(self) -> Status:
        """Return where the memory stands: its head, what is pending or parked, and recent faults.

        Returns:
            The status; sizes are in bytes, times to wait in seconds.
        """
        services = self._services
        faults = services.home.faults.of(services.scope)
        try:
            return _status(services, faults)
        except UnavailableError as error:
            if faults:
                # The faults help to explain why memory cannot be read.
                error.args = (f"{error}; {_spelled(faults)}",)
            raise

    adocument = in_thread(document)
    areload = in_thread(reload)
    afacts = in_thread(facts)
    amoment = in_thread(moment)
    afact = in_thread(fact)
    afact_id = in_thread(fact_id)
    acontext = in_thread(context)
    atouch = in_thread(touch)
    astatus = in_thread(status)
