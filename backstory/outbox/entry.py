"""Outbox entry: one delivery of a conversation, either as the host's own objects or copied for a later attempt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from backstory.checks import Unreadable, kept_of
from backstory.ledger.core.scope import Scope
from backstory.ledger.threads.delivery.told import Told
from backstory.ledger.threads.delivery.turn_dedup import Mode
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept

_OVERHEAD_BYTES = 500
"""Approximate size of a kept message without its text."""


class TakesIn(Protocol):
    """Takes in messages that were read before; see `MemoryHandle.intake`."""

    def take_in(
        self,
        thread: str,
        kept: Sequence[Kept],
        *,
        mode: Mode | Told = "conversation",
        immediate: bool = False,
        sent_before: bool = False,
    ) -> RecordResult:
        """Record what is new of them."""

    def wait_until_free(self) -> None:
        """Wait until no other process locks the transcript."""


class Records(Protocol):
    """A memory handle, as far as the outbox needs one."""

    @property
    def intake(self) -> TakesIn:
        """Where an entry that was read is taken in."""

    def record(
        self,
        thread: str,
        messages: Sequence[object],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
        tags: Sequence[str] | None = None,
    ) -> RecordResult:
        """Record what is new of a conversation."""


@dataclass(eq=False)
class OutboxEntry:
    """Messages to record in one thread of one memory.

    Attributes:
        scope: The scope of the memory.
        memory: Opens the memory; may fail.
        thread: The thread.
        messages: The messages.
        on_unreadable: Called once with the error of each message that cannot be read.
        immediate: Whether the turns are due for extraction at once.
        keep_hidden: Decides which hidden messages are kept.
        sent_before: Whether the messages may have been recorded already.
        kept: The messages, read and filtered; where they are given `messages` do not count.
        mode: What the delivery holds.
        tags: The tags of its turns.
        size: Bytes of the packed messages; 0 before.
        number: Rank among all queued entries, by age.
        attempts: How often it failed for an unexpected reason.
    """

    scope: Scope
    memory: Callable[[], Records]
    thread: str
    messages: Sequence[object]
    on_unreadable: Callable[[Exception], None]
    immediate: bool = False
    keep_hidden: KeepHidden | None = None
    sent_before: bool = False
    kept: list[Kept] | None = None
    mode: Mode | Told = "conversation"
    tags: tuple[str, ...] = ()
    number: int = field(default=0, init=False)
    attempts: int = field(default=0, init=False)
    size: int = field(default=0, init=False)
    _left_out: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._sent = len(self.messages) if self.kept is None else len(self.kept)

    @property
    def is_empty(self) -> bool:
        """Whether a packed entry has no message to record."""
        return not self.kept

    @property
    def is_whole(self) -> bool:
        """Whether every message could be read."""
        return not self._left_out

    def record(self, *, look_first: bool = False) -> RecordResult:
        """Record the messages now.

        Args:
            look_first: Wait until the lock of the memory is free before anything else, so that only this thread waits.

        Raises:
            BackstoryError: As `MemoryHandle.record` and `Backstory.memory`.
        """
        memory = self.memory()
        if look_first:
            memory.intake.wait_until_free()
        # A failed attempt may have been written, so the next one must look for the messages.
        tried, self.sent_before = self.sent_before, True
        if self.kept is None and not tried and not isinstance(self.mode, Told):
            return memory.record(
                self.thread,
                self.messages,
                mode=self.mode,
                immediate=self.immediate,
                keep_hidden=self.keep_hidden,
                on_unreadable=self._leave_out,
                tags=self.tags,
            )
        self.pack()
        kept = self.kept or []
        taken = memory.intake.take_in(self.thread, kept, mode=self.mode, immediate=self.immediate, sent_before=tried)
        return msgspec.structs.replace(taken, skipped=taken.skipped + self._sent - len(kept))

    def pack(self) -> None:
        """Copy the messages, so that later changes of the host's objects have no effect."""
        if self.kept is None:
            try:
                self.kept = kept_of(self.messages, self.keep_hidden, self._leave_out, self.tags)
            except Exception as error:  # noqa: BLE001 the host's messages and callback can raise anything
                self.on_unreadable(error)
                self.kept = []
            self.messages = ()
        if not self.size:
            self.size = sum(_OVERHEAD_BYTES + sys.getsizeof(kept.content) for kept in self.kept)

    def goes_on_from(self, other: OutboxEntry) -> bool:
        """Whether it leads to the same turns without another packed entry of the same thread, all of which it repeats.

        Where all messages are new, none is repeated. The same few words without ids may have been said twice.
        """
        mine, earlier = self.kept or [], other.kept or []
        if mine[: len(earlier)] != earlier:
            return False
        if isinstance(self.mode, Told) and isinstance(other.mode, Told):
            # A client that repeats an answer does not prove it.
            return not other.mode.answered
        if self.mode != other.mode or self.mode == "append":
            return False
        return len(mine) > len(earlier) or all(message.id is not None for message in mine)

    def _leave_out(self, index: int, error: Exception) -> None:
        if index not in self._left_out:
            self._left_out.add(index)
            self.on_unreadable(error)
