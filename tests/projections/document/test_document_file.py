"""memory.json is written whole, follows the ledger, and never swallows what a person wrote into it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson
import pytest
from fakes import FakeClock, open_home

from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.projections.document.document import DocumentFile, document_of, render, stated_moment

AT = "2026-03-01T12:00:00.000000Z"
LATER = "2026-03-01T13:00:00.000000Z"


def memory(*facts: str, at: str = AT) -> Memory:
    live = {
        f"fact_{n}": Fact(
            id=f"fact_{n}", content=text, category="goal", confidence=0.9, created_at=AT, source="t", seq=n
        )
        for n, text in enumerate(facts, 2)
    }
    return Memory(seq=1 + len(facts), at=at, changed_at=at, facts=live)


def nothing(moment: str) -> Iterable[Memory]:
    return ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.json"


def others(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file != path}


def test_it_shows_the_memory(path: Path) -> None:
    file = DocumentFile(path, nothing)
    file.write(render(memory("runs")))
    assert path.read_bytes() == render(memory("runs"))
    assert path.stat().st_mode & 0o777 == 0o600
    file.write(render(memory("runs", "喜欢 tea")))
    assert path.read_bytes() == render(memory("runs", "喜欢 tea"))
    assert "喜欢 tea".encode() in path.read_bytes()
    assert others(path) == {}


def test_it_is_replaced_and_never_written_into(path: Path) -> None:
    file = DocumentFile(path, nothing)
    file.write(render(memory("runs")))
    with path.open("rb") as reader:
        file.write(render(memory("walks")))
        assert reader.read() == render(memory("runs"))


def test_what_is_right_is_left_alone_and_only_its_time_says_that_it_was_looked_at(path: Path) -> None:
    file = DocumentFile(path, nothing)
    file.write(render(memory("runs")))
    os.utime(path, (1, 1))
    before = path.stat()
    file.write(render(memory("runs")))
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime > before.st_mtime


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "a word": lambda data: data.replace(b"runs", b"swims"),
    "a space": lambda data: data + b" ",
    "its time": lambda data: data.replace(AT.encode(), LATER.encode()),
    "no time": lambda data: b'{"facts":[]}',
    "another kind of time": lambda data: b'{"lastUpdated":7}',
    "a list": lambda data: b"[]",
    "no json": lambda data: b"\xff not json",
    "nothing": lambda data: b"",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("again", [False, True], ids=["after a commit", "at the start"])
def test_what_a_person_wrote_is_moved_aside_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture, edit: Callable[[bytes], bytes], again: bool
) -> None:
    file = DocumentFile(path, lambda moment: [memory("runs", at=moment)])
    file.write(render(memory("runs")))
    if again:
        file = DocumentFile(path, lambda moment: [memory("runs", at=moment)])
    edited = edit(path.read_bytes())
    path.write_bytes(edited)
    with caplog.at_level(logging.WARNING, "backstory.projections.document.document"):
        file.write(render(memory("runs", "likes tea", at=LATER)))
    assert path.read_bytes() == render(memory("runs", "likes tea", at=LATER))
    assert others(path) == {"memory.json.edited-1": edited}
    assert "memory.json.edited-1" in caplog.text
    assert "import" in caplog.text


def test_each_edit_is_kept(path: Path) -> None:
    file = DocumentFile(path, nothing)
    for number in range(3):
        path.write_bytes(b"edit %d" % number)
        file.write(render(memory("runs")))
    assert others(path) == {f"memory.json.edited-{n + 1}": b"edit %d" % n for n in range(3)}


def test_a_file_that_lags_is_ours(path: Path) -> None:
    """Another process committed twice and died before it wrote the document."""
    path.write_bytes(render(memory("runs")))
    file = DocumentFile(path, lambda moment: [memory("runs")] if moment == AT else [])
    file.write(render(memory("runs", "walks", "swims", at=LATER)))
    assert path.read_bytes() == render(memory("runs", "walks", "swims", at=LATER))
    assert others(path) == {}


def test_a_file_that_lags_among_commits_of_one_time_is_ours(path: Path) -> None:
    path.write_bytes(render(memory("runs")))
    file = DocumentFile(path, lambda moment: [memory(), memory("runs"), memory("runs", "walks")])
    file.write(render(memory("runs", "walks", "swims")))
    assert others(path) == {}


def test_what_was_written_here_last_is_known_without_a_replay(path: Path) -> None:
    def replay(moment: str) -> Iterable[Memory]:
        raise AssertionError

    file = DocumentFile(path, replay)
    for text in ("runs", "walks", "swims"):
        file.write(render(memory(text)))
        assert file.is_current_or_edited(render(memory(text)))
        assert not file.is_current_or_edited(render(memory("sleeps")))


def test_an_edited_file_is_judged_once(path: Path) -> None:
    asked = []

    def replay(moment: str) -> Iterable[Memory]:
        asked.append(moment)
        return ()

    path.write_bytes(render(memory("edited")))
    file = DocumentFile(path, replay)
    assert file.is_current_or_edited(render(memory("runs")))
    file.write(render(memory("runs")))
    assert asked == [AT]


def test_an_edited_file_can_be_spared(path: Path) -> None:
    path.write_bytes(b"edited")
    DocumentFile(path, nothing).write(render(memory("runs")), spare_edits=True)
    assert path.read_bytes() == b"edited"
    assert others(path) == {}


def test_what_is_saved_while_the_file_is_judged_is_kept(path: Path) -> None:
    """To tell a lagging file from an edited one takes a replay; a person saves in the middle of it."""
    path.write_bytes(render(memory("runs")))

    def judge(moment: str) -> Iterable[Memory]:
        if b"saved" not in path.read_bytes():
            path.write_bytes(b"saved just now")
        return [memory("runs")]

    DocumentFile(path, judge).write(render(memory("walks", at=LATER)))
    assert path.read_bytes() == render(memory("walks", at=LATER))
    assert others(path) == {"memory.json.edited-1": b"saved just now"}


def test_a_file_that_cannot_be_written_is_told_in_one_line(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*memory\.json") as told:
        DocumentFile(path, nothing).write(render(memory("runs")))
    assert "\n" not in str(told.value)


def test_a_write_that_fails_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DocumentFile(path, nothing)
    file.write(render(memory("runs")))

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreError, match="No space left"):
        file.write(render(memory("walks")))
    assert path.read_bytes() == render(memory("runs"))


@pytest.mark.parametrize(
    ("data", "moment"), [(b'{"lastUpdated":"x"}', "x"), (b'{"lastUpdated":null}', None), (b"[1]", None), (b"{", None)]
)
def test_the_time_a_document_states(data: bytes, moment: str | None) -> None:
    assert stated_moment(data) == moment


def test_the_shape_is_the_agreed_one() -> None:
    stated = orjson.loads(render(memory("runs")))
    assert list(stated) == ["version", "lastUpdated", "user", "history", "facts"]
    assert stated["version"] == "1.0"
    assert list(stated["user"]) == ["workContext", "personalContext", "topOfMind"]
    assert list(stated["history"]) == ["recentMonths", "earlierContext", "longTermBackground"]
    assert list(stated["facts"][0]) == ["id", "content", "category", "confidence", "createdAt", "source"]
    assert render(memory("runs")).endswith(b"\n}\n")
    assert document_of(memory()).facts == ()


# Through the door.


def test_a_memory_json_from_before_the_ledger_is_not_lost(tmp_path: Path) -> None:
    older = b'{"version":"1.0","lastUpdated":"","facts":[{"id":"fact_a","content":"from DeerFlow"}]}'
    (tmp_path / "memory.json").write_bytes(older)
    with open_home(tmp_path) as home:
        home.memory(scope="global").add_fact("runs")
    assert (tmp_path / "memory.json.edited-1").read_bytes() == older
    assert b"runs" in (tmp_path / "memory.json").read_bytes()


def test_an_edit_between_two_commits_is_not_lost(tmp_path: Path) -> None:
    memory = open_home(tmp_path).memory(scope="global")
    memory.add_fact("runs")
    memory.flush()
    edited = (tmp_path / "memory.json").read_bytes().replace(b"runs", b"swims")
    (tmp_path / "memory.json").write_bytes(edited)
    memory.add_fact("walks")
    memory.flush()
    assert (tmp_path / "memory.json.edited-1").read_bytes() == edited
    assert memory.verify().ok


def test_commits_of_one_moment_make_no_false_alarm(tmp_path: Path) -> None:
    """As in a backfill: the clock stands still, and another process's document lags by two commits."""
    clock = FakeClock()
    memory = open_home(tmp_path, clock=clock).memory(scope="global")
    states = []
    for text in ("one", "two", "three"):
        memory.add_fact(text)
        memory.flush()
        states.append((tmp_path / "memory.json").read_bytes())
    (tmp_path / "memory.json").write_bytes(states[0])
    with open_home(tmp_path, clock=clock) as home:
        home.memory(scope="global").add_fact("four")
    assert not (tmp_path / "memory.json.edited-1").exists()
    assert memory.verify().ok


def test_the_commit_stands_where_the_document_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "memory.json").mkdir()
    memory = open_home(tmp_path).memory(scope="global")
    assert memory.add_fact("runs").commit == 2
    assert not memory.flush()
    assert "the index of global" in caplog.text
    (tmp_path / "memory.json").rmdir()
    memory.add_fact("walks")
    assert memory.flush()
    assert memory.verify().ok
    assert (tmp_path / "memory.json").is_file()
