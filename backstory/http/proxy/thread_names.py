"""Names of threads: finds the thread of a conversation whose client does not name it.

The recorded turns say which threads a conversation continues. Beside them this process remembers, for a bounded number
of threads, what the user has said there last and what is under way: a turn is recorded a moment after it was said, and
a memory may not be readable.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import uuid4

from backstory.http.proxy.protocol import Asked
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.told import HINT, ThreadPlace, begin_of_question
from backstory.ledger.threads.delivery.turn_match import plain_words

_REMEMBERED = 4_096
_MOST_CALLS = 64

Find = Callable[[Sequence[str]], Sequence[tuple[str, ThreadPlace | None]]]
"""Returns the threads that a conversation continues by the recorded turns, the likeliest first; gets names to try."""


class Taken(NamedTuple):
    """The thread of a request, and the place of the conversation there, as far as it was looked for and found."""

    name: str
    place: ThreadPlace | None = None


class ThreadNames:
    """Threads of the conversations of one proxy. Safe for threads.

    Args:
        new_name: Returns the name of a new thread.
    """

    def __init__(self, new_name: Callable[[], str] = lambda: f"chat-{uuid4()}") -> None:
        self._new_name = new_name
        self._mutex = threading.Lock()
        self._by_words: Recent[tuple[Scope, bytes], str] = Recent(_REMEMBERED)
        self._by_id: Recent[tuple[Scope, str], str] = Recent(_REMEMBERED)
        """By the id of a response, or of a call of a tool."""
        self._words: Recent[tuple[Scope, str], bytes] = Recent(_REMEMBERED)
        """The digest of the user's words that a thread has come to."""
        self._open: Counter[tuple[Scope, str]] = Counter()
        """The threads in which a question is under way."""

    def take(
        self,
        scope: Scope,
        asked: Asked,
        said: Sequence[Kept],
        *,
        named: str | None = None,
        again: bool = False,
        find: Find | None = None,
    ) -> Taken:
        """Return the thread of a request, which is under way there until `leave`.

        Args:
            scope: The scope.
            asked: The request.
            said: What was said in it, as it is recorded.
            named: The thread that the client names.
            again: Whether the client says that it tries the request again.
            find: Looks for the thread in the recorded turns; None where they cannot be read.
        """
        name = named or asked.conversation or asked.session or self._known_by_id(scope, asked)
        found: Sequence[tuple[str, ThreadPlace | None]] = ()
        if name is None and asked.follows is not None:
            found = () if find is None else find(())
            # Named after it, so that another try finds the same thread.
            name = found[0][0] if found else f"response-{asked.follows}"
        elif name is None and said:
            # Where these words wait for their answer, or all but the question was answered.
            history = said[: begin_of_question(said)]
            digests = [_digest(said, answered=False), *([_digest(history, answered=True)] if history else ())]
            known = [one for words in digests if (one := self._standing(scope, words)) is not None]
            found = [] if find is None else find(known)
            # What is not recorded yet is in no thread.
            found = found or [(name, None) for name in known]
        with self._mutex:
            taken = Taken(bounded_name(name)) if name is not None else self._chosen(scope, found, again=again)
            self._open[scope, taken.name] += 1
        self._stand(scope, taken.name, _digest(said, answered=False))
        return taken

    def _chosen(self, scope: Scope, found: Sequence[tuple[str, ThreadPlace | None]], *, again: bool) -> Taken:
        free = [one for one in found if not self._open[scope, one[0]]]
        # Two conversations may begin alike at the same time.
        sure = [one for one in found if again or (one[1] is not None and one[1].certain and not one[1].again)]
        for name, place in free or sure:
            return Taken(bounded_name(name), place)
        return Taken(bounded_name(self._new_name()))

    def answered(self, scope: Scope, thread: str, said: Sequence[Kept], ids: Sequence[str]) -> None:
        """Note that a question has its answer, and the ids by which the next request may name the thread.

        Args:
            scope: The scope.
            thread: The thread.
            said: What was said in it up to the question.
            ids: The id of the response, and those of its calls of tools.
        """
        self._stand(scope, thread, _digest(said, answered=True))
        for key in ids:
            self._by_id.put((scope, key), thread)

    def leave(self, scope: Scope, thread: str) -> None:
        """Note that a request is not under way any more."""
        with self._mutex:
            self._open[scope, thread] -= 1
            if self._open[scope, thread] <= 0:
                del self._open[scope, thread]

    def _stand(self, scope: Scope, thread: str, words: bytes) -> None:
        self._words.put((scope, thread), words)
        self._by_words.put((scope, words), thread)

    def _known_by_id(self, scope: Scope, asked: Asked) -> str | None:
        if asked.follows is not None:
            return self._by_id.use((scope, asked.follows))
        keys = asked.calls[:_MOST_CALLS]
        return next((name for key in keys if (name := self._by_id.use((scope, key))) is not None), None)

    def _standing(self, scope: Scope, words: bytes) -> str | None:
        name = self._by_words.use((scope, words))
        return name if name is not None and self._words.get((scope, name)) == words else None


def _digest(said: Sequence[Kept], *, answered: bool) -> bytes:
    """Return a digest of the user's words of a conversation, and of how its client names it."""
    running = hashlib.sha256(b"answered" if answered else b"asked")
    running.update(str(next((message.metadata.get(HINT) for message in reversed(said)), None)).encode())
    for message in said:
        if message.role == "user":
            words = plain_words(message.content).encode()
            running.update(b" %d " % len(words))
            running.update(words)
    return running.digest()
