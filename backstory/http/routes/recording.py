"""Route that records. It is the one that agents call most, so a plain request takes a shorter way to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from backstory.http.bodies import Delivery
from backstory.http.exchange import MOST_OF_KEY, WriteExchange, WritingOnceRequest
from backstory.http.openapi.schemas import returns
from backstory.http.routes.parameters import versioned
from backstory.results import RecordResult


class _ShortRoute(APIRoute):
    """Route that reads a plain request itself: FastAPI takes longer to read parameters than recording takes.

    Every other request goes FastAPI's way, which also says what is wrong with it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            plain = await _plain(request)
            return await usual(request) if plain is None else await record(*plain)

        return handle


router = versioned(route_class=_ShortRoute)


@router.post("/record", tags=["Record and learn"], responses=returns(RecordResult, 409, 412))
async def record(writing: WritingOnceRequest, delivery: Delivery) -> Response:
    """Record what is new of a conversation. It is durable when this answers, and is extracted after the debounce."""
    return await writing.change(
        lambda memory: memory.record(
            delivery.thread,
            delivery.plain(),
            mode=delivery.mode,
            immediate=delivery.immediate,
            tags=delivery.tags,
        )
    )


async def _plain(request: Request) -> tuple[WriteExchange, Delivery] | None:
    """Read a request that has no more than a user, an agent, a key and a valid body; None for any other."""
    key = _plain_key(request)
    stated = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    names = dict(stated)
    if key is None or len(names) < len(stated) or not names.keys() <= _NAMES or not all(names.values()):
        return None
    try:
        delivery = Delivery.model_validate_json(await request.body())
    except (ValidationError, ClientDisconnect):
        return None
    return WriteExchange(request, names.get("user"), names.get("agent"), None, key or None), delivery


_NAMES = frozenset({"user", "agent"})


def _plain_key(request: Request) -> str | None:
    """Return the key of a request, "" without one; None where its headers need a closer look."""
    key = None
    is_json = False
    for name, value in request.scope["headers"]:
        if name == b"idempotency-key":
            if key is not None or not 0 < len(value) <= MOST_OF_KEY:
                return None
            key = value.decode("latin-1")
        elif name == b"content-type":
            is_json = value == b"application/json"
        elif name == b"if-match":
            return None
    return (key or "") if is_json else None
