"""memory.json: the memory in DeerFlow's format, which DeerFlow's users and tools read unchanged."""

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
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Attributes, Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.disk.files import free_name, make_folder, put_in_place, unfinished

_log = logging.getLogger(__name__)


class DocumentSection(msgspec.Struct, frozen=True, rename="camel"):
    """A section of the document."""

    summary: str
    updated_at: str


class DocumentFact(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A fact of the document: DeerFlow's fields, and `byHand` where a person entered or edited it.

    Fields with default values are omitted; those of confirmations and merging are DeerFlow 2's, and `validFrom`,
    `validUntil`, `expiresAt`, `tags` and `attributes` are our own, as in `Fact`.
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
    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None
    tags: tuple[str, ...] = ()
    attributes: Attributes = {}


class UserSections(msgspec.Struct, frozen=True, rename="camel"):
    """The sections about the user's present."""

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
        valid_from=fact.valid_from,
        valid_until=fact.valid_until,
        expires_at=fact.expires_at,
        tags=fact.tags,
        attributes=fact.attributes,
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
    """Return the bytes of memory.json: UTF-8, unescaped, indented by 2, with a final line break."""
    plain = msgspec.to_builtins(document_of(memory))
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def stated_moment(data: bytes) -> str | None:
    """Return the `lastUpdated` of a document, or None where the bytes have none."""
    try:
        stated = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    moment = stated.get("lastUpdated") if isinstance(stated, dict) else None
    return moment if isinstance(moment, str) else None


def read_document(path: Path) -> bytes | None:
    """Return the bytes of a memory.json, or None where there is none; raises OSError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


class DocumentFile:
    """The memory.json at `path`, replaced by rename; the caller keeps other writers of it off.

    A file that was edited by hand, or that shows the memory of another store, is moved aside and reported.

    Args:
        path: the path of the file.
        memories_when: rebuilds the memories with a `lastUpdated`, to distinguish an outdated file from an edited one;
            not called for the bytes that this object wrote last.
    """

    def __init__(self, path: Path, memories_when: Callable[[str], Iterable[Memory]]) -> None:
        self.path = path
        self._memories_when = memories_when
        self._ours = b""
        self._edited = b""

    def is_current_or_edited(self, data: bytes) -> bool:
        """Whether the file is `data` already, or was edited by hand; the result is cached for `write`.

        Raises:
            StoreError: The file cannot be read.
        """
        with self._translated("read"):
            now = read_document(self.path)
            return now is not None and (now == data or not self._is_ours(now))

    def write(self, data: bytes, *, spare_edits: bool = False) -> Path | None:
        """Write a memory's bytes to the file.

        Args:
            data: the bytes.
            spare_edits: leave a file that was edited by hand in place; otherwise it is moved aside.

        Returns:
            Where an edited file is now, if one was moved aside.

        Raises:
            StoreError: The file cannot be written.
        """
        moved = None
        with self._translated("write"):
            # The test may replay the log, and the file may be edited meanwhile: read it again.
            while (now := read_document(self.path)) is not None and now != data and _digest(now) != self._ours:
                if self._is_ours(now):
                    continue
                if spare_edits:
                    return None
                moved = self._moved_aside()
            if now == data:
                # The content is unchanged; its time shows that it includes the last commits.
                with suppress(PermissionError):
                    os.utime(self.path)
            else:
                # Where an engine keeps the logs elsewhere, nothing else has made it.
                make_folder(self.path.parent)
                put_in_place(self.path, data)
            self._ours = _digest(data)
        return moved

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot {what} {self.path}: {error.strerror or error}; check the disk") from error

    def _is_ours(self, data: bytes) -> bool:
        digest = _digest(data)
        if digest not in (self._ours, self._edited):
            moment = stated_moment(data)
            if moment is not None and any(render(memory) == data for memory in self._memories_when(moment)):
                self._ours = digest
            else:
                self._edited = digest
        return digest == self._ours

    def _moved_aside(self) -> Path:
        aside = free_name(self.path.with_name(f"{self.path.name}.edited"))
        self.path.rename(aside)
        _log.warning(
            "%s was edited by hand, or belongs to another store: it is now %s; `import` adopts it", self.path, aside
        )
        return aside


def erase_document(path: Path) -> None:
    """Remove memory.json and its copies, moved aside or unfinished: they may hold content to forget.

    The caller keeps other writers of it off.

    Raises:
        StoreError: A file cannot be removed.
    """
    try:
        for file in (path, unfinished(path), *path.parent.glob(f"{path.name}.edited-*")):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot remove {error.filename}: {error.strerror or error}; check the folder's mode"
        ) from error


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
