"""Answers of the Responses API: events of a stream, and whole documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from backstory.http.proxy.answers.answer import Answer, Words, name_of
from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import keep, read_message

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
        self._text = Words()
        self._id: str | None = None
        self._end: Answer | None = None

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""
        if data.strip() == b"[DONE]":
            return True
        try:
            event = msgspec.json.decode(data, type=_ResponseEvent)
        except (ValueError, RecursionError):
            return False
        if event.type in _DELTAS:
            self._text.add(event.delta)
        elif isinstance(event.response, dict):
            self._id = self._id or name_of(event.response.get("id"))
            if event.type in _ENDS:
                said = response_of(event.response)
                self._end = msgspec.structs.replace(said, whole=said.whole and event.type == _COMPLETED)
        return event.type in _ENDS

    def answer(self) -> Answer:
        """Return what was said up to now."""
        if self._end is not None and (self._end.whole or self._end.text):
            return self._end
        return Answer(self._text.joined, self._id, cut=self._text.cut)


def response_of(document: Mapping[str, object]) -> Answer:
    """Return the answer of a response."""
    output = document.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    whole = document.get("status") in ("completed", None)
    calls = [key for item in items if (key := name_of(item.get("call_id"))) is not None]
    return Answer(_text_of(items), name_of(document.get("id")), tuple(calls), whole)


def _text_of(items: Sequence[Mapping[str, object]]) -> str:
    try:
        read = [read_message({**item, "id": None}) for item in items]
    except InputError:
        return ""
    return "\n\n".join(message.content for message in keep(read))
