"""The bounded mapping that caches share, what threads do to it, and the runner of work in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from backstory.ledger.concurrency.jobs import Jobs, Repeated
from backstory.ledger.concurrency.recent import Recent

PATIENCE = 20.0


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent: Recent[str, int] = Recent(3)
    for value, key in enumerate("abc"):
        recent.put(key, value)
    assert recent.get("a") == 0, "a look is no use"
    recent.put("b", 7)
    recent.put("d", 3)
    assert list(recent) == ["c", "b", "d"]
    assert recent.use("c") == 2
    assert recent.use("a") is None
    recent.put("e", 4)
    assert dict(recent) == {"d": 3, "c": 2, "e": 4}


def test_threads_that_put_and_use_and_pop_at_once_never_fail_and_never_keep_too_much() -> None:
    recent: Recent[int, int] = Recent(4)

    def work(step: int) -> None:
        for n in range(3_000):
            recent.put(n * step % 7, n)
            recent.use(n % 5)
            recent.pop(n * step % 3, None)

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recent) <= 4


class Queue(Jobs[str]):
    """Jobs that are due at once."""

    _THREAD = "queue"

    def __init__(self, workers: int = 1) -> None:
        self.waiting: list[str] = []
        self.done: list[str] = []
        self.together = threading.Barrier(max(1, workers))
        super().__init__(workers)

    def put(self, job: str) -> bool:
        with self._changed:
            self.waiting.append(job)
            return self._wake()

    def _next(self) -> tuple[float, str | None] | None:
        return (0.0, self.waiting.pop(0)) if self.waiting else None

    def _run(self, job: str, /) -> None:
        if job == "exit":
            raise SystemExit(3)
        self.together.wait(PATIENCE)
        self.done.append(job)
        if len(self.done) == self.together.parties:
            self.end()


@pytest.fixture
def two() -> Iterator[Queue]:
    queue = Queue(workers=2)
    yield queue
    queue.end(PATIENCE)


def test_workers_run_jobs_side_by_side_and_end_after_the_last(two: Queue) -> None:
    assert two.put("a")
    assert two.put("b")
    threads = list(two._threads)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(two.done) == ["a", "b"]
    assert two._threads == []


def test_without_workers_nothing_runs(two: Queue) -> None:
    queue = Queue(workers=0)
    assert not queue.put("a")
    assert queue._threads == []


def test_a_job_that_ends_the_program_ends_no_thread_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue()
    queue.put("exit")
    thread = queue._threads[0]
    queue.put("a")
    thread.join(PATIENCE)
    assert queue.done == ["a"]
    assert "queue: a job ended in a fault" in caplog.text


class Beat(Repeated):
    """A step that is wanted three times."""

    _THREAD = "beat"

    def __init__(self, seconds: float) -> None:
        self.steps = 0
        super().__init__(seconds)

    def begin(self) -> None:
        with self._changed:
            self._wake()

    def _is_wanted(self) -> bool:
        return self.steps < 3

    def _step(self) -> None:
        self.steps += 1
        if self.steps == 2:
            raise ZeroDivisionError


def test_a_step_is_repeated_as_long_as_it_is_wanted_also_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.ledger.concurrency.jobs._FAULT_SECONDS", 0.001)
    beat = Beat(0.001)
    beat.begin()
    beat.end(PATIENCE)
    assert beat.steps == 3


def test_the_first_step_comes_after_the_pause() -> None:
    beat = Beat(3600.0)
    with beat._changed:
        found = beat._next()
    assert found is not None
    assert found[0] == pytest.approx(3600, abs=10)
    assert found[1] is None
    assert beat.steps == 0
