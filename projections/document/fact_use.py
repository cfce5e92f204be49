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
from backstory.ledger.disk.files import lock_beside, put_in_place, read_json, translated, unfinished
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0
_TRIES = 3
_KEPT = 1024
_MOST_UNWRITTEN = 256
"""The most scopes whose uses wait to be written: each keeps its writer, with all that was read of it."""
_AT_ONCE = 2
_DAY_SECONDS = 86_400.0
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_HALF_LIFE = Policy().eviction_access_half_life_days

Facts = Mapping[str, Access]


class _File(msgspec.Struct, frozen=True):
    """The contents of access.json."""

    version: int
    facts: dict[str, Access]


class _State:
    """The usage of one scope."""

    def __init__(self, now: datetime) -> None:
        self.facts: dict[str, Access] = {}
        self.seen: tuple[int, ...] | None = None
        """The stamp of the file that was read last."""
        self.written = now
        self.half_life = _HALF_LIFE
        self.warned = False


class FactUse:
    """Tracks the usage of the facts of each scope; safe for threads, processes and forks.

    Args:
        document: returns the path of a scope's memory.json.
        clock: the time of uses.
        every: the fewest seconds between two writes of a file, unless `flush` is called.
        patience: how many seconds to wait for another process's lock.
    """

    def __init__(
        self,
        document: Callable[[Scope], Path],
        clock: Clock,
        *,
        every: float = _EVERY_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._document = document
        self._clock = clock
        self._every = every
        self._locks = FileLocks(patience, SystemClock())
        self._mutex = threading.Lock()
        self._states: dict[Scope, _State] = {}
        self._unwritten: dict[Scope, Writer] = {}
        """The writers of the scopes with uses that are not written yet; what waits for longest comes first."""

    def touch(self, writer: Writer, fact_ids: Iterable[str]) -> int:
        """Count one use of each live fact, and return how many of the ids are live."""
        memory = writer.memory()
        used = [fact_id for fact_id in dict.fromkeys(fact_ids) if fact_id in memory.facts]
        if not used:
            return 0
        now = self._clock.now()
        with self._mutex:
            state = self._state(writer.scope)
            state.half_life = memory.policy.eviction_access_half_life_days
            at = spell_moment(now)
            for fact_id in used:
                before = state.facts.get(fact_id)
                left = 0.0 if before is None else _left(before, at, state.half_life)
                state.facts[fact_id] = Access(round(left + 1, 6), at)
            self._unwritten[writer.scope] = writer
            # Of another scope, too: its user may not come again, and its writer must not be kept for that.
            due = [each for each in [writer, *islice(self._unwritten.values(), _AT_ONCE)] if self._is_due(each, now)]
        for each in dict.fromkeys(due):
            # Reading a prompt's block must not wait for the file's lock.
            self.flush(each, wait=False)
        with self._mutex:
            # Where nothing can be written.
            while len(self._unwritten) > _MOST_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
        return len(used)

    def _is_due(self, writer: Writer, now: datetime) -> bool:
        if len(self._unwritten) > _MOST_UNWRITTEN:
            return True
        return abs((now - self._states[writer.scope].written).total_seconds()) >= self._every

    def of(self, scope: Scope) -> dict[str, Access]:
        """Return the usage of a scope's facts by id, including what other processes have written."""
        with self._mutex:
            return dict(self._state(scope).facts)

    def flush(self, writer: Writer, *, wait: bool = True) -> None:
        """Write the pending uses; without `wait`, skip the write while another process holds the lock."""
        scope = writer.scope
        with self._mutex:
            if self._unwritten.pop(scope, None) is None:
                return
            self._unwritten[scope] = writer
            self._state(scope).written = self._clock.now()
        try:
            if any(self._write(writer, wait=wait) for _ in range(_TRIES)):
                return
            _log.debug("access.json of %s is written later, because its memory keeps changing", scope)
        except LockTimeoutError as error:
            if wait:
                self._warn(scope, error)
        except (BackstoryError, OSError) as error:
            self._warn(scope, error)

    def close(self) -> None:
        """Write the pending uses of all scopes."""
        with self._mutex:
            writers = list(self._unwritten.values())
        for writer in writers:
            self.flush(writer)
        self._locks.close()

    def purge(self, scope: Scope, writer: Writer | None = None) -> None:
        """Remove access.json; with a writer, the next flush writes the usage of the facts that are live then.

        The caller holds the ledger's lock.

        Raises:
            StoreError: the file cannot be removed.
            LockTimeoutError: another process holds its lock.
        """
        path = self._path(scope)
        if not path.exists() and not unfinished(path).exists():
            return
        with self._locks.held(lock_beside(path)), translated(path, "remove"):
            with self._mutex:
                self._state(scope).seen = None
                self._unwritten.pop(scope, None)
                if writer is not None:
                    self._unwritten[scope] = writer
            for file in (path, unfinished(path)):
                file.unlink(missing_ok=True)

    def _write(self, writer: Writer, *, wait: bool) -> bool:
        """Merge with the file and write it; return False where memory has changed meanwhile."""
        memory, head = writer.reader.standing()
        if head.seq == 0:
            # The memory was removed. The lock of the file would make its folder again.
            with self._mutex:
                self._states.pop(writer.scope, None)
                self._unwritten.pop(writer.scope, None)
            return True
        path = self._path(writer.scope)
        with self._locks.held(lock_beside(path), wait=wait):
            # An erasure purges the file and then moves the head: erased facts must not be written again.
            if writer.store.durable_head(writer.ledger) != head:
                return False
            with self._mutex:
                state = self._state(writer.scope)
                state.facts = {fact_id: state.facts[fact_id] for fact_id in state.facts if fact_id in memory.facts}
                facts = dict(state.facts)
                self._unwritten.pop(writer.scope, None)
            try:
                _replace(path, facts)
            except BaseException:
                with self._mutex:
                    self._unwritten[writer.scope] = writer
                raise
            with self._mutex:
                state.seen = _stamp(path)
        return True

    def _state(self, scope: Scope) -> _State:
        """Return the usage of a scope, merged with its file if that has changed."""
        state = self._states.get(scope)
        if state is None:
            if len(self._states) >= _KEPT:
                self._states = {of: state for of, state in self._states.items() if of in self._unwritten}
            state = self._states[scope] = _State(self._clock.now())
        path = self._path(scope)
        try:
            seen = _stamp(path)
            if seen is not None and seen != state.seen:
                stored = _usable(read_json(path, _File, "warmth"), spell_moment(self._clock.now()))
                state.facts = _merged(state.facts, stored, state.half_life)
            state.seen = seen
        except OSError as error:
            _log.debug("%s cannot be read: %s", path, error)
        return state

    def _warn(self, scope: Scope, error: Exception) -> None:
        with self._mutex:
            state = self._state(scope)
            # Warn once, and not at all for a home that is read-only.
            cause = error.__cause__ or error
            quiet = state.warned or (isinstance(cause, OSError) and cause.errno in _REFUSED)
            state.warned = True
        level = logging.DEBUG if quiet else logging.WARNING
        _log.log(level, "the usage of facts of %s cannot be stored for now, which is safe: %s", scope, error)

    def _path(self, scope: Scope) -> Path:
        return self._document(scope).with_name("access.json")

    def renew(self) -> None:
        """Begin anew in a child of this process; what is not written is the parent's to write."""
        self._mutex = threading.Lock()
        self._states, self._unwritten = {}, {}


def _left(access: Access, at: str, half_life: float) -> float:
    """Return the heat that is left at a later time."""
    then, now = parse_moment(access.at), parse_moment(at)
    if then is None or now is None:
        return 0.0
    return float(access.heat * 2 ** (-max(0.0, (now - then).total_seconds()) / _DAY_SECONDS / half_life))


def _merged(ours: Facts, theirs: Facts, half_life: float) -> dict[str, Access]:
    """Merge two usages: of each fact the later use, and the higher heat at that time."""
    merged = {**ours, **theirs}
    for fact_id in ours.keys() & theirs.keys():
        older, newer = sorted((ours[fact_id], theirs[fact_id]), key=lambda access: access.at)
        merged[fact_id] = Access(max(newer.heat, round(_left(older, newer.at, half_life), 6)), newer.at)
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


def _replace(path: Path, facts: dict[str, Access]) -> None:
    with translated(path, "write"):
        if facts:
            put_in_place(path, msgspec.json.encode(_File(1, facts)))
        else:
            path.unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what identifies one version of a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)
