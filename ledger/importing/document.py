"""Reader of a parsed memory: DeerFlow's document, our own export, a list of texts or a list of facts.

What a host changed in a document becomes candidates, too: those that lead from the one it was given to the one it hands
back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import assert_never

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import (
    SECTION_GROUPS,
    Attributes,
    Candidate,
    Consolidation,
    Edit,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.moments import parse_moment, read_time, spell_moment, stated_time
from backstory.ledger.core.policy import read_category
from backstory.ledger.core.sanitize import (
    MAX_CONTENT,
    MAX_FACT,
    MAX_NAME,
    bounded_name,
    clip,
    safe_json,
    text_if_any,
    whole_days,
)
from backstory.ledger.text.tags import readable_attributes, readable_tags

_MAX_CONFIRMATIONS = 10**6
_MAX_SOURCES = 1_000
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+", re.ASCII)
_LARGEST_ID = 10**100
_NO_SOURCES = ("", "unknown", "consolidation")
_STATED_CONFIDENCE = 0.5
_LISTED_CONFIDENCE = 0.9
"""The confidence of listed facts that state none; a document's 0.5 is below the threshold and would refuse them all."""

_KINDS = {"confidence": "a number from 0 to 1", "byHand": "true or false"}
"""The required values of the fields that are not texts."""


class _Fact(BaseModel):
    """A fact of a document; essential fields are strict, the others are left out if they cannot be read."""

    model_config = ConfigDict(strict=True, extra="ignore")

    content: str
    category: str = "context"
    confidence: float = Field(default=_STATED_CONFIDENCE, ge=0, le=1, allow_inf_nan=False)
    id: str | None = None
    created_at: str | None = Field(default=None, alias="createdAt")
    by_hand: bool = Field(default=False, alias="byHand")
    source: str | None = None
    source_error: str | None = Field(default=None, alias="sourceError")
    expected_valid_days: int | None = Field(
        default=None, validation_alias=AliasChoices("expectedValidDays", "expected_valid_days")
    )
    confirmations: int = Field(default=0, validation_alias=AliasChoices("confirmationCount", "confirmations"))
    confirmed_at: str | None = Field(default=None, validation_alias=AliasChoices("lastConfirmedAt", "confirmedAt"))
    consolidated_from: tuple[str, ...] = Field(default=(), alias="consolidatedFrom")
    valid_from: str | None = Field(default=None, alias="validFrom")
    valid_until: str | None = Field(default=None, alias="validUntil")
    expires_at: str | None = Field(default=None, alias="expiresAt")
    tags: tuple[str, ...] = ()
    attributes: Attributes = {}

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: object) -> object:
        # Other programs write null for what is not known.
        return {key: one for key, one in given.items() if one is not None} if isinstance(given, Mapping) else given

    @field_validator("confidence", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else value

    @field_validator("category", mode="before")
    @classmethod
    def _one(cls, value: object) -> object:
        # Of several the first one, which is the best.
        return next(iter(value), "context") if isinstance(value, list | tuple) else value

    @field_validator("id", mode="before")
    @classmethod
    def _id_text(cls, value: object) -> object:
        return str(value) if type(value) is int and abs(value) < _LARGEST_ID else value

    @field_validator("created_at", mode="before")
    @classmethod
    def _time_text(cls, value: object) -> object:
        # YAML parses a time without quotes.
        if isinstance(value, datetime | date):
            return value.isoformat()
        return read_time(value) or value

    @field_validator("source", mode="before")
    @classmethod
    def _origin(cls, value: object) -> object:
        # DeerFlow 2 writes `{type, threadId}`; DeerFlow 1 wrote the thread or the type. Some types mean no source.
        if isinstance(value, Mapping):
            kind, thread = value.get("type"), value.get("threadId")
            named = isinstance(thread, str) and thread and kind in ("conversation", None, "")
            value = thread if named else kind
        return value if isinstance(value, str) and value not in _NO_SOURCES else None

    _text = field_validator("source_error", mode="before")(text_if_any)
    _days = field_validator("expected_valid_days", mode="before")(whole_days)

    @field_validator("confirmations", mode="before")
    @classmethod
    def _count(cls, value: object) -> int:
        return min(value, _MAX_CONFIRMATIONS) if type(value) is int and value > 0 else 0

    @field_validator("confirmed_at", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        text = cls._time_text(value)
        return text if isinstance(text, str) else None

    @field_validator("valid_from", "valid_until", "expires_at", mode="before")
    @classmethod
    def _stated(cls, value: object) -> str | None:
        # YAML parses a year without quotes, too.
        text = value.isoformat() if isinstance(value, datetime | date) else str(value)
        return stated_time(text) or read_time(value)

    _tags = field_validator("tags", mode="before")(readable_tags)
    _attributes = field_validator("attributes", mode="before")(readable_attributes)

    @field_validator("consolidated_from", mode="before")
    @classmethod
    def _sources(cls, value: object) -> tuple[str, ...]:
        named = value if isinstance(value, list | tuple) else ()
        if len(named) > _MAX_SOURCES:
            raise ValueError(f"{len(named):,} ids are too many; at most {_MAX_SOURCES:,} are kept")
        return tuple(bounded_name(one) for one in named if isinstance(one, str) and one)


def _keys(name: str) -> Iterable[str]:
    alias = _Fact.model_fields[name].validation_alias or name
    return map(str, alias.choices) if isinstance(alias, AliasChoices) else (str(alias),)


FACT_KEYS = frozenset(key for name in _Fact.model_fields for key in _keys(name))
"""The keys of a fact that are read."""


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    summary: str
    updated_at: str = Field(default="", alias="updatedAt")


def _moment(text: str | None) -> str | None:
    moment = parse_moment(text) if text else None
    return spell_moment(moment) if moment else None


def _problem(error: ValidationError, kind: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    if not field:
        return f"{kind} has to be an object with its words as {'summary' if kind == 'a section' else 'content'}"
    if first["type"] == "value_error":
        return f"{field}: {first['ctx']['error']}"
    return f"{field} is missing" if first["type"] == "missing" else f"{field} has to be {_KINDS.get(field, 'a text')}"


def _json(item: object) -> str:
    return json.dumps(safe_json(item), ensure_ascii=False)


def unread(place: str, text: str, detail: str) -> Unread:
    """Return an Unread candidate with the item's text and the reason, both clipped."""
    return Unread(place=place, text=clip(text, MAX_FACT), detail=clip(detail, MAX_NAME))


def fact_candidate(
    place: str, item: object, *, text: str | None = None, origin: str = "", confidence: float = _STATED_CONFIDENCE
) -> NewFact | Unread:
    """Read one fact.

    Args:
        place: the place of the candidate.
        item: the parsed fact.
        text: the text to keep if the fact cannot be read; by default the item as JSON.
        origin: the beginning of the reason if the fact cannot be read.
        confidence: the confidence of a fact that states none, from 0 to 1.
    """
    try:
        read = _Fact.model_validate(item)
    except ValidationError as error:
        return unread(place, _json(item) if text is None else text, origin + _problem(error, "a fact"))
    return NewFact(
        place=place,
        content=clip(read.content.strip(), MAX_CONTENT),
        category=read_category(read.category),
        confidence=read.confidence if "confidence" in read.model_fields_set else confidence,
        source_error=clip(read.source_error, MAX_CONTENT) if read.source_error else None,
        expected_valid_days=read.expected_valid_days,
        id=clip(read.id, MAX_CONTENT) if read.id else None,
        at=_moment(read.created_at),
        source=bounded_name(read.source) if read.source else None,
        by_hand=read.by_hand or read.source == "manual",
        confirmations=read.confirmations,
        confirmed_at=_moment(read.confirmed_at),
        consolidated_from=read.consolidated_from,
        valid_from=read.valid_from,
        valid_until=read.valid_until,
        expires_at=read.expires_at,
        tags=read.tags,
        attributes=read.attributes,
    )


def section_candidates(document: Mapping[str, object]) -> Iterator[Candidate]:
    """Yield the sections of a document, each with its name as place, after the entries that are not sections."""
    for group, keys in SECTION_GROUPS.items():
        yield from _unknown_sections(group, document.get(group), keys)
    for group, keys in SECTION_GROUPS.items():
        sections = document.get(group)
        for key in keys:
            section = sections.get(key) if isinstance(sections, Mapping) else None
            if section is not None:
                yield _section_candidate(f"{group}.{key}", section)


def _unknown_sections(group: str, sections: object, keys: Sequence[str]) -> Iterator[Unread]:
    """Yield the entries of a group that are not sections.

    Their places are numbers, because a name may be any text and the reading order is restored from the places.
    """
    if not isinstance(sections, Mapping):
        if sections is not None:
            yield unread(group, _json(sections), f"{group} has to be an object of sections")
        return
    unknown = [(key, section) for key, section in sections.items() if key not in keys and section is not None]
    for index, (key, section) in enumerate(unknown):
        detail = f"{group} has no such section; those of a document are {', '.join(keys)}"
        yield unread(f"{group}/{index}", _json({key: section}), detail)


def _section_candidate(place: str, section: object) -> NewSummary | Unread:
    try:
        read = _Section.model_validate(section)
    except ValidationError as error:
        return unread(place, _json(section), _problem(error, "a section"))
    return NewSummary(place=place, summary=clip(read.summary.strip(), MAX_CONTENT), at=_moment(read.updated_at))


def without_empty_sections(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates of a document that is merged into memory: an empty section of it asks for nothing."""
    return tuple(c for c in candidates if not isinstance(c, NewSummary) or c.summary)


def listed_fact(index: int, item: object) -> NewFact | Unread:
    """Read one item of a list: a text or a fact."""
    fact = {"content": item} if isinstance(item, str) else item
    return fact_candidate(f"facts/{index}", fact, confidence=_LISTED_CONFIDENCE)


def is_document(given: object) -> bool:
    """Whether an object has at least one part of a document: facts, or an object as user or history."""
    return isinstance(given, Mapping) and (
        "facts" in given or any(isinstance(given.get(key), Mapping) for key in SECTION_GROUPS)
    )


def _may_be_fact(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, Mapping) and "content" in item and "role" not in item)


def read_document(given: object) -> tuple[Candidate, ...]:
    """Read a document, or a list of texts and facts; an item that cannot be read becomes an Unread candidate.

    Raises:
        InputError: `given` is neither.
    """
    if isinstance(given, list | tuple) and any(map(_may_be_fact, given)):
        return tuple(listed_fact(index, item) for index, item in enumerate(given))
    if not isinstance(given, Mapping) or not is_document(given):
        raise InputError(
            "this is no memory document: give an object with user, history and facts, or a list of texts or facts"
        )
    facts = given.get("facts", [])
    if not isinstance(facts, list | tuple):
        raise InputError("facts in this document is not a list")
    sections = tuple(section_candidates(given))
    return sections + tuple(fact_candidate(f"facts/{index}", item) for index, item in enumerate(facts))


def changes_since(
    before: Sequence[Candidate], document: object, *, removable: Collection[str] | None = None
) -> tuple[Candidate, ...]:
    """Return the candidates that lead from one document to another.

    A missing fact becomes a removal. A missing section stays, and so does a fact whose id is there but whose entry
    cannot be read. A fact without an id is matched by its text.

    Args:
        before: the earlier document, read into candidates.
        document: the later document, as `read_document` takes it.
        removable: if given, the ids of the facts that may be removed.

    Raises:
        InputError: `document` is not a document.
    """
    named = _named(document)
    changes: list[Candidate] = []
    facts = {c.id: c for c in before if isinstance(c, NewFact) and c.id}
    sections = {c.place: c.summary for c in before if isinstance(c, NewSummary)}
    unnamed = {fact.content: fact_id for fact_id, fact in facts.items() if fact_id not in named}
    matched: set[str] = set()
    for candidate in read_document(document):
        match candidate:
            case NewSummary(place=place, summary=summary):
                if summary != sections.get(place, ""):
                    changes.append(candidate)
            case NewFact():
                fact = candidate
                if fact.id is None and (same := unnamed.pop(fact.content, None)) is not None:
                    fact = msgspec.structs.replace(fact, id=same)
                was = None if fact.id in matched else facts.get(fact.id or "")
                matched.add(fact.id or "")
                if was is None or not _is_unchanged(fact, was):
                    changes.append(fact)
            case Removal() | Reinforcement() | Extension() | Consolidation() | Edit() | Unread():
                changes.append(candidate)
            case _:
                assert_never(candidate)
    missing = [i for i in facts if i not in named and i not in matched]
    removed = (i for i in missing if removable is None or i in removable)
    changes += (Removal(place=f"factsToRemove/{index}", id=fact_id) for index, fact_id in enumerate(removed))
    return tuple(changes)


def _is_unchanged(fact: NewFact, was: NewFact) -> bool:
    # A field that the later document leaves out keeps its value.
    stated = msgspec.structs.replace(
        fact,
        place=was.place,
        at=fact.at or was.at,
        source=fact.source or was.source,
        by_hand=fact.by_hand or was.by_hand,
        confirmations=max(fact.confirmations, was.confirmations),
        confirmed_at=fact.confirmed_at or was.confirmed_at,
        consolidated_from=fact.consolidated_from or was.consolidated_from,
        valid_from=fact.valid_from or was.valid_from,
        valid_until=fact.valid_until or was.valid_until,
        expires_at=fact.expires_at or was.expires_at,
        tags=fact.tags or was.tags,
        attributes=fact.attributes or was.attributes,
    )
    return stated == was


def _named(document: object) -> set[str]:
    """Return the ids in a document, also those of facts that cannot be read."""
    facts = document.get("facts") if isinstance(document, Mapping) else document
    stated = (fact.get("id") for fact in facts if isinstance(fact, Mapping)) if isinstance(facts, list | tuple) else ()
    return {clip(fact_id, MAX_CONTENT) for fact_id in stated if isinstance(fact_id, str)}
