"""Threads and processes at one home: they wait, they give up in time, and none of them loses a commit."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock

from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.core.events import FactAdded, TurnRecorded
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import try_lock
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.commits import read_commits
from backstory.projections.integrity.verify import verify
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill

HOLDER = """
import sys
from pathlib import Path
from backstory.ledger.engines.jsonl.store import JsonlStore
with JsonlStore(Path(sys.argv[1])).locked(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""

WRITER = """
import sys
from pathlib import Path
from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import NewFact
from backstory.ledger.messages import Kept
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.writer import Writer

home, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
writer = Writer(JsonlStore(home, lock_timeout=60), Scope("ada"), policy={"max_facts": 500})
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    text = f"{who} {number}"
    writer.record("t", [Kept(role="user", content=text, id=text)])
    commit = writer.commit(
        AddFact(at="", fact=NewFact(place="facts/0", content=text, by_hand=True)), Cause(kind="manual", action="add")
    )
    print(commit.seq, flush=True)
"""


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has said its first word."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().strip() in ("held", "ready")
            yield running
        finally:
            running.kill()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_another_process_keeps_the_lock(home: Path) -> None:
    clock = FakeClock()
    store = JsonlStore(home, lock_timeout=2, clock=clock)
    with process(HOLDER, str(home), STREAM):
        with pytest.raises(
            LockTimeoutError, match="held by another process after 2 s: end that process, or raise file_lock"
        ):
            store.append(STREAM, [chain(1)[0]], 0)
        assert 2 <= sum(clock.slept) < 2.1
        assert max(clock.slept) <= 0.02
        assert lines_of(store) == []


@pytest.mark.parametrize("end", ["goes", "killed"])
def test_a_holder_that_is_gone_holds_nothing(home: Path, end: str) -> None:
    with process(HOLDER, str(home), STREAM) as holder:

        class EndingClock(FakeClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                if len(self.slept) == 3:
                    holder.send_signal(signal.SIGKILL) if end == "killed" else holder.communicate("")
                    holder.wait(PATIENCE)

        clock = EndingClock()
        JsonlStore(home, lock_timeout=2, clock=clock).append(STREAM, [chain(1)[0]], 0)
        assert len(clock.slept) == 3
    assert lines_of(JsonlStore(home)) == chain(1)


def test_another_thread_keeps_the_lock(home: Path) -> None:
    store = JsonlStore(home, lock_timeout=0.05)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked(STREAM):
            held.set()
            done.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    with pytest.raises(LockTimeoutError, match=r"locked by another thread after 0\.05 s"):
        store.append(STREAM, [chain(1)[0]], 0)
    done.set()
    thread.join(PATIENCE)
    store.append(STREAM, [chain(1)[0]], 0)


def test_the_lock_is_a_file_of_its_own(home: Path) -> None:
    store = JsonlStore(home)
    fill(store, STREAM, chain(1))
    with store.locked(STREAM):
        assert not is_free(home / "users/ada/ledger.lock")
        assert is_free(store.path(STREAM))
        copy = home / "copy"
        copy.write_bytes(store.path(STREAM).read_bytes())
        copy.replace(store.path(STREAM))
        assert not is_free(home / "users/ada/ledger.lock")
    assert is_free(home / "users/ada/ledger.lock")
    assert (home / "users/ada/ledger.lock").read_bytes().split()[:2] == [b"1", store.head(STREAM).hash.encode()]


def is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_a_lock_on_a_file_that_was_taken_away_is_nobodys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the lock file and locking it somebody deletes it: the next process would lock a new one."""
    path = home / "users/ada/ledger.lock"
    real, taken = fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if not taken:
            taken.append(path)
            path.unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with JsonlStore(home, clock=FakeClock()).locked(STREAM):
        assert not is_free(path)


def test_a_lock_file_that_is_another_one_each_time_is_not_tried_for_ever(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system whose inodes are not kept."""
    clock = FakeClock()
    store = JsonlStore(home, lock_timeout=0.1, clock=clock)
    monkeypatch.setattr(os, "fstat", lambda _: Path(__file__).stat())
    with pytest.raises(LockTimeoutError, match=r"after 0\.1 s"), store.locked(STREAM):
        pass
    assert sum(clock.slept) >= 0.1


def open_below(home: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return sorted(path for path in found if path.startswith(str(home)))


def test_no_descriptor_is_left_behind(home: Path) -> None:
    store = JsonlStore(home, lock_timeout=0.01, clock=FakeClock())
    other = JsonlStore(home)
    fill(store, STREAM, chain(1))
    for _ in range(3):
        with other.locked(STREAM), pytest.raises(LockTimeoutError):
            store.append(STREAM, [chain(1)[0]], 0)
        store.head(STREAM), lines_of(store), store.torn_tail(STREAM)
        with store.lease(STREAM, "monday"), other.lease(STREAM, "monday"):
            pass
    assert open_below(home) == []


def test_of_a_stream_that_was_locked_nothing_stays_in_memory(home: Path) -> None:
    store = JsonlStore(home)
    with store.locked(STREAM), store.locked(STREAM):
        pass
    assert store._locks._holds == {}


TAKEN: dict[str, Callable[[JsonlStore, str], AbstractContextManager[object]]] = {
    "lock": JsonlStore.locked,
    "lease": lambda store, stream: store.lease(stream, "monday"),
    "settled_head": lambda store, stream: nullcontext(store.settled_head(stream)),
}


@pytest.mark.parametrize("taken", TAKEN)
def test_what_is_locked_after_a_removal_leaves_no_folder_with_its_name(home: Path, taken: str) -> None:
    """As by a thread that saw the stream just before."""
    store, stream = JsonlStore(home), "users/ada/agents/coder/ledger"
    fill(store, stream, chain(1))
    store.remove("users/ada")
    with TAKEN[taken](store, stream), store.locked("users/ada/agents/coder/transcript"), store.locked(stream):
        pass
    assert not list(home.rglob("ada"))
    fill(store, stream, chain(1))
    assert lines_of(store, stream) == chain(1)


@pytest.mark.parametrize("taken", ["lock", "lease"])
def test_what_another_process_has_locked_where_a_folder_was_removed_is_let_be(home: Path, taken: str) -> None:
    ours, others = JsonlStore(home), JsonlStore(home)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(TAKEN[taken](ours, STREAM))
        (home / "users/ada").rename(home / "moved")
        second.enter_context(TAKEN[taken](others, STREAM))
        (there,) = (home / "users/ada").iterdir()
        first.close()
        assert not is_free(there)


def test_what_came_into_the_folder_of_a_lock_stays(home: Path) -> None:
    store = JsonlStore(home)
    with store.lease(STREAM, "monday"), store.locked(STREAM):
        (home / "users/ada/access.json").touch()
    assert (home / "users/ada/access.json").exists()


@pytest.mark.parametrize("taken", ["lock", "lease"])
def test_a_folder_that_goes_before_its_lock_file_is_there_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    real, gone = os.open, []

    def opened(path: Path, *how: int) -> int:
        if not gone:
            gone.append(home / "users/ada")
            gone[0].rmdir()
        return real(path, *how)

    monkeypatch.setattr(os, "open", opened)
    with TAKEN[taken](JsonlStore(home), STREAM):
        assert list((home / "users/ada").iterdir())
    assert gone
    assert not (home / "users").exists()


def test_a_folder_that_was_there_for_a_moment_is_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = Path.mkdir, []

    def mkdir(self: Path, mode: int = 0o777) -> None:
        if self.name == "ada" and not seen:
            seen.append(self)
            raise FileExistsError(errno.EEXIST, "File exists")
        real(self, mode)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with JsonlStore(home).locked(STREAM):
        assert seen


def test_an_erasure_leaves_nothing_that_was_moved_aside(home: Path) -> None:
    store = JsonlStore(home)
    fill(store, STREAM, lines := chain(2))
    folder = store.path(STREAM).parent
    for name in ("ledger.torn-1", "ledger.damaged-1", ".ledger.mending", ".ledger.copying", ".ledger.erasing"):
        (folder / name).write_text("said 1")
    with store.path(STREAM).open("ab") as file:
        file.write(b"said 1, and torn")
    with store.locked(STREAM):
        store.redact(STREAM, {1: erase(lines[0], 0)})
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.jsonl", "ledger.lock"]
    assert lines_of(store) == [erase(lines[0], 0), lines[1]]


def test_a_lock_file_that_was_replaced_since_the_last_append_is_locked_anew(home: Path) -> None:
    store, other = (JsonlStore(home, lock_timeout=0.01, clock=FakeClock()) for _ in range(2))
    fill(store, STREAM, chain(1))
    (home / f"{STREAM}.lock").unlink()
    with other.locked(STREAM), pytest.raises(LockTimeoutError):
        store.append(STREAM, [chain(2)[1]], 1)
    store.append(STREAM, [chain(2)[1]], 1)
    assert lines_of(other) == chain(2)


def in_a_fork(work: Callable[[], object]) -> bool:
    """Whether a forked child got through some work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 the exit code tells
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_has_locks_and_files_of_its_own(home: Path) -> None:
    store = JsonlStore(home, lock_timeout=0.01, clock=FakeClock())
    lines = chain(3)
    fill(store, STREAM, lines[:1])
    assert in_a_fork(lambda: store.append(STREAM, [lines[1]], 1))
    assert lines_of(store) == lines[:2]
    with store.locked(STREAM):
        assert not in_a_fork(lambda: store.append(STREAM, [lines[2]], 2))
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines


@pytest.mark.slow
def test_two_processes_write_at_once_and_lose_nothing(home: Path) -> None:
    names, count = ("left", "right"), 25
    with (
        process(WRITER, str(home), names[0], str(count)) as one,
        process(WRITER, str(home), names[1], str(count)) as two,
    ):
        for writer in (one, two):
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        acknowledged = {
            name: running.communicate(timeout=60)[0].split() for name, running in zip(names, (one, two), strict=True)
        }
        assert (one.returncode, two.returncode) == (0, 0)
    store, scope = JsonlStore(home), Scope("ada")
    found = verify(store, scope)
    assert found.ok, found.problems
    assert (found.commits, found.turns) == (1 + 2 * count, 2 * count)
    added = {
        event.fact.content: commit.seq
        for commit in read_commits(store, scope.stream("ledger"))
        for event in commit.events
        if isinstance(event, FactAdded)
    }
    assert added == {f"{name} {n}": int(seq) for name in names for n, seq in enumerate(acknowledged[name])}
    said = [
        event.turn.content
        for commit in read_commits(store, scope.stream("transcript"))
        for event in commit.events
        if isinstance(event, TurnRecorded)
    ]
    assert sorted(said) == sorted(added)


@pytest.mark.slow
def test_killed_writers_lose_nothing_that_they_acknowledged(home: Path) -> None:
    """Each is killed as soon as it has acknowledged so many commits: in the middle of the next one."""
    store, scope = JsonlStore(home), Scope("ada")
    acknowledged: list[str] = []
    for round_, count in enumerate([1, 2, 3, 5, 8, 13, 21, 34]):
        with process(WRITER, str(home), f"writer{round_}", "60") as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
            for number in range(count):
                assert writer.stdout.readline().strip().isdecimal()
                acknowledged.append(f"writer{round_} {number}")
            writer.kill()
            writer.wait(PATIENCE)
        found = verify(store, scope)
        assert found.ok, found.problems
        commits = read_commits(store, scope.stream("ledger"))
        added = [event.fact.content for commit in commits for event in commit.events if isinstance(event, FactAdded)]
        assert set(acknowledged) <= set(added)
        said = read_commits(store, scope.stream("transcript"))
        turns = [event.turn.content for commit in said for event in commit.events if isinstance(event, TurnRecorded)]
        assert set(added) <= set(turns)


def test_a_file_that_is_exchanged_just_before_it_is_locked_is_locked_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    opened: list[int] = []

    def open_file() -> int:
        opened.append(os.open(path, os.O_RDWR | os.O_CREAT))
        if len(opened) == 1:
            path.unlink()
        elif len(opened) == 2:
            path.rename(tmp_path / "b.lock")
            path.touch()
        return opened[-1]

    descriptor = try_lock(path, open_file)
    assert descriptor is not None
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    assert len(opened) == 3
    os.close(descriptor)
