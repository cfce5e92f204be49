"""Recorded answers in place of a model: for tests, demonstrations and backfills."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import orjson

from ledger.errors import InputError
from ledger.extraction.model import Answer, Prompt
from ledger.sanitize import MAX_NAME, clip

__all__ = ["RECORDED", "RecordedReply", "read_replies"]

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

    Raises:
        InputError: a line is something else; the text names it.
    """
    replies = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"line {number} of the replies is no JSON: {error}") from error
        thread = row.get("thread_id") if isinstance(row, dict) else None
        if not isinstance(thread, str) or "reply" not in row:
            raise InputError(f'line {number} of the replies is not {{"thread_id": …, "reply": …}}')
        reply = row["reply"]
        replies.append(
            RecordedReply(clip(thread, MAX_NAME), reply if isinstance(reply, str) else orjson.dumps(reply).decode())
        )
    return replies
