"""Memory's faults: an agent goes on without it, so each is logged once, counted, and shown by `status`.

They are kept in `faults.json` beside memory.json, so that another process sees them too. Whoever loses that file loses
counts and nothing else: so it is never synced, and what goes wrong with it is logged and not raised; the counts then
stay in this process. Nothing in it holds content: names of classes, times, and our own words about files.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from backstory.ledger.core.errors import BackstoryError, CorruptLogError, InputError, LockTimeoutError, StoreError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import MAX_NAME, clip, safe_text
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.observing import CallEnded, Observer
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.store.files import put_in_place, translated, unfinished
from backstory.ledger.log.store.locks import FileLocks
from backstory.results import FaultCount

__all__ = ["Faults", "HasScope", "ModelFaults", "scope_of"]

_log = logging.getLogger(__name__)

_AGE = timedelta(days=7)
_KINDS = 50
_SCOPES = 1024
_LONGEST = 300
_MOST = 2**53
_EVERY_SECONDS = 1.0
_PATIENCE_SECONDS = 0.05
_PURGE_SECONDS = 5.0
"""What is to be forgotten may be waited for; to count must not keep an agent waiting."""
_VERSION = 1

_Key = tuple[str, str]
_Counts = dict[_Key, FaultCount]


class HasScope(Protocol):
    """A memory, as far as faults are concerned."""

    @property
    def scope(self) -> Scope:
        """Whose memory it is."""


class _File(msgspec.Struct, frozen=True):
    """What faults.json says."""

    version: int
    faults: tuple[FaultCount, ...]


class _State:
    """What this process knows of one scope's faults."""

    def __init__(self) -> None:
        self.fresh: _Counts = {}
        """Counted and not written yet."""
        self.filed: set[_Key] = set()
        """Kinds that it has written before."""
        self.told: set[_Key] = set()
        """Kinds that were logged since the same thing last went well."""
        self.written: datetime | None = None
        """When it was last tried to write."""


class Faults:
    """What failed in each scope, and how often; safe for threads, processes and forks.

    `document` says where a scope's memory.json lies. A kind of fault is named by what memory was about to do and by the
    class of the error. A count is forgotten 7 days after its last fault; of many kinds the newest 50 are kept. `every`
    so many seconds a count that is known already is written at most; `patience` is how many seconds to wait for another
    process.
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
        self._every = timedelta(seconds=every)
        self._locks = FileLocks(patience, SystemClock())
        self._purging = FileLocks(_PURGE_SECONDS, SystemClock())
        self._mutex = threading.RLock()
        self._states: OrderedDict[Scope, _State] = OrderedDict()
        _all.add(self)

    def note(self, memory: HasScope | Scope, doing: str, error: BaseException) -> None:
        """Count a fault, and log it if it is the first of its kind since the same thing last went well.

        `doing` is what memory was about to do; the fault's kind is the class of the error.
        """
        scope, kind = scope_of(memory), type(error).__name__
        if self.count(scope, doing, kind, _detail(error), log=False):
            ours = isinstance(error, BackstoryError | OSError)
            said = str(error) if ours else "nobody foresaw this, please report it"
            if isinstance(error, InputError) and doing in ("record", "inject"):
                # It quotes what it could not read, and that may be what somebody said.
                said = "a message cannot be read; give it to `record` by itself to be told what is wrong with it"
            # Where nobody did, only the traceback tells what to do.
            self._tell(scope, doing, kind, said, None if ours else error)

    def count(self, memory: HasScope | Scope, doing: str, kind: str, detail: str = "", *, log: bool = True) -> bool:
        """Count a fault that there is no error for; True if it is the first of its kind, which is logged then.

        `detail` says what is wrong and what to do, without content.
        """
        scope, key = scope_of(memory), (doing, clip(kind, MAX_NAME))
        at = spell_moment(self._clock.now())
        with self._mutex:
            state = self._state(scope)
            first = key not in state.told
            state.told.add(key)
            self._add(scope, state, FaultCount(*key, 1, at, at, clip(detail, _LONGEST)))
        if first and log:
            self._tell(scope, *key, detail)
        return first

    def recovered(self, memory: HasScope | Scope, doing: str, *, still: Collection[str] = ()) -> None:
        """Take note that something went well, so that its next fault is logged again, but for the kinds `still`."""
        # Nearly always nothing was wrong, and nobody is to wait for that.
        state = self._states.get(scope_of(memory))
        if state is not None and state.told:
            with self._mutex:
                state.told = {(done, kind) for done, kind in state.told if done != doing or kind in still}

    def of(self, memory: HasScope | Scope) -> tuple[FaultCount, ...]:
        """Return what failed in a scope, other processes' faults included; the newest first."""
        scope = scope_of(memory)
        with self._mutex:
            state = self._states.get(scope)
            return self._newest(self._stored(scope), () if state is None else state.fresh.values())

    def flush(self, memory: HasScope | Scope) -> None:
        """Write what is not written yet."""
        scope = scope_of(memory)
        with self._mutex:
            state = self._states.get(scope)
            if state is not None and state.fresh:
                self._write(scope, state)

    def close(self) -> None:
        """Write everything that is not written yet."""
        with self._mutex:
            for scope in list(self._states):
                self.flush(scope)
        self._locks.close()
        self._purging.close()

    def purge(self, memory: HasScope | Scope) -> None:
        """Forget what failed in a scope, and take faults.json away.

        Raises:
            StoreError: it cannot be removed. LockTimeoutError: another process keeps it.
        """
        scope = scope_of(memory)
        path = self._path(scope)
        with self._mutex:
            self._states.pop(scope, None)
        if not path.exists() and not unfinished(path).exists():
            return
        # The file first: who asks what failed must not wait until another process lets go of it.
        with self._purging.held(_lock(path)), translated(path, "remove"), self._mutex:
            self._states.pop(scope, None)
            for file in (path, unfinished(path)):
                file.unlink(missing_ok=True)

    def renew(self) -> None:
        """Begin anew in a child of this process; what is not written is the parent's to write."""
        self._mutex = threading.RLock()
        self._states = OrderedDict()

    def _add(self, scope: Scope, state: _State, fault: FaultCount) -> None:
        key = (fault.doing, fault.kind)
        known = state.fresh.get(key)
        state.fresh[key] = fault if known is None else _sum(known, fault)
        if len(state.fresh) > _KINDS:
            del state.fresh[min(state.fresh, key=lambda key: state.fresh[key].last)]
        now = self._clock.now()
        due = state.written is None or abs(now - state.written) >= self._every
        if due or key not in state.filed:
            state.written = now
            self._write(scope, state)

    def _state(self, scope: Scope) -> _State:
        state = self._states.setdefault(scope, _State())
        self._states.move_to_end(scope)
        if len(self._states) > _SCOPES:
            gone = next((old for old, known in self._states.items() if not known.fresh), next(iter(self._states)))
            del self._states[gone]
        return state

    def _write(self, scope: Scope, state: _State) -> None:
        """Add what this process counted to what is in the file; where that fails it stays here for another time."""
        path = self._path(scope)
        try:
            with self._locks.held(_lock(path)), translated(path, "write"):
                put_in_place(
                    path, msgspec.json.encode(_File(_VERSION, self._newest(self._stored(scope), state.fresh.values())))
                )
            state.filed.update(state.fresh)
            state.fresh = {}
        except (BackstoryError, OSError) as error:
            _log.debug("faults of %s are counted in this process only for now: %s", scope, error)

    def _stored(self, scope: Scope) -> Iterable[FaultCount]:
        path = self._path(scope)
        try:
            return _read(path)
        except OSError as error:
            _log.debug("%s cannot be read: %s", path, error)
            return ()

    def _newest(self, *many: Iterable[FaultCount]) -> tuple[FaultCount, ...]:
        """Put counts together: no kind twice, none too old, not too many."""
        now = self._clock.now()
        merged: _Counts = {}
        for faults in many:
            for fault in faults:
                known = merged.get((fault.doing, fault.kind))
                merged[fault.doing, fault.kind] = fault if known is None else _sum(known, fault)
        young = [fault for fault in (_dated(fault, now) for fault in merged.values()) if fault is not None]
        young.sort(key=lambda fault: (fault.last, fault.doing, fault.kind), reverse=True)
        return tuple(young[:_KINDS])

    def _tell(self, scope: Scope, doing: str, kind: str, said: str, trace: BaseException | None = None) -> None:
        _log.warning(
            "memory of %s: %s failed (%s): %s; the agent goes on without it, and more of this is only counted: see "
            "`status`",
            scope,
            doing,
            kind,
            # The path of a file need be no text, and a log is one.
            safe_text(said),
            exc_info=trace,
        )

    def _path(self, scope: Scope) -> Path:
        return self._document(scope).with_name("faults.json")


class ModelFaults(Observer):
    """Counts calls of a model that failed while it was to learn, as faults of `extract`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._told: set[str] = set()

    def on_call_ended(self, ended: CallEnded) -> None:
        """Count a call that failed; one that went well says that the model is there again.

        A model that is down is down for everybody: so only the first memory that meets it logs it.
        """
        scope = ended.call.scope
        if ended.error is None:
            self._told.clear()
            self._faults.recovered(scope, "extract")
        elif ended.error != "interrupted":
            kind = ended.error_type or ended.error
            what = "refused to answer" if ended.error == "rejected" else "could not be reached"
            said = f"the model {ended.call.model} {what}; what was said waits on disk, and `retry` asks again"
            self._faults.count(scope, "extract", kind, said, log=kind not in self._told)
            self._told.add(kind)


def scope_of(memory: HasScope | Scope) -> Scope:
    """Return whose memory it is."""
    return memory if isinstance(memory, Scope) else memory.scope


def _detail(error: BaseException) -> str:
    """What an error says, where it cannot quote what was said: only our own words about files and logs."""
    if isinstance(error, LockTimeoutError | CorruptLogError) or (
        isinstance(error, StoreError) and isinstance(error.__cause__, OSError | None)
    ):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return ""


def _sum(one: FaultCount, other: FaultCount) -> FaultCount:
    """Put two counts of one kind together; the later one's words are kept."""
    later = max(one, other, key=lambda fault: fault.last)
    return FaultCount(
        one.doing,
        one.kind,
        min(one.count + other.count, _MOST),
        min(one.first, other.first),
        later.last,
        later.detail or one.detail or other.detail,
    )


def _dated(fault: FaultCount, now: datetime) -> FaultCount | None:
    """Return a count with times that can be; None where it is too old, or none."""
    first, last = parse_moment(fault.first), parse_moment(fault.last)
    if first is None or last is None or fault.count < 1:
        return None
    # A time to come says that a clock was set back since.
    last = min(last, now)
    if now - last >= _AGE:
        return None
    return msgspec.structs.replace(fault, first=spell_moment(min(first, last)), last=spell_moment(last))


def _read(path: Path) -> Iterable[FaultCount]:
    """Read a file; one that is damaged says nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).faults
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        _log.warning("%s is damaged and is begun anew, which costs nothing but counts: %s", path, error)
        return ()


def _lock(path: Path) -> str:
    return str(path.with_suffix(".lock"))


_all: weakref.WeakSet[Faults] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for faults in list(_all):
        faults.renew()


os.register_at_fork(after_in_child=_after_fork_in_child)
