"""Proxy application: who asks, what memory does for the request, and what is forwarded."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
from collections import Counter
from urllib.parse import unquote

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backstory.home import Backstory
from backstory.http.access.callers import Caller, Right
from backstory.http.proxy.exchange import Exchange, Memories
from backstory.http.proxy.headers import Headers, UnknownValueError, header, hint_of, to_upstream, wishes_of
from backstory.http.proxy.openai.protocol import OPENAI
from backstory.http.proxy.outcomes import AnswerOutcome, MemoryOutcome, NoteOutcome
from backstory.http.proxy.passing import (
    AnswerBrokeOffError,
    AnswerListener,
    Incoming,
    Otherwise,
    break_off_quietly,
    pass_on,
    refuses_system,
)
from backstory.http.proxy.protocol import Asked, Endpoint, Protocol, UnreadableRequestError, inflated
from backstory.http.proxy.recorder import Recorder, Recordings, done_within
from backstory.http.proxy.thread_names import ThreadNames
from backstory.http.proxy.upstream import Upstream
from backstory.integrations.threads import run_in_thread
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import NotFoundError, ScopeError
from backstory.ledger.core.scope import Scope as MemoryScope
from backstory.outbox.outbox import LOST
from backstory.projections.context import Context

_log = logging.getLogger(__name__)

_MOST_BYTES = 64 * 2**20
"""The largest body that is read; one with more is forwarded as it comes, without memory."""
_SMALL_BYTES = 64 * 2**10
"""The largest body that is read on the event loop."""
_READ_SECONDS = 2.0
_RECORD_SECONDS = 2.0
_CLOSE_SECONDS = 10.0
_MODELS = 1_000
_SILENT = (AnswerOutcome.UNREACHABLE, AnswerOutcome.TIMEOUT)
_SEPARATOR = re.compile(r"[/\\]")


class Proxy:
    """ASGI application that forwards requests to a model server, with memory in them, and records what is said.

    Mount it at the path of its protocol, behind a middleware that puts the caller into `request.state.caller`. Close it
    before the home.

    Args:
        home: An open home.
        protocol: The protocol that it speaks.
        upstream: Where requests are forwarded to; as configured by default.
        names: Names the threads.
        note: Gets each outcome, for metrics.
        read_seconds: How long a request waits for memory to be read; then it is forwarded without.
        record_seconds: How long the end of an answer waits to be recorded; then it is recorded in the background.
    """

    def __init__(
        self,
        home: Backstory,
        protocol: Protocol = OPENAI,
        *,
        upstream: Upstream | None = None,
        names: ThreadNames | None = None,
        note: NoteOutcome = lambda *_: None,
        read_seconds: float = _READ_SECONDS,
        record_seconds: float = _RECORD_SECONDS,
    ) -> None:
        self._note = note
        self._home = home
        self._protocol = protocol
        self._upstream = upstream or Upstream(protocol.upstream(home.config.settings, os.environ))
        self._memories = Memories(home, names or ThreadNames())
        self._recordings = Recordings()
        self._read_seconds = read_seconds
        self._record_seconds = record_seconds
        self._without_system: Recent[str, bool] = Recent(_MODELS)
        """The models that have refused a system message."""
        # The first block needs it; by then it may be there.
        home.warm(timeout=0)
        self._late: Counter[MemoryScope] = Counter()
        """Readings that take longer than requests wait."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "not supported"})
            return
        incoming = Incoming(scope, receive)
        protocol = self._protocol
        target = _target(scope, protocol.path)
        if target is None:
            response = protocol.error(404, "not_found", f"there is nothing here: use {protocol.path}{protocol.usual}")
            await response(scope, receive, send)
            return
        if self._upstream.is_at(scope.get("server"), protocol.path):
            message = (
                f"{self._upstream.base_url} is this proxy itself: set {protocol.upstream_key} to the address of the "
                "model server"
            )
            await protocol.error(502, "upstream_is_this_proxy", message)(scope, receive, send)
            return
        endpoint = protocol.endpoint(target[0]) if scope["method"] == "POST" else None
        try:
            if endpoint is None:
                self._note("memory", MemoryOutcome.OTHER_PATH)
                await self._forward(scope, incoming, send, target, AnswerListener(MemoryOutcome.OTHER_PATH))
            else:
                await self._converse(scope, incoming, send, target, endpoint)
        except ConnectionError:
            self._note("answer", AnswerOutcome.HUNG_UP)

    async def aclose(self) -> None:
        """Wait until what was said is recorded, and close the connections to the upstream."""
        await self._recordings.end(_CLOSE_SECONDS)
        await self._upstream.aclose()

    # With memory.

    async def _converse(
        self, scope: Scope, incoming: Incoming, send: Send, target: tuple[str, bytes], endpoint: Endpoint
    ) -> None:
        caller = _caller(scope)
        found: tuple[Asked, Exchange] | MemoryOutcome | Response
        try:
            found = await self._exchange_of(caller, scope, incoming, endpoint)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 a fault of ours must not break an answer
            # Without its text, which may quote the request.
            _log.error("a request is forwarded without memory, please report this: %s", type(error).__name__)
            found = MemoryOutcome.UNREADABLE
        if isinstance(found, MemoryOutcome):
            self._note("memory", found)
            await self._forward(scope, incoming, send, target, AnswerListener(found))
        elif isinstance(found, Response):
            self._note("memory", MemoryOutcome.REFUSED)
            await found(scope, incoming.nothing, send)
        else:
            asked, exchange = found
            reading, outcome = await self._read(exchange)
            block = reading.result() if reading is not None and reading.done() else None
            body, otherwise = None, None
            try:
                if block is not None:
                    body, otherwise = self._with_block(asked, block)
                    exchange.given(block)
            except UnreadableRequestError:
                body, outcome = None, MemoryOutcome.UNREADABLE
            self._note("memory", outcome)
            recorder = Recorder(
                exchange,
                endpoint.answers,
                outcome,
                self._recordings,
                reading=reading,
                patience=self._record_seconds,
            )
            await self._forward(scope, incoming, send, target, recorder, body=body, otherwise=otherwise, plain=True)

    def _with_block(self, asked: Asked, block: Context) -> tuple[bytes | None, Otherwise | None]:
        """Return the body with a block, and another one for an upstream that refuses the system message in the first.

        A model that has refused one gets none from then on.
        """
        refused = self._without_system.get(asked.model) is not None
        body = asked.with_block(block.standing, block.found, in_question=refused)
        if refused or asked.instructs or not block.standing:
            return body, None

        def otherwise(answer: bytes) -> bytes | None:
            if not refuses_system(answer):
                return None
            try:
                return asked.with_block(block.standing, block.found, in_question=True)
            except UnreadableRequestError:
                return None

        return body, Otherwise(otherwise, lambda: self._without_system.put(asked.model, True))

    async def _exchange_of(
        self, caller: Caller, scope: Scope, incoming: Incoming, endpoint: Endpoint
    ) -> tuple[Asked, Exchange] | MemoryOutcome | Response:
        """Return the request and its memory; or why there is none, or the answer to a caller who may not see it."""
        if not self._home.config.settings.enabled:
            return MemoryOutcome.DISABLED
        headers = scope["headers"]
        try:
            wishes = wishes_of(headers)
        except UnknownValueError as error:
            return self._protocol.error(400, "invalid_header", str(error))
        if wishes.mode == "off":
            return MemoryOutcome.OFF
        body = await incoming.read(_MOST_BYTES)
        if body is None:
            return MemoryOutcome.TOO_LARGE
        try:
            asked = await self._asked(endpoint, body, headers)
        except UnreadableRequestError:
            return MemoryOutcome.UNREADABLE
        if asked.aside is not None:
            return MemoryOutcome(asked.aside)
        user = header(headers, b"x-backstory-user") or asked.user or caller.own_user
        if user is None and caller.sees(asked.safety_identifier):
            # Last of all, since it is made for the upstream; often it is a digest.
            user = asked.safety_identifier
        if user is None:
            return MemoryOutcome.NO_USER
        try:
            owner = caller.scope(user, header(headers, b"x-backstory-agent") or None)
        except NotFoundError:
            message = "this token does not cover the user that the request names"
            return self._protocol.error(404, "memory_not_found", message)
        except ScopeError:
            return MemoryOutcome.INVALID_NAME
        hint = hint_of(headers, asked.field)
        records = wishes.mode == "record" and await self._may_record(caller, owner)
        return asked, Exchange(self._memories, owner, asked, wishes, hint=hint, records=records)

    async def _asked(self, endpoint: Endpoint, body: bytes, headers: Headers) -> Asked:
        """Read a request, in a worker thread where that may take long.

        Raises:
            UnreadableRequestError: It cannot be read.
        """
        scaffolding = self._memories.scaffolding
        encoding = header(headers, b"content-encoding")

        def read() -> Asked:
            plain = inflated(body, encoding, _MOST_BYTES)
            return endpoint.read(plain, lambda name: header(headers, name.encode()), scaffolding)

        return read() if len(body) <= _SMALL_BYTES and not encoding else await run_in_thread(read)

    async def _may_record(self, caller: Caller, owner: MemoryScope) -> bool:
        if caller.right < Right.WRITE:
            return False
        if self._recordings.is_full:
            detail = "the words of a request to the proxy are not recorded: too many recordings wait for their memory"
            await run_in_thread(self._home.faults.count, owner, "record", LOST, detail)
            return False
        return True

    async def _read(self, exchange: Exchange) -> tuple[asyncio.Future[Context | None] | None, MemoryOutcome]:
        """Read memory, as long as a request waits for it; a reading that takes longer goes on."""
        if self._late[exchange.scope]:
            return None, MemoryOutcome.SLOW
        reading = asyncio.ensure_future(run_in_thread(exchange.read))
        if await done_within(reading, self._read_seconds):
            return reading, MemoryOutcome.UNAVAILABLE if reading.result() is None else MemoryOutcome.USED
        self._late[exchange.scope] += 1

        def done(_: object) -> None:
            self._late[exchange.scope] -= 1
            if not self._late[exchange.scope]:
                del self._late[exchange.scope]

        reading.add_done_callback(done)
        detail = f"memory was not read within {self._read_seconds:g} s, so a request was forwarded without"
        self._recordings.start(lambda: self._home.faults.count(exchange.scope, "inject", "SlowMemory", detail))
        return reading, MemoryOutcome.SLOW

    # Forwarding.

    async def _forward(
        self,
        scope: Scope,
        incoming: Incoming,
        send: Send,
        target: tuple[str, bytes],
        listener: AnswerListener,
        *,
        body: bytes | None = None,
        otherwise: Otherwise | None = None,
        plain: bool = False,
    ) -> None:
        """Forward a request: with the body given, or as it came in; `otherwise` is for an upstream that refuses it."""
        headers = to_upstream(scope["headers"], plain=plain)
        if body is not None:
            # It was read, and is sent as it is.
            headers = [(name, value) for name, value in headers if name != b"content-encoding"]
        content = body if body is not None else incoming.parts() if incoming.has_body else None
        length = header(scope["headers"], b"content-length")
        if body is None and length:
            headers.append((b"content-length", length.encode()))
        query = scope.get("query_string", b"")
        path = target[1] + (b"?" + query if query else b"")
        request_with = functools.partial(self._upstream.request, scope["method"], path, headers)
        try:
            request = request_with(content)
        except (httpx.InvalidURL, UnicodeDecodeError):
            listener.break_off()
            message = f"the address cannot be forwarded: use the paths of {self._protocol.name}'s protocol"
            await self._protocol.error(400, "invalid_path", message)(scope, incoming.nothing, send)
            return
        try:
            outcome = await pass_on(
                self._upstream,
                request,
                incoming,
                send,
                listener,
                error=self._protocol.error,
                otherwise=otherwise,
                request_with=request_with,
            )
        except AnswerBrokeOffError as error:
            self._note("answer", AnswerOutcome.BROKEN_OFF)
            _log.warning("%s %s: %s", scope["method"], target[0], error)
            # A response that is left without its end is closed as a broken one.
            break_off_quietly()
            return
        except asyncio.CancelledError:
            self._note("answer", AnswerOutcome.HUNG_UP)
            raise
        self._note("answer", outcome)
        if outcome in _SILENT:
            # The host alone: a path or a query may hold a key.
            host = request.url.netloc.decode("ascii", "replace")
            _log.warning("the model server at %s cannot be reached or does not answer: is its address right?", host)


def _target(scope: Scope, mounted: str) -> tuple[str, bytes] | None:
    """Return what follows the proxy's own path, decoded and as it came; None for what must not be forwarded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    _, found, rest = raw.partition(mounted.encode())
    try:
        path = unquote(rest.decode("ascii"))
    except UnicodeDecodeError:
        return None
    # `..` would lead out of the base URL; behind a base without a path, `%2F@host` would name another server.
    if not found or not rest.startswith(b"/") or {".", ".."} & set(_SEPARATOR.split(path)):
        return None
    return path.rstrip("/"), rest


def _caller(scope: Scope) -> Caller:
    caller = scope.get("state", {}).get("caller")
    if not isinstance(caller, Caller):
        raise TypeError("the proxy needs a middleware that puts a Caller into request.state.caller")
    return caller
