"""Document projector: updates memory.json and the index in the background after each commit.

A commit only marks its scope as dirty. One thread per home, started by the first mark, waits a moment, so that a burst
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
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.disk.files import lock_beside
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.looks import sizes_of
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.writer import Writer
from backstory.projections.document.document import DocumentFile, erase_document, render

_log = logging.getLogger(__name__)

DELAY_SECONDS = 0.05
"""How long commits are collected; including the write, memory.json is at most 100 ms behind."""

_INDEX_BYTES = 1 << 20
_MOMENT = 1.0
"""Seconds that a check waits for the work of another memory, which keeps its memory.json behind meanwhile."""


Share = Callable[[Scope, Memory, Head], None]
"""Keeps the memory of a scope at a durable head for other processes."""


class Follower(Protocol):
    """A read model that follows a scope's logs at its own pace."""

    def follow(self) -> object:
        """Read the new commits of the logs."""


class _Snapshot(msgspec.Struct, frozen=True):
    """A memory and the ledger's head it belongs to."""

    memory: Memory
    head: Head


class DocumentProjector:
    """Keeps memory.json and the index of each watched scope up to date; safe for threads and forks.

    A projector that is never closed finishes its work when the interpreter ends.

    Args:
        store: holds the logs.
        document: returns the path of a scope's memory.json.
        memories_when: rebuilds the memories of a scope with a `lastUpdated`; called only for a file that this process
            did not write.
        index: returns a scope's index, which catches up after every 1 MiB of logs.
        share: keeps the memory at a head for other processes.
        delay: how many seconds to collect commits.
        lock_timeout: how many seconds to wait for another process that writes the file, where the logs lie elsewhere.
    """

    def __init__(
        self,
        store: EventStore,
        document: Callable[[Scope], Path],
        memories_when: Callable[[Scope, str], Iterable[Memory]],
        *,
        index: Callable[[Scope], Follower] | None = None,
        share: Share | None = None,
        delay: float = DELAY_SECONDS,
        lock_timeout: float = 10.0,
    ) -> None:
        # Beside a log its own lock serves; across a network that would cost more than the commit did.
        in_files = store.capabilities().path is not None
        locks = None if in_files else FileLocks(lock_timeout, SystemClock(), tidy=True)
        self.work = _Work(store, document, memories_when, locks, index=index, share=share, delay=delay)
        self._writers: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._finish = weakref.finalize(self, self.work.finish)

    def watch(self, writer: Writer) -> None:
        """Watch a scope; if a process died before it wrote memory.json, a flush or the end of the program writes it."""
        self._writers[writer.scope] = writer
        self.work.suspect(writer)

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:  # noqa: ARG002 the port passes them
        """Mark the scope of a commit as dirty; a `Listener`."""
        if scope not in self.work.dirty:
            writer = self._writers.get(scope)
            if writer is not None:
                self.work.note(writer)

    def purge(self, scope: Scope) -> None:
        """Remove memory.json and the copies moved aside; it is written again later, from the memory at that time.

        The caller holds the ledger's lock.

        Raises:
            StoreError: a file cannot be removed.
            LockTimeoutError: another process goes on writing it.
        """
        writer = self._writers.get(scope)
        self.work.purge(scope)
        if writer is not None:
            self.work.suspect(writer)

    def flush(self, writer: Writer) -> bool:
        """Write every commit made so far to memory.json; return False after a failure, which is logged."""
        return self.work.flush(writer)

    def flush_document(self, writer: Writer) -> None:
        """Write every commit made so far to memory.json, and leave the index, which may take long, to the thread.

        A failure is logged, and tried again by the thread.
        """
        self.work.flush_document(writer)

    def flush_if_free(self, writer: Writer) -> None:
        """Write every commit made so far to memory.json, unless that has to wait; then the thread does it later."""
        self.work.flush_if_free(writer)

    def close(self) -> None:
        """Finish all work, the index included, and end the thread; failures are logged."""
        self._finish()
        self.work.end(patience=None)


class _Work(Jobs[Sequence[Scope]]):
    """The work of the thread; holds no reference to the projector, so that an unused projector is collected."""

    _THREAD = "backstory-keeper"

    def __init__(
        self,
        store: EventStore,
        document: Callable[[Scope], Path],
        memories_when: Callable[[Scope, str], Iterable[Memory]],
        locks: FileLocks | None,
        *,
        index: Callable[[Scope], Follower] | None,
        share: Share | None,
        delay: float,
    ) -> None:
        self._store = store
        self._document = document
        self._memories_when = memories_when
        self._locks = locks
        self._index = index
        self._share = share
        self._delay = delay
        self.dirty: dict[Scope, Writer] = {}
        self._ready_at = 0.0
        """When to write what is dirty, by the machine's monotonic clock."""
        self._failed: dict[Scope, Writer] = {}
        self._suspects: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._behind: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._indexed: weakref.WeakKeyDictionary[Writer, int] = weakref.WeakKeyDictionary()
        self._files: weakref.WeakKeyDictionary[Writer, DocumentFile] = weakref.WeakKeyDictionary()
        self._written: weakref.WeakKeyDictionary[Writer, _Snapshot] = weakref.WeakKeyDictionary()
        super().__init__()

    def note(self, writer: Writer) -> None:
        """Mark a scope as dirty, and start the thread if necessary; without a thread, do the work here."""
        with self._changed:
            if not self.dirty:
                self._ready_at = time.monotonic() + self._delay
            self.dirty[writer.scope] = writer
            attended = not self.ending and self._wake()
        if not attended:
            self.flush(writer)

    def _next(self) -> tuple[float, Sequence[Scope] | None] | None:
        if self.ending or not self.dirty:
            return None
        left = self._ready_at - time.monotonic()
        return left, list(self.dirty) if left <= 0 else None

    def _run(self, scopes: Sequence[Scope], /) -> None:
        for scope in scopes:
            self._settle(scope)

    def _settle(self, scope: Scope, flushed: Writer | None = None, *, wait: bool = True) -> bool:
        with self._busy:
            # A scope marked from here on is written in the next round, because the memory is read after this.
            writer = self.dirty.pop(scope, None) or self._failed.pop(scope, None)
            suspect = self._suspects.pop(scope, None) or flushed
            if writer is not None:
                return self._update(writer, wait=wait)
            return suspect is None or self._check(suspect, wait=wait)

    def flush(self, writer: Writer) -> bool:
        """Do the work of one scope now; a commit may not have marked it yet."""
        return self._settle(writer.scope, writer)

    def flush_document(self, writer: Writer) -> None:
        """Write the document of one scope now, and leave the rest to the thread."""
        with self._busy, _logged(writer.scope):
            self._write(writer, spare_edits=False, wait=True)
        self.note(writer)

    def flush_if_free(self, writer: Writer) -> None:
        """Do the same unless another thread works for longer than a moment; a locked ledger is left to the thread."""
        if not self._busy.acquire(timeout=_MOMENT):
            return
        try:
            self._settle(writer.scope, writer, wait=False)
        finally:
            self._busy.release()

    def finish(self) -> None:
        """Do all remaining work now; scopes marked later are handled in the caller's thread."""
        self.end()
        for scope in [*self.dirty, *self._failed, *list(self._suspects)]:
            self._settle(scope)
        for writer in list(self._behind.values()):
            with self._busy, _logged(writer.scope):
                self._follow(writer, at_least=1)

    def _update(self, writer: Writer, *, wait: bool) -> bool:
        # A failed scope is tried again at its next commit and at the end.
        self._failed[writer.scope] = writer
        with _logged(writer.scope):
            try:
                self._write(writer, spare_edits=False, wait=wait)
            except LockTimeoutError:
                if wait:
                    raise
                self.note(writer)
                return False
            del self._failed[writer.scope]
        if self._share is not None and (written := self._written.get(writer)) is not None:
            self._share(writer.scope, written.memory, written.head)
        with _logged(writer.scope):
            self._follow(writer, at_least=_INDEX_BYTES)
        return writer.scope not in self._failed

    # memory.json.

    def suspect(self, writer: Writer) -> None:
        """Mark a scope for a check, unless its memory.json is newer than the log, and so includes the last commit.

        Beside a log the document is written under the ledger's lock. A time in the future means that the clock was set
        back. Where the log is no file of this machine the two times do not compare.
        """
        path = self._store.capabilities().path
        if path is not None:
            with contextlib.suppress(OSError):
                log = path(writer.ledger).stat().st_mtime_ns
                if log < self._document(writer.scope).stat().st_mtime_ns <= time.time_ns():
                    return
        self._suspects[writer.scope] = writer

    def _check(self, writer: Writer, *, wait: bool) -> bool:
        try:
            self._write(writer, spare_edits=True, wait=wait)
        except LockTimeoutError as error:
            # A flush tries again, and so does the end.
            self._suspects[writer.scope] = writer
            _log.debug("memory.json of %s stays as it is for now: %s", writer.scope, error)
            return False
        except (BackstoryError, OSError) as error:
            # Nothing was committed here, so a reader of a read-only home gets no warning.
            _log.debug("memory.json of %s stays as it is: %s", writer.scope, error)
            return False
        return True

    def _write(self, writer: Writer, *, spare_edits: bool, wait: bool) -> None:
        if self._store.head(writer.ledger).seq == 0:
            return
        done = False
        while not done:
            snapshot = _Snapshot(*writer.reader.standing())
            file = self._file(writer)
            data = render(snapshot.memory)
            # This test may replay the log, so it runs before anything is locked.
            if file.is_current_or_edited(data) and spare_edits:
                return
            with self._locked(writer.scope, wait=wait):
                head = self._store.head(writer.ledger)
                if head.seq == 0:
                    # The user was removed meanwhile.
                    return
                # Not read from the writer, which may have to build an index, while it is locked.
                *_, newest = self._since(snapshot, writer.scope, head)
                if newest.head.seq >= head.seq:
                    file.write(data if newest is snapshot else render(newest.memory), spare_edits=spare_edits)
                    self._written[writer] = newest
                    done = True

    def _since(self, snapshot: _Snapshot, scope: Scope, head: Head) -> Iterator[_Snapshot]:
        """Yield a snapshot and those after each later commit, up to an erasure, which changes earlier memories.

        It need not go beyond `head`, and may.
        """
        yield snapshot
        if head.seq == snapshot.head.seq:
            return
        fold = Fold(snapshot.memory)
        for commit in read_commits(self._store, scope.stream(LEDGER), snapshot.head):
            if commit.cause.kind == "redaction":
                return
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            yield _Snapshot(fold.memory(), commit.head)

    def _locked(self, scope: Scope, *, wait: bool = True) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from writing memory.json, and from erasing it."""
        if self._locks is None:
            return self._store.locked(scope.stream(LEDGER), wait=wait)
        return self._locks.held(lock_beside(self._document(scope)), wait=wait)

    def purge(self, scope: Scope) -> None:
        """Remove every copy of the document."""
        document = self._document(scope)
        if self._locks is None:
            # Its lock is the ledger's, which the caller holds.
            erase_document(document)
        elif document.parent.exists():
            with self._locked(scope):
                erase_document(document)

    def _file(self, writer: Writer) -> DocumentFile:
        file = self._files.get(writer)
        if file is None:
            known = weakref.ref(writer)
            scope = writer.scope
            file = DocumentFile(self._document(scope), lambda moment: self._candidates(known(), scope, moment))
            self._files[writer] = file
        return file

    def _candidates(self, writer: Writer | None, scope: Scope, moment: str) -> Iterator[Memory]:
        """Yield the memories with a `lastUpdated`, those after the last write first: they need no replay."""
        written = None if writer is None else self._written.get(writer)
        if written is not None:
            for later in self._since(written, scope, self._store.head(scope.stream(LEDGER))):
                if later.memory.changed_at == moment:
                    yield later.memory
        yield from self._memories_when(scope, moment)

    # The index.

    def _follow(self, writer: Writer, *, at_least: int) -> None:
        """Update the index, if the logs have grown by `at_least` bytes since its last update."""
        if self._index is None:
            return
        size = sum(sizes_of(self._store, (writer.ledger, writer.transcript_stream)))
        if size - self._indexed.get(writer, 0) >= at_least:
            self._behind[writer.scope] = writer
            self._index(writer.scope).follow()
            self._indexed[writer] = size
            self._behind.pop(writer.scope, None)
        elif writer in self._indexed:
            self._behind[writer.scope] = writer

    def renew(self) -> None:
        """Begin anew in a child; what is dirty is the parent's to show."""
        super().renew()
        self.dirty.clear()
        self._failed.clear()
        self._suspects.clear()
        self._behind.clear()


@contextlib.contextmanager
def _logged(scope: Scope) -> Iterator[None]:
    """Log a failure and go on: commits are durable whether or not the read models are updated."""
    try:
        yield
    except BackstoryError as error:
        _log.warning("memory.json or the index of %s lags behind, which is safe: %s", scope, error)
    except Exception:  # noqa: BLE001 one scope must not end the thread
        _log.exception("memory.json or the index of %s lags behind, which is safe", scope)
