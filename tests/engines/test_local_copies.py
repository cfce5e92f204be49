"""Copies of memories on a machine follow what others commit, erase and remove, also where nobody uses them."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles.bag import BagOfWords
from fakes import PATIENCE, FakeClock, exchange, open_home
from homes import HomesOn
from sizes import bytes_below

from backstory import Backstory
from backstory.copies import LocalCopies
from backstory.ledger.core.errors import StoreError
from backstory.projections.search.vectors.vector_file import VectorFile


@pytest.fixture
def homes(engine: HomesOn, tmp_path: Path) -> Iterator[tuple[Backstory, Backstory]]:
    """A machine that changes memories, and one that has copies of them."""
    clock = FakeClock()
    with (
        open_home(tmp_path / "busy", clock=clock, **engine.settings) as busy,
        open_home(tmp_path / "idle", clock=clock, **engine.settings) as idle,
    ):
        memory = idle.memory("ada")
        memory.add_fact("User lives in Oslo")
        memory.add_fact("The PIN is 4711")
        memory.record("t", exchange("4711", 1))
        memory.log()
        memory.flush()
        busy.memory("bob").add_fact("User has no copy there")
        yield busy, idle


def follower(home: Backstory) -> LocalCopies:
    """One that need not be waited for, where the engine does not tell what has changed."""
    tells = home.store.capabilities().changed is not None
    return LocalCopies(home, poll_seconds=0.02, sweep_seconds=None if tells else 0.02)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def document(home: Backstory, user: str = "ada") -> bytes:
    path = home.home / "users" / user / "memory.json"
    return path.read_bytes() if path.exists() else b""


def test_a_copy_follows_what_another_machine_commits(homes: tuple[Backstory, Backstory]) -> None:
    busy, idle = homes
    with follower(idle).following():
        for number in range(3):
            busy.memory("ada").add_fact(f"fact {number}")
            until(lambda: f"fact {number}".encode() in document(idle))  # noqa: B023
    busy.memory("ada").flush()
    assert document(idle) == document(busy)
    assert not (idle.home / "users/bob").exists()


def test_what_another_machine_erases_leaves_the_copy(homes: tuple[Backstory, Backstory]) -> None:
    busy, idle = homes
    assert any(b"4711" in data for data in bytes_below(idle.home).values())
    with follower(idle).following():
        until(lambda: b"4711" in document(idle))
        busy.memory("ada").forget(matching="4711")
        until(lambda: not any(b"4711" in data for data in bytes_below(idle.home).values()))
    assert b"Oslo" in document(idle)
    assert idle.memory("ada").verify().ok


def test_the_copy_of_a_user_that_another_machine_removes_is_deleted(homes: tuple[Backstory, Backstory]) -> None:
    busy, idle = homes
    copies = follower(idle)
    copies.look()
    busy.forget_user("ada")
    until(lambda: copies.sweep() is None and document(idle) == b"")
    assert [path for path, data in bytes_below(idle.home).items() if b"Oslo" in data] == []


def test_a_copy_that_nothing_is_known_of_is_never_deleted(engine: HomesOn, tmp_path: Path) -> None:
    """The home may be that of another store, of which this one knows nothing."""
    with open_home(tmp_path / "home") as files:
        files.memory("ada").add_fact("kept in files")
    before = bytes_below(tmp_path / "home")
    with open_home(tmp_path / "home", **engine.settings) as bs:
        copies = follower(bs)
        copies.look()
        copies.sweep()
    after = bytes_below(tmp_path / "home")
    assert {path: after[path] for path in before} == before


def test_a_store_that_is_away_is_asked_again(
    homes: tuple[Backstory, Backstory], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, idle = homes
    asked = itertools.count()
    copies = follower(idle)
    follow = copies._follow

    def failing(*arguments: object) -> bool:
        if next(asked) < 2:
            raise StoreError("the server is away")
        return follow(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "_follow", failing)
    with copies.following():
        busy.memory("ada").add_fact("more")
        until(lambda: b"more" in document(idle))


def test_many_copies_are_compared_with_few_questions(engine: HomesOn, tmp_path: Path) -> None:
    with open_home(tmp_path / "home", **engine.settings) as bs:
        for number in range(20):
            memory = bs.memory(f"user-{number}")
            memory.add_fact(f"User likes number {number}")
            memory.flush()
        copies = follower(bs)
        copies.sweep()
        asked: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            for question in ("state", "head", "looks"):
                if whole := getattr(bs.store, question, None):
                    patch.setattr(bs.store, question, noted(asked, question, whole))
            copies.sweep()
        # An engine that answers one question at a time is asked about each copy.
        assert asked == ["looks"] if bs.store.capabilities().looks is not None else len(asked) >= 20


def noted(asked: list[str], question: str, whole: Callable[..., object]) -> Callable[..., object]:
    def ask(*arguments: object) -> object:
        asked.append(question)
        return whole(*arguments)

    return ask


def test_a_sweep_that_takes_long_is_followed_by_a_longer_pause(
    homes: tuple[Backstory, Backstory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a machine with very many copies would ask the engine without an end."""
    _, idle = homes
    begun, ended = 100.0, 103.0
    moments = iter([begun, ended])
    monkeypatch.setattr("backstory.copies.time", SimpleNamespace(monotonic=lambda: next(moments)))
    copies = LocalCopies(idle, sweep_seconds=5.0)
    copies.sweep()
    assert copies._next_sweep == ended + 30.0


def test_a_copy_whose_logs_cannot_be_read_keeps_no_other_back(
    homes: tuple[Backstory, Backstory], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, idle = homes
    memory = idle.memory("eve")
    memory.add_fact("User lives in Rome")
    memory.flush()
    copies = follower(idle)

    def refuse(question: str) -> None:
        whole = getattr(idle.store, question)

        def ask(asked: object, *rest: object) -> object:
            if any("users/eve/" in name for name in ([asked] if isinstance(asked, str) else asked)):  # type: ignore[attr-defined]
                raise StoreError("it cannot be read")
            return whole(asked, *rest)

        monkeypatch.setattr(idle.store, question, ask)

    for question in ("looks", "state"):
        if hasattr(idle.store, question):
            refuse(question)
    busy.memory("ada").add_fact("User moved to Bergen")
    copies.sweep()
    assert b"Bergen" in document(idle)
    assert copies._again == {"users/eve"}


@pytest.fixture
def vectors(engine: HomesOn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The vectors of a machine that has searched a memory, and is off now; `busy` has erased a fact of it since."""
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: BagOfWords())
    folder = tmp_path / "idle/users/ada"
    folder.mkdir(parents=True)
    with open_home(tmp_path / "busy", **engine.settings) as busy:
        busy.memory("ada").add_fact("The PIN is 4711")
        busy.memory("ada").add_fact("User lives in Oslo")
        with open_home(tmp_path / "idle", **engine.settings) as idle:
            assert idle.memory("ada").search("PIN")
            idle.memory("ada").embed()
        busy.memory("ada").forget(matching="4711")
    return folder / "vectors.sqlite"


def kept(vectors: Path) -> list[str]:
    """The keys of a file of vectors."""
    read = VectorFile(vectors, "bag").read()
    return [] if read is None else sorted(row.key for row in read.rows.values())


@pytest.mark.parametrize("else_", ["there", "not there"])
def test_vectors_of_what_was_erased_while_a_machine_was_off_go_at_its_next_start(
    engine: HomesOn, vectors: Path, else_: str
) -> None:
    """A killed process may have left nothing else there."""
    for path in vectors.parent.iterdir() if else_ == "not there" else ():
        if not path.name.startswith("vectors"):
            path.unlink()
    assert len(kept(vectors)) == 2
    with open_home(vectors.parents[2], **engine.settings) as idle, follower(idle).following():
        until(lambda: len(kept(vectors)) == 1)
    before = vectors.read_bytes()
    with open_home(vectors.parents[2], **engine.settings) as idle:
        # Nothing was erased since.
        follower(idle).sweep()
    assert vectors.read_bytes() == before


def test_vectors_that_an_earlier_version_made_are_compared_once(engine: HomesOn, vectors: Path) -> None:
    with closing(sqlite3.connect(vectors)) as db:
        db.execute("PRAGMA user_version = 0")
    with open_home(vectors.parents[2], **engine.settings) as idle:
        follower(idle).sweep()
    assert len(kept(vectors)) == 1


def test_vectors_are_not_deleted_by_a_process_without_an_embedder_that_cannot_tell(
    engine: HomesOn, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: None)
    with closing(sqlite3.connect(vectors)) as db:
        mark = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute("PRAGMA user_version = 0")
    with open_home(vectors.parents[2], **engine.settings) as idle:
        follower(idle).sweep()
        assert len(kept(vectors)) == 2
        with closing(sqlite3.connect(vectors)) as db:
            db.execute(f"PRAGMA user_version = {mark}")
        LocalCopies(idle).sweep()
        assert not vectors.exists()
