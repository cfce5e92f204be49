"""Long conversations in portions: in order, whole, bounded, and parted where an answer ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.events import Turn
from backstory.ledger.extraction.prompt import first_portion

ROLES = {"u": "user", "a": "assistant"}


def turns(said: str) -> list[Turn]:
    """A conversation as a row of letters: u and a are what user and assistant say."""
    return [Turn(n=n, id=f"m{n}", role=ROLES[letter], content=letter, at="") for n, letter in enumerate(said, 1)]


def portions(left: Sequence[Turn], room: int, size_of: Callable[[Turn], int]) -> Iterator[Sequence[Turn]]:
    while left:
        portion = first_portion(left, room, size_of)
        yield portion
        left = left[len(portion) :]


def parted(said: str, room: int, sizes: list[int] | None = None) -> list[str]:
    def size(turn: Turn) -> int:
        return 1 if sizes is None else sizes[turn.n - 1]

    return ["".join(turn.content for turn in portion) for portion in portions(turns(said), room, size)]


@pytest.mark.parametrize(
    ("said", "room", "expected"),
    [
        ("", 3, []),
        ("ua", 2, ["ua"]),
        ("uaua", 4, ["uaua"]),
        ("uaua", 3, ["ua", "ua"]),
        ("uauaua", 5, ["uaua", "ua"]),
        ("uuaaua", 4, ["uuaa", "ua"]),
        ("uauuaa", 5, ["ua", "uuaa"]),
        ("auaua", 3, ["aua", "ua"]),
        ("uau", 2, ["ua", "u"]),
        ("uaaaaua", 3, ["uaa", "aa", "ua"]),
        ("uaaaua", 3, ["uaa", "aua"]),
        ("uauuuuaua", 3, ["ua", "uuu", "ua", "ua"]),
        ("uaaaauaua", 4, ["uaaa", "aua", "ua"]),
        ("ua", 1, ["u", "a"]),
        ("ua", 0, ["u", "a"]),
    ],
)
def test_a_portion_ends_after_an_answer_where_it_can(said, room, expected):
    assert parted(said, room) == expected


def test_a_turn_that_alone_is_too_big_is_a_portion_of_its_own():
    assert parted("uauaua", 5, [1, 1, 9, 1, 1, 1]) == ["ua", "u", "aua"]


@given(st.text("ua", max_size=60), st.integers(0, 12), st.data())
def test_whatever_is_said_portions_are_whole_in_order_bounded_and_never_empty(said, room, data):
    sizes = data.draw(st.lists(st.integers(0, 6), min_size=len(said), max_size=len(said)))
    told = turns(said)
    found = list(portions(told, room, lambda turn: sizes[turn.n - 1]))
    assert [turn for portion in found for turn in portion] == told
    for portion in found:
        assert portion
        assert len(portion) == 1 or sum(sizes[turn.n - 1] for turn in portion) <= room


@given(st.text("ua", max_size=60), st.integers(1, 12))
def test_words_are_parted_from_their_answer_only_where_both_do_not_fit_together(said, room):
    found = parted(said, room)
    for before, after in itertools.pairwise(found):
        if before.endswith("u") or after.startswith("a"):
            exchange = f"{before[before.rfind('au') + 1 :]}{after[: after.find('au') + 1] if 'au' in after else after}"
            assert len(exchange) > room


def test_only_as_much_is_measured_as_is_asked_for():
    measured: list[int] = []

    def size(turn: Turn) -> int:
        measured.append(turn.n)
        return 1

    next(portions(turns("ua" * 1_000), 10, size))
    assert len(measured) <= 12
