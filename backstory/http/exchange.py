"""Exchange of one request about a memory: finds the memory, checks what the client has seen, and answers.

Routes depend on `ReadingRequest`, `WritingRequest`, `WritingOnceRequest` or `ErasingRequest`, which need the right of
that name. What they call runs in a thread. A read that depends on the log alone has an ETag, made from the head: it
changes with every commit. A write with `If-Match` is carried out on that head or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from backstory.home import Backstory
from backstory.http.access.callers import Caller, Right
from backstory.http.kept_answers import Answers, KeptAnswer, key_of, matches
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import UsageError, WrongExpectedVersionError
from backstory.memory import MemoryHandle
from backstory.projections.history.times import depends_on_clock
from backstory.services.services import HeadsSeen

__all__ = [
    "MOST_OF_KEY",
    "EraseExchange",
    "ErasingRequest",
    "JsonResponse",
    "ReadExchange",
    "ReadingRequest",
    "WriteExchange",
    "WritingOnceRequest",
    "WritingRequest",
    "caller_of",
    "etag_of",
    "home_of",
]

User = Annotated[
    str | None,
    Query(
        description="Whose memory. Default: the single user of the token, else the memory without a user.",
        examples=["ada"],
    ),
]
Agent = Annotated[str | None, Query(description="The agent whose memory it is.", examples=["research"])]


class JsonResponse(Response):
    """A response with a value as JSON, spelled as the command line does."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the value."""
        return msgspec.json.encode(content)


def home_of(request: Request) -> Backstory:
    """Return the home that the server has opened."""
    home: Backstory = request.app.state.home
    return home


def caller_of(request: Request) -> Caller:
    """Return who sent a request; the gate has found that out."""
    caller: Caller = request.state.caller
    return caller


def etag_of(memory: MemoryHandle, *, turns: bool = False) -> str:
    """Return the ETag of what is read from a memory now: the hashes of the heads that it depends on.

    Args:
        memory: The memory.
        turns: Whether it depends on the turns, too.
    """
    return _tag(memory.heads_seen(turns=turns))


def _tag(seen: HeadsSeen) -> str:
    # Facts that are hidden once their time is over change no head.
    hidden = [f"-{seen.hidden}"] if seen.hidden else []
    return f'"{".".join([*(head.hash for head in seen.heads), *hidden])}"'


class _Exchange:
    """A request about one memory."""

    right: ClassVar[Right]

    def __init__(self, request: Request, user: str | None, agent: str | None, seen: str | None = None) -> None:
        for name in ("user", "agent"):
            if len(request.query_params.getlist(name)) > 1:
                raise UsageError(f"the parameter {name} is sent more than once: send it once")
        self.home = home_of(request)
        self.caller = caller_of(request)
        self.request = request
        self._user = user
        self._agent = agent
        self._seen = seen

    def memory(self) -> MemoryHandle:
        """Return the memory; call it in a thread.

        Raises:
            ScopeError, NotFoundError, ForbiddenError: See `Caller.memory`.
        """
        return self.caller.memory(self.home, self._user, self._agent, self.right)


class ReadExchange(_Exchange):
    """A request that reads a memory."""

    right = Right.READ

    async def answer(
        self, read: Callable[[MemoryHandle], object], *, tagged: bool = True, turns: bool = False, long: bool = False
    ) -> Response:
        """Read in a thread, and answer with the result.

        Args:
            read: Reads the memory.
            tagged: Whether the answer depends on the log alone, so that it has an ETag.
            turns: Whether it depends on the turns, too.
            long: Whether it may take long, so that it must not keep a thread from other requests.
        """
        kept: KeptAnswer | None = None
        stated = self.request.query_params
        tagged = tagged and not any(depends_on_clock(stated[name]) for name in _TIMES if name in stated)

        def work() -> Response:
            nonlocal kept
            memory = self.memory()
            if not tagged:
                return JsonResponse(read(memory), headers=_UNTAGGED)
            # Before the read: a commit in between makes the tag outdated, never the answer.
            seen = memory.heads_seen(turns=turns)
            headers = {"ETag": _tag(seen), "Cache-Control": "private, no-cache"}
            unchanged, whole = Response(status_code=304, headers=headers), None
            if self._seen is None or not matches(self._seen, headers["ETag"]):
                whole = JsonResponse(read(memory), headers=headers)
            kept = KeptAnswer(seen, unchanged, whole, self.request.scope.get("route"))
            # `*` matches any answer, so there has to be one.
            return unchanged if whole is None or (self._seen or "").strip() == "*" else whole

        answer = await (asyncio.to_thread(work) if long else run_in_thread(work))
        if kept is not None:
            answers: Answers = self.request.app.state.answers
            answers.keep(key_of(self.request.scope), kept)
        return answer


class WriteExchange(_Exchange):
    """A request that changes a memory, on the head that the client has seen if it says so.

    With a key it is carried out once, however often it is sent.
    """

    right = Right.WRITE

    def __init__(
        self, request: Request, user: str | None, agent: str | None, seen: str | None = None, key: str | None = None
    ) -> None:
        super().__init__(request, user, agent, seen)
        self._key = key

    async def change(
        self, change: Callable[[MemoryHandle], object], *, status: int = 200, long: bool = False
    ) -> Response:
        """Change the memory in a thread, and answer with the result and, after a commit, the memory's ETag.

        Args:
            change: Changes the memory.
            status: The status of the answer.
            long: Whether it may take long, so that it must not keep a thread from other requests.

        Raises:
            WrongExpectedVersionError: The client has seen another memory.
        """

        def work() -> Response:
            memory = self.memory()
            result = change(self.guarded(memory))
            seen = memory.heads_seen()
            # Not of a later commit: the client has not seen what that one changed.
            tagged = getattr(result, "commit", None) == seen.heads[0].seq
            return JsonResponse(result, status, {**_UNTAGGED, **({"ETag": _tag(seen)} if tagged else {})})

        return await (asyncio.to_thread(work) if long else run_in_thread(work))

    async def preview(self, change: Callable[[MemoryHandle], object], *, turns: bool = False) -> Response:
        """Compute in a thread what a change would do; the answer has the ETag of the memory that it was computed on.

        With this tag as its `If-Match` the change does what was previewed, or nothing.

        Args:
            change: Returns what would change, and writes nothing.
            turns: Whether that depends on the turns, too.

        Raises:
            WrongExpectedVersionError: The client has seen another memory.
        """

        def work() -> Response:
            memory = self.memory()
            for _ in range(_MOST_PREVIEWS):
                before = _tag(memory.heads_seen(turns=turns))
                result = change(self.guarded(memory))
                if _tag(memory.heads_seen(turns=turns)) == before:
                    return JsonResponse(result, headers={**_UNTAGGED, "ETag": before})
            # There is always another commit: this one is outdated as well, but true of one of these moments.
            return JsonResponse(result, headers=_UNTAGGED)

        return await run_in_thread(work)

    def guarded(self, memory: MemoryHandle) -> MemoryHandle:
        """Return the memory for a change that is made on the head that the client has seen, and once under its key.

        Raises:
            WrongExpectedVersionError: The client has seen another memory.
        """
        if self._key is not None:
            memory = memory.once(self._key)
        if self._seen is None:
            return memory
        seen = self._seen.strip()
        if seen == "*":
            if memory.head().seq == 0:
                raise WrongExpectedVersionError(f"there is no memory of {memory.scope} yet: send no If-Match", actual=0)
            return memory
        tag = etag_of(memory)
        # The tag of an answer that shows turns, too, holds until there are others.
        if not matches(seen, tag) and not matches(seen, etag_of(memory, turns=True)):
            if self._key is not None:
                # A request that is repeated has changed the memory itself: whether it was carried out is looked up
                # before the head, which is none of these.
                return memory.expecting(seen)
            raise WrongExpectedVersionError(
                f"the memory of {memory.scope} has changed: its ETag is now {tag}, and not {seen[:200]}; read it "
                "again, then repeat the change if it still applies",
                actual=memory.head().seq,
            )
        return memory.expecting(_own_head(tag))


class EraseExchange(WriteExchange):
    """A request that erases content."""

    right = Right.ERASE


MOST_OF_KEY = 255
"""How many characters an Idempotency-Key has at most."""

_MOST_PREVIEWS = 5
"""How often a preview is computed again because of a commit meanwhile."""

_TIMES = ("at", "since", "until", "a", "b", "valid_at")
"""The parameters of queries that may be times."""
_UNTAGGED = {"Cache-Control": "no-store"}


def _own_head(tag: str) -> str:
    """Return the hash of the memory's own ledger, which a tag begins with."""
    return tag.removeprefix("W/").strip('"').partition(".")[0]


# As dependencies of routes. They are coroutine functions, since FastAPI would run others in a thread.

_IfNoneMatch = Annotated[
    str | None, Header(description="The ETag of an earlier answer: 304 if that is still the answer.")
]
_IfMatch = Annotated[
    str | None,
    Header(description="The ETag of the memory that was seen: 412, and no change, if it is another by now."),
]
_Key = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MOST_OF_KEY,
        description="Names this request, such as a UUID: sent again, it answers the same and changes nothing.",
    ),
]


async def _reading(
    request: Request, user: User = None, agent: Agent = None, if_none_match: _IfNoneMatch = None
) -> ReadExchange:
    return ReadExchange(request, user, agent, if_none_match)


async def _writing(
    request: Request, user: User = None, agent: Agent = None, if_match: _IfMatch = None
) -> WriteExchange:
    _takes_no_key(request)
    return WriteExchange(request, user, agent, if_match)


async def _writing_once(
    request: Request,
    user: User = None,
    agent: Agent = None,
    if_match: _IfMatch = None,
    idempotency_key: _Key = None,
) -> WriteExchange:
    return WriteExchange(request, user, agent, if_match, idempotency_key)


async def _erasing(
    request: Request, user: User = None, agent: Agent = None, if_match: _IfMatch = None
) -> EraseExchange:
    _takes_no_key(request)
    return EraseExchange(request, user, agent, if_match)


def _takes_no_key(request: Request) -> None:
    if "idempotency-key" in request.headers:
        raise UsageError(
            "this request takes no Idempotency-Key: leave it out; recording takes one, and adding, editing and "
            "removing a fact do"
        )


ReadingRequest = Annotated[ReadExchange, Depends(_reading)]
WritingRequest = Annotated[WriteExchange, Depends(_writing)]
WritingOnceRequest = Annotated[WriteExchange, Depends(_writing_once)]
ErasingRequest = Annotated[EraseExchange, Depends(_erasing)]
