"""Context block: chooses the facts, sections and summaries that fit into a budget of tokens.

The order is: facts of the guaranteed categories, within their own budget; sections; summaries of this conversation, up
to a third of the budget; then all other facts by rank. A line that does not fit is skipped. The exact size of the block
is known after every step.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backstory.ledger.core.events import Fact
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.counting import Counter
from backstory.projections.context.fact_lines import (
    CLOSING,
    CONVERSATION,
    FACTS,
    OPENING,
    PARTS,
    SECTIONS,
    summary_line,
)
from backstory.projections.context.prepared import Line, Prepared


class Shares(msgspec.Struct, frozen=True):
    """Budgets and ranking weights of a block.

    Attributes:
        max_tokens: the size of the block.
        guaranteed_categories: the categories of facts that come first.
        guaranteed_tokens: the budget of these facts.
        similarity_weight: the weight of a fact's similarity to the conversation.
        confidence_weight: the weight of a fact's confidence.
    """

    max_tokens: int = 2000
    guaranteed_categories: tuple[str, ...] = ("correction",)
    guaranteed_tokens: int = 500
    similarity_weight: float = 0.6
    confidence_weight: float = 0.4


class Context(msgspec.Struct, frozen=True):
    """A block and its contents.

    Attributes:
        text: the block; empty where there is nothing to show.
        tokens: the size of the whole text, tags included; never more than `max_tokens`.
        counter: the name of the token counter.
        facts: the ids of the facts used, in order.
        sections: the names of the sections used.
        summaries: the number of summaries used.
        left_out: the number of facts without room.
        sections_left_out: the number of sections without room.
        summaries_left_out: the number of summaries without room.
        max_tokens: the budget.
    """

    text: str
    tokens: int
    counter: str
    facts: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    summaries: int = 0
    left_out: int = 0
    sections_left_out: int = 0
    summaries_left_out: int = 0
    max_tokens: int = 0


def fill(
    prepared: Prepared,
    similarity: Mapping[str, float],
    summaries: Sequence[ThreadSummaryText],
    shares: Shares,
    max_tokens: int,
    *,
    facts: bool = True,
) -> Context:
    """Return the block of a memory.

    Args:
        prepared: the lines of the memory.
        similarity: the similarity of facts to the conversation, from 0 to 1, by id; if empty, facts are ranked by
            confidence alone.
        summaries: the summaries of the conversation, oldest first.
        shares: the budgets and weights.
        max_tokens: the size of the block.
        facts: whether to include facts; without them the agent searches for facts.
    """
    sheet = _Sheet(prepared, max_tokens)
    ranked = _ranked(prepared, similarity, shares) if facts else []
    guaranteed = set(shares.guaranteed_categories)
    taken: dict[str, None] = {}
    left = shares.guaranteed_tokens
    for fact, line in ranked:
        if fact.category in guaranteed and line.tokens <= left and sheet.take(FACTS, line) is not None:
            left -= line.tokens
            taken[fact.id] = None
    sections = [name for name, line in prepared.sections.items() if sheet.take(SECTIONS[name][0], line) is not None]
    skipped = _add_summaries(sheet, _summary_lines(summaries, prepared.counter), within=max_tokens // 3)
    room = max_tokens
    for fact, line in ranked:
        # Cheap test first: most facts are larger than the room that is left.
        if line.tokens <= room and fact.id not in taken and sheet.take(FACTS, line) is not None:
            taken[fact.id] = None
            room = max_tokens - sheet.tokens
    skipped = _add_summaries(sheet, skipped, within=max_tokens)
    return Context(
        text=sheet.text(),
        tokens=sheet.tokens,
        counter=prepared.counter.name,
        facts=tuple(taken),
        sections=tuple(sections),
        summaries=len(sheet.parts[CONVERSATION]),
        left_out=len(ranked) - len(taken),
        sections_left_out=len(prepared.sections) - len(sections),
        summaries_left_out=len(skipped),
        max_tokens=max_tokens,
    )


def _ranked(prepared: Prepared, similarity: Mapping[str, float], shares: Shares) -> list[tuple[Fact, Line]]:
    """Return the facts, best first; the stable sort keeps equals newest first, then by id."""
    if not similarity:
        return sorted(prepared.facts, key=lambda pair: -pair[0].confidence)

    def score(fact: Fact) -> float:
        return shares.similarity_weight * similarity.get(fact.id, 0.0) + shares.confidence_weight * fact.confidence

    return sorted(prepared.facts, key=lambda pair: -score(pair[0]))


def _summary_lines(summaries: Sequence[ThreadSummaryText], counter: Counter) -> list[tuple[int, Line]]:
    """Return the lines of the summaries with their positions, newest first."""
    lines = [Line(summary_line(summary), counter) for summary in summaries]
    return [(place, line) for place, line in reversed(list(enumerate(lines))) if line.text]


def _add_summaries(sheet: _Sheet, lines: Iterable[tuple[int, Line]], within: int) -> list[tuple[int, Line]]:
    """Add summaries of at most `within` tokens together, and return those that did not fit."""
    skipped = []
    for place, line in lines:
        grown = sheet.take(CONVERSATION, line, place=place, within=within)
        if grown is None:
            skipped.append((place, line))
        else:
            within -= grown
    return skipped


class _Sheet:
    """A block under construction; `tokens` is its exact size, 0 while it is empty."""

    def __init__(self, prepared: Prepared, max_tokens: int) -> None:
        self.parts: dict[str, list[tuple[int, Line]]] = {heading: [] for heading in PARTS}
        self.tokens = 0
        self._headings = prepared.headings
        self._max_tokens = max_tokens
        self._sum = prepared.frame

    def take(self, heading: str, line: Line, *, place: int | None = None, within: int | None = None) -> int | None:
        """Add a line to a part if there is room, at its `place` or at the end.

        Returns:
            By how many tokens the block has grown, or None where it would grow by more than `within` or past its limit.
        """
        lines = self.parts[heading]
        before = self.tokens or self._sum
        most = self._max_tokens if within is None else min(self._max_tokens, before + within)
        if lines and heading == FACTS:
            # Fast path for all facts but the first: no gap follows the last part.
            size = before + line.tokens
            if size > most:
                return None
            lines.append((len(lines), line))
        else:
            entry = (len(lines) if place is None else place, line)
            opened = 0 if lines else self._headings[heading].tokens
            insort(lines, entry, key=lambda other: other[0])
            size = self._sum + opened + line.tokens + self._gaps()
            if size > most:
                lines.remove(entry)
                return None
            self._sum += opened
        self._sum += line.tokens
        self.tokens = size
        return size - before

    def _gaps(self) -> int:
        """Return the tokens of the empty lines between the parts; each is counted with the line before it."""
        return sum(lines[-1][1].gap for lines in [lines for lines in self.parts.values() if lines][:-1])

    def text(self) -> str:
        """Return the whole block."""
        parts = [
            self._headings[heading].text + "".join(line.text for _, line in lines)
            for heading, lines in self.parts.items()
            if lines
        ]
        return OPENING + "\n".join(parts) + CLOSING if parts else ""
