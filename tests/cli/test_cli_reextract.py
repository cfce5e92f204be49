"""Asking again from the command line, and what-if over every rule."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commandline import Cli, fact, reply

Model = Callable[[Callable[[str], str]], None]


def answering(*facts: dict[str, object]) -> Callable[[str], str]:
    text = json.dumps({"newFacts": list(facts)})
    return lambda _: text


def test_reextract_tells_the_difference_and_both_costs(story: Cli, model: Model) -> None:
    model(answering(fact("User writes Rust"), fact("User drinks tea", 0.2)))
    told = story.json("reextract", "--model", "other")
    assert [f["content"] for f in told["added"]] == []
    assert [f["content"] for f in told["removed"]] == ["User lives in Bergen"]
    assert [r["after"]["id"] for r in told["revised"]] == ["fact_2_0"]
    assert [s["section"] for s in told["sections"]] == ["user.workContext"]
    assert (told["facts"], told["until"], told["complete"], told["notes"]) == (1, 3, True, [])
    costs = {"calls": 0, "tokens_in": 0, "tokens_out": 0, "updates": 2, "failed": 0}
    assert told["recorded"] == {**costs, "accepted": 5, "refused": {"threshold": 1}, "facts": 2, "failures": {}}
    again = told["again"]
    assert (again["calls"], again["updates"], again["failed"], again["accepted"]) == (2, 2, 0, 1)
    assert again["refused"] == {"duplicate": 1, "threshold": 2}
    assert again["tokens_in"] > again["tokens_out"] > 0
    assert story.json("head")["seq"] == 3


def test_reextract_with_replies_needs_no_model(story: Cli) -> None:
    replies = story.file("again.jsonl", reply("t1", fact("User bakes")), reply("t9", fact("never used")))
    told = story.json("reextract", "--replies", replies, "--thread", "t1")
    assert [f["content"] for f in told["added"]] == ["User bakes"]
    assert [f["content"] for f in told["removed"]] == ["User writes Rust"]
    assert (told["again"]["calls"], told["again"]["updates"], told["notes"]) == (0, 1, [])
    assert len(story.json("reextract", "--replies", replies)["notes"]) == 2


def test_reextract_shows_both_side_by_side(story: Cli, model: Model) -> None:
    model(answering(fact("User drinks tea")))
    page = story.run("reextract", "--max-calls", 1).stdout
    rows = {line.rsplit(maxsplit=2)[0]: line.split()[-2:] for line in page.splitlines() if "  " in line}
    assert rows["calls"] == ["0", "1"]
    assert rows["refused: threshold"] == ["1", "0"]
    assert rows["facts"] == ["2", "1"]
    assert "+ User drinks tea" in page
    assert "Stopped at the limit: both columns are as of commit 2." in page
    assert "There would be 1 fact. Nothing was written." in page


def test_reextract_names_a_folder_of_templates(story: Cli, model: Model) -> None:
    folder = story.folder / "prompts"
    folder.mkdir()
    (folder / "system.md").write_text("Answer like a pirate.", encoding="utf-8")
    asked: list[str] = []
    model(lambda prompt: asked.append(prompt) or '{"newFacts": []}')
    story.json("reextract", "--prompts", folder)
    assert len(asked) == 2
    assert all(prompt.startswith("Answer like a pirate.") for prompt in asked)
    assert "does not exist" in story.error("reextract", "--prompts", folder / "none", code=2)


def test_reextract_without_a_model_or_with_both_says_so(story: Cli) -> None:
    assert "OPENAI_API_KEY" in story.error("reextract", code=3)
    both = ("reextract", "--model", "m", "--replies", story.file("r.jsonl"))
    assert "leave one of them out" in story.error(*both, code=2)
    assert "no thread nowhere" in story.error("reextract", "--thread", "nowhere", code=1)
    assert story.run("reextract", "--max-calls", "-1", code=2).stdout == ""


@pytest.mark.slow
def test_reextract_interrupted_leaves_nothing_behind(story: Cli, model: Model) -> None:
    story.json("verify")
    before = files(story.home)
    words = story.command("reextract")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:

        def interrupting(_: str) -> str:
            process.send_signal(signal.SIGINT)
            return '{"newFacts": []}'

        model(interrupting)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == b""
    assert err.startswith(b"backstory: interrupted: reextract writes nothing")
    assert files(story.home) == before


def files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


# What-if.


def test_what_if_takes_numbers_names_switches_and_lists(story: Cli) -> None:
    told = story.json("what-if", "--set", "gate_enabled=false", "--set", "dedup_key=exact", "--max-facts", 1)
    assert told["facts"] == 1
    assert story.json("what-if", "--set", "staleness_protected_categories=correction, goal")["facts"] == 2
    assert story.json("what-if", "--set", "staleness_protected_categories=")["facts"] == 2
    assert story.json("what-if", "--set", "eviction_access_half_life_days=45.5")["facts"] == 2
    hybrid = [f"eviction_{name}_weight=0{weight}" for name, weight in (("confidence", ".5"), ("access", ".25"))]
    assert story.json("what-if", "--set", "fact_eviction_policy=hybrid", *sets(hybrid))["facts"] == 2


def sets(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("gate_enabled=0", "must be true or false"),
        ("gate_enabled=", "must be true or false"),
        ("max_facts=many", "a whole number"),
        ("max_facts=2.5", "a whole number"),
        ("eviction_access_half_life_days=long", "a number"),
        ("fact_confidence_threshold=nan", "from 0 to 1"),
        ("staleness_protected_categories=hobby", "'hobby'"),
        ("dedup_key=loose", "normalized, casefold, exact"),
        ("luck=1", "luck is no policy key"),
    ],
)
def test_a_setting_that_cannot_be_is_told(story: Cli, setting: str, told: str) -> None:
    assert told in story.error("what-if", "--set", setting, code=2)


def test_policy_takes_the_same_settings(story: Cli) -> None:
    words = ["gate_enabled=false", "staleness_protected_categories=correction,goal"]
    policy = story.json("policy", *sets(words))["policy"]
    assert (policy["gate_enabled"], policy["staleness_protected_categories"]) == (False, ["correction", "goal"])


@pytest.mark.slow
def test_a_model_that_fails_is_told_of_with_its_reason_and_exit_code(
    story: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("BACKSTORY_MAX_ATTEMPTS", "1")
    page = story.run("reextract", code=1).stdout
    assert "No update succeeded" in page
    assert "No difference" not in page
    assert "the last call that failed said: " in page
    told = json.loads(story.run("--json", "reextract", code=1).stdout)
    assert told["again"]["failures"] == {"unavailable": told["again"]["failed"]}
    assert told["notes"]
