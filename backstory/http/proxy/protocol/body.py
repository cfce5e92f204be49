"""Body of a request as its fields, each of which keeps its bytes until it is read or changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import Raw

from backstory.integrations.prompt_block import without_block

Fields: TypeAlias = dict[str, Raw]


class _Role(msgspec.Struct):
    role: object = None


def raw(value: object) -> Raw:
    """Return a value as it stands in a body."""
    return Raw(msgspec.json.encode(value))


def fields_of(json: bytes | Raw) -> Fields:
    """Return the fields of a JSON object.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested too deep.
    """
    return msgspec.json.decode(json, type=Fields)


def items_of(json: bytes | Raw) -> list[Raw]:
    """Return the items of a JSON list, as `fields_of` does."""
    return msgspec.json.decode(json, type=list[Raw])


def value_of(fields: Fields, name: str) -> object:
    """Return the value of a field; None where there is none."""
    given = fields.get(name)
    return None if given is None else msgspec.json.decode(given)


def text_of(fields: Fields, name: str) -> str | None:
    """Return a field that is a text or a number, as text; None for an empty one, or one of another type."""
    value = value_of(fields, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def roles_of(messages: Iterable[Raw]) -> list[object]:
    """Return the roles of messages."""
    return [msgspec.json.decode(one, type=_Role).role for one in messages]


def bare_parts(content: Iterable[object], as_sent: Iterable[Raw]) -> Iterator[Raw]:
    """Yield the parts of a content without a context block; drop a part that becomes empty."""
    for part, sent in zip(content, as_sent, strict=True):
        said = part.get("text") if isinstance(part, dict) else None
        if not isinstance(said, str) or (bare := without_block(said)) == said:
            yield sent
        elif bare.strip():
            yield raw({**fields_of(sent), "text": bare})
