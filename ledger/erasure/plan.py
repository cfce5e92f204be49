"""Erasure planner: which events of both streams hold content that must go, and which facts and sections to restate.

The planner is pure. It reads the streams several times from first to last and keeps only what is to be erased. The
ledger is walked until a walk finds nothing new, because each erased event may make others go: a fact whose removal is
erased would return in a replay, so it goes too, and with it perhaps the last use of a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import assert_never

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import (
    Fact,
    FactAdded,
    LedgerEvent,
    Redacted,
    Section,
    SummaryShared,
    SummaryUpdated,
    TurnRange,
    UpdateFailed,
)
from backstory.ledger.core.memory import Memory, birth
from backstory.ledger.erasure.content import summary_in, texts_of, turn_texts
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.erasure.requests import (
    Erasure,
    ErasurePlan,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetShared,
    ForgetThread,
    Sharing,
    Walk,
)
from backstory.ledger.erasure.target import ErasureTarget, EvidenceTurns, find_target, turns_of
from backstory.ledger.erasure.walk import (
    LedgerWalk,
    SummarySources,
    read_transcript,
    walk_until_settled,
    words_in_staying_turns,
)


def _restated(walk: LedgerWalk, target: ErasureTarget) -> tuple[LedgerEvent, ...]:
    """Return the events that restate the facts and sections that stay although an event about them is erased."""
    facts = {event.fact for event in walk.redacted}
    sections = {event.section for event in walk.redacted}
    staying = [fact for fact in target.memory.facts.values() if fact.id in facts and target.stays(fact.id)]
    return (
        *(FactAdded(fact) for fact in sorted(staying, key=birth)),
        *(
            SummaryUpdated(name, Section(), restated.section)
            for name, restated in sorted(walk.sections.items())
            if name in sections
        ),
        *walk.summary_sources.restated(sorted(target.memory.sections), {name for name in sections if name is not None}),
    )


def _sharing(walk: LedgerWalk, target: ErasureTarget, evidence: EvidenceTurns) -> Iterator[Sharing]:
    """Yield the facts and sections that stay although they were learned from the same turns."""

    def shares_turns(thread: str | None, turns: TurnRange | None) -> bool:
        return turns is not None and any(
            thread == other and turns.first <= n <= turns.last for other, n in evidence.evidence
        )

    def shares(fact: Fact) -> bool:
        if fact.evidence:
            return any((fact.source, turn_id) in evidence.ids for turn_id in fact.evidence)
        cause = walk.births.get(fact.seq)
        return cause is not None and fact.source == cause.thread and shares_turns(cause.thread, cause.turns)

    lineage = target.lineage
    staying = [fact for fact in target.memory.in_order() if target.stays(fact.id)]
    for fact in staying:
        if not target.facts.isdisjoint(lineage.ancestors(fact)) or any(map(shares, lineage.origins(fact))):
            yield Sharing("fact", fact.id, fact.content)
    erased = {event.fact for event in walk.redacted}
    known = erased.union(fact.id for fact in staying)
    for fact in lineage.merged_into(target.facts) if walk.merged else ():
        if fact.id not in known:
            yield Sharing("fact", fact.id, fact.content)
    for name, restated in sorted((walk.shared | walk.sections).items()):
        if shares_turns(restated.thread, restated.turns):
            yield Sharing("section", name, restated.section.summary)


def _nothing_found(request: Erasure) -> NotFoundError:
    match request:
        case ForgetFact(fact_id=fact_id):
            problem = f"no fact {fact_id} to erase: it never existed or is erased already; see `log`"
        case ForgetThread(thread=thread):
            problem = f"no thread {thread} to erase: it never existed or is erased already; see `threads`"
        case ForgetMatching():
            problem = "no content holds this text; see `log` and `threads`"
        case ForgetEverything() | ForgetExpired() | ForgetShared():
            problem = "nothing to erase: the ledger and the transcript hold no content"
        case _:
            assert_never(request)
    return NotFoundError(problem)


def _expired(
    request: ForgetExpired, memory: Memory, ledger: Walk, transcript: Walk, seal: ContentSeal | None
) -> ErasurePlan:
    """Plan the erasure of expired turns, of the summaries made from them, and of failures that may quote them."""
    turns = EvidenceTurns(transcript.stream, seal)
    first_erased: dict[str, int] = {}
    uncovered: dict[str, set[int]] = {}
    for turn in turns_of(transcript()):
        if not request.covered(turn.thread, turn.turn.n):
            uncovered.setdefault(turn.thread, set()).add(turn.turn.n)
        elif turn.at < request.before:
            turns.erase(turn, "expired")
            first_erased.setdefault(turn.thread, turn.seq)
    redacted: list[Redacted] = []
    sources = SummarySources()
    for commit in ledger() if turns.erased else ():
        sources.take(commit)
        for index, event in enumerate(commit.events):
            if isinstance(event, SummaryUpdated) and _is_made_from(event, turns.erased):
                redacted.append(Redacted(ledger.stream, commit.seq, index, "expired", section=event.section))
            elif isinstance(event, UpdateFailed) and _may_quote(commit, event, first_erased, uncovered):
                redacted.append(Redacted(ledger.stream, commit.seq, index, "expired"))
    sections = {event.section for event in redacted if event.section is not None}
    restated = sources.restated(sorted(memory.sections), sections)
    return ErasurePlan((*redacted, *turns.redacted.values()), tuple(restated))


def _is_made_from(event: SummaryUpdated, turns: Mapping[str, Collection[int]]) -> bool:
    """Whether an event holds a thread's summary that was made from some of these turns."""
    key = summary_in(event)
    if key is None:
        return False
    return any(n in turns.get(key.thread, ()) for n in range(key.turns.first, key.turns.last + 1))


def _may_quote(
    commit: Commit, failed: UpdateFailed, first_erased: Mapping[str, int], uncovered: Mapping[str, Collection[int]]
) -> bool:
    """Whether the detail of a failure may quote erased turns, which were recorded before it.

    `first_erased` is the transcript's seq of the first erased turn, by thread. A failure that parks turns that are
    still uncovered stays, because without it they would be pending again.
    """
    thread, head, parked = commit.cause.thread, commit.cause.transcript, failed.turns
    if thread is None or thread not in first_erased or (head is not None and head.seq < first_erased[thread]):
        return False
    return parked is None or not any(parked.first <= n <= parked.last for n in uncovered.get(thread, ()))


def plan_erasure(
    request: Erasure, memory: Memory, ledger: Walk, transcript: Walk, *, seal: ContentSeal | None = None, said: int = 0
) -> ErasurePlan:
    """Plan an erasure in both streams.

    Args:
        request: what to erase.
        memory: the current memory.
        ledger: starts reading the ledger at each call.
        transcript: starts reading the transcript at each call.
        seal: makes the keyed digests of erased turns, and the marks of erased facts and candidates; without it none
            are kept.
        said: the last commit of the transcript, for the marks.

    Returns:
        The plan; content that is erased already is not part of it. For expired turns it may be empty.

    Raises:
        UsageError: The text to match is empty.
        NotFoundError: There is nothing to erase.
    """
    if isinstance(request, ForgetExpired):
        return _expired(request, memory, ledger, transcript, seal)
    target = find_target(request, memory, ledger)
    turns = read_transcript(target, transcript, seal)
    walk = walk_until_settled(target, ledger, words_in_staying_turns(target, transcript, turns), seal, said)
    if not walk.redacted and not turns.redacted:
        raise _nothing_found(request)
    redacted = sorted(walk.redacted, key=lambda event: (event.seq, event.index))
    return ErasurePlan(
        (*redacted, *turns.redacted.values()),
        _restated(walk, target),
        tuple(_sharing(walk, target, turns)),
        _elsewhere(walk, target, ledger, transcript),
    )


def _elsewhere(walk: LedgerWalk, target: ErasureTarget, ledger: Walk, transcript: Walk) -> ForgetShared:
    """Return what the sections of the user's other memories may not say any more."""
    phrases, words = target.phrases, target.rare_words.all
    if target.everything:
        # Nothing was searched for in here, because all of it goes.
        for event in chain.from_iterable(commit.events for commit in ledger()):
            target.seek(texts_of(event), phrases=False)
            if isinstance(event, SummaryShared | SummaryUpdated) and summary_in(event) is None:
                target.seek_section(event)
        for turn in turns_of(transcript()):
            target.seek(turn_texts(turn.turn), phrases=False)
        words = frozenset(target.words)
    return ForgetShared(phrases.all, words, frozenset(walk.received), frozenset(walk.own))
