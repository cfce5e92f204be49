"""A full memory on the command line: what the cap evicts is said, and how it comes back."""

from __future__ import annotations

import json

import pytest
from commandline import Cli, fact, reply, said


@pytest.fixture
def full(cli: Cli) -> Cli:
    """Ten facts from a model in a memory of ten; the first one is the weakest."""
    cli.run("policy", "--set", "max_facts=10")
    learn(cli, "t1", [fact(f"User owns book {n}", 0.75 if n == 0 else 0.9) for n in range(10)])
    return cli


def learn(cli: Cli, thread: str, facts: list[dict[str, object]]) -> None:
    cli.run(
        "record", cli.file("said", said(thread, "u", "user", "I own books."), said(thread, "a", "assistant", "Oh."))
    )
    cli.run("extract", "--replies", cli.file("reply", reply(thread, *facts)))


def test_fact_add_says_what_it_evicted_and_how_to_get_it_back(full: Cli) -> None:
    shown = full.run("fact", "add", "User has a dog").stdout
    seq = full.json("head")["seq"]
    assert f"evicted to make room: User owns book 0 (fact_3_0); `backstory revert {seq}` undoes both" in shown
    full.run("revert", seq)
    assert "User owns book 0" in full.run("show").stdout


def test_fact_add_with_json_names_the_evicted_facts(full: Cli) -> None:
    added = full.json("fact", "add", "User has a dog")
    assert [one["content"] for one in added["evicted"]] == ["User owns book 0"]
    full.run("fact", "remove", added["fact"]["id"])
    assert full.json("fact", "add", "User has a cat")["evicted"] == []
    assert "evicted" not in full.run("fact", "remove", "fact_3_1").stdout


def test_status_and_show_say_that_memory_is_full_and_what_was_evicted(full: Cli) -> None:
    assert "10 of 10: full" in full.run("status").stdout
    assert full.run("show").stdout.endswith("10 of 10 facts: full\n")
    learn(full, "t2", [fact("User owns a ship", 0.95), fact("User owns a boat", 0.95)])
    for verb in ("status", "show"):
        shown = full.run(verb).stdout
        assert "full; the last 4 commits evicted 2 facts, the last with commit 4; see `log` and `why-not`" in shown
    assert [(one["seq"], one["facts"]) for one in full.json("status")["evicted"]] == [(4, ["fact_3_0", "fact_3_1"])]
    assert full.json("status")["max_facts"] == 10


def test_a_memory_with_room_says_how_much(full: Cli) -> None:
    full.run("fact", "remove", "fact_3_1")
    assert "9 of 10\n" in full.run("status").stdout
    assert "full" not in full.run("show").stdout
    assert full.json("status")["evicted"] == []


def test_show_with_json_is_the_document_and_nothing_else(full: Cli) -> None:
    assert set(full.json("show")) == {"version", "lastUpdated", "user", "history", "facts"}
    assert "full" not in full.run("show", "--at", "3").stdout


def test_the_log_says_evicted(full: Cli) -> None:
    learn(full, "t2", [fact("User owns a ship", 0.95)])
    assert "+1 fact, 1 evicted" in full.run("log", "-n", "1").stdout


# Why not.


def test_why_not_says_first_that_a_fact_is_remembered(story: Cli) -> None:
    shown = story.run("why-not", "user writes rust", code=1).stdout
    assert shown == "This is in memory: User writes Rust  fact_2_0\n"


def test_why_not_names_a_fact_that_is_like_the_text(story: Cli) -> None:
    story.run("fact", "remove", "fact_2_0")
    story.run("fact", "add", "User writes Rust at night")
    lines = story.run("why-not", "User writes Rust").stdout.splitlines()
    assert lines[0] == "Like it in memory: User writes Rust at night  fact_5_0"
    assert lines[1].startswith("SEQ")
    assert "User writes Rust" in lines[2]


def test_why_not_with_json_says_it_beside_the_answer(story: Cli) -> None:
    result = story.run("--json", "why-not", "User writes Rust", code=1)
    assert json.loads(result.stdout) == []
    assert result.stderr == "backstory: this is in memory: User writes Rust (fact_2_0)\n"
    assert story.run("--json", "why-not", "zzz", code=1).stderr == ""


def test_an_import_of_more_than_memory_holds_says_how_to_raise_the_cap_and_takes_the_rest_then(full: Cli) -> None:
    facts = [{"content": f"User owns pen {n}", "category": "knowledge", "confidence": 0.8} for n in range(30)]
    file = full.folder / "memory.json"
    file.write_text(json.dumps({"facts": facts}), encoding="utf-8")
    said = full.run("import", file).stderr
    assert said.startswith("backstory: memory is full: raise max_facts (`policy --set max_facts=N`), and import again")
    full.run("policy", "--set", "max_facts=50")
    assert "full" not in full.run("import", file).stderr
    assert len(full.json("fact", "list")) == 39  # all but the weakest, which made room
