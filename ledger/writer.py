"""Writing: read what is new, fold it, decide, append; if somebody else was quicker, fold that and decide again."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from ledger.clock import Clock, SystemClock, spell_moment
from ledger.commands import ChangePolicy, Clear, Command, Extract
from ledger.commit import EMPTY, Cause, Commit, Draft, Head, seal, unseal
from ledger.coverage import Coverage
from ledger.decide import decide
from ledger.errors import CapError, CorruptLogError, WrongExpectedVersionError
from ledger.events import Event, TurnRange
from ledger.memory import Fold, Memory
from ledger.merge import too_late
from ledger.messages import Kept
from ledger.policy import Policy, check_policy
from ledger.scope import LEDGER, TRANSCRIPT, Scope
from ledger.store import EventStore
from ledger.transcript import Thread, Transcript, receive

__all__ = ["Listener", "Recorded", "Salts", "State", "Writer", "random_salt", "read_commits"]

_log = logging.getLogger(__name__)

_TURNS_PER_COMMIT = 200

Listener = Callable[[Scope, Commit, Memory, Memory], None]
"""Told of every ledger commit this process makes, once it is durable, with the memory before and after it.

What it raises is logged and never passed on: the commit stands, whatever becomes of a read model.
"""

Salts = Callable[[], str]


def random_salt() -> str:
    """Sixteen bytes that nobody can guess, as hex digits."""
    return secrets.token_hex(16)


class Recorded(msgspec.Struct, frozen=True):
    """What became of a delivery: `turns` are new, `skipped` were known already or filtered out."""

    turns: int
    skipped: int


class State(msgspec.Struct, frozen=True):
    """What a scope's two streams say: memory is a value, the others are the writer's own and only on loan."""

    memory: Memory
    coverage: Coverage
    transcript: Transcript


def read_commits(store: EventStore, stream: str, after: Head = EMPTY) -> Iterator[Commit]:
    """Yield the commits after a head, each checked against the chain.

    Raises:
        CorruptLogError: at the first line that is not what was written.
    """
    head = after
    for record in store.read(stream, after.seq):
        commit = unseal(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        yield commit


class Writer:
    """The one door to a scope's two streams; safe for threads, and beside other processes.

    `policy` holds the values that configuration states explicitly; when they change, a commit puts them in force.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        *,
        clock: Clock | None = None,
        salts: Salts = random_salt,
        policy: Mapping[str, int | float | str] | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.store = store
        self.scope = scope
        self.clock = clock or SystemClock()
        self._salts = salts
        self._configured = dict(policy or {})
        self._listeners = tuple(listeners)
        self._mutex = threading.RLock()
        self._memory = Memory()
        self._head = EMPTY
        self._coverage = Coverage()
        self._transcript = Transcript()

    @property
    def ledger(self) -> str:
        """The name of the ledger's stream."""
        return self.scope.stream(LEDGER)

    @property
    def transcript_stream(self) -> str:
        """The name of the transcript's stream."""
        return self.scope.stream(TRANSCRIPT)

    @contextmanager
    def state(self) -> Iterator[State]:
        """Fold what this or another process has appended, and lend the state out; nobody changes it meanwhile.

        Raises:
            CorruptLogError: a log is damaged, or shorter than it was.
        """
        with self._mutex:
            self._refresh_transcript()
            self._refresh_ledger()
            yield State(self._memory, self._coverage, self._transcript)

    @property
    def head(self) -> Head:
        """Where the ledger stood when it was last folded."""
        return self._head

    def memory(self) -> Memory:
        """The memory as it is now."""
        with self._mutex:
            self._refresh_ledger()
            return self._memory

    def _refresh_ledger(self) -> None:
        self._must_not_shrink(self.ledger, self._head)
        commits = list(read_commits(self.store, self.ledger, self._head))
        if commits:
            self._must_be_ours(self.ledger, commits[0])
            self._fold(commits)

    def _refresh_transcript(self) -> None:
        self._must_not_shrink(self.transcript_stream, self._transcript.head)
        for commit in read_commits(self.store, self.transcript_stream, self._transcript.head):
            self._must_be_ours(self.transcript_stream, commit)
            self._transcript.apply(commit)

    def _must_not_shrink(self, stream: str, known: Head) -> None:
        if not known.seq:
            return
        now = self.store.head(stream)
        if now.seq < known.seq or (now.seq == known.seq and now.hash != known.hash):
            cut = now.seq < known.seq
            what = f"now ends at {now.seq}: its tail was cut off" if cut else "is another now: the file was exchanged"
            raise CorruptLogError(
                f"{stream} ended at {known.seq} and {what}; restore the file from a copy, then open it again",
                kind="missing" if cut else "broken_prev",
                stream=stream,
                line=now.seq + cut,
                byte=0,
            )

    def _must_be_ours(self, stream: str, first: Commit) -> None:
        if first.seq == 1 and (first.cause.user, first.cause.agent) != (self.scope.user, self.scope.agent):
            owner = Scope(first.cause.user, first.cause.agent)
            raise CorruptLogError(
                f"{stream} is the log of {owner}, not of {self.scope}: put it back where it belongs",
                kind="altered",
                stream=stream,
                line=1,
                byte=0,
            )

    def _fold(self, commits: Sequence[Commit]) -> None:
        fold = Fold(self._memory)
        for commit in commits:
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            self._coverage.apply(commit)
        self._memory = fold.memory()
        self._head = commits[-1].head

    # The ledger.

    def commit(self, command: Command, cause: Cause, *, at: datetime | None = None) -> Commit:
        """Decide a command on the newest memory and append what it leads to, as one commit.

        `at` overrides the clock, for a backfill; a commit is never dated before the one it follows.

        Raises:
            NotFoundError, ConflictError, CapError, ConfigError: as `decide`; nothing is written.
            StoreError, LockTimeoutError, CorruptLogError: as the store.
        """
        with self._mutex:
            self._refresh_transcript()
            moment = spell_moment(at or self.clock.now())
            while True:
                self._refresh_ledger()
                try:
                    self._put_policy_in_force(moment)
                    return self._append(*self._decided(command, cause, moment))
                except WrongExpectedVersionError:
                    continue

    def put_policy_in_force(self) -> None:
        """Write what configuration asks for now, rather than with the next commit, so that a plan can count on it."""
        with self._mutex:
            while True:
                self._refresh_ledger()
                try:
                    return self._put_policy_in_force(spell_moment(self.clock.now()))
                except WrongExpectedVersionError:
                    continue

    def _decided(self, command: Command, cause: Cause, moment: str) -> tuple[Cause, str, tuple[Event, ...]]:
        at = max(moment, self._memory.at)
        command = msgspec.structs.replace(command, at=at)
        if isinstance(command, Extract):
            thread = self._transcript.threads.get(command.thread, Thread(command.thread))
            covered = cause.turns is not None and self._coverage.covers(thread, cause.turns)
            command = msgspec.structs.replace(command, covered=covered)
            if too_late(self._memory, command) is not None:
                cause = msgspec.structs.replace(cause, turns=None)
        if isinstance(command, Clear):
            cause = msgspec.structs.replace(cause, transcript=self._transcript.head)
        return cause, at, decide(self._memory, command)

    def _append(self, cause: Cause, at: str, events: tuple[Event, ...]) -> Commit:
        line, commit = self._sealed(Draft(at, cause, events), self._head, self.ledger)
        self.store.append(self.ledger, line, self._head.seq)
        before = self._memory
        self._fold([commit])
        for listener in self._listeners:
            try:
                listener(self.scope, commit, before, self._memory)
            except Exception:  # noqa: BLE001 the commit is durable, whatever became of a read model
                _log.exception("commit %d of %s is safe, but a listener failed", commit.seq, self.scope)
        return commit

    def _put_policy_in_force(self, moment: str) -> None:
        """Write the genesis, or the change of policy that configuration asks for, before anything else."""
        if self._memory.seq == 0:
            policy = check_policy(msgspec.structs.replace(Policy(), **self._configured))
            events = decide(self._memory, ChangePolicy(at=moment, policy=policy, source="config"))
            cause = Cause(kind="genesis", user=self.scope.user, agent=self.scope.agent)
            self._append(cause, moment, events)
            return
        wanted = check_policy(msgspec.structs.replace(self._memory.configured, **self._configured))
        if wanted == self._memory.configured:
            return
        policy = msgspec.structs.replace(self._memory.policy, **self._configured)
        at = max(moment, self._memory.at)
        try:
            events = decide(self._memory, ChangePolicy(at=at, policy=policy, source="config"))
        except CapError as error:
            _log.warning("the configured policy cannot be put in force for %s: %s", self.scope, error)
            return
        self._append(Cause(kind="policy", actor="configuration"), at, events)

    def _sealed(self, draft: Draft, after: Head, stream: str) -> tuple[bytes, Commit]:
        """Seal a draft and read the line back before it is written: a line that nobody can read is never appended."""
        line = seal(draft, after, self._salts)
        return line, unseal(line, after, stream=stream, byte=0)

    # The transcript.

    def record(self, thread: str, messages: Sequence[Kept], *, append: bool = False) -> Recorded:
        """Append what of a delivery is new to its thread; when it returns, a crash loses none of it.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; what was not acknowledged can be sent again.
        """
        done = 0
        with self._mutex:
            while True:
                self._refresh_transcript()
                at = max(spell_moment(self.clock.now()), self._transcript.at)
                known = self._transcript.threads.get(thread, Thread(thread))
                arrival = receive(known, messages, at, append=append)
                # Half of a conversation is recognised when it is sent again; half of what is said to be new is not.
                at_most = max(1, len(arrival.fresh)) if append else _TURNS_PER_COMMIT
                try:
                    for turns, events in arrival.commits(at_most):
                        self._append_turns(thread, turns, events, at)
                        done += turns.last - turns.first + 1
                except WrongExpectedVersionError:
                    continue
                return Recorded(done, len(messages) - done)

    def _append_turns(self, thread: str, turns: TurnRange, events: tuple[Event, ...], at: str) -> None:
        owner = self.scope if self._transcript.head.seq == 0 else Scope()
        cause = Cause(kind="record", user=owner.user, agent=owner.agent, thread=thread, turns=turns)
        head = self._transcript.head
        line, commit = self._sealed(Draft(at, cause, events), head, self.transcript_stream)
        self.store.append(self.transcript_stream, line, head.seq)
        self._transcript.apply(commit)
