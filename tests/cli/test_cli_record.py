"""What is handed to `record`: files of all kinds, broken ones too, and whose they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commandline import Cli, said

OK = '{"thread_id":"t","role":"user","content":"fine"}'


def contents(cli: Cli, thread: str = "t") -> list[str]:
    return [turn["content"] for turn in cli.json("turns", thread)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"role":', "no JSON"),
        ("[1]", "must be an object"),
        ('"words"', "must be an object"),
        ('{"thread_id":"t","role":"boss","content":"x"}', "boss"),
        ('{"thread_id":"t","content":"x"}', "role"),
        ('{"thread_id":"t","role":"user","content":7}', "content"),
        ('{"thread_id":"t","role":"user","content":"x","at":"soon"}', "soon"),
        ('{"role":"user","content":"x"}', "thread_id"),
        ('{"thread_id":"","role":"user","content":"x"}', "thread_id"),
        ('{"thread_id":"t","role":"user","content":"x","agent_name":"../x"}', "../x"),
        ('{"thread_id":"t","role":"user","content":"x","agent_name":""}', "agent name"),
        ('{"thread_id":"t","role":"user","content":"x","user_id":""}', "user id"),
        ("[" * 100_000, "nested too deep"),
        (
            '{"thread_id":"t","role":"user","content":"x","id":' + "9" * 5_000 + "}",
            "a number of more than 4,300 digits",
        ),
        (b'{"thread_id":"t","role":"user","content":"\xff"}', "UTF-8"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_recorded(cli: Cli, line: str | bytes, told: str) -> None:
    file = cli.folder / "c"
    raw = line if isinstance(line, bytes) else line.encode()
    file.write_bytes(b"\n".join([OK.encode(), b"", raw, OK.encode()]))
    message = cli.error("record", file, code=2)
    assert "line 3" in message
    assert told in message
    assert not cli.home.exists()
    kept = cli.run("--json", "record", file, "--keep-going")
    assert json.loads(kept.stdout)["turns"] == 2
    assert "line 3" in kept.stderr
    assert told in kept.stderr
    assert contents(cli) == ["fine", "fine"]


def test_the_number_of_broken_lines_is_told(cli: Cli) -> None:
    file = cli.folder / "c"
    file.write_text(f"oh\n{OK}\nno\nmy")
    assert "line 1" in cli.error("record", file, code=2)
    assert "2 more" in cli.error("record", file, code=2)


def test_an_array_is_told_by_item_or_where_it_breaks(cli: Cli) -> None:
    file = cli.folder / "c"
    file.write_text(f"[{OK},\n 3]")
    assert "message 2" in cli.error("record", file, code=2)
    assert cli.json("record", file, "--keep-going")["turns"] == 1
    file.write_text(f"[{OK},\n {{3]")
    for words in (["record", file], ["record", file, "--keep-going"]):
        assert "line 2" in cli.error(*words, code=2)


def test_an_array_a_bom_crlf_and_blank_lines_are_read(cli: Cli) -> None:
    file = cli.folder / "c"
    file.write_bytes(b"\xef\xbb\xbf\r\n" + OK.encode() + b"\r\n\r\n" + OK.replace("fine", "two").encode())
    assert cli.json("record", file)["turns"] == 2
    file.write_bytes(b"\xef\xbb\xbf \n[" + OK.replace("fine", "three").encode() + b"]\n")
    assert cli.json("record", file)["turns"] == 1
    assert contents(cli) == ["fine", "two", "three"]


@pytest.mark.parametrize("text", ["", "\n\n", "[]"])
def test_nothing_is_nothing(cli: Cli, text: str) -> None:
    assert cli.json("record", "-", piped=text) == {
        "threads": 0,
        "turns": 0,
        "skipped": 0,
        "backlog": False,
        "superseded": 0,
        "cut": 0,
        "scopes": [],
    }


def test_what_is_piped_in_is_read(cli: Cli) -> None:
    cli.json("record", "-", "--thread", "t", piped='{"role":"human","content":"über"}\n')
    assert contents(cli) == ["über"]


def test_what_json_cannot_say_is_made_safe_not_refused(cli: Cli) -> None:
    line = '{"thread_id":"t","role":"user","content":"\\ud83d","metadata":{"a":NaN,"b":99999999999999999999999}}'
    cli.json("record", "-", piped=line)
    turn = cli.json("turns", "t")[0]
    assert turn["content"] == "\N{REPLACEMENT CHARACTER}"
    assert turn["metadata"] == {"a": "nan", "b": hex(99999999999999999999999)}


OTHERS = [
    said("t", "1", "user", "eve's", user_id="eve", agent_name="b"),
    said("t", "2", "user", "ada's"),
    said("t", "3", "user", "eve's and a's", user_id="eve"),
    {"id": "4", "role": "user", "content": "elsewhere"},
]


def test_a_line_beats_the_options_before_the_verb_if_that_is_asked_for(cli: Cli) -> None:
    owner = ["--user", "ada", "--agent", "a"]
    result = cli.json(*owner, "record", cli.file("c", *OTHERS), "--thread", "other", "--users-from-file")
    assert (result["threads"], result["turns"]) == (4, 4)

    def kept(user: str, agent: str) -> dict[str, list[str]]:
        owner = ["--user", user, "--agent", agent]
        names = [thread["thread"] for thread in cli.json(*owner, "threads")]
        return {name: [turn["content"] for turn in cli.json(*owner, "turns", name)] for name in names}

    assert kept("eve", "b") == {"t": ["eve's"]}
    assert kept("ada", "a") == {"t": ["ada's"], "other": ["elsewhere"]}
    assert kept("eve", "a") == {"t": ["eve's and a's"]}
    assert len(cli.json("scopes")) == 3


def test_lines_of_other_users_are_listed_and_nothing_is_recorded(cli: Cli) -> None:
    file = cli.file("c", *OTHERS)
    for words in ([], ["--keep-going"]):
        message = cli.error("--user", "ada", "--agent", "a", "record", file, "--thread", "other", *words, code=2)
        assert "others than user ada, agent a" in message
        assert "user eve, agent b (1), user eve (1); nothing was recorded" in message
        assert "--users-from-file" in message
    assert not cli.home.exists()


def test_many_other_users_are_counted(cli: Cli) -> None:
    rows = [said("t", str(n), "user", "hi", user_id=f"u{n}") for n in range(25)]
    message = cli.error("--user", "ada", "record", cli.file("c", *rows), code=2)
    assert "user u9 (1) and 15 more" in message
    assert "u10" not in message


def test_agents_of_lines_are_others_only_where_an_agent_is_required(cli: Cli) -> None:
    file = cli.file("c", said("t", "1", "user", "hi", agent_name="b"), said("t", "2", "user", "ho"))
    assert "user ada, agent a, each" in cli.error("--user", "ada", "--agent", "a", "record", file, code=2)
    scopes = cli.json("--user", "ada", "record", file)["scopes"]
    assert [(scope["user"], scope["agent"], scope["turns"]) for scope in scopes] == [("ada", "b", 1), ("ada", None, 1)]
    agents_only = cli.file("d", said("t", "1", "user", "hi", user_id="eve"))
    assert cli.json("--agent", "b", "record", agents_only)["scopes"][0]["user"] == "eve"


def test_the_same_user_spelled_as_a_number_is_no_other(cli: Cli) -> None:
    rows = [said("t", "1", "user", "hi", user_id=5, agent_name=7), said("t", "2", "user", "ho", user_id="5")]
    result = cli.json("--user", "5", "record", cli.file("c", *rows))
    assert [(scope["user"], scope["agent"]) for scope in result["scopes"]] == [("5", "7"), ("5", None)]


def test_what_went_to_whom_is_printed(cli: Cli) -> None:
    rows = [
        said("t", "1", "user", "hi", user_id="ada"),
        said("s", "1", "user", "ho", user_id="ada"),
        said("t", "2", "user", "hey", user_id="eve", agent_name="b"),
        said("t", "3", "user", "all"),
    ]
    file = cli.file("c", *rows)
    assert cli.run("record", file).stdout.splitlines()[:3] == [
        "recorded for user ada: 2 turns of 2 threads",
        "recorded for user eve, agent b: 1 turn of 1 thread",
        "recorded for global: 1 turn of 1 thread",
    ]
    again = cli.json("record", file)
    assert (again["threads"], again["turns"], again["skipped"]) == (4, 0, 4)
    assert again["scopes"][0] == {
        "user": "ada", "agent": None, "threads": 2, "turns": 0, "skipped": 2, "superseded": 0, "cut": 0,
    }  # fmt: skip


def test_interleaved_threads_keep_their_order(cli: Cli) -> None:
    rows = [said(f"t{n % 2}", str(n), "user", f"word {n}") for n in range(6)]
    assert cli.json("record", cli.file("c", *rows))["threads"] == 2
    assert contents(cli, "t0") == ["word 0", "word 2", "word 4"]
    assert contents(cli, "t1") == ["word 1", "word 3", "word 5"]


def test_a_configuration_that_wants_a_user_is_asked_before_anything_is_recorded(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTORY_STRICT_USER_SCOPE", "true")
    file = cli.file("c", said("t", "1", "user", "hi", user_id="ada"), said("t", "2", "user", "ho"))
    assert "strict_user_scope" in cli.error("record", file, code=2)
    assert not cli.home.exists()


@pytest.mark.parametrize("file", ["missing", "."])
@pytest.mark.parametrize("words", [["record"], ["import"], ["extract", "--replies"], ["retry", "--replies"]])
def test_a_file_that_cannot_be_read_is_wrong_use(cli: Cli, words: list[str], file: str) -> None:
    assert str(cli.folder / file) in cli.error(*words, cli.folder / file, code=2)


def test_broken_replies_are_told_by_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r"
    file.write_bytes(b'\xef\xbb\xbf{"thread_id":"t","reply":{}}\n\n{"thread_id":"t"}\n')
    assert "line 3" in cli.error("extract", "--replies", file, code=2)
    assert "line 3" in cli.error("retry", "--replies", file, code=2)


@pytest.mark.parametrize(("text", "told"), [("{", "no JSON"), ("[]", "no memory document"), ('{"facts":3}', "facts")])
def test_a_broken_document_is_wrong_use(cli: Cli, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "memory.json"
    file.write_text(text)
    assert told in cli.error("import", file, code=2)
    assert not cli.home.exists()


# Words without an answer.


def test_what_waits_for_an_answer_is_told_and_extract_learns_from_it(cli: Cli) -> None:
    lone = cli.file("c", said("t", "u1", "user", "I live in Oslo."))
    out = cli.run("record", lone).stdout
    assert re.search(
        r"^t: the last words wait for an answer until 20.{17}Z; `extract` learns from them now$", out, re.MULTILINE
    )
    assert (
        cli.run("record", lone).stdout
        == "recorded for global: 0 turns of 1 thread, 1 skipped (recorded already, or without content)\n"
    )
    (pending,) = cli.json("status")["pending"]
    assert (pending["thread"], pending["turns"], pending["waiting_for"]) == ("t", 1, "answer")
    assert 0 < pending["due_in"] <= 600
    page = cli.run("status").stdout
    assert re.search(r"waits for an answer until 20.{17}Z; `extract` learns from it now", page)
    assert "OPENAI_API_KEY" in cli.error("extract", code=3)
    replies = cli.file(
        "r", {"thread_id": "t", "reply": {"newFacts": [{"content": "Lives in Oslo", "confidence": 0.9}]}}
    )
    assert cli.json("extract", "--replies", replies)["updates"] == 1
    assert [fact["content"] for fact in cli.json("show")["facts"]] == ["Lives in Oslo"]
    assert cli.run("extract").stdout == "nothing was pending\n"


def test_what_an_answer_follows_and_an_acknowledgement_wait_for_no_answer(cli: Cli) -> None:
    rows = [
        said("t", "u1", "user", "I live in Oslo."),
        said("t", "a1", "assistant", "Nice."),
        said("u", "u2", "user", "ok"),
    ]
    assert "answer" not in cli.run("record", cli.file("c", *rows)).stdout
    replies = cli.file("r", {"thread_id": "u", "reply": {"newFacts": []}})
    unused = cli.run("extract", "--replies", replies)
    assert unused.stdout == "no update was made: 3 turns pending; see `status`\n"
    assert (
        cli.json("extract", "--replies", cli.file("r", {"thread_id": "t", "reply": {"newFacts": []}}))["updates"] == 1
    )
    assert cli.run("extract").stdout == "nothing to learn from: 1 pending turn will go along with the next update\n"
    assert "with the next update" in cli.run("status").stdout


def test_several_threads_that_wait_for_an_answer_are_counted(cli: Cli) -> None:
    rows = [
        said(thread, "u1", "user", "I live in Oslo.", user_id=user) for user, thread in (("ada", "a"), ("bob", "b"))
    ]
    assert "2 threads: the last words wait" in cli.run("record", cli.file("c", *rows)).stdout


def test_a_text_that_is_too_long_is_cut_aloud(cli: Cli) -> None:
    file = cli.file("long", said("t", "1", "user", "x" * 3_000_000), said("t", "2", "assistant", "That is long."))
    ran = cli.run("--json", "record", file)
    answer = json.loads(ran.stdout)
    assert (answer["turns"], answer["cut"], answer["scopes"][0]["cut"]) == (2, 1, 1)
    assert "a message of thread t has 3,000,000 characters: the first 1,000,000 are kept" in ran.stderr
    assert [len(text) for text in contents(cli)] == [1_000_000, 13]
    short = cli.run("--json", "record", cli.file("short", said("t", "3", "user", "x" * 1_000_000)))
    assert json.loads(short.stdout)["cut"] == 0
    assert "characters" not in short.stderr
