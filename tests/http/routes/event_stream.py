"""An event stream, read from an app directly, and what a browser makes of its lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

from fakes import PATIENCE
from fastapi import FastAPI


class Event:
    """An event as an EventSource dispatches it."""

    def __init__(self, kind: str, name: str, data: str) -> None:
        self.kind = kind
        self.id = name
        self.data: Any = json.loads(data)


class Stream:
    """The connection of a client; `last_id` is what it would send as it connects again."""

    def __init__(self, last_id: str | None) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_id = last_id
        self.comments: list[str] = []
        self.body = b""
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._ended = False
        self.gone = asyncio.Event()
        self._asked = False

    async def send(self, message: Any) -> None:
        await self._messages.put(message)

    async def receive(self) -> Any:
        if not self._asked:
            # As a server does: the body comes first, also where there is none.
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _more(self) -> bool:
        if self._ended:
            return False
        async with asyncio.timeout(PATIENCE):
            message = await self._messages.get()
        if message is None:
            self._ended = True
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
        return not self._ended

    async def begun(self) -> None:
        """Wait for the first bytes of the answer."""
        while not self.body and await self._more():
            pass

    async def next(self) -> Event | None:
        """Wait for the next event but `head`, which only tells the id to begin after; None at the end of the stream."""
        while True:
            while b"\n\n" not in self.body:
                if not await self._more():
                    assert self.body == b"", f"the stream ended within an event: {self.body!r}"
                    return None
            block, _, self.body = self.body.partition(b"\n\n")
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
                else:
                    self.comments.append(value.strip())
            self.last_id = fields.get("id", self.last_id)
            if fields and "data" not in fields:
                raise AssertionError(f"an id alone is no event to many clients: {block!r}")
            if "data" in fields and fields.get("event") != "head":
                return Event(fields.get("event", "message"), self.last_id or "", fields["data"])

    async def rest(self) -> list[Event]:
        """All events until the end."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


@contextlib.asynccontextmanager
async def connected(
    app: FastAPI, *, last_id: str | None = None, path: str = "/v1/events", **params: object
) -> AsyncIterator[Stream]:
    """Open a stream; at the end of the block the client drops the connection."""
    stream = Stream(last_id)
    sent: Mapping[str, str] = {"host": "127.0.0.1"} | ({} if last_id is None else {"last-event-id": last_id})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(params).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def answer() -> None:
        try:
            await app(scope, stream.receive, stream.send)
        finally:
            await stream.send(None)

    answering = asyncio.create_task(answer())
    try:
        await stream.begun()
        yield stream
    finally:
        stream.gone.set()
        async with asyncio.timeout(PATIENCE):
            await answering
