"""Memory excerpt for a prompt: the whole memory where it fits, otherwise the facts that rank highest.

Every text is escaped and its continuation lines are indented, so that none of them looks like a line of the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

import msgspec

from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import days_since
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import fragmented, lifetime, review_from, stale_facts
from backstory.ledger.text.tokens import estimate_tokens

FEWEST_MERGED = 2
_LONGEST_NAME = 100
_NOTE = 40
"""Tokens reserved for the line that counts the facts left out."""
_CUT = "(cut) "


class Excerpt(msgspec.Struct, frozen=True):
    """A memory as one prompt shows it.

    Attributes:
        lines: sections and facts.
        review: the lines on facts that are up for review; their ids are `stale`.
        merging: the lines on groups of facts that may be merged.
        shown: the ids of the facts shown, or None where every fact is shown.
        stale: the ids of the facts up for review.
        size: an upper bound of the tokens of all lines together.
    """

    lines: tuple[str, ...]
    review: tuple[str, ...]
    merging: tuple[str, ...]
    shown: tuple[str, ...] | None
    stale: tuple[str, ...]
    size: int


def indented(text: str) -> str:
    """Escape a text and indent its continuation lines."""
    return "\n  ".join(escape(text, quote=False).splitlines())


def on_one_line(text: str) -> str:
    """Escape a name and cut it to 100 characters; brackets are escaped too, because they mark turns and facts."""
    name = " ".join(text.split())
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return _bracketless(name)


def line_size(line: str) -> int:
    """Estimate the tokens of a line with its line break."""
    return estimate_tokens(f"{line}\n")


def cut_line(text: str, room: int, prefix: str) -> str:
    """Return the prefix and the text as one line, the text cut so that the line has at most `room` tokens."""
    keep = len(text)
    while line_size(line := prefix + indented(cut_to(text, keep))) > room and keep:
        keep //= 2
    return line


def _bracketless(text: str) -> str:
    return escape(text).replace("[", "&#91;").replace("]", "&#93;")


def _reference(fact: Fact) -> str:
    # An id is never cut: the model has to repeat it.
    return _bracketless(" ".join(fact.id.split()))


def _fact_line(fact: Fact) -> str:
    by_hand = " | by hand" if fact.by_hand else ""
    return f"- {_reference(fact)} {_labels(fact, by_hand)} {indented(fact.content)}"


def _labels(fact: Fact, more: str = "") -> str:
    return f"[{on_one_line(fact.category)} | {fact.confidence:.2f}{more}]"


def excerpt(memory: Memory, at: str, room: int, *, review: bool = True, merging: bool = True) -> Excerpt:
    """Choose what of a memory fits into a number of tokens.

    Facts up for review and corrections come first, then the facts of the highest rank. Sections take at most half of
    the room.

    Args:
        memory: the memory to show.
        at: the moment at which facts are judged due for review, as commits spell it.
        room: the most tokens the excerpt may take.
        review: whether the prompt asks about facts up for review.
        merging: whether the prompt asks about facts that may be merged.
    """
    due = {fact.id for fact in stale_facts(memory, at)} if review else set()
    groups = list(fragmented(memory).items())[: memory.policy.consolidation_max_groups_per_cycle] if merging else []
    grouped = {fact.id for _, facts in groups for fact in facts}
    lines = _section_lines(memory, room // 2)
    size = sum(map(line_size, lines)) + sum(line_size(_group_line(name, ())) for name, _ in groups) + _NOTE
    ranking = Ranking(memory.policy, at, {})
    chosen: set[str] = set()
    for fact in sorted(
        memory.facts.values(),
        key=lambda fact: (fact.id in due or fact.category == "correction", ranking.key(fact)),
        reverse=True,
    ):
        mentions = [_fact_line(fact)]
        mentions += [_review_line(memory, fact, at)] if fact.id in due else []
        mentions += [f"{_reference(fact)}, "] if fact.id in grouped else []
        cost = sum(map(line_size, mentions))
        if size + cost <= room:
            chosen.add(fact.id)
            size += cost
    shown = [fact for fact in memory.in_order() if fact.id in chosen]
    stale = [fact for fact in shown if fact.id in due]
    if len(stale) < memory.policy.staleness_min_candidates:
        stale = []
    lines += map(_fact_line, shown)
    if (hidden := len(memory.facts) - len(shown)) > 0:
        lines.append(f"({hidden} more facts, which rank lower, are not shown)")
    return Excerpt(
        lines=tuple(lines or ["(nothing yet)"]),
        review=tuple(_review_line(memory, fact, at) for fact in stale),
        merging=_merging_lines(groups, chosen),
        shown=tuple(fact.id for fact in shown) if hidden else None,
        stale=tuple(fact.id for fact in stale),
        size=size,
    )


def _section_lines(memory: Memory, room: int) -> list[str]:
    """Return a line for each non-empty section; the longest are cut so that all take at most `room` tokens."""
    texts = {name: memory.section(name).summary for name in DOCUMENT_SECTIONS}
    whole = {name: f"{name}: {indented(text)}" for name, text in texts.items() if text}
    lines: dict[str, str] = {}
    for number, name in enumerate(sorted(whole, key=lambda name: line_size(whole[name]))):
        share = room // (len(whole) - number)
        fits = line_size(whole[name]) <= share
        lines[name] = whole[name] if fits else cut_line(texts[name], share, f"{name}: {_CUT}")
        room -= line_size(lines[name])
    return [lines[name] for name in DOCUMENT_SECTIONS if name in lines]


def _review_line(memory: Memory, fact: Fact, at: str) -> str:
    passed = int(days_since(review_from(fact), at))
    return (
        f"- {_reference(fact)} {_labels(fact)} {passed} days ago, expected to hold {lifetime(fact, memory.policy)} days"
    )


def _merging_lines(groups: Sequence[tuple[str, Sequence[Fact]]], chosen: Collection[str]) -> tuple[str, ...]:
    shown = [(name, [_reference(fact) for fact in facts if fact.id in chosen]) for name, facts in groups]
    return tuple(_group_line(name, ids) for name, ids in shown if len(ids) >= FEWEST_MERGED)


def _group_line(name: str, ids: Sequence[str]) -> str:
    return f"- {on_one_line(name)}: {', '.join(ids)}"


def cut_to(text: str, keep: int) -> str:
    """Keep `keep` characters of a text, two thirds of them from its head, around a mark that counts the others."""
    if keep >= len(text):
        return text
    head = keep * 2 // 3
    tail = keep - head
    return f"{text[:head]} … [{len(text) - keep} characters cut] … {text[len(text) - tail :]}"
