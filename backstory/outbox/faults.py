"""Faults of memory: failures that an agent survived. Each kind is logged once, counted, and shown by `status`.

Counts are in `faults.json` beside memory.json, shared by all processes. The file holds only counts, so it is never
synced, and an error with it is logged, not raised; the counts then stay in this process. It holds no content: only
names of error classes, times and our own messages about files.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, InputError, LockTimeoutError, StoreError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import MAX_NAME, clip, safe_text
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.disk.side_file import SideFile
from backstory.ledger.learning.observing import CallEnded, Observer
from backstory.projections.read_model import ReadModel
from backstory.results import FaultCount

_log = logging.getLogger(__name__)

_AGE = timedelta(days=7)
_KINDS = 50
_UNWRITTEN = 1024
"""The most memories whose counts wait to be written."""
_LONGEST = 300
_MOST = 2**53
_EVERY_SECONDS = 1.0
_PATIENCE_SECONDS = 0.05
_PURGE_SECONDS = 5.0
"""An erasure may wait longer for the lock than a count, which must not delay an agent."""
_VERSION = 1

_Key = tuple[str, str]
_Counts = dict[_Key, FaultCount]


class HasScope(Protocol):
    """A memory, as far as faults are concerned."""

    @property
    def scope(self) -> Scope:
        """Whose memory it is."""


class _File(msgspec.Struct, frozen=True):
    """The content of faults.json."""

    version: int
    faults: tuple[FaultCount, ...]
    good: dict[str, str] = {}
    """When an action last succeeded after faults, by its name: earlier faults of it are not counted any more."""


class SkippedReads(msgspec.Struct, frozen=True):
    """A slow memory that is not read before `until`; skipped reads are counted as faults of `kind`."""

    until: float
    kind: str


class ScopeFaults(ReadModel):
    """The faults of one memory in this process; `Faults` counts them.

    Args:
        faults: Counts them.
        scope: The memory.
        path: The path of faults.json.
        owner: What is kept while counts wait to be written.
    """

    def __init__(self, faults: Faults, scope: Scope, path: Path, owner: object = None) -> None:
        self._faults = faults
        self.scope = scope
        self.file = _file(path)
        self.owner = owner
        self.unread: SkippedReads | None = None
        """Whether reads are skipped; see `FailSafeMemory`."""
        self.renew()

    def renew(self) -> None:
        """Start empty in a forked child; the parent writes its own pending counts."""
        self.fresh: _Counts = {}
        """Counts that are not written yet."""
        self.filed: set[_Key] = set()
        """Kinds that this process has written before."""
        self.logged: set[_Key] = set()
        """Kinds that were logged since the last success."""
        self.written: datetime | None = None
        """The time of the last attempt to write."""
        self.good: dict[str, str] = {}
        """Successes after faults that are not written yet; see `_File.good`."""

    def purge(self) -> None:
        """Delete the counts, and faults.json."""
        self._faults.purge(self)


class Faults:
    """Fault counts of each memory. Safe for threads, processes and forks.

    The action and the class of the error name a kind of fault. A count expires 7 days after its last fault. The newest
    50 kinds are kept.

    Args:
        clock: Dates the faults.
        state_of: Returns the faults of a memory.
        every: Minimum seconds between two writes of known kinds.
        patience: Seconds to wait for the lock of the file.
    """

    def __init__(
        self,
        clock: Clock,
        state_of: Callable[[Scope], ScopeFaults],
        *,
        every: float = _EVERY_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self.state_of = state_of
        self._clock = clock
        self._every = timedelta(seconds=every)
        self._locks = FileLocks(patience, SystemClock())
        self._purging = FileLocks(_PURGE_SECONDS, SystemClock())
        self.renew()

    def renew(self) -> None:
        """Start empty in a forked child."""
        self._mutex = threading.RLock()
        self._unwritten: dict[ScopeFaults, None] = {}
        """The memories with pending counts, the oldest first."""

    def note(self, memory: HasScope | Scope, doing: str, error: BaseException) -> None:
        """Count a fault, and log it if it is the first of its kind since the last success.

        Args:
            memory: The memory that failed.
            doing: The action that failed, such as `record`.
            error: The error; its class is the kind of the fault.
        """
        scope, kind = scope_of(memory), type(error).__name__
        if self.count(scope, doing, kind, _detail(error), log=False):
            ours = isinstance(error, BackstoryError | OSError)
            said = str(error) if ours else "this error is unexpected, please report it"
            if isinstance(error, InputError) and doing in ("record", "inject"):
                # The error may quote a message, and a log must not contain content.
                said = "a message cannot be read; give it to `record` by itself to see what is wrong with it"
            # Only the traceback explains an unexpected error.
            self._warn(scope, doing, kind, said, None if ours else error)

    def count(self, memory: HasScope | Scope, doing: str, kind: str, detail: str = "", *, log: bool = True) -> bool:
        """Count a fault without an error object.

        Args:
            memory: The memory that failed.
            doing: The action that failed.
            kind: The kind of the fault.
            detail: What is wrong and what to do, without content.
            log: Whether to log the first fault of its kind.

        Returns:
            Whether it is the first of its kind since the last success.
        """
        state, key = self.state_of(scope_of(memory)), (doing, clip(kind, MAX_NAME))
        at = spell_moment(self._clock.now())
        with self._mutex:
            first = key not in state.logged
            state.logged.add(key)
            self._add(state, FaultCount(*key, 1, at, at, clip(detail, _LONGEST)))
        if first and log:
            self._warn(state.scope, *key, detail)
        return first

    def recovered(self, memory: HasScope | Scope, doing: str, *, still: Collection[str] = ()) -> None:
        """Note a success, so that the next fault is logged again, except for the kinds in `still`."""
        state = self.state_of(scope_of(memory))
        # Without a fault, the usual case, this does not wait for a file.
        if state.logged:
            with self._mutex:
                state.logged = {(done, kind) for done, kind in state.logged if done != doing or kind in still}

    def embedded(self, scope: Scope, error: Exception | None) -> None:
        """Count an error of the thread that embeds, which has logged it; None ends the outage."""
        if error is None:
            self.recovered(scope, "embed")
        else:
            said = "not every text could be embedded, so some are found by words alone: see the log; it is tried again"
            self.count(scope, "embed", type(error).__name__, said, log=False)

    def made_good(self, memory: HasScope | Scope, doing: str) -> None:
        """Forget the faults of an action that has succeeded since, also those that other processes have counted."""
        state = self.state_of(scope_of(memory))
        with self._mutex:
            if any(fault.doing == doing for fault in self._merged(state).faults):
                state.good[doing] = spell_moment(self._clock.now())
                self._write(state)

    def of(self, memory: HasScope | Scope) -> tuple[FaultCount, ...]:
        """Return the faults of a scope, from all processes, newest first."""
        state = self.state_of(scope_of(memory))
        with self._mutex:
            return self._merged(state).faults

    def flush(self) -> None:
        """Write all pending counts."""
        with self._mutex:
            for state in list(self._unwritten):
                self._write(state)

    def purge(self, state: ScopeFaults) -> None:
        """Delete the counts of a memory, and its faults.json.

        Raises:
            StoreError: The file cannot be removed.
            LockTimeoutError: Another process holds its lock.
        """
        file = state.file
        with self._mutex:
            state.renew()
            self._unwritten.pop(state, None)
        if not file.is_there():
            return
        # The file lock first: readers of the counts must not wait for another process.
        with self._purging.held(file.lock), self._mutex:
            state.renew()
            self._unwritten.pop(state, None)
            file.remove()

    def _add(self, state: ScopeFaults, fault: FaultCount) -> None:
        key = (fault.doing, fault.kind)
        known = state.fresh.get(key)
        state.fresh[key] = fault if known is None else _sum(known, fault)
        if len(state.fresh) > _KINDS:
            del state.fresh[min(state.fresh, key=lambda key: state.fresh[key].last)]
        self._unwritten[state] = None
        now = self._clock.now()
        due = state.written is None or abs(now - state.written) >= self._every
        if due or key not in state.filed:
            state.written = now
            self._write(state)
        if len(self._unwritten) > _UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]

    def _write(self, state: ScopeFaults) -> None:
        """Add the pending counts to the file; if that fails they stay pending."""
        if state.filed and not state.file.path.parent.is_dir():
            # The memory was removed. The lock of the file would make its folder again.
            state.fresh = {}
        else:
            try:
                with self._locks.held(state.file.lock):
                    state.file.write(self._merged(state))
            except (BackstoryError, OSError) as error:
                _log.debug("faults of %s are counted in this process only for now: %s", state.scope, error)
                return
            state.filed.update(state.fresh)
            state.fresh, state.good = {}, {}
        self._unwritten.pop(state, None)

    def _merged(self, state: ScopeFaults) -> _File:
        return _merge(_stored(state.file), state.fresh.values(), state.good, self._clock.now())

    def _warn(self, scope: Scope, doing: str, kind: str, said: str, trace: BaseException | None = None) -> None:
        _log.warning(
            "memory of %s: %s failed (%s): %s; the agent goes on without it, and more of this is only counted: see "
            "`status`",
            scope,
            doing,
            kind,
            # A file path may contain bytes that are not text.
            safe_text(said),
            exc_info=trace,
        )


class ModelFaults(Observer):
    """Counts failed model calls, as faults of `extract`, until a later call for the same memory succeeds."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._logged: set[str] = set()

    def on_call_ended(self, ended: CallEnded) -> None:
        """Count a failed call; a successful one ends the outage.

        An outage concerns all memories, so only the first one is logged.
        """
        scope = ended.call.scope
        if ended.error is None:
            self._logged.clear()
            self._faults.recovered(scope, "extract")
            self._faults.made_good(scope, "extract")
        elif ended.error != "interrupted":
            kind = ended.error_type or ended.error
            failed = f"the model {ended.call.model} {_what_failed(ended)}"
            said = f"{failed}; its turns are kept on disk, and `retry` tries again"
            self._faults.count(scope, "extract", kind, said, log=kind not in self._logged)
            self._logged.add(kind)


def _what_failed(ended: CallEnded) -> str:
    if ended.status is not None:
        return f"answered with status {ended.status}"
    return "refused to answer" if ended.error == "rejected" else "did not answer"


def stored_faults(path: Path, now: datetime) -> tuple[FaultCount, ...]:
    """Return the faults in a faults.json, newest first."""
    return _merge(_stored(_file(path)), (), {}, now).faults


def _file(path: Path) -> SideFile[_File]:
    return SideFile(path, _File, "counts")


def _stored(file: SideFile[_File]) -> _File:
    try:
        stored = file.read()
    except OSError as error:
        _log.debug("%s cannot be read: %s", file.path, error)
        stored = None
    return _File(_VERSION, ()) if stored is None else stored


def _merge(stored: _File, fresh: Iterable[FaultCount], made_good: Mapping[str, str], now: datetime) -> _File:
    """Merge the counts on disk and pending ones: the newest 50 kinds, without those made good or expired."""
    good = {doing: at for doing, at in {**stored.good, **made_good}.items() if _is_recent(at, now)}
    merged: _Counts = {}
    for fault in (*stored.faults, *fresh):
        if fault.last > good.get(fault.doing, ""):
            known = merged.get((fault.doing, fault.kind))
            merged[fault.doing, fault.kind] = fault if known is None else _sum(known, fault)
    young = [fault for fault in (_dated(fault, now) for fault in merged.values()) if fault is not None]
    young.sort(key=lambda fault: (fault.last, fault.doing, fault.kind), reverse=True)
    return _File(_VERSION, tuple(young[:_KINDS]), good)


def scope_of(memory: HasScope | Scope) -> Scope:
    """Return the scope of a memory."""
    return memory if isinstance(memory, Scope) else memory.scope


def _detail(error: BaseException) -> str:
    """Return the text of an error if it is about files or logs, so that it cannot quote content."""
    if isinstance(error, LockTimeoutError | CorruptLogError) or (
        isinstance(error, StoreError) and isinstance(error.__cause__, OSError | None)
    ):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return ""


def _sum(one: FaultCount, other: FaultCount) -> FaultCount:
    """Add two counts of one kind; the detail of the later one wins."""
    later = max(one, other, key=lambda fault: fault.last)
    return FaultCount(
        one.doing,
        one.kind,
        min(one.count + other.count, _MOST),
        min(one.first, other.first),
        later.last,
        later.detail or one.detail or other.detail,
    )


def _is_recent(at: str, now: datetime) -> bool:
    """Whether a success can still concern a fault; a time in the future means that the clock was set back."""
    moment = parse_moment(at)
    return moment is not None and moment <= now < moment + _AGE


def _dated(fault: FaultCount, now: datetime) -> FaultCount | None:
    """Return a count with valid times; None if it has expired or is invalid."""
    first, last = parse_moment(fault.first), parse_moment(fault.last)
    if first is None or last is None or fault.count < 1:
        return None
    # A time in the future means that the clock was set back.
    last = min(last, now)
    if now - last >= _AGE:
        return None
    return msgspec.structs.replace(fault, first=spell_moment(min(first, last)), last=spell_moment(last))
