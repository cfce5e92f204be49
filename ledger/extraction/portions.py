"""Portions of a long conversation: each fits into one prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from backstory.ledger.core.events import Turn

__all__ = ["portions"]


def portions(turns: Sequence[Turn], room: int, size_of: Callable[[Turn], int]) -> Iterator[Sequence[Turn]]:
    """Split turns, in order, into portions that are not empty.

    A portion ends after an answer where possible: a user's words and the answer to them are split only where both
    together are too big. A turn that is too big by itself is a portion of its own.

    Args:
        turns: the turns to split.
        room: the most tokens of a portion.
        size_of: the tokens of a turn.
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
    """Yield the half-open index range of each exchange: consecutive user turns and the answers to them."""
    start = 0
    for index in range(1, len(turns)):
        if turns[index].role == "user" and turns[index - 1].role != "user":
            yield start, index
            start = index
    if turns:
        yield start, len(turns)
