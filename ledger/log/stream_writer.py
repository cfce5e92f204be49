"""Loop of a writer: fold what is new, decide, append; if another writer was first, again.

Every change of a scope's two streams goes through `StreamWriter._write`. Threads decide one after the other and wait
for the disk together (`group_commit`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import Commit, Head
from backstory.ledger.core.errors import CorruptLogError, WrongExpectedVersionError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.group_commit import PendingCommit
from backstory.ledger.log.pipeline import CommitPipeline, StreamQueue
from backstory.ledger.log.reader import Reader, State
from backstory.ledger.threads.transcript import Thread

_MOST_OVERTAKEN = 4
"""How often another writer may be first before this one keeps all others off. A long thread is slow to read again."""


class StreamWriter:
    """Appends to a scope's two streams. Safe for threads, and beside other processes."""

    def __init__(self, store: EventStore, scope: Scope, pipeline: CommitPipeline, reader: Reader, clock: Clock) -> None:
        self.store = store
        self.scope = scope
        self.clock = clock
        self.reader = reader
        """For reads, which must not wait for a writer."""
        self._pipeline = pipeline
        self._state = pipeline.state
        self._ledger_queue, self._transcript_queue = pipeline.ledger, pipeline.transcript

    @property
    def _mutex(self) -> threading.RLock:
        """The mutex of the pipeline, which is replaced in a forked child."""
        return self._pipeline.mutex

    @property
    def ledger(self) -> str:
        """The name of the ledger's stream."""
        return self._state.ledger

    @property
    def transcript_stream(self) -> str:
        """The name of the transcript's stream."""
        return self._state.transcript_stream

    # The loop.

    def _write(self, queue: StreamQueue, decide_and_queue: Callable[[], list[PendingCommit]]) -> list[Commit]:
        """Decide and append, again and again until no other writer came between.

        Args:
            queue: the stream to append to.
            decide_and_queue: folds what is new, decides, and queues commits; called with the mutex held.

        Returns:
            The commits that are durable, those of earlier tries included.

        Raises:
            LockTimeoutError: others were first again and again, and the streams cannot be had alone either.
        """
        durable: list[Commit] = []
        for overtaken in count():
            with self._alone() if overtaken >= _MOST_OVERTAKEN else nullcontext():
                with self._mutex:
                    pending = decide_and_queue()
                    # A delivery without news may repeat turns of another thread that are not durable yet.
                    awaited = (
                        [] if pending or queue is self._ledger_queue else [each.pending for each in queue.decided][-1:]
                    )
                try:
                    for commit in pending:
                        queue.group.settle(commit)
                        durable.append(commit.commit)
                    for commit in awaited:
                        queue.group.settle(commit)
                except WrongExpectedVersionError:
                    continue
                except CorruptLogError:
                    # A new log, as long as the removed one, may stand in its place.
                    if not self._is_removed():
                        raise
                    continue
            break
        return durable

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep every other writer off, in this process and elsewhere.

        Raises:
            LockTimeoutError: another process keeps a stream for too long.
        """
        with self._mutex:
            # First: a thread that appends needs the locks, and this one would wait for it.
            self._pipeline.settle(self._transcript_queue, self._ledger_queue)
            with self.store.locked(self.transcript_stream), self.store.locked(self.ledger):
                yield

    def _is_removed(self) -> bool:
        with self._mutex:
            return self._state.is_removed()

    # State.

    @contextmanager
    def state(self, *, durable: bool = True) -> Iterator[State]:
        """Lend out the state, brought up to date; nothing changes it meanwhile.

        For a caller that is about to write: it waits for other writers.

        Args:
            durable: whether to wait until all of it is durable.

        Raises:
            CorruptLogError: a log is damaged, or shorter than it was.
        """
        with self._mutex:
            if durable:
                self._pipeline.settle(self._transcript_queue, self._ledger_queue)
            else:
                self._pipeline.catch_up(self._transcript_queue, self._ledger_queue)
            state = self._state
            yield State(state.memory, state.coverage, state.transcript, state.head, state.log)

    def renew(self) -> None:
        """Begin anew in a forked child: what is queued is the parent's to write."""
        self._pipeline.renew()
        self.reader.renew()

    def start_over(self) -> None:
        """Read both logs anew, after a repair that may have taken commits away."""
        with self._mutex:
            self._pipeline.start_over()
        self.reader.start_over()

    @property
    def head(self) -> Head:
        """The head of the ledger when it was last folded."""
        return self._state.head

    def _thread(self, name: str) -> Thread:
        return self._state.transcript.threads.get(name) or Thread(name)
