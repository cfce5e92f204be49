"""A part of the server that is made at its first request: once, in one task, and left with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from backstory.http.mcp.deferred import Deferred


class Endpoint:
    """Notes the tasks in which it is entered and left, and how many requests it answers while it runs."""

    def __init__(self) -> None:
        self.entered: object = None
        self.left: object = None
        self.answered = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.entered = asyncio.current_task()
        yield
        self.left = asyncio.current_task()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (self.entered is not None, self.left) == (True, None)
        self.answered += 1


class Maker:
    """Makes endpoints, unless it has to fail first."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.made: list[Endpoint] = []

    def __call__(self) -> Endpoint:
        if self.failures:
            raise self.failures.pop()
        self.made.append(Endpoint())
        return self.made[-1]


async def ask(deferred: Deferred) -> None:
    async def nothing(*_: object) -> dict[str, object]:
        return {}

    await deferred({"type": "http"}, nothing, nothing)  # type: ignore[arg-type]


def served(maker: Callable[[], Endpoint], work: Callable[[Deferred], Awaitable[None]]) -> None:
    async def run() -> None:
        deferred = Deferred(maker)
        async with deferred.running():
            await work(deferred)

    asyncio.run(run())


def test_what_nobody_asks_for_is_never_made() -> None:
    maker = Maker()

    async def nothing(_: Deferred) -> None: ...

    served(maker, nothing)
    assert maker.made == []


def test_it_is_made_once_and_left_by_the_task_that_entered_it() -> None:
    maker = Maker()

    async def several(deferred: Deferred) -> None:
        await asyncio.gather(*(ask(deferred) for _ in range(5)))
        await ask(deferred)

    served(maker, several)
    (endpoint,) = maker.made
    assert endpoint.answered == 6
    assert endpoint.left is endpoint.entered
    assert endpoint.left is not None


def test_the_next_request_tries_again_where_making_it_failed() -> None:
    maker = Maker(OSError("no memory"))

    async def twice(deferred: Deferred) -> None:
        with pytest.raises(OSError, match="no memory"):
            await ask(deferred)
        await ask(deferred)

    served(maker, twice)
    assert [endpoint.answered for endpoint in maker.made] == [1]


def test_a_client_that_leaves_while_it_is_made_does_no_harm_to_the_next() -> None:
    maker = Maker()

    async def leaves(deferred: Deferred) -> None:
        first = asyncio.create_task(ask(deferred))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await ask(deferred)

    served(maker, leaves)
    assert [endpoint.answered for endpoint in maker.made if endpoint.answered] == [1]


def test_a_request_before_the_servers_lifespan_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="lifespan"):
        asyncio.run(ask(Deferred(Maker())))
