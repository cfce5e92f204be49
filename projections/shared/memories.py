"""Shared memories: the newest memory of a scope, so that a process that opens the scope need not replay its ledger.

A value is used only if it is the memory at the very head that the engine reports, and if it carries the signature of
this scope. The signature is made with the ledger's secret, which is kept in the engine: a client that can only write to
the cache can make one. So an outdated, damaged or forged value costs time and changes no answer.

An erasure moves the head, so what was kept before it is never used again, and it deletes the value. A process that
keeps an older memory at that moment looks at the head afterwards, and deletes what it has kept.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter
from functools import lru_cache

import msgspec

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.projections.shared import SharedCache

__all__ = ["FEWEST_COMMITS", "SharedMemories"]

_log = logging.getLogger(__name__)

FEWEST_COMMITS = 64
"""Shorter ledgers are replayed as fast as a value is read."""

_FORMAT = 1
"""Raised when a commit is folded in another way, or a value is made in another way."""

_SIGNATURE_BYTES = 32
_MOST_BYTES = 4 << 20
_OWED = 10_000


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A value: the head, and the memory there."""

    head: Head
    memory: Memory


_decode = msgspec.msgpack.Decoder(_Kept).decode


class SharedMemories:
    """The memories of one engine in a cache: a `SharedSnapshots`. Safe for threads and forks; nothing here raises.

    Args:
        store: The engine.
        cache: Where the memories are kept.
        seconds: How long a memory is kept.
    """

    def __init__(self, store: EventStore, cache: SharedCache, seconds: int) -> None:
        self._store = store
        self._cache = cache
        self._seconds = seconds
        self.reads: Counter[str] = Counter()
        """What became of the reads of this process: `hit`, `miss`, `stale` or `refused`."""
        # Two homes with the same users may share a cache.
        self._home = hashlib.sha256(str(store).encode()).hexdigest()[:16]
        self._owed: Recent[Scope, None] = Recent(_OWED)
        """The scopes whose value could not be deleted yet."""

    def find(self, scope: Scope, head: Head) -> Memory | None:
        """Return the memory of a scope at the head that the engine reports; None where there is none to use."""
        if head.seq < FEWEST_COMMITS:
            return None
        try:
            secret = self._store.key(scope.stream(LEDGER))
        except UnavailableError:
            return None
        # Without a secret no process has kept anything.
        value = None if secret is None else self._cache.get(self._key(scope))
        if secret is None or value is None:
            self.reads["miss"] += 1
            return None
        memory, outcome = self._checked(scope, secret, value, head)
        self.reads[outcome] += 1
        return memory

    def _checked(self, scope: Scope, secret: bytes, value: bytes, head: Head) -> tuple[Memory | None, str]:
        signature, content = value[:_SIGNATURE_BYTES], value[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(scope, secret, content)):
            return None, "refused"
        # It is what this version of the code has written, or another that has the same shapes.
        kept = _decode(content)
        return (kept.memory, "hit") if kept.head == head else (None, "stale")

    def keep(self, scope: Scope, memory: Memory, head: Head) -> None:
        """Keep the memory of a scope at a durable head, for other processes."""
        self._pay()
        if head.seq < FEWEST_COMMITS:
            return
        stream = scope.stream(LEDGER)
        try:
            secret = self._store.key(stream, create=True)
            content = msgspec.msgpack.encode(_Kept(head, memory))
            if secret is None or len(content) > _MOST_BYTES:
                return
            value = self._signature(scope, secret, content) + content
            if self._cache.put(self._key(scope), value, self._seconds) and self._store.durable_head(stream) != head:
                # It may be an erasure that has deleted the value a moment ago.
                self.erase(scope)
        except UnavailableError as error:
            _log.debug("the memory of %s is not shared: %s", scope, error)

    def erase(self, scope: Scope) -> None:
        """Delete what is kept of a scope. Where that fails it is tried again, and the value ends by itself."""
        if self._cache.delete(self._key(scope)):
            self._owed.pop(scope, None)
            return
        if self._owed.pop(scope, False) is False:
            _log.warning(
                "the shared cache does not answer: what it holds of %s is not used any more, and ends within %d s",
                scope,
                self._seconds,
            )
        self._owed.put(scope, None)

    def _pay(self) -> None:
        """Delete what could not be deleted before."""
        for scope in list(self._owed):
            if not self._cache.delete(self._key(scope)):
                return
            self._owed.pop(scope, None)

    def close(self) -> None:
        """Delete what could not be deleted before, and close the connections."""
        self._pay()
        self._cache.close()

    def _key(self, scope: Scope) -> str:
        # A folder's name has no colon.
        user = Scope(scope.user).folder.removeprefix("users/")
        return f"backstory:{self._home}:{user}:{scope.agent or ''}"

    def _signature(self, scope: Scope, secret: bytes, content: bytes) -> bytes:
        return hmac.digest(secret, _shape() + self._key(scope).encode() + b"\n" + content, "sha256")


@lru_cache(maxsize=1)
def _shape() -> bytes:
    """Return a digest of the shapes of a memory: another version of the code, with others, refuses the value."""
    shapes = msgspec.json.encode(msgspec.json.schema(_Kept))
    return hashlib.sha256(b"%d\n" % _FORMAT + shapes).digest()
