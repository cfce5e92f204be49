"""A memory that is parsed already: DeerFlow's document or our own export, a list of texts, a list of facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from ledger.clock import parse_moment, spell_moment
from ledger.errors import InputError
from ledger.events import DOCUMENT_SECTIONS, Candidate, NewFact, NewSummary, Unread
from ledger.sanitize import MAX_FACT, MAX_NAME, MAX_SUMMARY, clip, safe_json

__all__ = ["fact_candidate", "is_document", "read_document", "section_candidates", "unread"]

_MAX_DAYS = 10**6
_MAX_CONFIRMATIONS = 10**6
_MAX_SOURCES = 50
_NO_SOURCES = ("", "unknown", "consolidation")
_LISTED_CONFIDENCE = 0.9
"""Who hands over a list of facts means them, as who enters one by hand does: a document's 0.5 would refuse them all."""


class _Fact(BaseModel):
    """The fields that a fact stands on are strict; the rest is taken where it can be read and left out where not."""

    model_config = ConfigDict(strict=True, extra="ignore")

    content: str
    category: str = "context"
    confidence: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
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

    @field_validator("created_at", mode="before")
    @classmethod
    def _spelled(cls, value: object) -> object:
        # YAML reads a time without quotes as one.
        return value.isoformat() if isinstance(value, datetime | date) else value

    @field_validator("source", mode="before")
    @classmethod
    def _origin(cls, value: object) -> object:
        """DeerFlow 2 says `{type, threadId}`, where DeerFlow 1 named the thread or the type; some types say nothing."""
        if isinstance(value, Mapping):
            kind, thread = value.get("type"), value.get("threadId")
            named = isinstance(thread, str) and thread and kind in ("conversation", None, "")
            value = thread if named else kind
        return value if isinstance(value, str) and value not in _NO_SOURCES else None

    @field_validator("source_error", mode="before")
    @classmethod
    def _text(cls, value: object) -> str | None:
        return value if isinstance(value, str) and value.strip() else None

    @field_validator("expected_valid_days", mode="before")
    @classmethod
    def _days(cls, value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if 1 <= value < _MAX_DAYS else None

    @field_validator("confirmations", mode="before")
    @classmethod
    def _count(cls, value: object) -> int:
        return min(value, _MAX_CONFIRMATIONS) if type(value) is int and value > 0 else 0

    @field_validator("confirmed_at", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        spelled = cls._spelled(value)
        return spelled if isinstance(spelled, str) else None

    @field_validator("consolidated_from", mode="before")
    @classmethod
    def _sources(cls, value: object) -> tuple[str, ...]:
        named = value if isinstance(value, list | tuple) else ()
        return tuple(clip(one, MAX_NAME) for one in named[:_MAX_SOURCES] if isinstance(one, str) and one)


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


def unread(place: str, text: str, detail: str) -> Unread:
    """Keep what cannot be read as far as there is room for it, and why."""
    return Unread(place=place, text=clip(text, MAX_FACT), detail=clip(detail, MAX_NAME))


def fact_candidate(place: str, item: object, *, text: str | None = None, origin: str = "") -> NewFact | Unread:
    """Read one fact; where it cannot be read, `text` (else the item) is kept, and `origin` begins the reason."""
    try:
        read = _Fact.model_validate(item)
    except ValidationError as error:
        return unread(place, str(safe_json(item)) if text is None else text, origin + _told(error))
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
        confirmations=read.confirmations,
        confirmed_at=_moment(read.confirmed_at),
        consolidated_from=read.consolidated_from,
    )


def section_candidates(document: Mapping[str, object]) -> Iterator[Candidate]:
    """Read the sections that a document has; each is named by its place."""
    for name in DOCUMENT_SECTIONS:
        group, _, key = name.partition(".")
        sections = document.get(group)
        section = sections.get(key) if isinstance(sections, Mapping) else None
        if section is None:
            continue
        try:
            read = _Section.model_validate(section)
        except ValidationError as error:
            yield unread(name, str(safe_json(section)), _told(error))
            continue
        yield NewSummary(place=name, summary=clip(read.summary.strip(), MAX_SUMMARY), at=_moment(read.updated_at))


def _listed(items: Sequence[object]) -> Iterator[Candidate]:
    for index, item in enumerate(items):
        said: object = {"content": item} if isinstance(item, str) else item
        if isinstance(said, Mapping):
            said = {"confidence": _LISTED_CONFIDENCE, **said}
        yield fact_candidate(f"facts/{index}", said)


def is_document(given: object) -> bool:
    """Whether an object says anything of what a document has."""
    return isinstance(given, Mapping) and not {"user", "history", "facts"}.isdisjoint(given)


def read_document(given: object) -> tuple[Candidate, ...]:
    """Read a document, or a list of texts and facts; an item that cannot be read becomes an Unread candidate.

    Raises:
        InputError: it is no memory at all.
    """
    if isinstance(given, list | tuple) and any(isinstance(item, str | Mapping) for item in given):
        return tuple(_listed(given))
    if not isinstance(given, Mapping) or not is_document(given):
        raise InputError(
            "this is no memory document: it is an object with user, history and facts, or a list of texts or facts"
        )
    facts = given.get("facts", [])
    if not isinstance(facts, list | tuple):
        raise InputError("facts in this document is not a list")
    sections = tuple(section_candidates(given))
    return sections + tuple(fact_candidate(f"facts/{index}", item) for index, item in enumerate(facts))
