"""A long conversation in portions, each of which fits into one prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from backstory.ledger.core.events import Turn

__all__ = ["portions"]


def portions(turns: Sequence[Turn], room: int, size_of: Callable[[Turn], int]) -> Iterator[Sequence[Turn]]:
    """Part turns, in order, so that each portion's sizes come to `room` at most; no portion is empty.

    A portion ends after an answer where it can: what a user said is not parted from what the assistant answered to it,
    unless both together are too big. A turn that alone is too big is a portion of its own.
    """
    start = stop = used = 0
    for first, last in _exchanges(turns):
        sizes = [size_of(turn) for turn in turns[first:last]]
        if stop > start and used + sum(sizes) > room:
            yield turns[start:stop]
            start, used = stop, 0
        for size in sizes:
            if stop > start and used + size > room:
                yield turns[start:stop]
                start, used = stop, 0
            stop += 1
            used += size
    if stop > start:
        yield turns[start:stop]


def _exchanges(turns: Sequence[Turn]) -> Iterator[tuple[int, int]]:
    """Tell where each exchange begins and ends: a user's words in a row, and the answers to them."""
    start = 0
    for index in range(1, len(turns)):
        if turns[index].role == "user" and turns[index - 1].role != "user":
            yield start, index
            start = index
    if turns:
        yield start, len(turns)
