"""Which facts were used of late: what the hybrid ranking asks for when memory is full.

Each use of a fact adds 1 to its heat, which halves in `eviction_access_half_life_days`. It is kept in `access.json`
beside memory.json. Whoever loses that file loses warmth and nothing else: so it is written now and then, is never
synced, and what goes wrong with it is logged and not raised. Processes that use the same facts merge what they know,
under a lock of its own.

That lock and the mutex here are taken while a writer's own are held, so with either of them no writer is asked.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError
from backstory.ledger.core.events import Access
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.store.files import lock_beside, put_in_place, read_json, translated, unfinished
from backstory.ledger.log.store.locks import FileLocks
from backstory.ledger.log.writer import Writer

__all__ = ["UsageTracker"]

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0
_TRIES = 3
_KEPT = 1024
_DAY_SECONDS = 86_400.0
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_HALF_LIFE = Policy().eviction_access_half_life_days

Facts = Mapping[str, Access]


class _File(msgspec.Struct, frozen=True):
    """What access.json says."""

    version: int
    facts: dict[str, Access]


class _State:
    """What is known of one scope; `writer` is there as long as something is not written yet."""

    def __init__(self, now: datetime) -> None:
        self.facts: dict[str, Access] = {}
        self.seen: tuple[int, ...] | None = None
        """Which file was read last."""
        self.written = now
        self.half_life = _HALF_LIFE
        self.writer: Writer | None = None
        self.told = False


class UsageTracker:
    """How much each scope's facts were used of late; safe for threads, processes and forks.

    `document` says where a scope's memory.json lies. Of what is used, `every` so many seconds something is written at
    most, unless it is asked for; `patience` is how many seconds to wait for another process.
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
        register(self)

    def touch(self, writer: Writer, fact_ids: Iterable[str]) -> int:
        """Note that live facts were used, each once; return how many of the ids are live."""
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
            state.writer = writer
            due = abs((now - state.written).total_seconds()) >= self._every
        if due:
            # Who reads a prompt's block waits for nobody who keeps the file.
            self.flush(writer, wait=False)
        return len(used)

    def of(self, scope: Scope) -> dict[str, Access]:
        """Return what is known of a scope's facts by their ids, what other processes have written included."""
        with self._mutex:
            return dict(self._state(scope).facts)

    def flush(self, writer: Writer, *, wait: bool = True) -> None:
        """Write what is not written yet; without `wait` only where no other process is writing it just now."""
        scope = writer.scope
        with self._mutex:
            state = self._states.get(scope)
            if state is None or state.writer is None:
                return
            state.written = self._clock.now()
        try:
            if any(self._write(writer, wait=wait) for _ in range(_TRIES)):
                return
            _log.debug("access.json of %s is written later: its memory changes all the time", scope)
        except LockTimeoutError as error:
            if wait:
                self._tell(scope, error)
        except (BackstoryError, OSError) as error:
            self._tell(scope, error)

    def close(self) -> None:
        """Write everything that is not written yet."""
        with self._mutex:
            writers = [state.writer for state in self._states.values() if state.writer is not None]
        for writer in writers:
            self.flush(writer)
        self._locks.close()

    def purge(self, scope: Scope, writer: Writer | None = None) -> None:
        """Take access.json away; with the writer, the next one tells of the facts that are live then.

        The caller holds the ledger's lock.

        Raises:
            StoreError: it cannot be removed. LockTimeoutError: another process keeps it.
        """
        path = self._path(scope)
        if not path.exists() and not unfinished(path).exists():
            return
        with self._locks.held(lock_beside(path)), translated(path, "remove"):
            with self._mutex:
                state = self._state(scope)
                state.writer = writer
                state.seen = None
            for file in (path, unfinished(path)):
                file.unlink(missing_ok=True)

    def _write(self, writer: Writer, *, wait: bool) -> bool:
        """Merge with what others have written, and write it; False where memory has changed under our hands."""
        memory, head = writer.reader.standing()
        path = self._path(writer.scope)
        with self._locks.held(lock_beside(path), wait=wait):
            # What is forgotten meanwhile must not come back: an erasure purges, and then moves the head.
            if writer.store.durable_head(writer.ledger) != head:
                return False
            with self._mutex:
                state = self._state(writer.scope)
                state.facts = {fact_id: state.facts[fact_id] for fact_id in state.facts if fact_id in memory.facts}
                facts, state.writer = dict(state.facts), None
            try:
                _replace(path, facts)
            except BaseException:
                with self._mutex:
                    state.writer = writer
                raise
            with self._mutex:
                state.seen = _stamp(path)
        return True

    def _state(self, scope: Scope) -> _State:
        """What is known of a scope, with what its file says by now."""
        state = self._states.get(scope)
        if state is None:
            if len(self._states) >= _KEPT:
                self._states = {scope: state for scope, state in self._states.items() if state.writer is not None}
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

    def _tell(self, scope: Scope, error: Exception) -> None:
        with self._mutex:
            state = self._state(scope)
            # A reader of a home that cannot be written need not hear of it, and nobody need hear of it twice.
            cause = error.__cause__ or error
            quiet = state.told or (isinstance(cause, OSError) and cause.errno in _REFUSED)
            state.told = True
        level = logging.DEBUG if quiet else logging.WARNING
        _log.log(level, "which facts of %s were used is not kept for now, which is safe: %s", scope, error)

    def _path(self, scope: Scope) -> Path:
        return self._document(scope).with_name("access.json")

    def renew(self) -> None:
        """Begin anew in a child of this process; what is not written is the parent's to write."""
        self._mutex = threading.Lock()
        self._states = {}


def _left(access: Access, at: str, half_life: float) -> float:
    """What is left of a heat at a later time."""
    then, now = parse_moment(access.at), parse_moment(at)
    if then is None or now is None:
        return 0.0
    return float(access.heat * 2 ** (-max(0.0, (now - then).total_seconds()) / _DAY_SECONDS / half_life))


def _merged(ours: Facts, theirs: Facts, half_life: float) -> dict[str, Access]:
    """Of two that know a fact take the later use, and the higher heat that is left by then."""
    merged = {**ours, **theirs}
    for fact_id in ours.keys() & theirs.keys():
        older, newer = sorted((ours[fact_id], theirs[fact_id]), key=lambda access: access.at)
        merged[fact_id] = Access(max(newer.heat, round(_left(older, newer.at, half_life), 6)), newer.at)
    return merged


def _usable(stored: _File | None, now: str) -> dict[str, Access]:
    """Return what can be; a time to come is now, since a clock was set back."""
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
    """Tell one version of a file from another."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)
