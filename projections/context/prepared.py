"""Prepared lines of a memory: rendered and counted once, because every call of a model requests a block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.projections.context.counting import Counter
from backstory.projections.context.fact_lines import (
    CLOSING,
    FOUND,
    GAP,
    OPENING,
    PARTS,
    QUOTES,
    SECTIONS,
    fact_line,
    has_line,
    heading_line,
    section_line,
)

_KEPT = 16
"""Parts that stand which are kept for one memory: of other budgets, or with other conversations' summaries."""


class Line:
    """A line of a block with its line break; rendered and counted at the first use, as most facts never are."""

    __slots__ = ("_counter", "_gap", "_text", "_tokens")

    def __init__(self, text: str | Fact, counter: Counter) -> None:
        self._text = text
        self._counter = counter
        self._tokens: int | None = None
        self._gap: int | None = None

    @property
    def text(self) -> str:
        """The line."""
        if not isinstance(self._text, str):
            self._text = fact_line(self._text)
        return self._text

    @property
    def tokens(self) -> int:
        """The tokens of the line."""
        if self._tokens is None:
            self._tokens = self._counter.count(self.text)
        return self._tokens

    @property
    def gap(self) -> int:
        """The additional tokens where an empty line follows."""
        if self._gap is None:
            self._gap = self._counter.count(f"{self.text}\n") - self.tokens
        return self._gap


class Standing(msgspec.Struct, frozen=True):
    """The part of a block that stands.

    Attributes:
        text: its text.
        tokens: its size.
        first: its size without the facts that no category guarantees.
        taken: the ids of the facts that stand, in ledger order.
        left: the other facts with their lines, the best first.
        sections: the names of the sections.
        summaries: the number of summaries.
        summaries_left_out: the number of summaries without room.
        all_fit: whether all facts would fit into the block where no turn is quoted.
    """

    text: str
    tokens: int
    first: int
    taken: tuple[str, ...]
    left: Sequence[tuple[Fact, Line]]
    sections: tuple[str, ...]
    summaries: int
    summaries_left_out: int
    all_fit: bool = False


class Prepared:
    """The lines of a memory that are not empty: facts newest first, then by id, and sections.

    `frame` is the number of tokens of the tags around them, `gap` that of the empty line between two parts of a block.
    """

    def __init__(
        self, memory: Memory, counter: Counter, facts: tuple[tuple[Fact, Line], ...], sections: dict[str, Line]
    ) -> None:
        self.memory = memory
        self.counter = counter
        self.facts = facts
        self.sections = sections
        self.headings = {heading: Line(heading_line(heading), counter) for heading in (*PARTS, QUOTES, FOUND)}
        self.frame = counter.count(OPENING) + counter.count(CLOSING)
        self.gap = counter.count(f"{CLOSING}{GAP}") - counter.count(CLOSING)
        self._standing: dict[Hashable, Standing] = {}

    def kept(self, key: Hashable, make: Callable[[], Standing]) -> Standing:
        """Return what stands under a key, made once for this memory."""
        found = self._standing.get(key)
        if found is None:
            if len(self._standing) >= _KEPT:
                self._standing.clear()
            found = self._standing[key] = make()
        return found


def prepare(memory: Memory, counter: Counter, before: Prepared | None = None) -> Prepared:
    """Return the lines of a memory; lines of unchanged facts are taken from `before`."""
    if before is not None and before.counter is not counter:
        before = None
    if before is not None and before.memory is memory:
        return before
    known = {} if before is None else {fact.id: (fact, line) for fact, line in before.facts}
    facts = []
    for fact in memory.facts.values():
        pair = known.get(fact.id)
        if pair is None or pair[0] is not fact:
            pair = (fact, Line(fact, counter))
        if has_line(fact):
            facts.append(pair)
    facts.sort(key=lambda pair: pair[0].id)
    facts.sort(key=lambda pair: pair[0].created_at, reverse=True)
    sections = {name: Line(section_line(label, memory.section(name)), counter) for name, (_, label) in SECTIONS.items()}
    return Prepared(memory, counter, tuple(facts), {name: line for name, line in sections.items() if line.text})


def narrowed(prepared: Prepared, tags: tuple[str, ...]) -> Prepared:
    """Return the lines of a memory without the facts that are about something else than a filter names."""
    facts = tuple(pair for pair in prepared.facts if not _is_about(pair[0]) or pair[0].has(tags))
    return Prepared(prepared.memory, prepared.counter, facts, prepared.sections)


def _is_about(fact: Fact) -> bool:
    return bool(fact.tags or fact.attributes)
