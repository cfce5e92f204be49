"""Readers of answers: a stream of events or a whole JSON document, of any protocol.

Of several choices only the first is read. What is kept of an answer is bounded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol as Interface

import msgspec

from backstory.http.proxy.answers import answer
from backstory.http.proxy.answers.answer import Answer
from backstory.http.proxy.answers.sse import EventSplitter


class Events(Interface):
    """Puts the answer of a stream together."""

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""

    def answer(self) -> Answer:
        """Return what was said up to now."""


@dataclass(frozen=True)
class AnswerForm:
    """How the answers of a path are read: a stream by its events, or a whole document."""

    events: Callable[[], Events]
    document: Callable[[Mapping[str, object]], Answer]


class AnswerReader(Interface):
    """Reads an answer on its way.

    Attributes:
        over: Whether the end of the answer was read, so that what follows does not belong to it.
    """

    over: bool

    def feed(self, chunk: bytes) -> int:
        """Read bytes; return from which of them on the answer is at its end. A client has no whole answer without."""

    def answer(self) -> Answer:
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
        self._splitter = EventSplitter(answer.MOST_BYTES)

    def feed(self, chunk: bytes) -> int:
        if not self.over:
            for event in self._splitter.feed(chunk):
                self._failed = self._failed or event.is_error
                if self._events.take(event.data):
                    self.over = True
                    return event.begin
        return len(chunk)

    def answer(self) -> Answer:
        said = self._events.answer()
        return msgspec.structs.replace(said, cut=said.cut or self._splitter.lost, whole=said.whole and not self._failed)


class _Document:
    """Reads an answer that comes whole."""

    def __init__(self, read: Callable[[Mapping[str, object]], Answer]) -> None:
        self.over = False
        self._read = read
        self._bytes = bytearray()
        self._lost = False

    def feed(self, chunk: bytes) -> int:
        self._lost = self._lost or len(self._bytes) + len(chunk) > answer.MOST_BYTES
        if self._lost:
            self._bytes.clear()
        else:
            self._bytes += chunk
        # The last byte waits for the next chunk, or for the end.
        return max(0, len(chunk) - 1)

    def answer(self) -> Answer:
        try:
            document = msgspec.json.decode(self._bytes)
        except (ValueError, RecursionError):
            return Answer()
        return self._read(document) if isinstance(document, dict) else Answer()


class _Inflated:
    """Reads a copy of a compressed answer. It is passed on as it came: the bytes of its end are not distinguished."""

    def __init__(self, reader: AnswerReader) -> None:
        self.over = False
        self._reader = reader
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._left = 4 * answer.MOST_BYTES

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

    def answer(self) -> Answer:
        return self._reader.answer()
