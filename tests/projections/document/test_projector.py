"""memory.json and the index follow the ledger a moment behind it, exact on flush and close, and in nobody's way."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doubles.other_engine import OtherEngine
from fakes import PATIENCE, CountingSalts, FakeClock, open_home

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import Cause, Head
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore
from backstory.ledger.erasure.requests import ForgetFact
from backstory.ledger.log.writer import Writer
from backstory.projections.document.document import DocumentFile, render
from backstory.projections.document.projector import DELAY_SECONDS, DocumentProjector, ScopeDocument
from backstory.projections.history.moment import memories_when, replay

SCOPE = Scope("ada")
NEVER = 3600.0
LONG_AGO = (1, 1)
IN_A_YEAR = (9e9, 9e9)


class Index:
    """A read model that only counts how often it was told to catch up."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.caught_up = 0
        self.replays: list[str] = []

    def follow(self) -> None:
        self.caught_up += 1

    def memories_when(self, moment: str) -> Iterable[Memory]:
        self.replays.append(moment)
        return memories_when(self.store, SCOPE, moment)


class Bench:
    """A scope on disk, its writer, and its keeper."""

    def __init__(
        self, home: Path, *, delay: float = NEVER, store: EventStore | None = None, lock_timeout: float = PATIENCE
    ) -> None:
        self.store = store or JsonlStore(home)
        self.path = home / SCOPE.folder / "memory.json"
        self.index = Index(self.store)
        self.projector = DocumentProjector(self.store, delay=delay, lock_timeout=lock_timeout)
        self.document = ScopeDocument(self.projector, SCOPE, self.path, lambda: self.writer, lambda: self.index)
        self.writer = Writer(
            self.store, SCOPE, clock=FakeClock(), salts=CountingSalts(), listeners=[self.document.note]
        )

    def add(self, text: str) -> None:
        fact = NewFact(place="newFacts/0", content=text, confidence=0.9, by_hand=True)
        self.writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))

    def exact(self) -> bool:
        return self.path.exists() and self.path.read_bytes() == render(replay(self.store, SCOPE))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.projector.close()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was written to any memory.json, in order."""
    done: list[bytes] = []
    write = DocumentFile.write

    def noted(self: DocumentFile, data: bytes, *, spare_edits: bool = False) -> None:
        write(self, data, spare_edits=spare_edits)
        done.append(data)

    monkeypatch.setattr(DocumentFile, "write", noted)
    return done


# When.


def test_a_commit_does_not_wait_for_the_file_and_a_flush_does(bench: Bench) -> None:
    bench.add("runs")
    assert not bench.path.exists()
    assert bench.document.flush()
    assert bench.exact()


def test_the_file_follows_by_itself_within_a_tenth_of_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DELAY_SECONDS < 0.1
    shown = threading.Event()
    write = DocumentFile.write

    def told(self: DocumentFile, data: bytes, *, spare_edits: bool = False) -> None:
        write(self, data, spare_edits=spare_edits)
        shown.set()

    monkeypatch.setattr(DocumentFile, "write", told)
    bench = Bench(tmp_path, delay=0)
    for text in ("runs", "walks"):
        shown.clear()
        bench.add(text)
        assert shown.wait(PATIENCE)
        bench.document.flush()
        assert bench.exact()
    bench.projector.close()


def test_a_burst_of_commits_is_shown_once(bench: Bench, writes: list[bytes]) -> None:
    for number in range(20):
        bench.add(f"fact {number}")
    bench.projector.close()
    assert len(writes) == 1
    assert bench.exact()


def test_to_note_a_commit_looks_at_no_file_and_renders_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add("runs")
    commit, memory = object(), Memory()
    for name in ("head", "state", "locked", "read"):
        monkeypatch.setattr(JsonlStore, name, lambda *_: pytest.fail("the store was asked"))
    monkeypatch.setattr("backstory.projections.document.projector.render", lambda *_: pytest.fail("it was rendered"))
    for _ in range(3):
        bench.document.note(SCOPE, commit, memory, memory)  # type: ignore[arg-type]
    monkeypatch.undo()


def test_reading_starts_no_thread(bench: Bench) -> None:
    bench.writer.memory()
    bench.document.flush()
    assert not bench.projector._threads
    bench.add("runs")
    assert bench.projector._threads


def test_closing_ends_the_thread_and_closing_again_does_nothing(bench: Bench) -> None:
    bench.add("runs")
    thread = next(iter(bench.projector._threads), None)
    bench.projector.close()
    assert thread is not None
    assert not thread.is_alive()
    assert bench.exact()
    bench.projector.close()


def test_a_commit_that_is_noted_after_the_end_is_shown_at_once(bench: Bench) -> None:
    bench.projector.close()
    bench.add("runs")
    assert bench.exact()


def test_where_no_thread_can_start_a_commit_is_shown_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bench.add("Ada runs")
        assert bench.exact()
    bench.add("Ada sings")
    assert not bench.exact()
    bench.document.flush()
    assert bench.exact()


def test_a_keeper_that_nobody_holds_any_more_ends_its_thread(tmp_path: Path) -> None:
    memory = open_home(tmp_path).memory("ada")
    memory.add_fact("runs")
    memory.flush()
    thread = next(iter(memory._services.home.states.projector._threads), None)
    assert thread is not None
    del memory
    end = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < end:
        # More than once: the thread itself may hold the home while it works.
        gc.collect()
        thread.join(0.1)
    assert not thread.is_alive()


# What.


def test_commits_of_another_process_are_shown_too(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path)
    bench.add("runs")
    other.add("walks")
    bench.document.flush()
    assert bench.exact()
    bench.add("swims")
    other.document.flush()
    assert bench.exact()
    other.projector.close()


def test_what_is_committed_while_the_lock_is_waited_for_is_shown_however_often_that_happens(tmp_path: Path) -> None:
    class Contended(JsonlStore):
        @contextmanager
        def locked(self, stream: str, *, wait: bool = True) -> Iterator[None]:
            if threading.current_thread() is flushing:
                other.add(f"walks {next(count)}")
            with super().locked(stream, wait=wait):
                yield

    count, flushing = itertools.count(), None
    other, bench = Bench(tmp_path), Bench(tmp_path, store=Contended(tmp_path))
    bench.add("runs")
    flushing = threading.current_thread()
    bench.document.flush()
    flushing = None
    assert b"walks 0" in bench.path.read_bytes()
    assert bench.exact()
    bench.projector.close()
    other.projector.close()


def test_a_file_that_another_process_wrote_meanwhile_is_known_without_a_replay(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path)
    for number in range(3):
        for each in (bench, other):
            each.add(f"{number} of {id(each)}")
            each.document.flush()
            assert bench.exact()
    assert bench.index.replays == []
    assert not list(bench.path.parent.glob("*.edited-*"))
    other.projector.close()


def test_an_edited_file_is_moved_aside_with_the_next_commit_and_not_before(bench: Bench) -> None:
    bench.add("runs")
    bench.document.flush()
    bench.path.write_bytes(b"edited")
    bench.document.flush()
    assert bench.path.read_bytes() == b"edited"
    bench.add("walks")
    bench.document.flush()
    assert bench.exact()
    assert (bench.path.parent / "memory.json.edited-1").read_bytes() == b"edited"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is to catch up whenever the logs have grown by 64 KiB."""
    monkeypatch.setattr("backstory.projections.document.projector._INDEX_BYTES", 1 << 16)


@pytest.mark.usefixtures("soon")
def test_the_index_catches_up_when_the_logs_have_grown_by_so_much(bench: Bench) -> None:
    bench.add("short")
    bench.document.flush()
    assert bench.index.caught_up == 0
    for _ in range(20):
        bench.add(os.urandom(2000).hex())
    bench.document.flush()
    assert bench.index.caught_up == 1
    bench.add("short too")
    bench.document.flush()
    assert bench.index.caught_up == 1
    bench.projector.close()
    assert bench.index.caught_up == 2


@pytest.mark.usefixtures("soon")
def test_an_index_of_nothing_new_is_left_alone_at_the_end(bench: Bench) -> None:
    for _ in range(20):
        bench.add(os.urandom(2000).hex())
    bench.document.flush()
    bench.projector.close()
    assert bench.index.caught_up == 1


# When something goes wrong.


def test_what_cannot_be_written_is_logged_and_tried_again_with_the_next_commit(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.path.mkdir(parents=True)
    bench.add("runs")
    assert not bench.document.flush()
    assert "user ada" in caplog.text
    assert "memory.json" in caplog.text
    bench.path.rmdir()
    bench.add("walks")
    assert bench.document.flush()
    assert bench.exact()


def test_what_could_not_be_written_is_tried_again_at_the_end(bench: Bench) -> None:
    bench.path.mkdir(parents=True)
    bench.add("runs")
    bench.document.flush()
    bench.path.rmdir()
    bench.projector.close()
    assert bench.exact()


def test_what_cannot_be_written_at_the_end_is_logged_and_not_raised(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.path.mkdir(parents=True)
    bench.add("runs")
    bench.projector.close()
    assert "memory.json" in caplog.text


def test_a_fault_does_not_end_the_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.projections.document.projector.render", lambda _: 1 / 0)
    bench.add("runs")
    assert not bench.document.flush()
    monkeypatch.undo()
    bench.add("walks")
    assert bench.document.flush()
    assert bench.exact()


@pytest.mark.usefixtures("soon")
def test_an_index_that_cannot_catch_up_is_told_again_at_the_end(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise StoreError("the index is locked")

    working, bench.index.follow = bench.index.follow, refuse  # type: ignore[method-assign]
    for _ in range(20):
        bench.add(os.urandom(2000).hex())
    bench.document.flush()
    assert bench.exact()
    assert "the index is locked" in caplog.text
    bench.index.follow = working  # type: ignore[method-assign]
    bench.projector.close()
    assert bench.index.caught_up == 1


# What a process that was killed has left.


def lagging(home: Path, *, by: tuple[float, float] = LONG_AGO) -> Bench:
    """A bench on a home whose memory.json is one commit behind."""
    first = Bench(home)
    first.add("runs")
    first.document.flush()
    before = first.path.read_bytes()
    first.add("walks")
    first.projector.close()
    first.path.write_bytes(before)
    os.utime(first.path, by)
    return Bench(home)


@pytest.mark.parametrize("age", [LONG_AGO, IN_A_YEAR], ids=["older than the log", "from before the clock was set back"])
def test_a_file_that_lags_is_made_good_when_the_home_is_closed(tmp_path: Path, age: tuple[float, float]) -> None:
    bench = lagging(tmp_path, by=age)
    assert not bench.exact()
    bench.projector.close()
    assert bench.exact()
    assert not list(bench.path.parent.glob("*.edited-*"))


def test_a_file_of_the_same_moment_as_the_log_is_looked_at(tmp_path: Path) -> None:
    """A clock ticks slowly: a commit may follow what shows the one before it within the same tick."""
    lagging(tmp_path).projector.close()
    log, path = (tmp_path / SCOPE.folder / name for name in ("ledger.jsonl", "memory.json"))
    path.unlink()
    path.write_bytes(b'{"lastUpdated":""}')
    os.utime(log, ns=(10**18, 10**18))
    os.utime(path, ns=(10**18, 10**18))
    assert len(Bench(tmp_path).projector.suspects) == 1


def test_a_missing_file_comes_back(tmp_path: Path) -> None:
    lagging(tmp_path).projector.close()
    (tmp_path / SCOPE.folder / "memory.json").unlink()
    bench = Bench(tmp_path)
    bench.projector.close()
    assert bench.exact()


def test_a_file_that_is_younger_than_the_log_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lagging(tmp_path).projector.close()
    os.utime(tmp_path / SCOPE.folder / "ledger.jsonl", LONG_AGO)
    monkeypatch.setattr(JsonlStore, "read", lambda *_: pytest.fail("the log was read"))
    Bench(tmp_path).projector.close()


def test_opening_reads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lagging(tmp_path)
    monkeypatch.setattr(JsonlStore, "read", lambda *_: pytest.fail("the log was read"))
    assert len(Bench(tmp_path).projector.suspects) == 1
    monkeypatch.undo()


def test_a_file_that_a_person_edited_is_left_where_it_is_until_the_next_commit(tmp_path: Path) -> None:
    bench = lagging(tmp_path)
    bench.path.write_bytes(b"edited")
    os.utime(bench.path, LONG_AGO)
    bench.projector.close()
    assert bench.path.read_bytes() == b"edited"
    assert not list(bench.path.parent.glob("*.edited-*"))


def test_where_nothing_can_be_written_a_reader_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = lagging(tmp_path)
    before = bench.path.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("cannot lock: Read-only file system")

    monkeypatch.setattr(JsonlStore, "locked", refuse)
    with caplog.at_level(logging.DEBUG, "backstory.projections.document.projector"):
        bench.projector.close()
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert "Read-only" in caplog.text
    assert bench.path.read_bytes() == before


def test_verify_finds_nothing_once_a_scope_was_opened_and_flushed(tmp_path: Path) -> None:
    lagging(tmp_path)
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        assert memory.flush()
        assert memory.verify().ok


def test_verify_waits_for_the_work_of_another_memory(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        memory.add_fact("Ada sings")
        assert memory.flush()
        busy = home._services.states.projector._busy

        def work() -> None:
            with busy:
                held.set()
                done.wait(PATIENCE)

        worker = threading.Thread(target=work)
        worker.start()
        assert held.wait(PATIENCE)
        memory.add_fact("Ada runs")
        ending = threading.Timer(0.05, done.set)
        ending.start()
        found = memory.verify()
        worker.join(PATIENCE)
        ending.join(PATIENCE)
        assert found.ok, found.problems


def test_a_home_that_holds_no_memory_is_left_empty(tmp_path: Path) -> None:
    with open_home(tmp_path / "new") as home:
        home.memory("ada").flush()
    assert not (tmp_path / "new").exists()


# Other processes.

STORY = """
import os, sys, threading
from pathlib import Path
from backstory import Backstory
from backstory.projections.document.document import DocumentFile, render

home = Path(sys.argv[1])
memory = Backstory.open(home, background=False).memory("ada")
memory.add_fact("runs")
memory.flush()
"""


def run(home: Path, story: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", STORY + story, str(home)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def is_exact(home: Path) -> bool:
    return (home / SCOPE.folder / "memory.json").read_bytes() == render(replay(JsonlStore(home), SCOPE))


def test_a_program_that_ends_without_closing_leaves_an_exact_file(tmp_path: Path) -> None:
    run(tmp_path, 'memory.add_fact("walks")')
    assert is_exact(tmp_path)


def test_a_forked_child_goes_on_by_itself(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
child = os.fork()
if not child:
    memory.add_fact("walks")
    os._exit(0 if memory.flush() and b"walks" in (home / "users/ada/memory.json").read_bytes() else 1)
assert os.waitpid(child, 0)[1] == 0
memory.add_fact("swims")
memory.flush()
""",
    )
    assert is_exact(tmp_path)


def test_a_child_forked_in_the_middle_of_the_parents_work_does_not_hang(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from backstory.ledger.concurrency import jobs
jobs._FORK_SECONDS = 0
busy, over, write = threading.Event(), threading.Event(), DocumentFile.is_current_or_edited

def slow(self, data):
    if threading.current_thread() is not threading.main_thread():
        busy.set()
        over.wait()
    return write(self, data)

DocumentFile.is_current_or_edited = slow
memory.add_fact("walks")
busy.wait()
child = os.fork()
if not child:
    memory.add_fact("swims")
    os._exit(0 if memory.flush() and b"swims" in (home / "users/ada/memory.json").read_bytes() else 1)
assert os.waitpid(child, 0)[1] == 0
over.set()
memory.flush()
""",
    )
    assert is_exact(tmp_path)


def test_a_child_leaves_the_work_of_a_home_that_nothing_used_at_the_fork_to_its_parent(tmp_path: Path) -> None:
    """Nothing renews it in the child: a lock may be held for ever, and the work is not the child's."""
    bench = Bench(tmp_path)
    bench.add("User likes tea")
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with bench.projector._changed:
            held.set()
            go_on.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        # As its finalizer does.
        bench.projector.finish()
        bench.projector.end()
        os._exit(bench.path.exists())
    go_on.set()
    holder.join()
    ended, end = 0, time.monotonic() + PATIENCE
    while not ended and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert (ended, status) == (child, 0)
    bench.projector.close()
    assert bench.exact()


def test_a_fork_waits_until_nothing_is_half_done(tmp_path: Path) -> None:
    """A child that was forked while a lock file is locked would share the lock, and keep it."""
    run(
        tmp_path,
        """
entered, forking, left = threading.Event(), threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)
from backstory.projections.document import document
replace = document.put_in_place

def slow(path, data):
    entered.set()
    forking.wait()
    replace(path, data)
    left.set()

document.put_in_place = slow
memory.add_fact("walks")
entered.wait()
child = os.fork()
if not child:
    os._exit(0 if left.is_set() else 1)
assert os.waitpid(child, 0)[1] == 0
""",
    )
    assert is_exact(tmp_path)


# Erasing.


def test_a_purge_takes_every_copy_away_and_the_file_comes_back(bench: Bench) -> None:
    bench.add("runs")
    bench.document.flush()
    bench.path.write_bytes(b"edited")
    bench.add("walks")
    bench.document.flush()
    bench.path.with_name(".memory.json.new").write_bytes(b"half")
    with bench.store.locked(bench.writer.ledger):
        bench.document.purge()
    assert not list(bench.path.parent.glob("*memory.json*"))
    bench.projector.close()
    assert bench.exact()


def test_a_purge_that_cannot_be_done_is_an_error(bench: Bench) -> None:
    bench.path.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot remove .*memory\.json"):
        bench.document.purge()


# Where an engine keeps the logs elsewhere.


def engine(home: Path, before: Callable[[str], None] = lambda _: None) -> EventStore:
    return OtherEngine(home, before)  # type: ignore[return-value]


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Bench]:
    """One that does not wait for another process."""
    bench = Bench(tmp_path, store=engine(tmp_path), lock_timeout=0.0)
    yield bench
    bench.projector.close()


@contextmanager
def written_by_another(away: Bench) -> Iterator[None]:
    """Another process of this machine is writing memory.json."""
    others = FileLocks(0.0, SystemClock())
    with others.held(str(away.path.with_suffix(".lock"))):
        yield


def test_the_ledgers_lock_is_not_taken_for_a_file_that_lies_elsewhere(away: Bench, tmp_path: Path) -> None:
    """A lock in an engine costs more than the commit did, and keeps the writers of all machines waiting."""
    away.add("runs")
    with engine(tmp_path).locked(away.writer.ledger):
        assert away.document.flush()
    assert away.exact()


def test_no_two_processes_of_a_machine_write_the_file_at_once(away: Bench) -> None:
    away.add("runs")
    with written_by_another(away):
        assert not away.document.flush()
        assert not away.path.exists()
    assert away.document.flush()
    assert away.exact()


def test_a_purge_waits_for_a_process_that_is_writing_the_file(away: Bench) -> None:
    """What that process writes may have been read before the erasure."""
    away.add("runs")
    away.document.flush()
    with written_by_another(away), pytest.raises(LockTimeoutError, match=r"memory\.lock is held by another process"):
        away.document.purge()
    away.document.purge()
    assert not away.path.exists()


def test_a_purge_makes_no_folder(away: Bench) -> None:
    away.document.purge()
    assert not away.path.parent.exists()


def test_commits_that_go_on_while_the_file_is_written_do_not_hold_it_up(tmp_path: Path) -> None:
    class Busy(OtherEngine):
        """Another machine commits between any two questions."""

        def head(self, stream: str) -> Head:
            if threading.current_thread() is flushing:
                other.add(f"walks {next(count)}")
            return self.inner.head(stream)

    count, flushing = itertools.count(), None
    other = Bench(tmp_path / "other", store=engine(tmp_path))
    bench = Bench(tmp_path, store=Busy(tmp_path))  # type: ignore[arg-type]
    bench.add("runs")
    flushing = threading.current_thread()
    assert bench.document.flush()
    flushing = None
    assert b"runs" in bench.path.read_bytes()
    assert bench.document.flush()
    assert bench.exact()
    bench.projector.close()
    other.projector.close()


def test_what_an_erasure_has_overtaken_is_not_written(tmp_path: Path) -> None:
    """It comes from another machine, after the memory was read and before the file is written."""

    class Erased(OtherEngine):
        def head(self, stream: str) -> Head:
            if threading.current_thread() is flushing and next(count) == 1:
                other.writer.forget(ForgetFact(fact))
            return self.inner.head(stream)

    count, flushing = itertools.count(), None
    other = Bench(tmp_path / "other", store=engine(tmp_path))
    bench = Bench(tmp_path, store=Erased(tmp_path))  # type: ignore[arg-type]
    bench.add("the PIN is 4711")
    bench.add("runs")
    fact = next(iter(bench.writer.reader.standing()[0].facts))
    flushing = threading.current_thread()
    assert bench.document.flush()
    assert next(count) > 2, "it has not been read anew"
    flushing = None
    assert b"4711" not in bench.path.read_bytes()
    assert bench.exact()
    bench.projector.close()
    other.projector.close()


def test_a_closed_home_whose_file_could_not_be_written_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A record of the log would keep what its traceback refers to.
    caplog.set_level(logging.CRITICAL, "backstory.projections.document.projector")
    tried: list[Memory] = []
    monkeypatch.setattr("backstory.projections.document.projector.render", lambda memory: tried.append(memory) or 1 / 0)
    home = open_home(tmp_path)
    home.memory("ada").add_fact("sings")
    home.close()
    states, times = weakref.ref(home._services.states), len(tried)
    assert times > 0
    del home
    gc.collect()
    assert states() is None
    assert len(tried) == times
