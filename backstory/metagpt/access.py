"""Access to the turns of a memory, and the spelling of messages and actions there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from backstory.projections.turns import TurnLog, TurnView, Words
from backstory.results import RecordResult

__all__ = ["Asked", "TurnAccess", "action_name", "asked_about", "thread_of"]


class TurnAccess(msgspec.Struct, frozen=True):
    """The read model of turns, and the two changes a transcript allows: recording and withdrawing."""

    log: TurnLog
    record: Callable[[str, Sequence[object]], RecordResult]
    """Records messages of one thread that are all new."""
    withdraw: Callable[[str, Collection[int]], tuple[int, ...]]
    """Withdraws turns of a thread by their ordinals; returns those that stood."""
    must_be_open: Callable[[], None]


class Asked(msgspec.Struct, frozen=True):
    """A message that is asked about; `said` is None where memory never keeps such a message."""

    id: str | None
    said: Words | None
    thread: str | None


def asked_about(message: object) -> Asked:
    """Read a message as it would be kept.

    Raises:
        InputError: It is no message.
    """
    from backstory.ledger.messages import keep, read_message

    if isinstance(message, TurnView):
        return Asked(message.id, message, message.thread or None)
    read = read_message(message)
    kept = keep([read])
    return Asked(kept[0].id, kept[0], read.thread_id) if kept else Asked(read.id, None, read.thread_id)


def thread_of(message: object) -> str | None:
    """Return the thread that a message names."""
    if isinstance(message, TurnView):
        return message.thread or None
    named = message.get("thread_id") if isinstance(message, Mapping) else getattr(message, "thread_id", None)
    # Recording refuses or spells whatever else it is.
    return None if named is None or named == "" else str(named)


def action_name(action: object) -> str:
    """Spell an action as MetaGPT does: a text as it is, a class or an object by the full name of its class."""
    if isinstance(action, str):
        return action
    kind = action if isinstance(action, type) else type(action)
    return f"{kind.__module__}.{kind.__name__}"
