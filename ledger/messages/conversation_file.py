"""Reader of conversation files: a JSON array or JSONL of messages, each with its memory and its thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from backstory.ledger.core.errors import BackstoryError, InputError
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages.keeping import read_message
from backstory.ledger.text.json_text import parse_json


class RecordGroup(NamedTuple):
    """The scope and the thread of a conversation."""

    scope: Scope
    thread: str


class PlacedMessage(NamedTuple):
    """A message of a file: where it stands there and whose it is.

    `group` is None for a broken message, and `broken` says what is wrong with it.
    """

    where: str
    group: RecordGroup | None
    message: dict[str, object]
    broken: str = ""


class Conversation(msgspec.Struct, frozen=True):
    """The messages of a file by scope and thread, in the file's order; for each broken one its place and the reason."""

    groups: dict[RecordGroup, list[dict[str, object]]]
    broken: tuple[str, ...]

    def strangers(self, user: str | None, agent: str | None) -> tuple[tuple[str, int], ...]:
        """Return the other users, or agents, that messages name, each with its number of messages.

        Args:
            user: The user of all messages, if that is required.
            agent: The agent of all messages, if that is required.
        """
        counts: dict[str, int] = {}
        for group, messages in self.groups.items():
            other = Scope(
                group.scope.user if user not in (None, group.scope.user) else None,
                group.scope.agent if agent not in (None, group.scope.agent) else None,
            )
            if other != Scope():
                counts[str(other)] = counts.get(str(other), 0) + len(messages)
        return tuple(counts.items())


def conversation_in(data: bytes, *, user: str | None, agent: str | None, thread: str | None) -> Conversation:
    """Read the messages of a file, grouped by memory and thread; see `messages_in`.

    Raises:
        InputError: It is an array that cannot be parsed.
    """
    groups: dict[RecordGroup, list[dict[str, object]]] = {}
    broken = []
    for where, group, message, why in messages_in(data, user=user, agent=agent, thread=thread):
        if group is None:
            broken.append(f"{where}: {why}")
        else:
            groups.setdefault(group, []).append(message)
    return Conversation(groups, tuple(broken))


def messages_in(data: bytes, *, user: str | None, agent: str | None, thread: str | None) -> Iterator[PlacedMessage]:
    """Yield the messages of a file, in its order.

    Args:
        data: The file, without a byte order mark.
        user: The user of the messages that name none.
        agent: The agent of the messages that name none.
        thread: The thread of the messages that name none.

    Raises:
        InputError: It is an array that cannot be parsed.
    """
    for where, item in _items(data):
        try:
            message = _message(item)
            group = _group(message, user=user, agent=agent, thread=thread)
        except BackstoryError as error:
            yield PlacedMessage(where, None, {}, str(error))
        else:
            yield PlacedMessage(where, group, message)


def _items(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the position and the content of each message; a line of JSONL as unparsed bytes."""
    if data.lstrip().startswith(b"["):
        items = parse_json(data)
        for number, item in enumerate(items if isinstance(items, list) else [], 1):
            yield f"message {number}", item
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield f"line {number}", line


def _message(item: object) -> dict[str, object]:
    message = parse_json(item) if isinstance(item, bytes) else item
    if not isinstance(message, dict):
        raise InputError("a message must be an object with role and content")
    return message


def _group(message: dict[str, object], *, user: str | None, agent: str | None, thread: str | None) -> RecordGroup:
    read = read_message(message)
    name = read.thread_id or thread
    if not name:
        raise InputError("the message has no thread_id: add one, or name a thread for all messages with --thread")
    scope = Scope.of(
        user if read.user_id is None else read.user_id, agent if read.agent_name is None else read.agent_name
    )
    return RecordGroup(scope, name)
