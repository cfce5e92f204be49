"""Outbox entry: one delivery of a conversation, read when it was handed over, so that a host may change its objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.ledger.threads.delivery.told import Told
from backstory.ledger.threads.delivery.turn_dedup import Mode
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

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


@dataclass(eq=False)
class OutboxEntry:
    """Messages to record in one thread of one memory.

    Attributes:
        scope: The scope of the memory.
        opens: Opens the memory for taking in; may fail.
        thread: The thread.
        kept: The messages, read and filtered.
        mode: What the delivery holds.
        immediate: Whether the turns are due for extraction at once.
        sent_before: Whether the messages may have been recorded already.
        skipped: The number of messages that are not kept.
        is_whole: Whether every message could be read.
        takes_back: Called instead of recording, where the messages are to be taken back; may be called again.
        size: Bytes of the messages.
        number: Rank among all queued entries, by age.
        attempts: How often it failed for an unexpected reason.
    """

    scope: Scope
    opens: Callable[[], TakesIn]
    thread: str
    kept: list[Kept]
    mode: Mode | Told = "conversation"
    immediate: bool = False
    sent_before: bool = False
    skipped: int = 0
    is_whole: bool = True
    takes_back: Callable[[], None] | None = None
    number: int = field(default=0, init=False)
    attempts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.size = sum(_OVERHEAD_BYTES + sys.getsizeof(kept.content) for kept in self.kept)

    @property
    def doing(self) -> str:
        """What a fault of it is counted as."""
        return "record" if self.takes_back is None else "withdraw"

    def record(self, *, look_first: bool = False) -> RecordResult:
        """Record the messages now, or take them back.

        Args:
            look_first: Wait until the lock of the memory is free before anything else, so that only this thread waits.

        Raises:
            BackstoryError: As `MemoryHandle.record` and `Backstory.memory`.
        """
        intake = self.opens()
        if look_first:
            intake.wait_until_free()
        if self.takes_back is not None:
            self.takes_back()
            return RecordResult(threads=1, turns=0, skipped=0)
        # A failed attempt may have been written, so the next one must look for the messages.
        tried, self.sent_before = self.sent_before, True
        taken = intake.take_in(self.thread, self.kept, mode=self.mode, immediate=self.immediate, sent_before=tried)
        return msgspec.structs.replace(taken, skipped=taken.skipped + self.skipped)

    def goes_on_from(self, other: OutboxEntry) -> bool:
        """Whether it leads to the same turns without another entry of the same thread, all of which it repeats.

        Where all messages are new, none is repeated. The same few words without ids may have been said twice.
        """
        if self.takes_back is not None or other.takes_back is not None or self.kept[: len(other.kept)] != other.kept:
            return False
        if isinstance(self.mode, Told) and isinstance(other.mode, Told):
            # A client that repeats an answer does not prove it.
            return not other.mode.answered
        if self.mode != other.mode or self.mode == "append":
            return False
        return len(self.kept) > len(other.kept) or all(message.id is not None for message in self.kept)
