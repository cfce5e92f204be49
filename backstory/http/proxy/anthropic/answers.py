"""Answers of Anthropic's protocol: events of a stream, and whole messages."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.http.proxy.answers import GrowingText, UpstreamAnswer, decoded, name_of

_CUT = ("max_tokens", "model_context_window_exceeded", "refusal")
"""Reasons to stop before the end of what there was to say."""
_UNDER_WAY = ("pause_turn", "tool_use")
"""Reasons to stop before the final answer. One that is paused is sent again as the beginning of the next."""


class _Said:
    """Words of an answer, from its blocks. Thinking, and tools that the provider runs, stand between its texts."""

    def __init__(self) -> None:
        self._words = GrowingText()
        self._calls: dict[str, None] = {}
        self._calls_tools = self._gap = False

    def begin(self, block: object) -> None:
        """Take a block, or the beginning of one."""
        fields = block if isinstance(block, dict) else {}
        kind = fields.get("type")
        if kind == "text":
            self.add(fields.get("text"))
            return
        self._gap = bool(self._words.parts)
        if kind == "tool_use":
            self._calls_tools = True
            if (key := name_of(fields.get("id"))) is not None:
                self._calls[key] = None

    def add(self, text: object) -> None:
        """Add words."""
        if not isinstance(text, str) or not text:
            return
        if self._gap:
            self._gap = False
            self._words.add("\n\n")
        self._words.add(text)

    def answer(self, key: str | None, reason: object, *, ended: bool) -> UpstreamAnswer:
        """Return the answer, given its id, why it stopped, and whether its end was read."""
        text = "" if self._calls_tools or reason in _UNDER_WAY else self._words.joined
        return UpstreamAnswer(text, key, tuple(self._calls), ended and reason not in _CUT, self._words.cut)


class _Event(msgspec.Struct):
    type: object = None
    message: object = None
    content_block: object = None
    delta: object = None


class MessageEvents:
    """Puts the events of a message together."""

    def __init__(self) -> None:
        self._said = _Said()
        self._id: str | None = None
        self._reason: object = None
        self._ended = self._failed = False

    def take(self, data: bytes) -> bool:
        """Take the data of an event; return whether it is the end of the answer."""
        event = decoded(data, _Event)
        if event is None:
            return False
        delta = event.delta if isinstance(event.delta, dict) else {}
        if event.type == "content_block_delta":
            self._said.add(delta.get("text") if delta.get("type") == "text_delta" else None)
        elif event.type == "content_block_start":
            self._said.begin(event.content_block)
        elif event.type == "message_start" and isinstance(event.message, dict):
            self._id = name_of(event.message.get("id"))
        elif event.type == "message_delta":
            self._reason = delta.get("stop_reason") or self._reason
        self._failed = self._failed or event.type == "error"
        self._ended = self._ended or event.type == "message_stop"
        return self._ended

    def answer(self) -> UpstreamAnswer:
        """Return what was said up to now."""
        return self._said.answer(self._id, self._reason, ended=self._ended and not self._failed)


def message_of(document: Mapping[str, object]) -> UpstreamAnswer:
    """Return the answer of a message."""
    content = document.get("content")
    said = _Said()
    for block in content if isinstance(content, list) else ():
        said.begin(block)
    return said.answer(name_of(document.get("id")), document.get("stop_reason"), ended=True)
