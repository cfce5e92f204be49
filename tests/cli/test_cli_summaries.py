"""Summaries of long threads on the command line."""

from __future__ import annotations

import pytest
from commandline import Cli, said
from summing import Talk

from backstory.ledger.core.scope import Scope


@pytest.fixture
def told(cli: Cli) -> Cli:
    talk = Talk(cli.home, turns=4, summary_min_turns=2)
    talk.extract()
    talk.bs.close()
    return cli


def test_turns_shows_the_summaries_of_a_thread(told: Cli) -> None:
    found = told.json("--user", "ada", "turns", "t", "--summaries")
    assert [list(summary) for summary in found] == [["level", "first", "last", "since", "until", "text"]] * 2
    assert [summary["text"] for summary in found] == ["Told 1 to 2.", "Told 3 to 4."]
    page = told.run("--user", "ada", "turns", "t", "--summaries").stdout
    assert "turns 3 to 4" in page
    assert "Told 3 to 4." in page
    assert "2026-03-01 12:00:03Z to 2026-03-01 12:00:04Z" in page


def test_a_thread_without_a_summary_says_so(cli: Cli) -> None:
    cli.run("record", cli.file("said.jsonl", said("t", "m1", "user", "Hi.")))
    assert cli.json("turns", "t", "--summaries") == []
    assert cli.run("turns", "t", "--summaries").stdout == "This conversation has no summary.\n"
    assert "there is no thread u" in cli.error("turns", "u", "--summaries", code=1)


def test_the_log_says_what_was_summed_up(told: Cli) -> None:
    page = told.run("--user", "ada", "log").stdout
    assert "summary of 3-4" in page
    assert "+1 thread summary" in page
    entry = told.json("--user", "ada", "log")[0]
    assert (entry["cause"]["kind"], entry["cause"]["level"], entry["cause"]["summarized"]) == (
        "summary",
        1,
        {"first": 3, "last": 4},
    )


def test_extract_tells_of_summaries_apart_from_updates(tmp_path, capsys) -> None:
    from backstory.cli.pages.page import PlainPage
    from backstory.cli.pages.tables import extracted_lines, extracted_table
    from backstory.results import Extracted

    page = PlainPage()
    extracted_lines(page, Extracted(0, 0, (), (4, 5), 1))
    extracted_table(page, [(Scope("ada"), Extracted(1, 0, (2,), (4, 5)))])
    out = capsys.readouterr().out
    assert "2 summaries of long threads: commit 4, 5" in out
    assert "1 summary failed" in out
    assert "nothing was pending" not in out
    assert "4, 5" in out.rpartition("failed")[2]


def test_without_summaries_the_answer_is_as_it_ever_was(cli: Cli) -> None:
    cli.run("record", cli.file("said.jsonl", said("t", "m1", "user", "I run."), said("t", "m2", "assistant", "So.")))
    answer = cli.file("replies.jsonl", {"thread_id": "t", "reply": {"newFacts": []}})
    assert cli.json("extract", "--replies", answer) == {"updates": 1, "failed": 0, "commits": [2]}
    (nothing,) = cli.json("extract", "--all", "--replies", answer)
    assert list(nothing) == ["user", "agent", "updates", "failed", "commits"]
