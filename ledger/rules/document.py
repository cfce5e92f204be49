"""Rules for documents: one that is imported, merged into memory or put in its place; and one that a host saves.

Of a saved document the changes count that a host made in the document it was given, within the policy. Nothing else in
memory changes, and no fact is evicted for a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import ImportDocument, SaveDocument, labels_of, proposed_fields
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    LedgerEvent,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    Unread,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy, kept_category
from backstory.ledger.core.sanitize import MAX_NAME
from backstory.ledger.rules.admission import (
    Newcomer,
    Verdict,
    admit,
    admitted,
    commit_named,
    given_id,
    is_reserved,
    newborn,
    refusals_of,
)
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.screening import period_verdict, threshold_verdict, too_long

GONE = "its id was not kept: another fact had it, which is gone"


def import_document(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Take in a document: merge it into memory, or replace memory with it.

    Raises:
        ConflictError: The import was made for another commit than the last one.
    """
    if command.basis not in (None, memory.seq):
        raise ConflictError(
            f"the document was to be imported after commit {command.basis}, and the last is {memory.seq}: look again"
        )
    return _replace(memory, command) if command.replace else _merge(memory, command)


def _merge(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    ids = ImportedIds(memory, command.candidates, memory.facts, gone=command.gone)
    newcomers: list[Newcomer] = [
        (candidate, _insisted(memory, command, imported(memory, candidate, command.at, ids)))
        for candidate in command.candidates
        if isinstance(candidate, NewFact)
    ]
    refused = {
        c.place: verdict
        for c in command.candidates
        if (verdict := screen_import(memory, c, command.at, insist=command.insist))
    }
    ranking = Ranking(memory.policy, command.at, command.heat)
    admission = admit(memory, newcomers, ranking, refused=refused)
    events = ids.reserved() + _sections(memory, command)
    events += [ids.explained(event) for event in admitted(admission, stated=True)]
    return events + refusals_of(command.candidates, admission.refused)


def _replace(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Make memory equal to the document with as few events as possible."""
    refused: dict[str, Verdict] = {}
    ids = ImportedIds(memory, command.candidates, memory.facts, gone=command.gone)
    chosen = _chosen(memory, command, refused, ids)
    ranking = Ranking(memory.policy, command.at, command.heat)
    over_cap = {fact.id for fact in ranking.overflow((fact for _, fact in chosen), by_hand_too=True)}
    events: list[LedgerEvent] = []
    for candidate, fact in chosen:
        event = fact_event(candidate, fact, memory.facts.get(fact.id))
        if fact.id in over_cap:
            refused[candidate.place] = Verdict("cap", f"memory holds {memory.policy.max_facts} facts at most")
        elif isinstance(event, CandidateRejected):
            refused[candidate.place] = Verdict(event.rule, event.detail)
        else:
            events.append(ids.explained(event))
    staying = {fact.id for _, fact in chosen} - over_cap
    leaving: list[LedgerEvent] = [FactRemoved(f, "import") for f in memory.facts.values() if f.id not in staying]
    return [*ids.reserved(), *leaving, *_sections(memory, command), *events, *refusals_of(command.candidates, refused)]


def _chosen(
    memory: Memory, command: ImportDocument, refused: dict[str, Verdict], ids: ImportedIds
) -> list[tuple[NewFact, Fact]]:
    """Pair the facts of the document with what they become; a text that it states twice is refused."""
    chosen: list[tuple[NewFact, Fact]] = []
    places: dict[str, str] = {}
    for candidate, named in _paired(memory, command, refused, ids):
        fact = _insisted(memory, command, named)
        key = dedup_key(fact.content, memory.policy.dedup_key)
        if key in places:
            refused[candidate.place] = Verdict("duplicate", f"{places[key]} of the same document says this")
        else:
            places[key] = candidate.place
            chosen.append((candidate, fact))
    return chosen


def _insisted(memory: Memory, command: ImportDocument, fact: Fact) -> Fact:
    """Make a fact below the threshold a person's, if the command insists on it."""
    below = command.insist and fact.confidence < memory.policy.fact_confidence_threshold
    return msgspec.structs.replace(fact, by_hand=True) if below else fact


def _sections(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    sections = (c for c in command.candidates if isinstance(c, NewSummary) and too_long(c) is None)
    return [_imported_section(memory, section, command) for section in sections]


def _imported_section(memory: Memory, candidate: NewSummary, command: ImportDocument) -> LedgerEvent:
    stated = section_event(memory, candidate, command.at)
    if command.replace or isinstance(stated, CandidateRejected):
        return stated
    before, after = stated.before, stated.after
    if not after.summary:
        return CandidateRejected(candidate, "empty", "the document says nothing here, and merging takes nothing away")
    if before.summary and after.updated_at <= before.updated_at:
        return CandidateRejected(candidate, "older", f"the section was written later, at {before.updated_at}")
    return stated


# Rules for one fact or section, for both.


def screen_import(memory: Memory, candidate: Candidate, at: str, *, insist: bool = False) -> Verdict | None:
    """Return why an item of a document is refused on its own at a moment; None if it is not.

    `insist` is as in ImportDocument.
    """
    if (verdict := too_long(candidate)) is not None:
        return verdict
    match candidate:
        case Unread():
            return Verdict("malformed", candidate.detail)
        case NewFact() if not candidate.content:
            return Verdict("empty", "the fact has no text")
        case NewFact():
            sure = candidate.by_hand or insist
            verdict = None if sure else threshold_verdict(candidate.confidence, memory.policy)
            return verdict or period_verdict(candidate, at)
        case NewSummary() | Removal() | Reinforcement() | Extension() | Consolidation() | Edit():
            return None
        case _:
            assert_never(candidate)


class ImportedIds:
    """The ids of the new facts of a document: the stated ones as far as they are free.

    Args:
        memory: the state that the facts would enter.
        candidates: the whole document; its ids are not given to other facts of it.
        live: the ids that are taken.
        gone: the ids that other facts had which are gone.
    """

    def __init__(
        self, memory: Memory, candidates: Iterable[Candidate], live: Iterable[str], *, gone: Iterable[str] = ()
    ) -> None:
        self._seq = memory.seq
        self._named_ahead = memory.named_ahead
        self._stated = {c.id for c in candidates if isinstance(c, NewFact) and c.id}
        self._taken = set(live)
        self._gone = frozenset(gone)
        self._reasons: dict[str, str] = {}

    def take(self, candidate: NewFact, generated: str) -> str:
        """Return the id of a candidate's fact; `generated` is the id of a fact that states none."""
        stated = candidate.id
        reason = self._reason(stated) if stated else None
        if stated and reason is None:
            fact_id = stated
        else:
            fact_id = generated
            if generated in self._stated or generated in self._taken:
                fact_id = given_id(self._seq + 1, int(candidate.place.rpartition("/")[2]), second=True)
        if reason is not None:
            self._reasons[candidate.place] = reason
        self._taken.add(fact_id)
        return fact_id

    def _reason(self, stated: str) -> str | None:
        if len(stated) > MAX_NAME:
            return f"its id was not kept: it has {len(stated):,} characters, and at most {MAX_NAME} are kept"
        if stated in self._taken:
            return "its id was not kept: another fact in memory has it"
        if stated in self._gone:
            return GONE
        if is_reserved(stated, self._seq):
            return "its id was not kept: a later commit may give it to another fact"
        return None

    def reserved(self) -> list[LedgerEvent]:
        """Return the event that keeps later commits from giving an id of the document; none where none could."""
        until = max((commit_named(stated) for stated in self._stated if len(stated) <= MAX_NAME), default=0)
        return [IdsReserved(until)] if until > max(self._seq + 1, self._named_ahead) else []

    def explained(self, event: LedgerEvent) -> LedgerEvent:
        """Return an event with the reason why the id that its candidate states was not kept, if it was not."""
        if not isinstance(event, FactAdded) or event.place not in self._reasons:
            return event
        return msgspec.structs.replace(event, detail=self._reasons[event.place])


def imported(memory: Memory, candidate: NewFact, at: str, ids: ImportedIds) -> Fact:
    """Return the new fact of a document's candidate; it keeps the id that the document states if that is free."""
    fact = newborn(memory, candidate, at, "import")
    return msgspec.structs.replace(fact, id=ids.take(candidate, fact.id))


def restated(live: Fact, candidate: NewFact, policy: Policy) -> Fact:
    """Return a live fact as a document states it; its id, birth, creation time and source stay."""
    return msgspec.structs.replace(
        live,
        content=candidate.content,
        category=kept_category(candidate.category, policy),
        confidence=candidate.confidence,
        source_error=candidate.source_error,
        expected_valid_days=candidate.expected_valid_days,
        by_hand=live.by_hand or candidate.by_hand,
        confirmations=max(live.confirmations, candidate.confirmations),
        confirmed_at=candidate.confirmed_at or live.confirmed_at,
        consolidated_from=candidate.consolidated_from or live.consolidated_from,
        valid_from=candidate.valid_from or live.valid_from,
        valid_until=candidate.valid_until or live.valid_until,
        expires_at=candidate.expires_at or live.expires_at,
        tags=candidate.tags or live.tags,
        attributes=candidate.attributes or live.attributes,
    )


def _paired(
    memory: Memory,
    command: ImportDocument | SaveDocument,
    refused: dict[str, Verdict],
    ids: ImportedIds,
    removed: Collection[str] = (),
) -> list[tuple[NewFact, Fact]]:
    """Pair each fact of a document with what it becomes: the live fact of its id as restated, or a new fact.

    What is refused on its own is left out.
    """
    insist = isinstance(command, ImportDocument) and command.insist
    pairs: list[tuple[NewFact, Fact]] = []
    named: set[str] = set()
    for candidate in command.candidates:
        verdict = screen_import(memory, candidate, command.at, insist=insist)
        if verdict is not None:
            refused[candidate.place] = verdict
        if isinstance(candidate, NewFact):
            # A refused fact takes its id, too: under another policy the others have the same ids.
            live = memory.facts.get(candidate.id or "")
            if live is None or live.id in removed or live.id in named:
                fact = imported(memory, candidate, command.at, ids)
            else:
                fact = restated(live, candidate, memory.policy)
            named.add(fact.id)
            if verdict is None:
                pairs.append((candidate, fact))
    return pairs


def fact_event(candidate: NewFact, fact: Fact, before: Fact | None) -> FactAdded | FactRevised | CandidateRejected:
    """Return the event that makes a fact what a document says; `before` is the live fact, if there is one."""
    proposed = proposed_fields(candidate, fact, stated=True)
    if before is None:
        return FactAdded(fact, candidate.place, proposed)
    if before == fact:
        return CandidateRejected(candidate, "unchanged", f"{fact.id} already says exactly this")
    return FactRevised(before, fact, "edited", candidate.place, proposed)


def section_event(memory: Memory, candidate: NewSummary, at: str) -> CandidateRejected | SummaryUpdated:
    """Return the event that sets a section to a document's text; `at` is its time if the document states none."""
    before = memory.section(candidate.place)
    after = Section(candidate.summary, (candidate.at or at) if candidate.summary else "")
    if after.summary == before.summary:
        return CandidateRejected(candidate, "unchanged", "the section already says exactly this")
    return SummaryUpdated(candidate.place, before, after, candidate.place, labels=labels_of(candidate))


def save_document(memory: Memory, command: SaveDocument) -> list[LedgerEvent]:
    """Return the events of a save: removals, then sections, then new and restated facts, then refusals."""
    refused: dict[str, Verdict] = {}
    removed = _removals(memory, command, refused)
    ids = ImportedIds(memory, command.candidates, (i for i in memory.facts if i not in removed))
    saved = [
        (candidate, _dated(candidate, fact)) for candidate, fact in _paired(memory, command, refused, ids, removed)
    ]
    for candidate in command.candidates:
        if not isinstance(candidate, NewFact | NewSummary | Removal):
            refused.setdefault(
                candidate.place, Verdict("malformed", "a document holds facts and sections, and nothing else")
            )
    _dedup(memory, saved, removed, refused)
    _cap(memory, command, saved, removed, refused)
    events: list[LedgerEvent] = ids.reserved()
    events += [FactRemoved(memory.facts[i], "import", place, note) for i, (place, note) in removed.items()]
    sections = [c for c in command.candidates if isinstance(c, NewSummary) and c.place not in refused]
    events += [section_event(memory, section, command.at) for section in sections]
    events += [
        ids.explained(fact_event(candidate, fact, _live(memory, fact, removed)))
        for candidate, fact in saved
        if candidate.place not in refused
    ]
    return [*events, *refusals_of(command.candidates, refused)]


def _dated(candidate: NewFact, fact: Fact) -> Fact:
    """Return a fact with the time and the source that a host states of it, which an import leaves to the live fact."""
    created, source = candidate.at or fact.created_at, candidate.source or fact.source
    return msgspec.structs.replace(fact, created_at=created, source=source)


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
