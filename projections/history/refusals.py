"""Refusals: which refused candidates and removed facts resemble a text that is not in memory, and why.

The index knows which of them have which words, so no question reads all that was ever refused.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from typing import Protocol, Self, TypeAlias, assert_never

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    Fact,
    FactRemoved,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.memory import Memory

Refused: TypeAlias = CandidateRejected | FactRemoved
"""The events that keep or take something out of memory."""

ALIKE = 0.4
"""The least score of a text that resembles another."""

_MOST = 50
_WORD = re.compile(r"[^\W_]+")


class Refusal(msgspec.Struct, frozen=True):
    """A refused candidate or a removed fact, with the reason."""

    content: str
    seq: int
    at: str
    rule: str
    detail: str
    fact: str | None = None
    score: float = 0.0


class WhyNot(tuple[Refusal, ...]):  # noqa: SLOT001 a tuple takes no slots with names
    """Refused candidates and removed facts that are like a text, the best match first.

    `remembered` are the facts in memory that are like it, the best match first.
    """

    remembered: tuple[Fact, ...]

    def __new__(cls, refusals: Iterable[Refusal] = (), remembered: Iterable[Fact] = ()) -> Self:
        """Make it of its refusals and of the facts in memory."""
        found = super().__new__(cls, refusals)
        found.remembered = tuple(remembered)
        return found


class RefusalLogs(Protocol):
    """The query on a scope's ledger that finds refusals; an index implements it."""

    def refused(self, text: str, most: int, live: Container[str]) -> Sequence[tuple[float, Commit, Refused]]:
        """Return the refused candidates and removed facts that resemble a text, the best match first.

        Args:
            text: the text.
            most: how many at most.
            live: the ids of the facts in memory; the removal of one of these is none.

        Returns:
            Each with its score and its commit; of equals the newer first.
        """


def statement_of(event: Event) -> str | None:
    """Return what an event refuses or takes out of memory; None if it does neither."""
    if isinstance(event, CandidateRejected):
        return content_of(event.candidate)
    return event.fact.content if isinstance(event, FactRemoved) else None


def content_of(candidate: Candidate) -> str:
    """Return what a candidate says, or asks for."""
    match candidate:
        case NewFact(content=content) | Consolidation(content=content):
            return content
        case NewSummary(summary=summary):
            return summary
        case Removal(id=fact_id, reason=reason):
            return f"remove {fact_id}: {reason}" if reason else f"remove {fact_id}"
        case Reinforcement(id=fact_id):
            return f"confirm {fact_id}"
        case Extension(id=fact_id, days=days):
            return f"keep {fact_id} for {days} days more"
        case Edit(id=fact_id, content=content):
            return f"edit {fact_id}: {content}" if content else f"edit {fact_id}"
        case Unread(text=text):
            return text
        case _:
            assert_never(candidate)


def why_not(logs: RefusalLogs, memory: Memory, text: str) -> WhyNot:
    """Return refused candidates, removed facts and facts in memory that resemble a text, at most fifty of each kind.

    The score is the share of the text's terms that the other text has, weighted by their rarity among texts of its
    kind. A text with the same dedup key scores 1.
    """
    refused = logs.refused(text, _MOST, memory.facts)
    return WhyNot((_refusal(*one) for one in refused), _remembered(memory.in_order(), text)[:_MOST])


def _refusal(score: float, commit: Commit, event: Refused) -> Refusal:
    score = round(score, 4)
    if isinstance(event, CandidateRejected):
        return Refusal(content_of(event.candidate), commit.seq, commit.at, event.rule, event.detail, score=score)
    detail = event.note or event.detail or f"removed by {commit.cause.kind} {commit.seq}"
    return Refusal(event.fact.content, commit.seq, commit.at, event.reason, detail, event.fact.id, score)


def _remembered(facts: Sequence[Fact], text: str) -> list[Fact]:
    scored = zip(_scores([fact.content for fact in facts], text), facts, strict=True)
    alike = [pair for pair in scored if pair[0] >= ALIKE]
    return [fact for _, fact in sorted(alike, key=lambda pair: -pair[0])]


def _scores(contents: Sequence[str], text: str) -> Iterator[float]:
    """Yield how much each of the contents resembles a text, from 0 to 1."""
    wanted, same = terms_of(text), dedup_key(text)
    shared = [wanted & terms_of(content) for content in contents]
    spread = Counter(term for terms in shared for term in terms)
    weight = {term: rarity(spread[term], len(contents)) for term in wanted}
    total = sum(weight.values())
    for content, terms in zip(contents, shared, strict=True):
        if dedup_key(content) == same:
            yield 1.0
        else:
            yield share(sum(weight[term] for term in terms), total)


def rarity(holders: int, texts: int) -> float:
    """Return the weight of a term, by how many of all texts have it."""
    return math.log(1 + (texts + 1) / (holders + 0.5))


def share(shared: float, total: float) -> float:
    """Return the score of a text by the weight of the terms that it shares; below that of the same text."""
    return 0.99 * shared / total if total else 0.0


@cache
def _cjk() -> re.Pattern[str]:
    return re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def terms_of(text: str) -> set[str]:
    """Return the words of a text, and pairs of characters for scripts without spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(folded)
    if folded.isascii():
        return set(words)
    terms: set[str] = set()
    for word in words:
        for run in _cjk().findall(word):
            terms |= {run[i : i + 2] for i in range(max(1, len(run) - 1))}
        terms |= set(_cjk().sub(" ", word).split())
    return terms


def sameness(text: str) -> str:
    """Return a term that texts with the same dedup key share, and that is in no text."""
    return "=" + hashlib.sha256(dedup_key(text).encode(errors="surrogatepass")).hexdigest()[:16]
