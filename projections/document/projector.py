"""Document projector: updates memory.json and the index in the background after each commit.

A commit only marks its memory as dirty. One thread per home, started by the first mark, waits a moment, so that a burst
of commits is written once. Then it writes the newest memory, of any process, to memory.json, and sometimes updates the
index. A failure here does not affect the commits. It is logged, and tried again at the next commit of the scope and
when the home is closed.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.commit import Commit, Head
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.disk.files import lock_beside
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.port import EventStore, states_of
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.writer import Writer
from backstory.projections.document.document import DocumentFile, erase_document, render
from backstory.projections.read_model import ReadModel

_log = logging.getLogger(__name__)

DELAY_SECONDS = 0.05
"""How long commits are collected; including the write, memory.json is at most 100 ms behind."""

_INDEX_BYTES = 1 << 20
_MOMENT = 1.0
"""Seconds that a check waits for the work of another memory, which keeps its memory.json behind meanwhile."""


Share = Callable[[Scope, Memory, Head], None]
"""Keeps the memory of a scope at a durable head for other processes."""


class Index(Protocol):
    """The index of one memory, as far as its document needs it."""

    def follow(self) -> object:
        """Read the new commits of the logs."""

    def memories_when(self, moment: str, /) -> Iterable[Memory]:
        """Rebuild the memories with a `lastUpdated`; called only for a file that this process did not write."""


class _Snapshot(msgspec.Struct, frozen=True):
    """A memory and the ledger's head it belongs to."""

    memory: Memory
    head: Head


class ScopeDocument(ReadModel):
    """memory.json of one memory, and its index, as they follow the commits.

    If a process died before it wrote memory.json, a flush or the end of the program writes it.

    Args:
        projector: What all memories of the home share.
        scope: Whose memory.
        path: The path of memory.json.
        writer: Returns the writer.
        index: Returns the index, which catches up after every 1 MiB of logs.
    """

    def __init__(
        self,
        projector: DocumentProjector,
        scope: Scope,
        path: Path,
        writer: Callable[[], Writer],
        index: Callable[[], Index],
    ) -> None:
        self.scope = scope
        self.ledger = scope.stream(LEDGER)
        self.path = path
        self._projector = projector
        self._writer = writer
        self._index = index
        self._file = DocumentFile(path, self._candidates)
        self._written: _Snapshot | None = None
        self._indexed: int | None = None
        """How many bytes the logs had at the last update of the index."""
        self._suspect()

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:  # noqa: ARG002 the port passes them
        """Mark the memory as dirty; a `Listener`."""
        if self not in self._projector.dirty:
            self._projector.note(self)

    def flush(self) -> bool:
        """Write every commit made so far to memory.json; return False after a failure, which is logged."""
        return self._projector.settle(self, asked=True)

    def flush_document(self) -> None:
        """Write every commit made so far to memory.json, and leave the index, which may take long, to the thread.

        A failure is logged, and tried again by the thread.
        """
        self._projector.flush_document(self)

    def flush_if_free(self) -> None:
        """Write every commit made so far to memory.json, unless that has to wait; then the thread does it later."""
        self._projector.flush_if_free(self)

    def purge(self) -> None:
        """Remove memory.json and the copies moved aside; it is written again later, from the memory at that time."""
        if self._projector.locks is None:
            # Its lock is the ledger's, which the caller holds.
            erase_document(self.path)
        elif self.path.parent.exists():
            with self._locked():
                erase_document(self.path)
        self._suspect()

    def start_over(self) -> None:
        """Drop the memory that was written last."""
        self._written = None

    def _suspect(self) -> None:
        """Have it checked, unless memory.json is newer than the log, and so includes the last commit.

        Beside a log the document is written under the ledger's lock. A time in the future means that the clock was set
        back. Where the log is no file of this machine the two times do not compare.
        """
        path = self._projector.store.capabilities().path
        if path is not None:
            with contextlib.suppress(OSError):
                log = path(self.ledger).stat().st_mtime_ns
                if log < self.path.stat().st_mtime_ns <= time.time_ns():
                    return
        self._projector.suspects.add(self)

    def write(self, *, spare_edits: bool, wait: bool) -> None:
        """Write the newest memory, of any process, to memory.json.

        Args:
            spare_edits: Whether a file that a person edited stays as it is.
            wait: Whether to wait for another process that holds the lock.

        Raises:
            LockTimeoutError: It is held for too long.
            StoreError, CorruptLogError: The ledger cannot be read, or the file not be written.
        """
        store = self._projector.store
        if store.head(self.ledger).seq == 0:
            return
        done = False
        while not done:
            snapshot = _Snapshot(*self._writer().reader.standing())
            data = render(snapshot.memory)
            # This test may replay the log, so it runs before anything is locked.
            if self._file.is_current_or_edited(data) and spare_edits:
                return
            with self._locked(wait=wait):
                head = store.head(self.ledger)
                if head.seq == 0:
                    # The user was removed meanwhile.
                    return
                # Not read from the writer, which may have to build an index, while it is locked.
                *_, newest = self._since(snapshot, head)
                if newest.head.seq >= head.seq:
                    self._file.write(data if newest is snapshot else render(newest.memory), spare_edits=spare_edits)
                    self._written = newest
                    done = True

    def _since(self, snapshot: _Snapshot, head: Head) -> Iterator[_Snapshot]:
        """Yield a snapshot and those after each later commit, up to an erasure, which changes earlier memories.

        It need not go beyond `head`, and may.
        """
        yield snapshot
        if head.seq == snapshot.head.seq:
            return
        fold = Fold(snapshot.memory)
        for commit in read_commits(self._projector.store, self.ledger, snapshot.head):
            if commit.cause.kind == "redaction":
                return
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            yield _Snapshot(fold.memory(), commit.head)

    def _locked(self, *, wait: bool = True) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from writing memory.json, and from erasing it."""
        if self._projector.locks is None:
            return self._projector.store.locked(self.ledger, wait=wait)
        return self._projector.locks.held(lock_beside(self.path), wait=wait)

    def _candidates(self, moment: str) -> Iterator[Memory]:
        """Yield the memories with a `lastUpdated`, those after the last write first: they need no replay."""
        written = self._written
        if written is not None:
            for later in self._since(written, self._projector.store.head(self.ledger)):
                if later.memory.changed_at == moment:
                    yield later.memory
        yield from self._index().memories_when(moment)

    def share(self) -> None:
        """Keep the memory that was written last for other processes."""
        if self._projector.share is not None and self._written is not None:
            self._projector.share(self.scope, self._written.memory, self._written.head)

    def follow(self, *, at_least: int = 1) -> bool:
        """Update the index if the logs have grown by `at_least` bytes since its last update; return whether it lags."""
        streams = (self.ledger, self.scope.stream(TRANSCRIPT))
        size = sum(state.size for state in states_of(self._projector.store, streams))
        if size - (self._indexed or 0) < at_least:
            return self._indexed is not None
        self._index().follow()
        self._indexed = size
        return False


class DocumentProjector(Jobs[Sequence[ScopeDocument]]):
    """Keeps memory.json and the index of the memories of a home up to date; safe for threads and forks.

    Args:
        store: holds the logs.
        share: keeps the memory at a head for other processes.
        delay: how many seconds to collect commits.
        lock_timeout: how many seconds to wait for another process that writes the file, where the logs lie elsewhere.
    """

    _THREAD = "backstory-keeper"

    def __init__(
        self,
        store: EventStore,
        *,
        share: Share | None = None,
        delay: float = DELAY_SECONDS,
        lock_timeout: float = 10.0,
    ) -> None:
        self.store = store
        # Beside a log its own lock serves; across a network that would cost more than the commit did.
        in_files = store.capabilities().path is not None
        self.locks = None if in_files else FileLocks(lock_timeout, SystemClock(), tidy=True)
        self.share = share
        self._delay = delay
        self._ready_at = 0.0
        """When to write what is dirty, by the machine's monotonic clock."""
        self._finishing: weakref.finalize[[], object] | None = None
        super().__init__()

    def finish_with(self, owner: object) -> None:
        """Finish the work when nothing uses the owner, or the interpreter ends, unless this is closed before."""
        self._finishing = weakref.finalize(owner, self.finish)

    def close(self) -> None:
        """Finish all work, the index included, and end the thread; failures are logged."""
        if self._finishing is not None:
            self._finishing.detach()
        self.finish()
        self.end(patience=None)

    def renew(self) -> None:
        """Begin without work, as in a child; what is dirty is the parent's to show."""
        super().renew()
        self.dirty: dict[ScopeDocument, None] = {}
        self._failed: set[ScopeDocument] = set()
        self.suspects: weakref.WeakSet[ScopeDocument] = weakref.WeakSet()
        self._behind: weakref.WeakSet[ScopeDocument] = weakref.WeakSet()

    def note(self, document: ScopeDocument) -> None:
        """Mark a memory as dirty, and start the thread if necessary; without a thread, do the work here."""
        with self._changed:
            if not self.dirty:
                self._ready_at = time.monotonic() + self._delay
            self.dirty[document] = None
            attended = not self.ending and self._wake()
        if not attended:
            self.settle(document, asked=True)

    def _next(self) -> tuple[float, Sequence[ScopeDocument] | None] | None:
        if self.ending or not self.dirty:
            return None
        left = self._ready_at - time.monotonic()
        return left, list(self.dirty) if left <= 0 else None

    def _run(self, documents: Sequence[ScopeDocument], /) -> None:
        for document in documents:
            self.settle(document)

    def settle(self, document: ScopeDocument, *, asked: bool = False, wait: bool = True) -> bool:
        """Do the work on one memory now; with `asked` it is checked if no commit has marked it."""
        with self._busy:
            # A memory marked from here on is written in the next round, because it is read after this.
            marked = document in self.dirty or document in self._failed
            suspected = asked or document in self.suspects
            self.dirty.pop(document, None)
            self._failed.discard(document)
            self.suspects.discard(document)
            if marked:
                return self._update(document, wait=wait)
            return not suspected or self._check(document, wait=wait)

    def flush_document(self, document: ScopeDocument) -> None:
        """Write one document now, and leave the rest to the thread."""
        with self._busy, _logged(document.scope):
            document.write(spare_edits=False, wait=True)
        self.note(document)

    def flush_if_free(self, document: ScopeDocument) -> None:
        """Do the same unless another thread works for longer than a moment; a locked ledger is left to the thread."""
        if not self._busy.acquire(timeout=_MOMENT):
            return
        try:
            self.settle(document, asked=True, wait=False)
        finally:
            self._busy.release()

    def finish(self) -> None:
        """Do all remaining work now; memories marked later are handled in the caller's thread."""
        if self.is_inherited:
            return
        self.end()
        for document in [*self.dirty, *self._failed, *self.suspects]:
            self.settle(document)
        for document in list(self._behind):
            self._behind.discard(document)
            with self._busy, _logged(document.scope):
                document.follow()

    def _update(self, document: ScopeDocument, *, wait: bool) -> bool:
        # A failed memory is tried again at its next commit and at the end.
        self._failed.add(document)
        with _logged(document.scope):
            try:
                document.write(spare_edits=False, wait=wait)
            except LockTimeoutError:
                if wait:
                    raise
                self.note(document)
                return False
            self._failed.discard(document)
        document.share()
        with _logged(document.scope):
            self._behind.add(document)
            if not document.follow(at_least=_INDEX_BYTES):
                self._behind.discard(document)
        return document not in self._failed

    def _check(self, document: ScopeDocument, *, wait: bool) -> bool:
        try:
            document.write(spare_edits=True, wait=wait)
        except LockTimeoutError as error:
            # A flush tries again, and so does the end.
            self.suspects.add(document)
            _log.debug("memory.json of %s stays as it is for now: %s", document.scope, error)
            return False
        except (BackstoryError, OSError) as error:
            # Nothing was committed here, so a reader of a read-only home gets no warning.
            _log.debug("memory.json of %s stays as it is: %s", document.scope, error)
            return False
        return True


@contextlib.contextmanager
def _logged(scope: Scope) -> Iterator[None]:
    """Log a failure and go on: commits are durable whether or not the read models are updated."""
    try:
        yield
    except BackstoryError as error:
        _log.warning("memory.json or the index of %s lags behind, which is safe: %s", scope, error)
    except Exception:  # noqa: BLE001 one scope must not end the thread
        _log.exception("memory.json or the index of %s lags behind, which is safe", scope)
