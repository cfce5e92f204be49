"""Taking in what is kept of a conversation: it is durable then, and somebody knows that there is more to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from backstory.ledger.core.errors import InputError, LockTimeoutError, UsageError
from backstory.ledger.core.sanitize import MAX_NAME, safe_text
from backstory.ledger.threads.turn_dedup import Mode
from backstory.operations.scope_base import ScopeBase
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept, Message

__all__ = ["Intake", "Unreadable", "kept_of"]

Unreadable = Callable[[int, InputError], None]
"""Told of a message nobody can read: its index, and what is wrong with it."""


class Intake(ScopeBase):
    """The part of a handle that takes in what was read before; get it from `MemoryHandle.intake`."""

    def take_in(
        self,
        thread: str,
        kept: Sequence[Kept],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        sent_before: bool = False,
    ) -> RecordResult:
        """Record what is new of it, as `MemoryHandle.record` does once it has read a delivery.

        `sent_before` says that it may have been recorded already: whatever the end of the thread shares is known.

        Raises:
            UsageError: the thread has no name, or too long a one; the home was closed.
        """
        if not isinstance(thread, str) or not thread or len(thread) > MAX_NAME:
            raise UsageError(f"a thread is named by a text of 1 to {MAX_NAME} characters: give the conversation's id")
        self._services.must_be_open()
        if not self._services.enabled:
            return RecordResult(1, 0, len(kept))
        backlog = False
        try:
            recorded = self._writer.record(safe_text(thread), kept, mode=mode, sent_before=sent_before)
        except LockTimeoutError:
            # To look what is to be learned from would wait for the same lock once more.
            raise
        except BaseException:
            # A delivery that failed half-way has left turns behind that are to be learned from.
            self._notice(thread, immediate=immediate)
            raise
        self._notice(thread, immediate=immediate)
        if self._services.producer is not None:
            limit = self._services.queue_max_depth
            backlog = 0 < limit < self._services.producer.depth()
        return RecordResult(1, recorded.turns, recorded.skipped, backlog, recorded.superseded)

    def _notice(self, thread: str, *, immediate: bool) -> None:
        if self._services.producer is not None:
            self._services.producer.notice(self._writer, safe_text(thread), immediate=immediate)

    def wait_until_free(self) -> None:
        """Wait until nobody else keeps the transcript locked; whoever reads memory meanwhile does not wait along.

        Raises:
            StoreError, LockTimeoutError: as the store.
        """
        with self._writer.store.locked(self._writer.transcript_stream):
            return


def kept_of(
    sent: Iterable[object], keep_hidden: KeepHidden | None = None, on_unreadable: Unreadable | None = None
) -> list[Kept]:
    """Return what is kept of messages as a host sends them.

    `on_unreadable` gets the index of each message that cannot be read, and the error; without it the error is raised.

    Raises:
        InputError: a message cannot be read, and there is nobody to tell.
    """
    from backstory.ledger.messages import keep

    # One after the other: of many messages only what is kept of each is there at a time.
    return keep(_read(sent, keep_hidden, on_unreadable))


def _read(
    sent: Iterable[object], keep_hidden: KeepHidden | None, on_unreadable: Unreadable | None
) -> Iterator[Message]:
    from backstory.ledger.messages import read_message

    for index, message in enumerate(sent):
        try:
            read = read_message(message, keep_hidden)
        except InputError as error:
            if on_unreadable is None:
                raise
            on_unreadable(index, error)
        else:
            yield read
