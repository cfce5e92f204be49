"""One delivery of a conversation: as it was handed over, or read and ready to wait, whatever its host does to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from backstory.checks import Unreadable, kept_of
from backstory.ledger.core.scope import Scope
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept

__all__ = ["Intake", "OutboxEntry", "Records"]

_OVERHEAD_BYTES = 500
"""What is kept of a message takes about so much beside its text."""


class Intake(Protocol):
    """Takes in messages that were read before; see `MemoryHandle.intake`."""

    def take_in(
        self, thread: str, kept: Sequence[Kept], *, immediate: bool = False, sent_before: bool = False
    ) -> RecordResult:
        """Record what is new of them."""

    def wait_until_free(self) -> None:
        """Wait until no other process locks the transcript."""


class Records(Protocol):
    """A memory handle, as far as the outbox needs one."""

    @property
    def intake(self) -> Intake:
        """Where an entry that was read is taken in."""

    def record(
        self,
        thread: str,
        messages: Sequence[object],
        *,
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
    ) -> RecordResult:
        """Record what is new of a conversation."""


class OutboxEntry:
    """Messages on their way to one thread of one memory.

    `memory` opens it, which may fail as well; `on_unreadable` gets each message that cannot be read, once. `size` is
    in bytes once it is packed, `number` its rank among all that wait, `attempts` how often it failed for an unforeseen
    reason. `sent_before`: it may have been recorded already.
    """

    def __init__(
        self,
        scope: Scope,
        memory: Callable[[], Records],
        thread: str,
        messages: Sequence[object],
        *,
        immediate: bool,
        keep_hidden: KeepHidden | None,
        on_unreadable: Callable[[Exception], None],
        sent_before: bool = False,
    ) -> None:
        self.scope = scope
        self.thread = thread
        self.immediate = immediate
        self.number = self.attempts = self.size = 0
        self._sent_before = sent_before
        self._memory = memory
        self._messages = messages
        self._sent = len(messages)
        self._keep_hidden = keep_hidden
        self._unreadable = on_unreadable
        self._left_out: set[int] = set()
        self._kept: list[Kept] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to keep; it is packed."""
        return not self._kept

    @property
    def is_whole(self) -> bool:
        """Whether every message of it could be read."""
        return not self._left_out

    def record(self, *, look_first: bool = False) -> RecordResult:
        """Record it now; `look_first` whether its memory is locked, which keeps nobody but the caller waiting.

        Raises:
            BackstoryError: as `MemoryHandle.record`, and as `Backstory.memory`.
        """
        memory = self._memory()
        if look_first:
            memory.intake.wait_until_free()
        # What fails may have been written all the same: tried again, it may stand already.
        tried, self._sent_before = self._sent_before, True
        if self._kept is None and not tried:
            return memory.record(
                self.thread,
                self._messages,
                immediate=self.immediate,
                keep_hidden=self._keep_hidden,
                on_unreadable=self._leave_out,
            )
        self.pack()
        kept = self._kept or []
        taken = memory.intake.take_in(self.thread, kept, immediate=self.immediate, sent_before=tried)
        return msgspec.structs.replace(taken, skipped=taken.skipped + self._sent - len(kept))

    def pack(self) -> None:
        """Read it, so that it can wait: whatever becomes of its messages, this is what will be recorded."""
        if self._kept is None:
            try:
                self._kept = kept_of(self._messages, self._keep_hidden, self._leave_out)
            except Exception as error:  # noqa: BLE001 the messages, and who is asked about hidden ones, are somebody else's
                self._unreadable(error)
                self._kept = []
            self._messages = ()
            self.size = sum(_OVERHEAD_BYTES + sys.getsizeof(kept.content) for kept in self._kept)

    def goes_on_from(self, other: OutboxEntry) -> bool:
        """Whether it says all that another one says, and perhaps more; both are packed, and of the same thread."""
        mine, said = self._kept or [], other._kept or []
        return mine[: len(said)] == said

    def _leave_out(self, index: int, error: Exception) -> None:
        if index not in self._left_out:
            self._left_out.add(index)
            self._unreadable(error)
