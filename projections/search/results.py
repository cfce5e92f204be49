"""Results of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from backstory.ledger.core.events import Attributes
from backstory.ledger.core.scope import Scope
from backstory.projections.context.joined import shown_id
from backstory.projections.search.lexical.entry import Part


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
