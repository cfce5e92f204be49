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


@pytest.fixture
def shared(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A section of the user that an agent's update wrote."""
    monkeypatch.setenv("BACKSTORY_SHARED_SUMMARIES", "true")
    words = (said("code", "m1", "user", "I write Go."), said("code", "m2", "assistant", "Noted."))
    cli.run("--user", "ada", "--agent", "coder", "record", cli.file("said.jsonl", *words))
    written = {"user": {"workContext": {"summary": "Writes Go", "shouldUpdate": True}}}
    replies = cli.file("replies.jsonl", {"thread_id": "code", "reply": written})
    cli.run("--user", "ada", "--agent", "coder", "extract", "--replies", replies)
    return cli


@pytest.mark.parametrize("agent", [(), ("--agent", "coder"), ("--agent", "cook")])
def test_why_shows_which_agents_update_wrote_a_section(shared: Cli, agent: tuple[str, ...]) -> None:
    page = shared.run("--user", "ada", *agent, "why", "user.workContext").stdout
    assert "user.workContext: Writes Go" in page
    assert "commit 2 of agent coder, thread code, recorded" in page
    assert "| I write Go." in page
    found = shared.json("--user", "ada", *agent, "why", "workContext")
    assert (found["section"], found["written"]["agent"], found["written"]["seq"]) == ("user.workContext", "coder", 2)
    never = shared.run("--user", "ada", *agent, "why", "topOfMind", code=1)
    assert never.stderr.endswith("backstory: section user.topOfMind was never written\n")


def test_the_log_and_a_revert_say_what_the_users_memory_shares(shared: Cli) -> None:
    assert "from commit 2 of agent coder, thread code" in shared.run("--user", "ada", "log").stdout
    coder = ("--user", "ada", "--agent", "coder")
    assert "1 section shared with the user" in shared.run(*coder, "log").stdout
    page = shared.run(*coder, "revert", "HEAD").stdout
    assert "- Writes Go" in page
    assert "commit 3 of the user's memory" in page
    assert "user.workContext: empty" in shared.run("--user", "ada", "why", "user.workContext").stdout
