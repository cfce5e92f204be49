"""Fusion of two rankings: by words and by meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from backstory.projections.search.lexical.entry import Scored

_CALM = 3
"""Reciprocal rank fusion's constant: the larger, the less the first places count against the next. It is small, so that
what is best by one ranking alone is among the first of both."""
_MEANING = 0.5
"""What a rank by meaning counts, where a rank by words counts 1."""


class Fused(msgspec.Struct, frozen=True):
    """An entry that was found, with its rank (from 1) and score in each ranking that has it.

    `score` is 1 for what comes first in both rankings, and falls with the ranks.
    """

    key: str
    score: float
    words_rank: int | None = None
    words_score: float | None = None
    meaning_rank: int | None = None
    meaning_score: float | None = None


def fused(
    by_words: Sequence[Scored], by_meaning: Sequence[Scored], missing: Callable[[str], bool], k: int
) -> list[Fused]:
    """Return the `k` best of two rankings by reciprocal ranks (Cormack and others, 2009), the best first.

    What is `missing` in the second one because it is not embedded yet is taken to stand there as it stands in the
    first. Of equals the one better by words comes first.
    """
    words = {scored.key: (rank, scored.score) for rank, scored in enumerate(by_words, 1)}
    meaning = {scored.key: (rank, scored.score) for rank, scored in enumerate(by_meaning, 1)}
    found: list[Fused] = []
    for key in {**words, **meaning}:
        words_rank, words_score = words.get(key, (None, None))
        meaning_rank, meaning_score = meaning.get(key, (None, None))
        second = words_rank if meaning_rank is None and missing(key) else meaning_rank
        score = (_reciprocal(words_rank) + _MEANING * _reciprocal(second)) / (1 + _MEANING)
        found.append(Fused(key, score, words_rank, words_score, meaning_rank, meaning_score))
    found.sort(key=lambda one: -one.score)
    return found[:k]


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else (_CALM + 1) / (_CALM + rank)
