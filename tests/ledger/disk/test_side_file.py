"""A side file: read, replaced, begun anew after damage, removed with what a killed process left."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backstory.ledger.core.errors import StoreError
from backstory.ledger.disk.files import unfinished
from backstory.ledger.disk.side_file import SideFile


class Counts(msgspec.Struct, frozen=True):
    version: int
    seen: int


@pytest.fixture
def file(tmp_path: Path) -> SideFile[Counts]:
    return SideFile(tmp_path / "counts.json", Counts, "counts")


def test_what_was_written_is_read_by_a_private_file(file: SideFile[Counts]) -> None:
    assert (file.read(), file.stamp(), file.is_there()) == (None, None, False)
    file.write(Counts(1, 7))
    assert file.read() == Counts(1, 7)
    assert file.path.stat().st_mode & 0o777 == 0o600
    before = file.stamp()
    file.write(Counts(1, 8))
    assert file.stamp() != before
    assert Path(file.lock).name == "counts.lock"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version":1}', b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_begun_anew_and_logged(
    file: SideFile[Counts], damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.path.write_bytes(damage)
    assert file.read() is None
    assert f"{file.path} is damaged and is begun anew, which costs nothing but counts" in caplog.text
    file.write(Counts(1, 1))
    assert file.read() == Counts(1, 1)


def test_removing_it_takes_what_a_killed_process_left(file: SideFile[Counts]) -> None:
    file.remove()
    file.write(Counts(1, 7))
    unfinished(file.path).write_bytes(b"half")
    file.remove()
    assert list(file.path.parent.iterdir()) == []
    unfinished(file.path).write_bytes(b"half")
    assert file.is_there()


def test_what_the_system_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    file = SideFile(tmp_path / "gone" / "counts.json", Counts, "counts")
    with pytest.raises(StoreError, match="cannot write"):
        file.write(Counts(1, 7))
    taken = SideFile(tmp_path, Counts, "counts")
    with pytest.raises(StoreError, match="cannot remove"):
        taken.remove()
