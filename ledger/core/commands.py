"""Commands: what can be asked of a memory, each with everything that deciding it needs.

The time and a model's answer are fields of the command, so that `decide` is pure. All content of a command is also in
the events that it leads to, so `candidates_of` can rebuild a proposal from its outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, assert_never

import msgspec

from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    SECTION_GROUPS,
    Access,
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    ErasureEvent,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactEvent,
    FactRemoved,
    FactRevised,
    Fields,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SectionEvent,
    SettingEvent,
    Spoken,
    SummaryShared,
    SummaryUpdated,
    TurnEvent,
    TurnRange,
    Unread,
    UpdateEvent,
)
from backstory.ledger.core.kinds import FailureReason, PolicySource
from backstory.ledger.core.policy import Policy

CONSOLIDATIONS = "factsToConsolidate/"
"""The prefix of the places of consolidations."""

LISTS = (
    "newFacts",
    "factsToRemove",
    "factsToEnd",
    "factsToReinforce",
    "staleFactsToRemove",
    "staleFactsToExtend",
    "factsToConsolidate",
)
"""The lists of a model's answer, in reading order."""

_READING_ORDER = {name: rank for rank, name in enumerate((*SECTION_GROUPS, *DOCUMENT_SECTIONS, "facts", *LISTS))}
"""The rank of each part of a proposal: sections first, then a document's facts or a model's lists."""
_AGAIN = "again"
"""The index prefix of a part that a reply gives a second time."""

_LABELS = ("scope", "durability", "authority", "topic")

TIMES = ("valid_from", "valid_until", "expires_at")
"""The fields of a fact that say when it holds."""
TAGS = ("tags", "attributes")
"""The fields of a fact that reads can be filtered by, and that say nothing themselves."""
EDITABLE = ("content", "category", "confidence", *TIMES, *TAGS)
"""The fields that an Edit changes."""


def withheld(place: str) -> Unread:
    """Return the candidate that stands for one whose text was erased: nothing of it is kept but its place."""
    return Unread(place=place, text="", detail="")


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is the time of the command: ISO 8601, UTC, microseconds; `heat` is the recent use of facts, by id.

    `transcript` is the last commit of the transcript by then, where a person takes something away that a model might
    add again; None in commits of earlier versions, which left no marks.
    """

    at: str
    heat: dict[str, Access] = {}
    transcript: int | None = None


class Proposal(msgspec.Struct, frozen=True):
    """What a model answered: its candidates, and the sha256 and length of the raw text."""

    candidates: tuple[Candidate, ...]
    digest: str
    size: int


class Extract(_Command, frozen=True):
    """Merge a model's proposal, made from `thread` on the memory of commit `basis`.

    `shown` are the ids of the facts it saw (None: all), `stale` of those it was asked to review (None: all that are
    due). `covered`: another update has covered the same turns. `users`: the sections shown were the user's, as of this
    commit of the user's memory, and new ones are the user's too. `users_erased`: an erasure there came after it.
    `said_again`, `answered` and `cited` as in UpdateProposed.
    """

    thread: str
    proposal: Proposal
    basis: int
    shown: tuple[str, ...] | None = None
    stale: tuple[str, ...] | None = None
    covered: bool = False
    users: int | None = None
    users_erased: int | None = None
    said_again: dict[str, float] = {}
    answered: Spoken | None = None
    cited: dict[str, Spoken] = {}

    def spoken(self, evidence: Iterable[str] = ()) -> Spoken | None:
        """Return when the words behind a candidate were said: the turns that it cites, else those of the update.

        A host's clock may be fast, so no time is later than the command's. None where it is not known.
        """
        said = Spoken.of_all(self.cited[turn] for turn in evidence if turn in self.cited) or self.answered
        return said and msgspec.structs.replace(said, at=min(said.at, self.at))


class FailUpdate(_Command, frozen=True):
    """Record that an update failed; `turns` are parked until a person asks for them again (None: no turns).

    `basis` is the commit of the memory that the model was shown, if `detail` may quote that memory.
    """

    reason: FailureReason
    detail: str
    attempts: int = 1
    turns: TurnRange | None = None
    basis: int | None = None


class AddFact(_Command, frozen=True):
    """Add a fact: by hand or, with `by_model`, by a model's tool in the conversation `thread`.

    `erased`: a text of the same dedup key was erased.
    """

    fact: NewFact
    by_model: bool = False
    thread: str | None = None
    erased: bool = False


class EditFact(_Command, frozen=True):
    """Change a fact: by hand or, with `by_model`, by a model's tool; `erased` as in AddFact."""

    edit: Edit
    by_model: bool = False
    erased: bool = False


class RemoveFact(_Command, frozen=True):
    """Remove a fact: by hand or, with `by_model`, by a model's tool; `ended` and `valid_until` as in Removal."""

    fact_id: str
    by_model: bool = False
    ended: bool = False
    valid_until: str | None = None


class Expire(_Command, frozen=True):
    """Take out of memory the facts whose `valid_until` or `expires_at` is over."""


class Clear(_Command, frozen=True):
    """Remove all facts and sections; the history stays."""


class ImportDocument(_Command, frozen=True):
    """Merge a document into memory, or, with `replace`, put it in the place of memory.

    With `insist`, a fact below the confidence threshold is kept as if entered by hand. With a `basis`, the command is
    refused if a commit was made after that one. `gone` are ids in the document that are not kept, because another fact
    that is gone had them.
    """

    candidates: tuple[Candidate, ...]
    replace: bool = False
    insist: bool = False
    basis: int | None = None
    gone: tuple[str, ...] = ()


class SaveDocument(_Command, frozen=True):
    """Apply what a host changed in the document it was given: new and restated facts, removals, and sections.

    Unchanged items are left out, so that a save does not undo other updates.
    """

    candidates: tuple[Candidate, ...]


class ShareSummaries(_Command, frozen=True):
    """Receive the sections that commit `seq` of an agent's ledger shared with its user.

    `basis` is the commit of this memory that they were made on, `thread` the agent's thread. With `cut` nothing is
    received: the agent's ledger ends at `seq` now, after a repair, and its next commit gets a number that was used.
    """

    agent: str
    seq: int
    basis: int
    summaries: tuple[NewSummary, ...]
    thread: str | None = None
    cut: bool = False


class MoveSections(_Command, frozen=True):
    """Empty an agent's own sections, and share those that are newer than the user's.

    `users` are the user's sections at commit `basis` of the user's memory. `barred` are the names of those whose text
    is older than a clear, an erasure or an undo there.
    """

    users: dict[str, Section]
    basis: int
    barred: tuple[str, ...] = ()


class ChangePolicy(_Command, frozen=True):
    """Put a policy in force."""

    policy: Policy
    source: PolicySource = "manual"


class Revert(_Command, frozen=True):
    """Undo what is still in force of commit `target`, whose events are given.

    `seen` is the last commit when they were read, so that content erased since is not brought back. Where the target
    reverts a commit itself, `undone` are the events of that one, made at `undone_at`: facts that it ended end again.
    """

    target: int
    events: tuple[Event, ...]
    force: bool = False
    seen: int | None = None
    undone: tuple[Event, ...] = ()
    undone_at: str = ""


class RollBack(_Command, frozen=True):
    """Restore the facts and sections of commit `to`; `seen` as in Revert."""

    to: int
    facts: tuple[Fact, ...]
    sections: dict[str, Section]
    seen: int | None = None


class Summarize(_Command, frozen=True):
    """Store a model's summary of `turns` of a thread, asked for on the memory of commit `basis`.

    A summary of level 1 is made from the turns `shown` (ordinals), one of a higher level from `sources`, the sections
    that it replaces. `since` and `until` are the times of the first and the last turn. `failed` is the reason if the
    model gave no summary, and `detail` says it in words. `covered`: another summary covers these turns. `lost`: one of
    the turns shown has been erased.
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
    failed: FailureReason | None = None
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
    | Expire
    | Clear
    | ImportDocument
    | SaveDocument
    | ShareSummaries
    | MoveSections
    | ChangePolicy
    | Revert
    | RollBack
    | Summarize
)


def _as_candidate(fact: Fact, place: str, *, stated: bool) -> NewFact:
    candidate = NewFact(
        place=place,
        content=fact.content,
        category=fact.category,
        confidence=fact.confidence,
        evidence=fact.evidence,
        source_error=fact.source_error,
        expected_valid_days=fact.expected_valid_days,
        valid_from=fact.valid_from,
        valid_until=fact.valid_until,
        expires_at=fact.expires_at,
        tags=fact.tags,
        attributes=fact.attributes,
    )
    if not stated:
        return candidate
    return msgspec.structs.replace(
        candidate,
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
    """Return the fields in which a candidate differs from the fact that it became.

    Args:
        candidate: the candidate as it was proposed.
        fact: the fact that it became.
        stated: whether the candidate may state ids, times and sources itself, as an imported document does.

    Returns:
        The candidate's values, by field name. `consolidated_from` is None if only the fact has sources.
    """
    derived = _as_candidate(fact, candidate.place, stated=stated)
    same = msgspec.structs.replace(candidate, consolidated_from=derived.consolidated_from)
    return _different(same, derived) | ({} if same == candidate else {"consolidated_from": None})


def _with_fields(candidate: NewFact, proposed: Fields) -> NewFact:
    sources = {"consolidated_from": ()} if "consolidated_from" in proposed else {}
    return msgspec.structs.replace(candidate, **{**proposed, **sources})


def _merged(fact: Fact, place: str) -> Consolidation:
    return Consolidation(
        place=place,
        sources=fact.consolidated_from,
        content=fact.content,
        category=fact.category,
        confidence=fact.confidence,
    )


def merged_fields(candidate: Consolidation, fact: Fact) -> Fields:
    """Return the fields, by name, in which a candidate differs from the fact that its sources were merged into."""
    return _different(candidate, _merged(fact, candidate.place))


def _different(candidate: NewFact | Consolidation, derived: NewFact | Consolidation) -> Fields:
    fields = zip(
        candidate.__struct_fields__, msgspec.structs.astuple(candidate), msgspec.structs.astuple(derived), strict=True
    )
    return {name: proposed for name, proposed, became in fields if proposed != became}


def labels_of(candidate: NewFact | Removal | NewSummary | Reinforcement | Extension | Consolidation) -> dict[str, str]:
    """Return the labels that a model gave a candidate, by name."""
    return {name: label for name in _LABELS if (label := getattr(candidate, name)) is not None}


def _candidate_of(event: Event, *, stated: bool) -> Candidate | None:
    match event:
        case CandidateRejected():
            return event.candidate
        case FactAdded(place=str(place), fact=fact) if place.startswith(CONSOLIDATIONS):
            return msgspec.structs.replace(_merged(fact, place), **event.proposed)
        case FactAdded(place=str(place)):
            return _with_fields(_as_candidate(event.fact, place, stated=stated), event.proposed)
        case FactRemoved(place=str(place)):
            return Removal(
                place=place,
                id=event.fact.id,
                reason=event.note,
                replacement=event.replacement,
                ended=event.reason == "ended",
                valid_until=event.valid_until,
                **event.labels,
            )
        case FactRevised(place=str(place)):
            return _revision_of(event, place, stated=stated)
        case SummaryUpdated(place=str(place)):
            text = event.after.summary if event.proposed is None else event.proposed
            at = event.after.updated_at if stated else None
            return NewSummary(place=place, summary=text, at=at, **event.labels)
        case SummaryShared(place=str(place)):
            text = event.text if event.proposed is None else event.proposed
            return NewSummary(place=place, summary=text, **event.labels)
        case FactEvent() | SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return None
        case _:
            assert_never(event)


def _revision_of(event: FactRevised, place: str, *, stated: bool) -> Candidate | None:
    before, after = event.before, event.after
    if stated:
        return _with_fields(_as_candidate(after, place, stated=True), event.proposed)
    match event.change:
        case "confirmed":
            return msgspec.structs.replace(Reinforcement(place=place, id=after.id), **event.proposed)
        case "extended":
            return msgspec.structs.replace(Extension(place=place, id=after.id, days=0), **event.proposed)
        case "edited":
            changed = {
                name: "" if (value := getattr(after, name)) is None else value
                for name in EDITABLE
                if getattr(after, name) != getattr(before, name)
            }
            return msgspec.structs.replace(Edit(place=place, id=after.id), **(changed | event.proposed))
        case "ending":
            ending = Removal(place=place, id=after.id, ended=True, valid_until=after.valid_until)
            return msgspec.structs.replace(ending, **event.proposed)
        case "restored" | "tagged":
            return None


def candidates_of(events: Iterable[Event], *, stated: bool = False) -> tuple[Candidate, ...]:
    """Rebuild a proposal from the events that it led to, in reading order.

    Args:
        events: the events of one commit; an erased one gives no candidate.
        stated: as in `proposed_fields`.
    """
    found = [candidate for event in events if (candidate := _candidate_of(event, stated=stated)) is not None]
    return tuple(sorted(found, key=lambda candidate: _place_key(candidate.place)))


def _place_key(place: str) -> tuple[int, int]:
    """Return the sort key of a place in reading order.

    The order decides which of two equal candidates is kept, and the order of the events. Places without a rank (whole
    files of an imported home) come last, in the order in which they were found.
    """
    name, _, index = place.partition("/")
    number = index.removeprefix(_AGAIN)
    last = len(_READING_ORDER)
    if number != index and number.isdecimal():
        group = 1 + tuple(SECTION_GROUPS).index(name.partition(".")[0]) if "." in name and name in _READING_ORDER else 0
        return (last + group, int(number))
    return (_READING_ORDER.get(name, last), int(index) if index.isdecimal() else -1)
