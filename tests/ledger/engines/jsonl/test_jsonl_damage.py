"""Tear the last record, damage one in the middle, damage the last: torn is mended, corrupt is for a person."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock

from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import EMPTY, Cause, head_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Record
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import as_file, chain, fill, offsets

LEDGER_BYTES_BEYOND_ONE_READ = 200_000


def damaged(home: Path, data: bytes) -> JsonlStore:
    """A home whose one log holds these bytes, opened by a process that has not seen it before."""
    store = JsonlStore(home)
    store.path(STREAM).parent.mkdir(parents=True)
    store.path(STREAM).write_bytes(data)
    return store


def sidecar(store: JsonlStore, number: int = 1) -> Path:
    return store.home / f"{STREAM}.torn-{number}"


# Tear the last record.


@pytest.mark.slow
def test_tear_the_last_record_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sync in ("fsync", "fdatasync"):  # four thousand of them, and this test pulls no plug
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    lines = chain(4)
    start, _ = offsets(lines)[2:4]
    for cut in range(len(lines[2]) + 1):
        store = damaged(tmp_path / str(cut), as_file(lines[:2]) + lines[2][:cut])
        assert lines_of(store) == lines[:2]
        assert store.head(STREAM) == head_of(lines[1])
        assert store.torn_tail(STREAM) == (Record(lines[2][:cut], start) if cut else None)
        store.append(STREAM, [lines[2]], 2)
        store.append(STREAM, [lines[3]], 3)
        assert store.path(STREAM).read_bytes() == as_file(lines)
        assert store.torn_tail(STREAM) is None
        assert sidecar(store).exists() == (cut > 0)
        assert not cut or sidecar(store).read_bytes() == lines[2][:cut]


@pytest.mark.parametrize("cut", [1, 100, -1])
def test_tear_the_only_record(tmp_path: Path, cut: int) -> None:
    line = chain(1)[0]
    store = damaged(tmp_path, line[:cut])
    assert lines_of(store) == []
    assert store.head(STREAM) == EMPTY
    store.append(STREAM, [line], 0)
    assert lines_of(store) == [line]
    assert sidecar(store).read_bytes() == line[:cut]


def test_tear_a_record_that_this_process_wrote(tmp_path: Path) -> None:
    lines = chain(3)
    store = JsonlStore(tmp_path)
    fill(store, STREAM, lines[:2])
    with store.path(STREAM).open("ab") as file:
        file.write(lines[2][:-1])
    assert lines_of(store) == lines[:2]
    assert store.head(STREAM) == head_of(lines[1])
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines


def test_tear_it_again_and_again(tmp_path: Path) -> None:
    lines = chain(3)
    store = damaged(tmp_path, b"")
    for number, line in enumerate(lines):
        with store.path(STREAM).open("ab") as file:
            file.write(b"torn %d" % number)
        store.append(STREAM, [line], number)
    assert lines_of(store) == lines
    assert [sidecar(store, number).read_bytes() for number in (1, 2, 3)] == [b"torn 0", b"torn 1", b"torn 2"]


def test_a_torn_tail_is_reported_where_it_went(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = damaged(tmp_path, as_file(chain(1)) + b"half a li")
    with caplog.at_level(logging.WARNING, "backstory.ledger.engines.jsonl.heads"):
        store.append(STREAM, [chain(2)[1]], 1)
    assert len(caplog.records) == 1
    assert str(sidecar(store)) in caplog.text
    assert "9 bytes" in caplog.text
    assert sidecar(store).stat().st_mode & 0o777 == 0o600


def test_nobody_but_a_writer_moves_it(tmp_path: Path) -> None:
    data = as_file(chain(1)) + b"half"
    store = damaged(tmp_path, data)
    for _ in range(2):
        store.head(STREAM), lines_of(store), store.torn_tail(STREAM), store.state(STREAM).size
    assert store.path(STREAM).read_bytes() == data
    assert [path.name for path in store.path(STREAM).parent.iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 4096, b"\0", b"{" * LEDGER_BYTES_BEYOND_ONE_READ, b"\xff\xfe", b"}"],
    ids=["nul", "one nul", "long", "no utf-8", "brace"],
)
def test_a_tail_of_whatever_a_crash_leaves(tmp_path: Path, tail: bytes) -> None:
    lines = chain(3)
    store = damaged(tmp_path, as_file(lines[:2]) + tail)
    assert lines_of(store) == lines[:2]
    assert store.head(STREAM) == head_of(lines[1])
    assert store.torn_tail(STREAM) == Record(tail, len(as_file(lines[:2])))
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines
    assert sidecar(store).read_bytes() == tail


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 262_144, LEDGER_BYTES_BEYOND_ONE_READ])
def test_a_last_line_longer_than_one_look(tmp_path: Path, size: int) -> None:
    short = chain(1)[0]
    long = chain(1, after=head_of(short), text="x" * (size - len(chain(1, after=head_of(short), text="")[0])))[0]
    assert len(long) == size
    store = damaged(tmp_path, as_file([short, long]))
    assert store.head(STREAM) == head_of(long)
    after = chain(1, after=head_of(long))[0]
    store.append(STREAM, [after], 2)
    assert lines_of(store) == [short, long, after]


def test_an_empty_file_is_an_empty_stream(tmp_path: Path) -> None:
    store = damaged(tmp_path, b"")
    assert store.head(STREAM) == EMPTY
    assert lines_of(store) == []
    assert store.torn_tail(STREAM) is None
    store.append(STREAM, [chain(1)[0]], 0)
    assert lines_of(store) == chain(1)


# Damage the last whole record.


def refused(store: JsonlStore, line: bytes, expected: int) -> CorruptLogError:
    before = store.path(STREAM).read_bytes()
    with pytest.raises(CorruptLogError) as told:
        store.append(STREAM, [line], expected)
    with pytest.raises(CorruptLogError):
        store.head(STREAM)
    assert store.path(STREAM).read_bytes() == before
    assert not sidecar(store).exists()
    assert "\n" not in str(told.value)
    assert "verify" in str(told.value)
    return told.value


def test_damage_any_byte_of_the_last_record(tmp_path: Path) -> None:
    lines = chain(4)
    begin, end = offsets(lines)[2:4]
    store = damaged(tmp_path, b"")
    for place in range(begin, end - 1):
        data = bytearray(as_file(lines[:3]))
        data[place] ^= 0x04
        if data[place] == ord("\n"):
            continue
        store.path(STREAM).write_bytes(data)
        told = refused(JsonlStore(tmp_path), lines[3], 3)
        assert (told.kind, told.stream, told.line, told.byte) == ("altered", STREAM, 3, begin)


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b" \n", b"\0\n", b"null\n", b"{}\n"])
@pytest.mark.parametrize("whole", [0, 2])
def test_a_line_that_says_nothing_is_damage_and_not_an_empty_stream(tmp_path: Path, blank: bytes, whole: int) -> None:
    lines = chain(3)
    store = damaged(tmp_path, as_file(lines[:whole]) + blank)
    for expected in (0, whole):
        told = refused(store, lines[expected], expected)
    assert told.line == whole + blank.count(b"\n")
    assert told.byte == len(as_file(lines[:whole]) + blank) - len(blank.split(b"\n")[-2]) - 1


def test_damage_before_a_torn_tail_is_not_mended_away(tmp_path: Path) -> None:
    lines = chain(3)
    store = damaged(tmp_path, as_file([lines[0], lines[1].replace(b"said", b"Said")]) + lines[2][:50])
    refused(store, lines[2], 2)


# Damage one in the middle.


def ledger_of(home: Path, facts: int = 4) -> tuple[Writer, Path]:
    writer = Writer(JsonlStore(home), Scope("ada"), clock=FakeClock(), salts=CountingSalts())
    for number in range(facts):
        add(writer, f"fact {number}")
    return writer, home / "users/ada/ledger.jsonl"


def add(writer: Writer, text: str) -> None:
    fact = NewFact(place="facts/0", content=text, by_hand=True)
    writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))


@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_damage_a_record_and_nothing_is_written(tmp_path: Path, line: int) -> None:
    _, path = ledger_of(tmp_path)
    lines = path.read_bytes().splitlines()
    start = offsets(lines)[line - 1]
    data = bytearray(path.read_bytes())
    data[start + 200] ^= 0x01
    path.write_bytes(data)
    writer = Writer(JsonlStore(tmp_path), Scope("ada"))
    for ask in (writer.memory, lambda: add(writer, "one more")):
        with pytest.raises(CorruptLogError, match=f"users/ada/ledger: line {line} at byte {start} ") as told:
            ask()
        assert (told.value.kind, told.value.line, told.value.byte) == ("altered", line, start)
    assert path.read_bytes() == data


def test_damage_the_transcript_and_nothing_is_recorded(tmp_path: Path) -> None:
    writer = Writer(JsonlStore(tmp_path), Scope(), clock=FakeClock())
    for number in range(3):
        writer.record("t", [Kept(role="user", content=f"turn {number}", id=f"m{number}")])
    path = tmp_path / "transcript.jsonl"
    data = path.read_bytes().replace(b"turn 1", b"turn 9")
    path.write_bytes(data)
    writer = Writer(JsonlStore(tmp_path), Scope(), clock=FakeClock())
    with pytest.raises(CorruptLogError, match="transcript: line 2 at byte"):
        writer.record("t", [Kept(role="user", content="new", id="m9")])
    assert path.read_bytes() == data


@pytest.mark.parametrize("left", [0, 1, 3])
def test_cut_records_off_behind_a_writers_back(tmp_path: Path, left: int) -> None:
    writer, path = ledger_of(tmp_path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(as_file(lines[:left]))
    for ask in (writer.memory, lambda: add(writer, "one more")):
        with pytest.raises(CorruptLogError) as told:
            ask()
        assert (told.value.kind, told.value.line) == ("missing", left + 1)
    assert path.read_bytes() == as_file(lines[:left])


def test_take_the_file_away_behind_a_writers_back(tmp_path: Path) -> None:
    writer, path = ledger_of(tmp_path)
    path.unlink()
    with pytest.raises(CorruptLogError):
        writer.memory()
    with pytest.raises(CorruptLogError):
        add(writer, "one more")
    assert not path.exists()


def test_exchange_the_file_behind_a_writers_back(tmp_path: Path) -> None:
    writer, path = ledger_of(tmp_path / "here")
    other, theirs = ledger_of(tmp_path / "there", facts=0)
    for number in range(5):
        add(other, f"another fact {number}")
    theirs.replace(path)
    for ask in (writer.memory, lambda: add(writer, "one more")):
        with pytest.raises(CorruptLogError) as told:
            ask()
        assert told.value.kind == "broken_prev"
