"""Results of a search: rankings fused into one, by words and by meaning and by what cites or is cited, and hits.

Turns are fused by their ranks. Of facts, which are sentences of their own that a model understands well, it counts how
far ahead a score is, which ranks do not say: where it lies between the best and the least of its own ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from backstory.ledger.core.events import Attributes
from backstory.ledger.core.scope import Scope
from backstory.projections.context.joined import shown_id
from backstory.projections.search.lexical.entry import Part, Scored

_CALM = 3
"""Reciprocal rank fusion's constant: the larger, the less the first places count against the next. It is small, so that
what is best by one ranking alone is among the first of both."""
_MEANING = {"turns": 0.5, "facts": 1.0}
"""What meaning counts, where words count 1."""
_CITED = {"turns": 0.5, "facts": 1.0}
"""What counts of facts the words of the turns that they cite, and of turns the meaning of the facts that cite them: as
much as words of facts and as meaning of turns."""


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Why a hit stands where it stands.

    `words` are the words that matched, where, and what each added to `words_score`; ranks count from 1. `similarity` is
    the cosine of the meanings, -1 to 1. `cited_rank` and `cited_score` say how well the turns that a fact cites fit by
    their words, and the facts that cite a turn by their meaning. What did not find it is None.
    """

    words: tuple[Part, ...] = ()
    words_rank: int | None = None
    words_score: float | None = None
    meaning_rank: int | None = None
    similarity: float | None = None
    cited_rank: int | None = None
    cited_score: float | None = None


class Hit(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A fact or a turn that was found; `score` ranks it within one answer and says nothing beside another.

    A fact has a category, a confidence, when it was created, its source, its tags and attributes, and the times that it
    states, as `Fact` has them; a turn has its thread, its ordinal there, its role, when it was said and its speaker's
    name, where there is one. Times are ISO 8601, UTC. With `by_meaning` no word brought it in, only what it means: it
    is among the nearest, which may be far. `owner` is whose fact it is, if the memories of an agent and of its user
    were searched together; `id` is the one that it has there. `why` only where an explanation was asked for.
    """

    id: str
    content: str
    score: float
    category: str | None = None
    confidence: float | None = None
    created_at: str | None = None
    source: str | None = None
    source_error: str | None = None
    by_hand: bool = False
    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None
    tags: tuple[str, ...] = ()
    attributes: Attributes = {}
    thread: str | None = None
    n: int | None = None
    role: str | None = None
    at: str | None = None
    name: str | None = None
    by_meaning: bool = False
    owner: Scope | None = None
    why: Explanation | None = None

    @property
    def shown_id(self) -> str:
        """The id as people and models are shown it: that of a user's fact says so."""
        return shown_id(self.id, self.owner)


@dataclass(frozen=True, slots=True)
class Found(Sequence[Hit]):
    """Hits, the best first, and how far meaning is known where they were looked for.

    `within` is "facts" or "turns", of which there are `total`; `model` has read `embedded` of them, and is None where
    nothing is searched by meaning. `trouble` says why meaning was left out of this answer, where it was.
    """

    hits: tuple[Hit, ...]
    within: str
    total: int
    model: str | None = None
    embedded: int = 0
    trouble: str | None = None

    @property
    def missing(self) -> int:
        """How many have no vector yet, where meaning is searched: they are found by words alone."""
        return 0 if self.model is None else self.total - self.embedded

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        """Return a hit by its rank, from 0, or some of them."""
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)


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
