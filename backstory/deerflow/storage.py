"""LedgerMemoryStorage: the ledger under DeerFlow's own updater, which loads, changes and saves whole documents.

DeerFlow decides what is remembered, the ledger keeps how it came about. So nothing is decided twice: the policy of
these memories has no threshold and no cap that matters, and only facts of exactly one text are the same.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from backstory.deerflow.home_import import agents_in, settle
from backstory.deerflow.paths import Places, places_of
from backstory.deerflow.tracked_document import TrackedDocument, is_very_one, lend, lent
from backstory.home import Backstory
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import BackstoryError, ScopeError
from backstory.ledger.core.events import Candidate
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing import changes_since, read_document
from backstory.ledger.log.clock import SystemClock
from backstory.operations.document_access import DocumentAccess
from backstory.projections.document.document import Document

__all__ = ["LedgerMemoryStorage"]

_log = logging.getLogger(__name__)

_CONTRACTS = (
    "deerflow.agents.memory.storage",
    "deerflow.agents.memory.backends.deermem.deermem.core.storage",
)
"""Where DeerFlow's versions keep the class that a storage has to be derived from; none has both."""

_LENT = 256
"""So many documents are known again when they come back without a mark."""
_MANY = 1_000_000
"""As many facts as a ledger takes."""

if TYPE_CHECKING:

    class MemoryStorage(ABC):
        """DeerFlow's contract, as far as all of its versions have it."""

        @abstractmethod
        def load(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
            """Return a memory's document."""

        @abstractmethod
        def reload(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
            """Return it afresh."""

        @abstractmethod
        def save(
            self, memory_data: dict[str, object], agent_name: str | None = None, *, user_id: str | None = None
        ) -> bool:
            """Keep a document."""

else:

    def _contract() -> type:
        for name in _CONTRACTS:
            try:
                return import_module(name).MemoryStorage
            except ModuleNotFoundError as error:
                # One that is missing inside of DeerFlow's own is not ours to pass over.
                if error.name is None or not name.startswith(error.name):
                    raise
        raise ImportError(
            f"LedgerMemoryStorage needs DeerFlow, and none of {', '.join(_CONTRACTS)} is installed: "
            "versions that have neither take backstory.deerflow:BackstoryMemoryManager"
        )

    MemoryStorage = _contract()


class LedgerMemoryStorage(MemoryStorage):
    """DeerFlow's memory storage, kept as a ledger in the folder `backstory` beside DeerFlow's own files.

    A saved document becomes the events that lead to it from the one that was loaded: what others did meanwhile stays,
    and where both changed one fact, what is saved later holds. A document that was not loaded here, as a cleared or an
    imported one, is the memory from then on, but for what was added after the `lastUpdated` that it states. Facts keep
    the ids that DeerFlow gives them. Categories other than ours are kept as `context`, and fields that we do not know
    are not kept.

    For newer versions it has `clear_all` and `close` as well. What they keep beside the document is not kept here: what
    facts were used, evidence of evictions, sets of changes (`apply_changes`), and a user's summaries shared by agents.
    """

    def __init__(self, config: object = None) -> None:
        # Nothing may fail here: DeerFlow would take its files instead, and say so in its log alone.
        self._config = config
        self._lock = ForkLock()
        self._opened: tuple[Backstory, Places] | None = None
        self._lent: Recent[tuple[Scope, str], Document] = Recent(_LENT)
        self._saves: dict[Scope, int] = {}
        """How often each memory was saved here."""
        _storages.add(self)

    def load(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
        """Return a memory's document, as a copy of the caller's own.

        Raises:
            ValueError: a name that DeerFlow would not take either.
            BackstoryError, OSError: the memory is there and cannot be read. It is not empty, so nothing is returned.
        """
        bs, places = self._open()
        scope = _scope(places, agent_name, user_id)
        # Counted before the memory is read: what is saved meanwhile may be in it already, and is put back as it is.
        saves = self._saved(scope)
        try:
            document = _dated(self._own(bs, places, scope).document())
        except (BackstoryError, OSError) as error:
            bs.faults.note(scope, "load", error)
            raise
        self._lent.put((scope, document.last_updated), document)
        return lend(scope, document, saves)

    def reload(self, agent_name: str | None = None, *, user_id: str | None = None) -> dict[str, object]:
        """Return the same as `load`, which keeps nothing that could be out of date."""
        return self.load(agent_name, user_id=user_id)

    def save(
        self,
        memory_data: dict[str, object],
        agent_name: str | None = None,
        *,
        user_id: str | None = None,
        expected_revision: int | None = None,
    ) -> bool:
        """Keep a document, in one commit of what was changed in it; False, and why in the log, where that cannot be.

        `expected_revision` is not looked at: a save never undoes what it does not speak of.

        Raises:
            ValueError: a name that DeerFlow would not take either.
        """
        del expected_revision
        try:
            bs, places = self._open()
        except (BackstoryError, OSError):
            _log.exception("memory cannot be opened, so nothing was saved")
            return False
        scope = _scope(places, agent_name, user_id)
        try:
            own = self._own(bs, places, scope)
            base = lent(memory_data, scope)
            changes = self._changes(own, scope, memory_data, base)
            own.save(changes)
            saves = self._saved(scope, 1 if changes else 0)
            if base is not None:
                base.go_on_from(memory_data, saves)
        except (BackstoryError, OSError) as error:
            _log.error("the memory of %s was not saved: %s", scope, error)
            bs.faults.note(scope, "save", error)
            return False
        return True

    def clear_all(self, *, user_id: str | None = None) -> dict[str, object]:
        """Empty the memories of a user and of all the user's agents, and return the user's."""
        bs, places = self._open()
        scope = _scope(places, None, user_id)
        # What is still in DeerFlow's own files is cleared with the rest, or it would come with the next use.
        agents = () if places.base is None else agents_in(places.base, scope.user)
        for owner in (scope, *(Scope(scope.user, agent) for agent in agents)):
            self._own(bs, places, owner)
        bs.memory(scope.user).clear(all_agents=True)
        for owner in {scope, *(one for one in tuple(self._saves) if one.user == scope.user)}:
            self._saved(owner, 1)
        return self.load(user_id=user_id)

    def close(self) -> None:
        """Write what is on its way to memory.json; whoever loads again opens the memory again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def _open(self) -> tuple[Backstory, Places]:
        with self._lock:
            if self._opened is None:
                places = places_of(self._config)
                bs = Backstory.open(
                    places.home,
                    background=False,
                    actor="DeerFlow",
                    max_facts=_MANY,
                    max_facts_limit=_MANY,
                    fact_confidence_threshold=0.0,
                    dedup_key="exact",
                )
                self._opened = bs, places
            return self._opened

    def _own(self, bs: Backstory, places: Places, scope: Scope) -> DocumentAccess:
        """The memory itself, with what DeerFlow's own files held of it."""
        source = places.source(scope)
        if source is not None:
            settle(bs, source, scope)
        return bs.memory(scope.user, scope.agent).own

    def _saved(self, scope: Scope, more: int = 0) -> int:
        """Count `more` saves of a memory, and return how many there were."""
        with self._lock:
            self._saves[scope] = saves = self._saves.get(scope, 0) + more
            return saves

    def _changes(
        self, own: DocumentAccess, scope: Scope, document: object, base: TrackedDocument | None
    ) -> Sequence[Candidate]:
        if base is not None:
            changes = changes_since(base.said, document)
            # DeerFlow works on copies. The very object that it was lent, handed back as it was after this process has
            # saved something else, is a backup that is put back.
            if changes or not is_very_one(document) or base.saves == self._saved(scope):
                return changes
            return changes_since(_read(own.document()), document)
        now = _read(own.document())
        stated = document.get("lastUpdated") if isinstance(document, Mapping) else None
        then = self._lent.get((scope, stated)) if isinstance(stated, str) else None
        # A copy of what was lent that says the same is a backup that is put back, and not work on an old state.
        if then is None or not changes_since(_read(then), document):
            return changes_since(now, document)
        known = {fact.id for fact in then.facts}
        return changes_since(now, document, removable=known)


_storages: weakref.WeakSet[LedgerMemoryStorage] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for storage in list(_storages):
        storage.close()


def _dated(document: Document) -> Document:
    """Give the time to a document that was never written, as DeerFlow does: what is made of it is known by that."""
    if document.last_updated:
        return document
    return msgspec.structs.replace(document, last_updated=spell_moment(SystemClock().now()))


def _read(document: Document) -> tuple[Candidate, ...]:
    return read_document(msgspec.to_builtins(document))


def _scope(places: Places, agent_name: str | None, user_id: str | None) -> Scope:
    """Name a memory as DeerFlow does: agents in lower case, and nobody's agent of newer versions is none."""
    agent = None if agent_name in (None, "__default__") else agent_name.lower()
    try:
        return places.scope(Scope.of(user_id, agent))
    except ScopeError as error:
        raise ValueError(str(error)) from error
