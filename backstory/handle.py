"""One scope's memory, as a host uses it. Thin: what is allowed is decided in the ledger, what is read is projected."""

from __future__ import annotations

from backstory.asynchronous import AsyncTwins

__all__ = ["MemoryHandle"]


class MemoryHandle(AsyncTwins):
    """The memory of one user and agent; get it from `Backstory.memory`.

    Everything reads the newest state, other processes' commits included, and raises StoreError, LockTimeoutError or
    CorruptLogError where the store cannot. Every method that does I/O has an async twin with an `a` before its name.
    """
