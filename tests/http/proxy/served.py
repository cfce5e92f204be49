"""A proxy on a free port of the loopback, as a server runs it, and what a test asks of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from doubles.hasty import hurry
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from backstory import Backstory
from backstory.http.access.callers import LOCAL, Caller
from backstory.http.proxy.anthropic.protocol import ANTHROPIC
from backstory.http.proxy.openai.protocol import OPENAI
from backstory.http.proxy.protocol import Protocol
from backstory.http.proxy.proxy import Proxy
from backstory.http.proxy.thread_names import ThreadNames
from backstory.http.proxy.upstream import Upstream

hurry()

FACT = "User lives in Bergen"
"""What is known of ada in most tests."""

PATIENCE = 15.0


class _WithCaller:
    """Says who calls, as the middleware of the server does."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = self._caller
        await self._app(scope, receive, send)


@dataclass
class Served:
    proxy: Proxy
    url: str
    home: Backstory
    client: httpx.Client
    outcomes: dict[str, Counter[str]]

    def post(self, path: str = "/chat/completions", **options: Any) -> httpx.Response:
        return self.client.post(self.url + path, **options)

    def chat(self, *said: str, user: str | None = "ada", stream: bool = False, **headers: str) -> httpx.Response:
        """Ask with a conversation of a user and an agent in turn."""
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        body: dict[str, object] = {"model": "m", "messages": messages}
        if stream:
            body["stream"] = True
        if user is not None:
            body["user"] = user
        return self.post(json=body, headers={name.replace("_", "-"): value.encode() for name, value in headers.items()})

    def ask(self, *said: str, user: str | None = "ada", stream: bool = False, **headers: str) -> httpx.Response:
        """Ask Anthropic's way with a conversation of a user and an agent in turn."""
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        return self.messages(messages, user=user, headers=headers, **({"stream": True} if stream else {}))

    def messages(
        self, messages: Any, *, user: str | None = "ada", headers: dict[str, str] | None = None, **fields: object
    ) -> httpx.Response:
        """Ask Anthropic's way with messages."""
        whose = {} if user is None else {"metadata": {"user_id": user}}
        body = {"model": "m", "max_tokens": 100, **whose, "messages": messages, **fields}
        spelled = {name.replace("_", "-"): value.encode() for name, value in (headers or {}).items()}
        return self.post("/v1/messages", json=body, headers=spelled)

    def turns(self, user: str = "ada", agent: str | None = None) -> dict[str, list[str]]:
        """What stands in each thread of a user."""
        memory = self.home.memory(user, agent)
        return {one.thread: [turn.content for turn in memory.transcript(one.thread)] for one in memory.threads()}

    @property
    def memory_outcomes(self) -> dict[str, int]:
        return dict(self.outcomes["memory"])

    @property
    def answers(self) -> dict[str, int]:
        return dict(self.outcomes["answer"])

    def until(self, holds: Any) -> None:
        """Wait for the background."""
        end = threading.Event()
        for _ in range(int(PATIENCE / 0.01)):
            if holds():
                return
            end.wait(0.01)
        raise TimeoutError("it never happened")


def served_to_anthropic(home: Backstory, upstream: str, caller: Caller = LOCAL, **options: Any) -> Any:
    """Serve a proxy to Anthropic's clients, whose paths begin with the version."""
    return served(home, upstream.removesuffix("/v1"), caller, protocol=ANTHROPIC, **options)


@contextlib.contextmanager
def served(
    home: Backstory,
    upstream: str,
    caller: Caller = LOCAL,
    *,
    protocol: Protocol = OPENAI,
    first: int = 1,
    **options: Any,
) -> Iterator[Served]:
    """Serve a proxy; threads are named thread-1, thread-2, … or from another number on."""
    numbers = itertools.count(first)
    names = ThreadNames(lambda: f"thread-{next(numbers)}")
    outcomes: dict[str, Counter[str]] = {"memory": Counter(), "answer": Counter()}
    proxy = Proxy(
        home,
        protocol,
        upstream=Upstream(upstream),
        names=names,
        note=lambda about, outcome: outcomes[about].update([outcome]),
        **options,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        yield
        await proxy.aclose()

    app = FastAPI(lifespan=lifespan)
    app.mount(protocol.path, proxy)
    config = uvicorn.Config(
        _WithCaller(app, caller), host="127.0.0.1", port=0, log_level="critical", ws="none", loop="asyncio"
    )
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    # Without a stated protocol asyncio does not, and a body would wait 40 ms for its headers to be acknowledged.
    sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Clients may connect before the server runs.
    sockets[0].listen()
    port = sockets[0].getsockname()[1]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)))
    thread.start()
    try:
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            yield Served(proxy, f"http://127.0.0.1:{port}{protocol.path}", home, client, outcomes)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        for one in sockets:
            one.close()
