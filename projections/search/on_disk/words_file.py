"""File of an index by words over a scope's facts or turns: when it is believed, and when it is written.

It lies beside memory.json. It is written whole, under the lock of the derived files, and only if the ledger states
nothing that was not taken in: so no word gets into it that was erased. An erasure deletes it under the same lock. What
came later is taken in from the logs by the process that reads it. It is derived: one that is damaged, of another
version or of other logs is not believed, and written anew.
"""

from __future__ import annotations

import fcntl
import logging
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import Stemmer

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.projections.derived_files import (
    LOCK,
    DamagedError,
    KeptError,
    UnusableError,
    delete_derived,
    derived_lock,
    replacing,
)
from backstory.projections.search.lexical.column_file import ColumnFile, Columns, write_columns

_log = logging.getLogger(__name__)

_VERSION = 3
"""Raise it whenever what is kept changes, or how texts are cut into words."""

_PATIENCE_SECONDS = 0.05
_TO_WRITE_SECONDS = 1.0
"""How long a search that makes an index waits for the lock; the index of the logs is often built at the same time."""


class Stand(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream was taken in: its edition, and its head."""

    edition: str
    head: Head


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What a file is of. Another version of a library may cut texts into other words."""

    version: int
    name: str
    scope: Scope
    libraries: tuple[str, str]
    stands: Mapping[str, Stand]


_LIBRARIES = (Stemmer.version(), unicodedata.unidata_version)


class WordsFile:
    """A file of one scope, at a path; safe for processes."""

    def __init__(self, store: EventStore, scope: Scope, path: Path) -> None:
        self._store = store
        self._scope = scope
        self._path = path
        self._clock = SystemClock()

    def read(self) -> ColumnFile | None:
        """Open the file; None if there is none, or none to believe, which is deleted.

        Raises:
            StoreError: The logs cannot be read.
        """
        try:
            file = ColumnFile(self._path)
            head = msgspec.msgpack.decode(file.packed("head"), type=_Head)
            if head == self._head(head.stands) and self._is_of_these_logs(head.stands):
                return file
        except FileNotFoundError:
            return None
        except (DamagedError, UnusableError, msgspec.MsgspecError, KeyError) as error:
            _log.warning("%s is not used, and is written anew: %s", self._path, error)
        # Where it cannot be deleted it is passed over again.
        with suppress(StoreError, LockTimeoutError):
            delete_derived(self._path, _PATIENCE_SECONDS)
        return None

    def _head(self, stands: Mapping[str, Stand]) -> _Head:
        return _Head(_VERSION, self._path.name, self._scope, _LIBRARIES, stands)

    def _is_of_these_logs(self, stands: Mapping[str, Stand]) -> bool:
        store, scope = self._store, self._scope
        return all(
            # A log gets an edition with its first commit.
            not stand.head.seq
            or (
                store.state(scope.stream(kind)).edition == stand.edition
                and store.durable_head(scope.stream(kind)).seq >= stand.head.seq
            )
            for kind, stand in stands.items()
        )

    def write(self, stands: Mapping[str, Stand], columns: Callable[[], Columns]) -> bool:
        """Write what is known where the streams stand, the ledger among them; return whether it was.

        Raises:
            StoreError: The logs cannot be read.
            DamagedError: What is stored by now is not what was written.
        """
        try:
            made = columns() | {"head": msgspec.msgpack.encode(self._head(stands))}
            with derived_lock(self._path.with_name(LOCK), fcntl.LOCK_EX, _TO_WRITE_SECONDS, self._clock):
                if not self._is_settled(stands):
                    return False
                with replacing(self._path) as fresh:
                    write_columns(fresh, made)
        except (KeptError, UnusableError, OSError, ValueError) as error:
            _log.info("%s is not written, and stays in memory: %s", self._path, error)
            return False
        return True

    def _is_settled(self, stands: Mapping[str, Stand]) -> bool:
        """Whether the ledger says no more than was taken in: what was not may be that content is erased."""
        ledger = self._store.durable_head(self._scope.stream(LEDGER))
        return self._is_of_these_logs(stands) and ledger == stands[LEDGER].head
