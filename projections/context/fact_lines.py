"""Block lines: renders each fact, section and summary as one line that its text cannot break out of.

The text of a line holds no line break, no control character and no `<`. So it can neither close the block, open
another, begin a line, nor hide content.
"""

from __future__ import annotations

from functools import lru_cache

from backstory.ledger.core.events import Fact, Section
from backstory.ledger.core.summaries import ThreadSummaryText

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
