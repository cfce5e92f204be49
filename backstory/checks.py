"""Checks of arguments: a value of a wrong type or outside its range raises an error that says what is expected."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import InputError, UsageError
from backstory.ledger.text.tags import joined_tags

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept, Message

Unreadable = Callable[[int, InputError], None]
"""A callback for a message that cannot be read: it gets the message's index and the error."""

_MOST = 10**18 - 1
"""More than any count here, and small enough for every library below."""


def text(name: str, value: object) -> str:
    """Return a string.

    Raises:
        UsageError: It is none; `name` is what the caller calls it.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string, got {_shown(value)}")
    return value


def whole(name: str, value: object, least: int | None = None, what: str = "a whole number") -> int:
    """Return a whole number, from `least` on if given; `what` says what it counts.

    Raises:
        UsageError: It is none, or has more than 18 digits.
    """
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f", at least {least}"
        raise UsageError(f"{name} must be {what}{bound}, got {_shown(value)}")
    if abs(value) > _MOST:
        raise UsageError(f"{name} must be {what}, at most 18 digits long, got {_shown(value)}")
    return value


def number(name: str, value: object, low: float, high: float) -> float:
    """Return a number from `low` to `high`.

    Raises:
        UsageError: It is none.
    """
    # NaN is never between two numbers.
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name} must be a number from {low:g} to {high:g}, got {_shown(value)}")
    return value


def flag(name: str, value: object) -> bool:
    """Return a truth value.

    Raises:
        UsageError: It is none.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {_shown(value)}")
    return value


def messages_in(given: object) -> list[object]:
    """Return the messages of a list. They are not read yet.

    Raises:
        InputError: It is no list. A single message is none, although some can be iterated, field by field.
    """
    if isinstance(given, Mapping) or hasattr(given, "content"):
        raise InputError("messages must be a list of messages, got a single object")
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
        raise InputError(f"messages must be a list of messages, got {_shown(given)}")
    return list(given)


def kept_of(
    sent: Iterable[object],
    keep_hidden: KeepHidden | None = None,
    on_unreadable: Unreadable | None = None,
    tags: tuple[str, ...] = (),
) -> list[Kept]:
    """Return what is kept of messages as a host sends them, with the tags of the delivery.

    `on_unreadable` gets the index of each message that cannot be read, and the error; without it the error is raised.

    Raises:
        InputError: A message cannot be read, and there is no `on_unreadable`.
    """
    from backstory.ledger.messages import keep

    # One after the other: of many messages only what is kept of each is in memory at a time.
    kept = keep(_read(sent, keep_hidden, on_unreadable))
    return (
        [msgspec.structs.replace(message, tags=joined_tags(tags, message.tags)) for message in kept] if tags else kept
    )


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


def actions(given: object) -> list[object]:
    """Return the actions of a list; a string is one action.

    Raises:
        UsageError: It is no list.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"actions must be a list of names, classes or objects of actions, got {_shown(given)}")
    return list(given)


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:
        # Python does not spell a number of thousands of digits.
        return "a number of very many digits"
