"""Keeps what can be read beside the logs up with them, a moment behind the commits and off their path.

A commit only leaves a note that its scope is dirty. One thread per home, started by the first note, waits a little, so
that a burst of commits is shown once, and then brings memory.json to the newest memory, whoever committed it, and now
and then the index. Whatever goes wrong here the commits are safe: it is logged, and tried again with the next commit of
the scope, and when the home is closed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from backstory.ledger.concurrency.forks import register, start_thread
from backstory.ledger.core.commit import Commit, Head
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import Writer, read_commits
from backstory.projections.document.document import DocumentFile, erase_document, render

__all__ = ["DELAY_SECONDS", "DocumentProjector", "Follower"]

_log = logging.getLogger(__name__)

DELAY_SECONDS = 0.05
"""How long commits are gathered; with the time it takes to write, memory.json is at most 100 ms behind."""

_INDEX_BYTES = 1 << 20
_FORK_PATIENCE_SECONDS = 1.0


class Follower(Protocol):
    """A read model that follows a scope's logs at its own pace."""

    def catch_up(self) -> object:
        """Take in what the logs have and it has not."""


class _Shown(msgspec.Struct, frozen=True):
    """The memory that was shown last, and the head it stands on."""

    memory: Memory
    head: Head


class DocumentProjector:
    """Keeps memory.json, and an index, of each scope it watches up to the ledger; safe for threads and forks.

    `document` says where a scope's memory.json lies. `memories_when(scope, last_updated)` rebuilds the memories that a
    document of that time may have been written from; it is asked only about a file that this process did not write.
    `index` gives what is to catch up whenever the logs have grown by 1 MiB. `delay` is in seconds. A keeper that is
    never closed finishes when the interpreter ends.
    """

    def __init__(
        self,
        store: EventStore,
        document: Callable[[Scope], Path],
        memories_when: Callable[[Scope, str], Iterable[Memory]],
        *,
        index: Callable[[Scope], Follower] | None = None,
        delay: float = DELAY_SECONDS,
    ) -> None:
        self._work = _Work(store, document, memories_when, index, delay)
        self._writers: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._finish = weakref.finalize(self, self._work.finish)

    def watch(self, writer: Writer) -> None:
        """Look after a scope: if a process died before it could show its last commit, that is made good by the end."""
        self._writers[writer.scope] = writer
        self._work.doubt(writer)

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:  # noqa: ARG002 a listener's words
        """Take note of a commit; a `Listener`."""
        if scope not in self._work.dirty:
            writer = self._writers.get(scope)
            if writer is not None:
                self._work.note(writer)

    def purge(self, scope: Scope) -> None:
        """Take away memory.json and all that was moved aside of it; it comes back with what is remembered then.

        The caller holds the ledger's lock.

        Raises:
            StoreError: something of it cannot be removed.
        """
        writer = self._writers.get(scope)
        self._work.purge(scope)
        if writer is not None:
            self._work.doubt(writer)

    def flush(self, writer: Writer) -> bool:
        """Have memory.json show every commit made so far; False where that could not be done, and the log says why."""
        return self._work.flush(writer)

    def flush_if_free(self, writer: Writer) -> None:
        """Have memory.json show every commit made so far where that keeps nobody waiting; else it comes by itself."""
        self._work.flush_if_free(writer)

    def close(self) -> None:
        """Finish everything, the index included, and end the thread; what cannot be done is logged."""
        self._finish()
        thread = self._work.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class _Work:
    """What the thread works on; it knows nothing of the keeper, so that one nobody holds any more can go."""

    def __init__(
        self,
        store: EventStore,
        document: Callable[[Scope], Path],
        memories_when: Callable[[Scope, str], Iterable[Memory]],
        index: Callable[[Scope], Follower] | None,
        delay: float,
    ) -> None:
        self._store = store
        self._document = document
        self._memories_when = memories_when
        self._index = index
        self._delay = delay
        self.dirty: dict[Scope, Writer] = {}
        self.thread: threading.Thread | None = None
        self._failed: dict[Scope, Writer] = {}
        self._doubtful: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._behind: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._indexed: weakref.WeakKeyDictionary[Writer, int] = weakref.WeakKeyDictionary()
        self._files: weakref.WeakKeyDictionary[Writer, DocumentFile] = weakref.WeakKeyDictionary()
        self._shown: weakref.WeakKeyDictionary[Writer, _Shown] = weakref.WeakKeyDictionary()
        self._busy = threading.RLock()
        self._changed = threading.Condition()
        self._finished = False
        register(self)

    def note(self, writer: Writer) -> None:
        """Put a scope on the list, and see that somebody goes through it."""
        with self._changed:
            self.dirty[writer.scope] = writer
            if not self._finished and self.thread is None:
                self.thread = start_thread("backstory-keeper", self._run)
            alone = self._finished or self.thread is None
            if len(self.dirty) == 1:
                self._changed.notify_all()
        if alone:
            self.flush(writer)

    def _run(self) -> None:
        while self._gather():
            for scope in list(self.dirty):
                self._settle(scope)

    def _gather(self) -> bool:
        """Wait until there is something to do, and for what follows it at once; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.dirty or self._finished)
            self._changed.wait_for(lambda: self._finished, self._delay)
            return not self._finished

    def _settle(self, scope: Scope, asked: Writer | None = None, *, wait: bool = True) -> bool:
        with self._busy:
            # What is noted from here on is shown in the next round: the memory is read after this.
            writer = self.dirty.pop(scope, None) or self._failed.pop(scope, None)
            doubted = self._doubtful.pop(scope, None) or asked
            if writer is not None:
                return self._bring(writer, wait=wait)
            return doubted is None or self._make_good(doubted, wait=wait)

    def flush(self, writer: Writer) -> bool:
        """Do what there is to do for one scope, here and now; the note of a commit may be on its way still."""
        return self._settle(writer.scope, writer)

    def flush_if_free(self, writer: Writer) -> None:
        """Do the same unless somebody else is at it; where the ledger is locked the thread does it later."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._settle(writer.scope, writer, wait=False)
        finally:
            self._busy.release()

    def finish(self) -> None:
        """Do everything that is left, here and now; what is noted later is done where it is noted."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()
        for scope in [*self.dirty, *self._failed, *list(self._doubtful)]:
            self._settle(scope)
        for writer in list(self._behind.values()):
            with self._busy, _told(writer.scope):
                self._follow(writer, at_least=1)

    def _bring(self, writer: Writer, *, wait: bool) -> bool:
        # Tried again with the next commit, and at the end, unless all goes well.
        self._failed[writer.scope] = writer
        with _told(writer.scope):
            try:
                self._show(writer, spare_edits=False, wait=wait)
            except LockTimeoutError:
                if wait:
                    raise
                self.note(writer)
                return False
            del self._failed[writer.scope]
        with _told(writer.scope):
            self._follow(writer, at_least=_INDEX_BYTES)
        return writer.scope not in self._failed

    # memory.json.

    def doubt(self, writer: Writer) -> None:
        """Put down a scope, unless its memory.json is younger than the log: then it shows the last commit.

        For it is written under the ledger's lock. A time to come says only that the clock was set back since.
        """
        path = self._document(writer.scope)
        with contextlib.suppress(OSError):
            log = path.with_name(f"{LEDGER}.jsonl").stat().st_mtime_ns
            if log < path.stat().st_mtime_ns <= time.time_ns():
                return
        self._doubtful[writer.scope] = writer

    def _make_good(self, writer: Writer, *, wait: bool) -> bool:
        try:
            self._show(writer, spare_edits=True, wait=wait)
        except LockTimeoutError as error:
            # Tried again by a flush, and at the end.
            self._doubtful[writer.scope] = writer
            _log.debug("memory.json of %s stays as it is for now: %s", writer.scope, error)
            return False
        except (BackstoryError, OSError) as error:
            # Nobody wrote anything: a reader of a home that cannot be written is not bothered with it.
            _log.debug("memory.json of %s stays as it is: %s", writer.scope, error)
            return False
        return True

    def _show(self, writer: Writer, *, spare_edits: bool, wait: bool) -> None:
        if self._store.head(writer.ledger).seq == 0:
            return
        done = False
        while not done:
            shown = _standing(writer)
            file = self._file(writer)
            data = render(shown.memory)
            # To tell an edited file from one that lags may take a while: not while everybody waits for the lock.
            if file.judged(data) and spare_edits:
                return
            with self._store.locked(writer.ledger, wait=wait):
                # The reader may have to build an index: not while everybody waits for the lock.
                *_, newest = self._since(shown, writer.scope)
                if newest.head == self._store.head(writer.ledger):
                    file.write(data if newest is shown else render(newest.memory), spare_edits=spare_edits)
                    self._shown[writer] = newest
                    done = True

    def _since(self, shown: _Shown, scope: Scope) -> Iterator[_Shown]:
        """What was shown, and what each commit since has made of it, up to an erasure: that changes what was before."""
        yield shown
        if self._store.head(scope.stream(LEDGER)).seq == shown.head.seq:
            return
        fold = Fold(shown.memory)
        for commit in read_commits(self._store, scope.stream(LEDGER), shown.head):
            if commit.cause.kind == "redaction":
                return
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            yield _Shown(fold.memory(), commit.head)

    def purge(self, scope: Scope) -> None:
        """Take away every copy of the document."""
        erase_document(self._document(scope))

    def _file(self, writer: Writer) -> DocumentFile:
        file = self._files.get(writer)
        if file is None:
            known = weakref.ref(writer)
            scope = writer.scope
            file = DocumentFile(self._document(scope), lambda moment: self._candidates(known(), scope, moment))
            self._files[writer] = file
        return file

    def _candidates(self, writer: Writer | None, scope: Scope, moment: str) -> Iterator[Memory]:
        """The memories of a time, those since what was shown last first: they cost no replay."""
        shown = None if writer is None else self._shown.get(writer)
        if shown is not None:
            for later in self._since(shown, scope):
                if later.memory.changed_at == moment:
                    yield later.memory
        yield from self._memories_when(scope, moment)

    # The index.

    def _follow(self, writer: Writer, *, at_least: int) -> None:
        """Have the index catch up, if the logs have grown by so many bytes since it last did."""
        if self._index is None:
            return
        size = self._store.size(writer.ledger) + self._store.size(writer.transcript_stream)
        if size - self._indexed.get(writer, 0) >= at_least:
            self._behind[writer.scope] = writer
            self._index(writer.scope).catch_up()
            self._indexed[writer] = size
            self._behind.pop(writer.scope, None)
        elif writer in self._indexed:
            self._behind[writer.scope] = writer

    # Forks: a child has none of its parent's threads, but whatever lock one of them held.

    def pause(self) -> bool:
        """Wait until nothing is half done; False where that takes too long."""
        return self._busy.acquire(timeout=_FORK_PATIENCE_SECONDS)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._busy.release()

    def renew(self) -> None:
        """Begin anew in a child; what is dirty is the parent's to show."""
        self._busy = threading.RLock()
        self._changed = threading.Condition()
        self.thread = None
        self.dirty.clear()
        self._failed.clear()
        self._doubtful.clear()
        self._behind.clear()


@contextlib.contextmanager
def _told(scope: Scope) -> Iterator[None]:
    """Log what goes wrong, and go on: what was committed is durable, whatever becomes of a read model."""
    try:
        yield
    except BackstoryError as error:
        _log.warning("what is kept beside the log of %s lags behind, which is safe: %s", scope, error)
    except Exception:  # noqa: BLE001 the thread outlives whatever one scope does to it
        _log.exception("what is kept beside the log of %s lags behind, which is safe", scope)


def _standing(writer: Writer) -> _Shown:
    return _Shown(*writer.reader.standing())
