"""What the doors answer with, where no read model already has the shape."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import Policy
from backstory.ledger.erasure.plan import Sharing
from backstory.projections.history.history import Diff, Revision, SectionChange
from backstory.projections.turns import TurnView
from backstory.projections.turns.superseded import SupersededTurn
from backstory.projections.what_if.reextract import UpdateCounts

__all__ = [
    "ErasedContent",
    "Extracted",
    "FactChange",
    "FaultCount",
    "Forgotten",
    "ParkedThread",
    "PendingThread",
    "PolicyResult",
    "RecordResult",
    "Reextracted",
    "Restored",
    "ScopeSummary",
    "SignedHead",
    "Status",
    "SupersededTurn",
    "ThreadSummary",
    "TurnView",
    "WhatIf",
]


class RecordResult(msgspec.Struct, frozen=True):
    """What became of a delivery.

    `turns` are new, `skipped` were known already or filtered out. `superseded` stand no longer, since the delivery
    edits or replaces them; `MemoryHandle.restore` brings them back. `backlog`: too much is due.
    """

    threads: int
    turns: int
    skipped: int
    backlog: bool = False
    superseded: int = 0


class Restored(msgspec.Struct, frozen=True):
    """The turns of a thread that stand again; they are learned from with the next update."""

    thread: str
    restored: tuple[SupersededTurn, ...]


class Extracted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Updates made, how many of them failed, and the seqs of their commits.

    `summaries` are the seqs of the commits in which a long thread was summed up, `summaries_failed` counts those in
    which that came to nothing; neither is an update.
    """

    updates: int
    failed: int
    commits: tuple[int, ...]
    summaries: tuple[int, ...] = ()
    summaries_failed: int = 0


class PendingThread(msgspec.Struct, frozen=True):
    """Turns that wait; `due_in` is in seconds, 0 when overdue, None when quiet: they go along with the next update."""

    thread: str
    turns: int
    due_in: float | None


class ParkedThread(msgspec.Struct, frozen=True):
    """Turns whose update failed; they wait for a retry or a discard."""

    thread: str
    turns: int
    reason: str
    attempts: int
    detail: str = ""


class FaultCount(msgspec.Struct, frozen=True):
    """How often memory failed an agent in one way.

    `doing` is what it was about to do (record, inject, search, tool, extract, witness), `kind` the class of the error,
    `first` and `last` are times as the logs spell them. `detail` is the last one's own words where they cannot hold
    content.
    """

    doing: str
    kind: str
    count: int
    first: str
    last: str
    detail: str = ""


class Status(msgspec.Struct, frozen=True):
    """Where a scope stands; sizes in bytes; `model` is None where none is configured; `faults` of the last 7 days."""

    seq: int
    hash: str
    facts: int
    pending: tuple[PendingThread, ...]
    parked: tuple[ParkedThread, ...]
    turns: int
    threads: int
    ledger_bytes: int
    transcript_bytes: int
    store: str
    model: str | None
    user: str | None
    agent: str | None
    faults: tuple[FaultCount, ...] = ()


class ThreadSummary(msgspec.Struct, frozen=True):
    """One thread; `last` is the time of its last turn."""

    thread: str
    turns: int
    last: str
    pending: int


class FactChange(msgspec.Struct, frozen=True):
    """A change made by hand, and the fact as it is after it, or as it was removed."""

    commit: int
    fact: Fact


class PolicyResult(msgspec.Struct, frozen=True):
    """The policy in force; `commit` where it has just been changed; `configured`: what configuration asks for."""

    policy: Policy
    configured: Policy
    commit: int | None = None


class ScopeSummary(msgspec.Struct, frozen=True):
    """One scope of a home."""

    user: str | None
    agent: str | None
    seq: int
    facts: int


class SignedHead(msgspec.Struct, frozen=True):
    """The head of a ledger, and the signed note over it; see docs/log-format.md."""

    seq: int
    hash: str
    note: str


class WhatIf(msgspec.Struct, frozen=True):
    """Today against what would be, and how many facts there would be."""

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]
    facts: int

    @classmethod
    def of(cls, difference: Diff, facts: int) -> WhatIf:
        """Put a difference and a count together."""
        return cls(difference.added, difference.removed, difference.revised, difference.sections, facts)


class Reextracted(msgspec.Struct, frozen=True):
    """Memory as it is against what it would be with other answers, both as of commit `until`, and what both cost.

    `facts` are those there would be; `complete` is false where a cap on spending was reached before the last commit.
    `recorded` and `again` count the updates of the threads that were asked. `notes` says in words what could not be
    asked again, and what was not used.
    """

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]
    facts: int
    until: int
    complete: bool
    recorded: UpdateCounts
    again: UpdateCounts
    notes: tuple[str, ...] = ()


class ErasedContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content that was erased, or would be: where it stood, and what it was.

    `what`: fact, section, candidate, failure, proposal, turn. `fact` or `section` names the one it was about, if any.
    """

    stream: str
    seq: int
    what: str
    fact: str | None = None
    section: str | None = None


class Forgotten(msgspec.Struct, frozen=True):
    """What an erasure took, and what shares its evidence and stays; `commit` is None where nothing was written."""

    redacted: tuple[ErasedContent, ...]
    also: tuple[Sharing, ...]
    commit: int | None
