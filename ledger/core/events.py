"""Events of both streams, and the values they carry.

Every event is a frozen msgspec struct, tagged by `type`. The JSON in the log is its encoding, with camelCase names and
without defaults. An event carries what it replaced, so it can be undone without the rest of the log. For the choice of
msgspec see docs/explanation/adr/0001-events-are-msgspec-structs.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, TypeAlias

import msgspec

from backstory.ledger.core.kinds import (
    ErasedKind,
    FailureReason,
    PolicySource,
    RemovalReason,
    RevisionKind,
    Rule,
    Speaker,
)
from backstory.ledger.core.policy import Policy

SECTION_GROUPS = {
    "user": ("workContext", "personalContext", "topOfMind"),
    "history": ("recentMonths", "earlierContext", "longTermBackground"),
}
"""The keys of the sections of memory.json, by group."""
DOCUMENT_SECTIONS = tuple(f"{group}.{key}" for group, keys in SECTION_GROUPS.items() for key in keys)
"""The names of the six sections of memory.json, in order."""

TOOL_SOURCE = "tool"
"""The source of a fact that a model's tool added outside of any conversation."""
NO_THREADS = ("manual", "import", TOOL_SOURCE)
"""Sources of facts that are no threads: entered by hand, imported, added by a tool."""


Attribute: TypeAlias = str | int | float | bool
"""The value of an attribute."""
Attributes: TypeAlias = dict[str, Attribute]
"""Attributes of a fact, by name."""


def spelled(value: Attribute) -> str:
    """Return the value of an attribute as a filter spells it: `true`, `3`, `0.5`, or the text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Value(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, rename="camel"):
    """Base of the values that events carry."""


class Spoken(_Value, frozen=True):
    """When turns were said, and by whom: the time of the newest; `assistant` only if no user's turn is among them."""

    at: str
    role: Speaker = "user"

    @classmethod
    def of_all(cls, parts: Iterable[Self]) -> Self | None:
        """Return the same of several; None of none."""
        known = list(parts)
        if not known:
            return None
        by_user = any(part.role == "user" for part in known)
        return cls(max(part.at for part in known), "user" if by_user else "assistant")


class Fact(_Value, frozen=True, kw_only=True):
    """A statement in memory.

    `source` is the thread it came from, or one of NO_THREADS; `evidence` holds the ids of the turns cited. `seq` is the
    commit that added it and `place` its index in that commit's proposal; both together are its birth rank. A fact with
    `by_hand` was entered or changed by a person, and no model can change it. `consolidated_from` holds the ids of the
    facts that were merged into it. `said` is about the turns that it rests on: those it was learned from, and those
    that confirmed or repeated it; None where that is not known, and where it came from no turns. Times are ISO 8601,
    UTC, microseconds.

    What it says was true from `valid_from` to the end of `valid_until`, and it is not to be remembered once
    `expires_at` has passed: a year, month, day or moment each, as `moments.stated_time` spells them; None: unknown.
    `tags` and `attributes` are what reads are filtered by; see `ledger.text.tags`.
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
    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None
    said: Spoken | None = None
    tags: tuple[str, ...] = ()
    attributes: Attributes = {}

    @property
    def rests_on(self) -> Spoken:
        """When the words that the fact rests on were said; where that is not known, when it was created."""
        return self.said or Spoken(self.created_at)

    def has(self, wanted: Iterable[str]) -> bool:
        """Whether the fact has all the tags and attributes of a filter: `tag` or `name=value`."""
        return all(one in self.tags or one in self.spelled_attributes for one in wanted)

    @property
    def spelled_attributes(self) -> tuple[str, ...]:
        """The attributes as a filter spells them."""
        return tuple(f"{name}={spelled(value)}" for name, value in self.attributes.items())

    def __hash__(self) -> int:
        # Attributes have no hash.
        return hash((self.id, self.content))


class Access(_Value, frozen=True):
    """The recent use of a fact: `heat`, to which each use adds 1 and which decays, and the time of the last use."""

    heat: float
    at: str


class Section(_Value, frozen=True):
    """A summary and the time it was last written; both are empty if it was never written.

    In a thread's summary, `since` and `until` are the times of its first and its last turn.
    """

    summary: str = ""
    updated_at: str = ""
    since: str = ""
    until: str = ""


class TurnRange(_Value, frozen=True):
    """A range of turns of one thread, by ordinal, both ends included."""

    first: int
    last: int


# Candidates: what a model, a person or an imported document proposed. `place` is the position in the proposal.


class _Candidate(_Value, frozen=True, tag_field="kind"):
    """One item of one list in a proposal."""

    place: str


class _Labelled(_Candidate, frozen=True, kw_only=True):
    """A model's candidate with the labels that the model gave it, for the rules `gate` and `topic`."""

    scope: str | None = None
    durability: str | None = None
    authority: str | None = None
    topic: str | None = None


class NewFact(_Labelled, frozen=True, kw_only=True, tag="newFact"):
    """A new fact as it was proposed; only an imported document states `id` and the fields after it.

    `valid_from`, `valid_until`, `expires_at`, `tags` and `attributes` are as in Fact. The tags of a model's fact are
    those of the turns that it cites, and those that it states.
    """

    content: str
    category: str = "context"
    confidence: float = 0.5
    evidence: tuple[str, ...] = ()
    expected_valid_days: int | None = None
    source_error: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None
    tags: tuple[str, ...] = ()
    attributes: Attributes = {}
    id: str | None = None
    at: str | None = None
    source: str | None = None
    by_hand: bool = False
    confirmations: int = 0
    confirmed_at: str | None = None
    consolidated_from: tuple[str, ...] = ()


class Removal(_Labelled, frozen=True, kw_only=True, tag="removal"):
    """A fact to remove; `replacement` is the index in `newFacts` of the fact that replaces it.

    With `ended` it was true until `valid_until` (None: until now), or will be; otherwise it was wrong.
    """

    id: str
    reason: str | None = None
    replacement: int | None = None
    ended: bool = False
    valid_until: str | None = None


class NewSummary(_Labelled, frozen=True, kw_only=True, tag="newSummary"):
    """A section's new text; `place` is the section's name, and only imported documents state `at`."""

    summary: str
    at: str | None = None


class Reinforcement(_Labelled, frozen=True, kw_only=True, tag="reinforcement"):
    """A fact that the conversation confirms."""

    id: str


class Extension(_Labelled, frozen=True, kw_only=True, tag="extension"):
    """A fact due for review that still holds; its next review is `days` days from now."""

    id: str
    days: int
    reason: str | None = None


class Consolidation(_Labelled, frozen=True, kw_only=True, tag="consolidation"):
    """Facts to merge into one; without `confidence` the merged fact gets the highest of its sources."""

    sources: tuple[str, ...]
    content: str
    category: str | None = None
    confidence: float | None = None


class Edit(_Candidate, frozen=True, kw_only=True, tag="edit"):
    """A change of one fact by a person or a tool; a field that is None does not change, and an empty time is unknown.

    `valid_from`, `valid_until` and `expires_at` are as in Fact; `tags` and `attributes` take the place of all others.
    """

    id: str
    content: str | None = None
    category: str | None = None
    confidence: float | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None
    tags: tuple[str, ...] | None = None
    attributes: Attributes | None = None


class Unread(_Candidate, frozen=True, kw_only=True, tag="unread"):
    """An item that could not be parsed: its JSON text, cut to a maximum length, and the reason."""

    text: str
    detail: str


Candidate: TypeAlias = NewFact | Removal | NewSummary | Reinforcement | Extension | Consolidation | Edit | Unread


Fields: TypeAlias = dict[str, str | int | float | bool | tuple[str, ...] | Attributes | None]
"""Fields of a candidate, by name."""

# Events of the ledger. The outcome of a candidate carries its `place`, so that the proposal can be rebuilt.


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag=True):
    """Base of all events."""


# Groups of events, for readers that pass over all of a group: `case UpdateEvent() | TurnEvent(): pass`.


class FactEvent(_Event, frozen=True):
    """A fact changed."""


class SectionEvent(_Event, frozen=True):
    """A section changed, or went from an agent to its user."""


class SharingEvent(SectionEvent, frozen=True):
    """Sections went from an agent to its user; a SummaryUpdated beside it states what that changes here."""


class UpdateEvent(_Event, frozen=True):
    """A record of how an update went; it changes no memory."""


class SettingEvent(_Event, frozen=True):
    """A change of what later commits are decided by; it changes no fact and no section."""


class ErasureEvent(_Event, frozen=True):
    """A record that content was erased, or what is left in its place."""


class TurnEvent(_Event, frozen=True):
    """A turn was recorded or changed; only a transcript has these."""


class FactAdded(FactEvent, frozen=True):
    """A fact was added: by a model, a person or an import, or brought back by an undo.

    `proposed` holds the fields in which the candidate differs from the fact, and its labels. `detail` says why an
    import did not keep the id that the candidate states.
    """

    fact: Fact
    place: str | None = None
    proposed: Fields = {}
    detail: str | None = None


class FactRemoved(FactEvent, frozen=True):
    """A fact left memory; the event holds the whole fact.

    `note`, `replacement` and `labels` are the model's reason, replacement index and labels. `detail` is what an evicted
    fact was ranked by, or the id of the fact that a merged one went into. With `marked_after` a person took it away
    when this was the transcript's last commit: a model adds its text again only after a later turn of the user.
    `valid_until` is what the removal states as the end of an `ended` fact.
    `said_at` is the time of the newest turn for which a model removed it: older words do not add its text again.
    """

    fact: Fact
    reason: RemovalReason
    place: str | None = None
    note: str | None = None
    replacement: int | None = None
    detail: str | None = None
    labels: dict[str, str] = {}
    marked_after: int | None = None
    valid_until: str | None = None
    said_at: str | None = None


class FactRevised(FactEvent, frozen=True):
    """A fact changed in place.

    `proposed` holds the fields of the candidate that cannot be derived from `before` and `after`.
    `marked_after` is about the text before, as in FactRemoved.
    """

    before: Fact
    after: Fact
    change: RevisionKind
    place: str | None = None
    proposed: Fields = {}
    marked_after: int | None = None


class SummaryUpdated(SectionEvent, frozen=True):
    """A section was rewritten.

    `proposed` is the candidate's text if sentences were removed from it; `labels` are the model's labels.
    """

    section: str
    before: Section
    after: Section
    place: str | None = None
    proposed: str | None = None
    labels: dict[str, str] = {}


class SummaryShared(SharingEvent, frozen=True):
    """An agent's update wrote a section of its user, whose ledger receives the text.

    `basis` is the commit of the user's memory that the model was shown; `at` the time of the text (None: the commit's);
    `proposed` and `labels` as in SummaryUpdated.
    """

    section: str
    text: str
    basis: int
    at: str | None = None
    place: str | None = None
    proposed: str | None = None
    labels: dict[str, str] = {}


class SummariesReceived(SharingEvent, frozen=True):
    """The user's memory received the sections that commit `seq` of an agent's ledger shared.

    `basis` is the commit of the user's memory that they were made on, and `thread` the agent's thread that they were
    learned from. With `cut` nothing was received: a repair has cut the agent's ledger off after `seq`, and what comes
    behind is received anew.
    """

    agent: str
    seq: int
    basis: int
    thread: str | None = None
    cut: bool = False


class SectionsMoved(SharingEvent, frozen=True):
    """An agent gave up the sections of its own; `basis` is the commit of the user's memory they were compared with."""

    basis: int


class UpdateProposed(UpdateEvent, frozen=True):
    """A model answered; no text in memory changes.

    `basis` is the seq of the memory it was shown; `shown` the ids of the facts it saw (None: all of the basis); `stale`
    the ids it was asked to review (None: all that are due); `digest` the sha256 of its raw text and `size` the length
    of that text in characters; `users` the commit of the user's memory whose sections it saw (None: the agent's own).
    `said_again` holds, by the place of a candidate whose text a person took away, the highest share of its content
    words in a turn of the user since. `digest` is empty where a candidate was refused as `erased`. `answered` is about
    the turns of the update (None: not known, as in commits of earlier versions), `cited` about each turn that a
    candidate cites, by its id. `repeated` states, by id, what facts rest on from now on that duplicates repeat.
    """

    basis: int
    digest: str
    size: int
    shown: tuple[str, ...] | None = None
    stale: tuple[str, ...] | None = None
    users: int | None = None
    said_again: dict[str, float] = {}
    answered: Spoken | None = None
    cited: dict[str, Spoken] = {}
    repeated: dict[str, Spoken] = {}


class CandidateRejected(UpdateEvent, frozen=True):
    """A candidate was refused by a rule; `detail` is the reason in words."""

    candidate: Candidate
    rule: Rule
    detail: str


class UpdateFailed(UpdateEvent, frozen=True):
    """An update or a summary failed; `turns` are parked (None: they stay pending or were given up)."""

    reason: FailureReason
    detail: str
    attempts: int = 1
    turns: TurnRange | None = None


class PolicyChanged(SettingEvent, frozen=True):
    """The policy changed; `before` is None in the genesis."""

    before: Policy | None
    after: Policy
    source: PolicySource = "config"


class IdsReserved(SettingEvent, frozen=True):
    """A document named ids of commits that were still to come: those up to `until` give their facts second ids."""

    until: int


class Redacted(ErasureEvent, frozen=True):
    """The content of an event was erased, and its fact or section left memory.

    `what` is expired of a turn whose retention time has passed, a summary made from one and a failure that may quote
    one; no update in flight depends on these. Of a turn its thread, ordinal `n`, id, length in characters and the keyed
    digest of role and text are kept, so that it is recognised when it is sent again. The key is stored outside the log;
    see docs/reference/log-format.md. Of a fact or a candidate `mark` is the keyed digest of its dedup key, and
    `marked_after` is as in FactRemoved.
    """

    stream: str
    seq: int
    index: int
    what: ErasedKind
    fact: str | None = None
    section: str | None = None
    thread: str | None = None
    n: int | None = None
    turn: str | None = None
    size: int | None = None
    digest: str | None = None
    mark: str | None = None
    marked_after: int | None = None


class Erased(ErasureEvent, frozen=True):
    """The stub of an erased event: the salted digest of its content, with which the chain still verifies."""

    digest: str


LedgerEvent: TypeAlias = (
    FactAdded
    | FactRemoved
    | FactRevised
    | SummaryUpdated
    | SummaryShared
    | SummariesReceived
    | SectionsMoved
    | UpdateProposed
    | CandidateRejected
    | UpdateFailed
    | PolicyChanged
    | IdsReserved
    | Redacted
    | Erased
)


# Events of the transcript.


class Turn(_Value, frozen=True, kw_only=True):
    """A recorded message.

    `n` is its ordinal in its thread, from 1, never reused. `id` is the host's id, or `t<n>` if the host gave none; then
    `anonymous` is true. `at` is the host's time, or the time of recording; `offset` is the offset from UTC that the
    host's time had, None for UTC. `cause_by`, `sent_from` and `send_to` are MetaGPT's routing; they and `metadata` are
    kept as sent. `tags` are those that facts learned from it get.
    """

    n: int
    id: str
    role: str
    content: str
    at: str
    offset: str | None = None
    anonymous: bool = False
    name: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    tags: tuple[str, ...] = ()


class TurnRecorded(TurnEvent, frozen=True):
    """A turn was recorded."""

    turn: Turn


class TurnSuperseded(TurnEvent, frozen=True):
    """A turn is no longer part of its thread: the host replaced or withdrew it."""

    n: int


class TurnRestored(TurnEvent, frozen=True):
    """A superseded turn is part of its thread again.

    `again`: its ordinal had been covered, so it is pending again until a later update covers it.
    """

    n: int
    again: bool = False


Event: TypeAlias = LedgerEvent | TurnRecorded | TurnSuperseded | TurnRestored
