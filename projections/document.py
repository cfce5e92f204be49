"""memory.json: the memory in DeerFlow's shape, so that its users and tools read it unchanged."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import orjson

from ledger.errors import StoreError
from ledger.events import DOCUMENT_SECTIONS, Fact
from ledger.memory import Memory

__all__ = ["Document", "DocumentFact", "DocumentFile", "document_of", "render", "stated_moment"]

_log = logging.getLogger(__name__)


class DocumentSection(msgspec.Struct, frozen=True, rename="camel"):
    """A section as the document states it."""

    summary: str
    updated_at: str


class DocumentFact(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A fact as the document states it: DeerFlow's fields, and `byHand` where a person entered or edited it."""

    id: str
    content: str
    category: str
    confidence: float
    created_at: str
    source: str
    source_error: str | None = None
    expected_valid_days: int | None = None
    by_hand: bool = False


class UserSections(msgspec.Struct, frozen=True, rename="camel"):
    """The sections about the user as they are now."""

    work_context: DocumentSection
    personal_context: DocumentSection
    top_of_mind: DocumentSection


class HistorySections(msgspec.Struct, frozen=True, rename="camel"):
    """The sections about the user's past."""

    recent_months: DocumentSection
    earlier_context: DocumentSection
    long_term_background: DocumentSection


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """The whole memory.json."""

    version: str
    last_updated: str
    user: UserSections
    history: HistorySections
    facts: tuple[DocumentFact, ...]


def _fact(fact: Fact) -> DocumentFact:
    return DocumentFact(
        id=fact.id,
        content=fact.content,
        category=fact.category,
        confidence=fact.confidence,
        created_at=fact.created_at,
        source=fact.source,
        source_error=fact.source_error,
        expected_valid_days=fact.expected_valid_days,
        by_hand=fact.by_hand,
    )


def document_of(memory: Memory) -> Document:
    """Return the document of a memory; `lastUpdated` is the time of the last commit that changed it."""
    sections = [
        DocumentSection(memory.section(name).summary, memory.section(name).updated_at) for name in DOCUMENT_SECTIONS
    ]
    return Document(
        "1.0",
        memory.changed_at,
        UserSections(*sections[:3]),
        HistorySections(*sections[3:]),
        tuple(map(_fact, memory.in_order())),
    )


def render(memory: Memory) -> bytes:
    """Return memory.json's bytes: UTF-8 as is, indent 2, a line break at the end."""
    plain = msgspec.to_builtins(document_of(memory))
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def stated_moment(data: bytes) -> str | None:
    """Return the `lastUpdated` that a document's bytes state; None where they are no document or state none."""
    try:
        stated = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    moment = stated.get("lastUpdated") if isinstance(stated, dict) else None
    return moment if isinstance(moment, str) else None


class DocumentFile:
    """The file at `path`, written whole and by rename; the caller holds the ledger's lock.

    `memories_when(last_updated)` rebuilds the memories that a document of that time may have been written from: with
    them, a file that lags behind is told from one that a person edited, which is moved aside and reported.
    """

    def __init__(self, path: Path, memories_when: Callable[[str], Iterable[Memory]]) -> None:
        self.path = path
        self._memories_when = memories_when

    def write(self, memory: Memory, before: Memory | None = None) -> None:
        """Bring the file to a memory; `before` is the one it is expected to show now.

        Raises:
            StoreError: it cannot be written.
        """
        data = render(memory)
        known = {data} if before is None else {data, render(before)}
        try:
            # To judge a file may mean to replay the log, and a person may save another meanwhile: look again.
            while (now := self._read()) is not None and now not in known:
                if self._is_ours(now):
                    known.add(now)
                else:
                    self._move_aside()
            if now != data:
                self._replace(data)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror or error}; check the disk") from error

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _is_ours(self, data: bytes) -> bool:
        moment = stated_moment(data)
        return moment is not None and any(render(memory) == data for memory in self._memories_when(moment))

    def _move_aside(self) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.edited-{number}")).exists():
            number += 1
        self.path.rename(aside)
        _log.warning("%s was edited by hand: it is now %s; `import` adopts it", self.path, aside)

    def _replace(self, data: bytes) -> None:
        fresh = self.path.with_name(f".{self.path.name}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(self.path)
