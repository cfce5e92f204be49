"""Small files that are put in place whole, for nobody else to read."""

from __future__ import annotations

import stat
from pathlib import Path

from backstory.ledger.log.store.files import put_in_place, unfinished


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
