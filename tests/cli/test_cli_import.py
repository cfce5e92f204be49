"""Imports of what other tools export: recognised, recorded or taken in, once however often it is imported."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from commandline import Cli, reply
from exports import (
    CLAUDE_MEMORY,
    MCP_MEMORY,
    chatgpt,
    claude,
    claude_code,
    codex,
    codex_items,
    lines,
    mem0,
    open_webui,
    write,
)

from backstory.operations import importing as file_import
from backstory.operations.recording import Intake

SAMPLES: dict[str, tuple[object, str, int]] = {
    "chatgpt": ([chatgpt()], "conversations.json", 4),
    "claude": ([claude()], "conversations.json", 2),
    "open-webui": ([open_webui()], "chats.json", 2),
    "claude-code": (lines(*claude_code()), "s.jsonl", 2),
    "codex": (lines(*codex()), "rollout.jsonl", 2),
    "mem0": ({"results": [mem0()]}, "mem0.json", 1),
    "mcp-memory": (lines(*MCP_MEMORY), "memory.jsonl", 3),
    "facts": (["Likes tea", {"content": "Rows"}], "facts.json", 2),
    "csv": ("content,category\nLikes tea,preference\n", "facts.csv", 1),
    "claude-memory": ([CLAUDE_MEMORY], "memories.json", 3),
    "markdown": ("# Memory\n\n- Likes tea\n- Rows\n", "MEMORY.md", 2),
    "text": ("Likes tea\nRows\n", "facts.txt", 2),
}
"""A file of each format, and how many turns or facts it brings."""


@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_is_recognised_shown_imported_once_and_named(cli: Cli, name: str) -> None:
    content, file, count = SAMPLES[name]
    path = write(cli.folder, content, file)
    shown = cli.run("import", path, "--dry-run").stdout
    assert f"({name}): {count} " in shown
    assert "nothing was written" in shown
    assert not cli.home.exists()
    read = cli.json("import", path)["read"]
    assert (read["format"], read["new"], read["known"]) == (name, count, 0)
    status = cli.json("status")
    again = cli.json("import", path)["read"]
    assert (again["new"], again["known"]) == (0, count)
    now = cli.json("status")
    assert [now[key] for key in ("seq", "facts", "turns", "transcript_bytes")] == [
        status[key] for key in ("seq", "facts", "turns", "transcript_bytes")
    ]
    assert cli.json("verify")["ok"]


def test_the_folder_of_an_unpacked_export_is_read_like_its_zip_file(cli: Cli) -> None:
    for name, content in {"conversations-000.json": [chatgpt("c1")], "conversations-001.json": [chatgpt("c2")]}.items():
        write(cli.folder, content, name)
    write(cli.folder, [], "user.json")
    assert "8 turns of 2 conversations" in cli.run("import", cli.folder).stdout


def test_a_folder_of_sessions_is_read_with_all_below_it(cli: Cli) -> None:
    for day, head in {"01": "x1", "02": "x2"}.items():
        folder = cli.folder / "sessions" / "2026" / "01" / day
        folder.mkdir(parents=True)
        rows = json.loads(json.dumps(codex_items()).replace('"x1"', f'"{head}"'))
        write(folder, lines(*rows), f"rollout-2026-01-{day}T00-00-00-{head}.jsonl")
        write(folder, "", f"rollout-2026-01-{day}T00-00-01-empty.jsonl")
    shown = cli.run("import", cli.folder / "sessions").stdout
    assert "a session file of Codex (codex): 4 turns of 2 conversations" in shown
    assert "0 recorded, 4 were here already" in cli.run("import", cli.folder / "sessions").stdout


def test_one_fact_was_here_already(cli: Cli) -> None:
    path = write(cli.folder, "Likes tea\n", "notes.txt")
    cli.run("import", path)
    assert "\n1 was here already\n" in cli.run("import", path).stdout


def test_a_dry_run_names_no_user_as_unknown_who_is_to_be_new(cli: Cli) -> None:
    path = write(cli.folder, [chatgpt()])
    assert cli.run("--user", "ada", "import", path, "--dry-run").stderr == ""


def test_conversations_have_their_own_times_and_what_is_learned_is_backdated(cli: Cli) -> None:
    shown = cli.run("import", write(cli.folder, [chatgpt()])).stdout
    assert "4 turns of 1 conversation" in shown
    assert "backstory extract --clock turns" in shown
    assert "left out: 1, images and files" in shown
    assert [turn["at"][:10] for turn in cli.json("turns", "c1")] == ["2023-11-14"] * 4
    answers = cli.file("replies", reply("c1", {"content": "Lives in Oslo", "confidence": 0.9}))
    (seq,) = cli.json("extract", "--clock", "turns", "--replies", answers)["commits"]
    assert next(entry["at"] for entry in cli.json("log") if entry["seq"] == seq).startswith("2023-11-14")


def test_two_exports_that_overlap_bring_what_is_new(cli: Cli) -> None:
    longer = chatgpt()
    nodes: Any = longer["mapping"]
    nodes["more"] = {"parent": "b", "message": {**nodes["q"]["message"], "id": "more"}}
    nodes["more"]["message"]["content"] = {"content_type": "text", "parts": ["And a cat."]}
    longer["current_node"] = "more"
    cli.run("import", write(cli.folder, [chatgpt(), chatgpt("c2")]))
    read = cli.json("import", write(cli.folder, [longer, chatgpt("c2"), chatgpt("c3")]))["read"]
    assert (read["new"], read["known"]) == (5, 8)
    assert [turn["content"] for turn in cli.json("turns", "c1")][-1] == "And a cat."


def test_an_import_that_was_cut_off_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(cli.folder, [chatgpt(f"c{n}") for n in range(4)])
    take_in = Intake.take_in

    def stopped(self: Intake, thread: str, kept: Any, **more: Any) -> Any:
        if thread == "c2":
            raise KeyboardInterrupt
        return take_in(self, thread, kept, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "take_in", stopped)
        assert "run it again" in cli.run("import", path, code=130).stderr
    read = cli.json("import", path)["read"]
    assert (read["new"], read["known"]) == (8, 8)


def test_a_file_of_no_known_format_is_wrong_use_and_nothing_is_kept(cli: Cli) -> None:
    for content in ([{"title": "T", "current_node": "x"}], {"user": "ada", "age": 3}, [{"a": 1}], "x\n"):
        path = write(cli.folder, content)
        assert str(path) in cli.error("import", path, code=2)
    assert not cli.home.exists()


def test_a_file_that_was_cut_short_is_wrong_use_and_nothing_is_kept(cli: Cli) -> None:
    whole = write(cli.folder, [chatgpt("c1"), chatgpt("c2")]).read_bytes()
    assert "was cut short" in cli.error("import", write(cli.folder, whole[:-9]), code=2)
    assert not cli.home.exists()


def test_facts_are_read_as_meant_or_refused_one_by_one_with_a_count_by_reason(cli: Cli) -> None:
    items = [
        mem0(id="m1", memory="A", confidence=None, category=None, created_at=1_700_000_000),
        mem0(id="m2", memory="B", confidence="0.8", created_at="1700000000000", categories=["goal", "sport"]),
        mem0(id="m3", memory="C", confidence="high"),
        mem0(id="m4", memory="D", confidence=7),
        mem0(id="m5", memory="E", confidence=0.1),
        mem0(id="m1", memory="F", metadata={"room": 5}),
        mem0(id="m7", memory="G", expiration_date="2020-01-01"),
        mem0(id="m8", memory="H", expiration_date="2099-01-01"),
        mem0(id="m9", memory=""),
        "not an object",
    ]
    path = write(cli.folder, items)
    document = cli.json("import", path)
    assert [(f["id"], f["content"], f["confidence"], f["category"]) for f in document["facts"]] == [
        ("m1", "A", 0.9, "context"),
        ("m2", "B", 0.8, "goal"),
        ("fact_2_5", "F", 0.9, "context"),
        ("m8", "H", 0.9, "context"),
        ("fact_2_9", "not an object", 0.9, "context"),
    ]
    assert [f["createdAt"][:10] for f in document["facts"][:2]] == ["2023-11-14"] * 2
    assert document["facts"][1]["tags"] == ["goal", "sport"]
    assert document["facts"][2]["attributes"] == {"room": 5}
    assert document["facts"][3]["expiresAt"] == "2099-01-01"
    assert document["read"]["refused"] == {
        "confidence has to be a number from 0 to 1": 2,
        "content is missing": 1,
        "threshold": 1,
        "expired": 1,
    }
    assert document["read"]["unread_keys"] == ["hash"]
    shown = cli.run("--user", "bob", "import", path).stdout
    assert "refused: 2, confidence has to be a number from 0 to 1" in shown
    assert "keys that were not read: hash" in shown


def test_a_file_of_several_users_is_imported_for_one_of_them(cli: Cli) -> None:
    path = write(cli.folder, [mem0(), mem0(id="m1", user_id="bob", memory="Rows")])
    assert "several users, each with a number of items: ada (1), bob (1)" in cli.error("import", path, code=2)
    assert "names no user 'eve', but ada (1), bob (1)" in cli.error("import", path, "--of", "eve", code=2)
    assert [f["content"] for f in cli.json("--user", "b", "import", path, "--of", "bob")["facts"]] == ["Rows"]


def test_a_long_list_is_several_commits_and_writes_nothing_when_it_comes_again(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_import, "_IN_ONE_COMMIT", 40)
    path = write(cli.folder, "".join(f"Fact number {n}\n" for n in range(150)), "f.txt")
    first = cli.json("import", path)
    evicted = {"facts that were evicted, since memory holds 100 (max_facts)": 50}
    assert (len(first["facts"]), first["read"]["left_out"], first["commit"]) == (100, evicted, 5)
    assert cli.json("import", path)["read"]["known"] == 150
    assert cli.json("head")["seq"] == 5
    # What was taken away since comes back.
    cli.run("clear")
    assert len(cli.json("import", path)["facts"]) == 100


def test_tags_are_given_to_turns_and_facts(cli: Cli) -> None:
    cli.run("import", write(cli.folder, lines(*codex())), "--tag", "heron")
    answers = cli.file("replies", reply("x1", {"content": "Uses ruff", "confidence": 0.9}))
    cli.run("extract", "--replies", answers)
    cli.run("import", write(cli.folder, [mem0(categories=["food", "drinks"])]), "--tag", "heron")
    tags = [fact["tags"] for fact in cli.json("fact", "list")]
    assert tags == [["heron"], ["heron", "food", "drinks"]]
    assert "leave --tag out" in cli.error("import", write(cli.folder, {"facts": []}), "--tag", "heron", code=2)


def test_a_long_import_lets_go_of_turns_and_still_knows_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_import, "_HELD", 3)
    path = write(cli.folder, [chatgpt(f"c{n}") for n in (1, 2, 3, 1)])
    assert cli.json("import", path)["read"]["new"] == 12
    assert cli.json("import", path)["read"]["known"] == 16
    assert [(one["thread"], one["turns"]) for one in cli.json("threads")] == [("c1", 4), ("c2", 4), ("c3", 4)]


def test_replace_is_for_facts(cli: Cli) -> None:
    cli.run("fact", "add", "Has a dog")
    assert "leave --replace out" in cli.error("import", write(cli.folder, [chatgpt()]), "--replace", code=2)
    path = write(cli.folder, "Likes tea\nRows\n", "f.txt")
    assert [f["content"] for f in cli.json("import", path, "--replace")["facts"]] == ["Likes tea", "Rows"]


def test_standard_input_and_a_stated_format(cli: Cli) -> None:
    assert len(cli.json("import", "-", "--as", "text", piped="Likes tea\n")["facts"]) == 1
    assert cli.json("import", "-", piped=lines(*codex()))["read"]["turns"] == 2
    refused = cli.run("import", "-", piped="Likes tea\n", code=2)
    assert "standard input is a text of no known format" in refused.stderr
    assert "'word' is no format" in cli.error("import", write(cli.folder, "x"), "--as", "word", code=2)


def test_our_own_markdown_comes_back_with_its_ids(cli: Cli, tmp_path: Path) -> None:
    cli.run("--user", "ada", "fact", "add", "Likes tea", "--category", "preference", "--until", "2099")
    exported = cli.run("--user", "ada", "export", "--markdown").stdout
    (fact,) = cli.json("--user", "bob", "import", write(tmp_path, exported, "MEMORY.md"))["facts"]
    assert (fact["id"], fact["content"], fact["validUntil"]) == ("fact_2_0", "Likes tea", "2099")
    assert fact["category"] == "preference"


def test_our_own_markdown_comes_back_as_it_was(cli: Cli, tmp_path: Path) -> None:
    for words in (
        ["Says <!-- x --> & (until 2000) <b>", "--category", "my cats"],
        ["Rents in Oslo", "--from", "2020-01-01", "--until", "2098-02-03", "--expires", "2099-01-01"],
        ["Is on leave", "--expires", "2099-01-01"],
        ["Likes tea"],
    ):
        cli.run("--user", "ada", "fact", "add", *words)
    exported = cli.run("--user", "ada", "export", "--markdown").stdout
    cli.run("--user", "bob", "import", write(tmp_path, exported, "MEMORY.md"))
    assert cli.run("--user", "bob", "export", "--markdown").stdout == exported
    both = [
        sorted(
            (
                fact["id"],
                fact["content"],
                fact["category"],
                fact.get("validFrom"),
                fact.get("validUntil"),
                fact.get("expiresAt"),
            )
            for fact in cli.json("--user", user, "fact", "list")
        )
        for user in ("ada", "bob")
    ]
    assert both[0] == both[1]


def test_all_about_a_user_is_written_as_a_zip_file(cli: Cli) -> None:
    cli.run("--user", "ada", "fact", "add", "Likes tea")
    result = cli.run("export", "--all-about", "ada")
    with zipfile.ZipFile(io.BytesIO(result.stdout_bytes)) as archive:
        assert b"Likes tea" in archive.read("memory/ledger.jsonl")
    assert result.stderr == "backstory: wrote 1 memory of user ada\n"
    assert "no user eve is known" in cli.error("export", "--all-about", "eve", code=1)
    assert "leave --markdown" in cli.error("export", "--all-about", "ada", "--markdown", code=2)
