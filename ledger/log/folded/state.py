"""State of a scope, folded from its two streams: memory, coverage and turns.

The fold starts from the newest snapshot, if there is one, or from the first commit. An erasure changes what earlier
commits say, so a state that meets one starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.errors import CorruptLogError, LockTimeoutError, StoreError
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import must_belong, must_not_shrink, read_commits_and_ends
from backstory.ledger.log.folded.earlier_threads import EarlierThreads
from backstory.ledger.log.folded.snapshot import SnapshotOrigin, Snapshots
from backstory.ledger.threads.coverage import COVERING_ALL, Coverage
from backstory.ledger.threads.transcript import Transcript


class StandingMemory(msgspec.Struct, frozen=True):
    """A memory, the ledger's head with it, and the hash of the ledger's first commit."""

    memory: Memory
    head: Head
    first: str = ""


class _MetErasureError(Exception):
    """A redaction came after the snapshot that the state began from."""


class FoldedState:
    """State of a scope, as far as its streams were read. Not safe for threads.

    `settled` returns how far a stream may be read, given its name and the known head. By default other writers are
    waited for.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None = None,
        *,
        settled: Callable[[str, Head], Head] | None = None,
    ) -> None:
        self._settled = settled or self._once_settled
        self._store = store
        self.scope = scope
        self._snapshots = snapshots
        self.beginnings = 0
        """How often the state has started over."""
        self.ledger = scope.stream(LEDGER)
        self.transcript_stream = scope.stream(TRANSCRIPT)
        self._begin(None)

    def start_over(self, *, from_first: bool = False, verified: Mapping[str, int] = MappingProxyType({})) -> None:
        """Drop everything; the next refresh begins at the newest snapshot, or at the first commit.

        Args:
            from_first: begin at the first commit.
            verified: the seq, by stream, up to which the caller has checked the hashes of the lines just now.
        """
        self._begin(None)
        self._begun = from_first
        self._verified = verified

    def _go_on(self) -> None:
        """Begin at the newest snapshot, once; not in the constructor, because reading a snapshot may wait."""
        if not self._begun and self._snapshots is not None:
            self._begin(self._snapshots.origin())
        self._begun = True

    def _begin(self, origin: SnapshotOrigin | None) -> None:
        self.beginnings += 1
        firsts = ("", "") if origin is None else origin.firsts
        self.firsts = dict(zip((self.ledger, self.transcript_stream), firsts, strict=True))
        """The hash of the first commit of each stream, "" for one that was not read."""
        self._begun = False
        self._verified = {}
        self._origin = origin
        self.memory = Memory() if origin is None else origin.memory
        self.head = EMPTY if origin is None else origin.ledger
        self._byte = None if origin is None else origin.ledger_end
        self._transcript_byte = None if origin is None else origin.transcript_end
        self.coverage = Coverage(0 if origin is None else origin.cleared)
        self.redacted: list[Redacted] = []
        """The redactions that a replay from the first commit has met."""
        self.touched: set[str] | None = None
        """The threads that changed since this was emptied; None: any of them may have."""
        self.transcript = Transcript()
        self._earlier = None
        if origin is not None and self._snapshots is not None:
            self._earlier = EarlierThreads(self._store, self.scope, self.coverage, self._snapshots, origin)
            self.transcript = Transcript(origin.transcript, origin.transcript_at, origin.turns, self._earlier)

    @property
    def standing(self) -> StandingMemory:
        """The memory as it was folded last."""
        return StandingMemory(self.memory, self.head, self.firsts[self.ledger])

    @property
    def log(self) -> str:
        """The hash of the transcript's first commit; "" for an empty one."""
        return self.firsts[self.transcript_stream]

    def prepare(self, names: Collection[str]) -> None:
        """Load many threads that are needed next, which costs less than one by one."""
        if self._earlier is not None:
            self._earlier.prepare(names)

    # Commits of any process.

    def refresh_ledger(self) -> None:
        """Fold what was appended to the ledger. After a removal of the logs the state begins anew.

        Raises:
            CorruptLogError: It is damaged, or shorter than it was.
        """
        self._unless_removed(self._refresh_ledger)

    def _unless_removed(self, refresh: Callable[[], None]) -> None:
        try:
            refresh()
        except CorruptLogError:
            if not self.is_removed():
                raise
            self.start_over(from_first=True)
            refresh()

    def is_removed(self) -> bool:
        """Whether the logs that were read were removed since, by `EventStore.remove`."""
        return any(self._store.is_removed(first) for first in self.firsts.values())

    def _refresh_ledger(self) -> None:
        self._go_on()
        known, now = self.head, self._settled(self.ledger, self.head)
        if now == known:
            return
        must_not_shrink(self.ledger, known, now)
        try:
            self._read_ledger(now)
        except _MetErasureError:
            self.start_over(from_first=True)
            try:
                self.refresh_transcript()
                self._read_ledger(now)
            except BaseException:
                self.start_over()
                raise
        except BaseException:
            if not known.seq:
                # Half of it may be folded.
                self.start_over()
            raise

    def _read_ledger(self, until: Head) -> None:
        commits: Iterable[tuple[Commit, int]] = read_commits_and_ends(
            self._store, self.ledger, self.head, self._byte, until, verified=self._verified.get(self.ledger, 0)
        )
        if self.head.seq:
            # Read all of it before folding, so that a damaged log leaves the known state as it was.
            commits = list(commits)
        fold, head, byte = Fold(self.memory), self.head, self._byte
        for commit, end in commits:
            if commit.seq == 1:
                must_belong(self.ledger, commit, self.scope)
                self.firsts[self.ledger] = commit.hash
            if commit.cause.kind == "redaction":
                self._meet_erasure(commit)
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            self._cover(commit)
            head, byte = commit.head, end
        # Assigned together: a head ahead of its memory would never be repaired.
        self.memory, self.head, self._byte = fold.memory(), head, byte

    def _meet_erasure(self, commit: Commit) -> None:
        if self._origin is not None or self.memory.seq:
            raise _MetErasureError
        redacted = [event for event in commit.events if isinstance(event, Redacted)]
        self.redacted += redacted
        if any(event.thread is not None for event in redacted):
            self.refresh_transcript()
        for event in redacted:
            thread = self.transcript.threads.get(event.thread or "")
            if thread is not None:
                thread.redact(event)

    def _cover(self, commit: Commit) -> None:
        if self._origin is not None and commit.cause.thread is not None:
            # Loads what the index knows of the thread, before this commit changes it.
            self.transcript.threads.get(commit.cause.thread)
        self.coverage.apply(commit)
        self._touch(commit)

    def _touch(self, commit: Commit) -> None:
        if commit.cause.kind in COVERING_ALL:
            self.touched = None
        elif self.touched is not None and commit.cause.thread is not None:
            self.touched.add(commit.cause.thread)

    def refresh_transcript(self) -> None:
        """Fold what was appended to the transcript; see `refresh_ledger`."""
        self._unless_removed(self._refresh_transcript)

    def _refresh_transcript(self) -> None:
        self._go_on()
        stream, known = self.transcript_stream, self.transcript.head
        now = self._settled(stream, known)
        if now == known:
            return
        must_not_shrink(stream, known, now)
        verified = self._verified.get(stream, 0)
        commits = read_commits_and_ends(self._store, stream, known, self._transcript_byte, now, verified=verified)
        for commit, end in commits:
            if commit.seq == 1:
                must_belong(stream, commit, self.scope)
                self.firsts[stream] = commit.hash
            self.transcript.apply(commit)
            self._touch(commit)
            self._transcript_byte = end

    def _once_settled(self, stream: str, known: Head) -> Head:
        """Return the head once it is durable: lines of other processes may be cut off again if their sync fails."""
        now = self._store.head(stream)
        if now in (known, EMPTY):
            # Of an empty stream nothing can be lost, and locking it would make its folder.
            return now
        try:
            return self._store.settled_head(stream)
        except (StoreError, LockTimeoutError):
            # A home that cannot be written can still be read, and so can one that is being rewritten.
            return now

    # Commits that this process has decided.

    def take(self, commit: Commit) -> None:
        """Fold a commit of the ledger that follows the head; its end in the store is unknown."""
        if commit.seq == 1:
            self.firsts[self.ledger] = commit.hash
        fold = Fold(self.memory)
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        self._cover(commit)
        self.memory, self.head, self._byte = fold.memory(), commit.head, None

    def take_said(self, commit: Commit) -> None:
        """Fold a commit of the transcript that follows its head."""
        if commit.seq == 1:
            self.firsts[self.transcript_stream] = commit.hash
        self.transcript.apply(commit)
        self._transcript_byte = None
