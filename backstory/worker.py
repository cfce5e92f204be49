"""Worker: learns in the background from what any process records in the memories of a home."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import BackstoryError, NoModelError, UnavailableError, UsageError
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.ledger.engines.changes import StreamChanges

if TYPE_CHECKING:
    from backstory.home import Backstory

__all__ = ["Selection", "Worker", "poll_of"]

_log = logging.getLogger(__name__)

_SECONDS = (1.0, 5.0)
"""How often it looks for new turns at most, and at least."""

_OF_DEBOUNCE = 0.1
"""It looks so often within `debounce_seconds`, before whose end no conversation is learned from."""

_PAUSES = 4
"""How many times as long as a look takes it pauses at least, where there are very many memories to look at."""

_LISTING_SECONDS = 3600.0
"""How long it may take an engine to list the names of very many streams, which is no sign of a worker that hangs."""

_SCAN_SECONDS = 1.0
"""How long it goes through the memories that were there at its start, before it looks for new turns again."""


class Selection(msgspec.Struct, frozen=True):
    """The memories that a worker takes care of: all, or those of users by the beginning of their ids or by shard.

    The memory that all users share belongs to each prefix of no letters, and to the shard of an empty id.
    """

    prefix: str = ""
    shard: int = 1
    shards: int = 1

    @classmethod
    def of(cls, text: str) -> Selection:
        """Read a selection: `acme-*` for ids that begin so, `2/8` for the second of eight shards, `*` for all.

        Raises:
            UsageError: it is none of these.
        """
        if text.endswith("*"):
            return cls(prefix=text[:-1])
        shard, slash, shards = text.partition("/")
        if slash and shard.isdecimal() and shards.isdecimal() and 1 <= int(shard) <= int(shards):
            return cls(shard=int(shard), shards=int(shards))
        raise UsageError(f"--scopes is a beginning of user ids such as 'acme-*', or a shard such as 2/8, got {text!r}")

    def holds(self, scope: Scope) -> bool:
        """Whether a memory is one of them; one of an agent goes with its user."""
        user = scope.user or ""
        # Not Python's own hash, which differs from process to process.
        return (
            user.startswith(self.prefix) and zlib.crc32(user.encode("utf-8", "replace")) % self.shards == self.shard - 1
        )


class Worker:
    """Watches the memories of a home for turns that any process records; the home's producer learns from them.

    Turns may be pending in any memory when it starts. It goes through all of them once, a moment at a time, and looks
    for new turns in between: those never wait for the scan.

    Several workers may take care of the same memories: each update takes a lease.

    Args:
        home: A home with a model and background learning.
        selection: The memories it takes care of.
        poll_seconds: How often it looks for new turns; chosen by the home's debounce unless given.
        scan_seconds: How long the scan goes on between two looks.
        scan: Whether it goes through the memories that are there at its start; otherwise it looks for changes only.
    """

    def __init__(
        self,
        home: Backstory,
        selection: Selection | None = None,
        *,
        poll_seconds: float | None = None,
        scan_seconds: float = _SCAN_SECONDS,
        scan: bool = True,
    ) -> None:
        self._home = home
        self._selection = selection or Selection()
        self._poll_seconds = poll_of(home.config.settings.debounce_seconds) if poll_seconds is None else poll_seconds
        self._scan_seconds = scan_seconds
        self._changes = StreamChanges(home.store)
        self._scan: Iterator[str] | None = None
        """The streams that the scan has still to go through; None while it does not go on."""
        self._scanned = ""
        """The stream that the scan has come to, in the order of their names."""
        self._is_scanned = not scan
        self._again: set[Scope] = set()
        """The memories that could not be read."""
        self._stopped = threading.Event()
        self.answered = False
        """Whether the engine answered when it was asked last."""
        self.looked: float | None = None
        """When the last look ended that the engine answered, in seconds since 1970; None before the first."""
        self._expected = time.monotonic()
        """When it was to go on: it pauses until then, or has been at one memory since."""

    def seconds_late(self) -> float:
        """Return for how long it has been at one step; below 0 in a pause."""
        return time.monotonic() - self._expected

    def run(self) -> None:
        """Look for new turns until `stop` is called. An engine that cannot be reached is tried again.

        Raises:
            NoModelError: The home does not learn in the background.
        """
        while not self._stopped.is_set():
            begun = time.monotonic()
            self.look()
            pause = self._pause(time.monotonic() - begun)
            self._expected = time.monotonic() + pause
            self._stopped.wait(pause)

    def _pause(self, took: float) -> float:
        """Return how long to wait after a look: not at all in the scan, and no longer than usual after a failure."""
        if not self.answered:
            return self._poll_seconds
        return 0.0 if self._scan is not None else max(self._poll_seconds, _PAUSES * took)

    def stop(self) -> None:
        """End `run`; safe in a signal handler. What is under way ends when the home is closed."""
        self._stopped.set()

    def look(self) -> None:
        """Look for new turns once, and go on with the scan; see `run`."""
        for scope in tuple(self._again):
            if self._stopped.is_set():
                return
            self._watch(scope)
        try:
            for stream in self._changes.find(_has_turns):
                self.answered = True
                self._take(stream)
                if self._stopped.is_set():
                    return
            if not self._is_scanned:
                self._go_on_scanning()
            self.answered, self.looked = True, time.time()
        except UnavailableError as error:
            self._scan = None
            self.answered = False
            _log.warning("no memory could be looked at: %s", error)

    def _go_on_scanning(self) -> None:
        # The changes were asked for before: what is recorded from here on is one.
        if self._scan is None:
            self._scan = filter(_has_turns, self._home.store.streams())
            # An engine may have to list all names before it returns the first one.
            self._expected = time.monotonic() + _LISTING_SECONDS
        end = time.monotonic() + self._scan_seconds
        for stream in self._scan:
            self._expected = time.monotonic()
            if stream > self._scanned:
                self._take(stream)
                self._scanned = stream
            if self._stopped.is_set() or time.monotonic() >= end:
                return
        self._scan, self._is_scanned, self._expected = None, True, time.monotonic()

    def _take(self, stream: str) -> None:
        owner = self._home.owner_of(stream)
        if owner is not None and self._selection.holds(owner):
            self._watch(owner)

    def _watch(self, scope: Scope) -> None:
        self._expected = time.monotonic()
        try:
            self._home.watch(scope)
        except NoModelError:
            raise
        except BackstoryError as error:
            # Said once: a damaged log stays so until a person mends it.
            _log.log(
                logging.DEBUG if scope in self._again else logging.WARNING,
                "%s was not looked at, and is tried again: %s",
                scope,
                error,
            )
            self._again.add(scope)
        else:
            self._again.discard(scope)


def poll_of(debounce_seconds: float) -> float:
    """Return how many seconds a worker waits between two looks for new turns."""
    shortest, longest = _SECONDS
    return min(longest, max(shortest, _OF_DEBOUNCE * debounce_seconds))


def _has_turns(stream: str) -> bool:
    """Whether a stream is one of turns."""
    return stream.rpartition("/")[2] == TRANSCRIPT
