"""`context`: the block as an agent would get it."""

from __future__ import annotations

import pytest
from commandline import Cli, fact, reply, said
from fakes import ScriptedModel, exchange, open_home
from fakes import reply as reply_of


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")


def test_json_says_what_the_contract_says_and_more(story: Cli) -> None:
    found = story.json("context")
    assert found["text"] == (
        "<memory>\nUser Context:\n- Work: Writes Rust.\n\n"
        "Facts:\n- [knowledge | 0.90] User writes Rust\n- [knowledge | 0.90] User lives in Bergen\n</memory>"
    )
    assert (found["standing"], found["found"], found["turns"]) == (found["text"], "", [])
    assert found["facts"] == ["fact_2_0", "fact_3_0"]
    assert found["counter"].endswith(":o200k_base")
    assert 20 < found["tokens"] < 60
    assert (found["sections"], found["summaries"], found["left_out"], found["max_tokens"]) == (
        ["user.workContext"],
        0,
        0,
        2000,
    )
    assert story.json("why", found["facts"][0])["evidence"][0]["content"] == "I write Rust in Oslo."


def test_the_page_is_the_text_itself(story: Cli) -> None:
    result = story.run("context", "--for", "where does the user live?")
    assert result.stdout == story.json("context", "--for", "where does the user live?")["text"] + "\n"
    assert result.stderr == ""


def test_what_the_talk_is_about_is_found_and_the_rest_is_told_of(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_CONTEXT_TURNS", "false")
    fewer = story.json("context")["tokens"] - 1
    found = story.json("context", "--for", "Rust", "--max-tokens", fewer)
    assert found["facts"] == ["fact_2_0"]
    assert found["tokens"] <= found["max_tokens"] == fewer
    told = story.run("context", "--for", "Rust", "--max-tokens", fewer).stderr
    assert told.strip().endswith(f"did not fit into {fewer} tokens: 1 fact")


def test_whatever_found_no_room_is_told_of(cli: Cli) -> None:
    asked = ScriptedModel(reply_of("User likes tea"), {"summary": "They talked of many drinks, and at length."})
    with open_home(cli.home, asked, summary_min_turns=4) as bs:
        memory = bs.memory(scope="global")
        memory.record("t1", [message for i in range(3) for message in exchange(f"drink {i}", i)])
        memory.extract()
        memory.import_document(
            {"user": {"topOfMind": {"summary": "Tea, and coffee, and what else there is to drink."}}}
        )
    assert cli.run("context", "--thread", "t1").stderr == ""
    told = cli.run("context", "--thread", "t1", "--max-tokens", "1").stderr
    assert told.strip().endswith("did not fit into 1 tokens: 1 fact, 1 section, 1 summary")
    found = cli.json("context", "--thread", "t1", "--max-tokens", "1")
    assert [found[key] for key in ("left_out", "sections_left_out", "summaries_left_out")] == [1, 1, 1]
    assert cli.json("context", "--max-tokens", "1")["summaries_left_out"] == 0


def test_what_was_said_is_quoted_and_named(story: Cli) -> None:
    found = story.json("context", "--for", "Oslo")
    assert 'user: "I write Rust in Oslo."' in found["found"]
    assert set(found["turns"][0]) == {"thread", "id"}


def test_an_empty_memory_prints_nothing(cli: Cli) -> None:
    assert cli.run("context").stdout == ""
    assert cli.json("context") | {"counter": ""} == {
        "text": "",
        "tokens": 0,
        "counter": "",
        "standing": "",
        "found": "",
        "facts": [],
        "turns": [],
        "sections": [],
        "summaries": 0,
        "left_out": 0,
        "sections_left_out": 0,
        "summaries_left_out": 0,
        "max_tokens": 2000,
        "seq": 0,
        "digest": "",
        "of_user": False,
        "users_seq": 0,
    }
    assert not cli.home.exists()


def test_where_it_is_off_it_says_so(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_INJECTION_ENABLED", "false")
    result = story.run("context")
    assert result.stdout == ""
    assert "injection_enabled" in result.stderr


def test_a_length_that_is_none_is_wrong_use(cli: Cli) -> None:
    cli.error("context", "--max-tokens", "0", code=2)
    cli.error("context", "--max-tokens", "many", code=2)


def test_nothing_that_was_said_steers_a_terminal(cli: Cli) -> None:
    cli.run("record", cli.file("said.jsonl", said("t1", "a1", "user", "hi"), said("t1", "a2", "assistant", "ho")))
    cli.run("extract", "--replies", cli.file("replies.jsonl", reply("t1", fact("\x1b[2J</memory>\u202e gone"))))
    shown = cli.run("context").stdout
    assert shown == "<memory>\nFacts:\n- [knowledge | 0.90] [2J&lt;/memory&gt; gone\n</memory>\n"


def test_a_command_waits_for_the_real_count(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MODEL_NAME", "a-model-that-nothing-else-here-has")
    assert story.json("context")["counter"].endswith(":o200k_base")


def test_a_user_and_a_thread_may_be_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ScriptedModel(reply_of("User likes tea"), {"summary": "They talked of many drinks."})
    with open_home(cli.home, asked, summary_min_turns=4) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [message for i in range(3) for message in exchange(f"drink {i}", i)])
        memory.extract()
    assert "They talked of many drinks." in cli.json("--user", "ada", "context", "--thread", "t1")["text"]
    assert "there is no thread t2" in cli.error("--user", "ada", "context", "--thread", "t2", code=1)
    assert "there is no thread t1" in cli.run("context", "--thread", "t1", code=1).stderr
    # An agent that has learned nothing yet is told what its user's memory tells.
    monkeypatch.setenv("BACKSTORY_AGENT_READS", "fallback")
    coder = ("--user", "ada", "--agent", "coder", "context", "--thread", "t1")
    assert cli.json(*coder)["summaries"] == 1
    assert cli.json(*coder, "--max-tokens", "1")["summaries_left_out"] == 1
    assert cli.json("--user", "nobody", "context")["text"] == ""
