"""Locks and leases of the NATS engine: messages that expire unless their holder renews them.

A lock is a marker on the subject of the commits, so it stands in the way of every append that does not know of it. A
lease is the only message on a subject of its own. Both have a time to live, and a thread of the holder's renews them.
A holder that was stopped for longer has lost its lock: its next append then has the wrong expectation.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.jobs import Repeated
from backstory.ledger.core.errors import BackstoryError, SealedError
from backstory.ledger.disk.locks import Hold, NamedLocks, held_elsewhere, polled
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing
from backstory.ledger.engines.nats.messages import LOCK, MARKER_NOTE, Marker, Tip
from backstory.ledger.engines.nats.reading import StreamReading
from backstory.ledger.engines.nats.subjects import COMMITS, EMPTY, LEASES, Subjects, jetstream_of, spell

_LISTING_SECONDS = 120
"""What it may take to list the names of all streams."""

_log = logging.getLogger(__name__)


class StreamHold(Hold):
    """A stream's lock among the threads of this process, and its marker while one of them holds it for all.

    `tip` is where the stream stands, marker included.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.publishing = threading.Lock()
        """Held while a message is sent to the subject, by the holder or by the thread that renews."""
        self.tip: Tip | None = None


class NatsHolds(NamedLocks[StreamHold], Repeated):
    """The locks and leases of a store; `timeout` is how many seconds to wait for another holder."""

    _THREAD = "backstory-nats-leases"

    def __init__(
        self, wire: JetStream, subjects: Subjects, reading: StreamReading, timeout: float, clock: Clock
    ) -> None:
        self._wire = wire
        self._reading = reading
        self._subjects = subjects
        self._timeout = timeout
        self._ttl = wire.address.lease_seconds
        self._clock = clock
        NamedLocks.__init__(self, StreamHold)
        Repeated.__init__(self, self._ttl / 4)

    def renew(self) -> None:
        """Begin without any lock, as in a forked child: they stay the parent's."""
        super().renew()
        self._forget()
        self._leases: dict[str, tuple[str, int]] = {}
        self._owner = os.urandom(8).hex()

    @contextmanager
    def locked(self, stream: str, *, wait: bool = True) -> Iterator[StreamHold]:
        """Hold a stream's lock; see `EventStore.locked`."""
        hold = self._take(stream, self._timeout if wait else 0.0)
        try:
            yield hold
        finally:
            self._give_back(hold)

    def _lock(self, hold: StreamHold, timeout: float) -> None:
        try:
            claimed = polled(lambda: self._try(hold), timeout, self._clock)
        except SealedError:
            # Nothing can be written, so there is nothing to keep others from.
            return
        if not claimed:
            raise held_elsewhere(hold.name, timeout)
        self._keep_renewing()

    def _try(self, hold: StreamHold) -> bool | None:
        tip = self._reading.tip(hold.name)
        return True if not self.is_held(hold.name, tip) and self._mark(hold, tip) is None else None

    def _mark(self, hold: StreamHold, base: Tip) -> Tip | None:
        """Put a marker on the subject, provided that the stream stands where it is said to.

        Returns:
            None if it is there; otherwise where the stream stands instead.
        """
        stream = hold.name
        marker = Marker(LOCK, base.head.seq, base.head.hash, base.end, base.origin, self._owner, os.urandom(8).hex())
        batch = [self.marker(stream, marker, base.at, self._ttl)]
        if not base.head.seq:
            # It outlives the lock: who lists the subjects of commits, and then these, takes no lock for a commit.
            subject = self._subjects.of(EMPTY, stream)
            batch.insert(0, Outgoing(subject, b"", "empty", ttl=self._ttl + _LISTING_SECONDS))
        at = self._wire.publish(batch)
        now = self._reading.tip(stream) if at is None else None
        if now is not None and now.nonce == marker.nonce:
            # An earlier attempt of this request had arrived.
            at = now.at
        if at is None:
            return now
        hold.tip = Tip(at, base.head, base.end, base.origin, at, self._owner, marker.nonce)
        return None

    def marker(self, stream: str, marker: Marker, expected: int, ttl: int = 0) -> Outgoing:
        """Return the message of a marker."""
        subject = self._subjects.of(COMMITS, stream)
        return Outgoing(subject, marker.data(), MARKER_NOTE, expected, ttl, name=name_header(stream))

    def _unlock(self, hold: StreamHold) -> None:
        with hold.publishing:
            tip, hold.tip = hold.tip, None
        if tip is not None:
            with suppress(BackstoryError):
                # It expires by itself where this fails.
                self._wire.delete(self._subjects.jetstream_of(hold.name), [tip.lock], erase=False)

    def is_held(self, stream: str, tip: Tip) -> bool:
        """Whether another process holds the lock of a stream that stands there."""
        if not tip.lock or tip.owner == self._owner:
            return False
        return tip.lock == tip.at or self._wire.get(self._subjects.jetstream_of(stream), tip.lock) is not None

    def wait_until_free(self, stream: str) -> Tip:
        """Return where a stream stands once no other process holds its lock.

        Raises:
            LockTimeoutError: Another process keeps it.
        """
        tips: list[Tip] = []

        def look() -> bool | None:
            tips.append(self._reading.tip(stream))
            return None if self.is_held(stream, tips[-1]) else True

        if not polled(look, self._timeout, self._clock):
            raise held_elsewhere(stream, self._timeout)
        return tips[-1]

    # Leases.

    @contextmanager
    def lease(self, stream: str, name: str) -> Iterator[bool]:
        """Try to hold a lease; see `EventStore.lease`."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        shard = self._subjects.shard(stream)
        subject = self._subjects.within(LEASES, shard, f"{spell(stream)}.{digest}")
        jetstream = self._subjects.jetstream(shard)
        nonce = os.urandom(8)
        at = self._put_lease(subject, nonce, 0)
        if at is None:
            yield False
            return
        key = nonce.hex()
        self._leases[key] = (subject, at)
        self._keep_renewing()
        try:
            yield True
        finally:
            _, at = self._leases.pop(key, (subject, 0))
            if at:
                with suppress(BackstoryError):
                    self._wire.delete(jetstream, [at], erase=False)

    def _put_lease(self, subject: str, nonce: bytes, expected: int) -> int | None:
        """Store the message of a lease, and return its sequence; None if the lease is another's."""
        at = self._wire.publish([Outgoing(subject, nonce, "lease", expected, self._ttl, only=True)])
        if at is None:
            # An earlier attempt of this request may have arrived.
            there = self._wire.last(jetstream_of(subject), subject)
            at = there.seq if there is not None and there.data == nonce else None
        return at

    # Renewal.

    def _keep_renewing(self) -> None:
        with self._changed:
            # A store that was closed may be used again.
            self.ending = False
            self._wake()

    def _is_wanted(self) -> bool:
        return not self.ending and (bool(self._leases) or any(hold.tip for hold in list(self._holds.values())))

    def _step(self) -> None:
        # Without a lock there is nothing to renew, and an append may keep `publishing` for long.
        for hold in [hold for hold in list(self._holds.values()) if hold.tip is not None]:
            self._renew_lock(hold)
        for key, (subject, at) in list(self._leases.items()):
            self._renew_lease(key, subject, at)

    def _renew_lock(self, hold: StreamHold) -> None:
        with hold.publishing, suppress(BackstoryError):
            tip = hold.tip
            if tip is None:
                return
            now = self._mark(hold, tip)
            if now is not None and self.is_mine(now, tip):
                # An append whose outcome is not known had arrived.
                now = self._mark(hold, now)
            if now is not None:
                _log.warning("%s: its lock has expired while it was held; the next append says so", hold.name)
                return
            self._wire.delete(self._subjects.jetstream_of(hold.name), [tip.lock], erase=False)

    def is_mine(self, now: Tip, tip: Tip) -> bool:
        """Whether the lock of a stream is still the one that this process held when the stream stood at a tip."""
        return now.lock == tip.lock or now.owner == self._owner

    def _renew_lease(self, key: str, subject: str, at: int) -> None:
        with suppress(BackstoryError):
            again = self._put_lease(subject, bytes.fromhex(key), at)
            if again is None:
                _log.warning("a lease has expired while it was held: %s", subject)
                self._leases.pop(key, None)
            elif key in self._leases:
                self._leases[key] = (subject, again)
            else:
                self._wire.delete(jetstream_of(subject), [again], erase=False)


def name_header(stream: str) -> str:
    """Return the header that holds a stream's name, "" where its subject does."""
    if "~" not in spell(stream):
        return ""
    return stream.encode("utf-8", "surrogatepass").hex()
