"""NATS engine: streams as subjects of JetStream, on a cluster of nats-server. Needs the extra `nats`.

A shard is one JetStream stream, `<prefix>-<n>`. In it each of our streams has a subject for its commits, one message
per line, and others for what lies beside them (`subjects`, `messages`). An append states the sequence of the last
message on the subject (`Nats-Expected-Last-Subject-Sequence`), so that of two appends to one head one is refused; our
seq is in the line. Several lines are one atomic batch. After an unknown outcome the same bytes are sent with the same
expectation, and what follows the head is read from the leader and compared.

docs/how-to/nats.md says how to set up a cluster; docs/explanation/adr/0008 why streams are mapped like this.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.forks import Renews, register
from backstory.ledger.core.commit import Head, hash_of, head_of, prev_of
from backstory.ledger.core.errors import (
    ConfigError,
    LockTimeoutError,
    StoreError,
    UnknownOutcomeError,
)
from backstory.ledger.disk.locks import polled
from backstory.ledger.engines.nats.address import NatsAddress, read_address
from backstory.ledger.engines.nats.erasing import Erasing
from backstory.ledger.engines.nats.holding import NatsHolds, StreamHold, name_header
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing
from backstory.ledger.engines.nats.messages import Tip, commit_note, is_commit, read_marker
from backstory.ledger.engines.nats.reading import StreamReading, stream_of
from backstory.ledger.engines.nats.setup import Setup
from backstory.ledger.engines.nats.subjects import COMMITS, EMPTY, KEYS, Subjects, name_of, spell
from backstory.ledger.engines.port import Capabilities, Record, RemovedLog, Seal, StreamLook, StreamState
from backstory.ledger.engines.promises import followed, other_history, other_version

__all__ = ["NatsStore"]

_KEY_BYTES = 32
_MOST_AT_ONCE = 1000
_ROOM = 2048
"""What the headers of a message may take."""
_ASKED_AT_ONCE = 256
_FOLLOW_SECONDS = 1.0
"""How often a follower looks although nothing was hinted at."""
_HINT_SECONDS = 0.05
"""How long it looks after a hint, which comes before the commit can be read."""


class NatsStore:
    """Keeps streams in JetStream; safe for threads and for several processes at once.

    `lock_timeout` is how many seconds to wait for another process's lock, and `answer_timeout` for the servers.
    """

    def __init__(
        self,
        url: str | NatsAddress,
        *,
        lock_timeout: float = 10.0,
        answer_timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        if find_spec("nats") is None:
            raise ConfigError("event_store names NATS, whose client is missing: pip install 'backstory[nats]'")
        self.address = read_address(url) if isinstance(url, str) else url
        self._clock = clock = clock or SystemClock()
        self._subjects = Subjects(self.address.prefix, self.address.shards)
        self._connection = JetStream(self.address, lock_timeout if answer_timeout is None else answer_timeout)
        self._setup = Setup(self._connection, self.address, self._subjects)
        self._reading = StreamReading(self._connection, self._subjects)
        self._holds = NatsHolds(self._connection, self._subjects, self._reading, lock_timeout, clock)
        self._erasing = Erasing(self._connection, self._subjects, self._reading, self._holds, clock)
        self._timeout = lock_timeout
        register(self)

    def parts(self) -> Iterable[Renews]:
        """Return what begins anew in a forked child: all that is open is the parent's."""
        return (self._connection, self._holds)

    def __repr__(self) -> str:
        return f"NatsStore({str(self.address)!r})"

    def __str__(self) -> str:
        return str(self.address)

    @property
    def _wire(self) -> JetStream:
        self._setup.ensure()
        return self._connection

    def risks(self) -> Sequence[str]:
        """Return what may lose acknowledged commits on these servers; see `Capabilities.risks`."""
        self._setup.ensure()
        return self._setup.warnings

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        """Append lines, up to 1000 of them all at once; see `EventStore.append`."""
        with self._holds.among_threads(stream, self._timeout) as hold:
            for start in range(0, len(lines), _MOST_AT_ONCE):
                self._append(stream, lines[start : start + _MOST_AT_ONCE], expected + start, hold)

    def _append(self, stream: str, lines: Sequence[bytes], expected: int, hold: StreamHold) -> None:
        wire = self._wire
        self._must_fit(stream, lines)
        deadline = time.monotonic() + self._timeout
        tip = self._known(stream, prev_of(lines[0]), hold)
        with hold.publishing:
            tip = hold.tip or tip or self._holds.wait_until_free(stream)
            if hold.tip is not None and tip.head.seq != expected:
                # An append under this lock may have arrived although its outcome was unknown.
                tip = self._standing(stream, hold)
            while True:
                if tip.head.seq != expected:
                    raise other_version(stream, tip.head.seq, expected)
                if prev_of(lines[0]) != tip.head.hash:
                    raise other_history(stream, expected, "stream")
                origin = tip.origin if tip.head.seq else wire.last_seq(self._subjects.jetstream_of(stream))
                at = wire.publish(self._messages(stream, lines, tip, origin))
                if at is not None:
                    end = tip.end + sum(len(line) + 1 for line in lines)
                    self._keep(stream, hold, Tip(at, head_of(lines[-1]), end, origin, tip.lock))
                    return
                now = self._standing(stream, hold)
                if now.head.seq > expected and self._is_there(stream, lines[0], expected):
                    # An earlier attempt of this request had arrived.
                    self._keep(stream, hold, now)
                    return
                if now.at == tip.at:
                    # That attempt is on its way through the cluster.
                    if time.monotonic() > deadline:
                        raise UnknownOutcomeError(
                            f"{stream}: the servers refuse what follows its head for {self._timeout:g} s: read the "
                            "head, then decide again"
                        )
                    time.sleep(_HINT_SECONDS)
                tip = now

    def _known(self, stream: str, prev: str, hold: StreamHold) -> Tip | None:
        """Return where the stream stood last, if a line can follow that and this thread does not hold its lock."""
        tip = None if hold.depth else self._reading.newest(stream)
        return tip if tip is not None and not tip.lock and tip.head.hash == prev else None

    def _standing(self, stream: str, hold: StreamHold) -> Tip:
        """Return where a stream stands now that a message was refused, once this thread may append to it.

        Raises:
            LockTimeoutError: Another process holds its lock, or the lock that this thread held has expired.
        """
        if hold.tip is None:
            return self._holds.wait_until_free(stream)
        now = self._reading.tip(stream)
        if not self._holds.is_mine(now, hold.tip):
            raise LockTimeoutError(f"{stream}: its lock has expired while it was held: read on and try again")
        hold.tip = now
        return now

    def _keep(self, stream: str, hold: StreamHold, tip: Tip) -> None:
        self._reading.note(stream, Tip(tip.at, tip.head, tip.end, tip.origin))
        if hold.tip is not None:
            hold.tip = tip

    def _must_fit(self, stream: str, lines: Sequence[bytes]) -> None:
        most = self._connection.max_payload() - _ROOM
        longest = max(map(len, lines))
        if longest > most:
            raise StoreError(
                f"{stream}: a commit of {longest} bytes is larger than the servers accept: set max_payload in their "
                f"configuration to more than {longest + _ROOM} (8MB is the most that nats-server recommends)"
            )

    def _messages(self, stream: str, lines: Sequence[bytes], tip: Tip, origin: int) -> list[Outgoing]:
        subject, name, byte = self._subjects.of(COMMITS, stream), name_header(stream), tip.end
        messages = []
        for number, line in enumerate(lines):
            note = commit_note(byte, origin, tip.lock)
            messages.append(Outgoing(subject, line, note, None if number else tip.at, name=name))
            byte += len(line) + 1
        return messages

    def _is_there(self, stream: str, line: bytes, expected: int) -> bool:
        found = next(self._reading.read(stream, expected), None)
        return found is not None and hash_of(found.line) == hash_of(line)

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        """Yield the lines after a seq; see `EventStore.read`. They are found by their seq."""
        del byte
        self._setup.ensure()
        yield from self._reading.read(stream, after)

    def head(self, stream: str) -> Head:
        """Return where the stream stands; see `EventStore.head`."""
        self._setup.ensure()
        return self._reading.tip(stream).head

    def durable_head(self, stream: str) -> Head:
        """Return the head: a leader shows only what a majority has stored; see `EventStore.durable_head`."""
        return self.head(stream)

    def settled_head(self, stream: str) -> Head:
        """Return the head; see `durable_head`."""
        return self.head(stream)

    def state(self, stream: str) -> StreamState:
        """Return the first and the last message that make up the stream's past, and the bytes of all lines."""
        return self.looks([stream])[0].state

    def looks(self, streams: Sequence[str]) -> Sequence[StreamLook]:
        """Return what there is to be seen of each stream; see `Capabilities.looks`."""
        self._setup.ensure()
        return [
            StreamLook(
                tip.head,
                tip.head,
                StreamState(f"{tip.origin}-{stubs.at}" if tip.head.seq else "", tip.end - stubs.shrunk[-1]),
            )
            for tip, stubs in self._reading.states(streams)
        ]

    def torn_tail(self, stream: str) -> Record | None:
        """Return None: JetStream stores a message whole or not at all."""
        del stream
        return None

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""
        yield from sorted(self._names(COMMITS, prefix.rpartition("/")[0], prefix))

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names right below a folder; see `EventStore.folders`. One may have only a lock in it."""
        within = f"{folder}/" if folder else ""
        below = (name.removeprefix(within) for name in self._names(COMMITS, folder, certain=False))
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def changed(self, since: str | None) -> tuple[Sequence[str], str]:
        """Return the streams with messages after a position, and the position now; see `Capabilities.changed`.

        A position is the last sequence of each shard. A stream that was removed has no messages to tell of it.
        """
        wire = self._wire
        now = wire.last_seqs([self._subjects.jetstream(shard) for shard in self._subjects.shards])
        position = ",".join(map(str, now))
        before = now if since is None else [int(sequence) for sequence in since.split(",")]
        if len(before) != len(now):
            return list(self._names(COMMITS, certain=False)), position
        found = (self._reading.changed(shard, before[shard], now[shard]) for shard in self._subjects.shards)
        return sorted(set().union(*found)), position

    def _names(self, kind: str, folder: str = "", prefix: str = "", *, certain: bool = True) -> Iterator[str]:
        """Yield the names below a folder, and with a prefix, of the streams or of what else has a subject of a kind.

        A subject may have only the lock of an empty stream, or only what says that a stream is gone; unless `certain`,
        that is not looked at.
        """
        wire = self._wire
        pattern = f"{spell(folder)}.>" if folder else ">"
        for shard in self._shards(folder):
            name = self._subjects.jetstream(shard)
            found = wire.subjects(name, self._subjects.within(kind, shard, pattern))
            doubtful = self._doubtful(shard, pattern) if kind == COMMITS and certain else set()
            unsure = []
            for subject in found:
                rest = self._subjects.rest(subject)
                stream = name_of(rest)
                if stream is not None and not stream.startswith(prefix):
                    continue
                if stream is None or rest in doubtful:
                    unsure.append(subject)
                else:
                    yield stream
            for start in range(0, len(unsure), _ASKED_AT_ONCE):
                some = unsure[start : start + _ASKED_AT_ONCE]
                for subject, last in zip(some, wire.lasts([(name, subject) for subject in some]), strict=True):
                    if last is None or (kind == COMMITS and not is_commit(last) and not read_marker(last).seq):
                        # The lock of an empty stream, or what says that a stream is gone.
                        continue
                    stream = stream_of(self._subjects.rest(subject), last)
                    if stream.startswith(prefix):
                        yield stream

    def _doubtful(self, shard: int, pattern: str) -> set[str]:
        """Return the streams of a shard, as their subjects spell them, that may be there without a line."""
        wire, name = self._wire, self._subjects.jetstream(shard)
        doubtful = set(map(self._subjects.rest, wire.subjects(name, self._subjects.within(EMPTY, shard, pattern))))
        for subject in wire.subjects(name, self._subjects.removals(shard)):
            doubtful |= set(map(spell, self._erasing.going(name, subject)))
        return doubtful

    def _shards(self, folder: str) -> Sequence[int]:
        """Return the shards that streams below a folder may be in."""
        return self._subjects.shards if folder in ("", "users") else (self._subjects.shard(f"{folder}/"),)

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then those that are appended; see `EventStore.follow`.

        Messages to the subject are a hint to look, and only that: the lines come from `read`.
        """
        with self._wire.watch(self._subjects.of(COMMITS, stream)) as hints:

            def wait(seq: int) -> None:
                if hints.wait(_FOLLOW_SECONDS):
                    # Until what was hinted at can be read.
                    polled(lambda: self.head(stream).seq > seq or None, _HINT_SECONDS, self._clock)

            yield from followed(self, stream, after, wait=wait, if_lost="its tail is missing; restore it from a copy")

    def key(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream, from a subject of its own; see `EventStore.key`."""
        wire, subject = self._wire, self._subjects.of(KEYS, stream)
        while True:
            there = wire.last(self._subjects.jetstream_of(stream), subject)
            if there is not None and there.data:
                return there.data
            if not create:
                return None
            at = there.seq if there is not None else 0
            wire.publish([Outgoing(subject, secrets.token_bytes(_KEY_BYTES), "key", at, name=name_header(stream))])

    def set_key(self, stream: str, key: bytes | None) -> None:
        """Set the secret of a stream, or destroy it; see `EventStore.set_key`."""
        self._setup.must_take_changes()
        wire, subject = self._wire, self._subjects.of(KEYS, stream)
        while (there := wire.last(self._subjects.jetstream_of(stream), subject)) is not None:
            wire.delete(self._subjects.jetstream_of(stream), [there.seq])
        if key is not None:
            wire.publish([Outgoing(subject, key, "key", name=name_header(stream))])

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Store stubs for erased lines, and delete the originals; see `EventStore.redact`."""
        self._setup.must_take_changes()
        with self._holds.locked(stream) as hold:
            self._erasing.redact(stream, lines, hold)

    def remove(self, folder: str) -> bool:
        """Remove the streams below a folder; see `EventStore.remove`."""
        self._setup.must_take_changes()
        return self._erasing.remove(folder, sorted({*self._names(COMMITS, folder), *self._names(KEYS, folder)}))

    def is_removed(self, first: str) -> bool:
        """See `EventStore.is_removed`."""
        self._setup.ensure()
        return bool(first) and self._erasing.is_removed(first)

    def removed_logs(self) -> Iterator[RemovedLog]:
        """Yield the marks of removed logs; see `EventStore.removed_logs`."""
        self._setup.ensure()
        yield from self._erasing.removed_logs()

    def restore_removed(self, log: RemovedLog) -> None:
        """Put the mark of a log that was removed elsewhere; see `EventStore.restore_removed`."""
        self._setup.must_take_changes()
        self._erasing.restore_removed(log)

    def seal(self) -> Seal | None:
        """Return the seal that is in force; see `EventStore.seal`."""
        return self._setup.seal()

    def set_seal(self, seal: Seal | None) -> None:
        """Seal all streams, or take the seal off; see `EventStore.set_seal`."""
        self._setup.set_seal(seal)

    @contextmanager
    def locked(self, stream: str, *, wait: bool = True) -> Iterator[None]:
        """Hold the stream's lock; see `EventStore.locked`."""
        self._setup.ensure()
        with self._holds.locked(stream, wait=wait):
            yield

    def lease(self, stream: str, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one at work on something; see `EventStore.lease`."""
        self._setup.ensure()
        return self._holds.lease(stream, name)

    def capabilities(self) -> Capabilities:
        """See `EventStore.capabilities`."""
        return Capabilities(looks=self.looks, changed=self.changed, risks=self.risks)

    def close(self) -> None:
        """Close the connection and end the threads; the store can be used again."""
        self._holds.end()
        self._connection.close()
