"""The disk is full, fails or may not be written, and clocks are wrong: through the public doors.

Promised: what was acknowledged before is there; who is refused is told what, where and what to do, by one of our own
errors; reading goes on; and once the trouble is over the next write works and the chain verifies. What the store does
call by call is in tests/ledger/engines/jsonl/test_jsonl_faults.py.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.commandline import Cli
from doubles.disk import Disk
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply
from faults.logs import Scope
from sizes import LONG, cannot

from backstory.ledger.core.errors import BackstoryError, StoreError, UnavailableError
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

USER = "ada"


def check_after(home: Path, turns: list[str], facts: list[str]) -> None:
    """The trouble is over: what was acknowledged is there and nothing else, the next write works, all verifies."""
    scope = Scope(home / "users" / USER)
    assert list(scope.turns().values()) == turns
    assert list(scope.added()) == facts
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        memory.record("after", exchange("after the trouble"))
        memory.extract([RecordedReply("after", reply("learned after it"))])
        memory.add_fact("entered after it")
    with open_home(home) as backstory:
        found = backstory.memory(USER).verify()
        assert found.ok, found.problems
        assert found.problems == ()
    scope = Scope(home / "users" / USER)
    assert list(scope.added()) == [*facts, "learned after it", "entered after it"]
    assert scope.document() == list(scope.added())


def check_told(error: BaseException, home: Path) -> None:
    """One line of ours that says what, where and what to do."""
    assert isinstance(error, UnavailableError), repr(error)
    assert str(home) in str(error)
    assert ";" in str(error)
    assert "\n" not in str(error)


def write_until_refused(memory: MemoryHandle, turns: list[str], facts: list[str], most: int = 200) -> StoreError:
    """Go on until something is refused; what was acknowledged until then is added to the lists."""
    for _ in range(most):
        number = len(turns)
        messages = exchange(f"topic {number} " + "x" * 3000)
        try:
            memory.record("t", messages, mode="append")
            turns += [str(message["content"]) for message in messages]
            memory.add_fact(f"fact {number} " + "y" * 2000)
            facts.append(f"fact {number} " + "y" * 2000)
        except StoreError as error:
            return error
    raise AssertionError("it was never refused")


# A full disk.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        cannot("only root can mount a small disk")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=False, capture_output=True, text=True
    )
    if made.returncode != 0:
        cannot(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill_up(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def test_a_small_disk_fills_up_and_is_freed(small_disk: Path) -> None:
    home = small_disk / "home"
    ballast, rest = small_disk / "ballast", small_disk / "rest"
    ballast.write_bytes(b"x" * (96 << 10))
    turns: list[str] = []
    facts: list[str] = []
    with open_home(home, ScriptedModel(reply("learned"), repeat=True)) as backstory:
        memory = backstory.memory(USER)
        refused = write_until_refused(memory, turns, facts)
        check_told(refused, home)
        assert "No space left on device; free some space" in str(refused)
        assert [fact.content for fact in memory.facts()] == facts
        # What a document that was being written has given back is taken as well.
        memory.flush()
        fill_up(rest)
        for door in (lambda: memory.add_fact("z" * 4000), lambda: memory.record("u", exchange("z" * 90_000))):
            with pytest.raises(StoreError, match="free some space"):
                door()
    # Whoever opens a full disk can read all of it.
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        assert [fact.content for fact in memory.facts()] == facts
        assert len(memory.transcript("t")) == len(turns)
        assert memory.verify().ok or [p.kind for p in memory.verify().problems] == ["document_differs"]
    ballast.unlink()
    rest.unlink()
    check_after(home, turns, facts)


LIMITED = """
import json, resource, sys
from backstory.home import Backstory
from backstory.ledger.core.errors import StoreError

home, most = sys.argv[1], int(sys.argv[2])
backstory = Backstory.open(home, background=False)
memory = backstory.memory("ada")
resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
turns, facts = [], []
try:
    while True:
        said = f"topic {len(turns)} " + "x" * 1000
        memory.record("t", [{"role": "user", "content": said}], mode="append")
        turns.append(said)
        memory.add_fact(f"fact {len(facts)}")
        facts.append(f"fact {len(facts)}")
except StoreError as error:
    print(json.dumps([turns, facts, str(error)]))
backstory.close()
"""


@pytest.mark.parametrize("most", [10_007] if not LONG else [9_000, 10_007, 12_345])
def test_a_file_may_grow_no_further(tmp_path: Path, most: int) -> None:
    """A disk that is full in the middle of a line, for whoever may not mount one."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path, str(most)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    turns, facts, told = json.loads(done.stdout)
    assert str(tmp_path) in told
    assert len(turns) > 3
    check_after(tmp_path, turns, facts)


# A disk that fails.


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path / "home", monkeypatch)


TROUBLES: dict[str, Callable[[Disk, str], None]] = {
    "write error": lambda disk, log: disk.fail("write", errno.EIO, on=log),
    "write error after a part": lambda disk, log: disk.fail("write", errno.EIO, on=log, after=77),
    "sync error": lambda disk, log: disk.fail("fdatasync", errno.EIO, on=log),
    "full": lambda disk, log: disk.fail("write", errno.ENOSPC, on=log),
    "full after a part": lambda disk, log: disk.fail("write", errno.ENOSPC, on=log, after=1),
    "over quota at the sync": lambda disk, log: disk.fail("fdatasync", errno.EDQUOT, on=log),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.parametrize("door", ["record", "add", "extract", "clear"])
def test_a_disk_fails_once(disk: Disk, trouble: Callable[[Disk, str], None], door: str) -> None:
    home = disk.home
    turns = [str(message["content"]) for message in exchange("tea")]
    with open_home(home, ScriptedModel(reply("learned"))) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("tea", 1))
        memory.add_fact("before")
        before, hashed = memory.document(), memory.head()
        trouble(disk, "transcript.jsonl" if door == "record" else "ledger.jsonl")
        doors: dict[str, Callable[[], object]] = {
            "record": lambda: memory.record("t", exchange("fish", 2)),
            "add": lambda: memory.add_fact("refused"),
            "extract": memory.extract,
            "clear": memory.clear,
        }
        with pytest.raises(BackstoryError) as refused:
            doors[door]()
        check_told(refused.value, home)
        assert disk.faults == []
        assert (memory.document(), memory.head()) == (before, hashed)
        assert [turn.content for turn in memory.transcript("t")] == turns
        assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 2)]
    check_after(home, turns, ["before"])


def test_a_disk_that_takes_writes_in_pieces_gets_all_of_them(disk: Disk) -> None:
    disk.shorten(1, 2, 3, 500, 1)
    with open_home(disk.home) as backstory:
        backstory.memory(USER).add_fact("one")
        backstory.memory(USER).add_fact("two")
    assert disk.faults == []
    check_after(disk.home, [], ["one", "two"])


def test_a_disk_that_fails_while_a_worker_learns_leaves_the_turns_pending(disk: Disk) -> None:
    model = ScriptedModel(reply("learned"), repeat=True)
    with open_home(disk.home, model, background=True) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("tea", 1))
        memory.add_fact("before")
        disk.fail("fdatasync", errno.EIO)
        assert not memory.flush(PATIENCE)
        assert disk.faults == []
        assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 2)]
    with open_home(disk.home, model, background=True, debounce_seconds=0) as backstory:
        memory = backstory.memory(USER)
        assert memory.flush(PATIENCE)
        assert memory.status().pending == ()
        assert memory.verify().ok
    assert set(Scope(disk.home / "users" / USER).covered().values()) == {1}


def test_a_document_that_cannot_be_written_fails_no_commit(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """memory.json is a projection: the commit stands, and the next one or the next open brings it up to date."""
    with open_home(disk.home) as backstory:
        memory = backstory.memory(USER)
        memory.add_fact("one")
        memory.flush()
        (disk.home / "users" / USER / "memory.json").unlink()
        (disk.home / "users" / USER / "memory.json").mkdir()
        memory.add_fact("two")
        assert [fact.content for fact in memory.facts()] == ["one", "two"]
    (disk.home / "users" / USER / "memory.json").rmdir()
    check_after(disk.home, [], ["one", "two"])


# A home that may not be written.


READER = """
import ctypes, json, sys
from backstory.home import Backstory
from backstory.ledger.core.errors import BackstoryError

home = sys.argv[1]
if sys.argv[2] == "modest":  # root without its capabilities is an owner like any other: modes hold for it
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
backstory = Backstory.open(home, background=False)
memory = backstory.memory("ada")
told = []
for refused in (
    lambda: memory.add_fact("refused"),
    lambda: memory.record("t", [{"role": "user", "content": "refused"}]),
    lambda: backstory.memory("bob").add_fact("refused"),
):
    try:
        refused()
        told.append("")
    except BackstoryError as error:
        told.append(str(error))
print(json.dumps({
    "told": told,
    "facts": [fact.content for fact in memory.facts()],
    "turns": [turn.content for turn in memory.transcript("t")],
    "why": [turn.content for turn in memory.why(memory.facts()[0].id).evidence],
    "then": len(memory.document(2).facts),
    "log": len(memory.log()),
    "ok": memory.verify().ok,
    "problems": [problem.kind for problem in memory.verify().problems],
}))
backstory.close()
"""


def filled(home: Path) -> tuple[list[str], list[str]]:
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("tea", 1))
        memory.extract([RecordedReply("t", reply("likes tea"))])
        memory.add_fact("keeps a cat")
        memory.flush()
    return [str(message["content"]) for message in exchange("tea")], ["likes tea", "keeps a cat"]


def check_reading(home: Path, turns: list[str], facts: list[str], *, modest: bool, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READER, home, "modest" if modest else "as I am"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["turns"], found["facts"]) == (turns, facts)
    assert (found["why"], found["then"], found["log"], found["ok"]) == (turns, 1, 3, True), found
    assert len(found["told"]) == 3
    for line in found["told"]:
        assert str(home) in line
        assert told in line, line
        assert "; " in line


@pytest.mark.parametrize("derived", [True, False], ids=["with what is derived", "logs alone"])
def test_a_read_only_file_system_is_read_and_refuses(small_disk: Path, *, derived: bool) -> None:
    home = small_disk / "home"
    turns, facts = filled(home)
    if not derived:
        for path in [*home.rglob("index.sqlite*"), *home.rglob("memory.json"), *home.rglob("*.lock")]:
            path.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    check_reading(home, turns, facts, modest=False, told="the file system is read-only")
    cli = Cli(home)
    assert [fact["content"] for fact in cli.json("--user", USER, "fact", "list")] == facts
    assert "read-only" in cli.error("--user", USER, "fact", "add", "refused", code=3)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    check_after(home, turns, facts)


@pytest.mark.parametrize("derived", [True, False], ids=["with what is derived", "logs alone"])
def test_a_folder_that_one_may_only_read_is_read_and_refuses(tmp_path: Path, *, derived: bool) -> None:
    home = tmp_path / "home"
    turns, facts = filled(home)
    if not derived:
        for path in [*home.rglob("index.sqlite*"), *home.rglob("memory.json"), *home.rglob("*.lock")]:
            path.unlink()
    everything = [home, *home.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        check_reading(home, turns, facts, modest=True, told="check the folder's owner and mode")
    finally:
        for path in everything:
            path.chmod(0o700 if path.is_dir() else 0o600)
    check_after(home, turns, facts)


# Clocks.


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
YEAR = 365 * 86_400.0


def moments(home: Path) -> list[str]:
    scope = Scope(home / "users" / USER)
    for log in (scope.ledger, scope.transcript):
        at = [commit["at"] for commit in log.commits]
        assert at == sorted(at)
    return [commit["at"] for commit in scope.ledger.commits]


def test_a_clock_set_back_a_year_puts_nothing_off_and_nothing_goes_back(tmp_path: Path) -> None:
    model = ScriptedModel(reply("one"), reply("two"), reply("three"))
    clock = FakeClock(NOW)
    with open_home(tmp_path, model, clock=clock, min_seconds_between_calls=5) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("tea", 1))
        memory.extract()
        clock.advance(-YEAR)
        memory.record("t", exchange("fish", 2))
        (waiting,) = memory.status().pending
        assert waiting.due_in is not None
        assert waiting.due_in <= 30
        memory.extract()
        assert sum(clock.slept) <= 5
        memory.add_fact("entered in the past")
        assert memory.document().last_updated == "2026-03-01T12:00:00.000000Z"
    with open_home(tmp_path, model, clock=clock) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("jazz", 3))
        assert max(thread.due_in or 0 for thread in memory.status().pending) <= 30
        memory.extract()
        assert memory.verify().ok
        assert [fact.content for fact in memory.facts()] == ["one", "two", "entered in the past", "three"]
    assert set(moments(tmp_path)) == {"2026-03-01T12:00:00.000000Z"}


def test_a_worker_is_not_put_off_for_a_year_by_a_clock_set_back(tmp_path: Path) -> None:
    asked = threading.Event()

    def think(prompt: Prompt) -> str:
        asked.set()
        return reply("learned")

    clock = FakeClock(NOW)
    with open_home(tmp_path, ScriptedModel(think, repeat=True), clock=clock, background=True) as backstory:
        memory = backstory.memory(USER)
        memory.record("t", exchange("tea", 1))
        clock.advance(-YEAR)
        memory.record("t", exchange("fish", 2))
        assert not asked.is_set()
        clock.advance(31)
        memory.record("other", exchange("jazz", 3))
        producer = backstory._services.producer
        assert producer is not None
        with producer._changed:
            producer._wake()  # a worker sleeps by a clock of its own: 30 seconds, whatever this one says
        assert asked.wait(PATIENCE / 4)
        assert memory.flush(PATIENCE)
    assert set(Scope(tmp_path / "users" / USER).covered().values()) == {1}


@pytest.mark.parametrize("apart", [3600.0, YEAR, -YEAR])
def test_two_machines_whose_clocks_are_apart_write_to_one_home(tmp_path: Path, apart: float) -> None:
    clocks = [FakeClock(NOW), FakeClock(NOW + timedelta(seconds=apart))]
    models = [ScriptedModel(*(reply(f"{side} {n}") for n in range(3))) for side in ("left", "right")]
    sides = [open_home(tmp_path, model, clock=clock) for model, clock in zip(models, clocks, strict=True)]
    for n in range(3):
        for side, backstory in enumerate(sides):
            memory = backstory.memory(USER)
            memory.record(f"t{side}", exchange(f"topic {n}", n))
            assert all((thread.due_in or 0) <= 30 for thread in memory.status().pending)
            assert memory.extract(thread=f"t{side}").updates == 1
            for clock in clocks:
                clock.advance(1)
    for backstory in sides:
        assert len(backstory.memory(USER).facts()) == 6
        assert backstory.memory(USER).document() == sides[0].memory(USER).document()
    for backstory in sides:
        backstory.close()
    with open_home(tmp_path) as backstory:
        assert backstory.memory(USER).verify().ok
    assert len(moments(tmp_path)) == 7
    assert set(Scope(tmp_path / "users" / USER).covered().values()) == {1}
