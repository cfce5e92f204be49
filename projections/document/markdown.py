"""MEMORY.md: a memory for people to read and to compare, equal for equal memories."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from backstory.ledger.core.policy import CATEGORIES
from backstory.projections.document.document import Document, DocumentFact, DocumentSection

_TITLES = (
    ("work_context", "Work"),
    ("personal_context", "Personal"),
    ("top_of_mind", "On the mind"),
    ("recent_months", "Recent months"),
    ("earlier_context", "Earlier"),
    ("long_term_background", "Long ago"),
)
_SAFE = " :/@+,;=()[]"


def markdown_of(document: Document) -> str:
    """Return a document as Markdown: the sections that have a text, then the facts by category, ids as comments.

    It has no time of its own, so that it changes only where the memory does. Facts of a category are in the order of
    their births.
    """
    return "\n\n".join(("# Memory", *_sections(document), *_categories(document.facts))) + "\n"


def _sections(document: Document) -> Iterator[str]:
    for name, title in _TITLES:
        group = document.user if hasattr(document.user, name) else document.history
        section: DocumentSection = getattr(group, name)
        if section.summary.strip():
            yield f"## {title}\n\n{_shown(section.summary.strip())}"


def _categories(facts: tuple[DocumentFact, ...]) -> Iterator[str]:
    known = {category: rank for rank, category in enumerate(CATEGORIES)}
    for category in sorted({fact.category for fact in facts}, key=lambda one: (known.get(one, len(known)), one)):
        lines = [_line(fact) for fact in facts if fact.category == category]
        # So an import knows that the heading is a category, which is none of the common ones.
        mark = "" if category in known else " <!-- category -->"
        yield f"## {_one_line(category)}{mark}\n\n" + "\n".join(lines)


def _line(fact: DocumentFact) -> str:
    times = {"from": fact.valid_from, "until": fact.valid_until, "expires": fact.expires_at}
    stated = ", ".join(f"{word} {time}" for word, time in times.items() if time)
    when = f" ({stated})" if stated else ""
    # An id of an import may be any text; two hyphens or a bracket would end the comment.
    return f"- {_one_line(fact.content)}{when} <!-- {quote(fact.id, safe=_SAFE).replace('--', '%2D%2D')} -->"


def _one_line(text: str) -> str:
    return " ".join(_shown(text).split())


def _shown(text: str) -> str:
    """Return a text in which no comment begins: it would hide what follows from people."""
    return text.replace("<!--", "&lt;!--")
