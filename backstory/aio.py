"""Async twins: coroutine methods that run a method of the same name in a thread, so that an event loop never waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

_Self = TypeVar("_Self")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_thread(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Return the async twin of a method, with the same parameters and result.

    It runs what the object has under the method's name, so a subclass that overrides the method changes its twin too.
    """
    name = method.__name__

    @wraps(method)
    async def twin(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        # Here, since a program without an event loop should not pay for the import.
        import asyncio

        bound: Callable[_P, _T] = getattr(self, name)
        return await asyncio.to_thread(bound, *args, **kwargs)

    twin.__name__ = twin.__qualname__ = f"a{name}"
    twin.__doc__ = f"See `{name}`, which this runs in a thread."
    return twin
