"""Reader of a session file of Codex (`rollout-….jsonl`): JSONL of a head, events and items of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from backstory.ledger.importing.formats.conversation import FILES, ImportedConversation, Talk
from backstory.ledger.importing.formats.tally import Tally, fields, members, text

_SAID = {"user_message": "user", "agent_message": "assistant"}
_ITEMS = {"UserMessage": "user", "AgentMessage": "assistant"}


class _Message(NamedTuple):
    """A message; `form` is the kind of event that states it."""

    form: str
    role: str
    words: str
    files: int


def read(items: Iterable[object], tally: Tally) -> Iterator[ImportedConversation]:
    """Yield what people said and the final answers.

    These are events; the items of the model beside them repeat them, with what the program puts before a person's
    words. A session is in one of two forms of events. Should a message be in both, it counts once.
    """
    talk: Talk | None = None
    last: _Message | None = None
    for number, line in enumerate(tally.objects(items), 1):
        kind, payload = line.get("type"), fields(line.get("payload"))
        if kind == "session_meta" and talk is None and text(payload.get("id")):
            if "subagent" in fields(payload.get("source")):
                tally.pass_over("sessions of inner agents")
                return
            talk = Talk(tally, text(payload.get("id")), payload.get("timestamp"), in_harness=True)
        elif talk is None:
            continue
        elif kind == "response_item" and text(payload.get("type")).endswith("_call"):
            talk.call()
        elif kind == "event_msg" and (message := _message(payload)) is not None:
            again = last is not None and last.form != message.form and last[1:3] == message[1:3]
            last = message
            if not again:
                tally.pass_over(FILES, message.files)
                # Ids of items are the model's, and may repeat; a session file only grows.
                yield from talk.say(message.role, message.words, f"line-{number}", line.get("timestamp"))
    if talk is None:
        tally.refuse("no line of type session_meta names the session")
    else:
        yield from talk.end()


def _message(event: Mapping[str, object]) -> _Message | None:
    """Return the message that an event states; None for another event, and for a commentary."""
    form, item = text(event.get("type")), fields(event.get("item"))
    if form in _SAID and event.get("phase") != "commentary":
        return _Message(form, _SAID[form], text(event.get("message")), len(members(event.get("images"))))
    role = _ITEMS.get(text(item.get("type"))) if form == "item_completed" else None
    if role is None or item.get("phase") == "commentary":
        return None
    parts = [*map(fields, members(item.get("content")))]
    files = sum("image" in text(part.get("type")).casefold() for part in parts)
    return _Message(form, role, "".join(text(part.get("text")) for part in parts), files)
