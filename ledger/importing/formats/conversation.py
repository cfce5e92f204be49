"""Conversation of an import: the turns of one thread that are kept, and the branch of a tree that stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from backstory.ledger.core.moments import read_time
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.importing.formats.tally import Tally
from backstory.ledger.messages.keeping import Kept, Message, keep
from backstory.ledger.text.scaffolding import load_scaffolding

_IN_ONE = 500
_NOT_KEPT = "messages of tools and of the system, and answers that were not final"
_BRANCHES = "messages of branches that do not stand"
FILES = "images and files"


class ImportedConversation(NamedTuple):
    """What is kept of a thread, or of a part of a long one; equal threads follow each other."""

    thread: str
    kept: list[Kept]


class Talk:
    """The messages of one thread as a reader finds them; of a long one, parts that end before a user's words.

    Args:
        tally: Counts what is left out.
        thread: The id of the thread.
        began: When it began, for messages that state no time.
        in_harness: Whether a program puts text of its own before a person's words.
    """

    def __init__(self, tally: Tally, thread: str, began: object = None, *, in_harness: bool = False) -> None:
        self._tally = tally
        self._thread = bounded_name(thread)
        self._at = read_time(began)
        self._messages: list[Message] = []
        self._ids: Counter[str] = Counter()
        self._scaffolding = load_scaffolding() if in_harness else None

    def say(self, role: str, words: str, message_id: object, at: object) -> Iterator[ImportedConversation]:
        """Add a message; yield the part before it where that is long enough."""
        if role == "user":
            words = self._scaffolding.stripped(words)[0] if self._scaffolding is not None else words
            if len(self._messages) >= _IN_ONE:
                yield from self.end()
        self._at = read_time(at) or self._at
        self._messages.append(Message(role, words, id=self._named(message_id), at=self._at))

    def _named(self, message_id: object) -> str | None:
        """Return an id as it is kept; a message that repeats one is another message, not a new text of the first."""
        if not isinstance(message_id, str) or not message_id:
            return None
        self._ids[message_id] += 1
        times = self._ids[message_id]
        return bounded_name(message_id if times == 1 else f"{message_id}#{times}")

    def call(self) -> None:
        """Note that the agent called a tool: what it said before is no final answer."""
        self._messages.append(Message("tool", is_call_item=True))

    def skip(self) -> None:
        """Count a message that is left out."""
        self._tally.pass_over(_NOT_KEPT)

    def end(self) -> Iterator[ImportedConversation]:
        """Yield what was said since the last part."""
        kept = keep(self._messages)
        self._tally.pass_over(_NOT_KEPT, len(self._messages) - len(kept))
        self._messages = []
        if kept:
            yield ImportedConversation(self._thread, kept)


def standing(
    nodes: dict[str, Mapping[str, object]], leaf: object, parent: str, tally: Tally
) -> Sequence[Mapping[str, object]]:
    """Return the nodes of a tree from its root to a leaf; without a known leaf, to the last node.

    A circle of parents ends where it begins again.
    """
    found: dict[str, Mapping[str, object]] = {}
    at: object = leaf if isinstance(leaf, str) and leaf in nodes else next(reversed(nodes), None)
    while isinstance(at, str) and at in nodes and at not in found:
        found[at] = nodes[at]
        at = nodes[at].get(parent)
    tally.pass_over(_BRANCHES, len(nodes) - len(found))
    return list(reversed(found.values()))


def talk_of(tally: Tally, ids: Iterable[object], began: object) -> Talk | None:
    """Return the messages of a conversation, named by its first id that is one; refuse a conversation without."""
    named = next((one for one in ids if isinstance(one, str) and one), None)
    if named is None:
        tally.refuse("a conversation has no id")
        return None
    return Talk(tally, named, began)
