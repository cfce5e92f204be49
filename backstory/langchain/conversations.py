"""What this process knows of the conversations it has seen, beyond what a checkpointer keeps of them.

A host may send the whole conversation with every run, under ids that are new each time, or under no thread at all. So
conversations are known by their words: by a chain of digests, one for each message and all before it. Nothing of what
was said is kept. All of it is bounded: what is forgotten costs a longer delivery, or a thread of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import RemoveMessage as Removal

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.core.scope import Scope

__all__ = ["NOBODY", "Conversation", "Conversations"]

_MESSAGES = 32_768
_THREADS = 4_096
NOBODY = "\0"
"""In place of a user, where nobody knows any more whose words they are."""
_NEVER = b"never"
"""In place of a digest, where not all of a conversation was recorded."""
_NOT_SAID = (SystemMessage, ToolMessage, FunctionMessage, Removal)


class Conversation:
    """What was said in a conversation, with the chain of its digests; tools' calls and results are left out.

    From `asked` on it is a question without an answer yet.
    """

    def __init__(self, messages: Sequence[object]) -> None:
        self.said: list[BaseMessage] = []
        self.asked = 0
        self.latest = 0
        """Where the last words of a person stand."""
        for message in messages:
            if isinstance(message, HumanMessage):
                self.latest = len(self.said)
            if isinstance(message, BaseMessage) and _is_said(message):
                self.said.append(message)
            if not isinstance(message, HumanMessage):
                self.asked = len(self.said)
        self.chain = list(_chain(self.said))

    def upto(self, count: int) -> bytes:
        """The digest of the first so many messages."""
        return self.chain[count - 1] if 0 < count <= len(self.chain) else b""

    @property
    def whole(self) -> bytes:
        """The digest of all of them."""
        return self.upto(len(self.chain))


def _is_said(message: BaseMessage) -> bool:
    if isinstance(message, AIMessage):
        return not message.tool_calls
    return not isinstance(message, _NOT_SAID)


def _chain(messages: Sequence[BaseMessage]) -> Iterator[bytes]:
    running = hashlib.sha256()
    for message in messages:
        content = message.content
        words = safe_text(content if isinstance(content, str) else repr(content)).encode()
        running.update(b"%s %d " % (message.type[:2].lower().encode(), len(words)))
        running.update(words)
        yield running.digest()


def _id(message: BaseMessage, digest: bytes) -> str:
    """An id of words at their place: a host's own may be places in what it sends, and of other words the next time."""
    if not digest or not message.id:
        return str(uuid4())
    return hashlib.sha256(digest + message.id.encode("utf-8", "replace")).hexdigest()[:32]


class Conversations:
    """Remembers names, owners and what was delivered; one for each middleware, safe for threads."""

    def __init__(self) -> None:
        self._names: Recent[tuple[Scope | None, bytes], str] = Recent(_THREADS)
        self._owners: Recent[tuple[str, str | bytes], str] = Recent(_MESSAGES)
        self._users: Recent[str, frozenset[str]] = Recent(_THREADS)
        self._heard: Recent[tuple[Scope, str], bytes] = Recent(_THREADS)
        """What each thread was when it was delivered last: one that is shown in part may look like an older one."""
        self._ids: Recent[tuple[Scope, str], tuple[bytes, tuple[str, ...]]] = Recent(_THREADS)
        """The question each thread was asked last, and the ids under which it is recorded."""

    def name(self, scope: Scope, talk: Conversation) -> str:
        """Return the thread of a run that was given none: that of the conversation it goes on from, or a new one."""
        for count in range(talk.asked, 0, -1):
            found = self._names.use((scope, talk.upto(count))) or self._names.use((None, talk.upto(count)))
            if found is not None:
                return found
        return f"run-{uuid4()}"

    def owners(
        self, thread: str, talk: Conversation, kept: Mapping[str, str], user: str, *, earlier: str | None = None
    ) -> list[str]:
        """Return whose each message is: as `kept` by id, as this process saw it first, or the user's who asks now.

        The last one may have the words of an earlier one, and is none the less what is asked now. `earlier` owns what
        nothing is known of and was said before that, if it is not the user who asks now.
        """
        found = []
        for n, (message, digest) in enumerate(zip(talk.said, talk.chain, strict=True), 1):
            owner = kept.get(message.id or "")
            if owner is None:
                owner = self._owners.use((thread, message.id or digest))
                if owner is None and (n < len(talk.said) or n <= talk.asked):
                    owner = self._owners.use((thread, digest))
                owner = owner or (user if earlier is None or n > talk.latest else earlier)
                self._own(thread, message, digest, owner)
            found.append(owner)
        return found

    def added(self, thread: str, talk: Conversation, known: Mapping[str, str], user: str) -> list[str]:
        """Return whose each message is as a run ends: what is not `known` by id was said in it, so it is its user's."""
        found = []
        for message, digest in zip(talk.said, talk.chain, strict=True):
            owner = known.get(message.id or "")
            if owner is None:
                owner = user
                self._own(thread, message, digest, owner)
            found.append(owner)
        return found

    def _own(self, thread: str, message: BaseMessage, digest: bytes, owner: str) -> None:
        self._owners.put((thread, digest), owner)
        if message.id:
            self._owners.put((thread, message.id), owner)

    def ids(self, scope: Scope, thread: str, talk: Conversation) -> list[str]:
        """Return the ids under which a question is recorded: the same when a run is tried again."""
        asked = talk.said[talk.asked :]
        digest, known = self._ids.use((scope, thread)) or (b"", ())
        if digest != talk.whole or len(known) != len(asked):
            again = digest == talk.whole
            known = tuple(
                [
                    _id(message, b"" if again else at)
                    for message, at in zip(asked, talk.chain[talk.asked :], strict=True)
                ]
            )
            self._ids.put((scope, thread), (talk.whole, known))
        return list(known)

    def heard(self, scope: Scope, thread: str, talk: Conversation) -> bool:
        """Whether this process has delivered all that was said before the question, also when it was asked before."""
        asked = self._ids.use((scope, thread))
        return self._heard.use((scope, thread)) == talk.upto(talk.asked) or (
            asked is not None and asked[0] == talk.whole and bool(asked[1])
        )

    def is_shared(self, thread: str, user: str) -> bool:
        """Whether somebody else has spoken in a thread, as far as this process knows; from now on `user` has, too."""
        known = self._users.use(thread) or frozenset()
        if user not in known:
            self._users.put(thread, known | {user})
        return bool(known - {user})

    def answered(self, scope: Scope, thread: str, question: bytes | None, talk: Conversation, *, heard: bool) -> None:
        """Note that a run has ended; where all of its conversation was `heard`, it need not be delivered once more.

        `question` is the digest of a question that stood alone: when it comes again, it is asked again.
        """
        self._heard.put((scope, thread), talk.whole if heard else _NEVER)
        self._names.put((scope, talk.whole), thread)
        self._names.put((None, talk.whole), thread)
        if question is not None:
            self._ids.put((scope, thread), (question, ()))
