"""Results of the Python API, the command line and the servers, where no read model has the shape already."""

from __future__ import annotations

from typing import Literal

import msgspec

from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.erasure.requests import Sharing
from backstory.projections.document.document import Document
from backstory.projections.history.audit import Removed
from backstory.projections.history.views import Revision, SectionChange
from backstory.projections.turns.superseded import SupersededTurn
from backstory.projections.what_if.reextract import UpdateCounts


class RecordResult(msgspec.Struct, frozen=True):
    """How many turns of a delivery were recorded.

    `turns` are new, `skipped` were recorded before or filtered out. `superseded` stand no longer, since the delivery
    edits or replaces them; `MemoryHandle.restore` brings them back. `backlog` is true when more threads are due than
    `queue_max_depth`. `cut` messages had more than a million characters; only their beginning is kept.
    """

    threads: int
    turns: int
    skipped: int
    backlog: bool = False
    superseded: int = 0
    cut: int = 0


class Restored(msgspec.Struct, frozen=True):
    """The turns of a thread that stand again. The next update extracts them."""

    thread: str
    restored: tuple[SupersededTurn, ...]


class SkippedText(msgspec.Struct, frozen=True):
    """Text that a harness had put before the words of a turn, and that was not recorded: no person said it.

    `turn` and `at` are the turn's id and time, `wrapper` names what the text was recognised by, and `characters` is its
    length.
    """

    thread: str
    turn: str
    at: str
    wrapper: str
    characters: int


class Extracted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of updates made, how many of them failed, and the numbers of their commits.

    `summaries` are the commits that hold a summary of a long thread, `summaries_failed` counts summaries that failed.
    Neither is an update.
    """

    updates: int
    failed: int
    commits: tuple[int, ...]
    summaries: tuple[int, ...] = ()
    summaries_failed: int = 0


class RenamedFact(msgspec.Struct, frozen=True):
    """A fact of an imported document that got the id `id` instead of the `stated` one, and why."""

    stated: str
    id: str
    detail: str


class RefusedItem(msgspec.Struct, frozen=True):
    """An item of an imported document that was refused: its place there, the rule, and the reason in words."""

    place: str
    rule: str
    detail: str


class ReturnedFact(msgspec.Struct, frozen=True):
    """A fact that was removed here and that an import brought back under its id; `removed` is its last removal."""

    id: str
    content: str
    removed: Removed


def _came_back(fact: ReturnedFact) -> str:
    removed = fact.removed
    why = ", ".join(filter(None, (removed.reason, removed.note or removed.detail)))
    by = f" by {removed.actor}" if removed.actor else ""
    return f"{fact.id} is back: {fact.content} (removed in commit {removed.seq}{by}: {why})"


class ReadFile(msgspec.Struct, frozen=True):
    """What a file held that was imported, and what became of it.

    `facts` and `turns` (of `threads`) are what it holds for this memory; of these, `new` ones came in and `known` ones
    were here already. `refused` and `left_out` are counts by reason. `unread_keys` are keys of facts that no reader
    reads, and `first` the first texts.
    """

    format: str
    title: str
    threads: int = 0
    turns: int = 0
    facts: int = 0
    new: int = 0
    known: int = 0
    refused: dict[str, int] = {}
    left_out: dict[str, int] = {}
    unread_keys: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


_FULL = "memory is full: raise max_facts (`policy --set max_facts=N`), and import again"


class ImportedDocument(Document, frozen=True):
    """The document after an import, and what of the import is not in it as it was stated.

    `commit` records the import. `renamed` are the facts whose ids were not kept, and `refused` the items that are not
    in memory because of it. `returned` are the facts that were removed here before. `read` is there for a file.
    """

    commit: int = 0
    renamed: tuple[RenamedFact, ...] = ()
    refused: tuple[RefusedItem, ...] = ()
    returned: tuple[ReturnedFact, ...] = ()
    read: ReadFile | None = None

    @classmethod
    def of(
        cls,
        document: Document,
        commit: int,
        renamed: tuple[RenamedFact, ...] = (),
        refused: tuple[RefusedItem, ...] = (),
        returned: tuple[ReturnedFact, ...] = (),
    ) -> ImportedDocument:
        """Return a document with the result of its import."""
        d = document
        return cls(d.version, d.last_updated, d.user, d.history, d.facts, commit, renamed, refused, returned)

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for a full memory, then one for each fact with another id, refused item and fact that came back."""
        full = (_FULL,) if any(item.rule == "cap" for item in self.refused) else ()
        renamed = (f"{fact.stated} is {fact.id} here: {fact.detail}" for fact in self.renamed)
        refused = (f"{item.place} was refused ({item.rule}): {item.detail}" for item in self.refused)
        return (*full, *renamed, *refused, *map(_came_back, self.returned))

    @property
    def document(self) -> Document:
        """The document alone."""
        return Document(self.version, self.last_updated, self.user, self.history, self.facts)


class PendingThread(msgspec.Struct, frozen=True):
    """Pending turns. `due_in` is in seconds, 0 when overdue; None where they wait for other turns to be due.

    `waiting_for` is `answer` (to a user's last words, for `answer_wait_seconds` at most), `model` (none is configured)
    or `debounce`; None where they are due now or wait for other turns.
    """

    thread: str
    turns: int
    due_in: float | None
    waiting_for: Literal["answer", "debounce", "model"] | None = None


class ParkedThread(msgspec.Struct, frozen=True):
    """Turns whose update failed. They wait for `retry` or `discard`."""

    thread: str
    turns: int
    reason: str
    attempts: int
    detail: str = ""


class FaultCount(msgspec.Struct, frozen=True):
    """A count of one kind of fault of memory.

    `doing` is the operation that failed (record, withdraw, inject, search, embed, tool, extract, import, load, save,
    witness), `kind` the class of the error, `first` and `last` are times in ISO 8601. `detail` is the message of the
    last one, unless it could hold content.
    """

    doing: str
    kind: str
    count: int
    first: str
    last: str
    detail: str = ""


RECENT_COMMITS = 20
"""How many of the newest commits a status searches for evictions."""


class Eviction(msgspec.Struct, frozen=True):
    """A commit in which the cap evicted facts, and their ids. `why` explains a fact, `revert` undoes the commit."""

    seq: int
    at: str
    facts: tuple[str, ...]


class EndingFact(msgspec.Struct, frozen=True):
    """A fact that leaves memory at the moment `at`, because it is true, or to be remembered, until then."""

    id: str
    content: str
    at: str


class Status(msgspec.Struct, frozen=True):
    """The state of a scope. Sizes are in bytes; `model` is None where none is configured; `faults` are of 7 days.

    Where memory is full, at `max_facts`, `evicted` are the evictions of the last 20 commits, the newest first. `ending`
    are the facts that go within a week because their time is over then, the first of them first. `assistant_only` is
    the number of facts that rest on an assistant's words alone.
    """

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
    max_facts: int = 0
    evicted: tuple[Eviction, ...] = ()
    ending: tuple[EndingFact, ...] = ()
    assistant_only: int = 0


class ThreadSummary(msgspec.Struct, frozen=True):
    """A thread, with its number of turns. `last` is the time of its last turn."""

    thread: str
    turns: int
    last: str
    pending: int


class FactChange(msgspec.Struct, frozen=True):
    """The commit of a change of one fact, and the fact after it, or as it was when removed.

    `evicted` are the facts from models that the cap evicted to make room for it.
    """

    commit: int
    fact: Fact
    evicted: tuple[Fact, ...] = ()


class RemovedScope(msgspec.Struct, frozen=True):
    """A memory of a removed user, and what it held; 0 where its logs were damaged."""

    user: str | None
    agent: str | None
    commits: int = 0
    facts: int = 0
    turns: int = 0


class RemovedUser(msgspec.Struct, frozen=True):
    """A user who was removed, or would be, with the user's memories, and the number and bytes of all files.

    `witness` is where heads of these memories were sent, with the user's name; nothing there is removed.
    """

    user: str
    scopes: tuple[RemovedScope, ...]
    files: int
    bytes: int
    witness: str | None = None


class ArchivedMemory(msgspec.Struct, frozen=True):
    """A memory in an archive: its folder there, whose it is, what it holds, and the hash of its head."""

    folder: str
    agent: str | None
    commits: int
    facts: int
    turns: int
    head: str


class ArchivedUser(msgspec.Struct, frozen=True):
    """A user whose memories were written to an archive."""

    user: str
    memories: tuple[ArchivedMemory, ...]


class PolicyResult(msgspec.Struct, frozen=True):
    """The policy in force, and the configured one. `commit` is the commit that changed it, if this call did."""

    policy: Policy
    configured: Policy
    commit: int | None = None


class ScopeSummary(msgspec.Struct, frozen=True):
    """A scope of a home, with its last commit and its number of facts."""

    user: str | None
    agent: str | None
    seq: int
    facts: int


class FoundOwners(msgspec.Struct, frozen=True):
    """Scopes that were looked for, in the order of their folders, and the number of users in all pages of them."""

    owners: tuple[Scope, ...]
    users: int


class SignedHead(msgspec.Struct, frozen=True):
    """The head of a ledger, and the signed note about it. docs/reference/log-format.md describes the note."""

    seq: int
    hash: str
    note: str


class WhatIf(msgspec.Struct, frozen=True):
    """Memory today against memory under another policy. `facts` is the number of facts there would be."""

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]
    facts: int


class Reextracted(msgspec.Struct, frozen=True):
    """Memory against what it would be with other answers, both as of commit `until`, and what both cost.

    `facts` is the number of facts there would be. `complete` is false where a cap was reached before the last commit.
    `recorded` and `again` count the updates of the threads that were asked. `notes` names what could not be asked again
    and what was not used.
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
    """The place and the kind of content that is erased, or would be.

    `what` is fact, section, candidate, failure, proposal or turn. `fact` or `section` names what it is about.
    """

    stream: str
    seq: int
    what: str
    fact: str | None = None
    section: str | None = None


class Forgotten(msgspec.Struct, frozen=True):
    """The content erased, and what shares its evidence and stays. `commit` is None where nothing was written."""

    redacted: tuple[ErasedContent, ...]
    also: tuple[Sharing, ...]
    commit: int | None
