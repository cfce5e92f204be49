"""Rules for what must not come back: texts that a person took away, or that were erased.

A mark holds until a user says the text again: until a turn of a user that was recorded after it has enough of its
content words. A person and a document that is imported always add it, which lifts the mark.
"""

from __future__ import annotations

from collections.abc import Iterable

from backstory.ledger.core.commands import withheld
from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.events import CandidateRejected, Unread
from backstory.ledger.core.memory import Mark, Memory
from backstory.ledger.rules.admission import Verdict
from backstory.ledger.text.content_words import shared_words

ERASED = Verdict("erased", "what it says was erased, and nothing of it is kept; a person can add it by hand")
"""The refusal of a candidate whose text was erased."""


def highest_share(content: str, turns: Iterable[str]) -> float:
    """Return the highest share of a text's content words that is in one of the turns, rounded down."""
    return max((int(shared_words(content, turn) * 1_000) / 1_000 for turn in turns), default=0.0)


def is_said_again(memory: Memory, share: float) -> bool:
    """Whether this share of the content words of a text lets it come back."""
    return share >= memory.policy.said_again_share


def marked(memory: Memory, content: str) -> Mark | None:
    """Return the mark of a text that a person took away; None without one."""
    return memory.marks.get(mark_key(content)) if memory.marks else None


def removed_by_hand(memory: Memory, content: str, share: float = 0.0) -> Verdict | None:
    """Return why a text may not be added again by a model; None if it may.

    Args:
        memory: the state that it would enter.
        content: the text.
        share: the highest share of its content words in a turn of the user since.
    """
    mark = marked(memory, content)
    if mark is None or is_said_again(memory, share):
        return None
    return Verdict(
        "removed_by_hand",
        f"a person took it away in commit {mark.seq}, and the user has not said it again since; "
        "a person can add it by hand",
    )


def is_withheld(candidate: object) -> bool:
    """Whether a candidate stands for one whose text was erased."""
    return isinstance(candidate, Unread) and candidate == withheld(candidate.place)


def erased_refusal(place: str) -> CandidateRejected:
    """Return the refusal of a candidate whose text was erased, without the text."""
    return CandidateRejected(withheld(place), ERASED.rule, ERASED.detail)
