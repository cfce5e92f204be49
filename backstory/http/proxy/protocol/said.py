"""Words of a request: its messages without what a harness puts into those of the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import Message, read_message
from backstory.ledger.text.scaffolding import Cut, Scaffolding

Item: TypeAlias = Mapping[str, object]

_READ = ("role", "type", "phase", "content", "refusal", "audio", "name", "tool_calls", "function_call")
"""What is read of a message. Ids are left out, since not every client sends the same one again."""


class Heard(NamedTuple):
    """The messages that can be read, the scaffolding since the last answer, and how many cannot be read."""

    messages: tuple[Message, ...]
    cuts: tuple[Cut, ...]
    unreadable: int


def heard(items: Iterable[Item], scaffolding: Scaffolding) -> Heard:
    """Read the messages of a request; those that are nothing but scaffolding are left out."""
    messages: list[Message] = []
    cuts: list[Cut] = []
    answer, unreadable = "", 0
    for item in items:
        content: object = item.get("content")
        cut: tuple[Cut, ...] = ()
        if item.get("role") == "user":
            content, cut = _stripped(content, scaffolding, answer)
            cuts += cut
        message = _message({**item, "content": content} if cut else item)
        if message is None:
            unreadable += 1
        elif message.content.strip() or not cut:
            messages.append(message)
        if message is not None and message.role == "assistant":
            answer = message.content
            cuts.clear()
    return Heard(tuple(messages), tuple(cuts), unreadable)


def _stripped(content: object, scaffolding: Scaffolding, answer: str) -> tuple[object, tuple[Cut, ...]]:
    """Return a content without scaffolding. Harnesses put it into parts of its own, so each part is looked at."""
    if isinstance(content, str):
        return scaffolding.stripped(content, answer)
    if not isinstance(content, list):
        return content, ()
    parts: list[object] = []
    cuts: list[Cut] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        rest, cut = scaffolding.stripped(text, answer) if isinstance(text, str) else (text, ())
        cuts += cut
        if not cut:
            parts.append(part)
        elif rest:
            parts.append({**part, "text": rest})
    return (parts, tuple(cuts)) if cuts else (content, ())


def asks_for_title(items: Iterable[Item], instructions: object, scaffolding: Scaffolding) -> bool:
    """Whether the newest words of the user, or the newest instructions, are a known prompt for a title."""
    newest: dict[object, object] = {item.get("role"): item.get("content") for item in items}
    asked = [("user", newest.get("user"))]
    asked += [("system", content) for content in (instructions, newest.get("system"), newest.get("developer"))]
    return any(scaffolding.is_title(role, text) for role, content in asked for text in texts_of(content))


def texts_of(content: object) -> Iterator[str]:
    """Yield the texts of a content, which is one or a list of parts."""
    parts: Iterable[object] = content if isinstance(content, list) else (content,)
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _message(item: Item) -> Message | None:
    try:
        said = {name: item[name] for name in _READ if item.get(name) is not None}
        return read_message({"content": None, **said})
    except InputError:
        return None
