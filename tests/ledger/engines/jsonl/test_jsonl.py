"""The JSONL engine keeps every engine's promises, and its files are where and how they should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock

from backstory.ledger.core.commit import EMPTY, Head, head_of
from backstory.ledger.core.errors import CorruptLogError, StoreError, WrongExpectedVersionError
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.testing.conformance import STREAM, EventStoreConformance, lines_of
from backstory.testing.lines import as_file, chain, fill


class JsonlEngine:
    def __init__(self, home: Path) -> None:
        self.home = home

    def open(self, *, lock_timeout: float = PATIENCE, clock: FakeClock | None = None) -> JsonlStore:
        return JsonlStore(self.home, lock_timeout=lock_timeout, clock=clock)


class TestJsonlStore(EventStoreConformance):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> JsonlEngine:
        return JsonlEngine(tmp_path / "home")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "new" / "home"


@pytest.fixture
def store(home: Path) -> JsonlStore:
    return JsonlStore(home)


def test_a_stream_is_a_file_of_its_lines(store: JsonlStore, home: Path) -> None:
    lines = chain(3)
    fill(store, STREAM, lines)
    assert (home / "users/ada/ledger.jsonl").read_bytes() == as_file(lines)
    assert store.state(STREAM).size == len(as_file(lines))


def test_nobody_else_may_look(store: JsonlStore, home: Path) -> None:
    umask = os.umask(0)
    try:
        fill(store, STREAM, chain(1))
    finally:
        os.umask(umask)
    modes = {path.relative_to(home.parent).as_posix(): path.stat().st_mode for path in home.parent.rglob("*")}
    assert {name for name, mode in modes.items() if stat.S_ISDIR(mode)} == {"home", "home/users", "home/users/ada"}
    assert {stat.S_IMODE(mode) for mode in modes.values() if stat.S_ISDIR(mode)} == {0o700}
    assert {stat.S_IMODE(mode) for mode in modes.values() if stat.S_ISREG(mode)} == {0o600}
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    assert len(modes) == 5


def test_only_whole_names_are_streams(store: JsonlStore, home: Path) -> None:
    fill(store, "ledger", chain(1))
    for name in ("ledger.jsonl.bak", "ledger.torn-1", "notes.txt", "memory.json"):
        (home / name).write_bytes(b"x")
    assert list(store.streams()) == ["ledger"]


def test_a_linked_folder_and_a_folder_named_like_a_stream_are_no_streams(store: JsonlStore, home: Path) -> None:
    fill(store, STREAM, chain(1))
    (home / "users/ada/linked").symlink_to(home / "users/ada", target_is_directory=True)
    (home / "users/ada/linked.jsonl").symlink_to(home / "users/ada", target_is_directory=True)
    (home / "users/ada/folder.jsonl").mkdir()
    for prefix in ("", "users/", "users/ada/", "users/ada/linked"):
        assert list(store.streams(prefix)) == ([] if prefix.endswith("linked") else [STREAM])


def test_a_relative_home_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = JsonlStore(Path("home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    fill(store, "ledger", chain(1))
    assert (tmp_path / "home/ledger.jsonl").exists()


def test_it_says_where_it_is(store: JsonlStore, home: Path) -> None:
    assert repr(store) == f"JsonlStore('{home}')"
    assert str(store) == f"jsonl:{home}"


# The file is not the one that was known.


def settled(path: Path, change: object) -> None:
    """Change a file in place until the system's clock notices: its ticks are milliseconds apart."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        change()  # type: ignore[operator]


def test_a_file_exchanged_for_another_history_is_not_continued(store: JsonlStore) -> None:
    lines, others = chain(3), chain(3, text="other")
    assert [len(line) for line in others] != [len(line) for line in lines]
    fill(store, STREAM, lines[:2])
    new = store.path(STREAM).with_name("new")
    new.write_bytes(as_file(others[:2]))
    new.replace(store.path(STREAM))
    assert store.head(STREAM) == head_of(others[1])
    with pytest.raises(CorruptLogError, match="exchanged") as told:
        store.append(STREAM, [lines[2]], 2)
    assert told.value.kind == "broken_prev"
    assert lines_of(store) == others[:2]
    assert lines_of(store, after=1) == others[1:2]


def test_a_file_overwritten_in_place_is_not_continued(store: JsonlStore) -> None:
    lines, others = chain(3, text="one"), chain(3, text="two")
    assert [len(line) for line in others] == [len(line) for line in lines]
    fill(store, STREAM, lines[:2])
    settled(store.path(STREAM), lambda: store.path(STREAM).write_bytes(as_file(others[:2])))
    with pytest.raises(CorruptLogError, match="exchanged"):
        store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == others[:2]


def test_a_file_replaced_by_the_same_lines_goes_on(store: JsonlStore) -> None:
    """As after an erasure: another inode, the same heads."""
    lines = chain(3)
    fill(store, STREAM, lines[:2])
    new = store.path(STREAM).with_name("new")
    new.write_bytes(as_file(lines[:2]))
    new.replace(store.path(STREAM))
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_file_cut_behind_the_back_is_noticed_by_the_next_append(store: JsonlStore, left: int) -> None:
    lines = chain(4)
    fill(store, STREAM, lines[:3])
    os.truncate(store.path(STREAM), len(as_file(lines[:left])))
    with pytest.raises(WrongExpectedVersionError) as told:
        store.append(STREAM, [lines[3]], 3)
    assert told.value.actual == left
    assert store.head(STREAM) == (head_of(lines[left - 1]) if left else EMPTY)
    assert lines_of(store) == lines[:left]


def test_a_file_cut_and_grown_again_is_read_line_by_line(store: JsonlStore) -> None:
    lines = chain(3)
    fill(store, STREAM, lines)
    assert lines_of(store, after=3) == []
    others = chain(6, text="a much longer way to say the same")
    os.truncate(store.path(STREAM), 0)
    store.path(STREAM).write_bytes(as_file(others))
    assert lines_of(store, after=3) == others[3:]
    os.truncate(store.path(STREAM), len(as_file(others[:2])))
    assert lines_of(store, after=3) == []
    assert lines_of(store, after=1) == others[1:2]


def test_a_follower_is_told_that_the_file_was_cut(store: JsonlStore) -> None:
    lines = chain(3)
    fill(store, STREAM, lines)
    following = JsonlStore(store.home, clock=FakeClock()).follow(STREAM)
    assert [next(following).line for _ in lines] == lines
    os.truncate(store.path(STREAM), len(as_file(lines[:1])))
    with pytest.raises(CorruptLogError) as told:
        next(following)
    assert (told.value.kind, told.value.line, told.value.byte) == ("missing", 2, len(as_file(lines[:1])))


def test_a_follower_sleeps_between_looks(store: JsonlStore) -> None:
    lines = chain(2)
    fill(store, STREAM, lines[:1])

    class AppendingClock(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 3:
                fill(store, STREAM, lines[1:])

    clock = AppendingClock()
    following = JsonlStore(store.home, clock=clock).follow(STREAM)
    assert [next(following).line, next(following).line] == lines
    assert clock.slept == [0.2, 0.2, 0.2]


def test_a_reader_does_not_wait_for_a_line_that_is_being_written(store: JsonlStore) -> None:
    lines = chain(2)
    fill(store, STREAM, lines[:1])
    with store.path(STREAM).open("ab") as file:
        file.write(lines[1][:100])
        file.flush()
        assert lines_of(store) == lines[:1]
        assert lines_of(store, after=1) == []
        file.write(lines[1][100:] + b"\n")
    assert lines_of(store, after=1) == lines[1:]


def padded(total: int, *, after: Head = EMPTY) -> list[bytes]:
    """Two lines that take so many bytes together."""
    first = chain(1, after=after, text="p")[0]
    bare = len(as_file([first, chain(1, after=head_of(first), text="")[0]]))
    second = chain(1, after=head_of(first), text="q" * (total - bare))[0]
    assert len(as_file([first, second])) == total
    return [first, second]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_note_in_the_lock_file_about_a_longer_log_is_not_believed(
    store: JsonlStore, home: Path, tmp_path: Path, length: int
) -> None:
    fill(store, STREAM, chain(3, text="mine"))
    other = JsonlStore(tmp_path / "other")
    fill(other, STREAM, chain(length, text="of another log"))
    (home / f"{STREAM}.lock").write_bytes((other.home / f"{STREAM}.lock").read_bytes())
    # While the lock is held, a reader has nothing but the note to go by.
    with store.locked(STREAM):
        told = JsonlStore(home).durable_head(STREAM)
    assert told == (other.head(STREAM) if length == 2 else store.head(STREAM))


def test_a_place_remembered_in_another_file_is_not_trusted(store: JsonlStore) -> None:
    """Where one line ended, two others end in the file that took its place."""
    line = chain(1, text="x" * 1000)[0]
    fill(store, STREAM, [line])
    others = padded(len(line) + 1)
    new = store.path(STREAM).with_name("new")
    new.write_bytes(as_file(others))
    new.replace(store.path(STREAM))
    assert lines_of(store, after=1) == others[1:]


def test_a_place_behind_a_line_that_was_taken_back_is_not_trusted(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader saw a line whose sync then failed; where it ended, two of another process end."""
    first, seen = chain(2, text="x" * 1000)
    fill(store, STREAM, [first])

    def fail(descriptor: int) -> None:
        assert lines_of(store, after=1) == [seen]
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreError):
            store.append(STREAM, [seen], 1)
    others = padded(len(seen) + 1, after=head_of(first))
    fill(JsonlStore(store.home), STREAM, others)
    assert lines_of(store, after=2) == others[1:]


def test_a_reading_from_the_beginning_does_not_make_the_next_one_longer(store: JsonlStore) -> None:
    lines = chain(5)
    fill(store, STREAM, lines)
    end = store._known(STREAM).cursor
    assert end is not None
    assert (end.seq, end.byte) == (5, len(as_file(lines)))
    next(store.read(STREAM))
    assert store._known(STREAM).cursor == end
    assert lines_of(store) == lines


# What stands in the way.


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"")
    store = JsonlStore(tmp_path)
    refusal(store, "a file stands where a folder should be")


def test_a_file_where_the_home_should_be(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    store = JsonlStore(tmp_path / "home")
    refusal(store, "a file stands where a folder should be")
    with pytest.raises(StoreError, match="Not a directory"):
        list(store.streams())


def test_a_folder_where_the_log_should_be(store: JsonlStore) -> None:
    store.path(STREAM).mkdir(parents=True)
    refusal(store, "Is a directory")
    for ask in (store.head, store.torn_tail, lambda stream: list(store.read(stream))):
        with pytest.raises(StoreError, match="Is a directory"):
            ask(STREAM)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    os.seteuid(65_534)
    try:
        refusal(JsonlStore(tmp_path / "home"), "Permission denied; check the folder's owner and mode")
    finally:
        os.seteuid(0)
    assert list((tmp_path / "home").iterdir()) == []


def refusal(store: JsonlStore, why: str) -> None:
    with pytest.raises(StoreError, match=why) as told:
        store.append(STREAM, [chain(1)[0]], 0)
    assert "\n" not in str(told.value)
    assert str(store.home) in str(told.value)
