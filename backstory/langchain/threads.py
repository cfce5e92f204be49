"""Doing what may wait for a disk or a lock beside an event loop, on threads of our own.

A loop's own few threads serve everything else of the host as well: memories whose locks are held elsewhere would keep
all of that waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from backstory.ledger.concurrency.forks import register

__all__ = ["run_in_thread"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS = 64


class _Pool:
    """Threads for this process; a forked child has none of its parent's, and makes its own."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="backstory-agent")


async def run_in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what a call returns, made beside the event loop in the context of whoever asks."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool.executor, lambda: context.run(call, *args, **kwargs))


_pool = _Pool()
register(_pool)
