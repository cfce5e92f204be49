"""Routers for `/v1`, and the check of query parameters: one that a route does not have is refused.

A parameter that is misspelled would otherwise be ignored, and `?usr=ada` would read the memory that all users share.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from enum import Enum
from operator import attrgetter

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from backstory.ledger.core.errors import UsageError

__all__ = ["operation_id", "refuse_unknown", "versioned"]

_LIKENESS = 0.5
_MOST_SHOWN = 40


def versioned(*tags: str | Enum, route_class: type[APIRoute] = APIRoute) -> APIRouter:
    """Return a router for routes under `/v1`.

    Args:
        tags: The headings of its routes in the OpenAPI document.
        route_class: What its routes are.
    """
    return APIRouter(
        prefix="/v1",
        tags=list(tags),
        route_class=route_class,
        dependencies=[Depends(refuse_unknown)],
        generate_unique_id_function=operation_id,
    )


operation_id = attrgetter("name")
"""Returns what the OpenAPI document calls a route: the name of its function."""


async def refuse_unknown(request: Request) -> None:
    """Refuse a request with a query parameter that its route does not have; a dependency of routes.

    Raises:
        UsageError: It has one; the message names the nearest parameter, or all of them.
    """
    stated = request.query_params.keys()
    route = request.scope.get("route")
    if not stated or not isinstance(route, APIRoute):
        return
    known = sorted(set(_names(route.dependant)))
    for name in stated:
        if name in known:
            continue
        near = get_close_matches(name[:_MOST_SHOWN], known, 1, _LIKENESS)
        listed = f"it takes {', '.join(known)}" if known else "it takes none"
        meant = f"the nearest is {near[0]}" if near else listed
        raise UsageError(f"this request takes no parameter {name[:_MOST_SHOWN]!r}; {meant}")


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for dependency in dependant.dependencies:
        yield from _names(dependency)
