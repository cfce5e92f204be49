"""Small files that are put in place whole, for nobody else to read; and syncs."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import open_home

from backstory.ledger.disk import files
from backstory.ledger.disk.files import put_in_place, unfinished


def test_a_file_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    for data in (b"one", b"two and more", b""):
        put_in_place(path, data)
        assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_or_somebody_else_left_there_is_in_nobodys_way(tmp_path: Path) -> None:
    path, target = tmp_path / "faults.json", tmp_path / "target"
    unfinished(path).write_bytes(b"half")
    put_in_place(path, b"whole")
    target.write_bytes(b"theirs")
    unfinished(path).symlink_to(target)
    put_in_place(path, b"again")
    assert (path.read_bytes(), target.read_bytes()) == (b"again", b"theirs")


def as_on_macos(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int, int], int]) -> list[int]:
    """Have `fcntl` know F_FULLFSYNC and `os` no `fdatasync`, as on macOS; returns the codes that are asked for."""
    asked: list[int] = []

    def full(descriptor: int, code: int) -> int:
        asked.append(code)
        return answer(descriptor, code)

    monkeypatch.setattr(files, "_FULL_SYNC", 51)
    monkeypatch.setattr("fcntl.fcntl", full)
    monkeypatch.delattr(os, "fdatasync")
    return asked


@pytest.mark.parametrize("sync", [files.sync, files.sync_data])
def test_a_sync_on_macos_reaches_the_disk_and_not_the_drives_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Callable[[int], None]
) -> None:
    with (tmp_path / "file").open("wb") as file:
        asked = as_on_macos(monkeypatch, lambda *_: 0)
        sync(file.fileno())
    assert asked == [51]


def test_a_share_that_knows_no_full_sync_is_synced_as_it_can_be_and_an_error_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = errno.ENOTSUP

    def refuse(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    synced: list[int] = []
    with (tmp_path / "file").open("wb") as file:
        as_on_macos(monkeypatch, refuse)
        monkeypatch.setattr("os.fsync", synced.append)
        files.sync_data(file.fileno())
        assert synced == [file.fileno()]
        number = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            files.sync(file.fileno())
    assert len(synced) == 1


def test_a_home_is_written_where_there_is_only_the_full_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl
    asked = as_on_macos(monkeypatch, lambda descriptor, code: 0 if code == 51 else real(descriptor, code))
    with open_home(tmp_path / "home") as bs:
        assert bs.memory("ada").add_fact("Has a dog").commit == 2
    assert 51 in asked
