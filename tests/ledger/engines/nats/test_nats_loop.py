"""The loop that threads hand their requests to: each gets its own answer, and none waits for a loop that has ended."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import PATIENCE

from backstory.ledger.core.errors import StoreError, UnknownOutcomeError
from backstory.ledger.engines.nats.loop import LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("test")
    yield loop
    loop.stop()
    loop.join(PATIENCE)
    assert loop.loop.is_closed()


async def echoed(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def failing() -> None:
    raise StoreError("no")


async def never() -> None:
    await asyncio.Event().wait()


def test_many_threads_get_their_own_answers(loop: LoopThread) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda n: loop.run(echoed(n)), range(5000))) == list(range(5000))


def test_an_error_reaches_the_one_who_asked(loop: LoopThread) -> None:
    with pytest.raises(StoreError, match="no"):
        loop.run(failing())
    assert loop.run(echoed(1)) == 1


def test_what_is_under_way_when_it_stops_ends_with_an_unknown_outcome(loop: LoopThread) -> None:
    begun = threading.Event()

    async def waiting() -> None:
        begun.set()
        await never()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(loop.run, waiting())
        assert begun.wait(PATIENCE)
        loop.stop()
        with pytest.raises(UnknownOutcomeError, match="was closed"):
            asked.result(PATIENCE)


def test_to_stop_twice_leaves_time_to_clean_up(loop: LoopThread) -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def careful() -> None:
        try:
            begun.set()
            await never()
        finally:
            loop.stop()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned.set()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(loop.run, careful())
        assert begun.wait(PATIENCE)
        loop.stop()
        with pytest.raises(UnknownOutcomeError):
            asked.result(PATIENCE)
    assert cleaned.is_set()


def test_a_stopped_loop_takes_nothing(loop: LoopThread) -> None:
    loop.stop()
    loop.join(PATIENCE)
    with pytest.raises(StoreError, match="was closed"):
        loop.run(echoed(1))


def test_what_comes_while_it_stops_is_answered_or_refused(loop: LoopThread) -> None:
    answered: list[bool] = []

    def ask() -> None:
        for number in range(2000):
            try:
                answered.append(loop.run(echoed(number)) == number)
            except StoreError:
                return

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        loop.run(echoed(0))
        loop.stop()
        for each in asking:
            each.result(PATIENCE)
    assert all(answered)


def test_an_interrupted_thread_leaves_the_others_awake(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = loop.loop.call_soon_threadsafe, itertools.count()

    def interrupted(*args: Callable[[], object]) -> object:
        if next(times) == 0:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop.loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(never())
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(loop.run, echoed(2)).result(PATIENCE) == 2


def test_its_own_thread_is_refused_rather_than_waiting_for_itself(loop: LoopThread) -> None:
    async def asking() -> None:
        loop.run(echoed(1))

    with pytest.raises(StoreError, match="cannot wait for itself"):
        loop.run(asking())
    assert loop.run(echoed(2)) == 2


def test_what_is_begun_is_carried_out_and_nothing_waits_for_it(loop: LoopThread) -> None:
    done = threading.Event()

    async def work() -> None:
        done.set()

    loop.begin(work())
    assert done.wait(PATIENCE)
    loop.stop()
    loop.join(PATIENCE)
    loop.begin(work())
