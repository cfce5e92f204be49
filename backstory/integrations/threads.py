"""Thread pool for blocking calls from an event loop.

It is separate from the loop's own pool: calls that wait for a locked memory must not block the other work of the host.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS = 64


@functools.cache
def _executor(_process: int) -> ThreadPoolExecutor:
    """Return the executor of a process: a forked child makes its own."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="backstory-agent")


async def run_in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a blocking call in the pool, with the context variables of the caller."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_executor(os.getpid()), lambda: context.run(call, *args, **kwargs))
