"""Sheet: a part of a context block under construction, whose exact size is known after every line."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable
from operator import itemgetter

from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import birth
from backstory.projections.context.fact_lines import CLOSING, FACTS, FOUND, OPENING, PARTS, QUOTES
from backstory.projections.context.given import GivenTurn
from backstory.projections.context.prepared import Line, Prepared
from backstory.projections.context.quotes import Quote

Place = tuple[int, int]
"""What the lines of a part are in order of."""
_LAST = (FACTS, FOUND)
"""Headings of which no other follows in the same part of a block."""
_SKIPPED = 4
"""Quotes that do not fit before the part is full: the others are as long, mostly."""
_MISSED = 500
"""Facts that do not fit before no other is tried: the rest ranks lower still, and there may be very many."""
_place: Callable[[tuple[Place, Line]], Place] = itemgetter(0)


class Sheet:
    """A part of a block under construction; `tokens` is its exact size, 0 while it is empty."""

    def __init__(self, prepared: Prepared, max_tokens: int) -> None:
        self.parts: dict[str, list[tuple[Place, Line]]] = {heading: [] for heading in (*PARTS, QUOTES, FOUND)}
        self.tokens = 0
        self.max_tokens = max_tokens
        self._headings = prepared.headings
        self._counter = prepared.counter
        self._sum = prepared.frame

    def take_facts(
        self,
        heading: str,
        ranked: Iterable[tuple[Fact, Line]],
        *,
        within: float = float("inf"),
        but: Container[str] = (),
    ) -> list[str]:
        """Add the facts that fit, the best first, of lines with at most `within` tokens together; return their ids.

        Those whose ids are in `but` are passed over. Where 500 did not fit, the others are not tried.
        """
        taken = []
        missed = 0
        room = self.max_tokens - self.tokens
        for rank, (fact, line) in enumerate(ranked):
            if fact.id in but:
                continue
            # Cheap test first: most facts are larger than the room that is left.
            if line.tokens <= min(room, within) and self._takes_fact(heading, fact, line, rank):
                taken.append(fact.id)
                within -= line.tokens
                room = self.max_tokens - self.tokens
            elif (missed := missed + 1) == _MISSED:
                break
        return taken

    def _takes_fact(self, heading: str, fact: Fact, line: Line, rank: int) -> bool:
        return self.take(heading, line, place=birth(fact) if heading == FACTS else (rank, 0)) is not None

    def take_quotes(self, quotes: Iterable[Quote]) -> list[GivenTurn]:
        """Add the quotes that fit, the best first, until some did not fit; return their turns."""
        taken: list[GivenTurn] = []
        skipped = 0
        for rank, quote in enumerate(quotes):
            if self.take(QUOTES, Line(quote.text, self._counter), place=(rank, 0)) is not None:
                taken += quote.turns
            elif (skipped := skipped + 1) == _SKIPPED:
                break
        return taken

    def take(self, heading: str, line: Line, *, place: Place = (0, 0), within: int | None = None) -> int | None:
        """Add a line to a part at its `place` if there is room.

        Returns:
            By how many tokens the block has grown, or None where it would grow by more than `within` or past its limit.
        """
        lines = self.parts[heading]
        before = self.tokens or self._sum
        most = self.max_tokens if within is None else min(self.max_tokens, before + within)
        entry = (place, line)
        if lines and heading in _LAST:
            # Fast path for all facts but the first: no gap follows the last part, so their order is for later.
            size = before + line.tokens
            if size > most:
                return None
            lines.append(entry)
        else:
            opened = 0 if lines else self._headings[heading].tokens
            insort(lines, entry, key=_place)
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
        """Return the whole part."""
        parts = [
            self._headings[heading].text + "".join(line.text for _, line in sorted(lines, key=_place))
            for heading, lines in self.parts.items()
            if lines
        ]
        return OPENING + "\n".join(parts) + CLOSING if parts else ""
