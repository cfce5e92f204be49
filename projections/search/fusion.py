"""Fusion of rankings: by words and by meaning, and by what cites or is cited.

Turns are fused by their ranks. Of facts, which are sentences of their own that a model understands well, it counts how
far ahead a score is, which ranks do not say: where it lies between the best and the least of its own ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from backstory.projections.search.lexical.entry import Scored
from backstory.projections.search.results import Explanation

_CALM = 3
"""Reciprocal rank fusion's constant: the larger, the less the first places count against the next. It is small, so that
what is best by one ranking alone is among the first of both."""
_MEANING = {"turns": 0.5, "facts": 1.0}
"""What meaning counts, where words count 1."""
_CITED = {"turns": 0.5, "facts": 1.0}
"""What counts of facts the words of the turns that they cite, and of turns the meaning of the facts that cite them: as
much as words of facts and as meaning of turns."""


class Fused(msgspec.Struct, frozen=True):
    """An entry that was found, with its place in each ranking that has it.

    `score` is 1 for what comes first in all rankings.
    """

    key: str
    score: float
    why: Explanation


def fused(
    by_words: Sequence[Scored],
    by_meaning: Sequence[Scored],
    missing: Callable[[str], bool],
    k: int,
    *,
    within: str,
    by_cited: Sequence[Scored] = (),
    citing: Collection[str] = (),
) -> list[Fused]:
    """Return the `k` best of two rankings of facts or turns, the best first; `by_cited` changes their order only.

    What is `missing` in the second one because it is not embedded yet is taken to stand there as it stands in the
    first, and likewise in the third what is not `citing`. Of equals the one better by words comes first.
    """
    weight = _MEANING[within]
    # What has no word of the query scores 0 by words; by meaning everything is somewhat alike.
    of_words = _reciprocal if within == "turns" else _relative(by_words, 0.0)
    of_meaning = (
        _reciprocal if within == "turns" else _relative(by_meaning, min((one.score for one in by_meaning), default=0.0))
    )
    of_cited = _reciprocal if within == "turns" else _relative(by_cited, 0.0)
    cited_weight = _CITED[within] if by_cited else 0.0
    words, meaning, cited = (
        {scored.key: (rank, scored.score) for rank, scored in enumerate(ranked, 1)}
        for ranked in (by_words, by_meaning, by_cited)
    )
    found: list[Fused] = []
    for key in {**words, **meaning}:
        words_rank, words_score = words.get(key, (None, None))
        meaning_rank, meaning_score = meaning.get(key, (None, None))
        first = of_words(words_rank, words_score)
        second = first if meaning_rank is None and missing(key) else of_meaning(meaning_rank, meaning_score)
        cited_rank, cited_score = cited.get(key, (None, None))
        third = of_cited(cited_rank, cited_score) if key in citing else first
        score = (first + weight * second + cited_weight * third) / (1 + weight + cited_weight)
        places = words_rank, words_score, meaning_rank, meaning_score, cited_rank, cited_score
        found.append(Fused(key, score, Explanation((), *places)))
    found.sort(key=lambda one: -one.score)
    return found[:k]


def by_words_and_cited(
    by_words: Sequence[Scored], by_cited: Sequence[Scored] = (), citing: Collection[str] = ()
) -> list[Fused]:
    """Return a ranking by words, the best first; what is `citing` has the mean of its own score and of what it cites.

    The best of both rankings count alike. Where nothing that is cited was found, it is the ranking by words.
    """
    cited = {scored.key: (rank, scored.score) for rank, scored in enumerate(by_cited, 1)}
    most = max((one.score for one in by_words), default=0.0)
    of_cited = _relative(by_cited, 0.0)
    found: list[Fused] = []
    for rank, one in enumerate(by_words, 1):
        cited_rank, cited_score = cited.get(one.key, (None, None))
        other = most * of_cited(cited_rank, cited_score) if cited and one.key in citing else one.score
        score = (one.score + other) / 2
        why = Explanation(words_rank=rank, words_score=one.score, cited_rank=cited_rank, cited_score=cited_score)
        found.append(Fused(one.key, score, why))
    return sorted(found, key=lambda one: -one.score)


def _reciprocal(rank: int | None, _: float | None) -> float:
    """Reciprocal rank fusion (Cormack and others, 2009)."""
    return 0.0 if rank is None else (_CALM + 1) / (_CALM + rank)


def _relative(ranked: Sequence[Scored], least: float) -> Callable[[int | None, float | None], float]:
    most = max((one.score for one in ranked), default=least)

    def relative(_: int | None, score: float | None) -> float:
        if score is None:
            return 0.0
        return (score - least) / (most - least) if most > least else 1.0

    return relative
