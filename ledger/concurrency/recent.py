"""Bounded mapping that drops what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import TypeVar

from backstory.ledger.concurrency.forks import ForkLock

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """A mapping of at most `most` keys; `put` and `use` are safe for threads and forks.

    It is filled through `put` only. `use` counts as a use of the key, `get` does not.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._mutex = ForkLock()

    def put(self, key: _K, value: _V) -> None:
        """Set a value as the one that was used last, and drop the oldest where there are too many."""
        # A key may be popped meanwhile, without the lock.
        with self._mutex, suppress(KeyError):
            self[key] = value
            self.move_to_end(key)
            if len(self) > self._most:
                self.popitem(last=False)

    def use(self, key: _K) -> _V | None:
        """Return a value and count that as a use; None where there is none."""
        value = self.get(key)
        with self._mutex, suppress(KeyError):
            self.move_to_end(key)
        return value
