"""The verb `forget`: what it takes, asks, tells, and how it ends."""

from __future__ import annotations

import pytest
from commandline import Cli, answered, fact, reply, said


def everything_below(cli: Cli) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(cli.home.rglob("*")) if path.is_file()).lower()


def test_forgetting_a_fact_gives_what_went_and_the_commit(story: Cli) -> None:
    told = story.json("forget", "--fact", "fact_2_1", "--yes")
    assert told == {
        "redacted": [
            {"stream": "ledger", "seq": 2, "what": "proposal"},
            {"stream": "ledger", "seq": 2, "what": "fact", "fact": "fact_2_1"},
            {"stream": "ledger", "seq": 3, "what": "proposal"},
            {"stream": "ledger", "seq": 3, "what": "fact", "fact": "fact_2_1"},
        ],
        "also": [
            {"kind": "fact", "id": "fact_2_0", "content": "User writes Rust"},
            {"kind": "section", "id": "user.workContext", "content": "Writes Rust."},
        ],
        "commit": 4,
    }
    assert story.json("verify")["ok"]
    assert b"user lives in oslo" not in everything_below(story)


def test_with_its_evidence_the_turns_go_too(story: Cli) -> None:
    told = story.json("forget", "--fact", "fact_2_0", "--with-evidence", "--yes")
    assert {"stream": "transcript", "seq": 1, "what": "turn"} in told["redacted"]
    assert b"rust" not in everything_below(story)


def test_a_thread_of_an_agent_is_named_with_the_agent_that_holds_it(cli: Cli) -> None:
    words = cli.file("t1.jsonl", said("t1", "u1", "user", "I like tea."))
    for agent in ("coder", "cook"):
        cli.run("--user", "ada", "--agent", agent, "record", words)
    forget = ("--user", "ada", "forget", "--thread", "t1", "--yes")
    assert "it is in that of its agents coder, cook: name the agent" in cli.error(*forget, code=1)
    for agent in ("coder", "cook"):
        cli.run("--agent", agent, *forget)
    assert "never existed or is erased already" in cli.error(*forget, code=1)


def test_forgetting_a_thread(story: Cli) -> None:
    assert story.json("forget", "--thread", "t2", "--yes")["commit"] == 4
    assert b"bergen" not in everything_below(story)
    assert [f["content"] for f in story.json("fact", "list")] == ["User writes Rust"]


@pytest.mark.parametrize("text", ["bergen", "ＢＥＲＧＥＮ"])
def test_forgetting_what_matches(story: Cli, text: str) -> None:
    story.json("forget", "--matching", text, "--yes")
    assert b"bergen" not in everything_below(story)
    assert story.json("verify")["ok"]


def test_forgetting_everything_of_a_user_takes_the_agents_along(cli: Cli) -> None:
    for agent in ([], ["--agent", "coder"]):
        scope = ["--user", "ada", *agent]
        cli.run(*scope, "record", cli.file("c", said("t", "1", "user", "I write Rust."), said("t", "2", "ai", "Oh.")))
        cli.run(*scope, "extract", "--replies", cli.file("r", reply("t", fact("Writes Rust"))))
    told = cli.json("--user", "ada", "forget", "--all", "--yes")
    assert {row["stream"].rpartition("/")[0] for row in told["redacted"]} == {"users/ada", "users/ada/agents/coder"}
    assert b"rust" not in everything_below(cli)


def test_a_dry_run_needs_no_yes_and_writes_nothing(story: Cli) -> None:
    before = everything_below(story)
    told = story.json("forget", "--matching", "rust", "--dry-run")
    assert told["commit"] is None
    assert {row["what"] for row in told["redacted"]} == {"proposal", "section", "fact", "turn"}
    page = story.run("forget", "--fact", "fact_2_0", "--dry-run").stdout
    assert "Nothing was written" in page
    assert everything_below(story) == before


def test_a_page_tells_what_shares_the_evidence(cli: Cli) -> None:
    cli.run("record", cli.file("c", said("t", "1", "user", "I write Rust, with tea."), said("t", "2", "ai", "Oh.")))
    cli.run("extract", "--replies", cli.file("r", reply("t", fact("Writes Rust"), fact("Likes tea"))))
    page = cli.run("forget", "--fact", "fact_2_0", "--yes").stdout
    assert "fact fact_2_1, Likes tea" in page
    assert "Erased: 2 contents" in page


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--fact", "fact_2_0", "--all"],
        ["--thread", "t1", "--matching", "x"],
        ["--thread", "t1", "--with-evidence"],
        ["--matching", "  "],
    ],
)
def test_what_is_asked_must_be_one_thing(story: Cli, words: list[str]) -> None:
    story.error("forget", *words, "--yes", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["--fact", "fact_9_9"],
        ["--fact", "fact_2"],
        ["--fact", "fact_3"],
        ["--thread", "t9"],
        ["--matching", "timbuktu"],
    ],
)
def test_what_is_not_there_is_not_found(story: Cli, words: list[str]) -> None:
    story.error("forget", *words, "--yes", code=1)


def test_what_was_forgotten_is_not_there_any_more(story: Cli) -> None:
    for words in (["--fact", "fact_2_0"], ["--all"]):
        story.run("forget", *words, "--yes")
        assert "erased already" in story.error("forget", *words, "--yes", code=1) or words == ["--all"]


def test_without_yes_and_a_terminal_it_is_refused(story: Cli) -> None:
    before = everything_below(story)
    assert "--yes" in story.error("forget", "--all", code=2)
    assert everything_below(story) == before


@pytest.mark.slow
def test_a_page_names_every_fact_that_goes(story: Cli) -> None:
    story.run("fact", "add", "User writes Rust at night")
    page = story.run("forget", "--fact", "fact_2_0", "--dry-run").stdout
    assert "facts: fact_2_0, fact_4_0" in page
    code, told = answered(story, b"n\n", "forget", "--fact", "fact_2_0")
    assert code == 1
    assert "for good, those of fact_2_0, fact_4_0 among them" in told


@pytest.mark.slow
def test_on_a_terminal_it_asks_first(story: Cli) -> None:
    code, told = answered(story, b"n\n", "forget", "--matching", "bergen")
    assert code == 1
    assert "for good" in told
    assert "nothing was erased" in told
    assert b"bergen" in everything_below(story)
    code, told = answered(story, b"\x04", "forget", "--matching", "bergen")
    assert code == 1
    code, told = answered(story, b"y\n", "forget", "--matching", "bergen")
    assert (code, b"bergen" in everything_below(story)) == (0, False)
    assert "Traceback" not in told
