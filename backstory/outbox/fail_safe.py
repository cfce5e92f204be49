"""The door between an agent and its memory: whatever memory does, the agent goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from backstory.checks import messages_in
from backstory.ledger.core.errors import LockTimeoutError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.outbox.entry import OutboxEntry, Records
from backstory.outbox.faults import Faults, HasScope, scope_of
from backstory.outbox.outbox import SLOW_SECONDS, Outbox
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden

__all__ = ["FailSafeMemory"]

_T = TypeVar("_T")

_UNREAD_SECONDS = 30.0
_SCOPES = 1024


class _Unread(msgspec.Struct, frozen=True):
    """A memory that kept a reader waiting: nobody asks it until then, and what it is counted as meanwhile."""

    until: float
    kind: str


class Memory(Records, HasScope, Protocol):
    """A memory handle, as far as it is recorded in and counted."""


class Home(Protocol):
    """A home, as far as its memories are recorded in; see `Backstory`."""

    @property
    def faults(self) -> Faults:
        """Where faults are counted."""

    @property
    def outbox(self) -> Outbox:
        """Where deliveries wait."""

    def memory(self, user_id: str | None = None, agent_name: str | None = None) -> Memory:
        """Open a memory."""


class FailSafeMemory:
    """Records what agents say and reads what they are given to read, without ever raising a fault of memory.

    Where memory fails, the fault is noted (`Backstory.faults`), and a delivery waits: at most 1,000 of them and 64 MiB
    of text, tried again in the background after 1 second to 60, those of a thread in order. All doors of a home share
    what waits. Memory may be named by a handle, or by its scope where to open it may fail as well. KeyboardInterrupt
    and SystemExit pass. Safe for threads. `elapsed` is a monotonic clock in seconds, `waiting` is where deliveries wait
    if not in the home's own line.
    """

    def __init__(
        self, bs: Home, *, waiting: Outbox | None = None, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._bs = bs
        self._faults = bs.faults
        self._elapsed = elapsed
        self._waiting = waiting or bs.outbox
        self._unread: dict[Scope, _Unread] = {}
        self._mutex = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many deliveries wait."""
        return self._waiting.count

    def record(
        self,
        memory: Memory | Scope,
        thread: str,
        messages: Sequence[object],
        *,
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        sent_before: bool = False,
    ) -> RecordResult | None:
        """Record what of a conversation is new, as `MemoryHandle.record`; None where it waits or can never be recorded.

        What waits of the same thread is recorded first. A message nobody can read is left out and noted as a fault. A
        memory that has just kept a recorder waiting is not tried, until the background has succeeded in it once.
        `sent_before` says that the messages may have been recorded already.
        """
        scope = scope_of(memory)
        try:
            sent = messages_in(messages)
        except Exception as error:  # noqa: BLE001 the list is somebody else's
            self._faults.note(scope, "record", error)
            return None
        entry = OutboxEntry(
            scope,
            self._opening(memory),
            thread,
            sent,
            immediate=immediate,
            keep_hidden=keep_hidden,
            on_unreadable=lambda error: self._faults.note(scope, "record", error),
            sent_before=sent_before,
        )
        return self._waiting.hand_over(entry)

    def _opening(self, memory: Memory | Scope) -> Callable[[], Memory]:
        bs = self._bs
        return (lambda: bs.memory(memory.user, memory.agent)) if isinstance(memory, Scope) else lambda: memory

    def guarded(self, memory: HasScope | Scope, doing: str, call: Callable[[], _T], otherwise: _T) -> _T:
        """Return what a call says that reads memory; where it fails note a fault of `doing`, and return `otherwise`.

        A memory that has kept a reader waiting in vain is not asked for 30 seconds: `otherwise` comes at once, and is
        counted all the same.
        """
        scope = scope_of(memory)
        begun = self._elapsed()
        unread = self._unread.get(scope)
        if unread is not None and begun < unread.until:
            self._faults.count(scope, doing, unread.kind)
            return otherwise
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 memory's faults are not the agent's
            self._faults.note(scope, doing, error)
            now = self._elapsed()
            slow = now - begun >= SLOW_SECONDS and not isinstance(error, UsageError)
            if slow or isinstance(error, LockTimeoutError):
                self._leave_alone(scope, _Unread(now + _UNREAD_SECONDS, type(error).__name__), now)
            return otherwise
        self._faults.recovered(scope, doing)
        return result

    def _leave_alone(self, scope: Scope, unread: _Unread, now: float) -> None:
        with self._mutex:
            self._unread[scope] = unread
            if len(self._unread) > _SCOPES:
                self._unread = {scope: known for scope, known in self._unread.items() if known.until > now}

    def flush(self, timeout: float) -> bool:
        """Try what waits now, once; True when nothing waits any more, within `timeout` seconds."""
        return self._waiting.flush(timeout)

    def close(self, timeout: float) -> bool:
        """Flush, as `flush`; what still waits goes on being tried until the home is closed, which gives it up."""
        return self.flush(timeout)
