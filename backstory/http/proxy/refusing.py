"""Refusals of a system message: another request is sent then, and the model is remembered.

Some models know no system messages, or their templates refuse one. A client that sends none must not get an error for
the one that holds its memory.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec

_STATUSES = frozenset({400, 422, 500})
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


class Again:
    """Another request in the place of a refused one.

    Args:
        otherwise: The other body.
        request: Returns the request with a body.
    """

    def __init__(self, otherwise: Otherwise, request: Callable[[bytes], httpx.Request]) -> None:
        self._otherwise = otherwise
        self._request = request

    def may_be(self, status: int) -> bool:
        """Whether a response of this status may be a refusal."""
        return status in _STATUSES

    async def instead(self, body: AsyncIterator[bytes]) -> tuple[bytes, httpx.Request | None]:
        """Read the beginning of a response, and return it, with the request to send instead, if there is one.

        Raises:
            httpx.HTTPError: The upstream broke off.
        """
        read = b""
        async for chunk in body:
            read += chunk
            if len(read) > _MOST_BYTES:
                return read, None
        other = self._otherwise.body(read)
        return read, None if other is None else self._request(other)

    def was_answered(self, status: int) -> None:
        """Note how the other request was answered."""
        if status not in _STATUSES:
            self._otherwise.worked()
