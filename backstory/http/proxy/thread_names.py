"""Names of threads: finds the thread of a conversation whose client does not name it.

The recorded turns say which threads a conversation continues. Beside them this process remembers, for a bounded number
of threads, how far each has come and what is under way, since a turn is recorded a moment after it was said.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import uuid4

from backstory.http.proxy.asked import Asked
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import Kept
from backstory.ledger.threads.continuing import begin_of_question

_REMEMBERED = 4_096
_MOST_CALLS = 64

Find = Callable[[], Sequence[str]]
"""Returns the threads that a conversation continues by the recorded turns, the likeliest first."""


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
        """The digest of the words that a thread has come to."""
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
    ) -> str:
        """Return the thread of a request, which is under way there until `leave`.

        Args:
            scope: The scope.
            asked: The request.
            said: What was said in it, as it is recorded.
            named: The thread that the client names.
            again: Whether the client says that it tries the request again.
            find: Looks for the thread in the recorded turns; None where they cannot be read.
        """
        name = named or asked.conversation or self._known_by_id(scope, asked)
        if name is None and asked.follows is not None:
            found = () if find is None else find()
            # Named after it, so that another try finds the same thread.
            name = found[0] if found else f"response-{asked.follows}"
        if name is None:
            name = self._known_by_words(scope, said, again=again)
        found = find() if name is None and find is not None and said else ()
        with self._mutex:
            if name is None:
                free = (name for name in found if not self._open[scope, name])
                name = next(free, None) or self._new_name()
            name = bounded_name(name)
            self._open[scope, name] += 1
        self._stand(scope, name, digest(said))
        return name

    def answered(self, scope: Scope, thread: str, said: Sequence[Kept], ids: Sequence[str]) -> None:
        """Note how far a thread has come, and the ids by which the next request may name it.

        Args:
            scope: The scope.
            thread: The thread.
            said: What was said in it up to now, with the answer.
            ids: The id of the response, and those of its calls of tools.
        """
        self._stand(scope, thread, digest(said))
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

    def _known_by_words(self, scope: Scope, said: Sequence[Kept], *, again: bool) -> str | None:
        if not said:
            return None
        asked = begin_of_question(said)
        # The question was asked before and has no answer. Two conversations may ask the same at the same time.
        name = self._by_words.use((scope, words := digest(said)))
        if name is not None and self._words.get((scope, name)) == words:
            with self._mutex:
                if again or not self._open[scope, name]:
                    return name
        name = self._by_words.use((scope, words := digest(said[:asked]))) if asked else None
        return name if name is not None and self._words.get((scope, name)) == words else None


def digest(said: Sequence[Kept]) -> bytes:
    """Return a digest of the words of a conversation."""
    running = hashlib.sha256()
    for message in said:
        words = message.content.encode()
        running.update(b"%s %d " % (message.role.encode(), len(words)))
        running.update(words)
    return running.digest()
