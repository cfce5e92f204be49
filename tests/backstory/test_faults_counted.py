"""Memory's faults: logged once, counted, shared between processes, aged, bounded, and never in anybody's way."""

from __future__ import annotations

import gc
import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import (
    CorruptLogError,
    InputError,
    LockTimeoutError,
    ModelError,
    ModelRejectedError,
    ModelUnavailableError,
    StoreError,
)
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.files import refused
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.extraction.models.recorded import as_reply
from backstory.ledger.learning.observing import CallEnded, CallStarted
from backstory.outbox.faults import Faults, ModelFaults, ScopeFaults
from backstory.results import FaultCount

ADA, BOB = Scope("ada"), Scope("bob")
DAY = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def faults(tmp_path: Path, clock: FakeClock) -> Faults:
    return kept_in(tmp_path, clock)


def kept_in(home: Path, clock: FakeClock, patience: float = PATIENCE) -> Faults:
    known: dict[Scope, ScopeFaults] = {}

    def state_of(scope: Scope) -> ScopeFaults:
        return known.setdefault(scope, ScopeFaults(faults, scope, home / scope.folder / "faults.json"))

    faults = Faults(clock, state_of, patience=patience)
    return faults


def file(home: Path) -> Path:
    return home / "users/ada/faults.json"


def counted(faults: Faults, scope: Scope = ADA) -> dict[tuple[str, str], int]:
    return {(fault.doing, fault.kind): fault.count for fault in faults.of(scope)}


# Counting and logging.


def test_nothing_failed_where_nothing_failed(faults: Faults, tmp_path: Path) -> None:
    assert faults.of(ADA) == ()
    faults.flush()
    faults.recovered(ADA, "record")
    faults.flush()
    assert list(tmp_path.iterdir()) == []


def test_a_fault_says_what_failed_how_often_and_when(faults: Faults, clock: FakeClock) -> None:
    first = spell_moment(clock.now())
    faults.note(ADA, "record", StoreError("the disk is full"))
    clock.advance(60)
    faults.note(ADA, "record", StoreError("the disk is gone"))
    (fault,) = faults.of(ADA)
    assert fault == FaultCount("record", "StoreError", 2, first, spell_moment(clock.now()), "the disk is gone")


def test_kinds_are_told_apart_by_memory_by_what_was_done_and_by_the_error(faults: Faults) -> None:
    faults.note(ADA, "record", StoreError("x"))
    faults.note(ADA, "inject", StoreError("x"))
    faults.note(ADA, "record", OSError(5, "x"))
    faults.note(BOB, "record", StoreError("x"))
    faults.note(Scope(), "record", StoreError("x"))
    assert counted(faults) == {("record", "StoreError"): 1, ("inject", "StoreError"): 1, ("record", "OSError"): 1}
    assert counted(faults, BOB) == counted(faults, Scope()) == {("record", "StoreError"): 1}


def test_the_newest_fault_comes_first(faults: Faults, clock: FakeClock) -> None:
    for doing in ("record", "inject", "search"):
        faults.note(ADA, doing, StoreError("x"))
        clock.advance(1)
    assert [fault.doing for fault in faults.of(ADA)] == ["search", "inject", "record"]


def test_the_first_fault_of_a_kind_is_logged_with_what_to_do_and_the_next_are_only_counted(
    faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        faults.note(ADA, "record", StoreError("the disk is full; free some space"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "user ada: record failed (StoreError): the disk is full; free some space" in record.getMessage()
    assert "counted: see `status`" in record.getMessage()
    assert record.exc_info is None
    faults.note(ADA, "inject", StoreError("x"))
    faults.note(BOB, "record", StoreError("x"))
    faults.note(ADA, "record", LockTimeoutError("x"))
    assert len(caplog.records) == 4


def test_after_a_success_the_next_fault_is_logged_again(faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    faults.note(ADA, "record", StoreError("x"))
    faults.note(ADA, "inject", StoreError("x"))
    faults.note(ADA, "record", InputError("x"))
    faults.recovered(ADA, "record", still=["InputError"])
    faults.recovered(BOB, "inject")
    caplog.clear()
    faults.note(ADA, "inject", StoreError("x"))
    faults.note(ADA, "record", InputError("x"))
    assert caplog.records == []
    faults.note(ADA, "record", StoreError("x"))
    assert len(caplog.records) == 1
    assert counted(faults)["record", "StoreError"] == 2


def test_a_fault_that_nobody_foresaw_is_logged_with_its_traceback(
    faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    faults.note(ADA, "record", caught(lambda: 1 // 0))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "please report it" in record.getMessage()


# What is told of it.


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (LockTimeoutError("the lock\n is held"), "the lock is held"),
        (CorruptLogError("line 3 is damaged", kind="altered", stream="s", line=3, byte=9), "line 3 is damaged"),
        (OSError(28, "secret"), "No space left on device"),
        (OSError("secret"), ""),
        (InputError("role is 'secret'"), ""),
        (ModelRejectedError("secret"), ""),
        (KeyError("secret"), ""),
    ],
)
def test_only_what_cannot_hold_content_is_told_of_an_error(error: Exception, detail: str, faults: Faults) -> None:
    faults.note(ADA, "record", error)
    (fault,) = faults.of(ADA)
    assert fault.detail == detail


def test_what_is_told_of_an_error_is_not_long(faults: Faults) -> None:
    faults.note(ADA, "record", StoreError("long " * 2000))
    (fault,) = faults.of(ADA)
    assert len(fault.detail) <= 300
    assert fault.detail.startswith("long long")


def test_what_the_disk_says_is_told_and_what_a_value_says_is_not(faults: Faults) -> None:
    faults.note(ADA, "record", caught(lambda: refuse(OSError(28, "No space left on device"))))
    faults.note(ADA, "inject", caught(lambda: refuse_value(ValueError("secret"))))
    details = {fault.doing: fault.detail for fault in faults.of(ADA)}
    assert "No space left on device; free some space" in details["record"]
    assert details["inject"] == ""


def caught(call: object) -> Exception:
    try:
        call()  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 it is what was asked for
        return error
    raise AssertionError


def refuse(error: OSError) -> None:
    raise refused("/home", "write", error) from error


def refuse_value(error: Exception) -> None:
    raise StoreError(f"commit 3 cannot be written: {error}") from error


def test_nothing_that_was_said_gets_into_the_file(tmp_path: Path) -> None:
    from backstory.outbox.fail_safe import FailSafeMemory

    with open_home(tmp_path) as bs:
        door = FailSafeMemory(bs)
        door.record(ADA, "secret-thread", [{"role": "secret-role", "content": "secret words"}, *exchange("secret tea")])

        def fail(*_: object) -> None:
            raise KeyError("secret key")

        bs.store.append = fail  # type: ignore[method-assign]
        door.record(ADA, "secret-thread", exchange("secret rye"))
        assert len(bs.faults.of(ADA)) == 2
        assert b"secret" not in file(tmp_path).read_bytes()
        del bs.store.append  # type: ignore[method-assign]


def test_what_could_not_be_read_is_quoted_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from backstory.outbox.fail_safe import FailSafeMemory

    with open_home(tmp_path) as bs:
        FailSafeMemory(bs).record(
            ADA, "t", [("my PIN is 4711", "human"), {"role": "user", "content": "x", "at": "4711"}]
        )
    assert "a message cannot be read" in caplog.text
    assert "4711" not in caplog.text
    assert b"4711" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_path_that_is_no_text_is_told_as_far_as_it_is(
    faults: Faults, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults.note(ADA, "record", StoreError("cannot write " + os.fsdecode(b"/home/caf\xe9")))
    faults.flush()
    (fault,) = kept_in(tmp_path, FakeClock()).of(ADA)
    assert fault.detail.startswith("cannot write /home/caf")
    fault.detail.encode()
    caplog.text.encode()


def test_a_fault_without_words_does_not_hide_those_of_the_one_before(faults: Faults, clock: FakeClock) -> None:
    faults.count(ADA, "inject", "LockTimeoutError", "the lock is held")
    clock.advance(1)
    faults.count(ADA, "inject", "LockTimeoutError")
    (fault,) = faults.of(ADA)
    assert (fault.count, fault.detail) == (2, "the lock is held")


# Kept for others to see.


def test_another_process_sees_what_was_counted_here(tmp_path: Path, faults: Faults, clock: FakeClock) -> None:
    faults.note(ADA, "record", StoreError("x"))
    others = kept_in(tmp_path, clock)
    assert counted(others) == {("record", "StoreError"): 1}
    others.note(ADA, "record", StoreError("x"))
    others.note(ADA, "inject", StoreError("x"))
    assert counted(faults) == counted(others) == {("record", "StoreError"): 2, ("inject", "StoreError"): 1}


def test_many_faults_in_a_moment_are_written_once_and_counted_all(
    tmp_path: Path, faults: Faults, clock: FakeClock
) -> None:
    for _ in range(10):
        faults.note(ADA, "record", StoreError("x"))
    others = kept_in(tmp_path, clock)
    assert counted(others) == {("record", "StoreError"): 1}
    assert counted(faults) == {("record", "StoreError"): 10}
    clock.advance(1)
    faults.note(ADA, "record", StoreError("x"))
    assert counted(others) == {("record", "StoreError"): 11}
    faults.note(ADA, "record", StoreError("x"))
    faults.flush()
    assert counted(others) == {("record", "StoreError"): 12}
    faults.flush()
    assert counted(others) == {("record", "StoreError"): 12}


def test_threads_and_processes_count_everything(tmp_path: Path, clock: FakeClock) -> None:
    shared = [kept_in(tmp_path, clock) for _ in range(2)]

    def fail(number: int) -> None:
        for _ in range(50):
            shared[number % 2].note(ADA, "record", StoreError("x"))
            clock.advance(1)

    threads = [threading.Thread(target=fail, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for faults in shared:
        faults.flush()
    assert counted(kept_in(tmp_path, clock)) == {("record", "StoreError"): 400}


def test_the_file_is_for_nobody_else_to_read_and_leaves_nothing_beside_it(tmp_path: Path, faults: Faults) -> None:
    faults.note(ADA, "record", StoreError("x"))
    assert stat.S_IMODE(file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(file(tmp_path).parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in file(tmp_path).parent.iterdir()) == ["faults.json", "faults.lock"]


def test_what_a_killed_process_left_is_replaced_and_a_link_is_not_followed(tmp_path: Path, faults: Faults) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    file(tmp_path).parent.mkdir(parents=True)
    file(tmp_path).with_name(".faults.json.new").symlink_to(target)
    faults.note(ADA, "record", StoreError("x"))
    assert target.read_text() == "mine"
    assert file(tmp_path).is_file()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[1]", b'{"version":1,"faults":[{"doing":1}]}', b"[" * 100_000],
    ids=["empty", "half", "no text", "another shape", "another type", "deep"],
)
def test_a_damaged_file_is_begun_anew(content: bytes, tmp_path: Path, faults: Faults) -> None:
    file(tmp_path).parent.mkdir(parents=True)
    file(tmp_path).write_bytes(content)
    assert faults.of(ADA) == ()
    faults.note(ADA, "record", StoreError("x"))
    assert counted(faults) == {("record", "StoreError"): 1}
    assert json.loads(file(tmp_path).read_bytes())["version"] == 1


@pytest.mark.parametrize(
    "wrong",
    [{"count": 0}, {"count": -3}, {"first": "yesterday"}, {"last": ""}],
)
def test_a_count_that_cannot_be_is_left_out(
    wrong: dict[str, object], tmp_path: Path, faults: Faults, clock: FakeClock
) -> None:
    at = spell_moment(clock.now())
    right = {"doing": "record", "kind": "StoreError", "count": 1, "first": at, "last": at}
    file(tmp_path).parent.mkdir(parents=True)
    file(tmp_path).write_text(json.dumps({"version": 1, "faults": [right, {**right, "doing": "inject", **wrong}]}))
    assert counted(faults) == {("record", "StoreError"): 1}


def test_a_folder_that_cannot_be_written_keeps_counts_in_this_process(
    tmp_path: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "users").write_text("a file where a folder should be")
    for _ in range(3):
        faults.note(ADA, "record", StoreError("x"))
    assert counted(faults) == {("record", "StoreError"): 3}
    assert len(caplog.records) == 1
    (tmp_path / "users").unlink()
    faults.flush()
    assert counted(kept_in(tmp_path, FakeClock())) == {("record", "StoreError"): 3}


def test_a_file_that_cannot_be_replaced_keeps_counts_in_this_process(tmp_path: Path, faults: Faults) -> None:
    file(tmp_path).with_name(".faults.json.new").mkdir(parents=True)
    faults.note(ADA, "record", StoreError("x"))
    assert counted(faults) == {("record", "StoreError"): 1}
    file(tmp_path).with_name(".faults.json.new").rmdir()
    faults.flush()
    assert file(tmp_path).is_file()


def test_nobody_waits_for_another_process_that_keeps_the_file(tmp_path: Path, clock: FakeClock) -> None:
    faults = kept_in(tmp_path, clock, patience=0)
    others = FileLocks(0, SystemClock())
    with others.held(str(file(tmp_path).with_name("faults.lock"))):
        faults.note(ADA, "record", StoreError("x"))
        assert counted(faults) == {("record", "StoreError"): 1}
        assert not file(tmp_path).exists()
    faults.flush()
    assert file(tmp_path).is_file()


# Growing old, and too many.


def test_a_count_is_forgotten_seven_days_after_its_last_fault(tmp_path: Path, faults: Faults, clock: FakeClock) -> None:
    faults.note(ADA, "record", StoreError("x"))
    faults.note(ADA, "inject", StoreError("x"))
    clock.advance(6 * DAY)
    faults.note(ADA, "record", StoreError("x"))
    clock.advance(DAY - 1)
    assert len(faults.of(ADA)) == 2
    clock.advance(1)
    assert counted(faults) == {("record", "StoreError"): 2}
    clock.advance(6 * DAY)
    assert faults.of(ADA) == ()
    faults.note(ADA, "search", StoreError("x"))
    assert len(json.loads(file(tmp_path).read_bytes())["faults"]) == 1


def test_a_time_to_come_is_now_since_a_clock_was_set_back(tmp_path: Path, faults: Faults, clock: FakeClock) -> None:
    clock.advance(30 * DAY)
    faults.note(ADA, "record", StoreError("x"))
    clock.advance(-30 * DAY)
    (fault,) = faults.of(ADA)
    assert fault.first == fault.last == spell_moment(clock.now())
    faults.note(ADA, "record", StoreError("x"))
    clock.advance(7 * DAY)
    assert faults.of(ADA) == ()


def test_of_many_kinds_the_newest_fifty_are_kept(tmp_path: Path, faults: Faults, clock: FakeClock) -> None:
    for number in range(60):
        faults.note(ADA, f"doing {number}", StoreError("x"))
        clock.advance(1)
    assert [fault.doing for fault in faults.of(ADA)] == [f"doing {number}" for number in range(59, 9, -1)]
    assert len(json.loads(file(tmp_path).read_bytes())["faults"]) == 50


def test_where_nothing_can_be_written_no_more_than_fifty_kinds_are_held(
    tmp_path: Path, faults: Faults, clock: FakeClock
) -> None:
    (tmp_path / "users").write_text("")
    for number in range(60):
        faults.note(ADA, f"doing {number}", StoreError("x"))
        clock.advance(1)
    assert len(faults.state_of(ADA).fresh) == 50
    assert faults.of(ADA)[0].doing == "doing 59"


def test_memories_whose_counts_are_written_are_let_go_of_and_a_few_of_the_others_kept(
    faults: Faults, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.outbox.faults._UNWRITTEN", 2)
    faults.note(ADA, "record", StoreError("x"))
    assert not faults._unwritten
    (tmp_path / "users/gone").write_text("a file where a folder should be")
    for number in range(5):
        faults.note(Scope("gone", f"agent{number}"), "record", StoreError("x"))
    assert len(faults._unwritten) == 2


def test_counts_that_wait_to_be_written_are_kept_while_many_other_memories_are_used(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        for _ in range(3):
            bs.faults.count(ADA, "record", "StoreError")
        for number in range(300):
            bs._services.states(Scope(f"user{number}"))
        gc.collect()
        bs.faults.count(ADA, "record", "StoreError")
        assert [fault.count for fault in bs.faults.of(ADA)] == [4]
    assert counted(kept_in(tmp_path, clock)) == {("record", "StoreError"): 4}


# Forgetting.


def test_forgetting_takes_the_counts_along(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        bs.faults.note(memory, "record", StoreError("x"))
        bs.faults.note(BOB, "record", StoreError("x"))
        memory.forget(everything=True)
        assert not file(tmp_path).exists()
        assert memory.status().faults == ()
        assert len(bs.faults.of(BOB)) == 1
        bs.faults.note(memory, "record", StoreError("x"))
        assert [fault.count for fault in memory.status().faults] == [1]


def test_what_is_purged_does_not_come_back_from_this_process(tmp_path: Path, faults: Faults) -> None:
    for _ in range(3):
        faults.note(ADA, "record", StoreError("x"))
    file(tmp_path).with_name(".faults.json.new").write_text("half")
    faults.state_of(ADA).purge()
    faults.flush()
    assert faults.of(ADA) == ()
    assert sorted(path.name for path in file(tmp_path).parent.iterdir()) == ["faults.lock"]
    file(tmp_path).with_name(".faults.json.new").write_text("half")
    faults.state_of(ADA).purge()
    assert sorted(path.name for path in file(tmp_path).parent.iterdir()) == ["faults.lock"]


def test_purging_what_never_failed_touches_nothing(tmp_path: Path, faults: Faults) -> None:
    faults.state_of(ADA).purge()
    assert list(tmp_path.iterdir()) == []


# Forks.


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_counts_for_itself(tmp_path: Path, faults: Faults, clock: FakeClock) -> None:
    register(faults)  # as the services of a home do for theirs
    register(faults.state_of(ADA))
    for _ in range(3):
        faults.note(ADA, "record", StoreError("x"))
    with faults._mutex:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                thread = threading.Thread(target=faults.note, args=(ADA, "inject", StoreError("x")))
                thread.start()
                thread.join(PATIENCE)
                faults.flush()
                code = int(thread.is_alive())
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    faults.flush()
    assert counted(kept_in(tmp_path, clock)) == {("record", "StoreError"): 3, ("inject", "StoreError"): 1}


# The model.


def test_a_model_that_is_down_is_counted_for_each_memory_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = ModelUnavailableError("secret words of a server")
    with open_home(tmp_path, ScriptedModel(down, repeat=True), max_attempts=2) as bs:
        for user in ("ada", "bob"):
            memory = bs.memory(user)
            memory.record("t", exchange("tea"))
            memory.extract()
            (fault,) = memory.status().faults
            assert (fault.doing, fault.kind, fault.count) == ("extract", "ModelUnavailableError", 2)
            assert "scripted did not answer" in fault.detail
        assert caplog.text.count("extract failed") == 1
        assert "secret" not in caplog.text
    assert b"secret" not in file(tmp_path).read_bytes()


def test_a_model_that_is_back_and_down_again_is_logged_again(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = ScriptedModel(ModelRejectedError("no"), reply("Likes tea"), ModelRejectedError("no"))
    with open_home(tmp_path, script, clock=clock) as bs:
        memory = bs.memory("ada")
        for number in range(3):
            clock.advance(60)
            memory.record(f"t{number}", exchange("tea"))
            memory.extract(thread=f"t{number}")
        assert caplog.text.count("refused to answer") == 2
        assert [fault.count for fault in memory.status().faults] == [1]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModelUnavailableError("no", status=500), "answered with status 500"),
        (ModelRejectedError("no", status=401), "answered with status 401"),
        (ModelRejectedError("no"), "refused to answer"),
        (ModelUnavailableError("no"), "did not answer"),
    ],
)
def test_a_fault_of_the_model_tells_what_the_server_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: ModelError, told: str
) -> None:
    with open_home(tmp_path, ScriptedModel(error, repeat=True), max_attempts=1) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.extract()
        assert f"the model scripted {told}; its turns" in memory.status().faults[0].detail
        assert f"scripted {told}" in caplog.text


def test_status_clears_what_the_model_made_good(tmp_path: Path, clock: FakeClock) -> None:
    down = ModelUnavailableError("no")
    with open_home(tmp_path, ScriptedModel(down, repeat=True), max_attempts=3, clock=clock) as bs:
        for user in ("ada", "bob"):
            bs.memory(user).record("t", exchange("tea"))
            bs.memory(user).extract()
        bs.faults.count(ADA, "record", "StoreError")
        # Another process, as of the command line, tries again.
        with open_home(tmp_path, ScriptedModel(reply("Likes tea")), clock=clock) as other:
            other.memory("ada").retry()
            assert [fault.doing for fault in other.memory("ada").status().faults] == ["record"]
        assert [fault.doing for fault in bs.memory("ada").status().faults] == ["record"]
        assert [fault.doing for fault in bs.memory("bob").status().faults] == ["extract"]
    # What this process had counted before and not written yet does not come back.
    assert set(counted(kept_in(tmp_path, clock))) == {("record", "StoreError")}


@pytest.mark.parametrize("how", ["retry", "discard"])
def test_status_clears_what_recorded_replies_or_a_discard_made_good(tmp_path: Path, how: str) -> None:
    with open_home(tmp_path, ScriptedModel(ModelUnavailableError("no"), repeat=True), max_attempts=1) as bs:
        memory = bs.memory("ada")
        for thread in ("t1", "t2"):
            memory.record(thread, exchange("tea"))
        memory.extract()
        bs.faults.count(ADA, "record", "StoreError")
        for thread, left in (("t1", {"extract", "record"}), ("t2", {"record"})):
            if how == "retry":
                memory.retry(thread, replies=[as_reply({"thread_id": thread, "reply": {"newFacts": []}})])
            else:
                memory.discard(thread)
            assert {fault.doing for fault in memory.status().faults} == left


def test_status_keeps_the_failure_while_recorded_replies_fail(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(ModelUnavailableError("no"), repeat=True), max_attempts=1) as bs:
        memory = bs.memory("ada")
        memory.record("t1", exchange("tea"))
        memory.extract()
        memory.retry(replies=[as_reply({"thread_id": "t1", "reply": "no JSON"})])
        assert [fault.doing for fault in memory.status().faults] == ["extract"]


def test_a_model_that_answers_writes_nothing_where_nothing_failed(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Likes tea"))) as bs:
        bs.memory("ada").record("t", exchange("tea"))
        bs.memory("ada").extract()
    assert not file(tmp_path).exists()


def test_a_model_that_answers_is_no_fault(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Likes tea"))) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.extract()
        assert memory.status().faults == ()
    assert not file(tmp_path).exists()


def test_a_call_that_the_program_broke_off_is_no_fault(faults: Faults) -> None:
    call = CallStarted(
        scope=ADA, thread="t", turns=TurnRange(1, 2), provider="custom", model="m", prompt="", estimated_tokens=1
    )
    watch = ModelFaults(faults)
    watch.on_call_ended(CallEnded(call=call, seconds=1, error="interrupted", error_type="KeyboardInterrupt"))
    assert faults.of(ADA) == ()
    watch.on_call_ended(CallEnded(call=call, seconds=1, error="rejected"))
    assert counted(faults) == {("extract", "rejected"): 1}


# Status.


def test_status_tells_what_failed_also_in_another_process(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs, open_home(tmp_path) as other:
        memory = bs.memory("ada")
        bs.faults.note(memory, "record", LockTimeoutError("the lock is held; end that process"))
        assert memory.status().faults == other.memory("ada").status().faults == bs.faults.of(memory) != ()
        assert other.memory("bob").status().faults == ()


def shown(home: Path, *words: str) -> str:
    from typer.testing import CliRunner

    from backstory.cli.app import app

    done = CliRunner().invoke(app, ["--home", str(home), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("every", [[], ["--all"]], ids=["one memory", "all of them"])
def test_the_command_line_shows_what_failed(tmp_path: Path, every: list[str]) -> None:
    with Backstory.open(tmp_path, background=False) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        for _ in range(3):
            bs.faults.note(memory, "record", LockTimeoutError("the lock is held"))

    told = json.loads(shown(tmp_path, "--json", "--user", "ada", "status", *every))
    (fault,) = (told[0] if every else told)["faults"]
    assert (fault["doing"], fault["kind"], fault["count"], fault["detail"]) == (
        "record",
        "LockTimeoutError",
        3,
        "the lock is held",
    )
    page = shown(tmp_path, "--user", "ada", "status", *every)
    assert ("FAULTS" if every else "LockTimeoutError: the lock is held") in page
    assert "3" in page.splitlines()[-1]


def test_a_page_says_nothing_of_faults_where_there_are_none(tmp_path: Path) -> None:
    with Backstory.open(tmp_path, background=False) as bs:
        bs.memory("ada").record("t", exchange("tea"))
    for words in (["--user", "ada", "status"], ["status", "--all"]):
        page = shown(tmp_path, *words).casefold()
        assert "ada" in page
        assert "fail" not in page
        assert "faults" not in page


def test_the_status_of_a_damaged_log_tells_how_often_it_was_in_the_way(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        bs.memory("ada").record("t", exchange("tea"))
    log = tmp_path / "users/ada/transcript.jsonl"
    log.write_bytes(log.read_bytes().replace(b"tea", b"TEA"))
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        with pytest.raises(CorruptLogError) as told:
            memory.status()
        assert "memory failed" not in str(told.value)
        for _ in range(2):
            bs.faults.note(memory, "inject", told.value)
        with pytest.raises(CorruptLogError, match=r"memory failed since 2026\S+: 2 x inject \(CorruptLogError\)$"):
            memory.status()


def test_the_page_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "observability.md").read_text(encoding="utf-8")
    table = page.partition("| `FaultCount` | |\n")[2].partition("\n\n")[0]
    assert all(f"`{field}`" in table for field in FaultCount.__struct_fields__)
