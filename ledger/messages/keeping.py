"""Filter of a conversation: which messages are recorded, and how a long one is cut for a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, bounded_name, clip, safe_text
from backstory.ledger.messages.reading import Message
from backstory.ledger.text.blocks import spoken, strip_memory_blocks, strip_upload_blocks

_LONG = 1_000
_HEAD = 600
_TAIL = 300


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A message to record, sanitized; `cut` is the number of characters that it was too long by."""

    role: str
    content: str
    id: str | None = None
    name: str | None = None
    at: str | None = None
    offset: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    cut: int = 0
    told: str | None = None
    """The content with the reasoning that was left out; None where none was."""
    tags: tuple[str, ...] = ()


def keep(messages: Iterable[Message]) -> list[Kept]:
    """Return the messages of a conversation to record, in order.

    A user's message that only holds an upload is dropped with the answer that follows it. One that only holds our own
    memory block is dropped without an answer, as if it were not there. If an agent makes calls as separate messages,
    only what it says after the last of them is its answer.

    Reasoning at the beginning of an agent's message is left out. Where it has no end it is left out with all of the
    message, if the agent says more before the user does; else it is kept, since it may be the answer.
    """
    kept: list[Kept] = []
    answer_start = 0  # where in `kept` the answer to the last user's message begins
    skip_answer = skipped = False
    for message in _whole(messages):
        if message.is_call_item:
            del kept[answer_start:]
            skip_answer, skipped = skip_answer or skipped, False
        if message.hidden or message.role not in ("user", "assistant"):
            if message.role == "user":
                answer_start, skipped = len(kept), False
            continue
        content = safe_text(message.content)
        no_uploads = strip_upload_blocks(content)
        text = strip_memory_blocks(no_uploads)
        if message.role == "user":
            if text.strip() or not content.strip():
                skip_answer = skipped = False
            elif no_uploads is not content and strip_memory_blocks(content).strip():
                skip_answer = True
        elif message.calls_tools:
            continue
        elif skip_answer:
            skip_answer, skipped = False, True
            continue
        said = _said(message, text)
        if said.strip():
            kept.append(_kept(message, said, told=None if said == text else text))
        if message.role == "user":
            answer_start = len(kept)
    return _without_open_reasoning(kept)


def _said(message: Message, text: str) -> str:
    """Return the text of a message without an agent's reasoning."""
    if message.role != "assistant":
        return text
    if message.answer is not None:
        text = strip_memory_blocks(strip_upload_blocks(safe_text(message.answer)))
    return spoken(text).text


def _without_open_reasoning(kept: list[Kept]) -> list[Kept]:
    """Leave out reasoning without an end that the agent's answer follows."""
    found: list[Kept] = []
    is_answered = False
    for message in reversed(kept):
        if message.role == "user":
            is_answered = False
        elif not spoken(message.content).is_open:
            is_answered = True
        elif is_answered:
            continue
        found.append(message)
    return found[::-1]


def _whole(messages: Iterable[Message]) -> Iterator[Message]:
    """Join the chunks of a streamed answer, which follow each other and share their id."""
    chunks: list[Message] = []
    for message in messages:
        same = bool(chunks) and message.is_chunk and (message.role, message.id) == (chunks[0].role, chunks[0].id)
        if chunks and not same:
            yield _joined(chunks)
            chunks = []
        if message.is_chunk and message.id:
            chunks.append(message)
        else:
            yield message
    if chunks:
        yield _joined(chunks)


def _joined(chunks: list[Message]) -> Message:
    if len(chunks) == 1:
        return chunks[0]
    return msgspec.structs.replace(
        chunks[0],
        content="".join([chunk.content for chunk in chunks]),
        calls_tools=any(chunk.calls_tools for chunk in chunks),
        hidden=any(chunk.hidden for chunk in chunks),
        answer=None,
    )


def _kept(message: Message, text: str, *, told: str | None = None) -> Kept:
    return Kept(
        role=message.role,
        content=clip(text, MAX_CONTENT),
        id=bounded_name(message.id) if message.id else None,
        name=_clipped(message.name),
        at=message.at,
        offset=message.offset,
        cause_by=_clipped(message.cause_by),
        sent_from=_clipped(message.sent_from),
        send_to=tuple([clip(to, MAX_NAME) for to in message.send_to]),
        metadata=message.metadata,
        tags=message.tags,
        cut=max(0, len(text) - MAX_CONTENT),
        told=None if told is None else clip(told, MAX_CONTENT),
    )


def _clipped(value: str | None) -> str | None:
    return clip(value, MAX_NAME) if value else None


def abridge(text: str) -> str:
    """Cut a text of more than 1,000 characters to its head, its tail and a mark that says how much was cut."""
    if len(text) <= _LONG:
        return text
    return f"{text[:_HEAD]}\n… [{len(text) - _HEAD - _TAIL} characters cut] …\n{text[-_TAIL:]}"
