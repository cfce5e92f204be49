"""Answers of an upstream, read from a copy of the bytes that are passed on: a stream of events or a whole document.

Each protocol knows its own events and documents. Of several choices only the first is read. What is kept of an answer
is bounded.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from typing import Protocol as Interface

import msgspec

_T = TypeVar("_T")

MOST_BYTES = 4 * 2**20
"""The most that is read of one event or document, and kept of the text of an answer."""


class UpstreamAnswer(msgspec.Struct, frozen=True):
    """What an upstream said.

    `text` is empty for an answer that only calls tools; `calls` are the ids of the calls. `whole` is false where the
    answer broke off, `cut` is true where it was too long to be kept.
    """

    text: str = ""
    id: str | None = None
    calls: tuple[str, ...] = ()
    whole: bool = False
    cut: bool = False


class GrowingText:
    """A text that grows, up to a limit."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.cut = False
        self._size = 0

    def add(self, part: object) -> None:
        """Add words; anything else than a text, or a list of parts with one, says nothing."""
        if isinstance(part, list):
            # As some servers send it: a list of parts, like the content of a message.
            for one in part:
                self.add(one.get("text") if isinstance(one, dict) else None)
        elif isinstance(part, str) and part:
            self.cut = self.cut or self._size + len(part) > MOST_BYTES
            if not self.cut:
                self.parts.append(part)
                self._size += len(part)

    @property
    def joined(self) -> str:
        """All that was said."""
        return "".join(self.parts)


def name_of(value: object) -> str | None:
    """Return an id; None where it is none."""
    return value if isinstance(value, str) and value else None


def decoded(data: bytes | bytearray | str, shape: type[_T]) -> _T | None:
    """Return JSON as a value of a type; None where it is none."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (ValueError, RecursionError):
        return None


_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4


class AnswerEvent(NamedTuple):
    """The data of an event, and where it begins in the bytes that it ended in; 0 where it began before them."""

    data: bytes
    begin: int
    is_error: bool = False


class EventSplitter:
    """Splits a stream into events; what is read of an unfinished one is kept, up to a limit.

    Attributes:
        lost: Whether an event was longer than the limit. Nothing is read from then on.
    """

    def __init__(self) -> None:
        self.lost = False
        self._rest = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> Iterator[AnswerEvent]:
        """Take bytes, and yield the events that end in them and have data."""
        if self.lost:
            return
        before = len(self._rest)
        self._rest += chunk
        start = 0
        while (found := _END.search(self._rest, self._searched)) is not None:
            lines = _LINE.split(bytes(self._rest[start : found.start()]))
            self._searched = found.end()
            if data := b"\n".join(_values(lines, b"data:")):
                yield AnswerEvent(data, max(0, start - before), [*_values(lines, b"event:")] == [b"error"])
            start = found.end()
        del self._rest[:start]
        self._searched = max(0, len(self._rest) - _LONGEST_END + 1)
        if len(self._rest) > MOST_BYTES:
            self.lost = True
            self._rest.clear()


def _values(lines: Iterable[bytes], field: bytes) -> Iterator[bytes]:
    return (line.removeprefix(field).removeprefix(b" ") for line in lines if line.startswith(field))


class Events(Interface):
    """Puts the answer of a stream together."""

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""

    def answer(self) -> UpstreamAnswer:
        """Return what was said up to now."""


@dataclass(frozen=True)
class AnswerForm:
    """How the answers of a path are read: a stream by its events, or a whole document."""

    events: Callable[[], Events]
    document: Callable[[Mapping[str, object]], UpstreamAnswer]


class AnswerReader(Interface):
    """Reads an answer on its way.

    Attributes:
        over: Whether the end of the answer was read, so that what follows does not belong to it.
    """

    over: bool

    def feed(self, chunk: bytes) -> int:
        """Read bytes; return from which of them on the answer is at its end. A client has no whole answer without."""

    def answer(self) -> UpstreamAnswer:
        """Return what was read up to now."""


def reader_of(form: AnswerForm, content_type: str, encoding: str) -> AnswerReader | None:
    """Return a reader for a response; None where its type or its compression cannot be read.

    Args:
        form: How the answers of the request's path are read.
        content_type: The type of the response's content.
        encoding: How it is compressed.
    """
    kind = content_type.partition(";")[0].strip().lower()
    reader: AnswerReader
    if kind == "text/event-stream":
        reader = _Stream(form.events())
    elif kind == "application/json":
        reader = _Document(form.document)
    else:
        return None
    if encoding.strip().lower() in ("", "identity"):
        return reader
    return _Inflated(reader) if encoding.strip().lower() in ("gzip", "x-gzip", "deflate") else None


class _Stream:
    """Reads an answer that comes as events."""

    def __init__(self, events: Events) -> None:
        self.over = False
        self._events = events
        self._failed = False
        self._splitter = EventSplitter()

    def feed(self, chunk: bytes) -> int:
        if not self.over:
            for event in self._splitter.feed(chunk):
                self._failed = self._failed or event.is_error
                if self._events.take(event.data):
                    self.over = True
                    return event.begin
        return len(chunk)

    def answer(self) -> UpstreamAnswer:
        said = self._events.answer()
        return msgspec.structs.replace(said, cut=said.cut or self._splitter.lost, whole=said.whole and not self._failed)


class _Document:
    """Reads an answer that comes whole."""

    def __init__(self, read: Callable[[Mapping[str, object]], UpstreamAnswer]) -> None:
        self.over = False
        self._read = read
        self._bytes = bytearray()
        self._lost = False

    def feed(self, chunk: bytes) -> int:
        self._lost = self._lost or len(self._bytes) + len(chunk) > MOST_BYTES
        if self._lost:
            self._bytes.clear()
        else:
            self._bytes += chunk
        # The last byte waits for the next chunk, or for the end.
        return max(0, len(chunk) - 1)

    def answer(self) -> UpstreamAnswer:
        document = decoded(self._bytes, dict[str, object])
        return UpstreamAnswer() if document is None else self._read(document)


class _Inflated:
    """Reads a copy of a compressed answer. It is passed on as it came: the bytes of its end are not distinguished."""

    def __init__(self, reader: AnswerReader) -> None:
        self.over = False
        self._reader = reader
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._left = 4 * MOST_BYTES

    def feed(self, chunk: bytes) -> int:
        if self._left <= 0:
            return max(0, len(chunk) - 1)
        try:
            plain = self._inflate.decompress(chunk, self._left)
        except zlib.error:
            self._left = 0
            return max(0, len(chunk) - 1)
        self._left -= len(plain)
        self._reader.feed(plain)
        self.over = self._reader.over
        return 0 if self.over else max(0, len(chunk) - 1)

    def answer(self) -> UpstreamAnswer:
        return self._reader.answer()
