"""What of memory a model is shown (row D8): all of it where it fits, else the facts that matter most.

Every text is escaped and its further lines set in, so that none of them passes for a line of the prompt's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

import msgspec

from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import days_since, fragmented, lifetime, review_from, stale_facts
from backstory.ledger.text.tokens import estimate_tokens

__all__ = ["FEWEST_MERGED", "Excerpt", "cut_to", "excerpt", "line_size", "on_one_line", "set_in", "squeezed"]

FEWEST_MERGED = 2
_LONGEST_NAME = 100
_NOTE = 40
"""Tokens put by for saying how many facts are not shown."""
_CUT = "(cut) "


class Excerpt(msgspec.Struct, frozen=True):
    """A memory as one prompt shows it; `size` is an upper bound, in tokens, of all that is said in it.

    `shown` names the facts shown, None where they are all there are. `review` and `merging` are the lines on facts up
    for review, whose ids are `stale`, and on facts that may be merged.
    """

    lines: tuple[str, ...]
    review: tuple[str, ...]
    merging: tuple[str, ...]
    shown: tuple[str, ...] | None
    stale: tuple[str, ...]
    size: int


def set_in(text: str) -> str:
    """Escape a text and set its further lines in."""
    return "\n  ".join(escape(text, quote=False).splitlines())


def on_one_line(text: str) -> str:
    """Escape a name, which is cut where it is long; brackets too, for they are what tells turns and facts apart."""
    name = " ".join(text.split())
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return _bracketless(name)


def line_size(line: str) -> int:
    """Return the tokens of a line with its line break."""
    return estimate_tokens(f"{line}\n")


def squeezed(text: str, room: int, before: str) -> str:
    """Return a line of a text after the words before it, cut so that it comes to `room` tokens at most."""
    keep = len(text)
    while line_size(line := before + set_in(cut_to(text, keep))) > room and keep:
        keep //= 2
    return line


def _bracketless(text: str) -> str:
    return escape(text).replace("[", "&#91;").replace("]", "&#93;")


def _reference(fact: Fact) -> str:
    """Spell an id whole, for the model has to repeat it."""
    return _bracketless(" ".join(fact.id.split()))


def _fact_line(fact: Fact) -> str:
    by_hand = " | by hand" if fact.by_hand else ""
    return f"- {_reference(fact)} {_kind(fact, by_hand)} {set_in(fact.content)}"


def _kind(fact: Fact, more: str = "") -> str:
    return f"[{on_one_line(fact.category)} | {fact.confidence:.2f}{more}]"


def excerpt(memory: Memory, at: str, room: int, *, review: bool = True, merging: bool = True) -> Excerpt:
    """Show of a memory what fits into so many tokens.

    Facts up for review at the moment `at` and corrections come first, then those of the highest rank; sections take
    half of the room at most. `review` and `merging` tell whether those are asked for at all.
    """
    due = {fact.id for fact in stale_facts(memory, at)} if review else set()
    full = list(fragmented(memory).items())[: memory.policy.consolidation_max_groups_per_cycle] if merging else []
    grouped = {fact.id for _, facts in full for fact in facts}
    lines = _section_lines(memory, room // 2)
    size = sum(map(line_size, lines)) + sum(line_size(_group_line(name, ())) for name, _ in full) + _NOTE
    ranking = Ranking(memory.policy, at, {})
    chosen: set[str] = set()
    for fact in sorted(
        memory.facts.values(),
        key=lambda fact: (fact.id in due or fact.category == "correction", ranking.key(fact)),
        reverse=True,
    ):
        said = [_fact_line(fact)]
        said += [_review_line(memory, fact, at)] if fact.id in due else []
        said += [f"{_reference(fact)}, "] if fact.id in grouped else []
        cost = sum(map(line_size, said))
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
        merging=_merging_lines(full, chosen),
        shown=tuple(fact.id for fact in shown) if hidden else None,
        stale=tuple(fact.id for fact in stale),
        size=size,
    )


def _section_lines(memory: Memory, room: int) -> list[str]:
    """Spell the sections that say something; the longest are cut so that together they come to `room` at most."""
    texts = {name: memory.section(name).summary for name in DOCUMENT_SECTIONS}
    whole = {name: f"{name}: {set_in(text)}" for name, text in texts.items() if text}
    lines: dict[str, str] = {}
    for number, name in enumerate(sorted(whole, key=lambda name: line_size(whole[name]))):
        share = room // (len(whole) - number)
        fits = line_size(whole[name]) <= share
        lines[name] = whole[name] if fits else squeezed(texts[name], share, f"{name}: {_CUT}")
        room -= line_size(lines[name])
    return [lines[name] for name in DOCUMENT_SECTIONS if name in lines]


def _review_line(memory: Memory, fact: Fact, at: str) -> str:
    passed = int(days_since(review_from(fact), at))
    return (
        f"- {_reference(fact)} {_kind(fact)} {passed} days ago, expected to hold {lifetime(fact, memory.policy)} days"
    )


def _merging_lines(full: Sequence[tuple[str, Sequence[Fact]]], chosen: Collection[str]) -> tuple[str, ...]:
    groups = [(name, [_reference(fact) for fact in facts if fact.id in chosen]) for name, facts in full]
    return tuple(_group_line(name, ids) for name, ids in groups if len(ids) >= FEWEST_MERGED)


def _group_line(name: str, ids: Sequence[str]) -> str:
    return f"- {on_one_line(name)}: {', '.join(ids)}"


def cut_to(text: str, keep: int) -> str:
    """Keep so many characters of a text, most of them from its head, around a mark that says how many are gone."""
    if keep >= len(text):
        return text
    head = keep * 2 // 3
    tail = keep - head
    return f"{text[:head]} … [{len(text) - keep} characters cut] … {text[len(text) - tail :]}"
