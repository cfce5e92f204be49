"""What a search is narrowed to, where that may be very much: told key by key, and gathered only where it is little."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

__all__ = ["LazyFilter"]


class LazyFilter(Collection[str]):
    """The keys that pass a test, `most` of them at most; `gather` finds all of them.

    To look up the best of a ranking is cheap, to gather 100,000 keys takes longer than the search. Who has looked up
    many in vain asks for all of them, and from then on everybody knows whether they are few. Safe for threads if `test`
    and `gather` are.
    """

    def __init__(self, test: Callable[[str], bool], gather: Callable[[], Collection[str]], most: int) -> None:
        self._test = test
        self._gather = gather
        self.most = most
        self.gathered: Collection[str] | None = None
        """All of them, once somebody has asked for that."""

    def all(self) -> Collection[str]:
        """Gather them, once: in no order, and nobody should ask of many whether one is among them."""
        if self.gathered is None:
            self.gathered = self._gather()
        return self.gathered

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._test(key)

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())
