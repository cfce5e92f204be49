"""The table that `make durations` prints: every test counted in its folder, the slowest folder first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.durations import Folder, by_folder, folder_of, main, table

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" tests="5" time="9.9">
<testcase classname="tests.ledger.rules.test_undo" name="test_a" time="0.500"/>
<testcase classname="tests.ledger.rules.test_decide" name="test_b[a.b]" time="1.000"><failure message="no"/></testcase>
<testcase classname="tests.ledger.core.test_scope.TestScopes" name="test_c" time="0.500"/>
<testcase classname="tests.page.test_page" name="test_d" time="6.000"><skipped message="no browser"/></testcase>
<testcase classname="tests.test_scale" name="test_e" time="2.000"/>
</testsuite></testsuites>
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    return tmp_path / "report.xml"


def test_every_test_is_counted_in_the_folder_that_it_lies_in(report: Path) -> None:
    assert by_folder(report) == {
        ("ledger", "rules"): Folder(2, 1.5),
        ("ledger", "core"): Folder(1, 0.5),
        ("page", "test_page"): Folder(1, 6.0),
        ("test_scale", ""): Folder(1, 2.0),
    }


def test_a_class_and_what_has_no_folder_are_understood() -> None:
    assert folder_of("tests.ledger.core.test_scope.TestScopes") == ("ledger", "core")
    assert folder_of("test_alone") == ("test_alone", "")


def test_the_slowest_folder_comes_first_and_shares_are_of_the_whole(report: Path) -> None:
    heading, *rows = [line.split() for line in table(by_folder(report))]
    assert heading == ["folder", "tests", "seconds", "share"]
    assert rows == [
        ["page", "1", "6.0", "60.0%"],
        ["test_page", "1", "6.0", "60.0%"],
        ["ledger", "3", "2.0", "20.0%"],
        ["rules", "2", "1.5", "15.0%"],
        ["core", "1", "0.5", "5.0%"],
        ["test_scale", "1", "2.0", "20.0%"],
        ["all", "5", "10.0", "100.0%"],
    ]


def test_the_command_prints_the_table(
    report: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["durations", str(report)])
    assert main() == 0
    assert capsys.readouterr().out.splitlines() == list(table(by_folder(report)))


def test_a_report_without_tests_is_told_apart_from_a_fast_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.xml").write_text("<testsuites/>", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["durations", str(tmp_path / "report.xml")])
    with pytest.raises(SystemExit, match="names no test"):
        main()
