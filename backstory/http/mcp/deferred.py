"""Part of the server that is made at its first request, since making it takes long and not every server needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from backstory.integrations.threads import run_in_thread

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus
    from starlette.types import Receive, Scope, Send

    from backstory.http.mcp.endpoint import McpEndpoint

__all__ = ["Deferred"]


class Deferred:
    """ASGI app that stands for an endpoint, and makes it at the first request.

    Args:
        make: Makes the endpoint; called in a thread. If it fails, the next request tries again.
    """

    def __init__(self, make: Callable[[], McpEndpoint]) -> None:
        self._make = make
        self._endpoint: McpEndpoint | None = None
        self._making = asyncio.Lock()
        self._ended = asyncio.Event()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer for the length of a block, which is the server's lifespan; once."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._making:
            if self._endpoint is None:
                if self._tasks is None:
                    raise RuntimeError("a request came before the server's lifespan")
                self._endpoint = await self._tasks.start(self._keep)
        await self._endpoint(scope, receive, send)

    async def _keep(self, *, task_status: TaskStatus[McpEndpoint]) -> None:
        """Keep the endpoint running in one task: the one that enters a task group has to leave it."""
        endpoint = await run_in_thread(self._make)
        async with endpoint.running():
            task_status.started(endpoint)
            await self._ended.wait()
