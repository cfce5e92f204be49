"""Answers of tools, resources and the prompt: open the memory, work in a thread, and stay within the budget.

Errors are for a model to read. An undo is confirmed by a code that holds for one memory, one change and one head, in
the process that gave it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent

from backstory.home import Backstory
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import BackstoryError, NotFoundError, UnavailableError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.mcp.budget import Budget, ToolReply, name_of
from backstory.memory import MemoryHandle
from backstory.operations.undoing import UndoResult

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext


_AGREED = ", and the person agreed"

Need: TypeAlias = Literal["read", "write"]
"""What a request does with the memory."""


class Opened(msgspec.Struct, frozen=True):
    """A memory, and the name of the token that a request came with, if it came with one."""

    memory: MemoryHandle
    token: str | None = None


Opens: TypeAlias = Callable[[object, Need], Opened]
"""Opens the memory of a request. It gets the transport's request, which is None over stdio, and may raise any error of
the tree."""

_answered: ContextVar[tuple[Answering, ServerRequestContext[Any, Any]]] = ContextVar("backstory_mcp_answering")
"""The request that is answered, and what answers it: the SDK gives it to tools but not to resources."""


def current() -> Answering:
    """Return what answers this request, for tools: they are made once a process, and serve all homes."""
    return _answered.get()[0]


def can_ask() -> bool:
    """Whether the client of the request can show a question to the person."""
    session = _answered.get()[1].session
    elicitation = session.client_capabilities.elicitation if session.client_capabilities else None
    # Clients from before there were several modes declare an empty capability and mean forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


_DIGITS = 24


class Confirmation:
    """Makes the codes of one server.

    Args:
        secret: The key of the codes; a new one unless given.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def code(self, scope: Scope, seq: int, head: Head, preview: UndoResult) -> str:
        """Return the code of an undo.

        Args:
            scope: Whose memory it is.
            seq: The change to undo.
            head: The head of the memory.
            preview: What would change.
        """
        named = msgspec.json.encode((scope, seq, head, preview))
        return hmac.new(self._secret, named, hashlib.sha256).hexdigest()[:_DIGITS]

    def holds(self, code: str, given: str) -> bool:
        """Whether a code that a client gave is the right one."""
        return hmac.compare_digest(code.encode(), given.strip().encode())


_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_UNEXPECTED = "memory failed unexpectedly: go on without it, and do not promise that anything was remembered"


class ToolFailure(Exception):  # noqa: N818 it is what a client gets, whatever went wrong
    """What a client gets of an error, and whether the client has caused it."""

    def __init__(self, message: str, *, by_client: bool) -> None:
        super().__init__(message)
        self.by_client = by_client


class Answering:
    """Opens the memory of the request that is answered, and works on it.

    Attributes:
        budget: How long its answers may be.
        codes: Makes the codes that confirm an undo.

    Args:
        home: The home, which counts tokens and faults.
        opens: Opens the memory of a request.
    """

    def __init__(self, home: Backstory, opens: Opens) -> None:
        self._home = home
        self._opens = opens
        self.budget = Budget(home.count_tokens, home.config.settings.max_injection_tokens)
        self.codes = Confirmation()

    async def during(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a request; what it calls finds this with `current`. A middleware of the SDK."""
        token = _answered.set((self, ctx))
        try:
            return await call_next(ctx)
        finally:
            _answered.reset(token)

    async def tool(
        self, need: Need, work: Callable[[MemoryHandle], ToolReply], *, agreed: bool = False
    ) -> CallToolResult:
        """Return the result of a tool; an error is a result, too.

        Args:
            need: What the tool does with the memory.
            work: Does it.
            agreed: Whether the person agreed to the change.
        """
        try:
            return result_of(await self.work(need, work, agreed=agreed))
        except ToolFailure as failure:
            return self.failed(str(failure))

    def failed(self, message: str) -> CallToolResult:
        """Return an error as the result of a tool, so that the model reads it."""
        # A message repeats what the client has sent, which may be long.
        text = TextContent(type="text", text=self.budget.text(message))
        return CallToolResult(content=[text], is_error=True)

    async def read(self, work: Callable[[MemoryHandle], _T]) -> _T:
        """Return what a resource or a prompt shows.

        Raises:
            MCPError: It cannot be shown.
        """
        try:
            return await self.work("read", work)
        except ToolFailure as failure:
            code = INVALID_PARAMS if failure.by_client else INTERNAL_ERROR
            raise MCPError(code=code, message=self.budget.text(str(failure))) from failure

    async def work(self, need: Need, work: Callable[[MemoryHandle], _T], *, agreed: bool = False) -> _T:
        """Return the result of work on the memory, in a thread.

        Raises:
            Failure: It failed.
        """
        return await run_in_thread(self._work, need, work, agreed)

    def _work(self, need: Need, work: Callable[[MemoryHandle], _T], agreed: bool) -> _T:
        memory: MemoryHandle | None = None
        try:
            memory = self._memory(need, agreed=agreed)
            result = work(memory)
        except BackstoryError as error:
            if memory is not None and isinstance(error, UnavailableError):
                self._home.faults.note(memory.scope, "tool", error)
            raise ToolFailure(str(error), by_client=isinstance(error, UsageError | NotFoundError)) from error
        except Exception as error:  # noqa: BLE001 whatever it is, the client waits for an answer
            # Its message may hold content: the client gets none of it, and the log its class and its place.
            if memory is not None:
                self._home.faults.count(memory.scope, "tool", type(error).__name__, log=False)
            _log.error("a request over MCP failed unexpectedly (%s at %s)", type(error).__name__, _place(error))
            raise ToolFailure(_UNEXPECTED, by_client=False) from None
        self._home.faults.recovered(memory.scope, "tool")
        return result

    def _memory(self, need: Need, *, agreed: bool) -> MemoryHandle:
        """Open the memory of the request, in the name of the client and its token, such as `mcp:cursor`.

        Its changes are a model's, unless the person agreed, which is recorded.
        """
        ctx = _answered.get()[1]
        opened = self._opens(ctx.request, need)
        params = ctx.session.client_params
        client = name_of(params.client_info.name) if params else ""
        token = f" with token {opened.token}" if opened.token else ""
        actor = f"mcp:{client or 'unnamed client'}{token}{_AGREED if agreed else ''}"
        return opened.memory.by(actor, by_model=not agreed)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "an unknown place" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


def result_of(reply: ToolReply) -> CallToolResult:
    """Return a reply as the protocol has it."""
    return CallToolResult(content=[TextContent(type="text", text=reply.text)], structured_content=reply.plain)
