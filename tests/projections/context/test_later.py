"""What is loaded beside everything else is loaded once, and nobody waits for it."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

from backstory.ledger.concurrency.background_load import BackgroundLoad
from backstory.ledger.concurrency.forks import register

PATIENCE = 20.0


class Loading:
    """A load that waits until it may go on."""

    def __init__(self, result: str | Exception) -> None:
        self.calls = 0
        self.go = threading.Event()
        self._result = result

    def __call__(self) -> str:
        self.calls += 1
        if not self.go.wait(PATIENCE):
            raise TimeoutError
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def test_until_it_is_loaded_an_estimate_counts_and_nobody_waits() -> None:
    loading = Loading("real")
    later = BackgroundLoad("it", "until then", loading)
    assert later.value == "until then"
    assert loading.calls == 0
    for _ in range(3):
        later.begin()
    assert later.wait(timeout=0.01) == "until then"
    loading.go.set()
    assert later.wait(PATIENCE) == "real"
    assert later.value == "real"
    later.begin()
    assert loading.calls == 1


@pytest.mark.parametrize("result", [ValueError("broken"), ImportError("gone")])
def test_a_load_that_fails_is_not_tried_again(result, caplog) -> None:
    loading = Loading(result)
    loading.go.set()
    later = BackgroundLoad("it", "until then", loading)
    assert later.wait(PATIENCE) == "until then"
    assert later.wait(PATIENCE) == "until then"
    assert loading.calls == 1
    assert caplog.text.count("it cannot be loaded") == 1


def test_many_threads_begin_one_load() -> None:
    loading = Loading("real")
    later = BackgroundLoad("it", "until then", loading)
    threads = [threading.Thread(target=later.begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loading.go.set()
    later.wait(PATIENCE)
    assert loading.calls == 1


def test_where_no_thread_can_be_started_the_estimate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    later = BackgroundLoad("it", "until then", lambda: "real")
    later.begin()
    assert later._over
    assert later.wait(PATIENCE) == "until then"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_process_that_was_loading_loads_for_itself() -> None:
    loading = Loading("real")
    later = BackgroundLoad("it", "until then", loading)
    register(later)
    later.begin()

    def child() -> None:
        loading.go.set()
        os._exit(0 if later.wait(PATIENCE) == "real" else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(PATIENCE)
    loading.go.set()
    assert process.exitcode == 0


def test_whoever_begins_it_gets_away_first_and_whoever_waits_does_not_wait_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backstory.ledger.concurrency.background_load._GRACE_SECONDS", PATIENCE)
    loading = Loading("real")
    loading.go.set()
    later = BackgroundLoad("it", "until then", loading)
    later.begin()
    assert loading.calls == 0
    assert later.wait(PATIENCE / 2) == "real"
