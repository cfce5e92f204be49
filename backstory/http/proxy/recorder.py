"""Recorder: a listener that records the answer that it hears.

Recordings run in the background of an event loop. They are bounded, and awaited at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from backstory.http.proxy.answers import AnswerForm, AnswerReader, reader_of
from backstory.http.proxy.exchange import Exchange
from backstory.http.proxy.headers import Headers
from backstory.http.proxy.outcomes import MemoryOutcome
from backstory.http.proxy.passing import AnswerListener
from backstory.integrations.threads import run_in_thread
from backstory.projections.context import Context

_T = TypeVar("_T")

_AT_ONCE = 32
"""Worker threads that record at most; the others read, so that locked memories do not hold up all requests."""
_MOST = 1_000


class Recordings:
    """Recordings that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_full(self) -> bool:
        """Whether too many recordings wait to begin another one."""
        return len(self._tasks) >= _MOST

    def start(self, work: Callable[[], object], after: Awaitable[object] | None = None) -> asyncio.Task[None]:
        """Begin a recording.

        Args:
            work: Records, and raises nothing.
            after: What has to be done before.
        """
        task = asyncio.ensure_future(self._run(work, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, work: Callable[[], object], after: Awaitable[object] | None) -> None:
        if after is not None:
            await after
        async with self._slots:
            await run_in_thread(work)

    async def end(self, seconds: float) -> None:
        """Wait until all are done, or the time is over."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)


async def done_within(task: asyncio.Future[_T], seconds: float) -> bool:
    """Wait for a task for a time, without ending it; return whether it is done."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)


ANSWER_HEADERS = (
    "X-Backstory-Memory",
    "X-Backstory-Thread",
    "X-Backstory-Unrecorded",
    "X-Backstory-Skipped",
    "X-Backstory-Facts",
)
"""The headers that the proxy adds to an answer."""

_GOOD = range(200, 300)


_MOST_LISTED = 8_000
"""Bytes of ids in a header: clients refuse long ones."""


def _listed(ids: Sequence[str]) -> str:
    """Return ids as a list; of those that do not fit only how many they are."""
    size = fitting = 0
    for one in ids:
        size += len(one) + 1
        fitting += size <= _MOST_LISTED
    left = len(ids) - fitting
    return ",".join([*ids[:fitting], *([f"+{left}"] if left else ())])


class Recorder(AnswerListener):
    """Records an exchange: the question while the upstream is asked, the answer before the client has all of it.

    Args:
        exchange: The memory of the request.
        form: How its answer is read.
        outcome: What memory did for it.
        recordings: Where recordings are under way.
        reading: The reading of memory, which may still be under way; None where it was skipped.
        patience: Seconds that the end of an answer waits to be recorded. It is recorded in the background then.
    """

    def __init__(
        self,
        exchange: Exchange,
        form: AnswerForm,
        outcome: MemoryOutcome,
        recordings: Recordings,
        *,
        reading: asyncio.Future[Context | None] | None,
        patience: float,
    ) -> None:
        super().__init__(outcome)
        self._exchange = exchange
        self._form = form
        self._recordings = recordings
        self._patience = patience
        self._reader: AnswerReader | None = None
        self._last: asyncio.Task[None] | None = None
        self._ended = False
        if exchange.records:
            self._last = recordings.start(exchange.record_question, reading)
        elif reading is not None and not reading.done():
            # Left only once it is known which thread it is.
            self._last = recordings.start(lambda: None, reading)

    @property
    def is_over(self) -> bool:
        """Whether the end of the answer was heard."""
        return self._reader is not None and self._reader.over

    def begin(self, status: int, headers: Mapping[str, str]) -> Headers:
        """Find out how to read a response; return headers that name the thread and say what memory did."""
        if status in _GOOD:
            self._reader = reader_of(self._form, headers.get("content-type", ""), headers.get("content-encoding", ""))
        named = self._exchange.thread
        exchange = self._exchange
        added = super().begin(status, headers)
        # Other characters have no place in a header.
        if named is not None and named.isascii() and named.isprintable():
            added.append((b"x-backstory-thread", named.encode()))
        if exchange.records and exchange.unseen:
            added.append((b"x-backstory-unrecorded", b"%d" % exchange.unseen))
        if exchange.records and exchange.cuts:
            added.append((b"x-backstory-skipped", ", ".join(exchange.cuts).encode("ascii", "replace")))
        if exchange.lists_facts:
            added.append((b"x-backstory-facts", _listed(exchange.facts).encode("ascii", "replace")))
        return added

    def feed(self, chunk: bytes) -> int:
        """Read a copy of the answer."""
        return len(chunk) if self._reader is None else self._reader.feed(chunk)

    async def end(self) -> None:
        """Record the answer. It is durable on return, where memory works and is not slow."""
        if not self._ended:
            self._finish(interrupted=False)
        if self._last is not None:
            await done_within(self._last, self._patience)

    def break_off(self) -> None:
        """Record the answer as far as it came, unless it was recorded."""
        if not self._ended:
            self._finish(interrupted=True)

    def _finish(self, *, interrupted: bool) -> None:
        self._ended = True
        exchange, reader = self._exchange, self._reader
        if not exchange.records or reader is None:
            self._last = self._recordings.start(exchange.leave, self._last)
            return
        answer = reader.answer()
        exchange.note_answer(answer)

        def record() -> None:
            try:
                exchange.record_answer(answer, interrupted=interrupted or not answer.whole)
            finally:
                exchange.leave()

        self._last = self._recordings.start(record, self._last)
