"""Passing on: sends a request to the upstream, and its answer to the client, byte for byte as it comes.

Some models know no system messages, or their templates refuse one. Another request is sent then, and the model is
remembered: a client that sends none must not get an error for the one that holds its memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import NamedTuple

import httpx
import msgspec
from starlette.types import Message, Receive, Scope, Send

from backstory.http.proxy.headers import Headers, to_client
from backstory.http.proxy.outcomes import AnswerOutcome, MemoryOutcome
from backstory.http.proxy.protocol import ErrorShape
from backstory.http.proxy.upstream import Upstream

_ERROR = 400


class AnswerBrokeOffError(Exception):
    """The upstream broke off: the response has to break off, too, and not to end as if it were whole."""


_broke_off: ContextVar[bool] = ContextVar("backstory_broke_off", default=False)


def _says_unfinished(_: logging.LogRecord) -> bool:
    """Keep what the server says of a response without an end out of its log, where the proxy has said why."""
    return not _broke_off.get()


def break_off_quietly() -> None:
    """Have the server close the response of this request without an end, and log nothing of its own about it."""
    logging.getLogger("uvicorn.error").addFilter(_says_unfinished)
    _broke_off.set(True)


class Incoming:
    """A request as it comes in."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive
        self._parts: list[bytes] = []
        names = {name for name, _ in scope["headers"]}
        self._more = bool(names & {b"content-length", b"transfer-encoding"})
        self._all_here = asyncio.Event()
        self.has_body = self._more
        self.is_answered = False
        """Whether all of the answer is on its way to the client."""
        if not self._more:
            self._all_here.set()

    async def read(self, limit: int) -> bytes | None:
        """Return the body; None where it has more bytes than the limit. It can be sent all the same.

        Raises:
            ConnectionError: The client hung up.
        """
        size = 0
        while self._more:
            part = await self._part()
            self._parts.append(part)
            size += len(part)
            if size > limit:
                return None
        return b"".join(self._parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body in parts, those that were read first.

        Raises:
            ConnectionError: The client hung up.
        """
        for part in self._parts:
            yield part
        while self._more:
            yield await self._part()

    async def _part(self) -> bytes:
        message: Message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client hung up")
        self._more = bool(message.get("more_body", False))
        if not self._more:
            self._all_here.set()
        part: bytes = message.get("body", b"")
        return part

    async def nothing(self) -> Message:
        """Receive nothing, for a response that asks for nothing."""
        return {"type": "http.disconnect"}

    async def hung_up(self) -> None:
        """Wait until the client hangs up."""
        await self._all_here.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class AnswerListener:
    """Hears an answer on its way. This one only has the response say what memory did for the request.

    Each response is begun, fed and ended; `break_off` comes last in any case.
    """

    def __init__(self, outcome: MemoryOutcome) -> None:
        self._outcome = outcome

    @property
    def is_over(self) -> bool:
        """Whether the end of the answer was heard."""
        return False

    def begin(self, status: int, headers: Mapping[str, str]) -> Headers:  # noqa: ARG002 for those that listen
        """Hear of a response; return headers to add to it."""
        return [(b"x-backstory-memory", self._outcome.value.encode())]

    def feed(self, chunk: bytes) -> int:
        """Hear bytes; return from which of them on the answer is at its end."""
        return len(chunk)

    async def end(self) -> None:
        """Hear the end, before the client gets it."""

    def break_off(self) -> None:
        """Hear that no more comes."""


async def pass_on(
    upstream: Upstream,
    request: httpx.Request,
    incoming: Incoming,
    send: Send,
    listener: AnswerListener,
    *,
    error: ErrorShape,
    otherwise: Otherwise | None,
    request_with: Callable[[bytes], httpx.Request],
) -> AnswerOutcome:
    """Send a request, and pass its answer on.

    Args:
        upstream: The upstream.
        request: The request to it.
        incoming: The request as it came in.
        send: Sends to the client.
        listener: Hears the answer.
        error: Makes the answer where the upstream gives none.
        otherwise: The body to send where this one is refused.
        request_with: Returns the request with another body.

    Returns:
        What became of it.

    Raises:
        AnswerBrokeOffError: The upstream broke off in the middle.
    """
    asking = _ask(upstream, request, otherwise, request_with)
    hung_up = asyncio.ensure_future(incoming.hung_up())
    passing = asyncio.ensure_future(_pass_on(asking, incoming, send, listener, error))
    try:
        await asyncio.wait({hung_up, passing}, return_when=asyncio.FIRST_COMPLETED)
        # With the last byte of an answer the server says that the client is gone.
        if passing.done() or incoming.is_answered:
            return await passing
        return AnswerOutcome.HUNG_UP
    finally:
        hung_up.cancel()
        passing.cancel()
        await asyncio.gather(hung_up, passing, return_exceptions=True)
        listener.break_off()


async def _pass_on(
    asking: Awaitable[_Answered], incoming: Incoming, send: Send, listener: AnswerListener, error: ErrorShape
) -> AnswerOutcome:
    try:
        answered = await asking
    except ConnectionError:
        return AnswerOutcome.HUNG_UP
    except httpx.TimeoutException:
        answer = error(504, "upstream_timeout", "the model server did not answer in time: try again later")
        outcome = AnswerOutcome.TIMEOUT
    except (httpx.HTTPError, httpx.InvalidURL):
        # The texts of these errors may quote headers, and so the caller's key.
        message = "the model server behind this proxy cannot be reached, or closed the connection: try again later"
        answer = error(502, "upstream_unreachable", message)
        outcome = AnswerOutcome.UNREACHABLE
    else:
        return await _relay(answered, incoming, send, listener)
    incoming.is_answered = True
    answer.headers.raw.extend(listener.begin(answer.status_code, {}))
    await answer(incoming.scope, incoming.nothing, send)
    return outcome


class _Answered(NamedTuple):
    """A response, and the bytes of its body."""

    response: httpx.Response
    body: AsyncIterator[bytes]


async def _ask(
    upstream: Upstream,
    request: httpx.Request,
    otherwise: Otherwise | None,
    request_with: Callable[[bytes], httpx.Request],
) -> _Answered:
    """Send a request, and another one where it is refused."""
    response = await upstream.send(request)
    body = response.aiter_raw()
    if otherwise is None or response.status_code not in _REFUSING:
        return _Answered(response, body)
    try:
        read = await _beginning(body)
        other = otherwise.body(read) if len(read) <= _MOST_BYTES else None
    except BaseException:
        await asyncio.shield(response.aclose())
        raise
    if other is None:
        return _Answered(response, _joined(read, body))
    await response.aclose()
    response = await upstream.send(request_with(other))
    if response.status_code not in _REFUSING:
        otherwise.worked()
    return _Answered(response, response.aiter_raw())


async def _beginning(body: AsyncIterator[bytes]) -> bytes:
    """Read a body as far as an error is read; what comes behind it is left."""
    read = b""
    async for chunk in body:
        read += chunk
        if len(read) > _MOST_BYTES:
            break
    return read


async def _joined(read: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield read
    async for chunk in rest:
        yield chunk


async def _relay(answered: _Answered, incoming: Incoming, send: Send, listener: AnswerListener) -> AnswerOutcome:
    response = answered.response
    held = b""
    try:
        added = listener.begin(response.status_code, response.headers)
        headers = [*to_client(response.headers.raw), *added]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for chunk in answered.body:
            here = listener.feed(chunk)
            now, held = held + chunk[:here], chunk[here:]
            if now:
                await send({"type": "http.response.body", "body": now, "more_body": True})
            if listener.is_over and held:
                await listener.end()
                await send({"type": "http.response.body", "body": held, "more_body": True})
                held = b""
        await listener.end()
        incoming.is_answered = True
        await send({"type": "http.response.body", "body": held})
    except httpx.HTTPError:
        if held:
            await send({"type": "http.response.body", "body": held, "more_body": True})
        raise AnswerBrokeOffError("the model server broke off its answer") from None
    finally:
        await asyncio.shield(response.aclose())
    return AnswerOutcome.ANSWERED if response.status_code < _ERROR else AnswerOutcome.UPSTREAM_ERROR


_REFUSING = frozenset({400, 422, 500})
"""The statuses of a response that may be a refusal of the system message."""
_MOST_BYTES = 64 * 2**10
_REFUSAL = re.compile(
    rb"system.{0,40}\b(?:role|message|prompt|instruction)|\brole.{0,80}\bsystem\b|roles must alternate"
    rb"|developer instruction",
    re.IGNORECASE | re.DOTALL,
)


def refuses_system(answer: bytes) -> bool:
    """Whether an error is about a system message."""
    return _REFUSAL.search(answer) is not None


class Otherwise(msgspec.Struct, frozen=True):
    """Another body for a request that is refused.

    Attributes:
        body: Returns it, given the error; None where the error is about something else.
        worked: Is called when the other request was taken.
    """

    body: Callable[[bytes], bytes | None]
    worked: Callable[[], None]
