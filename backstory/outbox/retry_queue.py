"""What waits: a line for each thread of a conversation, the oldest first, and when each is to be tried again.

Nothing here locks: whoever uses it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.outbox.entry import OutboxEntry

__all__ = ["Key", "Limits", "RetryLine", "RetryQueue"]

Key = tuple[Scope, str]
"""A memory, and a thread in it."""


class Limits(msgspec.Struct, frozen=True):
    """How many deliveries wait at most, and how many bytes of text; the pauses between two attempts, in seconds.

    `attempts` is how often a delivery is tried that fails for a reason nobody foresaw, before it is given up.
    """

    deliveries: int = 1000
    bytes: int = 64 << 20
    shortest_pause: float = 1.0
    longest_pause: float = 60.0
    attempts: int = 8


class RetryLine:
    """What waits in one thread; `busy` while somebody records there, `guests` are those who have it in hand."""

    def __init__(self) -> None:
        self.parcels: deque[OutboxEntry] = deque()
        self.busy = False
        self.guests = 0
        self.round = 0
        """The last round of attempts that it had its turn in."""


class _Rest(msgspec.Struct, frozen=True):
    """A pause between two attempts: until when, by a monotonic clock, and how many seconds it is."""

    until: float
    seconds: float


class RetryQueue:
    """All that waits; `count` are deliveries."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: dict[Key, RetryLine] = {}
        self._rests: dict[Scope | Key, _Rest] = {}
        self._shut: set[Scope] = set()
        self._round = 0
        self._number = 0
        self._bytes = 0
        self.count = 0

    def of(self, key: Key) -> RetryLine:
        """Return the line of a thread, which may be a new one."""
        return self._lines.setdefault(key, RetryLine())

    def find(self, key: Key) -> RetryLine | None:
        """Return the line of a thread, if there is one."""
        return self._lines.get(key)

    def count_of(self, scope: Scope) -> int:
        """How many deliveries to a memory wait."""
        return sum(len(line.parcels) for (owner, _), line in self._lines.items() if owner == scope)

    def tidy(self, key: Key) -> None:
        """Let go of a line with nothing in it, and of what is known of a scope in which nothing waits."""
        line, scope = self._lines.get(key), key[0]
        if line is None or line.parcels or line.guests or line.busy:
            return
        del self._lines[key]
        self._rests.pop(key, None)
        troubled = scope in self._shut or scope in self._rests
        if troubled and not any(other == scope for other, _ in self._lines):
            self._shut.discard(scope)
            self._rests.pop(scope, None)

    # Deliveries.

    def put(self, line: RetryLine, entry: OutboxEntry, *, first: bool = False) -> list[OutboxEntry]:
        """Have a packed delivery wait, behind the others or before them; return what has to go for it, the oldest."""
        last = line.parcels[-1] if line.parcels and not first else None
        if last is not None and entry.goes_on_from(last):
            # A host that sends the whole conversation each time says it all once more. It keeps its age: of what gives
            # way this is the first that will be sent again.
            entry.immediate = entry.immediate or last.immediate
            entry.number = last.number
            self._take_off(line.parcels.pop())
        else:
            self._number += 1
            entry.number = self._number
        if not line.parcels:
            line.round = self._round
        (line.parcels.appendleft if first else line.parcels.append)(entry)
        self.count += 1
        self._bytes += entry.size
        return self._make_room()

    def take(self, line: RetryLine, entry: OutboxEntry) -> None:
        """Take the first of a line away: it is done with; unless it was given up meanwhile."""
        if line.parcels and line.parcels[0] is entry:
            self._take_off(line.parcels.popleft())

    def _take_off(self, entry: OutboxEntry) -> None:
        self.count -= 1
        self._bytes -= entry.size

    def _make_room(self) -> list[OutboxEntry]:
        gone: list[OutboxEntry] = []
        while self.count > self._limits.deliveries or (self._bytes > self._limits.bytes and self.count > 1):
            oldest = min(self._movable(), key=lambda found: found[1].number, default=None)
            if oldest is None:
                break
            key, entry = oldest
            self._lines[key].parcels.remove(entry)
            self._take_off(entry)
            self.tidy(key)
            gone.append(entry)
        return gone

    def _movable(self) -> Iterator[tuple[Key, OutboxEntry]]:
        """The oldest of each line, but what is being recorded."""
        for key, line in self._lines.items():
            place = 1 if line.busy else 0
            if len(line.parcels) > place:
                yield key, line.parcels[place]

    def clear(self) -> list[OutboxEntry]:
        """Take everything away and return it, also what is being recorded: how that ends nobody may live to see."""
        gone = [entry for line in self._lines.values() for entry in line.parcels]
        for key, line in list(self._lines.items()):
            line.parcels.clear()
            self.tidy(key)
        self.count = self._bytes = 0
        return gone

    # When.

    def is_shut(self, scope: Scope) -> bool:
        """Whether a memory has kept somebody waiting, so that only the background tries it."""
        return scope in self._shut

    def shut(self, scope: Scope) -> None:
        """Leave a memory to the background, as long as anything waits there."""
        self._shut.add(scope)

    def failed(self, key: Key, now: float, *, alone: bool) -> None:
        """Have a thread pause, longer each time; unless it failed `alone`, its whole memory does."""
        resting: Scope | Key = key if alone else key[0]
        known = self._rests.get(resting)
        seconds = self._limits.shortest_pause if known is None else known.seconds * 2
        seconds = min(seconds, self._limits.longest_pause)
        self._rests[resting] = _Rest(now + seconds, seconds)
        for other, line in self._lines.items():
            if other == key or (not alone and other[0] == key[0]):
                line.round = self._round

    def recovered(self, key: Key) -> None:
        """Take note that a memory can be recorded in again."""
        self._shut.discard(key[0])
        self._rests.pop(key[0], None)
        self._rests.pop(key, None)

    def begin_round(self) -> list[Key]:
        """Have all that waits tried once, whenever it was due; return which lines that are."""
        self._round += 1
        return [key for key, line in self._lines.items() if line.parcels]

    def is_to_do(self, key: Key) -> bool:
        """Whether something waits that had no turn yet in the round."""
        line = self._lines.get(key)
        return line is not None and bool(line.parcels) and line.round < self._round

    def next(self, now: float) -> tuple[float, Key | None]:
        """Say when which line is to be tried next; None where all are busy."""
        best: tuple[float, Key | None] = (now + self._limits.longest_pause, None)
        for key, line in self._lines.items():
            if line.busy or not line.parcels:
                continue
            moment = now if line.round < self._round else max(self._until(key), self._until(key[0]))
            if best[1] is None or moment < best[0]:
                best = (moment, key)
        return best

    def _until(self, resting: Scope | Key) -> float:
        rest = self._rests.get(resting)
        return 0.0 if rest is None else rest.until
