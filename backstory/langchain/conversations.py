"""Conversation tracker: recognises conversations that a host sends again with new ids or without a thread.

It identifies a conversation by a chain of digests, one for each message together with all before it. It keeps no
content but the last pictures, which a host may send as other objects each turn: they are recognised by comparing them,
which costs a fraction of hashing. All of its caches are bounded; a lost entry costs a longer delivery, a new thread or
another hash.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import RemoveMessage as Removal

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.core.scope import Scope

_LARGE = 4_096
"""From this number of characters on a text is a picture, or another file."""
_MOST = 32 << 20
"""The most characters of pictures that are kept."""
_ENDS = 64

_Key = tuple[int, str, str]


class Pictures:
    """Digests of the pictures that were seen last. Safe for threads.

    Args:
        most: The most characters that are kept.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: OrderedDict[_Key, tuple[str, str]] = OrderedDict()
        """The last picture of each length, beginning and end, with its digest."""
        self._size = 0
        self._mutex = ForkLock()

    def spelled(self, content: object) -> str:
        """Return the text of a content in blocks, with the digests of pictures in their place."""
        return repr(self._shortened(content, is_text=False))

    def _shortened(self, part: object, *, is_text: bool) -> object:
        if isinstance(part, str):
            return part if is_text or len(part) < _LARGE else f"sha256:{self._digest(part)}"
        if isinstance(part, dict):
            return {key: self._shortened(value, is_text=key == "text") for key, value in part.items()}
        if isinstance(part, list):
            return [self._shortened(value, is_text=False) for value in part]
        return part

    def _digest(self, picture: str) -> str:
        key = (len(picture), picture[:_ENDS], picture[-_ENDS:])
        with self._mutex:
            known, digest = self._kept.get(key, ("", ""))
            if known:
                self._kept.move_to_end(key)
        # Compared without the lock.
        if known == picture:
            return digest
        digest = _hashed(picture)
        if len(picture) <= self._most:
            self._keep(key, picture, digest)
        return digest

    def _keep(self, key: _Key, picture: str, digest: str) -> None:
        with self._mutex:
            if key not in self._kept:
                self._size += len(picture)
            self._kept[key] = picture, digest
            self._kept.move_to_end(key)
            while self._size > self._most:
                (length, *_), _ = self._kept.popitem(last=False)
                self._size -= length


def _hashed(picture: str) -> str:
    return hashlib.sha256(safe_text(picture).encode()).hexdigest()


_MESSAGES = 32_768
_THREADS = 4_096
UNKNOWN_USER = "\0"
"""Owner of messages whose user is unknown."""
_NEVER = b"never"
"""Digest of a conversation that was not recorded completely."""
_pictures = Pictures()
_NOT_SAID = (SystemMessage, ToolMessage, FunctionMessage, Removal)


class SpokenMessages:
    """The spoken messages of a conversation and the chain of their digests, without tool calls and results.

    Attributes:
        said: The spoken messages.
        asked: Index of the first message of the question, which has no answer yet.
        latest: Index of the last message of a person.
        chain: For each message the digest of it and all before it.
    """

    def __init__(self, messages: Sequence[object]) -> None:
        self.said: list[BaseMessage] = []
        self.asked = 0
        self.latest = 0
        for message in messages:
            if isinstance(message, HumanMessage):
                self.latest = len(self.said)
            if isinstance(message, BaseMessage) and _is_said(message):
                self.said.append(message)
            if not isinstance(message, HumanMessage):
                self.asked = len(self.said)
        self.chain = list(_chain(self.said))

    def upto(self, count: int) -> bytes:
        """The digest of the first `count` messages."""
        return self.chain[count - 1] if 0 < count <= len(self.chain) else b""

    @property
    def whole(self) -> bytes:
        """The digest of all messages."""
        return self.upto(len(self.chain))


def _is_said(message: BaseMessage) -> bool:
    if isinstance(message, AIMessage):
        return not message.tool_calls
    return not isinstance(message, _NOT_SAID)


def _chain(messages: Sequence[BaseMessage]) -> Iterator[bytes]:
    running = hashlib.sha256()
    for message in messages:
        content = message.content
        words = safe_text(content if isinstance(content, str) else _pictures.spelled(content)).encode()
        running.update(b"%s %d " % (message.type[:2].lower().encode(), len(words)))
        running.update(words)
        yield running.digest()


def _id(message: BaseMessage, digest: bytes) -> str:
    """Derive an id from the position and the host's id, since a host may give the same id to another message later."""
    if not digest or not message.id:
        return str(uuid4())
    return hashlib.sha256(digest + message.id.encode("utf-8", "replace")).hexdigest()[:32]


class Conversations:
    """Names, message owners and deliveries of the conversations of one middleware. Safe for threads."""

    def __init__(self) -> None:
        self._names: Recent[tuple[Scope | None, bytes], str] = Recent(_THREADS)
        self._owners: Recent[tuple[str, str | bytes], str] = Recent(_MESSAGES)
        self._users: Recent[str, frozenset[str]] = Recent(_THREADS)
        self._heard: Recent[tuple[Scope, str], bytes] = Recent(_THREADS)
        """The digest of each thread at its last delivery."""
        self._ids: Recent[tuple[Scope, str], tuple[bytes, tuple[str, ...]]] = Recent(_THREADS)
        """The digest of the last question of each thread, and the ids of its recorded messages."""

    def name(self, scope: Scope, talk: SpokenMessages) -> str | None:
        """Return the thread of a conversation that this process has heard, and that goes on; None if it has not."""
        for count in range(talk.asked, 0, -1):
            found = self._names.use((scope, talk.upto(count))) or self._names.use((None, talk.upto(count)))
            if found is not None:
                return found
        return None

    def owners(
        self, thread: str, talk: SpokenMessages, kept: Mapping[str, str], user: str, *, earlier: str | None = None
    ) -> list[str]:
        """Return the owner of each message at the begin of a run.

        The last message may repeat an earlier one, but it is still part of the question.

        Args:
            thread: The thread.
            talk: The conversation.
            kept: Owners by message id, as the state of the agent keeps them.
            user: The user who asks now; owns unknown messages.
            earlier: Owns unknown messages before the last one of a person. Default: `user`.
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

    def added(self, thread: str, talk: SpokenMessages, known: Mapping[str, str], user: str) -> list[str]:
        """Return the owner of each message at the end of a run: `user` owns those that are not `known` by id."""
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

    def ids(self, scope: Scope, thread: str, talk: SpokenMessages) -> list[str]:
        """Return the ids under which a question is recorded. A retried run gets the same ids."""
        asked = talk.said[talk.asked :]
        digest, known = self._ids.use((scope, thread)) or (b"", ())
        if digest != talk.whole or len(known) != len(asked):
            again = digest == talk.whole
            digests = talk.chain[talk.asked :]
            known = tuple(_id(message, b"" if again else at) for message, at in zip(asked, digests, strict=True))
            self._ids.put((scope, thread), (talk.whole, known))
        return list(known)

    def heard(self, scope: Scope, thread: str, talk: SpokenMessages) -> bool:
        """Whether this process has delivered all messages before the question, including in an earlier try of it."""
        asked = self._ids.use((scope, thread))
        return self._heard.use((scope, thread)) == talk.upto(talk.asked) or (
            asked is not None and asked[0] == talk.whole and bool(asked[1])
        )

    def is_shared(self, thread: str, user: str) -> bool:
        """Note `user` as a speaker of a thread; return whether this process knows another one."""
        known = self._users.use(thread) or frozenset()
        if user not in known:
            self._users.put(thread, known | {user})
        return bool(known - {user})

    def answered(self, scope: Scope, thread: str, question: bytes | None, talk: SpokenMessages, *, heard: bool) -> None:
        """Note the end of a run.

        Args:
            scope: The scope.
            thread: The thread.
            question: The digest of a question without earlier messages; when it comes again it is a new question.
            talk: The conversation.
            heard: Whether all of it was recorded, so that it need not be delivered again.
        """
        self._heard.put((scope, thread), talk.whole if heard else _NEVER)
        self._names.put((scope, talk.whole), thread)
        self._names.put((None, talk.whole), thread)
        if question is not None:
            self._ids.put((scope, thread), (question, ()))
