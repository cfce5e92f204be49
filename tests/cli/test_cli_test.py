"""`backstory test`: exit codes, the page and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from commandline import Cli, answered, fact, reply, said

from backstory.testing import memory_test

SAID = [
    said("t1", "a1", "user", "I live in Oslo.", at="2026-03-02T10:00:00Z"),
    said("t1", "a2", "assistant", "Noted.", at="2026-03-02T10:00:05Z"),
]


@pytest.fixture
def tested(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(cli.folder)
    cli.file("said.jsonl", *SAID)
    cli.file("replies.jsonl", reply("t1", fact("User lives in Oslo"), fact("User may like tea", 0.3)))
    return cli


def written(cli: Cli, *expect: object, **keys: object) -> str:
    whole = {"conversations": ["said.jsonl"], "replies": "replies.jsonl", "expect": expect, **keys}
    (cli.folder / "ada.test.yaml").write_text(json.dumps(whole))
    return "ada.test.yaml"


def test_all_that_holds_is_0(tested: Cli) -> None:
    out = tested.run("test", written(tested, {"remembers": "Oslo"}, {"never": "tea", "at": "t1"})).stdout
    assert out.splitlines() == [
        "ada.test.yaml: 1 update, 1 fact",
        '  holds  remembers "Oslo"',
        '  holds  never "tea" at t1',
        "2 expectations: all hold.",
    ]
    assert not (tested.home).exists()


def test_what_does_not_hold_is_1_and_says_why(tested: Cli) -> None:
    out = tested.run("test", written(tested, {"remembers": "Oslo"}, {"remembers": "tea"}), code=1).stdout
    refusal = (
        'commit 2 of thread t1 refused "User may like tea": threshold, confidence 0.3 is under the threshold of 0.7'
    )
    assert out.splitlines()[2:] == [
        '  FAILS  remembers "tea"',
        f"         {refusal}",
        "         | I live in Oslo.",
        "         | Noted.",
        "2 expectations: 1 not met.",
    ]


def test_a_wrong_file_and_a_missing_reply_are_2(tested: Cli) -> None:
    assert "did you mean never?" in tested.error("test", written(tested, {"nevr": "x"}), code=2)
    assert "cannot read none.yaml" in tested.error("test", "none.yaml", code=2)
    assert "name the file" in tested.error("test", code=2)
    tested.file("replies.jsonl", reply("t9", fact("x")))
    said = tested.error("test", written(tested, {"never": "x"}), code=2)
    assert "1 reply is missing: t1 (not recorded)" in said
    assert "--record" in said


def test_a_reply_that_is_none_is_noted_and_gives_no_advice_on_the_scratch_memory(tested: Cli) -> None:
    tested.file("replies.jsonl", {"thread_id": "t1", "reply": "I would rather not."})
    result = tested.run("test", written(tested, {"never": "x"}))
    assert result.stderr == ""
    assert "  the update of thread t1 failed: the reply holds no JSON object" in result.stdout


def test_a_reply_of_another_prompt_is_2_and_says_so(tested: Cli, model) -> None:
    model(lambda _: json.dumps({"newFacts": [fact("User lives in Oslo")]}))
    file = written(tested, {"remembers": "Oslo"}, replies="kept.jsonl")
    tested.run("test", file, "--record")
    tested.run("test", file)
    tested.file("said.jsonl", SAID[0] | {"content": "I live in Oslo!"}, SAID[1])
    assert "t1 (not recorded for this prompt)" in tested.error("test", file, code=2)


def test_json_has_every_verdict_and_the_same_twice_has_the_same_bytes(tested: Cli) -> None:
    file = written(tested, {"remembers": "Oslo"}, {"remembers": "tea"})
    first, again = (tested.run("--json", "test", file, code=1).stdout for _ in range(2))
    assert first == again
    result = json.loads(first)
    assert {key: result[key] for key in ("ok", "passed", "failed")} == {"ok": False, "passed": 1, "failed": 1}
    (one,) = result["files"]
    assert one["memory"] == [
        {"id": "fact_2_0", "content": "User lives in Oslo", "category": "knowledge", "confidence": 0.9}
    ]
    assert [(verdict["ok"], verdict["rule"]) for verdict in one["expectations"]] == [(True, None), (False, "threshold")]
    assert one["refused"] == {"threshold": 1}


def test_compare_shows_what_another_rule_another_reply_and_another_expectation_changed(tested: Cli) -> None:
    expected = {"remembers": "Oslo"}, {"never": "tea"}
    old = tested.folder / "old.json"
    old.write_text(tested.run("--json", "test", written(tested, *expected)).stdout)
    out = tested.run("test", "ada.test.yaml", "--compare", old).stdout
    assert out.splitlines()[-2:] == ["Compared: ada.test.yaml", "  nothing changed"]
    tested.file("replies.jsonl", reply("t1", fact("User lives in Rome"), fact("User may like tea", 0.3)))
    file = written(tested, *expected, {"never": "Paris"}, policy={"fact_confidence_threshold": 0.2})
    out = tested.run("test", file, "--compare", old, code=1).stdout
    assert out[out.index("Compared") :].splitlines()[1:] == [
        "  + User lives in Rome  knowledge",
        "  + User may like tea  knowledge",
        "  - User lives in Oslo  knowledge",
        '  remembers "Oslo": 1 of 1 -> 0 of 1',
        '  never "tea": 1 of 1 -> 0 of 1',
        '  never "Paris": none -> 1 of 1',
        "  fact_confidence_threshold: 0.7 -> 0.2",
        "  refused by threshold: 1 -> 0",
    ]
    (compared,) = tested.json("test", file, "--compare", old, code=1)["compared"]
    assert compared["policy"] == {"fact_confidence_threshold": {"before": 0.7, "after": 0.2}}
    assert [one["content"] for one in compared["removed"]] == ["User lives in Oslo"]


def test_compare_shows_another_model_another_prompt_and_the_tokens(tested: Cli) -> None:
    kept = {"thread_id": "t1", "reply": {"newFacts": [fact("User lives in Oslo")]}}
    for name, tokens in (("small", 100), ("big", 2_000)):
        tested.file("replies.jsonl", kept | {"model": name, "tokens_in": tokens, "tokens_out": 10})
        tested.folder.joinpath(f"{name}.json").write_text(
            tested.run("--json", "test", written(tested, {"remembers": "Oslo"}, model=name)).stdout
        )
    out = tested.run("test", "ada.test.yaml", "--compare", "small.json").stdout
    assert out.splitlines()[0] == "ada.test.yaml: 1 update, 1 fact, 2,000 tokens in and 10 out"
    assert out.splitlines()[-2:] == ["  tokens in: 100 -> 2,000", "  model: small -> big"]
    old = json.loads(tested.folder.joinpath("big.json").read_text())
    old["files"][0]["prompts"] = ["0" * 64]
    tested.folder.joinpath("old.json").write_text(json.dumps(old))
    assert "the prompts differ" in tested.run("test", "ada.test.yaml", "--compare", "old.json").stdout
    old["files"][0]["file"] = "other.yaml"
    tested.folder.joinpath("old.json").write_text(json.dumps(old))
    assert "was not in the earlier result" in tested.run("test", "ada.test.yaml", "--compare", "old.json").stdout


def test_compare_with_what_is_no_result_is_2(tested: Cli) -> None:
    file = written(tested, {"remembers": "Oslo"})
    assert "cannot read none.json" in tested.error("test", file, "--compare", "none.json", code=2)
    assert "replies.jsonl is not a result" in tested.error("test", file, "--compare", "replies.jsonl", code=2)


def test_junit_has_a_suite_for_a_file_and_a_case_for_an_expectation(tested: Cli) -> None:
    tested.file("said.jsonl", SAID[0] | {"content": "I live in Oslo.\x07 <b>&"}, SAID[1])
    file = written(tested, {"remembers": "Oslo"}, {"remembers": "tea"})
    shown = [tested.run("test", file, "--junit", "j.xml", code=1) and Path("j.xml").read_bytes() for _ in range(2)]
    assert shown[0] == shown[1]
    (suite,) = ET.fromstring(shown[0])  # noqa: S314 it is our own
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("ada.test.yaml", "2", "1")
    held, failed = suite
    assert [case.get("name") for case in suite] == ['remembers "Oslo"', 'remembers "tea"']
    assert list(held) == []
    assert "refused" in (failed[0].get("message") or "")
    assert "| I live in Oslo.\N{REPLACEMENT CHARACTER} <b>&" in (failed[0].text or "")


def test_junit_that_cannot_be_written_is_3(tested: Cli) -> None:
    file = written(tested, {"remembers": "Oslo"})
    assert "cannot write none/j.xml" in tested.error("test", file, "--junit", "none/j.xml", code=3)


def test_times_shows_rates(tested: Cli) -> None:
    out = tested.run(
        "test", "--times", "3", written(tested, {"remembers": "Oslo"}, {"remembers": "tea"}), code=1
    ).stdout
    assert '  holds  remembers "Oslo" (3 of 3 runs)' in out
    assert '  FAILS  remembers "tea" (0 of 3 runs)' in out


def test_a_home_of_its_own_is_replayed_by_its_updates(tested: Cli) -> None:
    for thread, words in (("t1", "I live in Oslo."), ("t2", "I moved to Bergen.")):
        tested.run("--user", "ada", "record", tested.file("c", said(thread, thread, "user", words)))
        tested.run("--user", "ada", "extract", "--replies", tested.file("r", reply(thread, fact(words))))
    kept = tested.file("replies.jsonl", reply("t1", fact("Lives in Oslo")), reply("t2", fact("Lives in Bergen")))
    assert kept.exists()

    def runs(**home: object) -> list[str]:
        file = written(tested, {"never": "Rome"}, conversations=None, home=home)
        (one,) = tested.json("test", file)["files"]
        return [fact["content"] for fact in one["memory"]]

    assert runs(user="ada") == ["Lives in Oslo", "Lives in Bergen"]
    assert runs(user="ada", threads=["t2"]) == ["Lives in Bergen"]
    assert runs(user="ada", until=2) == ["Lives in Oslo"]
    assert runs(user="ada", since=3) == ["Lives in Bergen"]
    assert "no conversation" in tested.error(
        "test", written(tested, {"never": "x"}, conversations=None, home={"user": "bob"}), code=1
    )
    assert [one["seq"] for one in tested.json("--user", "ada", "log")] == [3, 2, 1]


def test_the_rules_of_the_configuration_and_of_the_environment_hold(
    tested: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tested, {"remembers": "tea"})
    config = tested.folder / "rules.yaml"
    model = "{model: some, base_url: 'http://127.0.0.1:9/v1'}"
    config.write_text(f"memory: {{fact_confidence_threshold: 0.2, model: {model}, storage_path: elsewhere}}\n")
    tested.run("--config", config, "test", file)
    monkeypatch.setenv("BACKSTORY_FACT_CONFIDENCE_THRESHOLD", "0.1")
    tested.run("test", file)
    tested.run("test", written(tested, {"remembers": "tea"}, policy={"fact_confidence_threshold": 0.9}), code=1)


def test_nothing_of_the_machine_is_reached_or_written(tested: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_WITNESS", str(tested.folder / "heads"))
    monkeypatch.setenv("BACKSTORY_EVENT_STORE", "postgresql://nowhere.invalid/x")
    monkeypatch.setenv("BACKSTORY_STORAGE_PATH", str(tested.folder / "mine"))
    monkeypatch.setenv("BACKSTORY_STRICT_USER_SCOPE", "true")
    before = sorted(Path().iterdir())
    file = written(tested, {"remembers": "Oslo"})
    tested.run("test", file)
    assert sorted(Path().iterdir()) == sorted({*before, Path(file)})


def test_pytest_fails_with_the_reason(tested: Cli) -> None:
    assert memory_test(written(tested, {"remembers": "Oslo"})).ok
    with pytest.raises(AssertionError, match='1 of 1 fail\nremembers "tea"\n    commit 2 of thread t1 refused'):
        memory_test(written(tested, {"remembers": "tea"}))


@pytest.fixture
def undone(tested: Cli) -> Cli:
    """Fact fact_2_0 was learned from a question and undone."""
    tested.run(
        "--user", "ada", "record", tested.file("said.jsonl", said("t1", "a1", "user", "Should Ada move to Rome?"))
    )
    tested.run("--user", "ada", "extract", "--replies", tested.file("r.jsonl", reply("t1", fact("Ada moves to Rome"))))
    tested.run("--user", "ada", "revert", "2")
    return tested


def test_from_fact_shows_the_words_and_writes_them_with_yes(undone: Cli) -> None:
    made = undone.run(
        "--user", "ada", "test", "--from-fact", "fact_2_0", "--yes", "--rename", "Ada=Kim", "rome.test.yaml"
    )
    assert made.stdout.splitlines() == [
        "No erasure reaches these words once they are in a repository:",
        "| user: Should Kim move to Rome?",
        "| reply: Kim moves to Rome",
        "Wrote: rome.jsonl, rome.replies.jsonl, rome.test.yaml. Run `backstory test rome.test.yaml`.",
    ]
    assert 'FAILS  never "Kim moves to Rome"' in undone.run("test", "rome.test.yaml", code=1).stdout
    again = ("--user", "ada", "test", "--from-fact", "fact_2_0", "--yes")
    assert "rome.jsonl is there already" in undone.error(*again, "rome.test.yaml", code=2)
    assert undone.json(*again)["files"] == ["fact_2_0.jsonl", "fact_2_0.replies.jsonl", "fact_2_0.test.yaml"]


def test_from_fact_writes_nothing_without_a_yes(undone: Cli) -> None:
    before = sorted(Path().iterdir())
    asked = ("--user", "ada", "test", "--from-fact")
    assert "pass --yes" in undone.error(*asked, "fact_2_0", code=2)
    assert "OLD=NEW" in undone.error(*asked, "fact_2_0", "--yes", "--rename", "Ada", code=2)
    assert "name one FILE" in undone.error(*asked, "fact_2_0", "--yes", "a", "b", code=2)
    assert "no update of a model" in undone.error(*asked, "1", "--yes", code=1)
    assert sorted(Path().iterdir()) == before


@pytest.mark.slow
def test_from_fact_asks_on_a_terminal(undone: Cli) -> None:
    asked = ("--user", "ada", "test", "--from-fact", "fact_2_0")
    before = sorted(Path().iterdir())
    for answer in (b"n\n", b"\x04"):
        code, told = answered(undone, answer, *asked)
        assert code == 1
        assert "| user: Should Ada move to Rome?" in told
        assert "Write them into 3 files?" in told
        assert sorted(Path().iterdir()) == before
    assert answered(undone, b"y\n", *asked)[0] == 0
    assert Path("fact_2_0.test.yaml").exists()
