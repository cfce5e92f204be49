"""Reader of Claude's export: `conversations.json`, a list of conversations with their messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.importing.formats.conversation import FILES, ImportedConversation, standing, talk_of
from backstory.ledger.importing.formats.tally import Tally, fields, members, text

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
_PARENT = "parent_message_uuid"


def read(items: Iterable[object], tally: Tally) -> Iterator[ImportedConversation]:
    """Yield the branch of each conversation that stands."""
    for item in tally.objects(items):
        if not tally.takes(fields(item.get("account")).get("uuid")):
            continue
        messages = [one for one in members(item.get("chat_messages")) if isinstance(one, Mapping)]
        if (talk := talk_of(tally, [item.get("uuid")], item.get("created_at"))) is None:
            continue
        if any(text(one.get(_PARENT)) for one in messages):
            nodes = {text(one.get("uuid")): one for one in messages}
            messages = [*standing(nodes, item.get("current_leaf_message_uuid"), _PARENT, tally)]
        for message in messages:
            tally.pass_over(FILES, len(members(message.get("attachments"))) + len(members(message.get("files"))))
            role = _ROLES.get(text(message.get("sender")))
            if role is None:
                talk.skip()
            else:
                yield from talk.say(role, _words(message), message.get("uuid"), message.get("created_at"))
        yield from talk.end()


def _words(message: Mapping[str, object]) -> str:
    """Return what a message says at its end: behind its last use of a tool, if it says anything there."""
    said: list[str] = []
    last: list[str] = []
    for block in map(fields, members(message.get("content"))):
        if block.get("type") == "text":
            last.append(text(block.get("text")))
        elif text(block.get("type")).startswith("tool_"):
            said, last = said + last, []
    words = "\n".join(filter(str.strip, last or said))
    return words or text(message.get("text"))
