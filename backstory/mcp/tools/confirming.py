"""Codes that confirm an undo: each holds for one memory, one change and one head, in the process that gave it."""

from __future__ import annotations

import hashlib
import hmac
import secrets

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.scope import Scope
from backstory.operations.undoing import UndoResult

_DIGITS = 24


class Confirmation:
    """Makes the codes of one server.

    Args:
        secret: The key of the codes; a new one unless given.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def code(self, scope: Scope, seq: int, head: Head, preview: UndoResult) -> str:
        """Return the code of an undo.

        Args:
            scope: Whose memory it is.
            seq: The change to undo.
            head: The head of the memory.
            preview: What would change.
        """
        named = msgspec.json.encode((scope, seq, head, preview))
        return hmac.new(self._secret, named, hashlib.sha256).hexdigest()[:_DIGITS]

    def holds(self, code: str, given: str) -> bool:
        """Whether a code that a client gave is the right one."""
        return hmac.compare_digest(code.encode(), given.strip().encode())
