"""Worker: learns in the background from what any process records in the memories of a home."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import BackstoryError, NoModelError, StoreError, UnavailableError, UsageError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.disk.side_file import SideFile
from backstory.ledger.engines.changes import StreamChanges
from backstory.version import __version__

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

_WRITTEN_AFTER = 1000
"""An incomplete scan writes down what it found after this many memories that it opened, and more of very many."""

_MOST_SETTLED = 1_000_000
"""The most memories that are noted: a hundred megabytes during the scan. The others are opened at each start."""

_RULES = 1
"""Raised when more of a log counts as pending."""

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
            UsageError: It is none of these.
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


class _Settled(msgspec.Struct):
    """Content of the file: a digest for each memory in which nothing was pending, of the heads that it had then.

    The heads of a memory stand for all of its commits. So as long as they are the same, nothing is pending in it.
    """

    version: int = 1
    digests: list[str] = []


class SettledMemories:
    """The memories that a worker need not open at its start; known from one start to the next by a file.

    A file that is lost, damaged or outdated costs that memories are opened again.

    Args:
        home: The home.
        selection: The memories of the worker: workers of other ones have another file.
    """

    def __init__(self, home: Backstory, selection: Selection) -> None:
        name = "" if selection == Selection() else "-" + sha256(msgspec.json.encode(selection)).hexdigest()[:8]
        self._home = home
        self._file = SideFile(home.home / f"worker{name}.json", _Settled, "time at a worker's start")
        # Another witness has to get the heads, and opening a memory sends them.
        self._salt = f"{_RULES} {__version__} {home.config.settings.witness}".encode()
        self._left: set[str] | None = None
        """What the file has, without what was found again since; None before it was read."""
        self._found: set[str] = set()
        self._added = 0
        """How many were found since the file was written that it does not have."""

    def digest(self, scope: Scope) -> str:
        """Return what stands for the heads of a memory.

        Raises:
            StoreError, CorruptLogError: They cannot be read.
        """
        streams = [scope.stream(LEDGER), scope.stream(TRANSCRIPT)]
        looks = self._home.store.capabilities().looks
        heads = [look.head for look in looks(streams)] if looks is not None else map(self._home.store.head, streams)
        return sha256(b"\n".join([self._salt, *(head.hash.encode() for head in heads)])).hexdigest()[:24]

    def holds(self, digest: str) -> bool:
        """Whether nothing is pending at some heads, as far as known."""
        left = self._read()
        if digest in left:
            left.remove(digest)
            self._found.add(digest)
        return digest in self._found

    def add(self, digest: str) -> None:
        """Note that nothing is pending at some heads."""
        if len(self._read()) + len(self._found) < _MOST_SETTLED:
            self._found.add(digest)
            self._added += 1

    def write(self, *, complete: bool) -> None:
        """Write what is known; now and then, and when the scan is `complete`, after which the rest is outdated."""
        left = set() if complete else self._read()
        if complete:
            due = bool(self._added or self._read())
        else:
            due = self._added >= max(_WRITTEN_AFTER, len(self._found) // 4)
        if due:
            try:
                self._file.write(_Settled(1, sorted(self._found | left)))
            except StoreError as error:
                _log.debug(
                    "%s cannot be written: more memories are opened at the next start: %s", self._file.path, error
                )
            self._added = 0
        if complete:
            self._left, self._found = None, set()

    def _read(self) -> set[str]:
        if self._left is None:
            try:
                self._left = set((self._file.read() or _Settled()).digests)
            except OSError as error:
                _log.debug("%s cannot be read: %s", self._file.path, error)
                self._left = set()
        return self._left


class Worker:
    """Watches the memories of a home for turns that any process records; the home's producer learns from them.

    Turns may be pending in any memory when it starts. It goes through all of them once, a moment at a time, and looks
    for new turns in between: those never wait for the scan. It opens those that have changed since a worker found
    nothing pending in them.

    Several workers may take care of the same memories: each update takes a lease.

    Args:
        home: A home with a model and background learning.
        selection: The memories it takes care of.
        poll_seconds: How often it looks for new turns; chosen by the home's debounce unless given.
        scan_seconds: How long the scan goes on between two looks.
        gently: Whether the scan pauses half of the time, in a process that has other things to do.
    """

    def __init__(
        self,
        home: Backstory,
        selection: Selection | None = None,
        *,
        poll_seconds: float | None = None,
        scan_seconds: float = _SCAN_SECONDS,
        gently: bool = False,
    ) -> None:
        self._home = home
        self._selection = selection or Selection()
        self._poll_seconds = poll_of(home.config.settings.debounce_seconds) if poll_seconds is None else poll_seconds
        self._scan_seconds = scan_seconds
        self._gently = gently
        self._changes = StreamChanges(home.store)
        self._settled = SettledMemories(home, self._selection)
        self._scan: Iterator[str] | None = None
        """The streams that the scan has still to go through; None while it does not go on."""
        self._scanned = ""
        """The stream that the scan has come to, in the order of their names."""
        self._is_scanned = False
        self.has_begun = threading.Event()
        """Set once the scan is over, or could not go on."""
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
        try:
            while not self._stopped.is_set():
                begun = time.monotonic()
                self.look()
                if self._is_scanned or not self.answered:
                    self.has_begun.set()
                pause = self._pause(time.monotonic() - begun)
                self._expected = time.monotonic() + pause
                self._stopped.wait(pause)
        finally:
            self.has_begun.set()

    def _pause(self, took: float) -> float:
        """Return how long to wait after a look: hardly in the scan, and no longer than usual after a failure."""
        if not self.answered:
            return self._poll_seconds
        if self._scan is not None:
            return took if self._gently else 0.0
        return max(self._poll_seconds, _PAUSES * took)

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
                if (owner := self._owner(stream)) is not None:
                    self._watch(owner)
                if self._stopped.is_set():
                    return
            if not self._is_scanned:
                self._go_on_scanning()
            self.answered, self.looked = True, time.time()
        except (UnavailableError, OSError) as error:
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
                if (owner := self._owner(stream)) is not None:
                    self._watch_unless_settled(owner)
                self._scanned = stream
            if self._stopped.is_set() or time.monotonic() >= end:
                self._settled.write(complete=False)
                return
        self._settled.write(complete=True)
        self._scan, self._is_scanned, self._expected = None, True, time.monotonic()

    def _owner(self, stream: str) -> Scope | None:
        owner = self._home.owner_of(stream)
        return owner if owner is not None and self._selection.holds(owner) else None

    def _watch_unless_settled(self, scope: Scope) -> None:
        try:
            before = self._settled.digest(scope)
            if self._settled.holds(before):
                return
            if self._watch(scope) is False and self._settled.digest(scope) == before:
                self._settled.add(before)
        except NoModelError:
            raise
        except BackstoryError:
            # What is wrong is said where the memory is opened.
            self._watch(scope)

    def _watch(self, scope: Scope) -> bool | None:
        """Open a memory; return whether something is pending in it, None if it could not be read."""
        self._expected = time.monotonic()
        try:
            pending = self._home.watch(scope)
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
            return None
        self._again.discard(scope)
        return pending


def poll_of(debounce_seconds: float) -> float:
    """Return how many seconds a worker waits between two looks for new turns."""
    shortest, longest = _SECONDS
    return min(longest, max(shortest, _OF_DEBOUNCE * debounce_seconds))


def _has_turns(stream: str) -> bool:
    """Whether a stream is one of turns."""
    return stream.rpartition("/")[2] == TRANSCRIPT
