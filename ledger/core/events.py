"""What can have happened: the events of both streams, and the values they carry.

Every event is a frozen msgspec struct, told apart by `type`; the JSON in the log is exactly its encoding, with
camelCase names and defaults left out. An event carries what it replaced, so that its inverse needs nothing else. The
form was chosen by measurement: see docs/adr/0001-events-are-msgspec-structs.md.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from backstory.ledger.core.policy import Policy

__all__ = [
    "DOCUMENT_SECTIONS",
    "Access",
    "Candidate",
    "CandidateRejected",
    "Consolidation",
    "Edit",
    "Erased",
    "Event",
    "Extension",
    "Fact",
    "FactAdded",
    "FactRemoved",
    "FactRevised",
    "LedgerEvent",
    "NewFact",
    "NewSummary",
    "PolicyChanged",
    "Redacted",
    "Reinforcement",
    "Removal",
    "Section",
    "SummaryUpdated",
    "Turn",
    "TurnRange",
    "TurnRecorded",
    "TurnSuperseded",
    "Unread",
    "UpdateFailed",
    "UpdateProposed",
]

DOCUMENT_SECTIONS = (
    "user.workContext",
    "user.personalContext",
    "user.topOfMind",
    "history.recentMonths",
    "history.earlierContext",
    "history.longTermBackground",
)
"""The six sections of memory.json, in its order."""


class _Value(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=False):
    """What events are made of."""


class Fact(_Value, frozen=True, kw_only=True):
    """One thing remembered.

    `source` is the thread it came from, `manual` or `import`; `evidence` the ids of the turns cited; `seq` and `place`
    say which commit gave birth to it and where in that commit's proposal it stood, which is its rank by birth.
    `by_hand` facts are a person's and out of a model's reach. `consolidated_from` names the facts that were merged
    into it. Times are ISO 8601, UTC, microseconds.
    """

    id: str
    content: str
    category: str
    confidence: float
    created_at: str
    source: str
    seq: int
    place: int = 0
    by_hand: bool = False
    source_error: str | None = None
    expected_valid_days: int | None = None
    evidence: tuple[str, ...] = ()
    confirmations: int = 0
    confirmed_at: str | None = None
    consolidated_from: tuple[str, ...] = ()


class Access(_Value, frozen=True):
    """How much a fact was used of late, and when it was used last; each use adds 1 to a heat that cools with time."""

    heat: float
    at: str


class Section(_Value, frozen=True):
    """A summary and when it was last written; the empty one was never written.

    `since` and `until`, in a thread's summary, are the times of the first and the last turn that it tells.
    """

    summary: str = ""
    updated_at: str = ""
    since: str = ""
    until: str = ""


class TurnRange(_Value, frozen=True):
    """Turns of one thread, by ordinal, both ends included."""

    first: int
    last: int


# Candidates: what a model, a person or an imported document proposed. `place` says where in the proposal it stood.


class _Candidate(_Value, frozen=True, tag_field="kind"):
    """One item of one list in a proposal."""

    place: str


class _Labelled(_Candidate, frozen=True, kw_only=True):
    """A model's candidate with what the model says of its reach: see the rule `gate`."""

    scope: str | None = None
    durability: str | None = None
    authority: str | None = None


class NewFact(_Labelled, frozen=True, kw_only=True, tag="newFact"):
    """A fact proposed, as it was proposed; `id` and what follows it only where an imported document states it."""

    content: str
    category: str = "context"
    confidence: float = 0.5
    evidence: tuple[str, ...] = ()
    expected_valid_days: int | None = None
    source_error: str | None = None
    id: str | None = None
    at: str | None = None
    source: str | None = None
    by_hand: bool = False
    confirmations: int = 0
    confirmed_at: str | None = None
    consolidated_from: tuple[str, ...] = ()


class Removal(_Labelled, frozen=True, kw_only=True, tag="removal"):
    """A fact to remove; `replacement` is the index in `newFacts` of what takes its place."""

    id: str
    reason: str | None = None
    replacement: int | None = None


class NewSummary(_Labelled, frozen=True, kw_only=True, tag="newSummary"):
    """A section's new text; `place` names the section, `at` is stated by imported documents only."""

    summary: str
    at: str | None = None


class Reinforcement(_Labelled, frozen=True, kw_only=True, tag="reinforcement"):
    """A fact confirmed by what was said."""

    id: str


class Extension(_Labelled, frozen=True, kw_only=True, tag="extension"):
    """A fact that is up for review and still holds: it is to be left alone for so many `days` more."""

    id: str
    days: int
    reason: str | None = None


class Consolidation(_Labelled, frozen=True, kw_only=True, tag="consolidation"):
    """Several facts to be merged into one; without a `confidence` the merged fact has the highest of its sources."""

    sources: tuple[str, ...]
    content: str
    category: str | None = None
    confidence: float | None = None


class Edit(_Candidate, frozen=True, kw_only=True, tag="edit"):
    """A person's change of one fact; None leaves a field as it is."""

    id: str
    content: str | None = None
    category: str | None = None
    confidence: float | None = None


class Unread(_Candidate, frozen=True, kw_only=True, tag="unread"):
    """An item that could not be read as what its place calls for: its JSON text, cut to a bound, and why."""

    text: str
    detail: str


Candidate: TypeAlias = NewFact | Removal | NewSummary | Reinforcement | Extension | Consolidation | Edit | Unread


# Events of the ledger. One that settles a candidate carries its `place`; the proposal is rebuilt from these.


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag=True):
    """Something that happened."""


class FactAdded(_Event, frozen=True):
    """A fact came to life: proposed, entered, imported, or brought back by an undo.

    `proposed` holds the fields in which the candidate differs from the fact that came of it, and its labels.
    """

    fact: Fact
    place: str | None = None
    proposed: dict[str, str | int | float | bool | None] = {}


class FactRemoved(_Event, frozen=True):
    """A fact left memory; the event holds it whole.

    `reason`: model, stale, consolidated, hand, cap, threshold, duplicate, clear, import, revert, rollback. `note` is
    the model's own reason, `replacement` the index and `labels` the labels it gave. `detail` is what an eviction was
    ranked by, or the id of the fact that a merged one went into.
    """

    fact: Fact
    reason: str
    place: str | None = None
    note: str | None = None
    replacement: int | None = None
    detail: str | None = None
    labels: dict[str, str] = {}


class FactRevised(_Event, frozen=True):
    """A fact changed in place. `change`: confirmed, edited, extended, restored.

    `proposed` holds what of the candidate cannot be told from `before` and `after`.
    """

    before: Fact
    after: Fact
    change: str
    place: str | None = None
    proposed: dict[str, str | int | float | bool | None] = {}


class SummaryUpdated(_Event, frozen=True):
    """A section was rewritten: both texts, both times.

    `proposed` is the candidate's own text where a sentence was scrubbed from it, so nothing vanishes without a trace;
    `labels` are those that the model gave.
    """

    section: str
    before: Section
    after: Section
    place: str | None = None
    proposed: str | None = None
    labels: dict[str, str] = {}


class UpdateProposed(_Event, frozen=True):
    """A model answered.

    `basis` is the seq of the memory it was shown; `shown` the fact ids it saw, None for every fact of the basis;
    `stale` the ids it was asked to review, None where nobody was asked and whatever is due may be reviewed; `digest`
    the sha256 of its raw text and `size` that text's characters.
    """

    basis: int
    digest: str
    size: int
    shown: tuple[str, ...] | None = None
    stale: tuple[str, ...] | None = None


class CandidateRejected(_Event, frozen=True):
    """A candidate was refused: by which rule, and in words."""

    candidate: Candidate
    rule: str
    detail: str


class UpdateFailed(_Event, frozen=True):
    """An update or a summary came to nothing. `turns` are parked by it; None: they stay pending or were given up."""

    reason: str
    detail: str
    attempts: int = 1
    turns: TurnRange | None = None


class PolicyChanged(_Event, frozen=True):
    """The rules changed; `source` is config or manual, `before` is None in the genesis."""

    before: Policy | None
    after: Policy
    source: str = "config"


class Redacted(_Event, frozen=True):
    """An event's content was erased: which one, and what left memory with it.

    `what` is fact, section, candidate, proposal, failure or turn; `expired` where a turn's time had come, which no
    update in flight can depend on, where a summary was made from such a turn, or where a failure may quote one. Of a
    turn its place, its id, its length in characters and the keyed digest of its role and text stay: so it is known when
    it is sent again. The key is kept outside the log; see docs/log-format.md.
    """

    stream: str
    seq: int
    index: int
    what: str
    fact: str | None = None
    section: str | None = None
    thread: str | None = None
    n: int | None = None
    turn: str | None = None
    size: int | None = None
    digest: str | None = None


class Erased(_Event, frozen=True):
    """What stands where an erased event stood: the salted digest of its content, so that the chain still verifies."""

    digest: str


LedgerEvent: TypeAlias = (
    FactAdded
    | FactRemoved
    | FactRevised
    | SummaryUpdated
    | UpdateProposed
    | CandidateRejected
    | UpdateFailed
    | PolicyChanged
    | Redacted
    | Erased
)


# Events of the transcript.


class Turn(_Value, frozen=True, kw_only=True):
    """One message kept, whole.

    `n` is its ordinal in its thread, from 1, never reused; `id` the host's id, or `t<n>` where it gave none (then
    `anonymous` is true); `at` the host's time, else the time of recording. The rest is MetaGPT's routing, kept as sent.
    """

    n: int
    id: str
    role: str
    content: str
    at: str
    anonymous: bool = False
    name: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}


class TurnRecorded(_Event, frozen=True):
    """Something was said."""

    turn: Turn


class TurnSuperseded(_Event, frozen=True):
    """A turn no longer stands: the host sent another text in its place, or it was taken back."""

    n: int


class TurnRestored(_Event, frozen=True):
    """A superseded turn stands again: somebody brought it back.

    `again`: its ordinal was covered by then, so it is pending once more until an update covers it that has seen it.
    """

    n: int
    again: bool = False


Event: TypeAlias = LedgerEvent | TurnRecorded | TurnSuperseded | TurnRestored
