"""memory.json: the memory in DeerFlow's shape, so that its users and tools read it unchanged."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import orjson

from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact
from backstory.ledger.core.memory import Memory

__all__ = ["Document", "DocumentFact", "DocumentFile", "document_of", "erase_document", "render", "stated_moment"]

_log = logging.getLogger(__name__)


class DocumentSection(msgspec.Struct, frozen=True, rename="camel"):
    """A section as the document states it."""

    summary: str
    updated_at: str


class DocumentFact(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A fact as the document states it: DeerFlow's fields, and `byHand` where a person entered or edited it.

    What confirmations and merging leave is stated where there is any, as DeerFlow 2 states it.
    """

    id: str
    content: str
    category: str
    confidence: float
    created_at: str
    source: str
    source_error: str | None = None
    expected_valid_days: int | None = None
    by_hand: bool = False
    confirmation_count: int = 0
    last_confirmed_at: str | None = None
    consolidated_from: tuple[str, ...] = ()


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
        confirmation_count=fact.confirmations,
        last_confirmed_at=fact.confirmed_at,
        consolidated_from=fact.consolidated_from,
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
    """The file at `path`, written whole and by rename; whoever writes holds the ledger's lock.

    `memories_when(last_updated)` rebuilds the memories that a document of that time may have been written from: with
    them, a file that lags behind is told from one that a person edited, which is moved aside and reported. It is not
    asked about what was written here last.
    """

    def __init__(self, path: Path, memories_when: Callable[[str], Iterable[Memory]]) -> None:
        self.path = path
        self._memories_when = memories_when
        self._ours = b""
        self._edited = b""

    def judged(self, data: bytes) -> bool:
        """Whether the file is `data` already, or what a person made of it; what is found out is kept for `write`.

        Raises:
            StoreError: it cannot be read.
        """
        with self._told("read"):
            now = self._read()
            return now is not None and (now == data or not self._is_ours(now))

    def write(self, data: bytes, *, spare_edits: bool = False) -> None:
        """Bring the file to a memory's bytes; with `spare_edits` one that a person edited stays where it is.

        Raises:
            StoreError: it cannot be written.
        """
        with self._told("write"):
            # To judge a file may mean to replay the log, and a person may save another meanwhile: look again.
            while (now := self._read()) is not None and now != data and _digest(now) != self._ours:
                if self._is_ours(now):
                    continue
                if spare_edits:
                    return
                self._move_aside()
            if now == data:
                # Nothing in it changed with the last commits; that it shows them all the same, its time says.
                with suppress(PermissionError):
                    os.utime(self.path)
            else:
                self._replace(data)
            self._ours = _digest(data)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot {what} {self.path}: {error.strerror or error}; check the disk") from error

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _is_ours(self, data: bytes) -> bool:
        digest = _digest(data)
        if digest not in (self._ours, self._edited):
            moment = stated_moment(data)
            if moment is not None and any(render(memory) == data for memory in self._memories_when(moment)):
                self._ours = digest
            else:
                self._edited = digest
        return digest == self._ours

    def _move_aside(self) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.edited-{number}")).exists():
            number += 1
        self.path.rename(aside)
        _log.warning("%s was edited by hand: it is now %s; `import` adopts it", self.path, aside)

    def _replace(self, data: bytes) -> None:
        fresh = _fresh(self.path)
        # What lies there is what a killed process left, or a link that somebody laid to have another file overwritten.
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(self.path)


def erase_document(path: Path) -> None:
    """Take memory.json away, and what was moved aside or only begun: any of it may hold what is to be forgotten.

    The caller holds the ledger's lock.

    Raises:
        StoreError: something of it cannot be removed.
    """
    try:
        for file in (path, _fresh(path), *path.parent.glob(f"{path.name}.edited-*")):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot remove {error.filename}: {error.strerror or error}; check the folder's mode"
        ) from error


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
