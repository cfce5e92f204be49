"""Check of erasures: what replaces a line is the same commit with less in it."""

from __future__ import annotations

from backstory.ledger.core.commit import inspect
from backstory.ledger.core.errors import StoreError


def must_be_erasure(stream: str, seq: int, before: bytes, after: bytes) -> None:
    """Hold a stub's line to the one it replaces.

    Raises:
        StoreError: It is another commit, its hash does not hold, or nothing is erased in it.
    """
    old, new = inspect(before), inspect(after)
    same = (old.seq, old.at, old.prev, old.hash) == (new.seq, new.at, new.prev, new.hash)
    if not (same and new.intact and set(new.erased) > set(old.erased)):
        raise StoreError(f"{stream}: what should replace commit {seq} is no erasure of it; nothing was changed")
