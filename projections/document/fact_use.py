"""Usage tracker: how much each fact was used recently, for the hybrid ranking of evictions.

Each use of a fact adds 1 to its heat, which halves in `eviction_access_half_life_days`. The heat is stored in
`access.json` beside memory.json. Losing that file loses only the heat, so it is written now and then and never synced,
and failures are logged, not raised. Processes merge their uses, under a lock of the file's own.

A writer may hold its locks while it takes that lock or the mutex here. So no writer is called under either of them.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError
from backstory.ledger.core.events import Access
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.disk.side_file import SideFile
from backstory.ledger.log.writer import Writer
from backstory.ledger.rules.ranking import decayed
from backstory.projections.read_model import ReadModel

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
"""The fewest seconds between two writes of a file, unless `ScopeUse.flush` is called."""
_PATIENCE_SECONDS = 1.0
_TRIES = 3
_MOST_UNWRITTEN = 256
"""The most memories whose uses wait to be written: each is kept, with all that was read of it."""
_AT_ONCE = 2
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_HALF_LIFE = Policy().eviction_access_half_life_days

UsedFacts = Mapping[str, Access]


class _File(msgspec.Struct, frozen=True):
    """The contents of access.json."""

    version: int
    facts: dict[str, Access]


class FactUse:
    """What the usages of a home's memories share; safe for threads, processes and forks.

    Args:
        clock: the time of uses.
        patience: how many seconds to wait for another process's lock.
    """

    def __init__(self, clock: Clock, *, patience: float = _PATIENCE_SECONDS) -> None:
        self.clock = clock
        self.locks = FileLocks(patience, SystemClock())
        self.renew()

    def renew(self) -> None:
        """Begin anew in a child of this process; what is not written is the parent's to write."""
        self.mutex = threading.Lock()
        self.unwritten: dict[ScopeUse, None] = {}
        """The memories with uses that are not written yet; what waits for longest comes first."""

    def close(self) -> None:
        """Write the pending uses of all memories."""
        with self.mutex:
            unwritten = list(self.unwritten)
        for use in unwritten:
            use.flush()


class ScopeUse(ReadModel):
    """The usage of the facts of one memory.

    Args:
        home: what all memories of the home share.
        path: the path of access.json.
        writer: returns the memory's writer.
    """

    def __init__(self, home: FactUse, path: Path, writer: Callable[[], Writer]) -> None:
        self._home = home
        self._file = SideFile(path, _File, "the recent use of facts")
        self._writer = writer
        self.renew()

    def renew(self) -> None:
        """Begin anew in a child of this process."""
        self._facts: dict[str, Access] = {}
        self._seen: tuple[int, ...] | None = None
        """The stamp of the file that was read last."""
        self._written = self._home.clock.now()
        self._half_life = _HALF_LIFE
        self._warned = False

    def touch(self, fact_ids: Iterable[str]) -> int:
        """Count one use of each live fact, and return how many of the ids are live."""
        home, memory = self._home, self._writer().memory()
        used = [fact_id for fact_id in dict.fromkeys(fact_ids) if fact_id in memory.facts]
        if not used:
            return 0
        now = home.clock.now()
        with home.mutex:
            self._read()
            self._half_life = memory.policy.eviction_access_half_life_days
            at = spell_moment(now)
            for fact_id in used:
                before = self._facts.get(fact_id)
                left = 0.0 if before is None else before.heat * decayed(before.at, at, self._half_life)
                self._facts[fact_id] = Access(round(left + 1, 6), at)
            home.unwritten[self] = None
            # Of another memory, too: its user may not come again, and its writer must not be kept for that.
            due = [each for each in [self, *islice(home.unwritten, _AT_ONCE)] if each.is_due(now)]
        for each in dict.fromkeys(due):
            # Reading a prompt's block must not wait for the file's lock.
            each.flush(wait=False)
        with home.mutex:
            # Where nothing can be written.
            while len(home.unwritten) > _MOST_UNWRITTEN:
                del home.unwritten[next(iter(home.unwritten))]
        return len(used)

    def is_due(self, now: datetime) -> bool:
        """Whether the pending uses are to be written now."""
        if len(self._home.unwritten) > _MOST_UNWRITTEN:
            return True
        return abs((now - self._written).total_seconds()) >= _EVERY_SECONDS

    def facts(self) -> dict[str, Access]:
        """Return the usage of the facts by id, including what other processes have written."""
        with self._home.mutex:
            self._read()
            return dict(self._facts)

    def flush(self, *, wait: bool = True) -> None:
        """Write the pending uses; without `wait`, skip the write while another process holds the lock."""
        home, scope = self._home, self._writer().scope
        with home.mutex:
            if self not in home.unwritten:
                return
            del home.unwritten[self]
            home.unwritten[self] = None
            self._written = home.clock.now()
        try:
            if any(self._write(wait=wait) for _ in range(_TRIES)):
                return
            _log.debug("access.json of %s is written later, because its memory keeps changing", scope)
        except LockTimeoutError as error:
            if wait:
                self._warn(scope, error)
        except (BackstoryError, OSError) as error:
            self._warn(scope, error)

    def purge(self) -> None:
        """Remove access.json; the next flush writes the usage of the facts that are live then."""
        home, file = self._home, self._file
        if not file.is_there():
            return
        with home.locks.held(file.lock):
            with home.mutex:
                self._read()
                self._seen = None
                home.unwritten.pop(self, None)
                home.unwritten[self] = None
            file.remove()

    def _write(self, *, wait: bool) -> bool:
        """Merge with the file and write it; return False where memory has changed meanwhile."""
        home, file, writer = self._home, self._file, self._writer()
        memory, head = writer.reader.standing()
        if head.seq == 0:
            # The memory was removed. The lock of the file would make its folder again.
            with home.mutex:
                self._facts = {}
                home.unwritten.pop(self, None)
            return True
        with home.locks.held(file.lock, wait=wait):
            # An erasure purges the file and then moves the head: erased facts must not be written again.
            if writer.store.durable_head(writer.ledger) != head:
                return False
            with home.mutex:
                self._read()
                self._facts = {fact_id: self._facts[fact_id] for fact_id in self._facts if fact_id in memory.facts}
                facts = dict(self._facts)
                home.unwritten.pop(self, None)
            try:
                file.write(_File(1, facts)) if facts else file.remove()
            except BaseException:
                with home.mutex:
                    home.unwritten[self] = None
                raise
            with home.mutex:
                self._seen = file.stamp()
        return True

    def _read(self) -> None:
        """Merge with the file, if that has changed; the caller holds the mutex."""
        try:
            seen = self._file.stamp()
            if seen is not None and seen != self._seen:
                stored = _usable(self._file.read(), spell_moment(self._home.clock.now()))
                self._facts = _merged(self._facts, stored, self._half_life)
            self._seen = seen
        except OSError as error:
            _log.debug("%s cannot be read: %s", self._file.path, error)

    def _warn(self, scope: Scope, error: Exception) -> None:
        # Warn once, and not at all for a home that is read-only.
        cause = error.__cause__ or error
        quiet = self._warned or (isinstance(cause, OSError) and cause.errno in _REFUSED)
        self._warned = True
        level = logging.DEBUG if quiet else logging.WARNING
        _log.log(level, "the usage of facts of %s cannot be stored for now, which is safe: %s", scope, error)


def _merged(ours: UsedFacts, theirs: UsedFacts, half_life: float) -> dict[str, Access]:
    """Merge two usages: of each fact the later use, and the higher heat at that time."""
    merged = {**ours, **theirs}
    for fact_id in ours.keys() & theirs.keys():
        older, newer = sorted((ours[fact_id], theirs[fact_id]), key=lambda access: access.at)
        left = older.heat * decayed(older.at, newer.at, half_life)
        merged[fact_id] = Access(max(newer.heat, round(left, 6)), newer.at)
    return merged


def _usable(stored: _File | None, now: str) -> dict[str, Access]:
    """Return the valid entries; a time in the future, of a clock set back since, becomes now."""
    return {
        fact_id: Access(access.heat, min(access.at, now))
        for fact_id, access in ({} if stored is None else stored.facts).items()
        if math.isfinite(access.heat) and access.heat > 0 and _is_moment(access.at)
    }


def _is_moment(text: str) -> bool:
    moment = parse_moment(text)
    return moment is not None and spell_moment(moment) == text
