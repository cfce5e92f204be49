"""Forgetting for good: which contents of both streams have to go, and what is said again of what stays.

Planning is pure and reads the streams from the first line to the last, several times and never holding more than what
goes. The ledger is walked until a walk finds nothing new: each event that goes may take along a fact (one whose removal
is erased would come back to life in a replay), and with it the last retained use of a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import (
    Fact,
    FactAdded,
    LedgerEvent,
    Redacted,
    Section,
    SummaryUpdated,
    TurnRange,
    UpdateFailed,
)
from backstory.ledger.core.memory import Memory, birth
from backstory.ledger.erasure.digest import Seal
from backstory.ledger.erasure.evidence import turn_redacted, turns_of
from backstory.ledger.erasure.requests import (
    Erasure,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetThread,
    Plan,
    Sharing,
    Walk,
)
from backstory.ledger.erasure.summary_sources import SummarySources
from backstory.ledger.erasure.target import ErasureTarget, aim_at, summary_in
from backstory.ledger.erasure.transcript import Said, read_transcript, used_in_turns
from backstory.ledger.erasure.walk import LedgerWalk, walk_until_settled

__all__ = [
    "Erasure",
    "ForgetEverything",
    "ForgetExpired",
    "ForgetFact",
    "ForgetMatching",
    "ForgetThread",
    "Plan",
    "Sharing",
    "plan_erasure",
]


def _restated(walk: LedgerWalk, target: ErasureTarget) -> tuple[LedgerEvent, ...]:
    """Say again what is named by an erased event and stays."""
    facts = {slot.fact for slot in walk.slots}
    sections = {slot.section for slot in walk.slots}
    staying = [fact for fact in target.memory.facts.values() if fact.id in facts and target.stays(fact.id)]
    return (
        *(FactAdded(fact) for fact in sorted(staying, key=birth)),
        *(
            SummaryUpdated(name, Section(), told.section)
            for name, told in sorted(walk.sections.items())
            if name in sections
        ),
        *walk.parts.again(sorted(target.memory.sections), {name for name in sections if name is not None}),
    )


def _sharing(walk: LedgerWalk, target: ErasureTarget, said: Said) -> Iterator[Sharing]:
    def seen(thread: str | None, turns: TurnRange | None) -> bool:
        return turns is not None and any(
            thread == other and turns.first <= n <= turns.last for other, n in said.evidence
        )

    def shares(fact: Fact) -> bool:
        cause = walk.births[fact.seq].cause if fact.seq in walk.births else None
        return any((fact.source, turn_id) in said.ids for turn_id in fact.evidence) or (
            not fact.evidence and cause is not None and fact.source == cause.thread and seen(cause.thread, cause.turns)
        )

    lineage = target.lineage
    staying = [fact for fact in target.memory.in_order() if target.stays(fact.id)]
    for fact in staying:
        if not target.facts.isdisjoint(lineage.ancestors(fact)) or any(map(shares, lineage.origins(fact))):
            yield Sharing("fact", fact.id, fact.content)
    gone = {slot.fact for slot in walk.slots}
    named = gone.union(fact.id for fact in staying)
    for fact in lineage.merged_into(target.facts) if walk.merged else ():
        if fact.id not in named:
            yield Sharing("fact", fact.id, fact.content)
    for name, told in sorted(walk.sections.items()):
        if seen(told.thread, told.turns):
            yield Sharing("section", name, told.section.summary)


def _not_there(request: Erasure) -> NotFoundError:
    match request:
        case ForgetFact(fact_id=fact_id):
            what = f"of fact {fact_id}: there never was one, or it is erased already"
        case ForgetThread(thread=thread):
            what = f"of thread {thread}: there never was one, or it is erased already"
        case ForgetMatching():
            what = "that holds this text"
        case _:
            what = "at all"
    return NotFoundError(f"there is nothing {what}; see `log` and `threads`")


def _expired(
    request: ForgetExpired,
    memory: Memory,
    ledger: Walk,
    transcript: Walk,
    *,
    streams: tuple[str, str],
    seal: Seal | None,
) -> Plan:
    """Plan for turns whose time has come, for the summaries made from them, and for failures that may quote them."""
    ledger_stream, transcript_stream = streams
    said = Said()
    since: dict[str, int] = {}
    waiting: dict[str, set[int]] = {}
    for turn in turns_of(transcript):
        if not request.covered(turn.thread, turn.turn.n):
            waiting.setdefault(turn.thread, set()).add(turn.turn.n)
        elif turn.at < request.before:
            said.redacted[turn.seq, turn.index] = turn_redacted(transcript_stream, turn, "expired", seal)
            since.setdefault(turn.thread, turn.seq)
    gone = said.gone()
    told: list[Redacted] = []
    parts = SummarySources()
    for commit in ledger() if gone else ():
        parts.take(commit)
        told += (
            Redacted(ledger_stream, commit.seq, index, "expired", section=event.section)
            for index, event in enumerate(commit.events)
            if isinstance(event, SummaryUpdated)
            and (summed := summary_in(event)) is not None
            and not gone.get(summed.thread, set()).isdisjoint(range(summed.turns.first, summed.turns.last + 1))
        )
        told += (
            Redacted(ledger_stream, commit.seq, index, "expired")
            for index, event in enumerate(commit.events)
            if isinstance(event, UpdateFailed) and _may_quote(commit, event, since, waiting)
        )
    again = parts.again(sorted(memory.sections), {event.section for event in told if event.section is not None})
    return Plan((*told, *said.redacted.values()), tuple(again))


def _may_quote(
    commit: Commit, failed: UpdateFailed, since: Mapping[str, int], waiting: Mapping[str, Collection[int]]
) -> bool:
    """Whether a provider's words about a failure may quote turns that go: those that had been said by then.

    `since` is the transcript's seq of the first that goes, by thread. What parks turns that still wait for a person
    stays: without it they would be learned from anew.
    """
    thread, pin, parked = commit.cause.thread, commit.cause.transcript, failed.turns
    if thread is None or thread not in since or (pin is not None and pin.seq < since[thread]):
        return False
    return parked is None or not any(parked.first <= n <= parked.last for n in waiting.get(thread, ()))


def plan_erasure(
    request: Erasure,
    memory: Memory,
    *,
    ledger: Walk,
    transcript: Walk,
    ledger_stream: str,
    transcript_stream: str,
    seal: Seal | None = None,
) -> Plan:
    """Plan what an erasure takes away from both streams, and what it says again.

    `ledger` and `transcript` begin the streams anew each time they are called, `memory` is today's. What is erased
    already is passed over. Of expired turns there may be none: then the plan is empty. `seal` makes the keyed digests
    that stay of turns; without it none do.

    Raises:
        UsageError: a text to match that is empty.
        NotFoundError: there is nothing to erase.
    """
    if isinstance(request, ForgetExpired):
        return _expired(request, memory, ledger, transcript, streams=(ledger_stream, transcript_stream), seal=seal)
    target = aim_at(request, memory, ledger)
    said = read_transcript(target, transcript, transcript_stream, seal)
    target.turns = said.gone()
    walk = walk_until_settled(target, ledger, used_in_turns(target, transcript, said))
    if not walk.slots and not said.redacted:
        raise _not_there(request)
    redacted = (
        Redacted(ledger_stream, slot.seq, slot.index, slot.what, fact=slot.fact, section=slot.section)
        for slot in sorted(walk.slots, key=lambda slot: (slot.seq, slot.index))
    )
    return Plan((*redacted, *said.redacted.values()), _restated(walk, target), tuple(_sharing(walk, target, said)))
