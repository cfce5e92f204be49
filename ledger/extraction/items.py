"""Reader of single reply items: the pydantic models of each kind of item, and the candidate built from one.

Required fields are strict. Optional fields are dropped where they cannot be read. An item that cannot be read becomes
an Unread candidate. A text over its limit is read all the same, up to `MAX_CONTENT`: the rule `too_long` refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypedDict

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from backstory.ledger.core.events import (
    SECTION_GROUPS,
    Candidate,
    Consolidation,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.moments import stated_time
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_FACT, MAX_NAME, Json, clip, text_if_any, whole_days
from backstory.ledger.text.tags import joined_tags, readable_tags

_MAX_EVIDENCE = 50
_MAX_DAYS = 10**6
_MAX_SOURCES = 1_000


class Cited(msgspec.Struct, frozen=True):
    """The turns that a reply may cite, their offsets from UTC and their tags.

    Attributes:
        ids: the ids of the turns, by how they are cited.
        offsets: the offsets, by id.
        tags: the tags, by id.
        all_tags: the tags of all turns of the update, for a fact that cites none.
    """

    ids: Mapping[str, str]
    offsets: Mapping[str, str | None] = {}
    tags: Mapping[str, tuple[str, ...]] = {}
    all_tags: tuple[str, ...] = ()

    def tags_of(self, evidence: Sequence[str]) -> tuple[str, ...]:
        """Return the tags of the turns that a fact cites."""
        return joined_tags(*(self.tags.get(turn, ()) for turn in evidence)) if evidence else self.all_tags


def _as_json(item: object) -> str:
    try:
        return json.dumps(item, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "… [nested too deep to be shown]"


def _label_text(value: object) -> str | None:
    if value is None or value == "":
        return None
    # A label that is not a string is kept as JSON: no rule accepts it, and the log shows what it was.
    return clip(value.strip() if isinstance(value, str) else _as_json(value), MAX_NAME) or None


def _time_text(value: object) -> str | None:
    """Return what may be a stated time as a text: a year may come as a number."""
    return str(value) if type(value) is int else value if isinstance(value, str) else None


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Labelled(_Item):
    scope: str | None = None
    durability: str | None = None
    authority: str | None = None
    topic: str | None = None

    _label = field_validator("scope", "durability", "authority", "topic", mode="before")(_label_text)


class _Labels(TypedDict):
    scope: str | None
    durability: str | None
    authority: str | None
    topic: str | None


class _NewFact(_Labelled):
    content: str
    category: str = "context"
    confidence: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    evidence: tuple[str, ...] = ()
    source_error: str | None = Field(default=None, alias="sourceError")
    expected_valid_days: int | None = Field(default=None, alias="expectedValidDays")
    valid_from: str | None = Field(default=None, alias="validFrom")
    valid_until: str | None = Field(default=None, alias="validUntil")
    expires_at: str | None = Field(default=None, alias="expiresAt")
    tags: tuple[str, ...] = ()

    _tags = field_validator("tags", mode="before")(readable_tags)

    @field_validator("evidence", mode="before")
    @classmethod
    def _cited(cls, value: object) -> tuple[str, ...]:
        cited = value if isinstance(value, list) else [value]
        return tuple(str(c) for c in cited if isinstance(c, str | int) and not isinstance(c, bool))[:_MAX_EVIDENCE]

    _stated = field_validator("valid_from", "valid_until", "expires_at", mode="before")(_time_text)
    _text = field_validator("source_error", mode="before")(text_if_any)
    _days = field_validator("expected_valid_days", mode="before")(whole_days)


class _Reference(_Labelled):
    id: str


class _Removal(_Reference):
    reason: str | None = None
    replacement: int | None = Field(default=None, alias="replacementFactIndex", ge=0)
    ended: bool = False
    valid_until: str | None = Field(default=None, alias="validUntil")

    @field_validator("ended", mode="before")
    @classmethod
    def _flag(cls, value: object) -> bool:
        return value is True

    _stated = field_validator("valid_until", mode="before")(_time_text)


class _Ending(_Reference):
    """An item of `factsToEnd`, as models are asked for it; it is read as a removal that says `ended`."""

    valid_until: str | None = Field(default=None, alias="validUntil")
    reason: str | None = None
    replacement: int | None = Field(default=None, alias="replacementFactIndex", ge=0)


class _Extension(_Reference):
    days: int = Field(alias="extendByDays", gt=0, lt=_MAX_DAYS)
    reason: str | None = None

    @field_validator("days", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        return int(value) if isinstance(value, float) and value.is_integer() else value


class _Merged(_Labelled):
    content: str
    category: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class _Consolidation(_Item):
    sources: tuple[str, ...] = Field(alias="sourceIds", max_length=_MAX_SOURCES, strict=False)
    consolidated: _Merged


class _Section(_Labelled):
    summary: str = ""
    should_update: bool = Field(alias="shouldUpdate")


@lru_cache
def reply_schema(*, review: bool = True, merging: bool = True, topics: bool = False) -> dict[str, Json]:
    """Return the JSON schema of a reply, for servers that enforce one; the result is shared, so do not change it.

    Args:
        review: include the lists that answer the question about facts up for review.
        merging: include the list that answers the question about facts to merge.
        topics: include the label `topic`, which the policy's instructions ask for.
    """
    section: Json = {
        "type": "object",
        "properties": {
            "summary": {"type": "string"},
            "shouldUpdate": {"type": "boolean"},
            "scope": {"type": "string"},
            "authority": {"type": "string"},
            **({"topic": {"type": "string"}} if topics else {}),
        },
    }
    groups: dict[str, Json] = {
        group: {"type": "object", "properties": dict.fromkeys(keys, section)} for group, keys in SECTION_GROUPS.items()
    }
    kinds: dict[str, type[_Item]] = {
        "newFacts": _NewFact,
        "factsToRemove": _Removal,
        "factsToEnd": _Ending,
        "factsToReinforce": _Reference,
    }
    if review:
        kinds |= {"staleFactsToRemove": _Removal, "staleFactsToExtend": _Extension}
    items: dict[str, Json] = {
        name: {"type": "array", "items": _schema_of(kind, topics=topics)} for name, kind in kinds.items()
    }
    if merging:
        # Written out: pydantic's own schema holds a reference, which is valid only at the top of a document.
        sources: Json = {"type": "array", "items": {"type": "string"}}
        group_of: Json = {"sourceIds": sources, "consolidated": _schema_of(_Merged, topics=topics)}
        required: Json = ["sourceIds", "consolidated"]
        item: Json = {"type": "object", "properties": group_of, "required": required}
        items["factsToConsolidate"] = {"type": "array", "items": item}
    return {"type": "object", "properties": {**groups, **items}}


def _schema_of(kind: type[_Item], *, topics: bool) -> dict[str, Json]:
    schema = kind.model_json_schema()
    if not topics:
        # Without instructions nothing says which tags there are.
        schema["properties"].pop("topic", None)
        schema["properties"].pop("tags", None)
    return schema


def unread(place: str, item: object, detail: str) -> Unread:
    """Return a candidate that keeps an unreadable item as clipped JSON, with the reason it could not be read."""
    return Unread(place=place, text=clip(_as_json(item), MAX_FACT), detail=clip(detail, MAX_NAME))


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'item'}: {first['msg']}"


def _new_fact(place: str, item: object, cited: Cited) -> Candidate:
    if isinstance(item, dict) and "expected_valid_days" in item:
        item = {"expectedValidDays": item["expected_valid_days"], **item}
    read = _NewFact.model_validate(item)
    evidence = tuple(dict.fromkeys(cited.ids[one] for one in read.evidence if one in cited.ids))
    offset = next((cited.offsets.get(turn) for turn in evidence), None)
    return NewFact(
        place=place,
        content=clip(read.content.strip(), MAX_CONTENT),
        category=clip(read.category.strip().casefold(), MAX_NAME),
        confidence=read.confidence,
        evidence=evidence,
        source_error=clip(read.source_error.strip(), MAX_CONTENT) if read.source_error else None,
        expected_valid_days=read.expected_valid_days,
        valid_from=stated_time(read.valid_from or "", offset),
        valid_until=stated_time(read.valid_until or "", offset),
        expires_at=stated_time(read.expires_at or "", offset),
        tags=joined_tags(cited.tags_of(evidence), read.tags),
        **_labels(read),
    )


def _labels(read: _Labelled) -> _Labels:
    return _Labels(scope=read.scope, durability=read.durability, authority=read.authority, topic=read.topic)


def _removal(place: str, item: object, *, ended: bool = False) -> Candidate:
    if isinstance(item, str):
        return Removal(place=place, id=clip(item.strip(), MAX_NAME), ended=ended)
    read = _Removal.model_validate(item)
    ended = ended or read.ended
    return Removal(
        place=place,
        id=clip(read.id.strip(), MAX_NAME),
        reason=clip(read.reason, MAX_CONTENT) if read.reason else None,
        replacement=read.replacement,
        ended=ended,
        valid_until=stated_time(read.valid_until or "") if ended else None,
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
        reason=clip(read.reason, MAX_CONTENT) if read.reason else None,
        **_labels(read),
    )


def _consolidation(place: str, item: object) -> Candidate:
    read = _Consolidation.model_validate(item)
    merged = read.consolidated
    return Consolidation(
        place=place,
        sources=tuple(clip(source.strip(), MAX_NAME) for source in read.sources),
        content=clip(merged.content.strip(), MAX_CONTENT),
        category=clip(merged.category.strip().casefold(), MAX_NAME) if merged.category else None,
        confidence=merged.confidence,
        **_labels(merged),
    )


def read_item(name: str, place: str, item: object, cited: Cited) -> Candidate:
    """Read an item of a list.

    Args:
        name: the name of the list in the reply.
        place: where the item stands in the reply, such as `newFacts/0`.
        item: the parsed JSON.
        cited: the turns that may be cited as evidence.
    """
    try:
        if name == "newFacts":
            return _new_fact(place, item, cited)
        if name in ("factsToRemove", "staleFactsToRemove"):
            return _removal(place, item)
        if name == "factsToEnd":
            return _removal(place, item, ended=True)
        if name == "factsToReinforce":
            return _reinforcement(place, item)
        if name == "staleFactsToExtend":
            return _extension(place, item)
        return _consolidation(place, item)
    except ValidationError as error:
        return unread(place, item, _first_problem(error))


def read_section(place: str, section: object) -> Candidate | None:
    """Read the new text of a section, or return None where the reply leaves the section unchanged."""
    try:
        read = _Section.model_validate(section)
    except ValidationError as error:
        return unread(place, section, _first_problem(error))
    if not read.should_update:
        return None
    return NewSummary(place=place, summary=clip(read.summary.strip(), MAX_CONTENT), **_labels(read))
