"""Who is who when a model is asked again: a fact that is told in the same words keeps its number.

Facts get their numbers from their place in an answer, and people and other answers speak of facts by these numbers. So
what is told by another answer must not stand in the place of something else, or an edit of the one would hit the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import Candidate, Consolidation, NewFact, Removal

__all__ = ["Alignment"]

_NEW, _MERGED = "newFacts/", "factsToConsolidate/"
_FIRST_NEW = 1_000_000
_FIRST_MERGED = 20_000
"""No answer that was recorded has so many items: ids from here on are in no ledger."""


class Alignment:
    """Places for the candidates of one update's new answers, beside those of the answer that was recorded."""

    def __init__(self, recorded: Iterable[Candidate]) -> None:
        self._known: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for candidate in recorded:
            if isinstance(candidate, NewFact | Consolidation):
                self._known[_words(candidate)].append(candidate.place)
        self._fresh = {_NEW: count(_FIRST_NEW), _MERGED: count(_FIRST_MERGED)}

    def settle(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Give the candidates of an answer their places; a replacement goes on naming what it named."""
        answer = list(candidates)
        places = dict(self._places(answer))
        nowhere = next(self._fresh[_NEW])
        return tuple(_moved(candidate, places, nowhere) for candidate in answer)

    def _places(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, str]]:
        for candidate in candidates:
            prefix, slash, index = candidate.place.rpartition("/")
            numbers = self._fresh.get(prefix + slash)
            if numbers is not None and index.isdigit():
                known = self._known[_words(candidate)] if isinstance(candidate, NewFact | Consolidation) else None
                yield candidate.place, known.popleft() if known else f"{prefix}{slash}{next(numbers)}"


def _words(candidate: NewFact | Consolidation) -> tuple[str, str]:
    return type(candidate).__name__, dedup_key(candidate.content)


def _moved(candidate: Candidate, places: dict[str, str], nowhere: int) -> Candidate:
    moved = msgspec.structs.replace(candidate, place=places.get(candidate.place, candidate.place))
    if not isinstance(moved, Removal) or moved.replacement is None:
        return moved
    named = places.get(f"{_NEW}{moved.replacement}")
    index = nowhere if named is None else int(named.removeprefix(_NEW))
    return msgspec.structs.replace(moved, replacement=index)
