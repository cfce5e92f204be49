"""Reader of answers: puts together what an upstream says, from a copy of the bytes that are passed on.

A stream of events and a whole JSON document are read, of both protocols. Of several choices only the first is read.
What is kept of an answer is bounded.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from typing import Protocol as Interface

import msgspec

from backstory.http.proxy.sse import EventSplitter
from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import keep, read_message

if TYPE_CHECKING:
    from backstory.http.proxy.asked import Protocol

MOST_BYTES = 4 * 2**20
"""The most that is read of one event or document, and kept of the text of an answer."""
_SAID = ("content", "refusal", "audio", "tool_calls", "function_call")
_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Answer(msgspec.Struct, frozen=True):
    """What an upstream said.

    `text` is empty for an answer that only calls tools; `calls` are the ids of the calls. `whole` is false where the
    answer broke off, `cut` is true where it was too long to be kept.
    """

    text: str = ""
    id: str | None = None
    calls: tuple[str, ...] = ()
    whole: bool = False
    cut: bool = False


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


def reader_of(protocol: Protocol, content_type: str, encoding: str) -> AnswerReader | None:
    """Return a reader for a response; None where its type or its compression cannot be read.

    Args:
        protocol: The protocol of the request.
        content_type: The type of the response's content.
        encoding: How it is compressed.
    """
    kind = content_type.partition(";")[0].strip().lower()
    reader: AnswerReader
    if kind == "text/event-stream":
        reader = _Stream(_ChatEvents() if protocol == "chat" else _ResponseEvents())
    elif kind == "application/json":
        reader = _Document(protocol)
    else:
        return None
    if encoding.strip().lower() in ("", "identity"):
        return reader
    return _Inflated(reader) if encoding.strip().lower() in ("gzip", "x-gzip", "deflate") else None


class _Events(Interface):
    """Puts the answer of one protocol together."""

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""

    def answer(self) -> Answer:
        """Return what was said up to now."""


class _Stream:
    """Reads an answer that comes as events."""

    def __init__(self, events: _Events) -> None:
        self.over = False
        self._events = events
        self._splitter = EventSplitter(MOST_BYTES)

    def feed(self, chunk: bytes) -> int:
        if not self.over:
            for event in self._splitter.feed(chunk):
                if self._events.take(event.data):
                    self.over = True
                    return event.begin
        return len(chunk)

    def answer(self) -> Answer:
        said = self._events.answer()
        return msgspec.structs.replace(said, cut=True) if self._splitter.lost else said


class _Document:
    """Reads an answer that comes whole."""

    def __init__(self, protocol: Protocol) -> None:
        self.over = False
        self._read = _completion if protocol == "chat" else _response
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

    def answer(self) -> Answer:
        try:
            document = msgspec.json.decode(self._bytes)
        except (ValueError, RecursionError):
            return Answer()
        return self._read(document) if isinstance(document, dict) else Answer()


class _Inflated:
    """Reads a copy of a compressed answer. It is passed on as it came, so the bytes of its end cannot be told apart."""

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

    def answer(self) -> Answer:
        return self._reader.answer()


# Chat completions.


class _Delta(msgspec.Struct):
    content: object = None
    refusal: object = None
    tool_calls: object = None
    function_call: object = None


class _Choice(msgspec.Struct):
    index: object = 0
    delta: _Delta | None = None
    finish_reason: object = None


class _Chunk(msgspec.Struct):
    id: object = None
    choices: list[_Choice] | None = None


class _ChatEvents:
    """Puts the chunks of a chat completion together."""

    def __init__(self) -> None:
        self._text = _Text()
        self._refusal = _Text()
        self._calls: dict[str, None] = {}
        self._calls_tools = self._whole = False
        self._id: str | None = None

    def take(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            self._whole = True
            return True
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (ValueError, RecursionError):
            return False
        self._id = self._id or _name(chunk.id)
        for choice in chunk.choices or ():
            if choice.index in (0, None):
                self._whole = self._whole or choice.finish_reason is not None
                if choice.delta is not None:
                    self._add(choice.delta)
        return False

    def _add(self, delta: _Delta) -> None:
        self._text.add(delta.content)
        self._refusal.add(delta.refusal)
        self._calls_tools = self._calls_tools or bool(delta.tool_calls or delta.function_call)
        self._calls.update(dict.fromkeys(_call_ids(delta.tool_calls)))

    def answer(self) -> Answer:
        said = self._text if self._text.parts else self._refusal
        text = "" if self._calls_tools else said.joined
        return Answer(text, self._id, tuple(self._calls), self._whole, said.cut)


class _Text:
    """A text that grows, up to a limit."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.cut = False
        self._size = 0

    def add(self, part: object) -> None:
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
        return "".join(self.parts)


def _completion(document: Mapping[str, object]) -> Answer:
    choices = document.get("choices")
    first = (
        next((c for c in choices if isinstance(c, dict) and c.get("index") in (0, None)), None)
        if isinstance(choices, list)
        else None
    )
    message = None if first is None else first.get("message")
    if not isinstance(message, dict):
        return Answer()
    said = {name: message[name] for name in _SAID if message.get(name) is not None}
    try:
        read = read_message({"content": None, **said, "role": "assistant"})
    except InputError:
        return Answer()
    calls = tuple(_call_ids(message.get("tool_calls")))
    return Answer("" if read.calls_tools else read.content, _name(document.get("id")), calls, whole=True)


def _call_ids(calls: object) -> list[str]:
    listed = calls if isinstance(calls, list) else ()
    return [key for call in listed if isinstance(call, dict) and (key := _name(call.get("id"))) is not None]


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# The Responses API.


class _ResponseEvent(msgspec.Struct):
    type: object = None
    delta: object = None
    response: object = None


class _ResponseEvents:
    """Puts the events of a response together."""

    def __init__(self) -> None:
        self._text = _Text()
        self._id: str | None = None
        self._end: Answer | None = None

    def take(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            return True
        try:
            event = msgspec.json.decode(data, type=_ResponseEvent)
        except (ValueError, RecursionError):
            return False
        if event.type in _DELTAS:
            self._text.add(event.delta)
        elif isinstance(event.response, dict):
            self._id = self._id or _name(event.response.get("id"))
            if event.type in _ENDS:
                self._end = _response(event.response)
        return event.type in _ENDS

    def answer(self) -> Answer:
        if self._end is not None and (self._end.whole or self._end.text):
            return self._end
        return Answer(self._text.joined, self._id, cut=self._text.cut)


def _response(document: Mapping[str, object]) -> Answer:
    output = document.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    whole = document.get("status") in ("completed", "incomplete", None)
    calls = [key for item in items if (key := _name(item.get("call_id"))) is not None]
    return Answer(_text_of(items), _name(document.get("id")), tuple(calls), whole)


def _text_of(items: Sequence[Mapping[str, object]]) -> str:
    try:
        read = [read_message({**item, "id": None}) for item in items]
    except InputError:
        return ""
    return "\n\n".join(message.content for message in keep(read))
