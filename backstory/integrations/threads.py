"""Thread pool for blocking calls from an event loop.

It is separate from the loop's own pool: calls that wait for a locked memory must not block the other work of the host.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS = 64


_executors: dict[int, ThreadPoolExecutor] = {}
"""The executor of this process, by its id; a forked child makes its own."""


def _executor() -> ThreadPoolExecutor:
    known = _executors.get(os.getpid())
    if known is None:
        fresh = ThreadPoolExecutor(_THREADS, thread_name_prefix="backstory-agent")
        known = _executors.setdefault(os.getpid(), fresh)
    return known


async def run_in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a blocking call in the pool, with the context variables of the caller."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_executor(), lambda: context.run(call, *args, **kwargs))
