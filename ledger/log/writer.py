"""Writer of a scope: completes and decides commands, erases, and notifies listeners of what is durable.

Each change goes through the loop of `TranscriptWriter`, which also appends the turns of conversations. What a writer
returns is durable. Reads go to `Writer.reader`, which waits for no writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Expire,
    Extract,
    FailUpdate,
    RemoveFact,
    Revert,
    RollBack,
    Summarize,
)
from backstory.ledger.core.commit import Cause, Commit, Draft, Head
from backstory.ledger.core.errors import CapError, NotFoundError, WrongExpectedVersionError
from backstory.ledger.core.events import Access, Event, Redacted
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.policy import EARLIER, FIRST, Policy, PolicyValue, check_policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import is_done_with
from backstory.ledger.engines.port import EventStore
from backstory.ledger.erasure.requests import Erasure, ErasurePlan
from backstory.ledger.log.eraser import Eraser, Purge
from backstory.ledger.log.folded.snapshot import SharedSnapshots, Snapshots
from backstory.ledger.log.marked import Marked
from backstory.ledger.log.pipeline import CommitPipeline, PendingCommit, Salts, random_salt
from backstory.ledger.log.reader import Reader, ServedMemory
from backstory.ledger.log.transcript_writer import TranscriptWriter
from backstory.ledger.rules.decide import decide, may_rank
from backstory.ledger.rules.merge import too_late

_log = logging.getLogger(__name__)

Listener = Callable[[Scope, Commit, Memory, Memory], None]
"""Called after each ledger commit of this process, in order, once it is durable, with the memory before and after it.

An error that it raises is logged and not passed on, because the commit is durable.
"""

RecentUse = Callable[[], Mapping[str, Access]]
"""Returns the recent use of facts, by their ids."""

_C = TypeVar("_C", bound=Command)


class Writer(TranscriptWriter):
    """The only writer of a scope's two streams in this process. Safe for threads, and beside other processes.

    Args:
        store: the engine.
        scope: whose memory.
        clock: the time of commits. Default: the machine's.
        salts: returns the salt of each event.
        policy: the policy values that configuration states; a commit puts them in force when they change.
        listeners: called after each ledger commit.
        snapshots: spares a replay from the first commit.
        purge: deletes read models before content is erased.
        uses: the recent use of facts, for eviction by `hybrid`.
        users: the user's writer, if this is an agent's and its updates write the user's sections.
        shared: spares the first read of the ledger.
        lapsing: called with the writer and the moment at which the next fact lapses, or at which one has, whenever that
            changes.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        *,
        clock: Clock | None = None,
        salts: Salts = random_salt,
        policy: Mapping[str, PolicyValue] | None = None,
        listeners: Sequence[Listener] = (),
        snapshots: Snapshots | None = None,
        purge: Purge | None = None,
        uses: RecentUse | None = None,
        users: Writer | None = None,
        shared: SharedSnapshots | None = None,
        lapsing: Callable[[Writer, str], None] | None = None,
    ) -> None:
        pipeline = CommitPipeline(store, scope, snapshots, salts, self._complete_erasures)
        reader = Reader(store, scope, snapshots, self._complete_if_free, shared)
        super().__init__(store, scope, pipeline, reader, clock or SystemClock())
        self.users = users
        self.behind: set[Writer] = set()
        """The agents whose sections this user's ledger could not receive yet; see `learning.sharing`."""
        self.retained_at: datetime | None = None
        """When the transcript was last searched for turns to expire; see `learning.thread_learner`."""
        self._configured = dict(policy or {})
        self._as_configured: Policy | None = None
        """A policy that is known to contain the configured values."""
        self._listeners = tuple(listeners)
        self._uses = uses
        self._lapsing = lapsing
        self._last_served: tuple[Memory, ServedMemory] = (Memory(), ServedMemory(Memory(), None, 0))
        """Replaced in one step by the newest result, so that threads need no lock."""
        self._eraser = Eraser(store, pipeline, reader, clock=self.clock, purge=purge, queue_due=self._queue_due)

    def memory(self, *, durable: bool = True) -> Memory:
        """Return the memory as it is served; with `durable=False` as the commits say, also those not yet on disk."""
        if durable:
            return self.served()[0].memory
        with self._mutex:
            self._pipeline.catch_up(self._ledger_queue)
            return self._state.memory

    def served(self) -> tuple[ServedMemory, Head]:
        """Return the durable memory without what has lapsed, with the ledger's head."""
        memory, head = self.reader.standing()
        return self._served(memory), head

    def _served(self, memory: Memory) -> ServedMemory:
        """Return a memory as it is served now; the same object as long as nothing changes."""
        known, served = self._last_served
        lapse = served.until
        if known is not memory:
            lapse = memory.next_lapse()
            served = ServedMemory(memory, lapse, 0)
        if lapse is not None and lapse <= (now := spell_moment(self.clock.now())):
            standing = memory.standing_at(now)
            served = ServedMemory(standing, standing.next_lapse(), len(memory.facts) - len(standing.facts))
        if served is not self._last_served[1]:
            self._last_served = (memory, served)
            if lapse is not None and self._lapsing is not None:
                self._lapsing(self, lapse)
        return served

    # The ledger.

    def commit(
        self,
        command: Command,
        cause: Cause,
        *,
        at: datetime | None = None,
        log: str | None = None,
        expected: str | None = None,
    ) -> Commit:
        """Decide a command on the newest memory and append the events as one commit.

        Args:
            command: what is asked.
            cause: why, as the commit records it.
            at: the time of the commit, for a backfill. It is never before the time of the previous commit.
            log: `State.log` as it was when a model was asked. An answer about logs that were removed since is refused.
            expected: the hash of the ledger's head that the caller has seen; None to decide on any head.

        Raises:
            WrongExpectedVersionError: The ledger has another head than `expected`; nothing is written.
            NotFoundError, ConflictError, CapError, ConfigError: As `decide`; nothing is written.
            StoreError, LockTimeoutError, CorruptLogError: As the store.
        """
        moment = spell_moment(at or self.clock.now())

        def queue() -> list[PendingCommit]:
            return [self._queue_command(command, cause, moment, log, expected)]

        commit = self._write(self._ledger_queue, queue)[-1]
        self._announce()
        return commit

    def dated(self, command: _C) -> _C:
        """Return a command with the time and the use of facts that it would be decided with now, for a preview."""
        return self._marking(self._dated(command, self.memory(), spell_moment(self.clock.now())))

    def _dated(self, command: _C, memory: Memory, moment: str) -> _C:
        """Return a command with its time, no earlier than that of the last commit, and the use of facts."""
        at = max(moment, memory.at)
        return msgspec.structs.replace(command, at=at, heat=self._uses_for(memory, command))

    def put_policy_in_force(self, expected: str | None = None) -> str | None:
        """Commit what has lapsed, and the configured policy if it is not in force, so that a preview can rely on it.

        Args:
            expected: as for `commit`.

        Returns:
            What to expect from then on: the hash of the commit that this made, otherwise `expected`.

        Raises:
            WrongExpectedVersionError: The ledger has another head than `expected`; nothing is written.
        """

        def queue_due() -> list[PendingCommit]:
            self._pipeline.catch_up(self._ledger_queue)
            self.must_stand(expected)
            return self._queue_due()

        made = self._write(self._ledger_queue, queue_due)
        self._announce()
        return made[-1].hash if made and expected is not None else expected

    def expire_lapsed(self) -> Commit | None:
        """Take out of memory what has lapsed by now, in a commit of its own; None where nothing has.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: As the store.
        """

        def queue_expiry() -> list[PendingCommit]:
            self._pipeline.catch_up(self._ledger_queue)
            return self._queue_expiry(spell_moment(self.clock.now()))

        made = self._write(self._ledger_queue, queue_expiry)
        self._announce()
        return made[-1] if made else None

    def first_policy(self) -> Policy:
        """Return the policy that the first commit puts in force.

        Raises:
            ConfigError: A configured value is outside its range.
        """
        return check_policy(msgspec.structs.replace(FIRST, **self._configured))

    def must_stand(self, expected: str | None) -> None:
        """Refuse to go on if the ledger, as it was folded last, has another head than the caller has seen.

        Raises:
            WrongExpectedVersionError: It has another head.
        """
        head = self._state.head
        if expected is not None and expected != head.hash:
            raise WrongExpectedVersionError(
                f"the memory of {self.scope} has changed: its head is now commit {head.seq}, {head.hash[:16]}, and not "
                f"{expected[:16]}; read it again, then repeat the change if it still applies",
                actual=head.seq,
            )

    def _queue_command(
        self, command: Command, cause: Cause, moment: str, log: str | None, expected: str | None
    ) -> PendingCommit:
        if (
            isinstance(command, Clear | Extract | Summarize)
            or _leaves_marks(command)
            or cause.turns is not None
            or log is not None
        ):
            # The commit names the head of the transcript, so that has to be durable before it. What was decided before
            # it in the ledger need not be: they are written together.
            self._pipeline.settle(self._transcript_queue, beside=(self._ledger_queue,))
        else:
            self._pipeline.catch_up(self._ledger_queue)
        if log is not None and log != self._state.log:
            raise NotFoundError(f"{self.scope}: memory was removed while a model was asked; its answer is dropped")
        self.must_stand(expected)
        due = self._queue_due(moment)
        try:
            # Taken before the callback for the use of facts, in which the process may fork.
            head = self._state.head
            return self._append(head, *self._decided(command, cause, moment))
        except BaseException:
            # Without a waiting thread the line would never be written, and would hide what others append.
            if due:
                self._ledger_queue.is_settled(due[-1])
            raise

    def _decided(self, command: Command, cause: Cause, moment: str) -> tuple[Cause, str, tuple[Event, ...]]:
        """Complete a command and its cause with what only the state knows, and decide."""
        memory = self._state.memory
        command = self._dated(command, memory, moment)
        cause = msgspec.structs.replace(cause, heat=command.heat)
        covered, answered = self._is_covered(cause), cause.turns
        if isinstance(command, FailUpdate) and covered:
            # Another process has learned from these turns; none is covered twice.
            cause = msgspec.structs.replace(cause, turns=None)
        if isinstance(command, Extract):
            command = msgspec.structs.replace(command, covered=covered, users_erased=self._users_erased(command))
            late = too_late(memory, command)
            # After an erasure the turns are covered all the same: no model is asked about them again.
            if covered or (late is not None and late.by != "redaction"):
                cause = msgspec.structs.replace(cause, turns=None)
        thread = self._thread(cause.thread) if isinstance(command, Extract) and cause.thread is not None else None
        if isinstance(command, Extract | AddFact | EditFact):
            command = Marked(memory, self._secret, thread, answered).completed(command)
        if isinstance(command, Summarize):
            command = self._completed_summary(command)
            if not is_done_with(memory, command):
                cause = msgspec.structs.replace(cause, summarized=None, level=0)
        command = self._marking(command)
        if isinstance(command, Clear) or _leaves_marks(command):
            cause = msgspec.structs.replace(cause, transcript=self._state.transcript.head)
        return cause, command.at, decide(memory, command)

    def _marking(self, command: _C) -> _C:
        """Return a command that leaves marks with the transcript's last commit, after which words count again."""
        if not _leaves_marks(command):
            return command
        return msgspec.structs.replace(command, transcript=self._state.transcript.head.seq)

    def _secret(self) -> bytes | None:
        return self.store.key(self.transcript_stream, create=False)

    def _users_erased(self, command: Extract) -> int | None:
        """Return the commit of an erasure in the user's memory that came after the sections a model was shown."""
        if self.users is None or command.users is None:
            return None
        erased = self.users.memory().barriers.get("redaction", 0)
        return erased if erased > command.users else None

    def _is_covered(self, cause: Cause) -> bool:
        """Whether a turn that a commit would cover is covered, or was restored or taken back since it was read."""
        if cause.thread is None or cause.turns is None:
            return False
        thread = self._thread(cause.thread)
        seen = cause.transcript
        return self._state.coverage.covers(thread, cause.turns) or (
            seen is not None
            and (thread.restored_after(seen.seq, cause.turns) or thread.withdrawn_after(seen.seq, cause.turns))
        )

    def _completed_summary(self, command: Summarize) -> Summarize:
        thread = self._thread(command.thread)
        lost = (n > len(thread.turns) or thread.turns[n - 1] is None for n in command.shown)
        covered = command.turns.first <= self._state.coverage.summarized(thread, command.level)
        return msgspec.structs.replace(command, covered=covered, lost=any(lost))

    def _uses_for(self, memory: Memory, command: Command) -> dict[str, Access]:
        """Return the recent use of facts if the decision may rank them: a commit records what it was decided on."""
        policy = command.policy if isinstance(command, ChangePolicy) else memory.policy
        if self._uses is None or policy.fact_eviction_policy != "hybrid" or not may_rank(memory, command):
            return {}
        return {fact_id: access for fact_id, access in self._uses().items() if fact_id in memory.facts}

    def _append(self, head: Head, cause: Cause, at: str, events: tuple[Event, ...]) -> PendingCommit:
        return self._pipeline.add(self._ledger_queue, head, Draft(at, cause, events))

    def _queue_due(self, moment: str | None = None) -> list[PendingCommit]:
        """Queue what comes before any other commit: the removal of what has lapsed, and the configured policy."""
        moment = moment or spell_moment(self.clock.now())
        due = self._queue_expiry(moment)
        policy = self._queue_policy(moment)
        return due if policy is None else [*due, policy]

    def _queue_expiry(self, moment: str) -> list[PendingCommit]:
        memory = self._state.memory
        known, served = self._last_served
        # To look through all facts once with each commit is enough.
        lapse = served.until if known is memory and not served.hidden else memory.next_lapse()
        if lapse is None or lapse > (at := max(moment, memory.at)):
            return []
        events = decide(memory, Expire(at=at))
        return [self._queue_and_fold(self._state.head, Cause(kind="expiry"), at, events)]

    def _queue_policy(self, moment: str) -> PendingCommit | None:
        """Queue the genesis, or the change of policy that configuration asks for; None if there is neither."""
        memory, head = self._state.memory, self._state.head
        if memory.seq == 0:
            command = ChangePolicy(at=moment, policy=self.first_policy(), source="config")
            cause = Cause(kind="genesis", user=self.scope.user, agent=self.scope.agent)
            return self._queue_and_fold(head, cause, moment, decide(memory, command))
        if memory.configured is self._as_configured:
            return None
        configured = self._configured_for(memory)
        wanted = check_policy(msgspec.structs.replace(memory.configured, **configured))
        if wanted == memory.configured:
            self._as_configured = memory.configured
            return None
        policy = msgspec.structs.replace(memory.policy, **configured)
        try:
            command = self._dated(ChangePolicy(at=moment, policy=policy, source="config"), memory, moment)
            events = decide(memory, command)
        except CapError as error:
            _log.warning("the configured policy cannot be put in force for %s: %s", self.scope, error)
            return None
        cause = Cause(kind="policy", actor="configuration", heat=command.heat)
        return self._queue_and_fold(head, cause, command.at, events)

    def _configured_for(self, memory: Memory) -> dict[str, PolicyValue]:
        """Return the configured values, and today's default of each key of which the ledger has the earlier one."""
        today = {
            key: getattr(FIRST, key)
            for key, earlier in EARLIER.items()
            if getattr(memory.configured, key) == getattr(memory.policy, key) == earlier
        }
        return {**today, **self._configured}

    def _queue_and_fold(self, head: Head, cause: Cause, at: str, events: tuple[Event, ...]) -> PendingCommit:
        pending = self._append(head, cause, at, events)
        self._pipeline.fold_decided(self._ledger_queue)
        return pending

    def _announce(self) -> None:
        """Notify the listeners of durable commits, in order and outside of every lock; one thread does it for all."""
        with self._mutex:
            self._pipeline.drop_settled(self._ledger_queue)
            newest, self._pipeline.newest = self._pipeline.newest, None
            if newest is not None:
                self.reader.publish(newest)
        if newest is not None:
            self._served(newest.memory)
        if not self._listeners:
            self._pipeline.unannounced.clear()
            return
        # A local name, because a fork in a listener replaces the lock of the pipeline.
        announcing = self._pipeline.announcing
        while self._pipeline.unannounced and announcing.acquire(blocking=False):
            try:
                while self._pipeline.unannounced:
                    self._notify(*self._pipeline.unannounced.popleft())
            finally:
                announcing.release()

    def _notify(self, commit: Commit, before: Memory, after: Memory) -> None:
        for listener in self._listeners:
            try:
                listener(self.scope, commit, before, after)
            except Exception:  # noqa: BLE001 the commit is durable, whatever becomes of a read model
                _log.exception("commit %d of %s is safe, but a listener failed", commit.seq, self.scope)

    # Erasure.

    def plan_erasure(self, request: Erasure) -> ErasurePlan:
        """Return what an erasure would remove; see `erasure.plan`.

        Raises:
            NotFoundError: Nothing matches the request.
        """
        with self._mutex:
            return self._eraser.plan(request)

    def forget(
        self, request: Erasure, *, actor: str | None = None, expected: str | None = None
    ) -> tuple[Commit, ErasurePlan]:
        """Erase content for good: first commit a redaction that names each piece, then erase the pieces.

        After a crash between the two, the next process that opens the scope completes it.

        Args:
            request: what to erase.
            actor: who asks for it.
            expected: as for `commit`.

        Raises:
            NotFoundError: Nothing matches the request.
            WrongExpectedVersionError: The ledger has another head than `expected`; nothing is erased.
            StoreError, LockTimeoutError, CorruptLogError: As the store.
        """
        with self._mutex:
            done = self._eraser.forget(request, actor, lambda: self.must_stand(expected))
        self._announce()
        return done

    def expire(self, before: datetime) -> Commit | None:
        """Erase the turns recorded before a time, unless something is still to be learned from them.

        Returns:
            The redaction; None if there are no such turns.
        """
        with self._mutex:
            done = self._eraser.expire(before)
        self._announce()
        return done

    def _complete_erasures(self) -> None:
        self._eraser.complete_met()

    def _complete_if_free(self, redacted: Sequence[Redacted], again: bool) -> bool:
        return self._eraser.complete(redacted, wait=False, again=again)


def _leaves_marks(command: Command) -> bool:
    """Whether a person takes something away by a command, which a model must not add again by itself."""
    if isinstance(command, EditFact | RemoveFact):
        return not command.by_model
    return isinstance(command, Revert | RollBack)
