"""Tags and attributes of facts: how they are spelled and bounded, and how those of several are joined.

A tag is a name. An attribute is a name with a text, a number or a truth value. Both are kept as given and compared as
they are spelled. No name holds a comma or an equals sign, so `name=value` in a filter is always about an attribute.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import Attribute, Attributes, spelled
from backstory.ledger.core.sanitize import safe_text

MAX_TAGS = 20
"""The most tags of a fact or a turn, and the most attributes of a fact."""
MAX_TAG = 64
"""The most characters in a tag, and in the name of an attribute."""
MAX_VALUE = 200
"""The most characters in the text of an attribute."""

_MOST = 2**63 - 1

_G = TypeVar("_G")
_R = TypeVar("_R")


def read_tags(given: object) -> tuple[str, ...]:
    """Return tags as facts keep them: each once, in the order given.

    Raises:
        UsageError: It is no list of at most `MAX_TAGS` tags.
    """
    tags = tuple(dict.fromkeys(map(_tag, _listed(given))))
    if len(tags) > MAX_TAGS:
        raise UsageError(f"there may be {MAX_TAGS} tags at most, got {len(tags)}: leave some out")
    return tags


def read_attributes(given: object) -> Attributes:
    """Return attributes as facts keep them.

    Raises:
        UsageError: It is no object of at most `MAX_TAGS` names with a text, a number or a truth value each.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"attributes must be an object of names and values, got {_shown(given)}")
    if len(given) > MAX_TAGS:
        raise UsageError(f"there may be {MAX_TAGS} attributes at most, got {len(given)}: leave some out")
    return dict(map(_attribute, given.items()))


def readable_tags(given: object) -> tuple[str, ...]:
    """Return what can be kept of the tags that a model or a document states."""
    return joined_tags(_readable(given, _tag)) if isinstance(given, list | tuple) else ()


def readable_attributes(given: object) -> Attributes:
    """Return what can be kept of the attributes that a document states."""
    pairs = _readable(given.items(), _attribute) if isinstance(given, Mapping) else ()
    return dict(list(pairs)[:MAX_TAGS])


def read_filter(given: object) -> tuple[str, ...]:
    """Return what a read keeps to: tags, and `name=value` for an attribute.

    Raises:
        UsageError: It is no list of these.
    """
    return tuple(dict.fromkeys(map(_wanted, _listed(given))))


def joined_tags(*several: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of several, each once; past `MAX_TAGS` the later ones are left out."""
    return tuple(dict.fromkeys(tag for tags in several for tag in tags))[:MAX_TAGS]


def joined_attributes(several: Iterable[Mapping[str, Attribute]]) -> Attributes:
    """Return the attributes of several; a name with different values is left out, for neither is known to be right."""
    values: dict[str, set[str]] = {}
    joined: Attributes = {}
    for attributes in several:
        for name, value in attributes.items():
            values.setdefault(name, set()).add(spelled(value))
            joined[name] = value
    agreed = [(name, value) for name, value in joined.items() if len(values[name]) == 1]
    return dict(agreed[:MAX_TAGS])


def value_of(text: str) -> Attribute:
    """Return the value that a text spells: a truth value, a number, or else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        # "007" and "1e3" are texts: a number would be spelled otherwise, and a filter would not find it.
        if spelled(number) == text and math.isfinite(number):
            return number
    return text


def _listed(given: object) -> list[object]:
    if not isinstance(given, list | tuple | set | frozenset):
        raise UsageError(f"tags must be a list of names, such as ['project-a'], got {_shown(given)}")
    return list(given)


def _readable(given: Iterable[_G], read: Callable[[_G], _R]) -> Iterator[_R]:
    for one in given:
        try:
            yield read(one)
        except UsageError:
            continue


def _tag(given: object) -> str:
    return _name("a tag", given)


def _wanted(given: object) -> str:
    if isinstance(given, str) and "=" in given:
        name, _, value = given.partition("=")
        return f"{_name('an attribute', name)}={_clean(value)}"
    return _tag(given)


def _name(kind: str, given: object) -> str:
    name = _clean(given) if isinstance(given, str) else ""
    if not name or len(name) > MAX_TAG or not name.isprintable() or "," in name or "=" in name:
        raise UsageError(
            f"{kind} must be a name of 1 to {MAX_TAG} characters in one line, without commas and equals signs, got "
            f"{_shown(given)}"
        )
    return name


def _attribute(pair: tuple[object, object]) -> tuple[str, Attribute]:
    name, value = _name("an attribute", pair[0]), pair[1]
    if isinstance(value, str) and len(text := _clean(value)) <= MAX_VALUE and text and text.isprintable():
        return name, text
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) <= _MOST):
        return name, value
    if isinstance(value, float) and math.isfinite(value):
        return name, value
    raise UsageError(
        f"attribute {name} must be a text of 1 to {MAX_VALUE} characters in one line, a number, or true or false, got "
        f"{_shown(value)}"
    )


def _clean(text: str) -> str:
    return unicodedata.normalize("NFC", safe_text(text).strip())


def _shown(given: object) -> str:
    shown = repr(given)
    return shown if len(shown) <= MAX_TAG else f"{shown[:MAX_TAG]}…"
