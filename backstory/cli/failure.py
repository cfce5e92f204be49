"""What --json gives where there is no answer; it stands on nothing that could fail itself."""

from __future__ import annotations

import msgspec

__all__ = ["Failure"]


class Told(msgspec.Struct, frozen=True):
    """An error in words, its kind, and the exit code."""

    kind: str
    message: str
    exit: int


class Failure(msgspec.Struct, frozen=True):
    """What --json puts on standard output where there is no answer."""

    error: Told

    @classmethod
    def of(cls, kind: str, message: str, code: int) -> Failure:
        """Put one together."""
        return cls(Told(kind, message, code))
