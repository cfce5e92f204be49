"""Reader of Open WebUI's export of chats: a list of chats, each with a tree of messages or a list of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.importing.formats.conversation import FILES, ImportedConversation, standing, talk_of
from backstory.ledger.importing.formats.tally import Tally, fields, members, text

_DETAILS = re.compile(r'<details type="(?:reasoning|tool_calls|code_interpreter)".*?</details>\s*', re.DOTALL)
"""What the model thought and called, which is put into its answer."""


def read(items: Iterable[object], tally: Tally) -> Iterator[ImportedConversation]:
    """Yield the branch of each chat that stands."""
    for item in tally.objects(items):
        chat = fields(item.get("chat"))
        history = fields(chat.get("history"))
        if not tally.takes(item.get("user_id")):
            continue
        ids, began = (item.get("id"), chat.get("id")), item.get("created_at") or chat.get("timestamp")
        if (talk := talk_of(tally, ids, began)) is None:
            continue
        nodes = {key: one for key, one in fields(history.get("messages")).items() if isinstance(one, Mapping)}
        messages = [*map(fields, members(chat.get("messages")))]
        if nodes:
            messages = [*standing(nodes, history.get("currentId"), "parentId", tally)]
        for message in messages:
            tally.pass_over(FILES, len(members(message.get("files"))))
            if (role := text(message.get("role"))) in ("user", "assistant"):
                words = _DETAILS.sub("", text(message.get("content")))
                yield from talk.say(role, words, message.get("id"), message.get("timestamp"))
            else:
                talk.skip()
        yield from talk.end()
