"""Barriers: after which commits a model's answer to an older question is refused."""

from __future__ import annotations

from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import Redacted, TurnRange
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.summaries import SummaryKey


def redacted(what: str) -> Redacted:
    return Redacted("transcript", 1, 0, what=what, thread="t", n=1)


def barrier(*what: str) -> int | None:
    fold = Fold(Memory())
    fold.advance(1, "2026-03-01T10:00:00.000000Z", Cause(kind="redaction").kind, [redacted(each) for each in what])
    return fold.memory().barriers.get("redaction")


def test_an_erasure_is_a_barrier_unless_all_of_it_only_expired() -> None:
    assert barrier("expired", "expired") is None
    assert barrier("expired", "thread") == 1
    assert barrier("thread") == 1


def test_a_summary_holds_only_what_is_of_a_lower_level_and_inside() -> None:
    whole = SummaryKey("t", 2, TurnRange(1, 20))
    assert whole.holds(SummaryKey("t", 1, TurnRange(1, 10)))
    assert not whole.holds(SummaryKey("t", 2, TurnRange(1, 10)))
    assert not whole.holds(SummaryKey("t", 1, TurnRange(15, 25)))
    assert not whole.holds(SummaryKey("other", 1, TurnRange(1, 10)))
