"""Commit pipeline of one scope in one process: the folded state, and the commits on their way to disk.

One thread at a time holds `mutex` and decides on the state as it will be when all earlier commits are durable. If a
write fails, what was decided on it is discarded and the state is read again. The same happens in a forked child,
because the parent writes the commits that are not yet on disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.commit import Commit, Draft, Head, sealed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.group_commit import GroupCommit, PendingCommit
from backstory.ledger.log.snapshot import Snapshots
from backstory.ledger.log.state import ScopeState
from backstory.ledger.log.store import EventStore

__all__ = ["CommitPipeline", "StreamQueue"]


class _Decided:
    """A commit of this process that is not known to be durable; `before` and `after` once it was folded."""

    __slots__ = ("after", "before", "folded", "ticket")

    def __init__(self, ticket: PendingCommit) -> None:
        self.ticket = ticket
        self.folded = False
        self.before = self.after = Memory()


class StreamQueue:
    """One stream as this process writes it: what it has decided there, oldest first."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self.stream = stream
        self.group = GroupCommit(store, stream)
        self.failures = 0
        self.decided: deque[_Decided] = deque()

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self.group.renew()
        for mine in self.decided:
            self.group.disown(mine.ticket)
        self.decided = deque()


class CommitPipeline:
    """A scope's two lanes and the view behind them; `mutex` is for whoever uses it to hold.

    `news` are the ledger's commits that are durable and that nobody was told of yet, each with the memory before and
    after it; who tells of them holds `announcing`. `met_erasure` is called when the replay of a ledger came across
    redactions.
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
        self.view = ScopeState(store, scope, snapshots)
        self.learned = StreamQueue(store, self.view.ledger)
        self.said = StreamQueue(store, self.view.transcript_stream)
        self.news: deque[tuple[Commit, Memory, Memory]] = deque()
        self.newest: tuple[Memory, Head] | None = None
        """The memory after the newest of them, for whoever takes it first."""
        self._salts = salts
        self._met_erasure = met_erasure
        self._beginning = self.view.beginnings
        """How often the view had started over when what is decided was folded into it."""
        register(self)

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held."""
        self.mutex = threading.RLock()
        self.announcing = threading.Lock()
        self.news = deque()
        self.newest = None
        self.learned.renew()
        self.said.renew()
        self.view.start_over()

    def settle(self, *queues: StreamQueue) -> None:
        """Bring the view up to date, with nothing in it that is not durable."""
        self.catch_up(*queues)
        while any(queue.decided for queue in queues):
            for queue in queues:
                if queue.decided:
                    queue.group.is_settled(queue.decided[-1].ticket)
            self.catch_up(*queues)

    def catch_up(self, *queues: StreamQueue) -> None:
        """Fold what this process has decided; where nothing of that is under way, also what others have appended."""
        while True:
            if self._beginning != self.view.beginnings and (self.learned.decided or self.said.decided):
                # What was folded before the view started over is gone from it, and on disk only by and by.
                self._start_over()
            # Of either lane, and before anything is read: what the view reads must not be folded after it.
            for queue in (self.learned, self.said):
                self.let_go(queue)
                self.fold_decided(queue)
            self._beginning = self.view.beginnings
            for queue in queues:
                if not queue.decided:
                    self._refresh(queue)
            if self._beginning == self.view.beginnings:
                return

    def _refresh(self, queue: StreamQueue) -> None:
        if queue is self.said:
            self.view.refresh_transcript()
            return
        self.view.refresh_ledger()
        if self.view.redacted:
            self._met_erasure()

    def let_go(self, queue: StreamQueue) -> None:
        """Drop what is settled; where something that was folded has failed, start over."""
        queue.failures = queue.group.count_failures()
        while queue.decided and queue.decided[0].ticket.settled and queue.decided[0].ticket.error is None:
            mine = queue.decided.popleft()
            if not mine.folded:
                self._fold(queue, mine)
            if queue is self.learned:
                self.news.append((mine.ticket.commit, mine.before, mine.after))
                self.newest = mine.after, mine.ticket.commit.head
        failed = [mine for mine in queue.decided if mine.ticket.error is not None]
        if failed:
            queue.decided = deque(mine for mine in queue.decided if mine.ticket.error is None)
            if any(mine.folded for mine in failed):
                self._start_over()

    def _start_over(self) -> None:
        """Read both streams anew, once nothing is under way in either."""
        for queue in (self.learned, self.said):
            if queue.decided:
                queue.group.is_settled(queue.decided[-1].ticket)
                self.let_go(queue)
        self.view.start_over()

    def fold_decided(self, queue: StreamQueue) -> None:
        """Fold what this process has decided on a lane, whether or not it is durable."""
        for mine in queue.decided:
            if not mine.folded:
                self._fold(queue, mine)

    def _fold(self, queue: StreamQueue, mine: _Decided) -> None:
        if queue is self.said:
            self.view.take_said(mine.ticket.commit)
        else:
            mine.before = self.view.memory
            self.view.take(mine.ticket.commit)
            mine.after = self.view.memory
        mine.folded = True

    def add(self, queue: StreamQueue, after: Head, draft: Draft) -> PendingCommit:
        """Seal a draft that was decided on a head and queue it; it is folded when the lane is looked at next.

        If the process was forked since it was decided, the child's view stands elsewhere, and the ticket says so.

        Raises:
            StoreError: a value in it cannot be written.
        """
        line, commit = sealed(draft, after, self._salts)
        # Where a write has failed that is not known of here yet, the ticket says so at once.
        if after == (self.view.head if queue is self.learned else self.view.transcript.head):
            ticket = queue.group.add(line, commit, queue.failures)
        else:
            ticket = queue.group.refuse(line, commit)
        queue.decided.append(_Decided(ticket))
        return ticket
