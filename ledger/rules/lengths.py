"""Limits of length: a text that is too long is refused by the rule `too_long` and recorded, never cut and stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from backstory.ledger.core.events import (
    Candidate,
    Consolidation,
    Edit,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.sanitize import MAX_FACT, MAX_SUMMARY
from backstory.ledger.rules.admission import Verdict


def too_long(candidate: Candidate) -> Verdict | None:
    """Return the refusal of a candidate with a text over its limit; None if it has none."""
    for name, text, most in _texts(candidate):
        if text is not None and len(text) > most:
            return Verdict("too_long", f"the {name} has {len(text):,} characters; at most {most:,} are remembered")
    return None


def _texts(candidate: Candidate) -> Iterator[tuple[str, str | None, int]]:
    match candidate:
        case NewFact():
            yield "fact", candidate.content, MAX_FACT
            yield "sourceError", candidate.source_error, MAX_FACT
        case NewSummary():
            yield "section", candidate.summary, MAX_SUMMARY
        case Consolidation():
            yield "merged fact", candidate.content, MAX_FACT
        case Removal() | Extension():
            yield "reason", candidate.reason, MAX_FACT
        case Reinforcement() | Edit() | Unread():
            pass
        case _:
            assert_never(candidate)
