"""File of the index by words over a scope's turns: when it is believed, and when it is written.

`words.index` lies beside memory.json. It is written whole, under the lock of the derived files, and only if the ledger
states nothing that was not taken in: so no word gets into it that was erased. An erasure deletes it under the same
lock. What came later is taken in from the logs by the process that reads it. It is derived: one that is damaged, of
another version or of other logs is not believed, and written anew.
"""

from __future__ import annotations

import fcntl
import logging
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import Stemmer

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
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
from backstory.projections.search.cited_facts import CitedFacts, CitedState
from backstory.projections.search.corpus import Turns
from backstory.projections.search.lexical.column_file import ColumnFile, write_columns
from backstory.projections.search.lexical.index import LexicalIndex
from backstory.projections.search.lexical.places import StoredPlaces
from backstory.projections.search.on_disk.stored_turns import StoredTurns, TurnsHead, columns_of

_log = logging.getLogger(__name__)

_VERSION = 1
"""Raise it whenever what is kept changes, or how texts are cut into words."""

_PATIENCE_SECONDS = 0.05


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What a file is of. Another version of a library may cut texts into other words."""

    version: int
    scope: Scope
    libraries: tuple[str, str]
    turns: TurnsHead
    cited: CitedState


_LIBRARIES = (Stemmer.version(), unicodedata.unidata_version)


class Stored(NamedTuple):
    """What was read from the file."""

    turns: StoredTurns
    cited: CitedState
    words: LexicalIndex


class WordsFile:
    """The file of one scope, at a path; safe for processes."""

    def __init__(self, store: EventStore, scope: Scope, path: Path) -> None:
        self._store = store
        self._scope = scope
        self._ledger, self._transcript = scope.stream(LEDGER), scope.stream(TRANSCRIPT)
        self._path = path
        self._clock = SystemClock()

    def read(self) -> Stored | None:
        """Return what the file holds; None if there is none, or none to believe, which is deleted.

        Raises:
            StoreError: The logs cannot be read.
        """
        opened = self._opened()
        if opened is None:
            return None
        head, file = opened
        places = StoredPlaces(file)
        return Stored(StoredTurns(places, head.turns), head.cited, LexicalIndex(stored=places))

    def delete_stale(self) -> None:
        """Delete the file if it is not to be believed; it may hold what was erased by another machine.

        Raises:
            StoreError: The logs cannot be read.
        """
        self._opened()

    def _opened(self) -> tuple[_Head, ColumnFile] | None:
        try:
            file = ColumnFile(self._path)
            head = msgspec.msgpack.decode(file.packed("head"), type=_Head)
            made = (head.version, head.scope, head.libraries) == (_VERSION, self._scope, _LIBRARIES)
            if made and self._is_of_these_logs(head):
                return head, file
        except FileNotFoundError:
            return None
        except (DamagedError, UnusableError, msgspec.MsgspecError, KeyError) as error:
            _log.warning("%s is not used, and is written anew: %s", self._path, error)
        # Where it cannot be deleted it is passed over again.
        with suppress(StoreError, LockTimeoutError):
            delete_derived(self._path, _PATIENCE_SECONDS)
        return None

    def _is_of_these_logs(self, head: _Head) -> bool:
        store, origin, cited = self._store, head.turns.origin, head.cited
        return (
            # A ledger gets an edition with its first commit.
            (not cited.head.seq or store.edition(self._ledger) == cited.edition)
            and store.edition(self._transcript) == origin.edition
            and store.durable_head(self._ledger).seq >= cited.head.seq
            and store.durable_head(self._transcript).seq >= origin.said.head.seq
        )

    def write(self, turns: Turns, cited: CitedFacts, words: LexicalIndex) -> bool:
        """Write all that is known; return whether it was.

        Raises:
            StoreError: The logs cannot be read.
            DamagedError: What is stored by now is not what was written.
        """
        head = self._head(turns, cited.state())
        if head is None:
            return False
        columns, keys = words.columns()
        standing = turns.standing
        try:
            said, tagged = columns_of([standing[key] for key in keys])
            head = msgspec.structs.replace(head, turns=msgspec.structs.replace(head.turns, tagged=tagged))
            columns |= said
            columns["head"] = msgspec.msgpack.encode(head)
            with derived_lock(self._path.with_name(LOCK), fcntl.LOCK_EX, _PATIENCE_SECONDS, self._clock):
                if not self._is_settled(head):
                    return False
                with replacing(self._path) as fresh:
                    write_columns(fresh, columns)
        except (KeptError, UnusableError, OSError, ValueError) as error:
            _log.info("%s is not written, and stays in memory: %s", self._path, error)
            return False
        return True

    def _head(self, turns: Turns, cited: CitedState) -> _Head | None:
        origin = turns.origin()
        if origin is None or origin.learned.head != cited.head:
            return None
        return _Head(_VERSION, self._scope, _LIBRARIES, TurnsHead(origin, {}), cited)

    def _is_settled(self, head: _Head) -> bool:
        """Whether the ledger says no more than was taken in: what was not may be that a turn is erased."""
        return self._is_of_these_logs(head) and self._store.durable_head(self._ledger) == head.cited.head
