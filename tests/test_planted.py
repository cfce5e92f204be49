"""The list of planted bugs follows the code, and `make planted` names what no test has noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import planted
from benchmarks.planted import Bug, Plan, misfits, read_plan, survivors_of

X, Y = (Bug("kind", "code.py", text, text.replace("1", "2")) for text in ("x = 1", "y = 1"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one file."""
    monkeypatch.setattr(planted, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text("x = 1\ny = 1\n")
    return tmp_path


def test_each_bug_of_the_list_can_be_planted_and_its_tests_are_there() -> None:
    assert misfits(read_plan()) == []


def test_a_bug_that_does_not_fit_the_code_is_named(root: Path) -> None:
    (root / "test_code.py").write_text("")
    wrong = [Bug("kind", "code.py", "= 1", ""), Bug("kind", "gone.py", "x", "y"), Bug("none", "code.py", "x", "y")]
    found = misfits(Plan([X, *wrong], {"kind": ["test_code.py", "test_gone.py"]}))
    assert found == [
        "code.py holds '= 1' 2 times, and not once",
        "gone.py holds 'x' 0 times, and not once",
        "code.py: x -> y is of kind 'none', which has no tests",
        "planted.toml names test_gone.py, which is not there",
    ]


def test_the_likeliest_tests_run_first(root: Path) -> None:
    (root / "test_far.py").write_text("import os\n")
    (root / "near").mkdir()
    (root / "near/test_near.py").write_text("from backstory.ledger.code import x\n")
    bug = Bug("kind", "ledger/code.py", "x", "y")
    assert sorted(["test_far.py", "near", "test_code.py"], key=bug.distance) == ["test_code.py", "near", "test_far.py"]


def test_bugs_are_planted_one_at_a_time_in_copies_and_what_is_not_noticed_is_returned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: set[tuple[Path, str]] = set()

    def passes(_: list[str], copy: Path) -> bool:
        text = (copy / "code.py").read_text()
        ran.add((copy, text))
        return "x = 1" in text

    monkeypatch.setattr(planted, "passes", passes)
    assert survivors_of([X, Y], {"kind": []}, 2) == [Y]
    assert {text for _, text in ran} == {"x = 1\ny = 1\n", "x = 2\ny = 1\n", "x = 1\ny = 2\n"}
    assert root not in {copy for copy, _ in ran}
    assert (root / "code.py").read_text() == "x = 1\ny = 1\n"


def test_tests_that_fail_without_a_bug_end_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "passes", lambda *_: False)
    with pytest.raises(SystemExit, match="the tests of kind fail without any bug"):
        survivors_of([X], {"kind": []}, 1)
