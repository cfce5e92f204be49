"""Commit pipeline of one scope in one process: the folded state, and the commits on their way to disk.

One thread at a time holds `mutex` and decides on the state as it will be when all earlier commits are durable. If a
write fails, what was decided on it is discarded and the state is read again. The same happens in a forked child,
because the parent writes the commits that are not yet on disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from backstory.ledger.core.commit import Commit, Draft, Head, sealed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.folded.snapshot import Snapshots
from backstory.ledger.log.folded.state import FoldedState
from backstory.ledger.log.group_commit import GroupCommit, PendingCommit


class _Decided:
    """A commit of this process that may not be durable yet; `before` and `after` are its memories once it is folded.

    `first` is the hash of its log's first commit.
    """

    __slots__ = ("after", "before", "first", "folded", "pending")

    def __init__(self, pending: PendingCommit) -> None:
        self.pending = pending
        self.folded = False
        self.before = self.after = Memory()
        self.first = ""


class StreamQueue:
    """The commits of one stream that this process has decided and that may not be durable yet, oldest first."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self.stream = stream
        self.group = GroupCommit(store, stream)
        self.failures = 0
        self.decided: deque[_Decided] = deque()

    def renew(self) -> None:
        """Drop everything in a forked child: the parent writes these commits."""
        self.group.renew()
        for each in self.decided:
            self.group.disown(each.pending)
        self.decided = deque()


class CommitPipeline:
    """The state of a scope and its two queues. Callers hold `mutex`.

    `unannounced` are the durable commits of the ledger that listeners have not been notified of, each with the memory
    before and after it; the thread that notifies holds `announcing`. `met_erasure` is called when a replay of the
    ledger has met redactions.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None,
        salts: Callable[[], str],
        met_erasure: Callable[[], None],
    ) -> None:
        self.mutex = threading.RLock()
        self.announcing = threading.Lock()
        self.state = FoldedState(store, scope, snapshots)
        self.ledger = StreamQueue(store, self.state.ledger)
        self.transcript = StreamQueue(store, self.state.transcript_stream)
        self.unannounced: deque[tuple[Commit, Memory, Memory]] = deque()
        self.newest: tuple[Memory, Head, str] | None = None
        """The memory after the newest of them, its head and the hash of its log's first commit, for the reader."""
        self._salts = salts
        self._met_erasure = met_erasure
        self._beginning = self.state.beginnings
        """How often the state had started over when the decided commits were folded into it."""

    def renew(self) -> None:
        """Start again in a forked child, in which the threads that held the locks do not exist."""
        self.mutex = threading.RLock()
        self.announcing = threading.Lock()
        self.unannounced = deque()
        self.newest = None
        self.ledger.renew()
        self.transcript.renew()
        self.state.start_over()

    def settle(self, *queues: StreamQueue) -> None:
        """Bring the state up to date, and wait until all of it is durable."""
        self.catch_up(*queues)
        while any(queue.decided for queue in queues):
            for queue in queues:
                if queue.decided:
                    queue.group.is_settled(queue.decided[-1].pending)
            self.catch_up(*queues)

    def catch_up(self, *queues: StreamQueue) -> None:
        """Fold what this process has decided, and, in a queue without such commits, what others have appended."""
        while True:
            if self._beginning != self.state.beginnings and (self.ledger.decided or self.transcript.decided):
                # The state lost what was folded before it started over, and that may not be on disk yet.
                self.start_over()
            # Both queues, before anything is read: commits that are read must not be folded a second time.
            for queue in (self.ledger, self.transcript):
                self.drop_settled(queue)
                self.fold_decided(queue)
            self._beginning = self.state.beginnings
            for queue in queues:
                if not queue.decided:
                    self._refresh(queue)
            if self._beginning == self.state.beginnings:
                return

    def _refresh(self, queue: StreamQueue) -> None:
        if queue is self.transcript:
            self.state.refresh_transcript()
            return
        self.state.refresh_ledger()
        if self.state.redacted:
            self._met_erasure()

    def drop_settled(self, queue: StreamQueue) -> None:
        """Drop settled commits; if one that was folded has failed, start over."""
        queue.failures = queue.group.count_failures()
        while queue.decided and queue.decided[0].pending.settled and queue.decided[0].pending.error is None:
            each = queue.decided.popleft()
            if not each.folded:
                self._fold(queue, each)
            if queue is self.ledger:
                self.unannounced.append((each.pending.commit, each.before, each.after))
                self.newest = each.after, each.pending.commit.head, each.first
        failed = [each for each in queue.decided if each.pending.error is not None]
        if failed:
            queue.decided = deque(each for each in queue.decided if each.pending.error is None)
            if any(each.folded for each in failed):
                self.start_over()

    def start_over(self) -> None:
        """Read both streams anew, once every queued commit is settled."""
        for queue in (self.ledger, self.transcript):
            if queue.decided:
                queue.group.is_settled(queue.decided[-1].pending)
                self.drop_settled(queue)
        self.state.start_over()

    def fold_decided(self, queue: StreamQueue) -> None:
        """Fold what this process has decided, durable or not."""
        for each in queue.decided:
            if not each.folded:
                self._fold(queue, each)

    def _fold(self, queue: StreamQueue, each: _Decided) -> None:
        if queue is self.transcript:
            self.state.take_said(each.pending.commit)
        else:
            each.before = self.state.memory
            self.state.take(each.pending.commit)
            each.after = self.state.memory
            # Now: after a removal the state begins anew, with another log, before this is known to be durable.
            each.first = self.state.firsts[queue.stream]
        each.folded = True

    def add(self, queue: StreamQueue, after: Head, draft: Draft) -> PendingCommit:
        """Seal a draft that was decided on a head, and queue it; `fold_decided` folds it later.

        If the process was forked since the decision, the commit is refused: the child's state has another head.

        Raises:
            StoreError: a value in it cannot be written.
        """
        line, commit = sealed(draft, after, self._salts)
        # Where a write has failed that is not known of here yet, the pending says so at once.
        if after == (self.state.head if queue is self.ledger else self.state.transcript.head):
            pending = queue.group.add(line, commit, queue.failures)
        else:
            pending = queue.group.refuse(line, commit)
        queue.decided.append(_Decided(pending))
        return pending
