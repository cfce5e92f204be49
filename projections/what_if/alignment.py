"""Fact alignment for reextraction: a fact with the same text keeps its number.

A fact's number comes from its place in the answer, and later edits and answers refer to it by that number. A different
fact in a new answer must not take that place, or an edit of the old fact would change the new one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import Candidate, Consolidation, NewFact, Removal

_NEW, _MERGED = "newFacts/", "factsToConsolidate/"
_FIRST_NEW = 1_000_000
_FIRST_MERGED = 20_000
"""No recorded answer reaches these numbers of items, so no ledger has them."""


class Alignment:
    """Assigns places to the candidates of an update's new answers, given the candidates of the recorded answer."""

    def __init__(self, recorded: Iterable[Candidate]) -> None:
        self._known: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for candidate in recorded:
            if isinstance(candidate, NewFact | Consolidation):
                self._known[_identity(candidate)].append(candidate.place)
        self._fresh = {_NEW: count(_FIRST_NEW), _MERGED: count(_FIRST_MERGED)}

    def align(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Return an answer's candidates with their places; a removal's replacement refers to the same candidate."""
        answer = list(candidates)
        places = dict(self._places(answer))
        unused = next(self._fresh[_NEW])
        return tuple(_moved(candidate, places, unused) for candidate in answer)

    def _places(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, str]]:
        for candidate in candidates:
            prefix, slash, index = candidate.place.rpartition("/")
            numbers = self._fresh.get(prefix + slash)
            if numbers is not None and index.isdigit():
                known = self._known[_identity(candidate)] if isinstance(candidate, NewFact | Consolidation) else None
                yield candidate.place, known.popleft() if known else f"{prefix}{slash}{next(numbers)}"


def _identity(candidate: NewFact | Consolidation) -> tuple[str, str]:
    return type(candidate).__name__, dedup_key(candidate.content)


def _moved(candidate: Candidate, places: dict[str, str], unused: int) -> Candidate:
    moved = msgspec.structs.replace(candidate, place=places.get(candidate.place, candidate.place))
    if not isinstance(moved, Removal) or moved.replacement is None:
        return moved
    place = places.get(f"{_NEW}{moved.replacement}")
    index = unused if place is None else int(place.removeprefix(_NEW))
    return msgspec.structs.replace(moved, replacement=index)
