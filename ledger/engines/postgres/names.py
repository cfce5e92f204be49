"""Numbers of advisory locks: 64 bits of a digest, so that two names hardly ever share one."""

from __future__ import annotations

import hashlib

__all__ = ["lease_of", "lock_of"]


def lock_of(stream: str) -> int:
    """Return the number of a stream's lock."""
    return _number("lock", stream)


def lease_of(stream: str, name: str) -> int:
    """Return the number of a lease beside a stream."""
    return _number("lease", stream, name)


def _number(*parts: str) -> int:
    spelled = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(spelled).digest()[:8], signed=True)
