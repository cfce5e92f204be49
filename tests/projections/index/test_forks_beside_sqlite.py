"""SQLite and forks: a child would wait for ever for what another thread of its parent had locked within SQLite."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fakes import PATIENCE, open_home

from backstory.projections import derived_files
from backstory.projections.derived_files import SQLITE, classified, connect


@contextmanager
def thread_within(nested: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield what lets a thread go that uses SQLite, and enters it once more when `nested` is set."""
    inside, leave = threading.Event(), threading.Event()

    def use() -> None:
        with classified():
            inside.set()
            if nested is not None:
                assert nested.wait(PATIENCE)
                with classified():
                    pass
            assert leave.wait(PATIENCE)

    thread = threading.Thread(target=use)
    thread.start()
    assert inside.wait(PATIENCE)
    try:
        yield leave
    finally:
        leave.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_fork_waits_until_no_thread_uses_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_files, "_FORK_SECONDS", 0.05)
    with thread_within():
        assert not SQLITE.pause()
    monkeypatch.setattr(derived_files, "_FORK_SECONDS", PATIENCE)
    nested = threading.Event()
    with thread_within(nested) as leave:
        threading.Timer(0.01, nested.set).start()
        threading.Timer(0.02, leave.set).start()
        assert SQLITE.pause()
        # The thread that forks may go on meanwhile, others come in afterwards.
        with classified():
            pass
        entered = threading.Event()
        other = threading.Thread(target=lambda: (SQLITE.__enter__(), entered.set(), SQLITE.__exit__()))
        other.start()
        assert not entered.wait(0.05)
        SQLITE.resume()
        assert entered.wait(PATIENCE)
        other.join(PATIENCE)


def test_children_of_a_process_whose_threads_use_sqlite_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_files, "_FORK_SECONDS", PATIENCE)
    ended = threading.Event()

    def use() -> None:
        while not ended.is_set():
            with classified(), closing(connect(None, busy_seconds=1)) as db:
                db.execute("CREATE TABLE some (a)")

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        # A home has a fork wait, whatever memory of it is in use.
        with open_home(tmp_path, background=False):
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    signal.alarm(int(PATIENCE))
                    with classified(), closing(connect(None, busy_seconds=1)) as db:
                        db.execute("CREATE TABLE some (a)")
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE)
