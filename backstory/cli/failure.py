"""Error as a JSON value: what --json prints when a verb fails."""

from __future__ import annotations

import msgspec

__all__ = ["ErrorBody", "Failure"]


class ErrorBody(msgspec.Struct, frozen=True):
    """Kind and message of an error, and the exit code."""

    kind: str
    message: str
    exit: int


class Failure(msgspec.Struct, frozen=True):
    """The JSON value that --json prints in place of a result."""

    error: ErrorBody
