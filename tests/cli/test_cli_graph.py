"""`backstory graph`: where it is written, what it never writes over, and the graph as data."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from commandline import Cli, said


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that somebody works in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_page_is_written_where_one_works_and_written_anew_the_next_time(story: Cli, here: Path) -> None:
    told = story.run("graph").stdout
    assert told == "wrote backstory-graph.html: 2 threads, 3 updates, 3 facts, 1 section\n"
    page = here / "backstory-graph.html"
    first = page.read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>")
    assert "User lives in Bergen" in first
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    story.run("fact", "add", "User has a cat")
    story.run("graph")
    assert "User has a cat" in page.read_text(encoding="utf-8")
    assert [path.name for path in here.iterdir()] == [page.name]


def test_the_format_is_what_is_said_or_what_the_name_ends_in(story: Cli, here: Path) -> None:
    for words in (["--format", "dot"], ["--format", "mermaid"], ["--format", "json"]):
        story.run("graph", *words)
    for name in ("a.DOT", "a.gv", "a.mmd", "a.json", "a.htm", "c"):
        story.run("graph", "--out", name)
    story.run("graph", "--out", "b.dot", "--format", "html")
    begins = {path.name: path.read_text(encoding="utf-8")[:5] for path in here.iterdir()}
    assert begins == {
        "backstory-graph.dot": "digra",
        "backstory-graph.mmd": "%% me",
        "backstory-graph.json": '{"use',
        "a.DOT": "digra",
        "a.gv": "digra",
        "a.mmd": "%% me",
        "a.json": '{"use',
        "a.htm": "<!doc",
        "b.dot": "<!doc",
        "c": "<!doc",
    }
    assert ".png" in story.error("graph", "--out", "x.png", code=2)
    story.run("graph", "--out", "x.png", "--format", "dot")


def test_svg_is_refused_and_the_other_formats_are_named(story: Cli, here: Path) -> None:
    said = story.error("graph", "--out", "x.svg", code=2)
    assert "must end in .html, .dot, .gv, .mmd or .json, got x.svg" in said
    assert "dot -Tsvg" in said
    told = story.run("graph", "--format", "svg", code=2).stderr
    assert all(name in told for name in ("svg", "html", "dot", "mermaid", "json"))
    assert not list(here.iterdir())


def test_the_json_file_is_the_graph_as_data(story: Cli, here: Path) -> None:
    story.run("graph", "--out", "g.json")
    story.run("graph", "--messages", "--out", "m.json")
    assert json.loads((here / "g.json").read_text(encoding="utf-8")) == story.json("graph")
    assert json.loads((here / "m.json").read_text(encoding="utf-8")) == story.json("graph", "--messages")


def test_a_minus_is_standard_output_whatever_the_locale(story: Cli, here: Path) -> None:
    story.run("fact", "add", "用户喜欢茶")
    for name in ("html", "dot", "mermaid", "json"):
        assert "用户喜欢茶" in story.run("graph", "--out", "-", "--format", name).stdout
    process = story.process("graph", "--out", "-", env=os.environ | {"PYTHONIOENCODING": "ascii"}, encoding="utf-8")
    assert "用户喜欢茶" in process.stdout
    assert not list(here.iterdir())


def test_nothing_of_others_is_written_over_unless_that_is_wanted(story: Cli, here: Path) -> None:
    notes = here / "notes.html"
    notes.write_text("my notes")
    (here / "empty.dot").touch()
    (here / "notes.json").write_text('{"user":"ada","my":"notes"}')
    message = story.error("graph", "--out", "notes.html", code=2)
    assert "notes.html exists and is not a graph of memory" in message
    assert "--force" in message
    assert "exists and is not" in story.error("graph", "--out", "notes.json", code=2)
    assert notes.read_text() == "my notes"
    for name in ("html", "dot", "mermaid", "json", "html"):
        # Each is written over the one before it.
        story.run("graph", "--out", "empty.dot", "--format", name)
    story.run("graph", "--messages", "--out", "empty.dot", "--format", "json")
    story.run("graph", "--out", "empty.dot")
    story.run("graph", "--out", "notes.html", "--force")
    assert "my notes" not in notes.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_said_and_leaves_nothing(story: Cli, here: Path) -> None:
    (here / "folder.dot").mkdir()
    assert "is a folder" in story.error("graph", "--out", "folder.dot", code=2)
    assert "there is no folder" in story.error("graph", "--out", "none/x.dot", code=2)
    assert not list((here / "folder.dot").iterdir())


def test_a_link_leads_to_where_it_leads_and_a_pipe_is_written_to(story: Cli, here: Path) -> None:
    (here / "link.dot").symlink_to(here / "real.dot")
    story.run("graph", "--out", "link.dot")
    assert (here / "link.dot").is_symlink()
    assert (here / "real.dot").read_text(encoding="utf-8").startswith("digraph ")
    os.mkfifo(here / "pipe.dot")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((here / "pipe.dot").read_text(encoding="utf-8")), daemon=True)
    reader.start()
    story.run("graph", "--out", "pipe.dot")
    reader.join(20)
    assert read[0].startswith("digraph ")


def test_json_is_the_graph_itself_or_where_it_was_written(story: Cli, here: Path) -> None:
    graph = story.json("graph")
    assert not list(here.iterdir())
    assert set(graph) == {"user", "agent", "seq", "nodes", "edges", "left_out", "thread", "fact", "since"}
    assert {node["kind"] for node in graph["nodes"]} == {"thread", "update", "fact", "section"}
    assert {"source": "fact:fact_2_1", "target": "fact:fact_3_0", "kind": "superseded-by", "seq": 3} in graph["edges"]
    gone = next(node for node in graph["nodes"] if node["id"] == "fact:fact_2_1")
    assert (gone["live"], gone["gone"]["reason"], gone["gone"]["note"]) == (False, "model", "moved")
    assert story.json("graph", "--out", "g.dot", "--limit", "2") == {
        "written": "g.dot",
        "format": "dot",
        "shown": {"threads": 2, "updates": 2, "facts": 3, "sections": 1},
        "left_out": {"updates": 1, "facts": 0},
    }
    failure = json.loads(story.run("--json", "graph", "--out", "-", code=2).stdout)
    assert "standard output" in failure["error"]["message"]


def test_it_is_narrowed_as_the_log_is(story: Cli) -> None:
    def updates(*words: str) -> list[int]:
        return [node["seq"] for node in story.json("graph", *words)["nodes"] if node["kind"] == "update"]

    assert updates("--limit", "1") == [3]
    assert updates("--since", "3") == [3]
    assert updates("--fact", "fact_2_0") == [2]
    assert updates("--thread", "t2") == [2, 3]
    assert "no fact" in story.error("graph", "--fact", "fact_9", code=1)
    assert "no thread" in story.error("graph", "--thread", "t9", code=1)
    assert "since must be a commit" in story.error("graph", "--since", "soon", code=2)
    told = story.run("graph", "--limit", "1").stdout
    assert "left out: 2 updates, 1 fact; a higher --limit shows more" in told


def test_messages_shows_who_sent_what_to_whom(cli: Cli, here: Path) -> None:
    routed = {"sent_from": "Alice", "send_to": ["Bob"], "cause_by": "actions.WritePRD"}
    cli.run("record", cli.file("c", said("t", "1", "user", "do it", **routed), said("t", "2", "assistant", "ok")))
    assert cli.run("graph", "--messages").stdout == "wrote backstory-messages.html: 2 turns, 2 routes\n"
    assert "WritePRD" in (here / "backstory-messages.html").read_text(encoding="utf-8")
    routes = cli.json("graph", "--messages", "--thread", "t")["routes"]
    assert [(route["sender"], route["receiver"], route["turns"]) for route in routes] == [
        ("Alice", "Bob", 1),
        ("assistant", None, 1),
    ]
    assert "since must be a time" in cli.error("graph", "--messages", "--since", "3", code=2)
    assert "leave one of them out" in cli.error("graph", "--messages", "--fact", "fact_2", code=2)


def test_what_was_said_steers_neither_the_terminal_nor_the_file(cli: Cli) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\x7f\u202eabc</title></svg><script>alert(1)</script>"
    cli.run("fact", "add", evil)
    cli.run("record", cli.file("c", said(f"th{evil}", "1", "user", evil, name=evil)))
    for words in ([], ["--messages"]):
        for name in ("html", "dot", "mermaid", "json"):
            written = cli.run("graph", "--out", "-", "--format", name, *words).stdout
            assert not {"\x1b", "\x07", "\x9b", "\x7f"} & set(written)
            assert ("\u202e" in written) == (name == "json")
            assert ("<script>alert" in written) == (name in ("dot", "json"))
    assert cli.run("graph", "--out", f"x{evil.replace('/', '')}.dot").stdout.strip().isprintable()
