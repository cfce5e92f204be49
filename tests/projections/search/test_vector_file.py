from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from doubles.bag import BagOfWords, passage
from fakes import PATIENCE

from backstory.ledger.core.errors import LockTimeoutError
from backstory.projections.derived_files import UnusableError, connect
from backstory.projections.search.vectors.scope_vectors import Vectors
from backstory.projections.search.vectors.vector_file import Made, VectorFile, VectorRow

SIZE = 4


def row(key: str, fill: int = 1) -> VectorRow:
    return VectorRow("turns", key, bytes([fill] * 16), bytes([fill] * 2 * SIZE))


def file_in(folder: Path, model: str = "bag", **options) -> VectorFile:
    return VectorFile(folder / "vectors.sqlite", model, **options)


def written(file: VectorFile, *rows: VectorRow, drop: tuple[int, ...] = ()) -> dict[int, VectorRow]:
    file.open_to_erasures()
    with file.locked():
        kept = file.read()
        made = Made(file.model, SIZE, file.epoch()) if kept is None else kept.made
        return file.write(made, rows, drop)


def rows_of(file: VectorFile, behind: int = 0) -> list[VectorRow]:
    kept = file.read(behind)
    return [] if kept is None else list(kept.rows.values())


def test_what_is_written_is_read_by_its_number(tmp_path):
    file = file_in(tmp_path)
    numbers = written(file, row("a"), row("b\udcff", 2))
    kept = file_in(tmp_path).read()
    assert kept is not None
    assert kept.rows == numbers == dict(zip(numbers, [row("a"), row("b\udcff", 2)], strict=True))
    assert kept.made == Made("bag", SIZE, "")
    assert kept.stamp == file.stamp()


def test_what_is_behind_a_number_is_read_alone_and_no_number_comes_twice(tmp_path):
    file = file_in(tmp_path)
    *_, last = written(file, row("a"), row("b"))
    written(file, drop=(last,))
    assert rows_of(file) == [row("a")]
    (number,) = written(file, row("c"))
    assert number > last
    assert rows_of(file, last) == [row("c")]


def test_what_was_dropped_is_counted(tmp_path):
    file = file_in(tmp_path)
    written(file, row("a"), row("b"))
    kept = file.read()
    written(file, row("c"))
    assert kept is not None
    assert getattr(file.read(), "made", None) == kept.made
    written(file, drop=(1, 2))
    assert getattr(file.read(), "made", None) == Made("bag", SIZE, "", 1)


def test_a_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    file = file_in(tmp_path)
    written(file, row("a"))
    broken = VectorRow("turns", "c", b"", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        written(file, row("b"), broken, drop=(1,))
    assert rows_of(file) == [row("a")]


def test_the_epoch_is_that_of_the_last_erasure_for_everybody(tmp_path):
    one, two = file_in(tmp_path), file_in(tmp_path)
    assert one.epoch() == two.epoch() == ""
    written(one, row("a"))
    assert two.epoch() == ""
    first = one.erase()
    assert two.epoch() == first != ""
    second = two.erase(SIZE, [row("b")])
    assert one.epoch() == second != first
    assert rows_of(one) == [row("b")]


def test_an_erasure_puts_another_file_in_the_place_of_the_old_one(tmp_path):
    file = file_in(tmp_path)
    written(file, row("a", 7), row("b", 9))
    before = file.path.stat().st_ino
    opened = file.path.open("rb")
    file.erase(SIZE, [row("b", 9)])
    assert file.path.stat().st_ino != before
    opened.close()
    assert bytes([7] * 2 * SIZE) not in file.path.read_bytes()
    assert bytes([9] * 2 * SIZE) in file.path.read_bytes()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.lock", "vectors.sqlite"]


def test_the_mark_of_an_erasure_comes_before_anything_goes(tmp_path, monkeypatch):
    file = file_in(tmp_path)
    written(file, row("a"))

    def refuse(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("backstory.projections.search.vectors.vector_file.remove", refuse)
    with pytest.raises(Exception, match="Input/output"):
        file.erase()
    assert file.epoch() != ""
    monkeypatch.undo()
    assert rows_of(file) == []
    assert not file.path.exists()


def test_an_erasure_ends_in_an_empty_place_where_what_stands_cannot_be_written(tmp_path, monkeypatch, caplog):
    file = file_in(tmp_path)
    written(file, row("a"))

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(file, "_make", full)
    with caplog.at_level(logging.WARNING):
        file.erase(SIZE, [row("a")])
    assert "what stands could not be kept: database or disk is full" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.lock"]


def test_where_somebody_is_about_to_write_an_erasure_leaves_its_mark(tmp_path):
    file = file_in(tmp_path)
    assert file.open_to_erasures()
    assert file_in(tmp_path).erase() == file.epoch() != ""


def test_without_a_folder_nothing_is_opened(tmp_path):
    file = file_in(tmp_path / "none")
    assert not file.open_to_erasures()
    assert file.read() is None
    assert file.stamp() is None
    assert file.erase() == ""
    with file.alone() as first:
        assert first
    assert not (tmp_path / "none").exists()


def test_a_lock_that_somebody_keeps_is_waited_for_and_then_named(tmp_path):
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with file_in(tmp_path).locked():
            held.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        with pytest.raises(LockTimeoutError, match=r"vectors\.lock is held by another process"):
            file_in(tmp_path, lock_timeout=0.01).erase()
    finally:
        leave.set()
        thread.join(PATIENCE)
    file_in(tmp_path, lock_timeout=0.01).erase()


def test_the_first_to_embed_is_alone_until_it_is_done(tmp_path):
    one, two = file_in(tmp_path), file_in(tmp_path)
    with one.alone() as first, two.alone() as second:
        assert (first, second) == (True, False)
    with two.alone() as first:
        assert first


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE made SET version = 99", "it is of version 99, not 1"),
        ("UPDATE made SET epoch = 'long ago'", "it is from before an erasure"),
        ("UPDATE made SET epoch = 'long ago', model = 'other'", "it is from before an erasure"),
        ("DELETE FROM made", "it does not say who made it"),
        ("INSERT INTO made SELECT * FROM made", "it does not say who made it"),
        ("UPDATE vector SET key = 'b'", "a checksum does not match"),
        ("UPDATE vector SET space = 'facts'", "a checksum does not match"),
        ("UPDATE vector SET digest = zeroblob(16)", "a checksum does not match"),
        ("UPDATE vector SET data = zeroblob(8)", "a checksum does not match"),
        ("UPDATE made SET dimensions = 8", "a checksum does not match"),
        ("UPDATE vector SET sum = NULL", "a checksum does not match"),
        ("DROP TABLE vector", "no such table"),
        ("DROP TABLE made", "no such table"),
    ],
)
def test_what_was_not_written_here_is_taken_away_and_named(tmp_path, caplog, statement, reason):
    file = file_in(tmp_path)
    written(file, row("a"))
    with sqlite3.connect(file.path) as db:
        db.execute(statement)
    db.close()
    with caplog.at_level(logging.WARNING):
        assert file.read() is None
    assert f"{file.path} is begun anew: {reason}" in caplog.text
    assert not file.path.exists()
    written(file, row("c"))
    assert rows_of(file) == [row("c")]


def test_what_another_model_made_is_not_read_and_stands_until_there_is_something_to_write(tmp_path, caplog):
    written(file_in(tmp_path), row("a", 7))
    other = file_in(tmp_path, "other")
    with caplog.at_level(logging.WARNING):
        assert other.read() is None
        assert other.read() is None
    assert other.stamp() is None
    assert caplog.text.count("was made by bag, not by other") == 1
    assert rows_of(file_in(tmp_path)) == [row("a", 7)]
    written(other, row("b", 9))
    assert rows_of(other) == rows_of(file_in(tmp_path, "other")) == [row("b", 9)]
    assert bytes([7] * 2 * SIZE) not in other.path.read_bytes()
    assert other.path.stat().st_mode & 0o777 == 0o600


def test_another_models_file_stands_where_a_new_one_cannot_be_made(tmp_path, monkeypatch):
    written(file_in(tmp_path), row("a"))
    other = file_in(tmp_path, "other")

    def full(path: Path, *_: object) -> None:
        path.unlink(missing_ok=True)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(other, "_make", full)
    with pytest.raises(UnusableError, match="is full"):
        written(other, row("b"))
    assert rows_of(file_in(tmp_path)) == [row("a")]


def test_what_was_replaced_meanwhile_is_not_taken_away(tmp_path):
    file = file_in(tmp_path)
    written(file, row("a"))
    before = file.stamp()
    file.erase(SIZE, [row("b")])
    file._begin_anew("it looked damaged", before)
    assert rows_of(file) == [row("b")]


def test_a_file_that_cannot_be_opened_is_no_damage(tmp_path, monkeypatch):
    file = file_in(tmp_path)
    written(file, row("a"))

    def refuse(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr("backstory.projections.search.vectors.vector_file.connect", refuse)
    with pytest.raises(UnusableError, match="unable to open"):
        file.read()
    assert file.path.exists()


def test_a_file_that_nobody_may_write_is_read(tmp_path, monkeypatch):
    file = file_in(tmp_path)
    written(file, row("a"))
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK and real(path, mode, **more))
    assert rows_of(file) == [row("a")]
    with pytest.raises(UnusableError, match="readonly"), file.locked():
        file.write(Made("bag", SIZE, ""), [row("b")])


def test_freed_pages_are_wiped():
    with closing(connect(None, busy_seconds=1)) as db:
        assert db.execute("PRAGMA secure_delete").fetchone() == (1,)


def test_a_file_says_how_the_logs_were_stored_until_two_writers_disagree(tmp_path):
    standing = [1]
    vectors, other = (Vectors(tmp_path / "vectors.sqlite", BagOfWords(), lambda: standing[0]) for _ in range(2))
    file = file_in(tmp_path)
    assert file.stored() is None

    def stale():
        # Read before something was erased, and written after another process began the file.
        yield passage("a", "tea")
        standing[0] = 2
        other.bring("facts", [passage("b", "coffee")])

    vectors.bring("turns", stale())
    assert file.stored() == 0
    vectors.purge({"facts": [passage("b", "coffee")]})
    assert file.stored() == 2
    vectors.bring("turns", [passage("c", "milk")])
    assert file.stored() == 2
