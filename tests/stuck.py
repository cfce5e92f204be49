"""Writers that are stuck: somebody else holds the locks of a scope's logs, and ours wait for them until they may go on.

Nothing here measures time. Whoever waits for a lock waits at a barrier that opens when the reads have returned, and a
read that sleeps, syncs or appends fails the test.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes import PATIENCE

from backstory import Backstory
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.engines.jsonl.store import JsonlStore

LOGS = ("ledger", "transcript")
_READERS = ("reader", "asyncio")
"""How the threads are called that read; others, in the background, find the locks taken."""


@contextmanager
def held(*files: Path) -> Iterator[None]:
    """Hold locks as another process would: a lock belongs to the open file.

    Waits for a lock that work in the background still holds.
    """
    descriptors = []
    try:
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptors.append(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
            fcntl.flock(descriptors[-1], fcntl.LOCK_EX)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class Barrier(SystemClock):
    """The clock that locks are waited for by: a nap lasts until `opened`, and a reader may not nap.

    `broken` are the rules that a reader broke: whatever it raised somebody may have caught.
    """

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.writers: set[int] = set()
        self.broken: list[str] = []

    def refuse_reader(self, doing: str) -> None:
        """Refuse something that a reader may not do."""
        if threading.current_thread().name.startswith(_READERS):
            self.broken.append(doing)
            raise AssertionError(f"a read {doing}")

    def sleep(self, seconds: float) -> None:
        self.refuse_reader(f"waited {seconds} s for a lock")
        if threading.get_ident() not in self.writers and not self.opened.is_set():
            # Else work in the background would keep our writers off among the threads, where they do not nap.
            raise LockTimeoutError("a log is held by the test")
        self.waiting.release()
        assert self.opened.wait(PATIENCE)
        super().sleep(seconds)


class Stuck:
    """Writers of a home that wait for locks, while `held` holds them."""

    def __init__(self, bs: Backstory, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(bs.store, JsonlStore)
        self.barrier = Barrier()
        self._pool = ThreadPoolExecutor(8)
        self._writing: list[Future[object]] = []
        bs.store._locks._clock = self.barrier
        for owner, name in ((JsonlStore, "append"), (JsonlStore, "settled_head"), (os, "fdatasync")):
            monkeypatch.setattr(owner, name, self._only_by_writers(name, getattr(owner, name)))

    def _only_by_writers(self, name: str, work: Callable[..., object]) -> Callable[..., object]:
        def checked(*args: object, **more: object) -> object:
            self.barrier.refuse_reader(f"called {name}")
            return work(*args, **more)

        return checked

    def start(self, write: Callable[[], object]) -> Future[object]:
        """Start a writer, and return when it waits for a lock."""
        future = self.begin(write)
        assert self.barrier.waiting.acquire(timeout=PATIENCE)
        return future

    def begin(self, write: Callable[[], object]) -> Future[object]:
        """Start a writer that may come to wait for another one."""

        def run() -> object:
            self.barrier.writers.add(threading.get_ident())
            return write()

        self._writing.append(self._pool.submit(run))
        return self._writing[-1]

    def finish(self) -> None:
        """Let the writers go on, and see that each has done its work."""
        self.barrier.opened.set()
        for future in self._writing:
            future.result(PATIENCE)
        assert self.barrier.broken == []


@contextmanager
def stuck_writers(
    bs: Backstory, folder: Path, writes: Sequence[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stuck]:
    """Hold both logs of a scope, with writers that wait for them; afterwards each of them has done its work."""
    stuck = Stuck(bs, monkeypatch)
    try:
        with held(*(folder / f"{log}.lock" for log in LOGS)):
            for write in writes:
                stuck.start(write)
            yield stuck
    finally:
        stuck.finish()


def returned(read: Callable[[], object]) -> object:
    """Return what a read returns, in a thread of its own that is not waited for beyond all patience."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except BaseException as error:  # noqa: BLE001 it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name=_READERS[0], daemon=True).start()
    return future.result(PATIENCE)
