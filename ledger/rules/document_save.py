"""Rules for a saved document: the changes that a host made in the document it was given, within the policy.

Nothing else in memory changes, and no fact is evicted for a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.ledger.core.commands import SaveDocument
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Fact,
    FactRemoved,
    LedgerEvent,
    NewFact,
    NewSummary,
    Removal,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.admission import Verdict, refusals_of
from backstory.ledger.rules.document_import import (
    ImportedIds,
    fact_event,
    imported,
    restated,
    screen_import,
    section_event,
)
from backstory.ledger.rules.ranking import Ranking


def save_document(memory: Memory, command: SaveDocument) -> list[LedgerEvent]:
    """Return the events of a save: removals, then sections, then new and restated facts, then refusals."""
    refused: dict[str, Verdict] = {}
    removed = _removals(memory, command, refused)
    ids = ImportedIds(memory, command.candidates, (i for i in memory.facts if i not in removed))
    saved = _saved(memory, command, removed, refused, ids)
    _dedup(memory, saved, removed, refused)
    _cap(memory, command, saved, removed, refused)
    events: list[LedgerEvent] = ids.reserved()
    events += [FactRemoved(memory.facts[i], "import", place, note) for i, (place, note) in removed.items()]
    sections = [c for c in command.candidates if isinstance(c, NewSummary) and c.place not in refused]
    events += [section_event(memory, section, command.at) for section in sections]
    facts = [(candidate, fact) for candidate, fact in saved if candidate.place not in refused]
    events += [ids.explained(fact_event(candidate, fact, _live(memory, fact, removed))) for candidate, fact in facts]
    return [*events, *refusals_of(command.candidates, refused)]


def _live(memory: Memory, fact: Fact, removed: Mapping[str, object]) -> Fact | None:
    """Return the live fact that a saved fact restates; None if there is none or the save removes it."""
    return None if fact.id in removed else memory.facts.get(fact.id)


def _removals(memory: Memory, command: SaveDocument, refused: dict[str, Verdict]) -> dict[str, tuple[str, str | None]]:
    """Return the place and the reason of each accepted removal, by fact id."""
    removed: dict[str, tuple[str, str | None]] = {}
    for candidate in command.candidates:
        if not isinstance(candidate, Removal):
            continue
        if candidate.id in removed:
            refused[candidate.place] = Verdict("repeated", f"{removed[candidate.id][0]} already asks for it")
        elif candidate.id not in memory.facts:
            refused[candidate.place] = Verdict("unknown_fact", "no live fact has this id: it went meanwhile")
        else:
            removed[candidate.id] = (candidate.place, candidate.reason)
    return removed


def _saved(
    memory: Memory,
    command: SaveDocument,
    removed: Mapping[str, object],
    refused: dict[str, Verdict],
    ids: ImportedIds,
) -> list[tuple[NewFact, Fact]]:
    """Pair each fact with what it becomes: the live fact of its id as restated, or a new fact."""
    saved: list[tuple[NewFact, Fact]] = []
    named: set[str] = set()
    for candidate in command.candidates:
        verdict = screen_import(memory, candidate, command.at)
        if verdict is not None:
            refused[candidate.place] = verdict
        if isinstance(candidate, NewFact):
            # As in an import, a refused fact takes its id, too.
            live = memory.facts.get(candidate.id or "")
            if live is None or live.id in removed or live.id in named:
                fact = imported(memory, candidate, command.at, ids)
            else:
                created, source = candidate.at or live.created_at, candidate.source or live.source
                fact = msgspec.structs.replace(
                    restated(live, candidate, memory.policy), created_at=created, source=source
                )
            named.add(fact.id)
            if verdict is None:
                saved.append((candidate, fact))
        elif verdict is None and not isinstance(candidate, NewSummary | Removal):
            refused[candidate.place] = Verdict("malformed", "a document holds facts and sections, and nothing else")
    return saved


def _dedup(
    memory: Memory, saved: list[tuple[NewFact, Fact]], removed: Mapping[str, object], refused: dict[str, Verdict]
) -> None:
    """Refuse facts that would repeat another fact.

    A live fact whose new text is refused keeps its old text, which may refuse another fact. So the rule runs in rounds
    until one refuses no live fact.
    """
    mode = memory.policy.dedup_key
    keys = {candidate.place: dedup_key(fact.content, mode) for candidate, fact in saved}
    old = {fact.id: dedup_key(fact.content, mode) for fact in memory.facts.values() if fact.id not in removed}
    settled = False
    while not settled:
        settled = True
        restating = {fact.id for candidate, fact in saved if candidate.place not in refused}
        holders = {key: fact_id for fact_id, key in old.items() if fact_id not in restating}
        for candidate, fact in saved:
            if candidate.place in refused:
                continue
            holder = holders.setdefault(keys[candidate.place], fact.id)
            if holder != fact.id:
                refused[candidate.place] = Verdict("duplicate", f"{holder} already says this")
                settled = settled and fact.id not in old


def _cap(
    memory: Memory,
    command: SaveDocument,
    saved: list[tuple[NewFact, Fact]],
    removed: Mapping[str, object],
    refused: dict[str, Verdict],
) -> None:
    """Refuse the new facts of the lowest rank for which there is no room."""
    most = memory.policy.max_facts
    newcomers = [
        (candidate, fact)
        for candidate, fact in saved
        if candidate.place not in refused and _live(memory, fact, removed) is None
    ]
    over = len(memory.facts) - len(removed) + len(newcomers) - most
    if over <= 0:
        return
    ranking = Ranking(memory.policy, command.at, command.heat)
    for candidate, fact in sorted(newcomers, key=lambda one: ranking.key(one[1]))[:over]:
        refused[candidate.place] = Verdict(
            "cap", f"memory holds {most} facts at most, and a saved document evicts none ({ranking.spelled(fact)})"
        )
