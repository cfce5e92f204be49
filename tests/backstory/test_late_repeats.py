"""A delivery that is repeated under its key after later ones were recorded: nothing is recorded again."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from backstory import Backstory

Mode = Literal["conversation", "append", "replace"]


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize("mode", ["conversation", "append", "replace"])
def test_a_delivery_repeated_after_a_later_one_changes_nothing_and_answers_as_before(
    tmp_path: Path, mode: Mode
) -> None:
    with Backstory.open(tmp_path, background=False) as bs:
        memory = bs.memory("ada")
        first = memory.once("k").record("t", said("Hello.", "Hi."), mode=mode)
        memory.once("later").record("t", said("Is there tea?", "Yes."), mode="append")
        before = [turn.content for turn in memory.transcript("t")]
        assert memory.once("k").record("t", said("Hello.", "Hi."), mode=mode) == first
        assert [turn.content for turn in memory.transcript("t")] == before == ["Hello.", "Hi.", "Is there tea?", "Yes."]


@pytest.mark.parametrize("count", [200, 201, 400])
def test_a_long_delivery_repeated_late_changes_nothing(tmp_path: Path, count: int) -> None:
    """A commit holds 200 turns: whether another one was to follow shows in the delivery itself."""
    long = said(*(f"word {n}" for n in range(count)))
    with Backstory.open(tmp_path, background=False) as bs:
        memory = bs.memory("ada")
        first = memory.once("k").record("t", long)
        memory.once("later").record("t", said("Is there tea?", "Yes."), mode="append")
        assert memory.once("k").record("t", long) == first
        assert len(memory.transcript("t")) == count + 2
