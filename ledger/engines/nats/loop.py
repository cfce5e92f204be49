"""An event loop in a thread of its own, for threads that wait for what coroutines return.

It does what `asyncio.run_coroutine_threadsafe` does, but threads that call at the same time wake the loop once, and
each is woken by a bare lock: with many writers, wake-ups were a good part of what a commit cost the client.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from backstory.ledger.core.errors import StoreError, UnknownOutcomeError

_T = TypeVar("_T")


class _Call(Generic[_T]):
    """A coroutine to be carried out, and the lock that its caller waits for."""

    __slots__ = ("answered", "task", "work")

    def __init__(self, work: Coroutine[object, object, _T]) -> None:
        self.work = work
        self.task: asyncio.Task[_T] | None = None
        self.answered = threading.Lock()
        self.answered.acquire()


class LoopThread:
    """Carries out coroutines until it is stopped."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._calls: deque[_Call[object]] = deque()
        self._begun: set[_Call[object]] = set()
        self._awake = False
        """Whether the loop is about to look for calls."""
        self._ended = False
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        """Carry out a coroutine, and wait for it.

        Raises:
            UnknownOutcomeError: The loop was stopped meanwhile.
            StoreError: It was stopped before, or this is its own thread.
        """
        if threading.get_ident() == self._thread.ident:
            # As where a half-read generator is collected here: to wait would be for ever.
            work.close()
            raise StoreError("the loop of the connection cannot wait for itself: ask from another thread")
        call = _Call(work)
        try:
            self._submit(call)
            call.answered.acquire()
        except BaseException:
            # An interrupted thread wakes the loop all the same: it may have said that it would.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._begin_all)
                self.loop.call_soon_threadsafe(_cancel, call)
            raise
        if call.task is None:
            raise StoreError("the connection was closed: open the store again")
        try:
            return call.task.result()
        except asyncio.CancelledError as error:
            raise UnknownOutcomeError(
                "the connection was closed while a request was under way: open the store again, then read the head"
            ) from error

    def begin(self, work: Coroutine[object, object, object]) -> None:
        """Carry out a coroutine without waiting for it; not if the loop is stopped."""
        self._submit(_Call(work))

    def _submit(self, call: _Call[_T]) -> None:
        self._calls.append(call)  # type: ignore[arg-type]  # what a call returns is its caller's business
        try:
            # Who sets it wakes the loop for all: it is unset before the calls are taken.
            if not self._awake:
                self._awake = True
                self.loop.call_soon_threadsafe(self._begin_all)
        except RuntimeError:
            self._refuse_all()

    def stop(self) -> None:
        """Have the loop end; what is under way is cancelled. It may be stopped more than once."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end)

    def join(self, seconds: float) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _end(self) -> None:
        # Once: a second time would cut short what the cancelled ones still have to do.
        if not self._ended:
            self._ended = True
            self.loop.stop()

    def _begin_all(self) -> None:
        self._awake = False
        while self._calls:
            call = self._calls.popleft()
            self._begun.add(call)
            call.task = self.loop.create_task(call.work)
            call.task.add_done_callback(partial(self._answer, call))

    def _answer(self, call: _Call[object], _: asyncio.Task[object]) -> None:
        self._begun.discard(call)
        call.answered.release()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.close()
            # Some are done, and their callers were not woken.
            for call in self._begun:
                call.answered.release()
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Release the callers that wait for a closed loop; a later call fails when it wakes the loop."""
        self._awake = False
        # Several threads may do this at once.
        with suppress(IndexError):
            while True:
                call = self._calls.popleft()
                call.work.close()
                call.answered.release()


def _cancel(call: _Call[_T]) -> None:
    if call.task is not None:
        call.task.cancel()
