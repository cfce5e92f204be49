"""Refusals: which refused candidates and removed facts resemble a text that is not in memory, and why.

The index knows which of them have which words, so no question reads all that was ever refused. It keeps the words in
blocks of 128 events, so that forty thousand refusals are some three hundred entries, and a question about one text
reads no other text.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
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

RefusedEvent: TypeAlias = CandidateRejected | FactRemoved
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

    def refused(self, text: str, most: int, live: Container[str]) -> Sequence[tuple[float, Commit, RefusedEvent]]:
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


def _refusal(score: float, commit: Commit, event: RefusedEvent) -> Refusal:
    score = round(score, 4)
    if isinstance(event, CandidateRejected):
        return Refusal(content_of(event.candidate), commit.seq, commit.at, event.rule, event.detail, score=score)
    detail = event.note or event.detail or f"removed by {commit.cause.kind} {commit.seq}"
    return Refusal(event.fact.content, commit.seq, commit.at, event.reason, detail, event.fact.id, score)


def _remembered(facts: Sequence[Fact], text: str) -> list[Fact]:
    """Return the facts that resemble a text; of equals the earlier first."""
    wanted, key = terms_of(text), dedup_key(text)
    same = {sameness(text)}
    blocks: list[RefusalBlock] = []
    for index, fact in enumerate(facts):
        if index % BLOCK == 0:
            blocks.append(RefusalBlock())
        # Only the words of the text: a block of all words costs twice as much and finds the same.
        words = wanted & terms_of(fact.content)
        blocks[-1].place(0, index, words | same if dedup_key(fact.content) == key else words)
    return [facts[index] for _, _, index in resembling(blocks, text)]


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


BLOCK = 128
"""How many events a block holds; the position of one among them fits in a byte."""


class RefusalBlock(msgspec.Struct, array_like=True):
    """The events of a block by position, each as its commit's seq and its index there; and the positions by word."""

    places: list[tuple[int, int]] = []
    words: dict[str, bytes] = {}

    def add(self, seq: int, index: int, statement: str) -> None:
        """Add an event that refuses a statement, or takes it out of memory."""
        # In order: the words of a set come in another order in each process, and `verify` compares bytes.
        self.place(seq, index, (*sorted(terms_of(statement)), sameness(statement)))

    def place(self, seq: int, index: int, words: Iterable[str]) -> None:
        """Add an event that is found by these words."""
        position = bytes((len(self.places),))
        self.places.append((seq, index))
        for word in words:
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
        by_position = [(positions[number], weights[word]) for word, positions in held.items()]
        for position, score in _scores_of_block(len(block.places), by_position, total, block.words.get(same, b"")):
            found.append((score, *block.places[position]))
    found.sort(key=lambda one: (-one[0], -one[1], one[2]))
    return found


def _scores_of_block(
    count: int, held: Sequence[tuple[bytes, float]], total: float, same: bytes
) -> Iterator[tuple[int, float]]:
    """Yield the positions in a block whose texts are alike enough, with their scores."""
    most = 0.0
    for positions, weight in held:
        most += weight if positions else 0.0
    if share(most, total) < ALIKE and not same:
        return  # The block lacks the rare words of the text, as most blocks do.
    shared = [0.0] * count
    for positions, weight in held:
        for position in positions:
            shared[position] += weight
    equal = set(same)
    for position, weight in enumerate(shared):
        score = 1.0 if position in equal else share(weight, total)
        if score >= ALIKE:
            yield position, score
