"""Lines of a context block: each fact, section and summary is one line that its text cannot break out of.

The text of a line holds no line break, no control character and no `<`. So it can neither close the block, open
another, begin a line, nor hide content. Every call of a model requests a block, so the lines of a memory are rendered
and counted once (`Prepared`). A part of a block is filled with them line by line (`Sheet`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter

import msgspec

from backstory.ledger.core.events import Fact, Section
from backstory.ledger.core.memory import Memory, birth
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.counting import Counter

OPENING = "<memory>\n"
CLOSING = "</memory>"
GAP = "\n\n"
"""What parts the two parts of a block, and a block from the text around it."""

SECTIONS = {
    "user.workContext": ("User Context", "Work"),
    "user.personalContext": ("User Context", "Personal"),
    "user.topOfMind": ("User Context", "Current Focus"),
    "history.recentMonths": ("History", "Recent"),
    "history.earlierContext": ("History", "Earlier"),
    "history.longTermBackground": ("History", "Background"),
}
"""For each section of the ledger its heading and its label in the block; both are DeerFlow's."""

CONVERSATION = "Conversation so far"
FACTS = "Facts"
PARTS = (*dict.fromkeys(heading for heading, _ in SECTIONS.values()), CONVERSATION, FACTS)
"""The headings, in the order of the part of a block that stands."""
FOUND = "Facts for this question"
QUOTES = "Said before"
"""The headings of the part that is found."""

_SPACED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")
"""Control characters; `split` handles the other characters that break lines."""
_DROPPED = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Marks that change the direction of writing: a person would read another text than the model."""
_UNSEEN = dict.fromkeys(
    [
        0xAD,
        0x180E,
        0x200B,
        *range(0x2060, 0x2065),
        *range(0x206A, 0x2070),
        0xFEFF,
        *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE0080),
    ]
)
"""Invisible characters; those of the last range can encode whole sentences."""
_INLINE = str.maketrans(
    {chr(point): text for point, text in (_SPACED | _DROPPED | _UNSEEN).items()}
    | {chr(point): "\N{REPLACEMENT CHARACTER}" for point in range(0xD800, 0xE000)}
    | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
_IN_BRACKETS = str.maketrans("[]|", "()/")
_LONGEST = 40
_READ = 1_000


def inline(text: str) -> str:
    """Return a text as one line: white space collapsed, `<`, `>` and `&` escaped, invisible characters removed."""
    return " ".join(text.translate(_INLINE).split())


def heading_line(heading: str) -> str:
    """Return a part's heading."""
    return f"{heading}:\n"


def section_line(label: str, section: Section) -> str:
    """Return the line of a section, or "" where it is empty."""
    text = inline(section.summary)
    return f"- {label}: {text}\n" if text else ""


def summary_line(summary: ThreadSummaryText) -> str:
    """Return the line of a summary, or "" where it is empty; times are UTC, to the minute."""
    text = inline(summary.text)
    since, until = _minute(summary.since), _minute(summary.until)
    return f"- [{since if since == until else f'{since} to {until}'}] {text}\n" if text else ""


def _minute(moment: str) -> str:
    return inline(moment)[:16].replace("T", " ")


def has_line(fact: Fact) -> bool:
    """Whether the line of a fact is not empty; no letter and no digit is left out of one."""
    return fact.content[:1].isalnum() or bool(inline(fact.content))


def fact_line(fact: Fact) -> str:
    """Return the line of a fact, or "" where it is empty; a correction names the error to avoid."""
    text = inline(fact.content)
    if not text:
        return ""
    wrong = inline(fact.source_error) if fact.source_error and fact.category == "correction" else ""
    return f"- [{_label(fact.category)} | {fact.confidence:.2f}] {text}{f' (avoid: {wrong})' if wrong else ''}\n"


@lru_cache(maxsize=256)
def _label(category: str) -> str:
    return bracketed(category) or "context"


def bracketed(name: str) -> str:
    """Return a name as it stands in the brackets of a line, cut to 40 characters."""
    return inline(name[:_READ]).translate(_IN_BRACKETS)[:_LONGEST]


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


_Place = tuple[int, int]
"""What the lines of a part are in order of."""
_LAST = (FACTS, FOUND)
"""Headings of which no other follows in the same part of a block."""
_MISSED = 500
"""Facts that do not fit before no other is tried: the rest ranks lower still, and there may be very many."""
_place: Callable[[tuple[_Place, Line]], _Place] = itemgetter(0)


class Sheet:
    """A part of a block under construction; `tokens` is its exact size, 0 while it is empty."""

    def __init__(self, prepared: Prepared, max_tokens: int) -> None:
        self.parts: dict[str, list[tuple[_Place, Line]]] = {heading: [] for heading in (*PARTS, QUOTES, FOUND)}
        self.tokens = 0
        self.max_tokens = max_tokens
        self._headings = prepared.headings
        self.counter = prepared.counter
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
        room = min(self.max_tokens - self.tokens, within)
        for rank, (fact, line) in enumerate(ranked):
            if fact.id in but:
                continue
            # Cheap test first: most facts are larger than the room that is left.
            fits = line.tokens <= room
            if fits and self.take(heading, line, place=birth(fact) if heading == FACTS else (rank, 0)) is not None:
                taken.append(fact.id)
                within -= line.tokens
                room = min(self.max_tokens - self.tokens, within)
            elif (missed := missed + 1) == _MISSED:
                break
        return taken

    def take(self, heading: str, line: Line, *, place: _Place = (0, 0), within: int | None = None) -> int | None:
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
