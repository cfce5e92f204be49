"""Lazy filter: tests keys one at a time; materialises only small sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from backstory.projections.search.lexical.places import StoredPlaces


class LazyFilter(Collection[str]):
    """The keys that pass a test, `most` of them at most; `gather` finds all of them.

    To test the best of a ranking is cheap, to gather 100,000 keys takes longer than the search. A caller that tested
    many in vain asks for all of them, and from then on their number is known. Safe for threads if `test` and `gather`
    are.
    """

    def __init__(self, test: Callable[[str], bool], gather: Callable[[], Collection[str]], most: int) -> None:
        self._test = test
        self._gather = gather
        self.most = most
        self.gathered: Collection[str] | None = None
        """All of them, once they were asked for."""

    def all(self) -> Collection[str]:
        """Gather them, once, in no order; testing for membership in many of them is slow."""
        if self.gathered is None:
            self.gathered = self._gather()
        return self.gathered

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._test(key)

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())


class StoredFilter(LazyFilter):
    """The same, of which it is known by their slots which of the entries in a file pass."""

    def __init__(
        self,
        test: Callable[[str], bool],
        gather: Callable[[], Collection[str]],
        most: int,
        stored: StoredPlaces,
        slots: NDArray[np.bool_],
    ) -> None:
        super().__init__(test, gather, most)
        self.stored = stored
        self.slots = slots
