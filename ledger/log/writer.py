"""Writer of a scope: reads new commits, folds them, decides, appends; if another writer was first, it starts again.

Threads decide one after the other and wait for the disk together (`group_commit`). Everything that a writer returns is
durable. A caller that only reads uses `reader`, which waits for no writer; see `backstory.ledger.log.reader`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Extract,
    FailUpdate,
    ImportDocument,
    RemoveFact,
    SaveDocument,
    Summarize,
)
from backstory.ledger.core.commit import Cause, Commit, Draft, Head
from backstory.ledger.core.errors import CapError, UnavailableError, WrongExpectedVersionError
from backstory.ledger.core.events import Access, Event, Redacted, Removal, TurnRange, TurnRestored, TurnSuperseded
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.policy import Policy, PolicyValue, check_policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import is_done_with
from backstory.ledger.erasure.digest import Seal, sealing
from backstory.ledger.erasure.plan import plan_erasure
from backstory.ledger.erasure.requests import (
    Erasure,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetThread,
    Plan,
)
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.eraser import unfinished
from backstory.ledger.log.group_commit import PendingCommit
from backstory.ledger.log.pipeline import CommitPipeline
from backstory.ledger.log.reader import Reader, State
from backstory.ledger.log.snapshot import Snapshots
from backstory.ledger.log.state import read_commits
from backstory.ledger.log.store import EventStore
from backstory.ledger.rules.decide import decide
from backstory.ledger.rules.merge import too_late
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_dedup import Mode, align

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

__all__ = ["Listener", "Purge", "Recorded", "Salts", "State", "Writer", "random_salt", "read_commits"]

_log = logging.getLogger(__name__)

_TURNS_PER_COMMIT = 200

Listener = Callable[[Scope, Commit, Memory, Memory], None]
"""Told of every ledger commit this process makes, in order, once it is durable, with the memory before and after it.

What it raises is logged and never passed on: the commit stands, whatever becomes of a read model.
"""

Purge = Callable[[Scope], None]
"""Deletes every read model of a scope that may hold content, while both of its streams are locked."""

UsageTracker = Callable[[], Mapping[str, Access]]
"""Tells which facts were used of late, by their ids."""

Salts = Callable[[], str]

_C = TypeVar("_C", bound=Command)


def random_salt() -> str:
    """Sixteen bytes that nobody can guess, as hex digits."""
    return os.urandom(16).hex()


class Recorded(msgspec.Struct, frozen=True):
    """What became of a delivery: `turns` are new, `skipped` were known already; `superseded` no longer stand."""

    turns: int
    skipped: int
    superseded: int = 0


class Writer:
    """The one door to a scope's two streams; safe for threads, and beside other processes.

    `policy` holds the values that configuration states explicitly; when they change, a commit puts them in force.
    `snapshots` spares it the replay from the first commit, `purge` is called when content is erased.
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
        heat: UsageTracker | None = None,
    ) -> None:
        self.store = store
        self.scope = scope
        self.clock = clock or SystemClock()
        self._configured = dict(policy or {})
        self._as_configured: Policy | None = None
        """A policy that is known to say what configuration asks for."""
        self._listeners = tuple(listeners)
        self._purge = purge
        self._usage = heat
        self._pipeline = pipeline = CommitPipeline(store, scope, snapshots, salts, self._complete_erasure)
        self._view, self._learned, self._said = pipeline.view, pipeline.learned, pipeline.said
        self.reader = Reader(store, scope, snapshots, self._complete_if_free)
        """For reads that must not wait for a writer."""

    @property
    def _mutex(self) -> threading.RLock:
        """The desk's, which is another one in a forked child."""
        return self._pipeline.mutex

    @property
    def ledger(self) -> str:
        """The name of the ledger's stream."""
        return self._view.ledger

    @property
    def transcript_stream(self) -> str:
        """The name of the transcript's stream."""
        return self._view.transcript_stream

    # What is known.

    @contextmanager
    def state(self, *, durable: bool = True) -> Iterator[State]:
        """Fold what this or another process has appended, and lend the state out; nobody changes it meanwhile.

        It is for who is about to write: whoever is writing is waited for. Without `durable` it may hold what is still
        on its way to disk.

        Raises:
            CorruptLogError: a log is damaged, or shorter than it was.
        """
        with self._mutex:
            if durable:
                self._pipeline.settle(self._said, self._learned)
            else:
                self._pipeline.catch_up(self._said, self._learned)
            yield State(self._view.memory, self._view.coverage, self._view.transcript, self._view.head)

    @property
    def head(self) -> Head:
        """Where the ledger stood when it was last folded."""
        return self._view.head

    def memory(self, *, durable: bool = True) -> Memory:
        """The memory as the reader tells it; without `durable` what is still on its way to disk is in it, too."""
        if durable:
            return self.reader.standing()[0]
        with self._mutex:
            self._pipeline.catch_up(self._learned)
            return self._view.memory

    # The ledger.

    def commit(self, command: Command, cause: Cause, *, at: datetime | None = None) -> Commit:
        """Decide a command on the newest memory and append what it leads to, as one commit.

        `at` overrides the clock, for a backfill; a commit is never dated before the one it follows.

        Raises:
            NotFoundError, ConflictError, CapError, ConfigError: as `decide`; nothing is written.
            StoreError, LockTimeoutError, CorruptLogError: as the store.
        """
        moment = spell_moment(at or self.clock.now())
        while True:
            with self._mutex:
                if isinstance(command, Clear | Extract | Summarize) or cause.turns is not None:
                    # What the commit says of the transcript must not be lost after it.
                    self._pipeline.settle(self._said, self._learned)
                else:
                    self._pipeline.catch_up(self._learned)
                policy = self._put_policy_in_force(moment)
                try:
                    # Taken before anything is asked from outside, where the process may be forked.
                    head = self._view.head
                    ticket = self._append(head, *self._decided(command, cause, moment))
                except BaseException:
                    # A line that nobody waits for would never be written, and hide what others append.
                    if policy is not None:
                        self._learned.group.is_settled(policy)
                    raise
            try:
                self._learned.group.settle(ticket)
            except WrongExpectedVersionError:
                continue
            self._announce()
            return ticket.commit

    def dated(self, command: _C) -> _C:
        """Return a command as it would be decided now, for a preview."""
        memory = self.memory()
        at = max(spell_moment(self.clock.now()), memory.at)
        return msgspec.structs.replace(command, at=at, heat=self._heat_of(memory, command))

    def put_policy_in_force(self) -> None:
        """Write what configuration asks for now, rather than with the next commit, so that a plan can count on it."""
        while True:
            with self._mutex:
                self._pipeline.catch_up(self._learned)
                ticket = self._put_policy_in_force(spell_moment(self.clock.now()))
            try:
                if ticket is not None:
                    self._learned.group.settle(ticket)
            except WrongExpectedVersionError:
                continue
            return self._announce()

    def _decided(self, command: Command, cause: Cause, moment: str) -> tuple[Cause, str, tuple[Event, ...]]:
        memory = self._view.memory
        at = max(moment, memory.at)
        heat = self._heat_of(memory, command)
        command = msgspec.structs.replace(command, at=at, heat=heat)
        cause = msgspec.structs.replace(cause, heat=heat)
        covered = self._is_covered(cause)
        if isinstance(command, FailUpdate) and covered:
            # Given up here, and learned from meanwhile somewhere else: no turn is covered twice.
            cause = msgspec.structs.replace(cause, turns=None)
        if isinstance(command, Extract):
            command = msgspec.structs.replace(command, covered=covered)
            late = too_late(memory, command)
            # After an erasure the turns are done with: nobody is asked about them once more.
            if covered or (late is not None and late.rule != "redaction"):
                cause = msgspec.structs.replace(cause, turns=None)
        if isinstance(command, Summarize):
            command = self._looked_up(command)
            if not is_done_with(memory, command):
                cause = msgspec.structs.replace(cause, summarized=None, level=0)
        if isinstance(command, Clear):
            cause = msgspec.structs.replace(cause, transcript=self._view.transcript.head)
        return cause, at, decide(memory, command)

    def _is_covered(self, cause: Cause) -> bool:
        """Whether one of the turns that a commit would cover is covered already, or was restored since it was asked."""
        if cause.thread is None or cause.turns is None:
            return False
        thread = self._view.transcript.threads.get(cause.thread) or Thread(cause.thread)
        seen = cause.transcript
        return self._view.coverage.covers(thread, cause.turns) or (
            seen is not None and thread.restored_after(seen.seq, cause.turns)
        )

    def _looked_up(self, command: Summarize) -> Summarize:
        """Say of a summary what only coverage and transcript tell."""
        thread = self._view.transcript.threads.get(command.thread) or Thread(command.thread)
        gone = (n > len(thread.turns) or thread.turns[n - 1] is None for n in command.shown)
        covered = command.turns.first <= self._view.coverage.summarized(thread, command.level)
        return msgspec.structs.replace(command, covered=covered, lost=any(gone))

    def _heat_of(self, memory: Memory, command: Command) -> dict[str, Access]:
        """What was used of late, where the policy asks for it: a commit records all it was decided on, and no more."""
        policy = command.policy if isinstance(command, ChangePolicy) else memory.policy
        if self._usage is None or policy.fact_eviction_policy != "hybrid" or not _may_rank(memory, command):
            return {}
        return {fact_id: access for fact_id, access in self._usage().items() if fact_id in memory.facts}

    def _append(self, head: Head, cause: Cause, at: str, events: tuple[Event, ...]) -> PendingCommit:
        return self._pipeline.add(self._learned, head, Draft(at, cause, events))

    def _put_policy_in_force(self, moment: str) -> PendingCommit | None:
        """Queue the genesis, or the change of policy that configuration asks for, before anything else."""
        memory, head = self._view.memory, self._view.head
        if memory.seq == 0:
            policy = check_policy(msgspec.structs.replace(Policy(), **self._configured))
            events = decide(memory, ChangePolicy(at=moment, policy=policy, source="config"))
            cause = Cause(kind="genesis", user=self.scope.user, agent=self.scope.agent)
            ticket = self._append(head, cause, moment, events)
            self._pipeline.fold_decided(self._learned)
            return ticket
        if memory.configured is self._as_configured:
            return None
        wanted = check_policy(msgspec.structs.replace(memory.configured, **self._configured))
        if wanted == memory.configured:
            self._as_configured = memory.configured
            return None
        policy = msgspec.structs.replace(memory.policy, **self._configured)
        at = max(moment, memory.at)
        try:
            command = ChangePolicy(at=at, policy=policy, source="config")
            command = msgspec.structs.replace(command, heat=self._heat_of(memory, command))
            events = decide(memory, command)
        except CapError as error:
            _log.warning("the configured policy cannot be put in force for %s: %s", self.scope, error)
            return None
        cause = Cause(kind="policy", actor="configuration", heat=command.heat)
        ticket = self._append(head, cause, at, events)
        self._pipeline.fold_decided(self._learned)
        return ticket

    def _announce(self) -> None:
        """Tell the listeners what is durable, in order and outside of every lock; one thread tells for all."""
        with self._mutex:
            self._pipeline.let_go(self._learned)
            newest, self._pipeline.newest = self._pipeline.newest, None
            if newest is not None:
                self.reader.publish(*newest)
        if not self._listeners:
            self._pipeline.news.clear()
            return
        # Held on to: after a fork in a listener the desk's is another one.
        announcing = self._pipeline.announcing
        while self._pipeline.news and announcing.acquire(blocking=False):
            try:
                while self._pipeline.news:
                    self._tell(*self._pipeline.news.popleft())
            finally:
                announcing.release()

    def _tell(self, commit: Commit, before: Memory, after: Memory) -> None:
        for listener in self._listeners:
            try:
                listener(self.scope, commit, before, after)
            except Exception:  # noqa: BLE001 the commit is durable, whatever became of a read model
                _log.exception("commit %d of %s is safe, but a listener failed", commit.seq, self.scope)

    # The transcript.

    def record(
        self, thread: str, messages: Sequence[Kept], *, mode: Mode = "conversation", sent_before: bool = False
    ) -> Recorded:
        """Append what of a delivery is new to its thread; when it returns, a crash loses none of it.

        What the delivery supersedes can be restored. `sent_before` says that it may have been recorded already.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; what was not acknowledged can be sent again.
        """
        done = superseded = 0
        while True:
            with self._mutex:
                # An erasure by somebody else tells which turns must not come back.
                self._pipeline.catch_up(self._learned, self._said)
                at = max(spell_moment(self.clock.now()), self._view.transcript.at)
                known = self._view.transcript.threads.get(thread) or Thread(thread)
                # Words that were cut off behind our back were learned from: their ordinals are not used again.
                highest = self._view.coverage.highest(thread)
                seal = self._seal() if known.traces else None
                arrival = align(known, messages, at, mode=mode, highest=highest, seal=seal, sent_before=sent_before)
                # Half of a conversation is recognised when it is sent again; half of what is said to be new is not.
                whole = mode == "append" and any(message.id is None for message in arrival.fresh)
                at_most = len(arrival.fresh) if whole else _TURNS_PER_COMMIT
                tickets = [
                    (self._append_turns(thread, turns, events, at, mode), events)
                    for turns, events in arrival.commits(at_most)
                ]
                if not tickets and self._said.decided:
                    # What is known already may be known from somebody whose words are not on disk yet.
                    tickets = [(self._said.decided[-1].ticket, ())]
            try:
                for ticket, events in tickets:
                    self._said.group.settle(ticket)
                    replaced = sum(isinstance(event, TurnSuperseded) for event in events)
                    superseded += replaced
                    done += len(events) - replaced
            except WrongExpectedVersionError:
                continue
            return Recorded(done, len(messages) - done, superseded)

    def _append_turns(
        self, thread: str, turns: TurnRange | None, events: tuple[Event, ...], at: str, mode: Mode
    ) -> PendingCommit:
        self._pipeline.fold_decided(self._said)
        head = self._view.transcript.head
        owner = self.scope if head.seq == 0 else Scope()
        action = "replace" if mode == "replace" else None
        cause = Cause(kind="record", user=owner.user, agent=owner.agent, thread=thread, turns=turns, action=action)
        return self._pipeline.add(self._said, head, Draft(at, cause, events))

    def _seal(self, *, create: bool = False) -> Seal | None:
        """The keyed digest by which erased turns are recognised; None where the scope has no key."""
        key = self.store.key(self.transcript_stream, create=create)
        return None if key is None else sealing(key)

    def withdraw(self, thread: str, ordinals: Collection[int], *, actor: str | None = None) -> tuple[int, ...]:
        """Take turns back, in one commit: they stand no longer, and their words stay in the log until they are erased.

        Returns the ordinals of those that stood; where none did nothing is written.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; all of them stand as before.
        """
        return self._change_turns(
            Cause(kind="withdrawal", thread=thread, actor=actor),
            ordinals,
            Thread.stands,
            lambda _, n: TurnSuperseded(n),
        )

    def restore(self, thread: str, ordinals: Collection[int], *, actor: str | None = None) -> tuple[int, ...]:
        """Bring superseded turns back, in one commit: they stand again, and are pending.

        Returns the ordinals of those that are back; where none could be nothing is written. What was erased is gone.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; nothing has changed.
        """

        def restored(known: Thread, n: int) -> TurnRestored:
            return TurnRestored(n, again=self._view.coverage.covers(known, TurnRange(n, n)))

        return self._change_turns(
            Cause(kind="restore", thread=thread, actor=actor), ordinals, Thread.may_be_restored, restored
        )

    def _change_turns(
        self,
        cause: Cause,
        ordinals: Collection[int],
        applies: Callable[[Thread, int], bool],
        event: Callable[[Thread, int], TurnSuperseded | TurnRestored],
    ) -> tuple[int, ...]:
        name = cause.thread or ""
        while True:
            with self._mutex:
                self._pipeline.catch_up(self._learned, self._said)
                known = self._view.transcript.threads.get(name) or Thread(name)
                changed = tuple(n for n in sorted(set(ordinals)) if applies(known, n))
                ticket = self._said.decided[-1].ticket if self._said.decided else None
                if changed:
                    at = max(spell_moment(self.clock.now()), self._view.transcript.at)
                    draft = Draft(at, cause, tuple(event(known, n) for n in changed))
                    ticket = self._pipeline.add(self._said, self._view.transcript.head, draft)
            try:
                if ticket is not None:
                    self._said.group.settle(ticket)
            except WrongExpectedVersionError:
                continue
            return changed

    # Erasing.

    def plan_erasure(self, request: Erasure) -> Plan:
        """Tell what an erasure would take away; see `backstory.ledger.erasure.plan`.

        Raises:
            NotFoundError: there is nothing of that to erase.
        """
        with self._mutex:
            self._pipeline.settle(self._said, self._learned)
            return self._planned(request)

    def forget(self, request: Erasure, *, actor: str | None = None) -> tuple[Commit, Plan]:
        """Erase content for good: first a commit that names each piece, then the pieces themselves.

        Whoever opens the scope after a crash between the two completes it.

        Raises:
            NotFoundError: there is nothing of that to erase.
            StoreError, LockTimeoutError, CorruptLogError: as the store.
        """
        with self._mutex:
            self._pipeline.settle(self._said, self._learned)
            if isinstance(request, ForgetEverything):
                # What was erased before shall be recognised by nobody either.
                self.store.destroy_key(self.transcript_stream)
            done = self._carry_out(request, self._planned(request, self._sealing(request)), actor)
        self._announce()
        return done

    def _sealing(self, request: Erasure) -> Seal | None:
        """The keyed digest for an erasure that keeps one; the key is made when the first turn goes."""
        if isinstance(request, ForgetEverything):
            return None
        known: list[Seal] = []

        def seal(role: str, content: str) -> str:
            if not known:
                known.append(sealing(self.store.key(self.transcript_stream, create=True) or b""))
            return known[0](role, content)

        return seal

    def expire(self, before: datetime) -> Commit | None:
        """Erase the turns recorded before a time of which nothing is to be learned any more; None: there are none."""
        request = ForgetExpired(spell_moment(before), self._is_done_with)
        with self._mutex:
            self._pipeline.settle(self._said, self._learned)
            plan = self._planned(request, self._sealing(request))
            # Where nothing goes nothing is written: not even the genesis of a scope that has learned nothing.
            done = self._carry_out(request, plan, "configuration")[0] if plan.redacted else None
        self._announce()
        return done

    def _heads(self) -> tuple[Head, Head]:
        return self._view.transcript.head, self._view.head

    def _is_done_with(self, name: str, n: int) -> bool:
        thread = self._view.transcript.threads[name]
        return n in thread.superseded or self._view.coverage.covers(thread, TurnRange(n, n))

    def _planned(self, request: Erasure, seal: Seal | None = None) -> Plan:
        return plan_erasure(
            request,
            self._view.memory,
            ledger=lambda: read_commits(self.store, self.ledger),
            transcript=lambda: read_commits(self.store, self.transcript_stream),
            ledger_stream=self.ledger,
            transcript_stream=self.transcript_stream,
            seal=seal,
        )

    def _carry_out(self, request: Erasure, plan: Plan, actor: str | None) -> tuple[Commit, Plan]:
        """Lock both streams, with nothing under way in either, and erase; planned again if others wrote meanwhile."""
        heads = self._heads()
        with self.store.locked(self.transcript_stream), self.store.locked(self.ledger):
            self._pipeline.settle(self._said, self._learned)
            # What a new policy puts out of memory is written once more: the plan has to know of that, too.
            self._put_policy_in_force(spell_moment(self.clock.now()))
            self._pipeline.settle(self._learned)
            if self._heads() != heads:
                plan = self._planned(request, self._sealing(request))
            return self._forget(request, plan, actor)

    def _forget(self, request: Erasure, plan: Plan, actor: str | None) -> tuple[Commit, Plan]:
        if self._purge is not None:
            # What stands in the way of that is better known before anything is promised.
            self._purge(self.scope)
        at = max(spell_moment(self.clock.now()), self._view.memory.at)
        ticket = self._append(self._view.head, _redaction(request, actor), at, plan.events)
        self._learned.group.settle(ticket)
        self._pipeline.let_go(self._learned)
        try:
            self._erase(plan.redacted)
        finally:
            # If it was interrupted, the next look at the log finds what is left to do.
            self._view.start_over(from_first=True)
            self._pipeline.newest = None
            self.reader.start_over()
        self._pipeline.settle(self._said, self._learned)
        return ticket.commit, plan

    def _complete_erasure(self) -> None:
        """Carry out what a redaction says and a crash left undone."""
        redacted, self._view.redacted = self._view.redacted, []
        self._complete(redacted, wait=True)

    def _complete_if_free(self, redacted: Sequence[Redacted]) -> None:
        """Carry it out for a reader, which does not wait: where a lock is held, a later look tries again."""
        self._complete(redacted, wait=False)

    def _complete(self, redacted: Sequence[Redacted], *, wait: bool) -> None:
        try:
            if not self._is_finished(redacted):
                streams = (self.transcript_stream, self.ledger)
                with self.store.locked(streams[0], wait=wait), self.store.locked(streams[1], wait=wait):
                    # Somebody else may have been in the middle of it.
                    if not self._is_finished(redacted):
                        _log.warning("%s: an erasure was interrupted; it is completed now", self.scope)
                        self._erase(redacted)
        except UnavailableError as error:
            _log.warning("%s: an erasure is not complete, the next open tries again: %s", self.scope, error)

    def _is_finished(self, redacted: Sequence[Redacted]) -> bool:
        return not any(unfinished(self.store, (self.transcript_stream, self.ledger), redacted).values())

    def _erase(self, redacted: Sequence[Redacted]) -> None:
        """Put stubs in the place of what was redacted; both streams are locked."""
        streams = (self.transcript_stream, self.ledger)
        left = unfinished(self.store, streams, redacted)
        if self._purge is not None:
            self._purge(self.scope)
        for stream in streams:
            self.store.redact(stream, left[stream])


def _may_rank(memory: Memory, command: Command) -> bool:
    """Whether a decision can come to ask who stays: of what cannot fill memory, no commit has to tell."""
    match command:
        case EditFact() | RemoveFact() | Clear() | FailUpdate() | Summarize():
            return False
        case AddFact():
            most = 1
        case Extract(proposal=proposal):
            # A review that may not remove all that it asks for ranks, too.
            if any(isinstance(candidate, Removal) for candidate in proposal.candidates):
                return True
            most = len(proposal.candidates)
        case ImportDocument(candidates=candidates, replace=False) | SaveDocument(candidates=candidates):
            most = len(candidates)
        case _:
            return True
    return len(memory.facts) + most > memory.policy.max_facts


def _redaction(request: Erasure, actor: str | None) -> Cause:
    """Say who asked for what; of a text that was asked for nothing."""
    match request:
        case ForgetFact(fact_id=fact_id):
            return Cause(kind="redaction", actor=actor, action="fact", fact=fact_id)
        case ForgetThread(thread=thread):
            return Cause(kind="redaction", actor=actor, action="thread", thread=thread)
        case ForgetMatching():
            return Cause(kind="redaction", actor=actor, action="matching")
        case ForgetExpired():
            return Cause(kind="redaction", actor=actor, action="expired")
        case _:
            return Cause(kind="redaction", actor=actor, action="everything")
