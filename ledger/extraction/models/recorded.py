"""Recorded replies: they take the place of a model in tests, demonstrations and backfills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import MAX_NAME, clip, safe_text
from backstory.ledger.extraction.models.model import Answer, Prompt, Usage, usage_in
from backstory.ledger.text.json_text import inner_spans, read_number, where_too_deep

RECORDED = "recorded"
"""The model's name in the cause of a commit made from a recorded reply."""


class RecordedReply(msgspec.Struct, frozen=True):
    """A recorded answer for one thread; implements the model port.

    Attributes:
        thread: the thread.
        text: the raw answer.
        prompt: the digest of what was asked, as a memory test keeps it; None for an answer to any question.
        model: the model that gave it; None where that does not matter.
        run: which of several answers to the same question it is, from 1.
        usage: the tokens that it took.
    """

    thread: str
    text: str
    prompt: str | None = None
    model: str | None = None
    run: int = 1
    usage: Usage | None = None

    @property
    def name(self) -> str:
        """The constant `RECORDED`."""
        return RECORDED

    def ask(self, prompt: Prompt) -> Answer:  # noqa: ARG002 the port passes it
        """Return the recorded answer."""
        return Answer(self.text, RECORDED, prompted=False)


def read_replies(lines: Iterable[bytes | str]) -> list[RecordedReply]:
    """Read JSONL of `{thread_id, reply}`, where reply is an object or the raw text of an answer.

    Values outside strict JSON that models produce (NaN, half an emoji) are accepted, and so are values that Python's
    parser refuses (a number of thousands of digits, thousands of nested levels). Such a value costs one item or one
    update, as in a live answer, and not the whole file.

    Raises:
        InputError: A line has another form; the message gives its number.
    """
    replies = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = _read(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number} of the replies is not JSON: {str(error)[:200]}") from error
        if read is None:
            raise InputError(f'line {number} of the replies is not {{"thread_id": …, "reply": …}}')
        replies.append(read)
    return replies


def _read(line: bytes | str) -> RecordedReply | None:
    """Read one line; None where it is JSON of another shape."""
    text = line if isinstance(line, str) else line.decode(json.detect_encoding(line), "surrogatepass")
    text = text.removeprefix("\ufeff")
    if where_too_deep(text) is not None:
        return _read_unparsed(text)
    try:
        return _of_row(json.loads(text))
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        return _read_unparsed(text)


def _of_row(row: object) -> RecordedReply | None:
    thread = _thread(row.get("thread_id")) if isinstance(row, dict) else None
    if not isinstance(row, dict) or thread is None or "reply" not in row:
        return None
    prompt, model, run = row.get("prompt"), row.get("model"), row.get("run")
    return RecordedReply(
        thread,
        _text(row["reply"]),
        prompt if isinstance(prompt, str) else None,
        model if isinstance(model, str) else None,
        run if isinstance(run, int) else 1,
        usage_in(row, "tokens_in", "tokens_out"),
    )


def _read_unparsed(line: str) -> RecordedReply | None:
    """Read a line without parsing the objects and lists inside it: the reply is kept as its text."""
    flat, texts, end = "", list[str](), 0
    for begin, stop in inner_spans(line):
        flat += f"{line[end:begin]}[{len(texts)}]"
        texts.append(line[begin:stop])
        end = stop
    row = json.loads(flat + line[end:], parse_int=read_number)
    reply = row.get("reply") if isinstance(row, dict) else None
    return _of_row({**row, "reply": texts[reply[0]]} if isinstance(reply, list) else row)


def as_reply(given: RecordedReply | Mapping[str, object]) -> RecordedReply:
    """Return a recorded reply, given as one or as a mapping with `thread_id` and `reply`.

    Raises:
        InputError: The value has another form, or its reply cannot be written as JSON.
    """
    if isinstance(given, RecordedReply):
        return given
    thread = _thread(given.get("thread_id")) if isinstance(given, Mapping) else None
    if thread is None or "reply" not in given:
        raise InputError('a recorded reply must be a RecordedReply or {"thread_id": …, "reply": …}')
    try:
        return RecordedReply(thread, _text(given["reply"]))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the recorded reply for thread {thread} cannot be written as JSON ({error}): pass plain values, or the "
            "text of the answer"
        ) from error


def _text(reply: object) -> str:
    return safe_text(reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False, separators=(",", ":")))


def _thread(value: object) -> str | None:
    """Return a thread's name, clipped as recording clips it; a number counts as a name too."""
    named = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return clip(named, MAX_NAME) if isinstance(named, str) and named else None
