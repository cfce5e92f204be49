"""Memory storage for DeerFlow: its own updater loads, changes and saves documents, and the ledger keeps the history.

DeerFlow decides what to remember. So the policy of these memories has no threshold and practically no cap, and only
facts with exactly the same text are duplicates.

It serves the versions of DeerFlow that have a storage and no managers, such as `deerflow-harness` 0.1.0, of which no
requirement keeps this package out.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backstory.deerflow.config import HOME
from backstory.deerflow.home_import import HomeImport, agents_in
from backstory.deerflow.tracked_document import TrackedDocument, is_original, said_in, track, tracked
from backstory.home import Backstory
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import BackstoryError, ScopeError
from backstory.ledger.core.events import Candidate
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope, name_text
from backstory.ledger.importing import changes_since
from backstory.operations.document_access import DocumentAccess
from backstory.projections.document.document import Document


class MemoryPaths(msgspec.Struct, frozen=True):
    """Paths of the home and of DeerFlow's files.

    Attributes:
        home: The home folder; None for the configured one.
        base: The folder of DeerFlow's files, if there is one.
        file: The single memory file that DeerFlow's configuration names.
        shared: Whether `file` is the memory of all users without an agent.
    """

    home: Path | None = None
    base: Path | None = None
    file: Path | None = None
    shared: bool = False

    def scope(self, scope: Scope) -> Scope:
        """Return the scope to use; users share the global one if DeerFlow is configured so."""
        return Scope() if self.shared and scope.agent is None else scope

    def source(self, scope: Scope) -> Path | None:
        """Return the folder or file of DeerFlow's memory of a scope; None if it has none."""
        return self.file if scope == Scope() and self.file is not None else self.base


def find_paths(config: object) -> MemoryPaths:
    """Return the paths for a storage.

    The home is the folder `backstory` in the folder of an absolute `storage_path`, else in DeerFlow's base folder.

    Args:
        config: The configuration of the storage, which newer versions of DeerFlow pass.
    """
    stated = getattr(config, "storage_path", None)
    if isinstance(stated, str):
        root = Path(stated or os.environ.get("DEERMEM_DATA_DIR") or "~/.deermem").expanduser().absolute()
        return MemoryPaths(root / HOME, root)
    try:
        base = Path(import_module("deerflow.config.paths").get_paths().base_dir)
        stated = import_module("deerflow.config.memory_config").get_memory_config().storage_path
    except ModuleNotFoundError:
        return MemoryPaths()
    if not stated:
        return MemoryPaths(base / HOME, base)
    path = Path(stated)
    if not path.is_absolute():
        return MemoryPaths(base / HOME, base, base / path)
    folder = path if path.is_dir() else path.parent
    return MemoryPaths(folder / HOME, base, path, shared=True)


_log = logging.getLogger(__name__)

_CONTRACTS = (
    "deerflow.agents.memory.storage",
    "deerflow.agents.memory.backends.deermem.deermem.core.storage",
)
"""Modules of the base class of a storage, in different versions of DeerFlow."""

_MOST_LOADED = 256
"""Number of loaded documents that are recognised when they come back without a mark."""
_MOST_FACTS = 1_000_000
"""The largest cap of a ledger."""

if TYPE_CHECKING:

    class MemoryStorage(ABC):
        """The part of DeerFlow's base class that all versions have."""

        @abstractmethod
        def load(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
            """Return a memory's document."""

        @abstractmethod
        def reload(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
            """Return a memory's document, read again."""

        @abstractmethod
        def save(
            self, memory_data: dict[str, object], agent_name: str | None = None, *, user_id: str | None = None
        ) -> bool:
            """Save a document."""

else:

    def _contract() -> type:
        for name in _CONTRACTS:
            try:
                return import_module(name).MemoryStorage
            except ModuleNotFoundError as error:
                # A missing dependency of DeerFlow itself is an error.
                if error.name is None or not name.startswith(error.name):
                    raise
        raise ImportError(
            f"LedgerMemoryStorage needs DeerFlow, and none of {', '.join(_CONTRACTS)} is installed: "
            "for versions with neither use backstory.deerflow:BackstoryMemoryManager"
        )

    MemoryStorage = _contract()


class _Opened(NamedTuple):
    """An open home, DeerFlow's files beside it, and their import."""

    home: Backstory
    paths: MemoryPaths
    imports: HomeImport

    def own(self, scope: Scope) -> DocumentAccess:
        """Return the document access of a memory, after the import of DeerFlow's own files."""
        source = self.paths.source(scope)
        if source is not None:
            self.imports.if_due(source, scope)
        return self.home.memory_of(scope).own


class LedgerMemoryStorage(MemoryStorage):
    """DeerFlow's memory storage, kept as a ledger in the folder `backstory` beside DeerFlow's own files.

    A save writes the difference between the loaded and the saved document. Changes that others made meanwhile stay; if
    both changed one fact, the later save wins. A document that was not loaded here, such as a cleared or an imported
    one, replaces memory, except for facts that were added after its `lastUpdated`. Facts keep DeerFlow's ids. Unknown
    categories become `context`, and unknown fields are dropped.

    For newer versions of DeerFlow it also has `clear_all` and `close`. It does not keep what those versions store
    beside the document: the use of facts, evidence of evictions, change sets (`apply_changes`), and a user's summaries
    that agents share.
    """

    def __init__(self, config: object = None) -> None:
        # An error here would make DeerFlow use its own files, with no more than a log line.
        self._config = config
        self._lock = ForkLock()
        self._opened: _Opened | None = None
        self._loaded: Recent[tuple[Scope, str], Document] = Recent(_MOST_LOADED)
        self._saves: dict[Scope, int] = {}
        """The number of saves of each memory in this process."""
        _storages.add(self)

    def load(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
        """Return a copy of a memory's document.

        Raises:
            ValueError: A name is invalid.
            BackstoryError, OSError: The memory exists and cannot be read.
        """
        opened = self._open()
        scope = _scope(opened.paths, agent_name, user_id)
        # Read the count before the memory: a save in between may or may not be in the document.
        saves = self._saved(scope)
        try:
            document = _dated(opened.own(scope).document())
        except (BackstoryError, OSError) as error:
            opened.home.faults.note(scope, "load", error)
            raise
        self._loaded.put((scope, document.last_updated), document)
        return track(scope, document, saves)

    def reload(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
        """Return the document as `load`, which has no cache."""
        return self.load(agent_name, user_id=user_id)

    def save(
        self,
        memory_data: dict[str, object],
        agent_name: str | None = None,
        *,
        user_id: str | None = None,
        expected_revision: int | None = None,
    ) -> bool:
        """Save the changes of a document in one commit.

        Args:
            memory_data: The document.
            agent_name: The agent.
            user_id: The user.
            expected_revision: Ignored; a save never undoes changes that it does not contain.

        Returns:
            Whether it was saved. The reason of a failure is in the log.

        Raises:
            ValueError: A name is invalid.
        """
        del expected_revision
        try:
            opened = self._open()
        except (BackstoryError, OSError):
            _log.exception("memory cannot be opened, so nothing was saved")
            return False
        scope = _scope(opened.paths, agent_name, user_id)
        try:
            own = opened.own(scope)
            base = tracked(memory_data, scope)
            changes = self._changes(own, scope, memory_data, base)
            own.save(changes)
            saves = self._saved(scope, 1 if changes else 0)
            if base is not None:
                base.saved(memory_data, saves)
        except (BackstoryError, OSError) as error:
            _log.error("the memory of %s was not saved: %s", scope, error)
            opened.home.faults.note(scope, "save", error)
            return False
        return True

    def clear_all(self, *, user_id: str | None = None) -> dict[str, object]:
        """Clear the memories of a user and of all the user's agents, and return the user's document."""
        opened = self._open()
        scope = _scope(opened.paths, None, user_id)
        # Import DeerFlow's own files first; otherwise the next use would import them after the clear.
        agents = () if opened.paths.base is None else agents_in(opened.paths.base, scope.user)
        for owner in (scope, *(Scope(scope.user, agent) for agent in agents)):
            opened.own(owner)
        opened.home.memory_of(Scope(scope.user)).clear(all_agents=True)
        for owner in {scope, *(one for one in tuple(self._saves) if one.user == scope.user)}:
            self._saved(owner, 1)
        return self.load(user_id=user_id)

    def close(self) -> None:
        """Close the home; the next load opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.home.close()

    def _open(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                paths = find_paths(self._config)
                bs = Backstory.open(
                    paths.home,
                    background=False,
                    actor="DeerFlow",
                    max_facts=_MOST_FACTS,
                    max_facts_limit=_MOST_FACTS,
                    fact_confidence_threshold=0.0,
                    dedup_key="exact",
                )
                self._opened = _Opened(bs, paths, HomeImport(bs))
            return self._opened

    def _saved(self, scope: Scope, more: int = 0) -> int:
        """Add to the number of saves of a memory, and return it."""
        with self._lock:
            self._saves[scope] = saves = self._saves.get(scope, 0) + more
            return saves

    def _changes(
        self, own: DocumentAccess, scope: Scope, document: object, base: TrackedDocument | None
    ) -> Sequence[Candidate]:
        if base is not None:
            changes = changes_since(base.said, document)
            # DeerFlow changes copies. If it saves the loaded object itself, unchanged, after another save, it restores
            # a backup.
            if changes or not is_original(document) or base.saves == self._saved(scope):
                return changes
            return changes_since(said_in(own.document()), document)
        now = said_in(own.document())
        stated = document.get("lastUpdated") if isinstance(document, Mapping) else None
        then = self._loaded.get((scope, stated)) if isinstance(stated, str) else None
        # An unchanged copy of a loaded document is a restored backup, not a change of an old state.
        if then is None or not changes_since(said_in(then), document):
            return changes_since(now, document)
        known = {fact.id for fact in then.facts}
        return changes_since(now, document, removable=known)


_storages: weakref.WeakSet[LedgerMemoryStorage] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for storage in list(_storages):
        storage.close()


def _dated(document: Document) -> Document:
    """Set the time of a document that was never written, as DeerFlow does, so that it can be recognised."""
    if document.last_updated:
        return document
    return msgspec.structs.replace(document, last_updated=spell_moment(SystemClock().now()))


def _scope(paths: MemoryPaths, agent_name: str | None, user_id: str | None) -> Scope:
    """Return the scope of DeerFlow's names: agents in lower case; `__default__` is no agent."""
    try:
        agent = name_text("agent name", agent_name)
        agent = None if agent in (None, "__default__") else agent.lower()
        return paths.scope(Scope.of(user_id, agent))
    except ScopeError as error:
        raise ValueError(str(error)) from error
