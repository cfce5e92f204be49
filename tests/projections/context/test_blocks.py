"""The blocks of a memory keep ready what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memories import fact, memory_of

from backstory.ledger.concurrency.background_load import BackgroundLoad
from backstory.projections.context import Blocks, ScopeBlocks, Shares
from backstory.projections.context.counting import ESTIMATE, Counter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def counting(counted: list[str]) -> Counter:
    """A counter that notes what it counts."""

    def count(text: str) -> int:
        counted.append(text)
        return ESTIMATE.count(text)

    return Counter("counting", count)


def test_what_a_scope_says_is_counted_once() -> None:
    counted: list[str] = []
    counter = counting(counted)
    blocks = ScopeBlocks(Blocks(Shares(), BackgroundLoad("it", counter, lambda: counter)))
    memory = memory_of(fact("f", "User likes tea"), workContext="A nurse.")
    first = blocks.block(memory, {})
    seen = len(counted)
    assert blocks.block(memory, {}) == first
    assert len(counted) == seen
    blocks.purge()
    assert blocks.block(memory, {}) == first
    assert len(counted) == 2 * seen


def test_the_lines_that_a_filter_leaves_are_kept_for_each_filter_until_memory_changes() -> None:
    counted: list[str] = []
    counter = counting(counted)
    blocks = ScopeBlocks(Blocks(Shares(), BackgroundLoad("it", counter, lambda: counter)))
    tagged = (fact("g", "Ships on Friday", tags=("work",)), fact("h", "Sails", tags=("sea",)))
    facts = (fact("f", "User likes tea"), *tagged)
    memory = memory_of(*facts)
    whole, work, sea = (blocks.block(memory, {}, tags=tags) for tags in ((), ("work",), ("sea",)))
    assert (whole.facts, work.facts, sea.facts) == (("f", "g", "h"), ("f", "g"), ("f", "h"))
    seen = len(counted)
    assert [blocks.block(memory, {}, tags=tags) for tags in ((), ("work",), ("sea",))] == [whole, work, sea]
    assert len(counted) == seen
    assert blocks.block(memory_of(*facts[:2]), {}, tags=("sea",)).facts == ("f",)


def test_more_filters_than_are_kept_give_what_each_leaves() -> None:
    blocks = ScopeBlocks(Blocks(Shares(), BackgroundLoad("it", ESTIMATE, lambda: ESTIMATE)))
    memory = memory_of(*(fact(f"f{n}", f"Matter {n}", tags=(str(n),)) for n in range(40)))
    for _ in range(2):
        for n in range(40):
            assert blocks.block(memory, {}, tags=(str(n),)).facts == (f"f{n}",)


def test_a_use_is_one_for_a_minute_whatever_is_used_between() -> None:
    blocks = ScopeBlocks(Blocks(Shares(), BackgroundLoad("it", ESTIMATE, lambda: ESTIMATE)))

    def used(seconds: float, *names: str) -> list[str]:
        return blocks.newly_used(names, NOON + timedelta(seconds=seconds))

    assert used(0, "a", "b") == ["a", "b"]
    assert used(20, "c") == ["c"]
    assert used(40, "a", "c", "d") == ["d"]
    assert used(60, "a", "c") == ["a"]
    # A clock that was set back does not keep anything from being used for long.
    assert used(-1000, "a") == ["a"]
    blocks.purge()
    assert used(-999, "a") == ["a"]
