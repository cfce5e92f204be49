"""Memories that the processes of several machines share outside of the engine: may import the log and no other reader.

`SharedMemories` decides what may be used, `RedisCache` moves bytes.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["SharedCache"]


class SharedCache(Protocol):
    """A place for bytes that may lose, delay or change them. No method raises or waits for long."""

    def get(self, key: str) -> bytes | None:
        """Return a value; None where there is none, or none can be had now."""

    def put(self, key: str, value: bytes, seconds: int) -> bool:
        """Set a value for some seconds; return whether that was done."""

    def delete(self, key: str) -> bool:
        """Delete a value; return whether it is certainly gone."""

    def close(self) -> None:
        """Close the connections."""
