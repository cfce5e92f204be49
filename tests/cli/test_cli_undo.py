"""`revert` and `rollback` on the command line: how their target is named."""

from __future__ import annotations

import pytest
from commandline import Cli


@pytest.mark.parametrize("verb", ["revert", "rollback"])
def test_an_undo_takes_its_target_as_an_argument_and_as_an_option(story: Cli, verb: str) -> None:
    before = story.json(verb, "2", "--dry-run")
    assert story.json(verb, "--to", "2", "--dry-run") == before
    assert story.json(verb, "--to=2", "2", "--dry-run") == before
    assert story.run(verb, "--dry-run", "2").stdout == story.run(verb, "--to", "2", "--dry-run").stdout


@pytest.mark.parametrize("verb", ["revert", "rollback"])
def test_two_targets_or_none_are_wrong_use(story: Cli, verb: str) -> None:
    error = story.error(verb, "2", "--to", "3", code=2)
    assert "given twice, as 2 and as --to 3" in error
    assert "no target is given" in story.error(verb, code=2)
    assert story.json("head")["seq"] == 3


def test_revert_takes_head_and_rollback_a_time_in_both_spellings(story: Cli) -> None:
    assert story.json("revert", "--to", "HEAD", "--dry-run") == story.json("revert", "HEAD", "--dry-run")
    time = story.json("log")[1]["at"]
    assert story.json("rollback", time, "--dry-run") == story.json("rollback", "--to", time, "--dry-run")
    assert story.json("rollback", time)["commit"] == 4


@pytest.mark.parametrize("target", ["abc", "HEAD^", "2026-01-01", "1" * 70])
def test_revert_asks_for_a_commit_and_for_no_time(story: Cli, target: str) -> None:
    error = story.error("revert", target, code=2)
    assert "the commit to undo must be given by its number, HEAD, HEAD~1 or the beginning of its hash" in error
    assert "time" not in error


def test_an_undo_without_a_difference_says_so(story: Cli) -> None:
    for words in (("--dry-run",), ()):
        assert story.run("rollback", "3", *words).stdout.startswith("No difference: memory is so already.\n")
    assert "No difference" not in story.run("rollback", "2", "--dry-run").stdout


def test_an_undo_that_finds_nothing_left_to_undo_does_not_say_that_it_did_something(story: Cli) -> None:
    story.run("rollback", "1")
    said = story.run("revert", "2").stdout
    assert said.startswith("left alone: ")
    assert said.endswith("Memory is unchanged, which is recorded as commit 5.\n")


@pytest.mark.parametrize("target", ["HEAD", "head"])
def test_a_rollback_to_head_names_the_revert(story: Cli, target: str) -> None:
    error = story.error("rollback", target, code=2)
    assert "HEAD is the present" in error
    assert "`revert HEAD`" in error
