"""Which of what is remembered comes into a block, and the block (row D18).

Room is given first to the facts of the guaranteed categories, within a budget of their own; then to the sections; then
to what was said before in this conversation, a third at most; then to all other facts by rank. What does not fit is
passed over, and the next one is tried. Every step knows the exact size of the whole.
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

__all__ = ["Context", "Shares", "fill"]


class Shares(msgspec.Struct, frozen=True):
    """What may take how much room, in tokens, and how facts are ranked."""

    max_tokens: int = 2000
    guaranteed_categories: tuple[str, ...] = ("correction",)
    guaranteed_tokens: int = 500
    similarity_weight: float = 0.6
    confidence_weight: float = 0.4


class Context(msgspec.Struct, frozen=True):
    """A block to be put before a model, and what went into it; without anything to say `text` is "".

    `tokens` counts the whole text, tags included, with what `counter` names, and is never more than `max_tokens`.
    `facts` are the ids of the facts used, in order; `sections` the sections used, and `summaries` how many of the
    conversation's. So many facts as `left_out` says found no room; `sections_left_out` and `summaries_left_out` count
    the others.
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
    likeness: Mapping[str, float],
    told: Sequence[ThreadSummaryText],
    shares: Shares,
    max_tokens: int,
    *,
    facts: bool = True,
) -> Context:
    """Return the block of a memory that fits into `max_tokens`; without `facts` they are left to be searched for.

    `likeness` says of facts how much they are like what the talk is about, from 0 to 1; of none, where it is about
    nothing: then confidence alone ranks them. `told` is what was said before, oldest first.
    """
    sheet = _Sheet(prepared, max_tokens)
    ranked = _ranked(prepared, likeness, shares) if facts else []
    guaranteed = set(shares.guaranteed_categories)
    taken: dict[str, None] = {}
    left = shares.guaranteed_tokens
    for fact, line in ranked:
        if fact.category in guaranteed and line.tokens <= left and sheet.take(FACTS, line) is not None:
            left -= line.tokens
            taken[fact.id] = None
    sections = [name for name, line in prepared.sections.items() if sheet.take(SECTIONS[name][0], line) is not None]
    passed = _tell(sheet, _summary_lines(told, prepared.counter), within=max_tokens // 3)
    room = max_tokens
    for fact, line in ranked:
        # Most facts are beyond the room that is left: of them nothing else is asked.
        if line.tokens <= room and fact.id not in taken and sheet.take(FACTS, line) is not None:
            taken[fact.id] = None
            room = max_tokens - sheet.tokens
    untold = _tell(sheet, passed, within=max_tokens)
    return Context(
        text=sheet.text(),
        tokens=sheet.tokens,
        counter=prepared.counter.name,
        facts=tuple(taken),
        sections=tuple(sections),
        summaries=len(sheet.parts[CONVERSATION]),
        left_out=len(ranked) - len(taken),
        sections_left_out=len(prepared.sections) - len(sections),
        summaries_left_out=len(untold),
        max_tokens=max_tokens,
    )


def _ranked(prepared: Prepared, likeness: Mapping[str, float], shares: Shares) -> list[tuple[Fact, Line]]:
    """The facts, best first; of equals the newer, then by id: so they are prepared, and sorting keeps that."""
    alike, sure = shares.similarity_weight, shares.confidence_weight
    if not likeness:
        return sorted(prepared.facts, key=lambda pair: -pair[0].confidence)
    return sorted(prepared.facts, key=lambda pair: -(alike * likeness.get(pair[0].id, 0.0) + sure * pair[0].confidence))


def _summary_lines(told: Sequence[ThreadSummaryText], counter: Counter) -> list[tuple[int, Line]]:
    """The lines of the summaries with their places, newest first."""
    lines = [Line(summary_line(one), counter) for one in told]
    return [(place, line) for place, line in reversed(list(enumerate(lines))) if line.text]


def _tell(sheet: _Sheet, lines: Iterable[tuple[int, Line]], within: int) -> list[tuple[int, Line]]:
    """Take in summaries; returns those that did not fit."""
    passed = []
    for place, line in lines:
        grown = sheet.take(CONVERSATION, line, place=place, within=within)
        if grown is None:
            passed.append((place, line))
        else:
            within -= grown
    return passed


class _Sheet:
    """A block as it grows. `tokens` is its exact size, 0 as long as nothing stands in it."""

    def __init__(self, prepared: Prepared, max_tokens: int) -> None:
        self.parts: dict[str, list[tuple[int, Line]]] = {heading: [] for heading in PARTS}
        self.tokens = 0
        self._headings = prepared.headings
        self._max_tokens = max_tokens
        self._sum = prepared.frame

    def take(self, heading: str, line: Line, *, place: int | None = None, within: int | None = None) -> int | None:
        """Take a line in if there is room for it, at its place among its part's, or last.

        Returns by how many tokens the block has grown; None where it would have to grow by more than `within`, or
        past its bound.
        """
        lines = self.parts[heading]
        before = self.tokens or self._sum
        most = self._max_tokens if within is None else min(self._max_tokens, before + within)
        if lines and heading == FACTS:
            # The last part's lines stand before nothing but the end: the way of all facts but the first.
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
        """What the empty lines between the parts come to: each goes with the line before it."""
        return sum(lines[-1][1].gap for lines in [lines for lines in self.parts.values() if lines][:-1])

    def text(self) -> str:
        """Return the whole block."""
        parts = [
            self._headings[heading].text + "".join(line.text for _, line in lines)
            for heading, lines in self.parts.items()
            if lines
        ]
        return OPENING + "\n".join(parts) + CLOSING if parts else ""
