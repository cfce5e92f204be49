"""The page that `make bench-peers` writes: its parts, its tables and what stands in for a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.run import PAGE, cells, commit, replaced, table
from benchmarks.peers.stand_ins import fact, stated

STORE = {"write p50": [0.001], "write p99": [0.002], "cold": [0.2], "mebibytes": [60.0], "size": [1.0]}


def test_each_part_is_written_alone() -> None:
    page = "# Peers\n\n<!-- one -->\nold\n<!-- end of one -->\n\n<!-- two -->\nkept\n<!-- end of two -->\n"
    assert replaced(page, "one", "new\n") == page.replace("old\n", "\nnew\n\n")


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="'two' are missing"):
        replaced("<!-- one -->\n<!-- end of one -->\n", "two", "new")


@pytest.mark.parametrize("part", ["stores", "deerflow"])
def test_the_page_has_the_part(part: str) -> None:
    assert "new text" in replaced(PAGE.read_text(encoding="utf-8"), part, "new text")


def test_what_was_not_measured_is_an_empty_cell() -> None:
    assert table({"store": cells(STORE)}).splitlines()[-1].startswith("| store | 1.00; 2.00 |  |  |")


def test_conversations_are_columns_of_those_that_learn() -> None:
    learner = STORE | {"record p50": [0.001], "record p99": [0.001], "learn": [0.1], "block p50": [1], "block p99": [1]}
    assert {"learn, ms", "record p50; p99, ms"} <= set(cells(learner)) - set(cells(STORE))


def test_the_stand_in_for_a_model_finds_each_fact_and_no_other_text() -> None:
    assert stated(f"[1] user: {fact(3)}\n[2] assistant: Noted.\n[3] user: {fact(88)}") == [fact(3), fact(88)]


def test_a_folder_that_is_no_checkout_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEERFLOW", str(tmp_path))
    monkeypatch.delenv("DEERFLOW_COMMIT", raising=False)
    with pytest.raises(SystemExit, match="no git checkout of DeerFlow"):
        commit()
