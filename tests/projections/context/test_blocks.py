"""The blocks of a home keep ready what every scope's memory says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memories import fact, memory_of

from backstory.ledger.core.scope import Scope
from backstory.projections.context import Blocks, Shares
from backstory.projections.context.background_load import BackgroundLoad
from backstory.projections.context.counting import ESTIMATE

ADA, BOB = Scope("ada"), Scope("bob")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Counting:
    name = "counting"

    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, text: str) -> int:
        self.counted.append(text)
        return ESTIMATE.count(text)


def test_what_a_scope_says_is_counted_once() -> None:
    counter = Counting()
    blocks = Blocks(Shares(), BackgroundLoad("it", counter, lambda: counter))
    memory = memory_of(fact("f", "User likes tea"), workContext="A nurse.")
    first = blocks.block(ADA, memory, {})
    seen = len(counter.counted)
    assert blocks.block(ADA, memory, {}) == first
    assert len(counter.counted) == seen
    blocks.purge(ADA)
    assert blocks.block(ADA, memory, {}) == first
    assert len(counter.counted) == 2 * seen


def test_scopes_are_kept_apart() -> None:
    blocks = Blocks(Shares(), BackgroundLoad("it", ESTIMATE, lambda: ESTIMATE))
    assert blocks.block(ADA, memory_of(fact("f", "tea")), {}).facts == ("f",)
    assert blocks.block(BOB, memory_of(), {}).facts == ()
    assert blocks.newly_used(ADA, ["f"], NOON) == ["f"]
    assert blocks.newly_used(BOB, ["f"], NOON) == ["f"]


def test_a_use_is_one_for_a_minute_whatever_is_used_between() -> None:
    blocks = Blocks(Shares(), BackgroundLoad("it", ESTIMATE, lambda: ESTIMATE))

    def used(seconds: float, *names: str) -> list[str]:
        return blocks.newly_used(ADA, names, NOON + timedelta(seconds=seconds))

    assert used(0, "a", "b") == ["a", "b"]
    assert used(20, "c") == ["c"]
    assert used(40, "a", "c", "d") == ["d"]
    assert used(60, "a", "c") == ["a"]
    # A clock that was set back does not keep anything from being used for long.
    assert used(-1000, "a") == ["a"]
    blocks.purge(ADA)
    assert used(-999, "a") == ["a"]
