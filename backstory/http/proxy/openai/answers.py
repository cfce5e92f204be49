"""Answers of OpenAI's protocol: chat completions and the Responses API, events of a stream and whole documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from backstory.http.proxy.answers import GrowingText, UpstreamAnswer, decoded, name_of
from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import keep, read_message

_SAID = ("content", "refusal", "audio", "tool_calls", "function_call")


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
    error: object = None


class ChatEvents:
    """Puts the chunks of a chat completion together."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self._refusal = GrowingText()
        self._calls: dict[str, None] = {}
        self._calls_tools = self._whole = self._failed = False
        self._id: str | None = None

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""
        if data.strip() == b"[DONE]":
            self._whole = True
            return True
        chunk = decoded(data, _Chunk)
        if chunk is None:
            return False
        self._id = self._id or name_of(chunk.id)
        self._failed = self._failed or chunk.error is not None
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
        self._calls.update(dict.fromkeys(call_ids(delta.tool_calls)))

    def answer(self) -> UpstreamAnswer:
        """Return what was said up to now."""
        said = self._text if self._text.parts else self._refusal
        text = "" if self._calls_tools else said.joined
        return UpstreamAnswer(text, self._id, tuple(self._calls), self._whole and not self._failed, said.cut)


def completion_of(document: Mapping[str, object]) -> UpstreamAnswer:
    """Return the answer of a chat completion."""
    choices = document.get("choices")
    first = (
        next((c for c in choices if isinstance(c, dict) and c.get("index") in (0, None)), None)
        if isinstance(choices, list)
        else None
    )
    message = None if first is None else first.get("message")
    if not isinstance(message, dict):
        return UpstreamAnswer()
    said = {name: message[name] for name in _SAID if message.get(name) is not None}
    try:
        read = read_message({"content": None, **said, "role": "assistant"})
    except InputError:
        return UpstreamAnswer()
    calls = tuple(call_ids(message.get("tool_calls")))
    return UpstreamAnswer("" if read.calls_tools else read.content, name_of(document.get("id")), calls, whole=True)


def call_ids(calls: object) -> list[str]:
    """Return the ids of the calls of tools in a message."""
    listed = calls if isinstance(calls, list) else ()
    return [key for call in listed if isinstance(call, dict) and (key := name_of(call.get("id"))) is not None]


_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_COMPLETED = "response.completed"
_ENDS = (_COMPLETED, "response.incomplete", "response.failed", "error")


class _ResponseEvent(msgspec.Struct):
    type: object = None
    delta: object = None
    response: object = None


class ResponseEvents:
    """Puts the events of a response together."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self._id: str | None = None
        self._end: UpstreamAnswer | None = None

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""
        if data.strip() == b"[DONE]":
            return True
        event = decoded(data, _ResponseEvent)
        if event is None:
            return False
        if event.type in _DELTAS:
            self._text.add(event.delta)
        elif isinstance(event.response, dict):
            self._id = self._id or name_of(event.response.get("id"))
            if event.type in _ENDS:
                said = response_of(event.response)
                self._end = msgspec.structs.replace(said, whole=said.whole and event.type == _COMPLETED)
        return event.type in _ENDS

    def answer(self) -> UpstreamAnswer:
        """Return what was said up to now."""
        if self._end is not None and (self._end.whole or self._end.text):
            return self._end
        return UpstreamAnswer(self._text.joined, self._id, cut=self._text.cut)


def response_of(document: Mapping[str, object]) -> UpstreamAnswer:
    """Return the answer of a response."""
    output = document.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    whole = document.get("status") in ("completed", None)
    calls = [key for item in items if (key := name_of(item.get("call_id"))) is not None]
    return UpstreamAnswer(_text_of(items), name_of(document.get("id")), tuple(calls), whole)


def _text_of(items: Sequence[Mapping[str, object]]) -> str:
    try:
        read = [read_message({**item, "id": None}) for item in items]
    except InputError:
        return ""
    return "\n\n".join(message.content for message in keep(read))
