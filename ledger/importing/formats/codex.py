"""Reader of a session file of Codex (`rollout-….jsonl`): JSONL of a head, events and items of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backstory.ledger.importing.formats.conversation import FILES, Conversation, Talk
from backstory.ledger.importing.formats.tally import Tally, fields, text

_SAID = {"user_message": "user", "agent_message": "assistant"}


def read(items: Iterable[object], tally: Tally) -> Iterator[Conversation]:
    """Yield what people said and the final answers.

    These are events; the items beside them repeat them, with what the program puts before a person's words.
    """
    talk: Talk | None = None
    for number, line in enumerate(tally.objects(items), 1):
        kind, payload = line.get("type"), fields(line.get("payload"))
        inner = text(payload.get("type"))
        if kind == "session_meta" and talk is None and text(payload.get("id")):
            talk = Talk(tally, text(payload.get("id")), payload.get("timestamp"), in_harness=True)
        elif talk is None:
            continue
        elif kind == "response_item" and inner.endswith("_call"):
            talk.call()
        elif kind == "event_msg" and inner in _SAID and payload.get("phase") != "commentary":
            images = payload.get("images")
            tally.pass_over(FILES, len(images) if isinstance(images, list) else 0)
            # Events have no id, and a session file only grows.
            yield from talk.say(_SAID[inner], text(payload.get("message")), f"line-{number}", line.get("timestamp"))
    if talk is None:
        tally.refuse("no line of type session_meta names the session")
    else:
        yield from talk.end()
