"""A disk that refuses, lies short or is full: what was not acknowledged is not there, what was is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from doubles.disk import Disk

from backstory.ledger.core.commit import EMPTY, head_of
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import as_file, chain, fill, sealed, turn


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "inner" / "home"


@pytest.fixture
def disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(home, monkeypatch)


# Durable before it is acknowledged.


def test_a_line_is_written_once_and_synced_before_append_returns(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    log = store.path(STREAM)
    for number, line in enumerate(chain(3)):
        store.append(STREAM, [line], number)
        on_the_log = [name for name, place in disk.calls if place == log]
        assert on_the_log == ["write", "fdatasync"]
        assert disk.calls[-1] == ("fdatasync", log)
        disk.calls.clear()


def test_at_birth_every_folder_that_may_be_new_is_synced_first(home: Path, disk: Disk) -> None:
    JsonlStore(home).append(STREAM, [chain(1)[0]], 0)
    synced = [
        place for name, place in disk.calls[: disk.calls.index(("write", home / f"{STREAM}.jsonl"))] if name == "fsync"
    ]
    new = [home / "users/ada", home / "users", home, home.parent, home.parent.parent, home.parent.parent.parent]
    assert synced[:6] == new
    assert Path("/") in synced


def test_a_file_whose_maker_died_is_rooted_by_whoever_writes_next(home: Path, disk: Disk) -> None:
    """A process died between its write and its sync of the folder: its line is there, the folder's may not be."""
    fill(JsonlStore(home), STREAM, chain(1))
    disk.calls.clear()
    store = JsonlStore(home)
    store.append(STREAM, [chain(2)[1]], 1)
    assert {("fsync", home / "users/ada"), ("fsync", home / "users"), ("fsync", home)} <= set(disk.calls)
    disk.calls.clear()
    store.append(STREAM, [chain(3)[2]], 2)
    assert [name for name, _ in disk.calls] == ["write", "fdatasync"]


def test_a_birth_that_failed_is_made_up_for(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    disk.fail("write", errno.EIO)
    with pytest.raises(StoreError):
        store.append(STREAM, [chain(1)[0]], 0)
    other = JsonlStore(home)
    disk.calls.clear()
    other.append(STREAM, [chain(1)[0]], 0)
    assert ("fsync", home / "users/ada") in disk.calls


def test_a_file_put_in_the_logs_place_is_rooted_anew(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    fill(store, STREAM, chain(1))
    shutil.copy(store.path(STREAM), home / "copy")
    (home / "copy").replace(store.path(STREAM))
    disk.calls.clear()
    store.append(STREAM, [chain(2)[1]], 1)
    assert ("fsync", home / "users/ada") in disk.calls


@pytest.mark.parametrize("folder", ["ada", "users", "home", "inner"])
def test_a_folder_that_cannot_be_synced_leaves_no_line(home: Path, disk: Disk, folder: str) -> None:
    store = JsonlStore(home)
    disk.fail("fsync", errno.EIO, on=folder)
    with pytest.raises(StoreError, match="Input/output error"):
        store.append(STREAM, [chain(1)[0]], 0)
    assert lines_of(store) == []
    assert store.state(STREAM).size == 0
    disk.calls.clear()
    store.append(STREAM, [chain(1)[0]], 0)
    assert lines_of(store) == chain(1)
    assert any(place.name == folder for name, place in disk.calls if name == "fsync")


def test_a_file_system_that_cannot_sync_folders_is_no_obstacle(home: Path, disk: Disk) -> None:
    disk.fail("fsync", errno.EINVAL, on="home")
    fill(JsonlStore(home), STREAM, chain(1))
    assert lines_of(JsonlStore(home)) == chain(1)


def test_folders_above_the_home_that_we_may_not_open_are_not_ours(home: Path, disk: Disk) -> None:
    disk.fail("fsync", errno.EACCES, on="inner")
    disk.fail("fsync", errno.EROFS, on="outer")
    fill(JsonlStore(home), STREAM, chain(1))
    assert disk.faults == []


# A write that fails.


def test_a_disk_that_takes_a_line_in_pieces_gets_all_of_it(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    disk.shorten(1, 100, 7)
    fill(store, STREAM, chain(2))
    assert store.path(STREAM).read_bytes() == as_file(chain(2))
    assert [name for name, place in disk.calls if place == store.path(STREAM)][:5] == ["write"] * 4 + ["fdatasync"]


class Fault(msgspec.Struct, frozen=True):
    call: str
    number: int
    told: str
    after: int | None = None


FAULTS = {
    "full": Fault("write", errno.ENOSPC, "No space left on device; free some space"),
    "full in the middle": Fault("write", errno.ENOSPC, "No space left on device; free some space", 120),
    "quota": Fault("write", errno.EDQUOT, "free some space, or raise the quota", 1),
    "write error": Fault("write", errno.EIO, "Input/output error; check the disk"),
    "write error in the middle": Fault("write", errno.EIO, "Input/output error; check the disk", 99),
    "sync error": Fault("fdatasync", errno.EIO, "Input/output error; check the disk"),
    "full at the sync": Fault("fdatasync", errno.ENOSPC, "No space left on device; free some space"),
}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_failed_is_not_there_and_the_next_append_is(home: Path, disk: Disk, before: int, fault: Fault) -> None:
    store = JsonlStore(home)
    lines = chain(3)
    head = head_of(lines[1]) if before else EMPTY
    other = chain(1, after=head, text="other")[0]
    fill(store, STREAM, lines[:before])
    disk.fail(fault.call, fault.number, after=fault.after)
    with pytest.raises(StoreError, match=fault.told) as error:
        store.append(STREAM, [lines[before]], before)
    assert "\n" not in str(error.value)
    assert str(store.path(STREAM)) in str(error.value)
    assert disk.faults == []
    for reader in (store, JsonlStore(home)):
        assert lines_of(reader) == lines[:before]
        assert lines_of(reader, after=before) == []
        assert reader.head(STREAM) == head
        assert reader.torn_tail(STREAM) is None
    assert store.path(STREAM).read_bytes() == as_file(lines[:before])
    fill(store, STREAM, [other])
    assert lines_of(store) == [*lines[:before], other]
    assert lines_of(store, after=before) == [other]
    assert lines_of(JsonlStore(home)) == [*lines[:before], other]


def test_a_line_seen_before_its_sync_failed_leads_no_reader_astray(home: Path, disk: Disk) -> None:
    """Another thread reads a line that is not synced yet; the sync fails, and another process writes a longer one."""
    store = JsonlStore(home)
    lines = chain(2)
    fill(store, STREAM, lines[:1])
    seen: list[bytes] = []

    def read_and_fail(descriptor: int) -> None:
        seen.extend(lines_of(store, after=1))
        raise OSError(errno.EIO, "Input/output error")

    disk.faults.append(("fdatasync", "ledger.jsonl", read_and_fail))
    with pytest.raises(StoreError):
        store.append(STREAM, [lines[1]], 1)
    assert seen == lines[1:]
    longer = chain(2, after=head_of(lines[0]), text="something much longer than that")
    fill(JsonlStore(home), STREAM, longer)
    assert lines_of(store, after=2) == longer[1:]
    assert lines_of(store, after=1) == longer
    store.append(STREAM, [chain(1, after=head_of(longer[1]))[0]], 3)


def test_a_line_that_can_be_neither_written_nor_taken_back_is_a_torn_tail(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    lines = chain(3)
    fill(store, STREAM, lines[:2])
    disk.fail("write", errno.EIO, after=50)
    disk.fail("ftruncate", errno.EIO)
    with pytest.raises(StoreError):
        store.append(STREAM, [lines[2]], 2)
    assert store.path(STREAM).read_bytes() == as_file(lines[:2]) + lines[2][:50]
    assert lines_of(store) == lines[:2]
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines
    assert (home / f"{STREAM}.torn-1").read_bytes() == lines[2][:50]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("after", [None, 3])
def test_a_torn_tail_that_cannot_be_put_aside_stays_where_it_is(
    home: Path, disk: Disk, call: str, after: int | None
) -> None:
    store = JsonlStore(home)
    lines = chain(2)
    fill(store, STREAM, lines[:1])
    torn = as_file(lines[:1]) + b"half a line"
    store.path(STREAM).write_bytes(torn)
    disk.fail(call, errno.ENOSPC, on="ledger.torn", after=after if call == "write" else None)
    with pytest.raises(StoreError, match="free some space"):
        store.append(STREAM, [lines[1]], 1)
    assert store.path(STREAM).read_bytes() == torn
    assert not (home / f"{STREAM}.torn-1").exists()
    store.append(STREAM, [lines[1]], 1)
    assert lines_of(store) == lines
    assert (home / f"{STREAM}.torn-1").read_bytes() == b"half a line"
    assert not (home / f"{STREAM}.torn-2").exists()


def test_a_torn_tail_is_safe_aside_before_it_is_cut_off(home: Path, disk: Disk) -> None:
    store = JsonlStore(home)
    fill(store, STREAM, chain(1))
    store.path(STREAM).write_bytes(as_file(chain(1)) + b"half")
    disk.calls.clear()
    store.append(STREAM, [chain(2)[1]], 1)
    aside, log = home / f"{STREAM}.torn-1", store.path(STREAM)
    assert disk.calls == [
        ("write", aside),
        ("fsync", aside),
        ("fsync", log.parent),
        ("ftruncate", log),
        ("fdatasync", log),
        ("write", log),
        ("fdatasync", log),
    ]


# Real small disks.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=False, capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 8192)
    store = JsonlStore(small_disk / "home")
    lines: list[bytes] = []

    def go_on() -> None:
        while True:
            line = sealed(turn("x" * 5000), after=head_of(lines[-1]) if lines else EMPTY)
            store.append(STREAM, [line], len(lines))
            lines.append(line)

    with pytest.raises(StoreError, match="No space left on device; free some space"):
        go_on()
    acknowledged = lines.copy()
    assert 5 < len(acknowledged) < 12
    for reader in (store, JsonlStore(store.home)):
        assert lines_of(reader) == acknowledged
        assert reader.torn_tail(STREAM) is None
    ballast.unlink()
    with pytest.raises(StoreError, match="No space left on device; free some space"):
        go_on()
    assert lines[: len(acknowledged)] == acknowledged
    assert len(lines) > len(acknowledged)
    assert lines_of(store) == lines
    assert lines_of(JsonlStore(store.home)) == lines


def test_a_disk_that_becomes_read_only(small_disk: Path) -> None:
    store = JsonlStore(small_disk / "home")
    fill(store, STREAM, chain(1))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for writer in (store, JsonlStore(store.home)):
        with pytest.raises(StoreError, match="Read-only file system; the file system is read-only"):
            writer.append(STREAM, [chain(2)[1]], 1)
        assert lines_of(writer) == chain(1)
        assert writer.head(STREAM).seq == 1
