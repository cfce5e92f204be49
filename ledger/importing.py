"""A memory document from outside, read into candidates: DeerFlow's memory.json, or our own export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.clock import parse_moment, spell_moment
from ledger.errors import InputError
from ledger.events import DOCUMENT_SECTIONS, Candidate, NewFact, NewSummary, Unread
from ledger.sanitize import MAX_FACT, MAX_NAME, MAX_SUMMARY, clip, safe_json

__all__ = ["read_document"]


class _Fact(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    content: str
    category: str = "context"
    confidence: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    id: str | None = None
    created_at: str | None = Field(default=None, alias="createdAt")
    source: str | None = None
    source_error: str | None = Field(default=None, alias="sourceError")
    expected_valid_days: int | None = Field(default=None, alias="expectedValidDays", gt=0)
    by_hand: bool = Field(default=False, alias="byHand")


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    summary: str
    updated_at: str = Field(default="", alias="updatedAt")


def _moment(text: str | None) -> str | None:
    moment = parse_moment(text) if text else None
    return spell_moment(moment) if moment else None


def _told(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'item'}: {first['msg']}"


def _unread(place: str, item: object, detail: str) -> Unread:
    return Unread(place=place, text=clip(str(safe_json(item)), MAX_FACT), detail=clip(detail, MAX_NAME))


def _fact(place: str, item: object) -> Candidate:
    try:
        read = _Fact.model_validate(item)
    except ValidationError as error:
        return _unread(place, item, _told(error))
    return NewFact(
        place=place,
        content=clip(read.content.strip(), MAX_FACT),
        category=clip(read.category.strip().casefold(), MAX_NAME),
        confidence=read.confidence,
        source_error=clip(read.source_error, MAX_FACT) if read.source_error else None,
        expected_valid_days=read.expected_valid_days,
        id=clip(read.id, MAX_NAME) if read.id else None,
        at=_moment(read.created_at),
        source=clip(read.source, MAX_NAME) if read.source else None,
        by_hand=read.by_hand or read.source == "manual",
    )


def _candidates(document: Mapping[str, object]) -> Iterator[Candidate]:
    for name in DOCUMENT_SECTIONS:
        group, _, key = name.partition(".")
        sections = document.get(group)
        section = sections.get(key) if isinstance(sections, Mapping) else None
        if section is None:
            continue
        try:
            read = _Section.model_validate(section)
        except ValidationError as error:
            yield _unread(name, section, _told(error))
            continue
        yield NewSummary(place=name, summary=clip(read.summary.strip(), MAX_SUMMARY), at=_moment(read.updated_at))
    facts = document.get("facts")
    for index, item in enumerate(facts if isinstance(facts, list | tuple) else ()):
        yield _fact(f"facts/{index}", item)


def read_document(document: object) -> tuple[Candidate, ...]:
    """Read a document; an item in it that cannot be read becomes an Unread candidate.

    Raises:
        InputError: it is no memory document at all.
    """
    if not isinstance(document, Mapping) or not {"user", "history", "facts"} & set(document):
        raise InputError("this is no memory document: it is an object with user, history and facts")
    if not isinstance(document.get("facts", []), list | tuple):
        raise InputError("facts in this document is not a list")
    return tuple(_candidates(document))
