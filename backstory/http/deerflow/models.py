"""Bodies of DeerFlow's routes, with the names, defaults and ranges of DeerFlow's gateway.

An answer holds the document as memory.json has it. A document that is sent to `/import` may leave out more, and what it
has beyond that goes to the reader of imports. The
configuration that clients are shown has no secrets, and addresses and folders only for who sees all users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from backstory.config.secrets import holds_secret
from backstory.config.settings import Settings
from backstory.http.access.callers import Caller
from backstory.http.openapi.schemas import EXAMPLES
from backstory.projections.document.document import Document

_UNKNOWN = "unknown"
"""What DeerFlow's gateway calls a source that is not stated."""


class Body(BaseModel):
    """A body whose names are in camelCase in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ImportedSection(Body):
    """A section of the document."""

    summary: str = Field(default="", description="The text of the section")
    updated_at: str = Field(default="", description="When the section was written, in ISO 8601")


class ImportedUserSections(Body):
    """The sections about the user's present."""

    work_context: ImportedSection = ImportedSection()
    personal_context: ImportedSection = ImportedSection()
    top_of_mind: ImportedSection = ImportedSection()


class ImportedHistorySections(Body):
    """The sections about the user's past."""

    recent_months: ImportedSection = ImportedSection()
    earlier_context: ImportedSection = ImportedSection()
    long_term_background: ImportedSection = ImportedSection()


class ImportedFact(Body):
    """A fact of an imported document. Other fields of an export are kept as far as a document here has them."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="The id of the fact; kept unless another fact has or had it")
    content: str = Field(description="The fact")
    category: str = Field(
        default="context",
        description="preference, correction and so on, or a name of your own",
    )
    confidence: float = Field(default=0.5, strict=True, description="How sure it is; values outside 0 to 1 are clamped")
    created_at: str = Field(default="", description="When it was learned, in ISO 8601; now unless given")
    source: str = Field(
        default=_UNKNOWN,
        description="The conversation it was learned from, or `manual`; an object with `type` and `threadId` is read "
        "as DeerFlow reads it, and anything else is unknown",
    )
    source_error: str | None = Field(default=None, description="The mistake that a correction is about")

    @field_validator("source", mode="before", json_schema_input_type=object)
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Read DeerFlow's object of a source: the thread of a conversation, else the type."""
        if isinstance(value, str):
            return value
        stated = value if isinstance(value, Mapping) else {}
        kind, thread = stated.get("type"), stated.get("threadId")
        in_order = (thread, kind) if kind == "conversation" else (kind, thread)
        return next((text for text in in_order if isinstance(text, str) and text), _UNKNOWN)


class ImportedMemory(Body):
    """A document that replaces memory: a part that it leaves out is emptied."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLES["Document"]]})

    version: str = Field(default="1.0", description="The version of the format")
    last_updated: str = Field(default="", description="Not used: memory changes now")
    user: ImportedUserSections = ImportedUserSections()
    history: ImportedHistorySections = ImportedHistorySections()
    facts: list[ImportedFact] = Field(default_factory=list)


class CreatedFact(BaseModel):
    """A fact to add."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"content": "Prefers tabs", "category": "preference", "confidence": 0.9}]}
    )

    content: str = Field(min_length=1, description="The fact")
    category: str = Field(
        default="context",
        description="preference, correction and so on, or a name of your own",
    )
    confidence: float = Field(default=0.5, ge=0.0, le=1.0, strict=True, description="How sure it is, from 0 to 1")


class FactPatch(BaseModel):
    """The parts of a fact to change; those left out, or null, stay as they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "Prefers spaces"}]})

    content: str | None = Field(default=None, min_length=1, description="The new text")
    category: str | None = Field(default=None, description="The new category")
    confidence: float | None = Field(
        default=None, ge=0.0, le=1.0, strict=True, description="The new confidence, from 0 to 1"
    )


class MemoryConfig(msgspec.Struct, frozen=True):
    """The configuration of memory in DeerFlow's form; `backend_config` has the other keys, without secrets."""

    enabled: bool
    mode: Literal["middleware", "tool"]
    injection_enabled: bool
    shutdown_flush_timeout_seconds: float
    manager_class: str
    backend_config: dict[str, object]


class MemoryStatus(msgspec.Struct, frozen=True):
    """The configuration and the memory."""

    config: MemoryConfig
    data: Document


class Failure(BaseModel):
    """The answer to a request that is refused or fails."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"detail": "Memory fact 'fact_7_0' not found."}]})

    detail: str = Field(description="What is wrong")


_MANAGER = "backstory.deerflow:BackstoryMemoryManager"
_MECHANISM = {"enabled", "mode", "injection_enabled", "shutdown_flush_timeout_seconds"}
"""The keys that DeerFlow has beside `backend_config`."""
_OF_THE_SERVER = {
    "anthropic_base_url",
    "embedding_base_url",
    "event_store",
    "patterns_dir",
    "prompts_dir",
    "proxy_upstream",
    "storage_class",
    "storage_path",
    "witness",
}
"""Keys that say where things are."""


def config_shown(settings: Settings, caller: Caller) -> MemoryConfig:
    """Return the configuration in DeerFlow's form.

    Args:
        settings: What is in force.
        caller: Who asks. One whose token covers certain users gets no addresses and folders of the server.
    """
    confined = caller.users is not None
    keys: dict[str, object] = settings.model_dump(
        mode="json", exclude=_MECHANISM | {"model"} | (_OF_THE_SERVER if confined else set()), exclude_none=True
    )
    keys["model"] = settings.model.model_dump(
        exclude={"api_key", "base_url"} if confined else {"api_key"}, exclude_none=True
    )
    return MemoryConfig(
        enabled=settings.enabled,
        mode=settings.mode,
        injection_enabled=settings.injection_enabled,
        shutdown_flush_timeout_seconds=float(settings.shutdown_flush_timeout_seconds),
        manager_class=_MANAGER,
        backend_config={key: value for key, value in keys.items() if not holds_secret(value)},
    )
