"""Threads of one process on one scope: they share a sync, and none of them is told of what is not there."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock

from backstory.ledger.core.commands import AddFact, Clear, RemoveFact
from backstory.ledger.core.commit import EMPTY, Cause, Commit, Head, head_of, unseal
from backstory.ledger.core.errors import LockTimeoutError, StoreError, WrongExpectedVersionError
from backstory.ledger.core.events import FactAdded, NewFact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.erasure.requests import ForgetEverything
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.pipeline import GroupCommit
from backstory.ledger.log.transcript_writer import _MOST_OVERTAKEN
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.projections.history.moment import replay
from backstory.testing.lines import chain

ADA = Scope("ada")


class Paced(JsonlStore):
    """A store whose writes wait at a gate, and say how many lines each of them took."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, lock_timeout=PATIENCE)
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Semaphore(0)
        self.batches: list[int] = []
        self.error: BaseException | None = None

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        self.waiting.release()
        assert self.open.wait(PATIENCE)
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().append(stream, lines, expected)
        self.batches.append(len(lines))


def add(writer: Writer, text: str) -> Commit:
    fact = NewFact(place="facts/0", content=text, confidence=0.9)
    return writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))


def writer_on(store: JsonlStore, **settings: object) -> Writer:
    return Writer(store, ADA, clock=FakeClock(), salts=CountingSalts(), **settings)  # type: ignore[arg-type]


class Crew:
    """Threads that each do one thing while a write is held up; `queued` tells how many lines wait behind it."""

    def __init__(self, store: Paced, writer: Writer) -> None:
        self.store = store
        self.writer = writer
        self.pool = ThreadPoolExecutor(16)
        self.first = None

    def hold(self) -> object:
        self.store.open.clear()
        first = self.pool.submit(add, self.writer, "the first")
        assert self.store.waiting.acquire(timeout=PATIENCE)
        return first

    def queue(self, texts: Sequence[str]) -> list[object]:
        futures = []
        for number, text in enumerate(texts, 1):
            futures.append(self.pool.submit(add, self.writer, text))
            while len(self.writer._pipeline.ledger._waiting) < number:
                assert not futures[-1].done()
        return futures


@pytest.fixture
def store(tmp_path: Path) -> Paced:
    store = Paced(tmp_path)
    add(writer_on(store), "before")
    while store.waiting.acquire(blocking=False):
        pass
    store.batches.clear()
    return store


def test_what_is_decided_while_a_sync_lasts_shares_the_next_one(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    others = crew.queue([f"fact {n}" for n in range(9)])
    store.open.set()
    seqs = [future.result(PATIENCE).seq for future in [first, *others]]
    assert seqs == list(range(3, 13))
    assert store.batches == [1, 9]
    assert writer.memory() == replay(JsonlStore(store.home), ADA)
    assert len(writer.memory().facts) == 11


def test_what_is_taken_away_while_a_sync_lasts_shares_the_next_one_too(store: Paced) -> None:
    writer = writer_on(store)
    added = [add(writer, f"fact {n}").events[0] for n in range(9)]
    while store.waiting.acquire(blocking=False):
        pass
    crew = Crew(store, writer)
    crew.hold()
    removals = [RemoveFact(at="", fact_id=event.fact.id) for event in added if isinstance(event, FactAdded)]
    cause = Cause(kind="manual", action="remove")
    futures = [crew.pool.submit(writer.commit, removal, cause) for removal in removals]
    queue, end = writer._pipeline.ledger, time.monotonic() + PATIENCE / 2
    while len(queue._waiting) < len(removals) and time.monotonic() < end:
        assert not any(future.done() for future in futures)
    store.open.set()
    assert [len(future.result(PATIENCE).events) for future in futures] == [1] * 9
    assert store.batches[-2:] == [1, 9]


def test_a_reader_waits_for_no_sync_and_is_shown_what_is_durable(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    assert len(writer.memory().facts) == 1
    with writer.reader.state() as state:
        assert len(state.memory.facts) == 1
    store.open.set()
    first.result(PATIENCE)  # type: ignore[attr-defined]
    assert len(writer.memory().facts) == 2


def test_a_failed_sync_fails_its_group_and_what_was_decided_on_it_is_decided_again(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    others = crew.queue([f"fact {n}" for n in range(4)])
    store.error = StoreError("the disk is full")
    store.open.set()
    with pytest.raises(StoreError, match="full"):
        first.result(PATIENCE)  # type: ignore[attr-defined]
    assert sorted(future.result(PATIENCE).seq for future in others) == [3, 4, 5, 6]
    facts = {fact.content for fact in writer.memory().facts.values()}
    assert facts == {"before", *(f"fact {n}" for n in range(4))}
    assert writer.memory() == replay(JsonlStore(store.home), ADA)


def test_somebody_else_between_decision_and_write_costs_a_second_decision(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    others = crew.queue(["said twice", "another"])
    add(writer_on(JsonlStore(store.home)), "said twice")
    store.open.set()
    for future in (first, *others):
        future.result(PATIENCE)
    contents = sorted(fact.content for fact in writer.memory().facts.values())
    assert contents == ["another", "before", "said twice", "the first"]
    assert writer.memory() == replay(JsonlStore(store.home), ADA)


def test_listeners_hear_of_every_commit_once_in_order_and_of_none_that_failed(store: Paced) -> None:
    heard: list[tuple[int, int, int]] = []

    def listen(scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        heard.append((before.seq, commit.seq, after.seq))
        assert len(after.facts) == len(before.facts) + sum(isinstance(e, FactAdded) for e in commit.events)
        writer.memory()

    writer = writer_on(store, listeners=(listen,))
    crew = Crew(store, writer)
    first = crew.hold()
    others = crew.queue([f"fact {n}" for n in range(5)])
    store.error = StoreError("the disk is full")
    store.open.set()
    with pytest.raises(StoreError):
        first.result(PATIENCE)  # type: ignore[attr-defined]
    for future in others:
        future.result(PATIENCE)
    crew.pool.shutdown()
    assert sorted(heard) == heard == [(n - 1, n, n) for n in range(3, 8)]


def test_a_clear_pins_only_words_that_are_durable(store: Paced) -> None:
    writer = writer_on(store)
    store.open.clear()
    with ThreadPoolExecutor(2) as pool:
        said = pool.submit(writer.record, "t", [Kept(role="user", content="hello", id="m1")])
        assert store.waiting.acquire(timeout=PATIENCE)
        cleared = pool.submit(writer.commit, Clear(at=""), Cause(kind="clear"))
        store.error = StoreError("the disk is full")
        store.open.set()
        with pytest.raises(StoreError):
            said.result(PATIENCE)
        pin = cleared.result(PATIENCE).cause.transcript
    assert pin is not None
    assert pin.seq == 0


def test_a_long_delivery_is_one_write_and_whole_or_not_at_all(store: Paced) -> None:
    writer = writer_on(store)
    messages = [Kept(role="user", content=f"word {n}", id=f"m{n}") for n in range(450)]
    store.error = StoreError("the disk is full")
    with pytest.raises(StoreError):
        writer.record("t", messages)
    assert list(read_commits(store, writer.transcript_stream)) == []
    assert writer.record("t", messages).turns == 450
    assert store.batches == [3]


def test_what_was_decided_on_a_line_that_failed_is_never_written(store: Paced) -> None:
    group = GroupCommit(store, "users/ada/other")
    first, second = chain(2)
    store.error = StoreError("the disk is full")
    with pytest.raises(StoreError):
        group.settle(group.add(first, unseal(first, EMPTY, stream="other", byte=0)))
    late = group.add(second, unseal(second, head_of(first), stream="other", byte=0))
    assert isinstance(late.error, WrongExpectedVersionError)
    group.know_failures()
    again = group.add(first, unseal(first, EMPTY, stream="other", byte=0))
    group.settle(again)
    assert [record.line for record in store.read("users/ada/other")] == [first]


def test_a_line_that_does_not_follow_those_that_wait_is_refused_and_let_go_of(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    (second,) = crew.queue(["the second"])
    astray = unseal(chain(1)[0], EMPTY, stream="other", byte=0)
    with writer._mutex:
        ticket = writer._ledger_queue.add(chain(1)[0], astray)
        writer._ledger_queue.decided.append(ticket)
        ticket.folded = True
    assert isinstance(ticket.error, WrongExpectedVersionError)
    store.open.set()
    for future in (first, second):
        future.result(PATIENCE)
    assert sorted(fact.content for fact in writer.memory().facts.values()) == ["before", "the first", "the second"]
    assert writer._ledger_queue.decided == deque()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_a_leader_that_is_interrupted_takes_nobody_with_it_forever(store: Paced, kind: type[BaseException]) -> None:
    writer = writer_on(store)
    store.error = kind()
    with pytest.raises(kind):
        add(writer, "interrupted")
    assert add(writer, "and on").seq == 3


def test_two_writers_with_threads_each_lose_nothing_and_enter_nothing_twice(tmp_path: Path) -> None:
    # With salts that count both would write the very same lines.
    writers = [Writer(JsonlStore(tmp_path, lock_timeout=PATIENCE), ADA, clock=FakeClock()) for _ in range(2)]

    def work(who: int) -> None:
        writer = writers[who % 2]
        for number in range(10):
            add(writer, f"shared {number}")
            writer.record("t", [Kept(role="user", content=f"{who} {number}", id=f"{who}-{number}")])

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, who) for who in range(8)]:
            done.result(PATIENCE)
    for writer in writers:
        memory = writer.memory()
        assert sorted(fact.content for fact in memory.facts.values()) == sorted(f"shared {n}" for n in range(10))
        assert memory == replay(JsonlStore(tmp_path), ADA)
        with writer.state() as state:
            assert len(state.transcript.threads["t"].turns) == 80
    assert len(list(read_commits(writers[0].store, writers[0].ledger))) == 1 + 80


class Overtaken(JsonlStore):
    """A store before whose appends another process, which waits for no lock, appends to the same stream.

    `most` is how often it may do so before its writers count as overtaken forever.
    """

    def __init__(self, home: Path, *, most: int) -> None:
        super().__init__(home, lock_timeout=PATIENCE)
        self.other = Writer(JsonlStore(home, lock_timeout=0), ADA, clock=FakeClock())
        self.most = most
        self.times = 0

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        with suppress(LockTimeoutError):
            if stream == self.other.ledger:
                add(self.other, f"fact {self.times}")
            else:
                self.other.record("t", [Kept(role="user", content=f"words {self.times}", id=str(self.times))])
            self.times += 1
            assert self.times <= self.most, "it is overtaken forever"
        super().append(stream, lines, expected)


def test_a_writer_that_is_overtaken_again_and_again_keeps_the_others_off(tmp_path: Path) -> None:
    store = Overtaken(tmp_path, most=2 * _MOST_OVERTAKEN)
    writer = Writer(store, ADA, clock=FakeClock())
    add(writer, "mine")
    assert store.times == _MOST_OVERTAKEN
    writer.record("t", [Kept(role="user", content="my words", id="mine")])
    assert store.times == 2 * _MOST_OVERTAKEN
    assert [fact.content for fact in writer.memory().facts.values()][-1] == "mine"
    with writer.state() as state:
        assert [turn.content for turn in state.transcript.threads["t"].standing()][-1] == "my words"
    # And lets go of them.
    add(store.other, "theirs")


def test_threads_that_are_overtaken_do_not_wait_for_each_other(tmp_path: Path) -> None:
    # At worst they come one after the other, and each is overtaken as often as one alone.
    store = Overtaken(tmp_path, most=8 * _MOST_OVERTAKEN)
    writer = Writer(store, ADA, clock=FakeClock())
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(add, writer, f"mine {number}") for number in range(8)]:
            done.result(PATIENCE)
    assert {fact.content for fact in writer.memory().facts.values()} >= {f"mine {number}" for number in range(8)}


def test_to_forget_everything_waits_for_a_write_under_way_before_it_locks(store: Paced) -> None:
    writer = writer_on(store)
    crew = Crew(store, writer)
    first = crew.hold()
    done = crew.pool.submit(writer.forget, ForgetEverything())
    (decided,) = writer._pipeline.ledger.decided
    while not decided.gates:
        assert not done.done()
    store.open.set()
    assert first.result(PATIENCE).seq == 3  # type: ignore[attr-defined]
    done.result(PATIENCE)
    assert not writer.memory().facts


def test_an_engine_that_wrote_a_part_counts_what_is_there(tmp_path: Path) -> None:
    class LineByLine(JsonlStore):
        def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
            super().append(stream, lines[:1], expected)
            if len(lines) > 1:
                raise WrongExpectedVersionError("somebody else was quicker", actual=expected + 1)

    writer = writer_on(LineByLine(tmp_path))
    messages = [Kept(role="user", content=f"word {n}") for n in range(450)]
    assert writer.record("t", messages).turns == 450
    with writer.state() as state:
        assert [turn.content for turn in state.transcript.threads["t"].standing()] == [m.content for m in messages]


@pytest.mark.parametrize("command", [RemoveFact(at="", fact_id="fact_2_0"), Clear(at="")])
def test_a_write_that_fails_just_before_a_removal_is_decided_hides_no_word_that_was_said(
    store: Paced, monkeypatch: pytest.MonkeyPatch, command: RemoveFact | Clear
) -> None:
    writer = writer_on(store)
    writer.record("t", [Kept("user", "I live in Oslo")])
    with writer.state() as state:
        said = state.transcript.head
    while store.waiting.acquire(blocking=False):
        pass
    first = Crew(store, writer).hold()
    refresh = writer._state.refresh_transcript

    def fail_meanwhile() -> None:
        refresh()
        if not store.open.is_set():
            store.error = StoreError("the disk is full")
            store.open.set()
            assert not writer._pipeline.ledger.is_settled(writer._pipeline.ledger.decided[-1])

    monkeypatch.setattr(writer._state, "refresh_transcript", fail_meanwhile)
    assert writer.commit(command, Cause(kind="manual")).cause.transcript == said
    with pytest.raises(StoreError, match="full"):
        first.result(PATIENCE)  # type: ignore[attr-defined]


def test_words_that_another_process_has_learned_from_are_none_that_come_after_a_clear(
    store: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It records and removes between the two looks of this process, one at each stream."""
    writer, other = writer_on(store), writer_on(Paced(store.home))
    add(writer, "another")
    seen: list[Head] = []

    def looks(refresh: Callable[[], None]) -> Callable[[], None]:
        def refreshed() -> None:
            refresh()
            if not seen:
                seen.append(EMPTY)
                other.record("t", [Kept("user", "I live in Oslo")])
                removed = other.commit(RemoveFact(at="", fact_id="fact_2_0"), Cause(kind="manual"))
                seen.append(removed.cause.transcript or EMPTY)

        return refreshed

    for name in ("refresh_ledger", "refresh_transcript"):
        monkeypatch.setattr(writer._state, name, looks(getattr(writer._state, name)))
    assert writer.commit(Clear(at=""), Cause(kind="clear")).cause.transcript == seen[1] != EMPTY
