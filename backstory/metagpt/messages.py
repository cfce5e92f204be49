"""Messages that MetaGPT asks about or records, as turns know them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.projections.turns import MessageWords, TurnView


class AskedMessage(msgspec.Struct, frozen=True):
    """A message that is asked about; `said` is None where memory never keeps such a message."""

    id: str | None
    said: MessageWords | None
    thread: str | None


def asked_about(message: object) -> AskedMessage:
    """Read a message as it would be kept; raise InputError if it is no message."""
    from backstory.ledger.messages import keep, read_message

    if isinstance(message, TurnView):
        return AskedMessage(message.id, message, message.thread or None)
    read = read_message(message)
    kept = keep([read])
    return AskedMessage(kept[0].id, kept[0], read.thread_id) if kept else AskedMessage(read.id, None, read.thread_id)


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


def as_message(message: object) -> object:
    """Spell a turn that was read elsewhere as a message; its id goes along where a host gave it."""
    if not isinstance(message, TurnView):
        return message
    fields = msgspec.structs.asdict(message)
    if message.id == f"t{message.n}":
        del fields["id"]
    return fields


def without_id(asked: AskedMessage) -> dict[str, object]:
    """Spell a message without its id, so that it cannot take the place of another turn."""
    fields: dict[str, object] = msgspec.structs.asdict(asked.said) if isinstance(asked.said, msgspec.Struct) else {}
    return {**fields, "id": None, "thread_id": asked.thread}


def named(asked: AskedMessage) -> str:
    """Return the id of a message for an error, with a space before it; nothing where it has none."""
    return f" {asked.id}" if asked.id is not None else ""
