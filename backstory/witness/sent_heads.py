"""Sent heads: which heads of a scope the witness has, kept in `witness.json` beside memory.json.

With it the next process sends what a killed one did not, and avoids duplicates. The file is not synced: losing it only
sends one head again. It holds hashes and no content, so an erasure keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.store.files import put_in_place

_log = logging.getLogger(__name__)


class Sent(msgspec.Struct, frozen=True):
    """The last sent heads; `to` is the name of the destination."""

    version: int
    to: str
    ledger: Head
    transcript: Head


class SentHeads:
    """The witness.json of each scope; `document` returns the path of a scope's memory.json."""

    def __init__(self, document: Callable[[Scope], Path], to: str) -> None:
        self._document = document
        self._to = to

    def of(self, scope: Scope) -> Sent | None:
        """Return the last heads sent to this destination; None if there are none or the file cannot be read."""
        path = self._path(scope)
        try:
            sent = msgspec.json.decode(path.read_bytes(), type=Sent)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            _log.debug("%s cannot be read, so heads may be sent once more: %s", path, error)
            return None
        return sent if sent.to == self._to else None

    def put(self, scope: Scope, ledger: Head, transcript: Head) -> None:
        """Remember sent heads."""
        path = self._path(scope)
        try:
            put_in_place(path, msgspec.json.encode(Sent(1, self._to, ledger, transcript)))
        except OSError as error:
            _log.debug("%s cannot be written, so heads may be sent once more: %s", path, error)

    def _path(self, scope: Scope) -> Path:
        return self._document(scope).with_name("witness.json")
