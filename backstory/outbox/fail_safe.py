"""Fail-safe access to memory for integrations: a fault of memory never reaches the agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from backstory.checks import kept_of, messages_in
from backstory.ledger.core.errors import LockTimeoutError, UsageError
from backstory.ledger.core.scope import Scope, name_text
from backstory.ledger.text.tags import read_tags, readable_tags
from backstory.outbox.entry import OutboxEntry, TakesIn
from backstory.outbox.faults import Faults, HasScope, SkippedReads, scope_of
from backstory.outbox.outbox import SLOW_SECONDS, Outbox
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept
    from backstory.ledger.threads.delivery.told import Told
    from backstory.ledger.threads.delivery.turn_dedup import Mode

_T = TypeVar("_T")
_M = TypeVar("_M")

_UNREAD_SECONDS = 30.0


class AnyMemory(HasScope, Protocol):
    """A memory handle, as far as it is recorded in and counted."""

    @property
    def intake(self) -> TakesIn:
        """Where messages that were read are taken in."""


class Home(Protocol):
    """A home, as far as its memories are recorded in; see `Backstory`."""

    @property
    def faults(self) -> Faults:
        """Where faults are counted."""

    @property
    def outbox(self) -> Outbox:
        """Where deliveries wait."""

    def memory_of(self, owner: Scope) -> AnyMemory:
        """Open a memory."""


class FailSafeMemory:
    """Records conversations and reads memory without raising a fault of memory. Safe for threads.

    A failure is counted (`Backstory.faults`). A delivery that fails goes to the outbox: at most 1,000 deliveries and 64
    MiB of text, retried in the background after 1 to 60 seconds, in order within a thread. All instances of a home
    share its outbox. KeyboardInterrupt and SystemExit pass.

    Methods take a memory as a handle, or as a scope if opening it may fail, too.

    Args:
        bs: The home.
        outbox: Where failed deliveries go. Default: the outbox of the home.
        elapsed: A monotonic clock in seconds.
    """

    def __init__(
        self, bs: Home, *, outbox: Outbox | None = None, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._bs = bs
        self._faults = bs.faults
        self._elapsed = elapsed
        self._outbox = outbox or bs.outbox

    @property
    def waiting(self) -> int:
        """The number of deliveries in the outbox."""
        return self._outbox.count

    def record(
        self,
        memory: AnyMemory | Scope,
        thread: str,
        messages: Sequence[object],
        *,
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        sent_before: bool = False,
        mode: Mode = "conversation",
        tags: Sequence[str] | None = None,
    ) -> RecordResult | None:
        """Record the new messages of a conversation, as `MemoryHandle.record`.

        Queued deliveries of the same thread are recorded first. A message that cannot be read is left out and counted
        as a fault. A memory that was slow to fail is left to the background until it works again.

        Args:
            memory: The memory.
            thread: The thread.
            messages: The messages.
            immediate: Whether the turns are due for extraction at once.
            keep_hidden: Decides which hidden messages are kept.
            sent_before: Whether the messages may have been recorded already.
            mode: As for `MemoryHandle.record`.
            tags: As for `MemoryHandle.record`; those that cannot be kept are left out and counted as a fault.

        Returns:
            The result; None if the delivery was queued, or can never be recorded.

        Raises:
            ScopeError: A name in a scope is no text, whole number or UUID.
        """
        memory = _named(memory)
        scope = scope_of(memory)
        is_whole = True

        def leave_out(_: int, error: Exception) -> None:
            nonlocal is_whole
            is_whole = False
            self._faults.note(scope, "record", error)

        try:
            named = read_tags(tags or ())
        except UsageError as error:
            self._faults.note(scope, "record", error)
            named = readable_tags(tags or ())
        try:
            sent = messages_in(messages)
            kept = kept_of(sent, keep_hidden, leave_out, named)
        except Exception as error:  # noqa: BLE001 the host's messages and callback can raise anything
            self._faults.note(scope, "record", error)
            return None
        entry = OutboxEntry(
            scope,
            self._opens(memory),
            thread,
            kept,
            mode,
            immediate=immediate,
            sent_before=sent_before,
            skipped=len(sent) - len(kept),
            is_whole=is_whole,
        )
        return self._outbox.hand_over(entry)

    def record_told(
        self, memory: AnyMemory | Scope, thread: str, kept: Sequence[Kept], mode: Told
    ) -> RecordResult | None:
        """Record what is new of a conversation as a model is asked with it; like `record` in all else.

        Args:
            memory: The memory.
            thread: The thread.
            kept: The conversation, read and filtered.
            mode: What it holds.
        """
        memory = _named(memory)
        return self._outbox.hand_over(OutboxEntry(scope_of(memory), self._opens(memory), thread, list(kept), mode))

    def take_back(self, memory: AnyMemory | Scope, thread: str, message: object, call: Callable[[Kept], None]) -> None:
        """Take a message back by a call, once the queued deliveries of its thread are recorded; retry it as those.

        Args:
            memory: The memory.
            thread: The thread.
            message: The message; for one of which nothing is kept nothing is done.
            call: Takes back what is kept of the message; called again where it failed.
        """
        scope = scope_of(memory)
        try:
            kept = kept_of([message])
        except Exception as error:  # noqa: BLE001 the host's message can raise anything
            self._faults.note(scope, "withdraw", error)
            return
        for one in kept:
            entry = OutboxEntry(scope, self._opens(memory), thread, kept, takes_back=partial(call, one))
            self._outbox.hand_over(entry)

    def _opens(self, memory: AnyMemory | Scope) -> Callable[[], TakesIn]:
        return lambda: (self._bs.memory_of(memory) if isinstance(memory, Scope) else memory).intake

    def guarded(self, memory: HasScope | Scope, doing: str, call: Callable[[], _T], otherwise: _T) -> _T:
        """Return the result of a call that reads memory.

        A memory that was slow to fail is not read for the next 30 seconds.

        Args:
            memory: The memory.
            doing: Names the fault if the call fails, such as `inject`.
            call: Reads memory.
            otherwise: The result if the call fails or is skipped.

        Raises:
            ScopeError: A name in a scope is no text, whole number or UUID.
        """
        scope = scope_of(_named(memory))
        begun = self._elapsed()
        unread = self._faults.state_of(scope).unread
        if unread is not None and begun < unread.until:
            self._faults.count(scope, doing, unread.kind)
            return otherwise
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 no fault of memory reaches the agent
            self._faults.note(scope, doing, error)
            now = self._elapsed()
            slow = now - begun >= SLOW_SECONDS and not isinstance(error, UsageError)
            if slow or isinstance(error, LockTimeoutError):
                self._faults.state_of(scope).unread = SkippedReads(now + _UNREAD_SECONDS, type(error).__name__)
            return otherwise
        self._faults.recovered(scope, doing)
        return result

    def flush(self, timeout: float) -> bool:
        """Retry all queued deliveries once; return whether the outbox is empty within `timeout` seconds."""
        return self._outbox.flush(timeout)


def _named(memory: _M | Scope) -> _M | Scope:
    """Return a scope with its names as text, as `Scope.of` reads them; a handle has checked them."""
    if not isinstance(memory, Scope):
        return memory
    return Scope(name_text("user id", memory.user), name_text("agent name", memory.agent))
