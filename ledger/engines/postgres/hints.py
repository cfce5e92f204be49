"""Hints of new commits: an append names on a channel the streams that have grown, and a follower of one looks at once.

A hint may be late or missing, and behind a pooler there are none. So a follower looks by itself, too, ten times a
second, and what it returns comes from the table alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from backstory.ledger.concurrency.forks import start_thread
from backstory.ledger.engines.postgres.connections import Connections
from backstory.ledger.engines.postgres.holds import lock_of

__all__ = ["Hints"]

_CHANNEL = "backstory_appended"
_AT_MOST_EVERY = 0.02
"""Seconds between two hints of a process: each is a small transaction of its own."""

_LISTEN_SECONDS = 1.0
_MOST = 500


class Hints:
    """Sends and hears the hints of one store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child, without the thread that listens."""
        self._guard = threading.Lock()
        self._grown: set[int] = set()
        self._sent = 0.0
        self._events: dict[int, list[threading.Event]] = {}
        self._listens = False

    def tell(self, streams: Iterable[str]) -> None:
        """Send a hint that streams have grown, with those of the last fiftieth of a second."""
        with self._guard:
            self._grown.update(map(lock_of, streams))
            if time.monotonic() - self._sent < _AT_MOST_EVERY:
                return
            self._sent = time.monotonic()
            grown, self._grown = list(self._grown)[:_MOST], set()
        # Never in the transaction of an append: PostgreSQL commits those that notify one after the other.
        with suppress(psycopg.Error), self._connections.lent() as connection:
            connection.execute("SELECT pg_notify(%s, n::text) FROM unnest(%s::bigint[]) AS n", (_CHANNEL, grown))

    @contextmanager
    def heard(self, stream: str) -> Iterator[threading.Event]:
        """Yield an event that is set when a hint of a stream arrives, if one does."""
        event, number = threading.Event(), lock_of(stream)
        with self._guard:
            self._events.setdefault(number, []).append(event)
            starts, self._listens = not self._listens, True
        if starts and start_thread("backstory-postgres-hints", self._listen) is None:
            self._listens = False
        try:
            yield event
        finally:
            with self._guard:
                # A forked child has begun anew, and may drop a follower of its parent.
                events = self._events.get(number, [])
                if event in events:
                    events.remove(event)
                    if not events:
                        del self._events[number]

    def _listen(self) -> None:
        try:
            with self._connections.connected() as connection:
                told = connection.execute("SELECT pg_backend_pid()").fetchone()
                if told != (connection.info.backend_pid,):
                    # A pooler lends another connection for each transaction: nothing would arrive.
                    return
                connection.execute("LISTEN backstory_appended")
                while self._is_wanted():
                    for hint in connection.notifies(timeout=_LISTEN_SECONDS):
                        self._wake(int(hint.payload))
        except (psycopg.Error, ValueError):
            # Followers look by themselves; the next one that begins has it tried again.
            with self._guard:
                self._listens = False

    def _is_wanted(self) -> bool:
        with self._guard:
            self._listens = bool(self._events)
            return self._listens

    def _wake(self, number: int) -> None:
        with self._guard:
            for event in self._events.get(number, ()):
                event.set()
