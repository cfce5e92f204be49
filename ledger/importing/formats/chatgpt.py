"""Reader of ChatGPT's export: `conversations.json`, a list of trees of messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.importing.formats.conversation import FILES, ImportedConversation, Talk, standing, talk_of
from backstory.ledger.importing.formats.tally import Tally, fields, members, text

_WORDS = ("text", "multimodal_text")
_CITATION = re.compile("\ue200[^\ue201]*\ue201")
"""A reference to a search result, between characters of private use."""


def read(items: Iterable[object], tally: Tally) -> Iterator[ImportedConversation]:
    """Yield the branch of each conversation that stands."""
    for item in tally.objects(items):
        nodes = {key: node for key, node in fields(item.get("mapping")).items() if isinstance(node, Mapping)}
        ids = (item.get("conversation_id"), item.get("id"), next(iter(nodes), None))
        if (talk := talk_of(tally, ids, item.get("create_time"))) is None:
            continue
        for node in standing(nodes, item.get("current_node"), "parent", tally):
            if message := fields(node.get("message")):
                yield from _say(talk, message, tally)
        yield from talk.end()


def _say(talk: Talk, message: Mapping[str, object], tally: Tally) -> Iterator[ImportedConversation]:
    metadata, content = fields(message.get("metadata")), fields(message.get("content"))
    role = text(fields(message.get("author")).get("role"))
    if role == "tool" or (role == "assistant" and message.get("recipient") not in (None, "all")):
        talk.call()
        return
    parts = members(content.get("parts"))
    tally.pass_over(FILES, sum("asset_pointer" in fields(part) for part in parts))
    hidden = metadata.get("is_visually_hidden_from_conversation") or message.get("channel") == "commentary"
    if role not in ("user", "assistant") or hidden or content.get("content_type", "text") not in _WORDS:
        talk.skip()
        return
    # What was said aloud stands as the text of a part of its own.
    said = (part if isinstance(part, str) else text(fields(part).get("text")) for part in parts)
    words = _CITATION.sub("", "\n".join(filter(None, said)))
    yield from talk.say(role, words, message.get("id"), message.get("create_time"))
