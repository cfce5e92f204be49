"""Words of refusals: which refused candidates and removed facts have which words.

The index keeps them in blocks of 128 events, so that forty thousand refusals are some three hundred entries, and a
question about one text reads no other text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from backstory.projections.history.refusals import ALIKE, rarity, sameness, share, terms_of

BLOCK = 128
"""How many events a block holds; the position of one among them fits in a byte."""


class RefusalBlock(msgspec.Struct, array_like=True):
    """The events of a block by position, each as its commit's seq and its index there; and the positions by word."""

    places: list[tuple[int, int]] = []
    words: dict[str, bytes] = {}

    def add(self, seq: int, index: int, statement: str) -> None:
        """Add an event that refuses a statement, or takes it out of memory."""
        position = bytes((len(self.places),))
        self.places.append((seq, index))
        for word in (*terms_of(statement), sameness(statement)):
            self.words[word] = self.words.get(word, b"") + position


def resembling(blocks: Sequence[RefusalBlock], text: str) -> list[tuple[float, int, int]]:
    """Return the events whose statements resemble a text, each as score, seq and index, the best and newest first.

    The score is as `why_not` describes it.
    """
    same, texts = sameness(text), sum(len(block.places) for block in blocks)
    held = {word: [block.words.get(word, b"") for block in blocks] for word in sorted(terms_of(text))}
    weights = {word: rarity(sum(map(len, positions)), texts) for word, positions in held.items()}
    total = sum(weights.values())
    found: list[tuple[float, int, int]] = []
    for number, block in enumerate(blocks):
        by_position = ((positions[number], weights[word]) for word, positions in held.items())
        for position, score in _scores(len(block.places), by_position, total, block.words.get(same, b"")):
            found.append((score, *block.places[position]))
    found.sort(key=lambda one: (-one[0], -one[1], one[2]))
    return found


def _scores(
    count: int, held: Iterable[tuple[bytes, float]], total: float, same: Iterable[int]
) -> Iterator[tuple[int, float]]:
    """Yield the positions in a block whose texts are alike enough, with their scores."""
    shared = [0.0] * count
    for positions, weight in held:
        for position in positions:
            shared[position] += weight
    equal = set(same)
    for position, weight in enumerate(shared):
        score = 1.0 if position in equal else share(weight, total)
        if score >= ALIKE:
            yield position, score
