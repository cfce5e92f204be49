"""Memory fails in every way it can: the agent goes on, nothing said is lost, doubled or put out of order."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, exchange, open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import CorruptLogError, LockTimeoutError, StoreError
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.operations.recording import Intake
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, Outbox
from backstory.outbox.retry_queue import Limits
from backstory.results import RecordResult

ADA, BOB = Scope("ada"), Scope("bob")
EAGER = Limits(shortest_pause=0.001, longest_pause=0.01)
_LONGEST_SECONDS = 20


class Elapsed:
    """A monotonic clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A home's store that does as its plan says: raise the next step, or do what is asked where that is None."""

    def __init__(self, bs: Backstory) -> None:
        self.plan: list[BaseException | Callable[[], None] | None] = []
        self.always: BaseException | None = None
        self.calls = 0
        self.afterwards = False
        """Whether it fails only after it has written."""
        self._append = bs.store.append_all
        bs.store.append_all = self  # type: ignore[method-assign]

    def __call__(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        self.calls += 1
        step = self.plan.pop(0) if self.plan else self.always
        if callable(step):
            step()
            step = None
        if step is None or self.afterwards:
            self._append(stream, lines, expected)
        if step is not None:
            raise step


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path) -> Iterator[Backstory]:
    with open_home(home) as bs:
        yield bs


@pytest.fixture
def disk(bs: Backstory) -> Disk:
    return Disk(bs)


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def door(bs: Backstory, elapsed: Elapsed) -> FailSafeMemory:
    """A door whose deliveries are only tried again by `record` and `flush`."""
    return by_hand(bs, elapsed)


def by_hand(bs: Backstory, elapsed: Elapsed, limits: Limits | None = None) -> FailSafeMemory:
    return FailSafeMemory(bs, outbox=Outbox(bs.faults, limits, elapsed=elapsed, background=False), elapsed=elapsed)


def said(bs: Backstory, thread: str = "t", scope: Scope = ADA) -> list[str]:
    memory = bs.memory(scope.user, scope.agent)
    known = {summary.thread for summary in memory.threads()}
    return [turn.content for turn in memory.transcript(thread)] if thread in known else []


def words(messages: Sequence[dict[str, object]]) -> list[object]:
    return [message["content"] for message in messages]


def kinds(bs: Backstory, scope: Scope = ADA) -> dict[str, int]:
    return {fault.kind: fault.count for fault in bs.faults.of(scope)}


# All is well.


def test_what_memory_takes_does_not_wait_and_is_told_as_record_tells_it(bs: Backstory, door: FailSafeMemory) -> None:
    assert door.record(bs.memory("ada"), "t", exchange("tea")) == RecordResult(1, 2, 0)
    assert door.record(ADA, "t", exchange("tea")) == RecordResult(1, 0, 2)
    assert (door.waiting, bs.faults.of(ADA)) == (0, ())
    assert door.flush(0)


def test_no_thread_is_started_where_nothing_waits(bs: Backstory) -> None:
    FailSafeMemory(bs).record(ADA, "t", exchange("tea"))
    assert "backstory-deliveries" not in {thread.name for thread in threading.enumerate()}


# Memory fails.


@pytest.mark.parametrize(
    "error",
    [
        StoreError("the disk is full"),
        LockTimeoutError("locked"),
        CorruptLogError("damaged", kind="altered", stream="s", line=1, byte=0),
        OSError(5, "Input/output error"),
        MemoryError(),
        KeyError("surprise"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_delivery_that_fails_waits_and_is_recorded_later(
    error: Exception, bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [error]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert (door.waiting, said(bs)) == (1, [])
    assert sum(kinds(bs).values()) == 1
    assert door.flush(PATIENCE)
    assert (door.waiting, said(bs)) == (0, words(exchange("tea")))


def test_the_next_delivery_of_a_thread_takes_along_what_waits_there(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) == RecordResult(1, 2, 0)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])
    assert door.waiting == 0


def test_what_was_filtered_of_a_delivery_that_waited_counts_as_skipped(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "t", [{"role": "tool", "content": "42"}, *exchange("rye")]) == RecordResult(1, 2, 1)


def test_where_the_first_still_fails_nothing_overtakes_it(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [StoreError("full"), StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) is None
    assert disk.calls == 2
    assert door.waiting == 2
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_other_threads_and_memories_go_on(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "other", exchange("rye")) is not None
    assert door.record(BOB, "t", exchange("oat")) is not None
    assert door.waiting == 1


def test_words_written_before_the_failure_are_not_written_twice(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan, disk.afterwards = [StoreError("interrupted")], True
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_what_a_host_does_to_its_messages_later_changes_nothing(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    metadata = {"place": ["here"]}
    mine: list[object] = [
        {"role": "user", "content": "one", "metadata": metadata},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        HumanMessage("three"),
        AIMessage("four"),
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", mine) is None
    mine[0]["content"] = mine[1]["content"][0]["text"] = mine[2].content = "changed"  # type: ignore[index,attr-defined]
    metadata["place"][0] = "changed"
    mine.clear()
    assert door.flush(PATIENCE)
    assert said(bs) == ["one", "two", "three", "four"]
    assert bs.memory("ada").transcript("t")[0].metadata == {"place": ["here"]}


def test_what_waits_leads_to_the_very_turns_that_it_would_have_led_to(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    messages = [
        {"role": "user", "content": "<uploaded_files>a.txt</uploaded_files>", "id": "1"},
        {"role": "assistant", "content": "I see a file", "id": "2"},
        {"role": "user", "content": "<mem<memory>x</memory>ory>left</memory>", "id": "3", "name": "Ada"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}], "id": "4"},
        {"role": "tool", "content": "42", "id": "5"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "psst", "hidden": True},
        {"role": "assistant", "content": "bye", "at": "2026-01-01T00:00:00Z", "send_to": ["ada"], "cause_by": "x"},
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", messages) is None
    assert door.record(BOB, "t", messages) is not None
    assert door.flush(PATIENCE)
    mine, others = bs.memory("ada").transcript("t"), bs.memory("bob").transcript("t")
    assert mine == others
    assert len(mine) == 2


def test_who_is_asked_about_hidden_words_is_asked_when_they_are_handed_over(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    asked: list[object] = []

    def keep(extra: object) -> bool:
        asked.append(extra)
        return extra == {"mine": 1}

    messages = [
        {"role": "user", "content": "kept", "metadata": {"hidden": True}, "additional_kwargs": {"mine": 1}},
        {"role": "user", "content": "left", "hidden": True, "additional_kwargs": {"mine": 2}},
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", messages, keep_hidden=keep) is None
    asked.clear()
    assert door.flush(PATIENCE)
    assert (said(bs), asked) == (["kept"], [])


def test_words_wanted_at_once_are_wanted_at_once_when_they_are_recorded_later(
    bs: Backstory, door: FailSafeMemory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[bool] = []
    take_in = Intake.take_in

    def watched(self: Intake, *given: object, immediate: bool, **more: object) -> RecordResult:
        wanted.append(immediate)
        return take_in(self, *given, immediate=immediate, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Intake, "take_in", watched)
    disk.plan = [LockTimeoutError("locked"), *[None] * 9]
    whole = exchange("tea")
    assert door.record(ADA, "t", whole, immediate=True) is None
    assert door.record(ADA, "t", [*whole, *exchange("rye")]) is None
    assert door.flush(PATIENCE)
    assert wanted == [True, True]


def test_a_host_that_repeats_the_whole_conversation_does_not_make_it_wait_many_times(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = LockTimeoutError("locked")
    whole: list[dict[str, object]] = []
    for number in range(50):
        whole += exchange(f"tea {number}")
        assert door.record(ADA, "t", whole, immediate=number == 3) is None
    assert door.waiting == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert said(bs) == words(whole)


def test_a_delivery_that_says_something_else_waits_beside_the_other(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = LockTimeoutError("locked")
    door.record(ADA, "t", exchange("tea"))
    door.record(ADA, "t", exchange("rye"))
    door.record(ADA, "t", [*exchange("rye"), *exchange("oat")])
    assert door.waiting == 2
    disk.always = None
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye"), *exchange("oat")])


# What can never be recorded.


@pytest.mark.parametrize("messages", [None, 7, "words", {"role": "user", "content": "x"}, iter(())])
def test_what_is_no_list_of_messages_is_a_fault_and_nothing_waits(
    messages: object, bs: Backstory, door: FailSafeMemory
) -> None:
    done = door.record(ADA, "t", messages)  # type: ignore[arg-type]
    assert (done is None) == (kinds(bs) == {"InputError": 1})
    assert door.waiting == 0


@pytest.mark.parametrize("thread", ["", "x" * 10_000, 7, None, ["t"]], ids=["empty", "long", "int", "None", "list"])
def test_a_thread_that_cannot_be_one_is_a_fault_and_nothing_waits(
    thread: object, bs: Backstory, door: FailSafeMemory
) -> None:
    assert door.record(ADA, thread, exchange("tea")) is None  # type: ignore[arg-type]
    assert kinds(bs) == {"UsageError": 1}
    assert door.waiting == 0


def test_a_message_nobody_can_read_is_left_out_and_counted_once(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    messages = [{"role": "user", "content": "one"}, object(), {"role": "wizard", "content": "?"}, *exchange("tea")]
    disk.plan = [StoreError("full"), StoreError("full")]
    assert door.record(ADA, "t", messages) is None
    assert kinds(bs) == {"StoreError": 1, "InputError": 2}
    assert not door.flush(PATIENCE)
    assert door.flush(PATIENCE)
    assert kinds(bs) == {"StoreError": 2, "InputError": 2}
    assert said(bs) == ["one", *words(exchange("tea"))]


def test_a_message_nobody_can_read_is_counted_also_where_nobody_tried_to_record_it(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "t", [object(), *exchange("rye")]) is None
    assert kinds(bs) == {"LockTimeoutError": 1, "InputError": 1}
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_message_nobody_can_read_is_logged_once_although_the_rest_is_recorded_each_time(
    bs: Backstory, door: FailSafeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        assert door.record(ADA, "t", [object(), *exchange("tea", number)]) is not None
    assert caplog.text.count("InputError") == 1
    assert kinds(bs) == {"InputError": 3}
    assert door.record(ADA, "t", exchange("rye")) is not None
    door.record(ADA, "t", [object()])
    assert caplog.text.count("InputError") == 2


def test_where_nothing_is_to_be_kept_nothing_waits(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "other", [{"role": "tool", "content": "42"}]) is None
    assert door.waiting == 1


def test_a_message_that_ruins_its_reader_does_not_take_the_others_along(bs: Backstory, door: FailSafeMemory) -> None:
    class Evil:
        role = "user"

        @property
        def content(self) -> str:
            raise ZeroDivisionError

    class Worse(dict):  # type: ignore[type-arg]
        def get(self, *_: object) -> object:
            raise ZeroDivisionError

    door.record(ADA, "t", [Evil(), *exchange("tea"), Worse()])
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))
    assert sum(kinds(bs).values()) >= 2


def test_a_delivery_that_always_fails_unforeseen_is_given_up_and_what_waits_behind_it_is_not(
    bs: Backstory, elapsed: Elapsed, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    door = by_hand(bs, elapsed, Limits(attempts=3))
    disk.plan = [KeyError("a bug")] * 3
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) is None
    assert LOST not in kinds(bs)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("rye"))
    assert kinds(bs)[LOST] == 1
    assert "failed 3 times" in caplog.text


def test_a_thread_pauses_no_longer_for_what_was_given_up_in_it(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, Limits(attempts=2))
    disk.plan = [KeyError("a bug")] * 2
    door.record(ADA, "t", exchange("tea"))
    door.flush(PATIENCE)
    disk.plan = [StoreError("full")] * 2
    door.record(BOB, "t", exchange("tea"))
    assert set(door._outbox._lines._pauses) == {BOB}
    door._outbox.close(PATIENCE)
    assert (door._outbox._lines._pauses, door._outbox._lines._bytes) == ({}, 0)


def test_an_outage_is_waited_for_however_long_it_lasts(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, Limits(attempts=2))
    disk.plan = [StoreError("full"), OSError(5, "x"), sqlite3.OperationalError("disk I/O error")] * 7
    assert door.record(ADA, "t", exchange("tea")) is None
    for _ in range(20):
        assert not door.flush(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


# Too much.


def test_of_too_many_deliveries_the_oldest_are_given_up_and_counted(
    bs: Backstory, elapsed: Elapsed, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    door = by_hand(bs, elapsed, Limits(deliveries=3))
    disk.always = LockTimeoutError("locked")
    for number in range(5):
        door.record(ADA, f"t{number}", exchange(f"tea {number}"))
    assert door.waiting == 3
    assert kinds(bs)[LOST] == 2
    assert caplog.text.count(LOST) == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert [said(bs, f"t{number}") != [] for number in range(5)] == [False, False, True, True, True]


def test_a_conversation_that_goes_on_while_it_waits_keeps_its_age(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, Limits(deliveries=2))
    disk.always = LockTimeoutError("locked")
    for thread, messages in (
        ("going on", exchange("tea")),
        ("over", exchange("rye")),
        ("going on", [*exchange("tea"), *exchange("oat")]),
        ("new", exchange("bun")),
    ):
        door.record(ADA, thread, messages)
    disk.always = None
    assert door.flush(PATIENCE)
    assert {summary.thread for summary in bs.memory("ada").threads()} == {"over", "new"}


def test_of_too_much_text_the_oldest_is_given_up_and_the_newest_never(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    door = by_hand(bs, elapsed, Limits(bytes=10_000))
    disk.always = LockTimeoutError("locked")
    for number in range(5):
        door.record(ADA, f"t{number}", [{"role": "user", "content": str(number) * 4000}])
    assert door.waiting == 2
    door.record(ADA, "long", [{"role": "user", "content": "x" * 20_000}])
    assert door.waiting == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert [summary.thread for summary in bs.memory("ada").threads()] == ["long"]
    door.record(ADA, "next", exchange("tea"))
    assert kinds(bs)[LOST] == 5


def test_what_is_being_recorded_does_not_give_way(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, Limits(deliveries=1))
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    disk.plan = [lambda: door.record(BOB, "t", exchange("rye")) and None]
    with locked(bs, BOB):
        assert door.flush(PATIENCE) is False
        assert said(bs) == words(exchange("tea"))
    assert LOST not in kinds(bs)
    assert door.flush(PATIENCE)
    assert said(bs, scope=BOB) == words(exchange("rye"))


# Memory keeps an agent waiting.


@contextmanager
def locked(bs: Backstory, scope: Scope = ADA, timeout: float = 0.02) -> Iterator[None]:
    """Hold the lock of a transcript, as another process would, and have nobody wait long for it."""
    bs.store._locks._timeout = timeout  # type: ignore[attr-defined]
    path = bs.home / scope.folder / "transcript.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_an_agent_waits_for_a_lock_once_and_not_at_every_turn(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    with locked(bs):
        assert door.record(ADA, "t", exchange("tea")) is None
        assert disk.calls == 1
        for topic in ("rye", "oat"):
            assert door.record(ADA, "t", exchange(topic)) is None
        assert door.record(ADA, "other", exchange("bun")) is None
        assert disk.calls == 1
        assert door.record(BOB, "t", exchange("tea")) is not None
        assert not door.flush(PATIENCE)
        assert door.record(ADA, "third", exchange("bun")) is None
        assert disk.calls == 2
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye"), *exchange("oat")])
    assert said(bs, "other") == said(bs, "third") == words(exchange("bun"))
    assert door.record(ADA, "t", exchange("jam")) is not None


def test_one_success_of_the_background_opens_a_memory_to_all(bs: Backstory, elapsed: Elapsed) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    with locked(bs):
        door.record(ADA, "t", exchange("tea"))
        door.record(ADA, "other", exchange("rye"))
    assert door.record(ADA, "third", exchange("oat")) is None
    waiting._retry((ADA, "t"))
    assert door.record(ADA, "fourth", exchange("bun")) is not None
    assert door.waiting == 2


def test_nobody_who_reads_memory_waits_while_the_background_does(
    bs: Backstory, door: FailSafeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = bs.memory("ada")
    memory.add_fact("User likes tea")
    entered, opened = threading.Event(), threading.Event()
    take = bs.store._locks.take  # type: ignore[attr-defined]

    def taken(path: str, timeout: float) -> object:
        if path.endswith("transcript.lock") and threading.current_thread() is background:
            entered.set()
            assert opened.wait(PATIENCE)
        return take(path, timeout)

    with locked(bs):
        assert door.record(ADA, "t", exchange("tea")) is None
    background = threading.Thread(target=door.flush, args=(PATIENCE,))
    monkeypatch.setattr(bs.store._locks, "take", taken)  # type: ignore[attr-defined]
    background.start()
    assert entered.wait(PATIENCE)
    reading = threading.Thread(target=memory.context, args=("tea",))
    reading.start()
    reading.join(PATIENCE / 2)
    read = not reading.is_alive()
    opened.set()
    background.join(PATIENCE)
    reading.join(PATIENCE)
    assert read
    assert said(bs) == words(exchange("tea"))


def test_one_who_records_waits_for_a_lock_once_also_where_there_are_workers(home: Path) -> None:
    with Backstory.open(home, model=lambda _: "{}", debounce_seconds=300) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        waits: list[str] = []
        take = bs.store._locks.take  # type: ignore[attr-defined]

        def taken(path: str, timeout: float) -> object:
            waits.append(path)
            # Whoever reads folds what is on its way to disk, and has to look at the disk once that has failed.
            memory.context("tea")
            return take(path, timeout)

        bs.store._locks.take = taken  # type: ignore[attr-defined]
        with locked(bs), pytest.raises(LockTimeoutError):
            memory.record("t", exchange("rye"))
        assert len(waits) == 1
        bs.store._locks.take = take  # type: ignore[attr-defined]


def test_what_fails_slowly_is_left_to_the_background_as_a_lock_is(
    bs: Backstory, door: FailSafeMemory, disk: Disk, elapsed: Elapsed
) -> None:
    def slowly() -> None:
        elapsed.now += 3
        raise StoreError("the server does not answer")

    disk.plan = [slowly]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "other", exchange("rye")) is None
    assert disk.calls == 1
    assert door.flush(PATIENCE)
    assert door.record(ADA, "t", exchange("oat")) is not None


def test_a_memory_is_tried_again_when_what_kept_it_shut_was_given_up(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    door = by_hand(bs, elapsed, Limits(deliveries=1))
    disk.plan = [LockTimeoutError("locked"), StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    door.record(BOB, "t", exchange("rye"))
    assert (door.waiting, kinds(bs)[LOST]) == (1, 1)
    assert door.record(ADA, "t", exchange("oat")) is not None


def test_pauses_grow_to_a_minute_and_begin_anew_after_a_success(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting, elapsed=elapsed)

    def pause() -> float:
        moment, key = waiting._lines.next(elapsed())
        assert key == (ADA, "t")
        wait, elapsed.now = moment - elapsed.now, moment
        return wait

    disk.plan = [StoreError("full")] * 9
    door.record(ADA, "t", exchange("tea"))
    pauses = [pause()]
    for _ in range(8):
        waiting._retry((ADA, "t"))
        pauses.append(pause())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    waiting._retry((ADA, "t"))
    assert waiting.count == 0
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("rye"))
    assert pause() == 1


def test_what_comes_after_a_flush_pauses_like_everything_else(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [LockTimeoutError("locked"), LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert not door.flush(PATIENCE)
    door.record(ADA, "other", exchange("rye"))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 2


def test_one_thread_that_fails_unforeseen_does_not_put_the_others_of_its_memory_off(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting, elapsed=elapsed)
    disk.plan = [StoreError("full"), KeyError("a bug")]
    door.record(ADA, "good", exchange("tea"))
    door.record(ADA, "bad", exchange("rye"))
    elapsed.now += 1
    waiting._retry((ADA, "good"))
    assert said(bs, "good")
    disk.plan = [KeyError("a bug")]
    waiting._retry((ADA, "bad"))
    disk.plan = [StoreError("full")]
    door.record(ADA, "good", [*exchange("tea"), *exchange("oat")])
    assert waiting._lines.next(elapsed()) == (elapsed() + 1, (ADA, "good"))


def test_a_flush_tries_the_other_threads_where_one_fails_unforeseen(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = StoreError("full")
    for thread in ("bad", "good"):
        door.record(ADA, thread, exchange("tea"))
    disk.always, disk.plan = None, [KeyError("a bug")]
    assert not door.flush(PATIENCE)
    assert said(bs, "good") == words(exchange("tea"))
    assert said(bs, "bad") == []


def test_a_thread_pauses_anew_after_a_success_of_its_own(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [KeyError("a bug"), KeyError("a bug")]
    for topic in ("tea", "rye"):
        door.record(ADA, "t", exchange(topic))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 2
    disk.plan = [None, KeyError("a bug")]
    waiting._retry((ADA, "t"))
    assert said(bs) == words(exchange("tea"))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 1


def test_a_line_with_nothing_in_it_or_with_somebody_at_it_is_not_to_be_tried(
    bs: Backstory, door: FailSafeMemory, disk: Disk, elapsed: Elapsed
) -> None:
    lines = door._outbox._lines
    lines.of((ADA, "empty"))
    assert lines.next(elapsed())[1] is None
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    assert lines.next(elapsed())[1] == (ADA, "t")
    lines.of((ADA, "t")).busy = True
    assert lines.next(elapsed())[1] is None


# In the background.


def test_what_waits_is_recorded_by_itself(bs: Backstory, disk: Disk) -> None:
    done = threading.Event()
    disk.plan = [StoreError("full"), StoreError("full"), done.set]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    assert door.record(ADA, "t", exchange("tea")) is None
    assert done.wait(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_the_background_ends_when_nothing_waits_and_begins_again(bs: Backstory, disk: Disk) -> None:
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    for topic in ("tea", "rye"):
        disk.plan = [StoreError("full")]
        door.record(ADA, "t", exchange(topic))
        thread = waiting._thread
        assert door.flush(PATIENCE)
        if thread is not None:
            thread.join(PATIENCE)
            assert not thread.is_alive()
            assert waiting._thread is not thread
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_program_that_is_ended_while_it_records_has_not_lost_it(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    for error in (KeyboardInterrupt(), SystemExit()):
        disk.plan = [error]
        with pytest.raises(type(error)):
            door.record(ADA, "t", exchange(type(error).__name__))
        assert door.waiting == 1
        assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("KeyboardInterrupt"), *exchange("SystemExit")])
    assert LOST not in kinds(bs)


def test_the_background_outlives_what_asks_it_to_end_the_program(bs: Backstory, disk: Disk) -> None:
    waiting = Outbox(bs.faults, Limits(shortest_pause=0.001, longest_pause=0.002))
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [StoreError("full"), SystemExit(), KeyboardInterrupt()]
    assert door.record(ADA, "t", exchange("tea")) is None
    while not door.flush(PATIENCE):
        assert waiting._thread is not None
        assert waiting._thread.is_alive()
    assert said(bs) == words(exchange("tea"))


def test_what_asked_to_end_the_program_is_not_tried_again_at_once(bs: Backstory, disk: Disk, elapsed: Elapsed) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    disk.plan = [KeyError("a bug"), SystemExit()]
    FailSafeMemory(bs, outbox=waiting).record(ADA, "t", exchange("tea"))
    elapsed.now += 5
    waiting._retry((ADA, "t"))
    assert waiting._lines.next(elapsed()) == (elapsed() + 2, (ADA, "t"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_background_that_died_of_a_bug_is_replaced(
    bs: Backstory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    with monkeypatch.context() as broken:
        broken.setattr(waiting, "_retry", lambda _: 1 // 0)
        disk.plan = [StoreError("full")]
        door.record(ADA, "t", exchange("tea"))
        thread = waiting._thread
        assert thread is not None
        thread.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_flush_keeps_to_its_time_whatever_hangs(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    begun = time.monotonic()
    assert not door.flush(0.01)
    assert door.record(ADA, "t", exchange("rye")) is None
    assert time.monotonic() - begun < PATIENCE / 2
    opened.set()
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_what_goes_on_from_a_delivery_while_that_is_recorded_is_recorded_too(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    assert door.record(ADA, "t", [*exchange("tea"), *exchange("rye")]) is None
    opened.set()
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_delivery_that_is_under_way_is_not_overtaken_by_a_later_one(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    second = threading.Thread(target=door.record, args=(ADA, "t", [*exchange("tea"), *exchange("rye")]))
    second.start()
    opened.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_two_that_record_in_one_thread_at_once_both_hear_what_became_of_it(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    told: list[RecordResult | None] = []

    def say(number: int) -> None:
        told.append(door.record(ADA, "t", exchange(f"tea {number}", number)))

    agents = [threading.Thread(target=say, args=(number,)) for number in range(3)]
    agents[0].start()
    assert entered.wait(PATIENCE)
    for agent in agents[1:]:
        agent.start()
    opened.set()
    for agent in agents:
        agent.join(PATIENCE)
    assert told == [RecordResult(1, 2, 0)] * 3
    assert waiting._lines.find((ADA, "t")) is None


def test_who_waited_for_another_in_a_thread_is_not_forgotten_when_it_fails(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [hang, StoreError("full")]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    agents = [threading.Thread(target=door.record, args=(ADA, "t", exchange(topic))) for topic in ("tea", "rye")]
    agents[0].start()
    assert entered.wait(PATIENCE)
    agents[1].start()
    line = waiting._lines.find((ADA, "t"))
    assert line is not None
    with waiting._changed:
        # Whoever enters a line has to have this lock for it.
        while line.users < 2:
            waiting._changed.wait(0.001)
    opened.set()
    for agent in agents:
        agent.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_delivery_that_came_while_the_first_failed_waits_behind_it(bs: Backstory, disk: Disk) -> None:
    """Its memory was shut meanwhile, by a third."""
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    with waiting._changed:
        waiting._lines.shut(ADA)
    assert door.record(ADA, "t", exchange("rye")) is None
    opened.set()
    first.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_flush_leaves_a_thread_alone_in_which_somebody_records(bs: Backstory, disk: Disk, elapsed: Elapsed) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    waiting._lines.shut(ADA)
    assert door.record(ADA, "t", exchange("rye")) is None
    assert not door.flush(PATIENCE)
    opened.set()
    first.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


# The end.


def test_closing_a_home_records_what_waits(home: Path) -> None:
    bs = open_home(home)
    disk = Disk(bs)
    disk.plan = [StoreError("full")]
    assert FailSafeMemory(bs).record(ADA, "t", exchange("tea")) is None
    bs.close()
    with open_home(home) as again:
        assert said(again) == words(exchange("tea"))


def test_what_still_waits_when_a_home_is_closed_is_counted_as_lost(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bs = open_home(home)
    disk = Disk(bs)
    disk.always = StoreError("full")
    door = FailSafeMemory(bs)
    door.record(ADA, "t", exchange("tea"))
    door.record(ADA, "t", exchange("rye"))
    assert not door.flush(PATIENCE)
    assert door.waiting == 2
    bs.close()
    assert door.waiting == 0
    assert "was still queued at the end" in caplog.text
    with open_home(home) as again:
        assert kinds(again)[LOST] == 2


def test_what_is_being_recorded_when_a_home_is_closed_is_counted_too(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    assert not waiting.close(0.01)
    assert waiting._lines.find((ADA, "t")) is not None
    assert (door.waiting, kinds(bs)[LOST]) == (0, 1)
    thread = waiting._thread
    opened.set()
    if thread is not None:
        thread.join(PATIENCE)
    assert door.waiting == 0
    assert said(bs) == words(exchange("tea"))
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("rye")) is None
    assert door.flush(PATIENCE)


def test_a_home_that_is_closed_is_a_fault_and_nothing_waits(home: Path) -> None:
    bs = open_home(home)
    door = FailSafeMemory(bs)
    bs.close()
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.guarded(ADA, "inject", lambda: bs.memory("ada").context().text, "nothing") == "nothing"
    assert {fault.doing: fault.kind for fault in bs.faults.of(ADA)} == {"record": "UsageError", "inject": "UsageError"}
    assert door.waiting == 0


def test_a_program_that_never_closes_its_home_tries_once_more_at_its_end(home: Path) -> None:
    program = """
import sys
from backstory import Backstory
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import Outbox
from backstory.outbox.retry_queue import Limits
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.scope import Scope

bs = Backstory.open(sys.argv[1])
write = bs.store.append_all
def fail(*_):
    raise StoreError("full")
bs.store.append_all = fail
messages = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
door = FailSafeMemory(bs, outbox=Outbox(bs.faults, Limits(shortest_pause=600, longest_pause=600)))
for thread in ("t", "u"):
    assert door.record(Scope("ada"), thread, messages) is None
if sys.argv[2] == "well":
    bs.store.append_all = write
"""
    ended = [
        subprocess.run(
            [sys.executable, "-c", program, str(home), how], check=True, capture_output=True, text=True, timeout=60
        ).stderr
        for how in ("ill", "well")
    ]
    assert LOST in ended[0]
    assert LOST not in ended[1]
    with open_home(home) as bs:
        assert said(bs) == ["I like tea.", "Noted."]
        assert kinds(bs)[LOST] == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_what_waits_to_its_parent_and_has_deliveries_of_its_own(
    bs: Backstory, disk: Disk
) -> None:
    waiting = Outbox(bs.faults, Limits(shortest_pause=30, longest_pause=60))
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    with waiting._changed:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert door.waiting == 0
                disk.plan = [StoreError("full")]
                assert door.record(ADA, "child", exchange("rye")) is None
                assert door.flush(PATIENCE)
                code = 0
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert said(bs, "child") == words(exchange("rye"))
    assert said(bs) == []
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


# Damage.


def test_a_log_damaged_before_anybody_opened_it_breaks_no_answer(home: Path) -> None:
    with open_home(home) as bs:
        bs.memory("ada").record("t", exchange("tea"))
    log = home / "users/ada/transcript.jsonl"
    sound = log.read_bytes()
    log.write_bytes(sound.replace(b"tea", b"TEA"))
    with open_home(home) as bs:
        door = FailSafeMemory(bs)
        assert door.guarded(ADA, "inject", lambda: bs.memory("ada").transcript("t"), ()) == ()
        assert door.record(ADA, "t", exchange("rye")) is None
        assert {fault.doing: fault.kind for fault in bs.faults.of(ADA)} == {
            "record": "CorruptLogError",
            "inject": "CorruptLogError",
        }
        with pytest.raises(CorruptLogError, match=r"1 x record \(CorruptLogError\)"):
            bs.memory("ada").status()
        log.write_bytes(sound)
        assert door.flush(PATIENCE)
        assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_memory_that_cannot_be_opened_at_all_breaks_no_answer(
    bs: Backstory, door: FailSafeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = bs.memory

    def fail(*_: object) -> object:
        raise CorruptLogError("damaged", kind="altered", stream="s", line=1, byte=0)

    monkeypatch.setattr(bs, "memory", fail)
    assert door.record(ADA, "t", exchange("tea")) is None
    monkeypatch.setattr(bs, "memory", opening)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_a_home_that_cannot_be_written_breaks_no_answer(home: Path) -> None:
    home.mkdir()
    (home / "users").write_text("a file where a folder should be")
    with open_home(home) as bs:
        door = FailSafeMemory(bs)
        assert door.record(ADA, "t", exchange("tea")) is None
        assert kinds(bs) == {"StoreError": 1}
        (home / "users").unlink()
        assert door.flush(PATIENCE)
        assert said(bs) == words(exchange("tea"))


# Reading.


def test_a_read_that_goes_well_says_what_it_says(door: FailSafeMemory) -> None:
    assert door.guarded(ADA, "search", lambda: 7, 0) == 7


def test_a_read_that_fails_has_a_way_out_and_is_counted(bs: Backstory, door: FailSafeMemory) -> None:
    def fail() -> int:
        raise StoreError("gone")

    for _ in range(3):
        assert door.guarded(ADA, "search", fail, 0) == 0
    assert door.guarded(ADA, "search", lambda: 7, 0) == 7
    ((doing, count),) = [(fault.doing, fault.count) for fault in bs.faults.of(ADA)]
    assert (doing, count) == ("search", 3)


@pytest.mark.parametrize("slow", [False, True])
def test_a_memory_that_kept_a_reader_waiting_is_not_asked_for_half_a_minute(
    slow: bool, bs: Backstory, door: FailSafeMemory, elapsed: Elapsed
) -> None:
    asked: list[float] = []

    def fail() -> int:
        asked.append(elapsed.now)
        elapsed.now += 10.0 if slow else 0.0
        raise StoreError("slow") if slow else LockTimeoutError("locked")

    assert door.guarded(ADA, "inject", fail, 0) == 0
    elapsed.now += 29.9
    assert door.guarded(ADA, "inject", fail, 0) == 0
    assert door.guarded(BOB, "inject", lambda: 7, 0) == 7
    assert len(asked) == 1
    elapsed.now += 0.2
    assert door.guarded(ADA, "inject", lambda: 7, 0) == 7
    assert door.guarded(ADA, "inject", fail, 0) == 0
    assert len(asked) == 2
    assert sum(kinds(bs).values()) == 3


def test_a_read_that_went_well_has_the_next_fault_logged_again(
    door: FailSafeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        door.guarded(ADA, "search", lambda: 1 // 0, 0)
    assert len(caplog.records) == 1
    door.guarded(ADA, "search", lambda: 7, 0)
    door.guarded(ADA, "search", lambda: 1 // 0, 0)
    assert len(caplog.records) == 2


def test_of_memories_that_are_left_alone_those_of_long_ago_are_let_go_of(
    door: FailSafeMemory, elapsed: Elapsed
) -> None:
    from backstory.outbox.fail_safe import _Unread

    for number in range(1100):
        door._leave_alone(Scope(f"u{number}"), _Unread(elapsed.now + 30, "x"), elapsed.now)
        elapsed.now += 1
    assert len(door._unread) < 200


def test_a_question_that_was_wrong_keeps_nobody_from_asking_another(
    bs: Backstory, door: FailSafeMemory, elapsed: Elapsed
) -> None:
    def wrong() -> str:
        elapsed.now += 10
        return bs.memory("ada").context(7).text  # type: ignore[arg-type]

    assert door.guarded(ADA, "inject", wrong, "nothing") == "nothing"
    assert door.guarded(ADA, "inject", lambda: "memory", "nothing") == "memory"


def test_who_ends_the_program_while_reading_ends_it(door: FailSafeMemory) -> None:
    def end() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        door.guarded(ADA, "search", end, 0)


# In general.

FAILURES = st.sampled_from(
    [None, None, StoreError("full"), LockTimeoutError("locked"), KeyError("a bug"), OSError(28, "full")]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "repeat", "flush"]), st.sampled_from(["a", "b"]), st.lists(FAILURES)
    ),
    max_size=12,
)


@pytest.mark.parametrize("whole", [True, False], ids=["whole conversations", "only what is new"])
@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
@settings(max_examples=examples())
@given(steps=STEPS, afterwards=st.booleans())
def test_no_turn_is_lost_or_doubled_and_threads_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    whole: bool,
    ids: bool,
    steps: list[tuple[str, str, list[BaseException | None]]],
    afterwards: bool,
) -> None:
    home = tmp_path_factory.mktemp("home")
    told: dict[str, list[dict[str, object]]] = {"a": [], "b": []}
    with open_home(home, clock=FakeClock()) as bs:
        elapsed, disk = Elapsed(), Disk(bs)
        door = by_hand(bs, elapsed, Limits(attempts=1_000))
        disk.afterwards = afterwards
        for number, (step, thread, plan) in enumerate(steps):
            disk.plan = list(plan)
            if step == "flush":
                assert door.flush(PATIENCE) == (door.waiting == 0)
                continue
            new = exchange(f"tea {number}", number if ids else None) if step == "say" or not whole else []
            told[thread] += new
            waited = door.waiting
            done = door.record(ADA, thread, told[thread] if whole else new)
            assert done is not None or door.waiting or not waited
            elapsed.now += 1
        disk.plan = []
        assert door.flush(PATIENCE)
        for thread, messages in told.items():
            assert said(bs, thread) == words(messages)
        assert LOST not in kinds(bs)
    with open_home(home) as again:
        assert [said(again, thread) for thread in told] == [words(messages) for messages in told.values()]


def test_sixteen_agents_lose_nothing_while_memory_fails_again_and_again(home: Path) -> None:
    with open_home(home) as bs:
        disk = Disk(bs)
        turn = iter(range(1_000_000))
        lock = threading.Lock()
        write = disk._append

        def fail(stream: str, lines: Sequence[bytes], expected: int) -> None:
            with lock:
                number = next(turn)
            match number % 7:
                case 1:
                    raise StoreError("full")
                case 3:
                    raise LockTimeoutError("locked")
                case 5:
                    write(stream, lines, expected)
                    raise OSError(5, "Input/output error")
            write(stream, lines, expected)

        bs.store.append_all = fail  # type: ignore[method-assign]
        door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
        told: dict[tuple[Scope, str], list[dict[str, object]]] = {}

        def agent(number: int) -> None:
            scope, thread = (ADA, BOB)[number % 2], f"t{number}"
            mine = told[scope, thread] = []
            for count in range(12):
                mine += exchange(f"tea {count}")
                door.record(scope, thread, mine)

        agents = [threading.Thread(target=agent, args=(number,)) for number in range(16)]
        for running in agents:
            running.start()
        for running in agents:
            running.join(PATIENCE)
        for _ in range(1_000):
            if door.flush(PATIENCE):
                break
        assert door.waiting == 0
        for (scope, thread), mine in told.items():
            assert said(bs, thread, scope) == words(mine)
        assert LOST not in kinds(bs)


def test_agents_that_share_a_thread_lose_nothing(bs: Backstory, disk: Disk) -> None:
    disk.plan = [StoreError("full") if number % 3 == 0 else None for number in range(60)]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))

    def agent(number: int) -> None:
        for count in range(10):
            door.record(ADA, "t", exchange(f"{number}.{count}", number * 100 + count))

    agents = [threading.Thread(target=agent, args=(number,)) for number in range(8)]
    for running in agents:
        running.start()
    for running in agents:
        running.join(PATIENCE)
    while not door.flush(PATIENCE):
        pass
    assert sorted(said(bs)) == sorted(
        str(word) for number in range(8) for count in range(10) for word in words(exchange(f"{number}.{count}"))
    )


# What is about all that was said knows of what waits, too.


def test_what_waits_is_forgotten_with_what_was_said(bs, disk):
    memory = bs.memory("ada")
    door = FailSafeMemory(bs)
    memory.record("t", exchange("rain"))
    disk.plan = [StoreError("no space left")]
    assert door.record(memory, "t", exchange("tea", 2)) is None
    memory.forget(thread_id="t")
    assert door.waiting == 0
    assert memory.threads() == () or [thread.turns for thread in memory.threads()] == [0]
    assert door.flush(_LONGEST_SECONDS)
    assert "tea" not in log_of(bs, ADA)


def test_nothing_is_called_forgotten_while_words_wait_that_would_bring_it_back(bs, disk):
    memory = bs.memory("ada")
    memory.record("t", exchange("rain"))
    disk.always = StoreError("no space left")
    assert FailSafeMemory(bs).record(memory, "t", exchange("tea", 2)) is None
    with pytest.raises(StoreError, match="1 deliveries still wait"):
        memory.forget(thread_id="t")
    assert FailSafeMemory(bs).record(ADA, "t", exchange("snow", 4)) is None
    with pytest.raises(StoreError, match="bring back what is to be forgotten"):
        memory.forget(everything=True)
    assert memory.forget(thread_id="t", dry_run=True).redacted
    disk.always = None
    memory.forget(thread_id="t")
    assert "tea" not in log_of(bs, ADA)


def test_a_clear_is_about_what_waits_too(bs, disk):
    memory = bs.memory("ada")
    memory.record("t", exchange("rain"))
    disk.plan = [StoreError("no space left")]
    assert FailSafeMemory(bs).record(memory, "t", exchange("tea", 2)) is None
    memory.clear()
    assert memory.status().turns == 4
    assert memory.status().pending == ()


def log_of(bs: Backstory, scope: Scope) -> str:
    return (bs.home / f"{scope.stream(TRANSCRIPT)}.jsonl").read_text(encoding="utf-8")
