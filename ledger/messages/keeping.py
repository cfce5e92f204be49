"""What of a conversation is kept, and how much of it a prompt shows (rows D1 to D3 and D5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, bounded_name, clip, safe_text
from backstory.ledger.messages.reading import Message
from backstory.ledger.text.blocks import strip_memory_blocks, strip_upload_blocks

__all__ = ["Kept", "abridge", "keep"]

_LONG = 1_000
_HEAD = 600
_TAIL = 300


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a message, made safe to store."""

    role: str
    content: str
    id: str | None = None
    name: str | None = None
    at: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}


def keep(messages: Iterable[Message]) -> list[Kept]:
    """Return what is kept of a conversation, in order.

    A message that is nothing but an upload is dropped and takes the answer that follows it along. One that is nothing
    but our own memory block is dropped as if it were not there: it is no question, so no answer is its answer. Of what
    an agent says around calls that stand for themselves, only what follows the last of them is an answer.
    """
    kept: list[Kept] = []
    asked = 0
    skip_answer = skipped = False
    for message in _whole(messages):
        if message.goes_on:
            del kept[asked:]
            skip_answer, skipped = skip_answer or skipped, False
        if message.hidden or message.role not in ("user", "assistant"):
            if message.role == "user":
                asked, skipped = len(kept), False
            continue
        content = safe_text(message.content)
        without = strip_upload_blocks(content)
        text = strip_memory_blocks(without)
        if message.role == "user":
            if text.strip() or not content.strip():
                skip_answer = skipped = False
            elif without is not content and strip_memory_blocks(content).strip():
                skip_answer = True
        elif message.calls_tools:
            continue
        elif skip_answer:
            skip_answer, skipped = False, True
            continue
        if text.strip():
            kept.append(_kept(message, text))
        if message.role == "user":
            asked = len(kept)
    return kept


def _whole(messages: Iterable[Message]) -> Iterator[Message]:
    """Put the pieces of a streamed answer together; they come in a row and share their id."""
    pieces: list[Message] = []
    for message in messages:
        of_one = bool(pieces) and message.is_chunk and (message.role, message.id) == (pieces[0].role, pieces[0].id)
        if pieces and not of_one:
            yield _joined(pieces)
            pieces = []
        if message.is_chunk and message.id:
            pieces.append(message)
        else:
            yield message
    if pieces:
        yield _joined(pieces)


def _joined(pieces: list[Message]) -> Message:
    return (
        pieces[0]
        if len(pieces) == 1
        else msgspec.structs.replace(
            pieces[0],
            content="".join([piece.content for piece in pieces]),
            calls_tools=any(piece.calls_tools for piece in pieces),
            hidden=any(piece.hidden for piece in pieces),
        )
    )


def _kept(message: Message, text: str) -> Kept:
    return Kept(
        role=message.role,
        content=clip(text, MAX_CONTENT),
        id=bounded_name(message.id) if message.id else None,
        name=_named(message.name),
        at=message.at,
        cause_by=_named(message.cause_by),
        sent_from=_named(message.sent_from),
        send_to=tuple([clip(to, MAX_NAME) for to in message.send_to]),
        metadata=message.metadata,
    )


def _named(value: str | None) -> str | None:
    return clip(value, MAX_NAME) if value else None


def abridge(text: str) -> str:
    """Cut a long text for the prompt: its head and tail, and a mark that says how much is between (row D5)."""
    if len(text) <= _LONG:
        return text
    return f"{text[:_HEAD]}\n… [{len(text) - _HEAD - _TAIL} characters cut] …\n{text[-_TAIL:]}"
