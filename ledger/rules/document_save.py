"""What a host changed in a document that it was given and hands back: taken as it decided it, within the policy."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.ledger.core.commands import SaveDocument, proposed_fields
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    CandidateRejected,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    NewFact,
    NewSummary,
    Removal,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.admission import Verdict, refusals_of
from backstory.ledger.rules.by_hand import imported, restated, screen_import, section_stated
from backstory.ledger.rules.ranking import Ranking

__all__ = ["save_document"]


def save_document(memory: Memory, command: SaveDocument) -> list[LedgerEvent]:
    """Take in what changed: removals, then sections, then facts that are new or say something else now.

    What is there and not spoken of stays, whoever put it there meanwhile: nothing is evicted for a newcomer.
    """
    refused: dict[str, Verdict] = {}
    gone = _removals(memory, command, refused)
    becoming = _becoming(memory, command, gone, refused)
    _dedup(memory, becoming, gone, refused)
    _cap(memory, command, becoming, gone, refused)
    events: list[LedgerEvent] = [
        FactRemoved(memory.facts[i], "import", place, note) for i, (place, note) in gone.items()
    ]
    sections = [candidate for candidate in command.candidates if isinstance(candidate, NewSummary)]
    events += [section_stated(memory, section, command.at) for section in sections]
    facts = [(candidate, fact) for candidate, fact in becoming if candidate.place not in refused]
    events += [_event(candidate, fact, _standing(memory, fact, gone)) for candidate, fact in facts]
    return [*events, *refusals_of(command.candidates, refused)]


def _event(candidate: NewFact, fact: Fact, before: Fact | None) -> LedgerEvent:
    told = proposed_fields(candidate, fact, stated=True)
    if before is None:
        return FactAdded(fact, candidate.place, told)
    if before == fact:
        return CandidateRejected(candidate, "unchanged", f"{fact.id} already says exactly this")
    return FactRevised(before, fact, "edited", candidate.place, told)


def _standing(memory: Memory, fact: Fact, gone: Mapping[str, object]) -> Fact | None:
    """The fact that another one is to take the place of, if it is still there then."""
    return None if fact.id in gone else memory.facts.get(fact.id)


def _removals(memory: Memory, command: SaveDocument, refused: dict[str, Verdict]) -> dict[str, tuple[str, str | None]]:
    """Tell which facts go, with the place and the reason of what asks for it."""
    gone: dict[str, tuple[str, str | None]] = {}
    for candidate in command.candidates:
        if not isinstance(candidate, Removal):
            continue
        if candidate.id in gone:
            refused[candidate.place] = Verdict("repeated", f"{gone[candidate.id][0]} already asks for it")
        elif candidate.id not in memory.facts:
            refused[candidate.place] = Verdict("unknown_fact", "no live fact has this id: it went meanwhile")
        else:
            gone[candidate.id] = (candidate.place, candidate.reason)
    return gone


def _becoming(
    memory: Memory, command: SaveDocument, gone: Mapping[str, object], refused: dict[str, Verdict]
) -> list[tuple[NewFact, Fact]]:
    """Tell what each fact becomes: the live one that it names, as it is stated now, or a new one under its id."""
    becoming: list[tuple[NewFact, Fact]] = []
    taken = {fact_id for fact_id in memory.facts if fact_id not in gone}
    named: set[str] = set()
    for candidate in command.candidates:
        if (verdict := screen_import(memory, candidate)) is not None:
            refused[candidate.place] = verdict
        elif isinstance(candidate, NewFact):
            live = memory.facts.get(candidate.id or "")
            if live is None or live.id in gone or live.id in named:
                fact = imported(memory, candidate, command.at, taken)
            else:
                fact = _as_stated(live, candidate)
            named.add(fact.id)
            taken.add(fact.id)
            becoming.append((candidate, fact))
        elif not isinstance(candidate, NewSummary | Removal):
            refused[candidate.place] = Verdict("malformed", "a document holds facts and sections, and nothing else")
    return becoming


def _as_stated(live: Fact, candidate: NewFact) -> Fact:
    fact = restated(live, candidate)
    created, source = candidate.at or live.created_at, candidate.source or live.source
    return msgspec.structs.replace(fact, created_at=created, source=source)


def _dedup(
    memory: Memory, becoming: list[tuple[NewFact, Fact]], gone: Mapping[str, object], refused: dict[str, Verdict]
) -> None:
    """Refuse what would say what another fact says.

    A fact that may not be restated goes on saying what it said, which may refuse another; the rounds end because each
    refuses somebody.
    """
    notion = memory.policy.dedup_key
    keys = {candidate.place: dedup_key(fact.content, notion) for candidate, fact in becoming}
    old = {fact.id: dedup_key(fact.content, notion) for fact in memory.facts.values() if fact.id not in gone}
    settled = False
    while not settled:
        settled = True
        moving = {fact.id for candidate, fact in becoming if candidate.place not in refused}
        holders = {key: fact_id for fact_id, key in old.items() if fact_id not in moving}
        for candidate, fact in becoming:
            if candidate.place in refused:
                continue
            holder = holders.setdefault(keys[candidate.place], fact.id)
            if holder != fact.id:
                refused[candidate.place] = Verdict("duplicate", f"{holder} already says this")
                settled = settled and fact.id not in old


def _cap(
    memory: Memory,
    command: SaveDocument,
    becoming: list[tuple[NewFact, Fact]],
    gone: Mapping[str, object],
    refused: dict[str, Verdict],
) -> None:
    """Refuse the newcomers for which there is no room, those that rank lowest."""
    most = memory.policy.max_facts
    newcomers = [
        (candidate, fact)
        for candidate, fact in becoming
        if candidate.place not in refused and _standing(memory, fact, gone) is None
    ]
    over = len(memory.facts) - len(gone) + len(newcomers) - most
    if over <= 0:
        return
    ranking = Ranking(memory.policy, command.at, command.heat)
    for candidate, fact in sorted(newcomers, key=lambda one: ranking.key(one[1]))[:over]:
        refused[candidate.place] = Verdict(
            "cap", f"memory holds {most} facts at most, and a saved document evicts none ({ranking.spelled(fact)})"
        )
