"""Recorded answers in place of a model: for tests, demonstrations and backfills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from ledger.errors import InputError
from ledger.extraction.model import Answer, Prompt
from ledger.sanitize import MAX_NAME, clip, safe_text

__all__ = ["RECORDED", "RecordedReply", "as_reply", "read_replies"]

RECORDED = "recorded"
"""The model's name in the cause of a commit that a recorded reply led to."""


class RecordedReply(msgspec.Struct, frozen=True):
    """One recorded answer for one thread; a model that has made up its mind."""

    thread: str
    text: str

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return RECORDED

    def ask(self, prompt: Prompt) -> Answer:  # noqa: ARG002 the answer was given long ago
        """Give the answer."""
        return Answer(self.text, RECORDED, prompted=False)


def read_replies(lines: Iterable[bytes | str]) -> list[RecordedReply]:
    """Read JSONL of `{thread_id, reply}`, where reply is an object or the raw text of an answer.

    What models say and strict JSON does not allow (NaN, half an emoji) is let through: it costs one item, not a file.

    Raises:
        InputError: a line is something else; the text names it.
    """
    replies = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            thread = _thread(row.get("thread_id")) if isinstance(row, dict) else None
            text = _text(row["reply"]) if thread is not None and "reply" in row else None
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number} of the replies is no JSON: {str(error)[:200]}") from error
        if thread is None or text is None:
            raise InputError(f'line {number} of the replies is not {{"thread_id": …, "reply": …}}')
        replies.append(RecordedReply(thread, text))
    return replies


def as_reply(given: RecordedReply | Mapping[str, object]) -> RecordedReply:
    """Take a recorded answer as it is, or as a mapping with `thread_id` and `reply`.

    Raises:
        InputError: it is something else.
    """
    if isinstance(given, RecordedReply):
        return given
    thread = _thread(given.get("thread_id")) if isinstance(given, Mapping) else None
    if thread is None or "reply" not in given:
        raise InputError('a recorded reply is a RecordedReply, or {"thread_id": …, "reply": …}')
    return RecordedReply(thread, _text(given["reply"]))


def _text(reply: object) -> str:
    return safe_text(reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False, separators=(",", ":")))


def _thread(value: object) -> str | None:
    """Name a thread as recording does, where a number will do too."""
    named = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return clip(named, MAX_NAME) if isinstance(named, str) and named else None
