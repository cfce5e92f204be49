"""What a memory's turns are reached through, and how a message or an action that is asked for is spelled there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from backstory.projections.turns import TurnLog, TurnView, Words
from backstory.results import RecordResult

__all__ = ["Asked", "TurnAccess", "action_name", "asked_about", "thread_of"]


class TurnAccess(msgspec.Struct, frozen=True):
    """The read model, and the two things that can be done to a transcript: to record turns and to take them back."""

    log: TurnLog
    record: Callable[[str, Sequence[object]], RecordResult]
    """Takes messages that are new, of one thread."""
    withdraw: Callable[[str, Collection[int]], tuple[int, ...]]
    """Takes back turns of a thread by their ordinals; tells which of them stood."""
    must_be_open: Callable[[], None]


class Asked(msgspec.Struct, frozen=True):
    """A message that is asked about; `said` is None where memory never keeps such a message."""

    id: str | None
    said: Words | None
    thread: str | None


def asked_about(message: object) -> Asked:
    """Read a message as it would be kept.

    Raises:
        InputError: it is no message.
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
    # What else it may be is for whoever records it to refuse or to spell.
    return None if named is None or named == "" else str(named)


def action_name(action: object) -> str:
    """Spell an action as MetaGPT does: a text as it is, a class or an object by the full name of its class."""
    if isinstance(action, str):
        return action
    kind = action if isinstance(action, type) else type(action)
    return f"{kind.__module__}.{kind.__name__}"
