"""Reply parser: takes the first valid JSON object of a model's answer apart into candidates.

A broken object fails the whole reply; nothing is repaired by guessing. Inside a valid object every item is read by
itself. An item that cannot be read becomes an Unread candidate, which is refused and recorded, and affects no other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence

from backstory.ledger.core.commands import LISTS, Proposal
from backstory.ledger.core.errors import ReplyError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Candidate, Turn
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.extraction.items import Cited, read_item, read_section, unread
from backstory.ledger.text.json_text import may_nest_too_deep, read_number, refuse_too_deep
from backstory.ledger.text.tags import joined_tags

_MAX_REPLY = 8 * 1024 * 1024
_KNOWN = frozenset({"user", "history", *LISTS})
_MARK = re.compile(r'(?P<object>\{\s*["}])|<(?P<end>/?)think(?:ing)?>', re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_MAX_ITEMS = 10_000
_MAX_BROKEN = 20


class _Repeating(dict[str, object]):
    """An object with a repeated key; `shadowed` holds the values that a later one replaced."""

    shadowed: tuple[tuple[str, object], ...] = ()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    last = {key: index for index, (key, _) in enumerate(pairs)}
    repeating = _Repeating(found)
    repeating.shadowed = tuple(pair for index, pair in enumerate(pairs) if last[pair[0]] != index)
    return repeating


def first_object(text: str, known: Collection[str] = _KNOWN) -> dict[str, object]:
    """Return the first JSON object with a known key outside of thinking tags.

    A tag inside a JSON string is text. A closing tag without an opening one marks everything before it as thinking.
    The search ends at an object that cannot be read to its end: otherwise an object nested in it would be taken for
    the answer.

    Raises:
        ReplyError: There is no such object, or it is broken.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=read_number)
    found: dict[str, object] | None = None
    failure: str | None = None
    position = broken = 0
    crowded = may_nest_too_deep(text)
    while (mark := _MARK.search(text, position)) is not None:
        position = mark.end()
        if mark["end"]:
            found = failure = None
        elif mark["object"] is None:
            end = _THOUGHT_END.search(text, position)
            position = len(text) if end is None else end.end()
        elif failure is None:
            try:
                if crowded:
                    refuse_too_deep(text, mark.start())
                value, position = decoder.raw_decode(text, mark.start())
            except (ValueError, RecursionError) as error:
                failure = str(error) if isinstance(error, ValueError) else "nested too deep"
                broken += 1
                if broken > _MAX_BROKEN:
                    break
            else:
                found = value if found is None and not value.keys().isdisjoint(known) else found
    if found is not None:
        return found
    if failure is not None:
        raise ReplyError(f"the reply's JSON is broken: {failure[:200]}")
    raise ReplyError(f"the reply holds no JSON object with any of {', '.join(sorted(known))}")


def reply_text(text: str) -> str:
    """Return an answer with lone surrogates replaced.

    Raises:
        ReplyError: The answer has too many characters.
    """
    raw = safe_text(text)
    if len(raw) > _MAX_REPLY:
        raise ReplyError(f"the reply has {len(raw)} characters; at most {_MAX_REPLY} are read")
    return raw


def _summaries(found: dict[str, object]) -> Iterator[Candidate]:
    groups: dict[str, object] = {}
    for group in ("user", "history"):
        value = found.get(group)
        if isinstance(value, dict):
            groups |= {f"{group}.{key}": section for key, section in value.items()}
        elif value is not None:
            yield unread(group, value, "not an object of sections")
    for name in DOCUMENT_SECTIONS:
        section = groups.get(name)
        candidate = None if section is None else read_section(name, section)
        if candidate is not None:
            yield candidate


def _listed(found: dict[str, object], cited: Cited) -> Iterator[Candidate]:
    for name in LISTS:
        items = found.get(name)
        if isinstance(items, list):
            for index, item in enumerate(items):
                yield read_item(name, f"{name}/{index}", item, cited)
        elif items is not None:
            yield unread(name, items, "not a list")


def _shadowed(found: dict[str, object]) -> Iterator[Candidate]:
    """Yield a candidate for each value that a later one of the same key replaced."""
    for prefix, part in (("", found), ("user.", found.get("user")), ("history.", found.get("history"))):
        known = DOCUMENT_SECTIONS if prefix else _KNOWN
        for index, (key, value) in enumerate(part.shadowed if isinstance(part, _Repeating) else ()):
            name = f"{prefix}{key}"
            if name in known and value is not None:
                yield unread(f"{name}/again{index}", value, "given again further on, and read there")


def _count(found: dict[str, object]) -> int:
    """Return an upper bound of the number of candidates in a reply."""
    lists = [found.get(name) for name in LISTS]
    repeated = [part for part in (found, found.get("user"), found.get("history")) if isinstance(part, _Repeating)]
    return sum(len(items) for items in lists if isinstance(items, list)) + sum(len(part.shadowed) for part in repeated)


def read_reply(
    text: str, turns: Sequence[Turn] = (), *, prompted: bool = True, thread: Sequence[Turn] = ()
) -> Proposal:
    """Read a model's answer into a proposal.

    Args:
        text: the raw answer.
        turns: the turns that the answer is about. The numbers it cites become their ids.
        prompted: whether the model saw the prompt. If so, a cited number is a turn's number; in a recorded reply an id
            that looks like a number comes first.
        thread: all turns that a recorded reply may cite. Any other citation is ignored.

    Raises:
        ReplyError: The answer has no object with a known key, a broken one, too many characters, or too many items.
    """
    raw = reply_text(text)
    found = first_object(raw)
    if (count := _count(found)) > _MAX_ITEMS:
        raise ReplyError(f"the reply holds {count} items; at most {_MAX_ITEMS} are read")
    numbers, ids = {str(turn.n): turn.id for turn in turns}, {turn.id: turn.id for turn in turns}
    cite = ids | numbers if prompted else {turn.id: turn.id for turn in thread} | numbers | ids
    offsets = {turn.id: turn.offset for turn in (*thread, *turns)}
    tags = {turn.id: turn.tags for turn in (*thread, *turns)}
    cited = Cited(cite, offsets, tags, joined_tags(*(turn.tags for turn in turns)))
    candidates = (*_summaries(found), *_listed(found, cited), *_shadowed(found))
    return Proposal(candidates, hashlib.sha256(raw.encode()).hexdigest(), len(raw))
