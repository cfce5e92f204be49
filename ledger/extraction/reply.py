"""What a model answered (row D9): the first valid object of its text, taken apart into candidates.

An object that is broken fails the whole reply; nothing is repaired by guessing. Inside a valid one each item stands for
itself: what cannot be read becomes an Unread candidate, refused and recorded like any other, and harms no neighbour.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ledger.commands import Proposal
from ledger.errors import ReplyError
from ledger.events import (
    DOCUMENT_SECTIONS,
    Candidate,
    Consolidation,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Turn,
    Unread,
)
from ledger.sanitize import MAX_FACT, MAX_NAME, MAX_SUMMARY, Json, clip, safe_text

__all__ = ["read_reply", "reply_schema"]

_MAX_REPLY = 8 * 1024 * 1024
_LISTS = (
    "newFacts",
    "factsToRemove",
    "factsToReinforce",
    "staleFactsToRemove",
    "staleFactsToExtend",
    "factsToConsolidate",
)
_KNOWN = frozenset({"user", "history", *_LISTS})
_MARK = re.compile(r'(?P<object>\{\s*["}])|<(?P<end>/?)think(?:ing)?>', re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_MAX_ITEMS = 10_000
_MAX_BROKEN = 20
_MAX_DIGITS = 4_000
_MAX_EVIDENCE = 50
_MAX_DAYS = 10**6
_MAX_SOURCES = 1_000


class _Item(BaseModel):
    """The fields that an item stands on are strict; the rest is taken where it can be read and left out where not."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Labelled(_Item):
    scope: str | None = None
    durability: str | None = None
    authority: str | None = None

    @field_validator("scope", "durability", "authority", mode="before")
    @classmethod
    def _label(cls, value: object) -> str | None:
        return clip(value.strip(), MAX_NAME) if isinstance(value, str) and value.strip() else None


class _Labels(TypedDict):
    scope: str | None
    durability: str | None
    authority: str | None


class _NewFact(_Labelled):
    content: str
    category: str = "context"
    confidence: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    evidence: tuple[str, ...] = ()
    source_error: str | None = Field(default=None, alias="sourceError")
    expected_valid_days: int | None = Field(default=None, alias="expectedValidDays")

    @field_validator("evidence", mode="before")
    @classmethod
    def _cited(cls, value: object) -> tuple[str, ...]:
        cited = value if isinstance(value, list) else [value]
        return tuple(str(c) for c in cited if isinstance(c, str | int) and not isinstance(c, bool))[:_MAX_EVIDENCE]

    @field_validator("source_error", mode="before")
    @classmethod
    def _text(cls, value: object) -> str | None:
        return value if isinstance(value, str) and value.strip() else None

    @field_validator("expected_valid_days", mode="before")
    @classmethod
    def _days(cls, value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if 0 < value < _MAX_DAYS and value == int(value) else None


class _Reference(_Labelled):
    id: str


class _Removal(_Reference):
    reason: str | None = None
    replacement: int | None = Field(default=None, alias="replacementFactIndex", ge=0)


class _Extension(_Reference):
    days: int = Field(alias="extendByDays", gt=0, lt=_MAX_DAYS)
    reason: str | None = None


class _Merged(_Labelled):
    content: str
    category: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class _Consolidation(_Item):
    sources: tuple[str, ...] = Field(alias="sourceIds", max_length=_MAX_SOURCES)
    consolidated: _Merged

    @field_validator("sources", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class _Section(_Labelled):
    summary: str = ""
    should_update: bool = Field(alias="shouldUpdate")


@lru_cache
def reply_schema(*, review: bool = True, merging: bool = True) -> dict[str, Json]:
    """Return the JSON schema of a reply, for servers that hold a model to one; treat it as read-only.

    Without `review` and `merging` it does not offer the lists that answer a question for old facts, or for many.
    """
    section: Json = {
        "type": "object",
        "properties": {
            "summary": {"type": "string"},
            "shouldUpdate": {"type": "boolean"},
            "scope": {"type": "string"},
            "authority": {"type": "string"},
        },
    }
    groups: dict[str, Json] = {}
    for name in DOCUMENT_SECTIONS:
        group, _, key = name.partition(".")
        properties = groups.setdefault(group, {"type": "object", "properties": {}})
        assert isinstance(properties, dict)  # noqa: S101 the line above made it
        inner = properties["properties"]
        assert isinstance(inner, dict)  # noqa: S101 as above
        inner[key] = section
    items: dict[str, Json] = {
        "newFacts": {"type": "array", "items": _NewFact.model_json_schema()},
        "factsToRemove": {"type": "array", "items": _Removal.model_json_schema()},
        "factsToReinforce": {"type": "array", "items": _Reference.model_json_schema()},
    }
    if review:
        items["staleFactsToRemove"] = {"type": "array", "items": _Removal.model_json_schema()}
        items["staleFactsToExtend"] = {"type": "array", "items": _Extension.model_json_schema()}
    if merging:
        # By hand, for a schema with a reference in it can only stand at the top of a document.
        sources: Json = {"type": "array", "items": {"type": "string"}}
        group_of: Json = {"sourceIds": sources, "consolidated": _Merged.model_json_schema()}
        required: Json = ["sourceIds", "consolidated"]
        item: Json = {"type": "object", "properties": group_of, "required": required}
        items["factsToConsolidate"] = {"type": "array", "items": item}
    return {"type": "object", "properties": {**groups, **items}}


class _Repeating(dict[str, object]):
    """An object that gives a key more than once; `shadowed` are the values that a later one took the place of."""

    shadowed: tuple[tuple[str, object], ...] = ()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    last = {key: index for index, (key, _) in enumerate(pairs)}
    repeating = _Repeating(found)
    repeating.shadowed = tuple(pair for index, pair in enumerate(pairs) if last[pair[0]] != index)
    return repeating


def _number(digits: str) -> int | float:
    # Python reads no integer of more than 4,300 digits; as a float it is merely out of every range.
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _first_object(text: str) -> dict[str, object]:
    """Return the first JSON object with a known key outside of thinking.

    A tag inside an object's text is text; an end of thinking that had no beginning makes a thought of all before it. An
    object that begins and cannot be read to its end is what the model meant to say, broken: the search ends there, or a
    part of it would be taken for the whole.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number)
    found: dict[str, object] | None = None
    failure: str | None = None
    position = broken = 0
    while (mark := _MARK.search(text, position)) is not None:
        position = mark.end()
        if mark["end"]:
            found = failure = None
        elif mark["object"] is None:
            end = _THOUGHT_END.search(text, position)
            position = len(text) if end is None else end.end()
        elif failure is None:
            try:
                value, position = decoder.raw_decode(text, mark.start())
            except (ValueError, RecursionError) as error:
                failure = str(error) if isinstance(error, ValueError) else "nested too deep"
                broken += 1
                if broken > _MAX_BROKEN:
                    break
            else:
                found = value if found is None and not _KNOWN.isdisjoint(value) else found
    if found is not None:
        return found
    if failure is not None:
        raise ReplyError(f"the reply's JSON is broken: {failure[:200]}")
    raise ReplyError(f"the reply holds no JSON object with any of {', '.join(sorted(_KNOWN))}")


def _unread(place: str, item: object, detail: str) -> Unread:
    try:
        text = json.dumps(item, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = "… [nested too deep to be shown]"
    return Unread(place=place, text=clip(text, MAX_FACT), detail=clip(detail, MAX_NAME))


def _told(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'item'}: {first['msg']}"


def _new_fact(place: str, item: object, cite: dict[str, str]) -> Candidate:
    if isinstance(item, dict) and "expected_valid_days" in item:
        item = {"expectedValidDays": item["expected_valid_days"], **item}
    read = _NewFact.model_validate(item)
    return NewFact(
        place=place,
        content=clip(read.content.strip(), MAX_FACT),
        category=clip(read.category.strip().casefold(), MAX_NAME),
        confidence=read.confidence,
        evidence=tuple(dict.fromkeys(cite.get(c, clip(c, MAX_NAME)) for c in read.evidence)),
        source_error=clip(read.source_error.strip(), MAX_FACT) if read.source_error else None,
        expected_valid_days=read.expected_valid_days,
        **_labels(read),
    )


def _labels(read: _Labelled) -> _Labels:
    return _Labels(scope=read.scope, durability=read.durability, authority=read.authority)


def _removal(place: str, item: object) -> Candidate:
    if isinstance(item, str):
        return Removal(place=place, id=clip(item.strip(), MAX_NAME))
    read = _Removal.model_validate(item)
    return Removal(
        place=place,
        id=clip(read.id.strip(), MAX_NAME),
        reason=clip(read.reason, MAX_FACT) if read.reason else None,
        replacement=read.replacement,
        **_labels(read),
    )


def _reinforcement(place: str, item: object) -> Candidate:
    if isinstance(item, str):
        return Reinforcement(place=place, id=clip(item.strip(), MAX_NAME))
    read = _Reference.model_validate(item)
    return Reinforcement(place=place, id=clip(read.id.strip(), MAX_NAME), **_labels(read))


def _extension(place: str, item: object) -> Candidate:
    if isinstance(item, dict) and "extend_by_days" in item:
        item = {"extendByDays": item["extend_by_days"], **item}
    read = _Extension.model_validate(item)
    return Extension(
        place=place,
        id=clip(read.id.strip(), MAX_NAME),
        days=read.days,
        reason=clip(read.reason, MAX_FACT) if read.reason else None,
        **_labels(read),
    )


def _consolidation(place: str, item: object) -> Candidate:
    read = _Consolidation.model_validate(item)
    merged = read.consolidated
    return Consolidation(
        place=place,
        sources=tuple(clip(source.strip(), MAX_NAME) for source in read.sources),
        content=clip(merged.content.strip(), MAX_FACT),
        category=clip(merged.category.strip().casefold(), MAX_NAME) if merged.category else None,
        confidence=merged.confidence,
        **_labels(merged),
    )


def _item(name: str, place: str, item: object, cite: dict[str, str]) -> Candidate:
    try:
        if name == "newFacts":
            return _new_fact(place, item, cite)
        if name in ("factsToRemove", "staleFactsToRemove"):
            return _removal(place, item)
        if name == "factsToReinforce":
            return _reinforcement(place, item)
        if name == "staleFactsToExtend":
            return _extension(place, item)
        return _consolidation(place, item)
    except ValidationError as error:
        return _unread(place, item, _told(error))


def _summaries(found: dict[str, object]) -> Iterator[Candidate]:
    groups: dict[str, object] = {}
    for group in ("user", "history"):
        value = found.get(group)
        if isinstance(value, dict):
            groups |= {f"{group}.{key}": section for key, section in value.items()}
        elif value is not None:
            yield _unread(group, value, "not an object of sections")
    for name in DOCUMENT_SECTIONS:
        section = groups.get(name)
        if section is None:
            continue
        try:
            read = _Section.model_validate(section)
        except ValidationError as error:
            yield _unread(name, section, _told(error))
            continue
        if read.should_update:
            yield NewSummary(place=name, summary=clip(read.summary.strip(), MAX_SUMMARY), **_labels(read))


def _listed(found: dict[str, object], cite: dict[str, str]) -> Iterator[Candidate]:
    for name in _LISTS:
        items = found.get(name)
        if isinstance(items, list):
            for index, item in enumerate(items):
                yield _item(name, f"{name}/{index}", item, cite)
        elif items is not None:
            yield _unread(name, items, "not a list")


def _shadowed(found: dict[str, object]) -> Iterator[Candidate]:
    """Tell of what a reply gave twice and is read as it was last."""
    for prefix, part in (("", found), ("user.", found.get("user")), ("history.", found.get("history"))):
        known = DOCUMENT_SECTIONS if prefix else _KNOWN
        for index, (key, value) in enumerate(part.shadowed if isinstance(part, _Repeating) else ()):
            name = f"{prefix}{key}"
            if name in known and value is not None:
                yield _unread(f"{name}/again{index}", value, "given again further on, and read there")


def _count(found: dict[str, object]) -> int:
    """How many items a reply comes to, at most."""
    lists = [found.get(name) for name in _LISTS]
    repeated = [part for part in (found, found.get("user"), found.get("history")) if isinstance(part, _Repeating)]
    return sum(len(items) for items in lists if isinstance(items, list)) + sum(len(part.shadowed) for part in repeated)


def read_reply(text: str, turns: Sequence[Turn] = (), *, prompted: bool = True) -> Proposal:
    """Take a model's answer apart; `turns` are those it was made from, so that the numbers it cites become their ids.

    A model that was `prompted` saw numbers and no ids, so an id that looks like a number is not what it means; in a
    recorded reply it is.

    Raises:
        ReplyError: no object, a broken one, or one without a known key; too many characters, or items.
    """
    raw = safe_text(text)
    if len(raw) > _MAX_REPLY:
        raise ReplyError(f"the reply has {len(raw)} characters; at most {_MAX_REPLY} are read")
    found = _first_object(raw)
    if (count := _count(found)) > _MAX_ITEMS:
        raise ReplyError(f"the reply holds {count} items; at most {_MAX_ITEMS} are read")
    numbers, ids = {str(turn.n): turn.id for turn in turns}, {turn.id: turn.id for turn in turns}
    cite = ids | numbers if prompted else numbers | ids
    candidates = (*_summaries(found), *_listed(found, cite), *_shadowed(found))
    return Proposal(candidates, hashlib.sha256(raw.encode()).hexdigest(), len(raw))
