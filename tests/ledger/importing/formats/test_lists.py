"""Files of facts: what comes over of each, and what is refused or named."""

from __future__ import annotations

from pathlib import Path

import pytest
from exports import CLAUDE_MEMORY, MCP_MEMORY, everything, lines, mem0, write

from backstory.ledger.core.errors import InputError
from backstory.ledger.importing.formats.recognising import recognise
from backstory.ledger.importing.formats.tally import Tally


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: {"count": 1, "next": None, "results": [one]}])
def test_mem0_in_a_list_or_as_its_api_answers(tmp_path: Path, wrap: object) -> None:
    tally = Tally()
    assert callable(wrap)
    path = write(tmp_path, wrap(mem0(categories=["food", "health"], expiration_date="2027-01-01", immutable=True)))
    assert recognise(path).format.name == "mem0"
    assert everything(path, tally) == [
        {
            "source": "mem0",
            "id": "m0",
            "content": "Likes tea",
            "category": ["food", "health"],
            "tags": ["food", "health"],
            "createdAt": "2025-07-20T01:30:36.275141-07:00",
            "expiresAt": "2027-01-01",
        }
    ]
    assert list(tally.unread) == ["hash", "immutable"]
    assert tally.users == {"ada": 1}


def test_only_one_users_memories_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path, [mem0(), mem0(id="m1", user_id="bob"), mem0(user_id=None)])
    tally = Tally("bob")
    assert [fact["id"] for fact in everything(path, tally) if isinstance(fact, dict)] == ["m1"]
    assert tally.users == {"ada": 1, "bob": 1}


def test_the_memory_of_the_mcp_server(tmp_path: Path) -> None:
    tally = Tally()
    broken = {"type": "entity", "name": "X", "observations": [5]}
    path = write(tmp_path, lines(*MCP_MEMORY, broken, {"type": "relation"}), "memory.jsonl")
    assert recognise(path).format.name == "mcp-memory"
    assert [fact["content"] for fact in everything(path, tally) if isinstance(fact, dict)] == [
        "Ada Lovelace: Likes tea",
        "Ada Lovelace: Plays chess",
        "Ada Lovelace lives in Oslo",
    ]
    assert sum(tally.refused.values()) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_a_table(tmp_path: Path, end: str, mark: str, between: str) -> None:
    rows = ["Memory", "Confidence", "Valid_From", "Tags"], ["Likes tea", "0.8", "2024", "a|b"], ["Rows"], ["Short", ""]
    path = write(tmp_path, (mark + end.join(between.join(row) for row in rows)).encode(), "facts.csv")
    assert recognise(path).format.name == "csv"
    assert everything(path) == [
        {"content": "Likes tea", "confidence": "0.8", "validFrom": "2024", "tags": ["a", "b"]},
        {"content": "Rows"},
        {"content": "Short"},
    ]


def test_lines_and_texts(tmp_path: Path) -> None:
    tally = Tally()
    assert everything(write(tmp_path, lines({"content": "A"}, "B", 5) + "{\n", "f.jsonl"), tally) == [
        {"content": "A"},
        {"content": "B"},
    ]
    assert len(tally.refused) == 2
    assert everything(write(tmp_path, "\ufeffA\r\n\r\n B\n", "f.txt")) == [{"content": "A"}, {"content": "B"}]


def test_every_name_of_a_key_that_a_document_may_use_is_read_and_no_other(tmp_path: Path) -> None:
    fact = {"content": "Likes tea", "confirmations": 2, "confirmedAt": "2026-02-01", "confirmed_at": "2026-03-01"}
    tally = Tally()
    (found,) = everything(write(tmp_path, [fact]), tally)
    del fact["confirmed_at"]
    assert found == fact
    assert list(tally.unread) == ["confirmed_at"]


def test_a_line_that_includes_a_file_is_no_fact(tmp_path: Path) -> None:
    tally = Tally()
    path = write(
        tmp_path, "# Preferences\n\nLikes *tea*\n\n@docs/extra.md\n- @~/more.md\n\nAsk @ada first\n@ada\n", "CLAUDE.md"
    )
    assert everything(path, tally) == [
        {"content": "Likes *tea*", "category": "preference"},
        {"content": "Ask @ada first @ada", "category": "preference"},
    ]
    assert tally.left_out == {"files that are included": 2}


def test_the_memory_that_claude_keeps_is_text(tmp_path: Path) -> None:
    facts = [
        {"content": content, "source": "claude"}
        for content in ("Ada plays the cello in Bergen.", "Likes tea", "Uses ruff.")
    ]
    for content in ([CLAUDE_MEMORY], CLAUDE_MEMORY):
        path = write(tmp_path, content, "memories.json")
        assert recognise(path).format.name == "claude-memory"
        assert everything(path) == facts
    broken = {"conversations_memory": 5, "project_memories": {"p": None, "q": "Fine."}}
    assert everything(write(tmp_path, broken)) == [{"content": "Fine.", "source": "claude"}]


def test_mem0_of_typescript_writes_other_keys(tmp_path: Path) -> None:
    tally = Tally("ada")
    memory = {
        "id": "m0",
        "memory": "Likes tea",
        "userId": "ada",
        "createdAt": "2025-07-20T01:30:36Z",
        "expirationDate": "2099-01-01",
    }
    assert everything(write(tmp_path, {"results": [memory, {**memory, "userId": "eve"}]}), tally) == [
        {
            "id": "m0",
            "content": "Likes tea",
            "createdAt": "2025-07-20T01:30:36Z",
            "expiresAt": "2099-01-01",
            "source": "mem0",
        }
    ]
    assert tally.users == {"ada": 1, "eve": 1}
    assert not tally.unread


def test_markdown(tmp_path: Path) -> None:
    notes = """---
name: x
---
# Memory

Uses pnpm,
not npm.

## Preferences

- Likes tea (until 2025-03) <!-- fact_2_0 -->
* [x] Rows
  on Sundays
```sh
make test
```
## Commands
1. Run make check <!-- a note -->
"""
    path = write(tmp_path, notes, "CLAUDE.md")
    assert recognise(path).format.name == "markdown"
    assert everything(path) == [
        {"content": "Uses pnpm, not npm."},
        {"content": "Likes tea", "category": "preference", "id": "fact_2_0", "validUntil": "2025-03"},
        {"content": "Rows on Sundays", "category": "preference"},
        {"content": "Run make check", "id": "a note"},
    ]


@pytest.mark.parametrize(
    ("content", "name", "told"),
    [
        ("", "x.json", "is empty"),
        ("[]", "x.json", "it holds no object"),
        ("{", "x.json", "no JSON"),
        (
            [{"title": "T", "current_node": "a"}],
            "x.json",
            "is a ChatGPT export (chatgpt), but mapping is missing",
        ),
        ([{"hash": "0", "user_id": "u", "categories": []}], "x.json", "(mem0), but memory is missing"),
        ([{"type": "entity", "name": "A"}], "x.json", "(mcp-memory), but observations is missing"),
        ([{"category": "goal"}], "x.json", "(facts), but content is missing"),
        ([{"lat": 1, "lon": 2}], "x.json", "an item has lat, lon; known are memory, chatgpt,"),
        ([{"role": "user", "content": "hi"}], "x.json", "`backstory record"),
        ([{"type": "human", "content": "hi"}], "x.json", "`backstory record"),
        ("2026-01-01 INFO started\n2026-01-01 INFO done\n", "x.log", "--as text"),
        ("name,age\nada,36\n", "x.csv", "a CSV needs"),
        ("Likes tea\n".encode("utf-16"), "x.txt", "UTF-16"),
        (b"\x89PNG\0\0", "x.png", "no text"),
        ([1, 2], "x.json", "it holds no object"),
    ],
)
def test_what_has_no_known_format_names_the_nearest_and_what_is_missing(
    tmp_path: Path, content: object, name: str, told: str
) -> None:
    with pytest.raises(InputError) as refused:
        recognise(write(tmp_path, content, name))
    assert told in str(refused.value)


def test_a_wrong_encoding_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2 is no UTF-8"):
        everything(write(tmp_path, b"Tee\nK\xe4se\n", "f.txt"))


def test_a_format_may_be_stated(tmp_path: Path) -> None:
    path = write(tmp_path, "Likes tea\nRows\n", "notes")
    assert everything(path, stated="text") == [{"content": "Likes tea"}, {"content": "Rows"}]
    with pytest.raises(InputError, match="'word' is no format; those that can be imported: memory, chatgpt"):
        recognise(path, "word")
