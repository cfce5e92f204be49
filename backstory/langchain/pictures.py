"""Digests of pictures: each large text in a message's blocks is hashed once, however often the host sends it again.

A host may send the same picture as another object each turn, since a checkpointer restores messages. So pictures are
recognised by comparing them, which costs a fraction of hashing. For that the last ones are kept, in memory only and up
to a limit.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.sanitize import safe_text

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
        self._kept: OrderedDict[_Key, list[tuple[str, str]]] = OrderedDict()
        """Pictures with their digests, by length, beginning and end."""
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
            known = self._kept.get(key, [])
            if key in self._kept:
                self._kept.move_to_end(key)
        # Compared without the lock: the list is never changed.
        for other, digest in known:
            if other == picture:
                return digest
        digest = _hashed(picture)
        self._keep(key, picture, digest)
        return digest

    def _keep(self, key: _Key, picture: str, digest: str) -> None:
        with self._mutex:
            known = self._kept.get(key, [])
            if len(picture) > self._most or any(other[1] == digest for other in known):
                return
            self._kept[key] = [*known, (picture, digest)]
            self._kept.move_to_end(key)
            self._size += len(picture)
            while self._size > self._most:
                # Pictures of one length that begin and end alike go together.
                (length, *_), gone = self._kept.popitem(last=False)
                self._size -= length * len(gone)


def _hashed(picture: str) -> str:
    return hashlib.sha256(safe_text(picture).encode()).hexdigest()
