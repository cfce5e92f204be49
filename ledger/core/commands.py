"""What can be asked of a memory: commands, in the imperative, with all they need inside.

Time, ids and a model's answer come in with the command, so that deciding it is pure. No content is said in a command
that is not said again in the events it leads to: `candidates_of` rebuilds a proposal from its outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Access,
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    TurnRange,
)
from backstory.ledger.core.policy import Policy

__all__ = [
    "CONSOLIDATIONS",
    "LISTS",
    "AddFact",
    "ChangePolicy",
    "Clear",
    "Command",
    "EditFact",
    "Extract",
    "FailUpdate",
    "Fields",
    "ImportDocument",
    "Proposal",
    "RemoveFact",
    "Revert",
    "RollBack",
    "SaveDocument",
    "Summarize",
    "candidates_of",
    "labels_of",
    "merged_fields",
    "proposed_fields",
]


CONSOLIDATIONS = "factsToConsolidate/"
"""How the places of consolidations begin, whose outcome is a fact as well."""

Fields: TypeAlias = dict[str, str | int | float | bool | None]
"""Fields of a candidate by their names."""

LISTS = (
    "newFacts",
    "factsToRemove",
    "factsToReinforce",
    "staleFactsToRemove",
    "staleFactsToExtend",
    "factsToConsolidate",
)
"""The lists of a model's answer, in the order in which they are read."""

_GROUPS = ("user", "history")
_READ = {name: rank for rank, name in enumerate((*_GROUPS, *DOCUMENT_SECTIONS, "facts", *LISTS))}
"""Where in a proposal its parts are read: sections come before lists, a document's facts stand for themselves."""
_AGAIN = "again"

_LABELS = ("scope", "durability", "authority")


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is when it is asked: ISO 8601, UTC, microseconds; `heat` tells what facts were used of late, by id."""

    at: str
    heat: dict[str, Access] = {}


class Proposal(msgspec.Struct, frozen=True):
    """What a model answered: its candidates, and the sha256 and length of the raw text."""

    candidates: tuple[Candidate, ...]
    digest: str
    size: int


class Extract(_Command, frozen=True):
    """Merge a model's proposal, made from `thread` on the memory of commit `basis`.

    `shown` are the facts it saw, None is every one; `stale` those it was asked to review, None is whatever is due.
    """

    thread: str
    proposal: Proposal
    basis: int
    shown: tuple[str, ...] | None = None
    stale: tuple[str, ...] | None = None
    covered: bool = False


class FailUpdate(_Command, frozen=True):
    """Record that an update came to nothing; `turns` are parked, None parks none.

    `basis` is the commit of the memory that a model was asked on, whose words `detail` may hold; None: it holds none.
    """

    reason: str
    detail: str
    attempts: int = 1
    turns: TurnRange | None = None
    basis: int | None = None


class AddFact(_Command, frozen=True):
    """Enter a fact by hand."""

    fact: NewFact


class EditFact(_Command, frozen=True):
    """Change a fact by hand."""

    edit: Edit


class RemoveFact(_Command, frozen=True):
    """Remove a fact by hand."""

    fact_id: str


class Clear(_Command, frozen=True):
    """Forget facts and sections, keep the history."""


class ImportDocument(_Command, frozen=True):
    """Take in a document: beside what is there, or, with `replace`, instead of it.

    With a `basis` only where the memory is still that of this commit.
    """

    candidates: tuple[Candidate, ...]
    replace: bool = False
    basis: int | None = None


class SaveDocument(_Command, frozen=True):
    """Take in what a host changed in the document it was given: facts new or restated, removals, and sections.

    What it did not change is not said here, so that nothing others did meanwhile is undone.
    """

    candidates: tuple[Candidate, ...]


class ChangePolicy(_Command, frozen=True):
    """Put a policy in force; `source` is config or manual."""

    policy: Policy
    source: str = "manual"


class Revert(_Command, frozen=True):
    """Undo what of commit `target`, whose events are given, is still in force.

    `seen` is where the ledger stood when they were read, so that what is erased meanwhile is not brought back.
    """

    target: int
    events: tuple[Event, ...]
    force: bool = False
    seen: int | None = None


class RollBack(_Command, frozen=True):
    """Bring back the facts and sections of commit `to`; `seen` as in Revert."""

    to: int
    facts: tuple[Fact, ...]
    sections: dict[str, Section]
    seen: int | None = None


class Summarize(_Command, frozen=True):
    """Take in what a model was asked on commit `basis` to make of some turns of a thread, or of summaries of them.

    Of level 1 it is made from the turns `shown`, by ordinal; of a higher one from `sources`, the sections that it takes
    the place of. `since` and `until` are the times of the first and the last turn told. `failed` is why the model made
    nothing of it, `detail` that in words. `covered` where another summary tells of these turns already, `lost` where
    one of those shown was erased since.
    """

    thread: str
    level: int
    turns: TurnRange
    basis: int
    text: str = ""
    since: str = ""
    until: str = ""
    shown: tuple[int, ...] = ()
    sources: dict[str, Section] = {}
    failed: str | None = None
    detail: str = ""
    attempts: int = 1
    covered: bool = False
    lost: bool = False


Command: TypeAlias = (
    Extract
    | FailUpdate
    | AddFact
    | EditFact
    | RemoveFact
    | Clear
    | ImportDocument
    | SaveDocument
    | ChangePolicy
    | Revert
    | RollBack
    | Summarize
)


def _told(fact: Fact, place: str, *, stated: bool) -> NewFact:
    told = NewFact(
        place=place,
        content=fact.content,
        category=fact.category,
        confidence=fact.confidence,
        evidence=fact.evidence,
        source_error=fact.source_error,
        expected_valid_days=fact.expected_valid_days,
    )
    if not stated:
        return told
    return msgspec.structs.replace(
        told,
        evidence=(),
        id=fact.id,
        at=fact.created_at,
        source=fact.source,
        by_hand=fact.by_hand,
        confirmations=fact.confirmations,
        confirmed_at=fact.confirmed_at,
        consolidated_from=fact.consolidated_from,
    )


def proposed_fields(candidate: NewFact, fact: Fact, *, stated: bool) -> Fields:
    """Name the fields in which a candidate differs from the fact that came of it.

    `stated` tells whether ids, times and sources were the candidate's own to state (imports) or ours to give. Where a
    document does not say what a live fact was merged from, that is told as None.
    """
    told = _told(fact, candidate.place, stated=stated)
    same = msgspec.structs.replace(candidate, consolidated_from=told.consolidated_from)
    return _different(same, told) | ({} if same == candidate else {"consolidated_from": None})


def _stating(told: NewFact, proposed: Fields) -> NewFact:
    sources = {"consolidated_from": ()} if "consolidated_from" in proposed else {}
    return msgspec.structs.replace(told, **{**proposed, **sources})


def _merged(fact: Fact, place: str) -> Consolidation:
    return Consolidation(
        place=place,
        sources=fact.consolidated_from,
        content=fact.content,
        category=fact.category,
        confidence=fact.confidence,
    )


def merged_fields(candidate: Consolidation, fact: Fact) -> Fields:
    """Name the fields in which a candidate differs from the fact that its sources were merged into."""
    return _different(candidate, _merged(fact, candidate.place))


def _different(candidate: NewFact | Consolidation, told: NewFact | Consolidation) -> Fields:
    return {
        name: getattr(candidate, name)
        for name in candidate.__struct_fields__
        if getattr(candidate, name) != getattr(told, name)
    }


def labels_of(candidate: NewFact | Removal | NewSummary | Reinforcement | Extension | Consolidation) -> dict[str, str]:
    """Return the labels that a model gave a candidate, by their names."""
    return {name: label for name in _LABELS if (label := getattr(candidate, name)) is not None}


def _candidate_of(event: Event, *, stated: bool) -> Candidate | None:
    match event:
        case CandidateRejected():
            return event.candidate
        case FactAdded(place=str(place), fact=fact) if place.startswith(CONSOLIDATIONS):
            return msgspec.structs.replace(_merged(fact, place), **event.proposed)
        case FactAdded(place=str(place)):
            return _stating(_told(event.fact, place, stated=stated), event.proposed)
        case FactRemoved(place=str(place)):
            return Removal(
                place=place, id=event.fact.id, reason=event.note, replacement=event.replacement, **event.labels
            )
        case FactRevised(place=str(place)):
            return _revision_of(event, place, stated=stated)
        case SummaryUpdated(place=str(place)):
            text = event.after.summary if event.proposed is None else event.proposed
            at = event.after.updated_at if stated else None
            return NewSummary(place=place, summary=text, at=at, **event.labels)
        case _:
            return None


def _revision_of(event: FactRevised, place: str, *, stated: bool) -> Candidate | None:
    before, after = event.before, event.after
    if stated:
        return _stating(_told(after, place, stated=True), event.proposed)
    match event.change:
        case "confirmed":
            return msgspec.structs.replace(Reinforcement(place=place, id=after.id), **event.proposed)
        case "extended":
            return msgspec.structs.replace(Extension(place=place, id=after.id, days=0), **event.proposed)
        case "edited":
            changed = {
                name: getattr(after, name)
                for name in ("content", "category", "confidence")
                if getattr(after, name) != getattr(before, name)
            }
            return Edit(place=place, id=after.id, **(changed | event.proposed))
        case _:
            return None


def candidates_of(events: Iterable[Event], *, stated: bool = False) -> tuple[Candidate, ...]:
    """Rebuild a proposal from its outcomes, in the order of its places.

    An outcome that was erased is left out: what it said is gone for good.
    """
    found = [candidate for event in events if (candidate := _candidate_of(event, stated=stated)) is not None]
    return tuple(sorted(found, key=lambda candidate: _place_key(candidate.place)))


def _place_key(place: str) -> tuple[int, int]:
    """Rank a place as a reader comes to it: which of two equal candidates stands, and the order of events, rest on it.

    Places of no rank (whole files of an imported home) come last, as they are found.
    """
    name, _, index = place.partition("/")
    number = index.removeprefix(_AGAIN)
    if number != index and number.isdecimal():
        group = 1 + _GROUPS.index(name.partition(".")[0]) if "." in name and name in _READ else 0
        return (len(_READ) + group, int(number))
    return (_READ.get(name, len(_READ)), int(index) if index.isdecimal() else -1)
