"""Times for people: to the second on every page, in full in JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from commandline import Cli, said

from backstory.cli.pages.labels import duration, in_seconds

FRACTION = re.compile(r"\d:\d\d\.\d")
PAGES = [
    ("show",),
    ("log",),
    ("status",),
    ("threads",),
    ("turns", "t1"),
    ("why", "fact_2_1"),
    ("why-not", "User may like tea"),
    ("diff", "1", "3"),
    ("revert", "3", "--dry-run"),
    ("search", "Rust", "--in", "turns"),
    ("verify",),
]


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_page_tells_times_to_the_second(story: Cli, words: tuple[str, ...]) -> None:
    story.run("fact", "add", "User has a dog")
    shown = story.run(*words).stdout
    assert not FRACTION.search(shown), shown
    assert "T" not in {shown[found.start() - 1] for found in re.finditer(r"\d\d:\d\d:\d\d", shown)}


def test_why_not_tells_the_time_of_an_evicted_fact_to_the_second(story: Cli) -> None:
    story.run("policy", "--set", "max_facts=10")
    for number in range(9):
        story.run("fact", "add", f"User owns book {number}")
    shown = story.run("why-not", "User writes Rust").stdout
    assert "cap" in shown
    assert not FRACTION.search(shown), shown


def test_json_keeps_the_whole_time(story: Cli) -> None:
    assert all(FRACTION.search(one["at"]) for one in story.json("log"))
    assert FRACTION.search(story.json("turns", "t1")[0]["at"])


def test_a_clock_that_is_behind_is_told_in_seconds(cli: Cli) -> None:
    ahead = (datetime.now(UTC) + timedelta(days=400)).isoformat()
    rows = (said("t", "1", "user", "hi there", at=ahead), said("t", "2", "assistant", "yes", at=ahead))
    cli.run("record", cli.file("said", *rows))
    cli.run("extract", "--clock", "turns", "--replies", cli.file("r", {"thread_id": "t", "reply": {"newFacts": []}}))
    shown = cli.run("doctor", code=1).stdout
    assert "set this clock" in shown
    assert not FRACTION.search(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it is 2026-03-12T10:30:00.123456Z, and", "it is 2026-03-12 10:30:00Z, and"),
        ("since 2026-03-12T10:30:00+00:00", "since 2026-03-12 10:30:00Z"),
        ("2026-03-12T10:30:00Z", "2026-03-12 10:30:00Z"),
        ("at 2026-03-12T10:30:00+02:00", "at 2026-03-12T10:30:00+02:00"),
        ("commit 7 of 2026-03-12", "commit 7 of 2026-03-12"),
    ],
)
def test_the_times_in_a_sentence(text: str, shown: str) -> None:
    assert in_seconds(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.004, "1 s"),
        (12, "12 s"),
        (29.2, "30 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3_599, "60 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (200_000, "3 days"),
    ],
)
def test_a_duration_is_told_in_the_unit_that_fits(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_status_tells_when_an_update_is_due_in_whole_seconds(cli: Cli) -> None:
    cli.run("record", cli.file("said", said("t", "1", "user", "I live in Oslo"), said("t", "2", "assistant", "Noted.")))
    assert re.search(r"in \d+ s; needs a model$", cli.run("status").stdout, re.MULTILINE)


def test_a_time_copied_from_the_log_shows_memory_at_that_commit(story: Cli) -> None:
    printed = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", story.run("log").stdout)
    newest = story.run("show", "--json").stdout
    assert story.run("show", "--at", printed[0], "--json").stdout == newest
    assert story.run("show", "--at", "HEAD", "--json").stdout == newest
    assert story.run("diff", "HEAD~1", printed[0]).stdout == story.run("diff", "2", "3").stdout
    commit = story.json("log")[1]
    assert story.run("show", "--at", commit["hash"][:10]).stdout == story.run("show", "--at", "2").stdout
    assert story.run("what-if", "--max-facts", "20", "--until", "HEAD~1", "--json").stdout
    assert story.run("revert", "HEAD~1", "--dry-run").stdout == story.run("revert", "2", "--dry-run").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "--at", "2999-01-01"), "at is in the future: it is "),
        (("rollback", "--to", "yesterday"), "'yesterday' is a whole day: to takes a moment of it"),
        (("diff", "2026-01-01", "3"), "'2026-01-01' is a whole day"),
        (
            ("show", "--at", "soon"),
            "at must be a commit (its number, HEAD, HEAD~1 or the beginning of its hash) or a time",
        ),
        (("show", "--at", "ffff0000ffff"), "no commit whose hash begins with ffff0000ffff"),
    ],
)
def test_a_moment_that_cannot_be_meant_is_refused(story: Cli, words: tuple[str, ...], told: str) -> None:
    code = 1 if "hash begins" in told and "commit (" not in told else 2
    assert told in story.run(*words, code=code).stderr


def test_yesterday_memory_was_empty(story: Cli) -> None:
    assert story.json("show", "--at", "yesterday")["facts"] == []
    assert story.json("log", "--since", "yesterday") == story.json("log")
    assert story.json("search", "Rust", "--until", "yesterday", code=1) == []
