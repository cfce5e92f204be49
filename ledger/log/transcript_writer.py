"""Writer of a scope's transcript: records deliveries, withdraws turns, and restores them.

Its loop is that of every writer: fold what is new, decide, append; if another writer was first, again. Every change of
a scope's two streams goes through `TranscriptWriter._write`. Threads decide one after the other and wait for the disk
together (`pipeline.GroupCommit`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import Cause, Commit, Draft, Head
from backstory.ledger.core.errors import CorruptLogError, WrongExpectedVersionError
from backstory.ledger.core.events import Event, TurnRange, TurnRestored, TurnSuperseded
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.erasure.digest import sealing
from backstory.ledger.log.pipeline import CommitPipeline, GroupCommit, PendingCommit
from backstory.ledger.log.reader import Reader, State
from backstory.ledger.threads.delivery.told import Told
from backstory.ledger.threads.delivery.turn_dedup import Mode, align
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept


_MOST_OVERTAKEN = 4
"""How often another writer may be first before this one keeps all others off. A long thread is slow to read again."""


TURNS_PER_COMMIT = 200
"""How many turns of a delivery one commit holds at most, unless only a single commit lets it be recognised."""


class RecordedDelivery(msgspec.Struct, frozen=True):
    """Result of a delivery: how many turns are new, were known already, and no longer stand because of it."""

    turns: int
    skipped: int
    superseded: int = 0


class TranscriptWriter:
    """The part of a scope's writer that appends to the transcript, with the loop for both of its streams."""

    def __init__(self, store: EventStore, scope: Scope, pipeline: CommitPipeline, reader: Reader, clock: Clock) -> None:
        self.store = store
        self.scope = scope
        self.clock = clock
        self.reader = reader
        """For reads, which must not wait for a writer."""
        self.ledger, self.transcript_stream = pipeline.ledger.stream, pipeline.transcript.stream
        """The names of the two streams."""
        self._pipeline = pipeline
        self._state = pipeline.state
        self._ledger_queue, self._transcript_queue = pipeline.ledger, pipeline.transcript

    @property
    def _mutex(self) -> threading.RLock:
        """The mutex of the pipeline, which is replaced in a forked child."""
        return self._pipeline.mutex

    # The loop.

    def _write(self, queue: GroupCommit, decide_and_queue: Callable[[], list[PendingCommit]]) -> list[Commit]:
        """Decide and append, again and again until no other writer came between.

        Args:
            queue: the stream to append to.
            decide_and_queue: folds what is new, decides, and queues commits; called with the mutex held.

        Returns:
            The commits that are durable, those of earlier tries included.

        Raises:
            LockTimeoutError: Others were first again and again, and the streams cannot be had alone either.
        """
        durable: list[Commit] = []
        for overtaken in count():
            with self._pipeline.alone() if overtaken >= _MOST_OVERTAKEN else nullcontext():
                with self._mutex:
                    pending = decide_and_queue()
                    # A delivery without news may repeat turns of another thread that are not durable yet.
                    awaited = [] if pending or queue is self._ledger_queue else list(queue.decided)[-1:]
                try:
                    for commit in pending:
                        queue.settle(commit)
                        durable.append(commit.commit)
                    for commit in awaited:
                        queue.settle(commit)
                except WrongExpectedVersionError:
                    continue
                except CorruptLogError:
                    # A new log, as long as the removed one, may stand in its place.
                    if not self._is_removed():
                        raise
                    continue
            break
        return durable

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
            CorruptLogError: A log is damaged, or shorter than it was.
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

    # Turns.

    def record(
        self,
        thread: str,
        messages: Sequence[Kept],
        *,
        mode: Mode | Told = "conversation",
        sent_before: bool = False,
        key: str | None = None,
        expected: Head | None = None,
    ) -> RecordedDelivery:
        """Append the new messages of a delivery to its thread. They are durable when this returns.

        Turns that the delivery supersedes can be restored.

        Args:
            thread: the conversation.
            messages: the delivery, read and filtered.
            mode: what the delivery holds; see `Mode` and `Told`.
            sent_before: whether it may have been recorded already.
            key: the digest of the key of the delivery, which its commits record.
            expected: the transcript's head that the caller has seen; None to record after any head.

        Raises:
            WrongExpectedVersionError: The transcript has another head than `expected`; nothing is written.
            StoreError, LockTimeoutError, CorruptLogError: As the store; the delivery can be sent again.
        """
        action = "told" if isinstance(mode, Told) else mode if mode in ("branch", "replace") else None
        cause = Cause(kind="record", thread=thread, action=action, key=key)

        def queue_turns() -> list[PendingCommit]:
            # The ledger too: an erasure by another process names turns that must stay out.
            self._pipeline.catch_up(self._ledger_queue, self._transcript_queue)
            now = self._state.transcript.head
            if expected not in (None, now):
                raise WrongExpectedVersionError(f"{self.transcript_stream} has grown to {now.seq}", actual=now.seq)
            at = self._now()
            known = self._thread(thread)
            # Turns that were cut off the transcript may be covered; their ordinals are not used again.
            highest = self._state.coverage.highest(thread)
            # A new thread that a proxy has named takes a history in, which may hold what was erased in another one.
            adopts = isinstance(mode, Told) and mode.adopts and not len(known.turns)
            others = [one for one in self._state.transcript.threads.newest() if one.is_redacted] if adopts else []
            erased = known.is_redacted or others
            secret = self.store.key(self.transcript_stream, create=False) if erased else None
            seal = None if secret is None else sealing(secret)
            arrival = align(
                known,
                messages,
                at,
                mode=mode,
                highest=highest,
                seal=seal,
                elsewhere=frozenset().union(*(one.forgotten for one in others)),
                sent_before=sent_before,
                is_covered=lambda n: self._state.coverage.covers(known, TurnRange(n, n)),
            )
            # Part of a conversation is recognised when it is sent again; part of an append is not.
            whole = mode == "append" and any(message.id is None for message in arrival.fresh)
            at_most = len(arrival.fresh) if whole else TURNS_PER_COMMIT
            return [self._append_said(cause, turns, events, at) for turns, events in arrival.commits(at_most)]

        events = [event for commit in self._write(self._transcript_queue, queue_turns) for event in commit.events]
        superseded = sum(isinstance(event, TurnSuperseded) for event in events)
        turns = len(events) - superseded
        return RecordedDelivery(turns, len(messages) - turns, superseded)

    def _now(self) -> str:
        """Return the time of the next commit, no earlier than that of the last one."""
        return max(spell_moment(self.clock.now()), self._state.transcript.at)

    def _append_said(self, cause: Cause, turns: TurnRange | None, events: tuple[Event, ...], at: str) -> PendingCommit:
        self._pipeline.fold_decided(self._transcript_queue)
        head = self._state.transcript.head
        owner = self.scope if head.seq == 0 else Scope()
        cause = msgspec.structs.replace(cause, user=owner.user, agent=owner.agent, turns=turns)
        return self._pipeline.add(self._transcript_queue, head, Draft(at, cause, events))

    def withdraw(self, thread: str, ordinals: Collection[int], *, actor: str | None = None) -> tuple[int, ...]:
        """Withdraw turns in one commit: they no longer stand. Their content stays in the log until it is erased.

        Returns:
            The ordinals of the turns that stood. Without any, nothing is written.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: As the store; nothing has changed.
        """
        cause = Cause(kind="withdrawal", thread=thread, actor=actor)
        return self._change_turns(cause, ordinals, Thread.stands, lambda _, n: TurnSuperseded(n))

    def restore(self, thread: str, ordinals: Collection[int], *, actor: str | None = None) -> tuple[int, ...]:
        """Restore superseded turns in one commit: they stand again and are pending. Erased turns cannot be restored.

        Returns:
            The ordinals of the turns that were restored. Without any, nothing is written.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: As the store; nothing has changed.
        """

        def restored(known: Thread, n: int) -> TurnRestored:
            return TurnRestored(n, again=self._state.coverage.covers(known, TurnRange(n, n)))

        cause = Cause(kind="restore", thread=thread, actor=actor)
        return self._change_turns(cause, ordinals, Thread.may_be_restored, restored)

    def _change_turns(
        self,
        cause: Cause,
        ordinals: Collection[int],
        applies: Callable[[Thread, int], bool],
        event: Callable[[Thread, int], TurnSuperseded | TurnRestored],
    ) -> tuple[int, ...]:
        def queue_changes() -> list[PendingCommit]:
            self._pipeline.catch_up(self._ledger_queue, self._transcript_queue)
            known = self._thread(cause.thread or "")
            events = tuple(event(known, n) for n in sorted(set(ordinals)) if applies(known, n))
            return [self._append_said(cause, None, events, self._now())] if events else []

        commits = self._write(self._transcript_queue, queue_changes)
        return tuple(
            each.n for commit in commits for each in commit.events if isinstance(each, TurnSuperseded | TurnRestored)
        )
