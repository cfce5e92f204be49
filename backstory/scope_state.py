"""State of a memory in this process: its writer and its read models, in the one map of a home."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import Renews
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.learning.expiry import Expiry
from backstory.ledger.log.pipeline import Salts
from backstory.ledger.log.writer import Listener, Writer
from backstory.outbox.faults import Faults, ScopeFaults
from backstory.projections.context import Blocks, ScopeBlocks, Shares, tokens_for
from backstory.projections.derived_files import SQLITE
from backstory.projections.document.fact_use import FactUse, ScopeUse
from backstory.projections.document.projector import DocumentProjector, ScopeDocument
from backstory.projections.index.builder import IndexProgress
from backstory.projections.index.index import ScopeIndex
from backstory.projections.index.keyed_commits import KeyedCommits
from backstory.projections.read_model import ReadModel
from backstory.projections.search.query import Search, delete_stale_words
from backstory.projections.search.services import SearchServices
from backstory.projections.search.vectors.background_embedding import ScopeEmbedding
from backstory.projections.turns import TurnFollower, TurnLog

if TYPE_CHECKING:
    from pathlib import Path

    from backstory.config.loading import Loaded
    from backstory.config.settings import Settings
    from backstory.witness.witness import Witness

_RECENT = 256
"""How many memories stay known without a handle on them: a host asks for the same ones again and again."""

_WARM = 32
"""How many of those keep the turns, words, vectors and lines that were read of them."""

_IDLE_SECONDS = 600.0
"""How long they do so after the last use. It is looked at whenever another memory is used."""

_P = TypeVar("_P")


class _Part(Generic[_P]):
    """A part of a state that is made at its first use. If it is a `ReadModel`, every loop over them reaches it."""

    def __init__(self, make: Callable[[ScopeState], _P]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, state: None, owner: type) -> Self: ...
    @overload
    def __get__(self, state: ScopeState, owner: type) -> _P: ...
    def __get__(self, state: ScopeState | None, owner: type) -> _P | Self:
        # Once it is made Python finds it in the instance, and does not call this.
        if state is None:
            return self
        part: _P | None = state.__dict__.get(self._name)
        if part is None:
            with state.making:
                if self._name not in state.__dict__:
                    state.__dict__[self._name] = self._make(state)
                part = state.__dict__[self._name]
        self._note_use(state)
        return part

    def _note_use(self, state: ScopeState) -> None:
        """Note a use; there is nothing to note of a part that stays."""


class _Warm(_Part[_P]):
    """A part that may be large, so few memories keep it, and only while it is used."""

    def _note_use(self, state: ScopeState) -> None:
        state.home.keep_warm(state)

    def __set__(self, state: ScopeState, part: _P) -> None:
        # With this, Python calls `__get__` at each use.
        raise AttributeError(self._name)


class ScopeState:
    """What this process holds of a memory. Get it from the home's `ScopeStates`; safe for threads.

    The writer refers to it, so it lives as long as anything uses the writer.
    """

    def __init__(self, home: ScopeStates, scope: Scope) -> None:
        self.home = home
        self.scope = scope
        self._replace_locks()
        self.watched = False
        """Whether background learning has looked at what is pending."""
        self.caught_up = False
        """Of a user: whether what agents shared before this process opened them is delivered."""
        self._editions: tuple[str, str] | None = None
        self.used = 0.0
        """When what may be large was used last, by the machine's monotonic clock."""

    def renew(self) -> None:
        """Begin anew in a forked child: what is made of the logs is made again when it is used."""
        self._replace_locks()
        self.cool()
        if "writer" in self.__dict__:
            self.writer.renew()
        for model in self._models(made=True):
            model.renew()

    def _replace_locks(self) -> None:
        self.making = threading.RLock()
        self.adding = threading.Lock()
        """For a caller that looks whether a turn is there and then adds it."""

    @_Part
    def document(self) -> ScopeDocument:
        """memory.json, as it follows the commits."""
        home = self.home
        return ScopeDocument(
            home.projector, self.scope, home.document(self.scope), lambda: self.writer, lambda: self.index
        )

    @_Part
    def use(self) -> ScopeUse:
        """Which facts were used of late."""
        home = self.home
        return ScopeUse(home.usage, home.document(self.scope).with_name("access.json"), lambda: self.writer)

    @_Part
    def faults(self) -> ScopeFaults:
        """What failed of late while an agent went on."""
        home = self.home
        return ScopeFaults(home.faults, self.scope, home.document(self.scope).with_name("faults.json"), owner=self)

    @_Part
    def writer(self) -> Writer:
        """The one writer of the memory in this process."""
        return self.home.watched_writer(self)

    @_Part
    def index(self) -> ScopeIndex:
        """Where in the logs what stands."""
        home = self.home
        return ScopeIndex(
            home.store, self.scope, home.document(self.scope).with_name("index.sqlite"), progress=home.progress
        )

    @_Part
    def keyed(self) -> KeyedCommits:
        """The commits that were made under a key."""
        return KeyedCommits(self.index)

    @_Part
    def embedding(self) -> ScopeEmbedding:
        """How far facts and turns are embedded in the background."""
        weakly = weakref.ref(self)
        return self.home.searches.embedding_of(
            self.scope, lambda: None if (state := weakly()) is None else state.search
        )

    @_Warm
    def search(self) -> Search:
        """Facts and turns by words and by meaning."""
        return self.home.searches.search(self.writer, self.embedding, self._follower, self._let_go_of_turns)

    def _let_go_of_turns(self) -> None:
        """Drop the turns that were read, unless something else shows them."""
        if "turns" not in self.__dict__:
            self._follower.start_over()

    @_Warm
    def turns(self) -> TurnLog:
        """The turns that stand."""
        return TurnLog(self.home.store, self.scope, self._follower)

    @_Warm
    def _follower(self) -> TurnFollower:
        return TurnFollower(self.home.store, self.scope)

    @_Warm
    def blocks(self) -> ScopeBlocks:
        """The context block."""
        return ScopeBlocks(self.home.blocks)

    # All read models.

    def _models(self, *, made: bool) -> Iterator[ReadModel]:
        for name, part in vars(ScopeState).items():
            if isinstance(part, _Part) and (not made or name in self.__dict__):
                # What is done to all of them is no use of one.
                model = self.__dict__.get(name) if made else getattr(self, name)
                if isinstance(model, ReadModel):
                    yield model

    def purge(self) -> None:
        """Drop and delete all read models, before content is erased or the logs are removed.

        The caller holds the locks of both logs.

        Raises:
            StoreError: A file cannot be removed.
            LockTimeoutError: Another process keeps it.
        """
        if self.home.shared is not None:
            self.home.shared.erase(self.scope)
        for model in self._models(made=False):
            model.purge()
        for agent in self.home.living() if self.scope.agent is None else ():
            if agent.scope.user == self.scope.user and "blocks" in agent.__dict__:
                # An agent's block may hold its user's facts.
                agent.blocks.start_over()

    def follow(self) -> None:
        """Bring the index up to date, and delete the indexes by words that are not of these logs."""
        self.index.follow()
        delete_stale_words(self.home.store, self.scope, self.home.document(self.scope).parent)

    def start_over(self) -> None:
        """Read the logs anew: others may have come in place of those that were read."""
        self.caught_up = False
        if "writer" in self.__dict__:
            self.writer.start_over()
        for model in self._models(made=True):
            model.start_over()

    def heed_repair(self) -> None:
        """Start over if a repair, in this process or another, has put another log in the place of the known."""
        store, writer = self.home.store, self.writer
        was_repaired = store.capabilities().was_repaired
        if was_repaired is None:
            return
        streams = (writer.ledger, writer.transcript_stream)
        before, self._editions = self._editions, (store.state(streams[0]).edition, store.state(streams[1]).edition)
        if before is not None and before != self._editions and any(map(was_repaired, streams, before)):
            self.start_over()

    def cool(self) -> None:
        """Let go of what may be large; the next use makes it anew."""
        with self.making:
            for name, part in vars(ScopeState).items():
                if isinstance(part, _Warm):
                    self.__dict__.pop(name, None)

    def close(self) -> None:
        """Close all read models."""
        for model in self._models(made=True):
            model.close()


class ScopeStates:
    """The states of a home's memories, one of each, and what they share; safe for threads and forks.

    A state stays while anything uses it, and for a while after.

    Args:
        loaded: The configuration.
        folder: The home's folder.
        store: The engine.
        model: The name of the model, by whose vocabulary tokens are counted; None where it is not known.
        background: Whether threads work in the background.
        clock: The time of commits.
        salts: The salts that commits carry.
        listeners: Get each commit.
        progress: Gets the progress while an index is built.

    Raises:
        ConfigError: An embedder, a witness or Redis cannot be used as configured.
    """

    def __init__(
        self,
        loaded: Loaded,
        folder: Path,
        store: EventStore,
        *,
        model: str | None,
        background: bool,
        clock: Clock,
        salts: Salts,
        listeners: Sequence[Listener],
        progress: IndexProgress | None,
    ) -> None:
        from backstory.config.embedder_factory import as_embedder, least_alike
        from backstory.config.loading import policy_values
        from backstory.config.store_factory import shared_memories

        settings = loaded.settings
        self.store = store
        self.progress = progress
        self.folder = folder
        self.clock = clock
        self._salts = salts
        self._policy = policy_values(loaded)
        self._listeners = list(listeners)
        self._shares_sections = settings.shared_summaries

        def document(scope: Scope) -> Path:
            return folder / scope.folder / "memory.json"

        self.document = document
        """Returns the path of a memory's memory.json."""
        weakly = weakref.ref(self)

        def faults_of(scope: Scope) -> ScopeFaults:
            # A thread of the background must not keep a home that nothing uses.
            states = weakly()
            if states is None:
                return ScopeFaults(faults, scope, document(scope).with_name("faults.json"))
            return states(scope).faults

        def opened() -> list[Scope]:
            states = weakly()
            return [] if states is None else [writer.scope for writer in states.writers()]

        self.faults = faults = Faults(clock, faults_of)
        self.usage = FactUse(clock)
        self.expiry = Expiry(clock, background=background)
        self.blocks = _blocks(settings, model)
        embedder = as_embedder(settings)
        self.searches = SearchServices(
            document,
            embedder,
            background=background,
            top_k=settings.search_top_k,
            min_similarity=least_alike(settings, embedder),
            embedded=faults.embedded,
        )
        self.shared = shared_memories(settings, store)
        self.projector = DocumentProjector(
            store,
            share=None if self.shared is None else self.shared.keep,
            lock_timeout=settings.file_lock_timeout_seconds,
        )
        self.projector.finish_with(self)
        self.witness: Witness | None = None
        if settings.witness:
            from backstory.witness.witness import Witness

            self.witness = Witness(settings.witness, store, document, faults, clock, opened=opened)
        self.closed = threading.Event()
        """Set once the home is closed."""
        self._mutex = threading.Lock()
        self._all: weakref.WeakValueDictionary[Scope, ScopeState] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[ScopeState, None] = OrderedDict()
        self._warm: OrderedDict[ScopeState, None] = OrderedDict()

    def must_be_open(self) -> None:
        """Refuse to work on a home that is closed.

        Raises:
            UsageError: The home is closed.
        """
        if self.closed.is_set():
            raise UsageError("this home was closed: open it again with Backstory.open")

    def __call__(self, scope: Scope) -> ScopeState:
        """Return the state of a memory, which counts as a use."""
        with self._mutex:
            state = self._all.get(scope)
            if state is None:
                state = self._all[scope] = ScopeState(self, scope)
            self._recent[state] = None
            self._recent.move_to_end(state)
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
            return state

    def keep_warm(self, state: ScopeState) -> None:
        """Note the use of what may be large in a state; those that were used least lately let go of it."""
        cold: list[ScopeState] = []
        with self._mutex:
            state.used = now = monotonic()
            self._warm[state] = None
            self._warm.move_to_end(state)
            while len(self._warm) > _WARM or next(iter(self._warm)).used < now - _IDLE_SECONDS:
                cold.append(self._warm.popitem(last=False)[0])
        for other in cold:
            other.cool()

    def living(self) -> list[ScopeState]:
        """Return all states."""
        return list(self._all.values())

    def writers(self) -> list[Writer]:
        """Return the writers of the memories in use."""
        return [state.writer for state in self.living() if "writer" in vars(state)]

    def watched_writer(self, state: ScopeState) -> Writer:
        """Make the writer of a state."""
        users, listeners = None, [state.document.note]
        if self._shares_sections and state.scope.agent is not None:
            users = self(Scope(state.scope.user)).writer
        if self.witness is not None:
            self.witness.sender.watch(state.scope)
            listeners.append(self.witness.sender.note)
        return self._writer(state, [*listeners, *self._listeners], users)

    def passing_writer(self, scope: Scope) -> Writer:
        """Return a writer for one read; if none is in use it is one that nothing keeps."""
        known = self._all.get(scope)
        return known.writer if known is not None and "writer" in vars(known) else self._writer(ScopeState(self, scope))

    def _writer(self, state: ScopeState, listeners: Sequence[Listener] = (), users: Writer | None = None) -> Writer:
        return Writer(
            self.store,
            state.scope,
            clock=self.clock,
            salts=self._salts,
            policy=self._policy,
            listeners=listeners,
            snapshots=state.index,
            purge=lambda _: state.purge(),
            uses=state.use.facts,
            users=users,
            shared=self.shared,
            lapsing=self.expiry.note if listeners else None,
        )

    def parts(self) -> Iterator[Renews]:
        """Yield what begins anew in a forked child, the oldest first."""
        yield SQLITE
        yield self.searches.embedding
        if self.witness is not None:
            yield self.witness.sender
        yield self.projector
        yield self.usage
        yield self.expiry
        yield self.blocks.tokens
        yield self

    def renew(self) -> None:
        """Begin anew in a forked child, with all states."""
        self._mutex = threading.Lock()
        for state in self.living():
            state.renew()

    def close(self, end: float) -> None:
        """Finish what is under way, and close the read models of all memories.

        Args:
            end: Until when heads are sent to the witness, by the machine's monotonic clock.
        """
        self.expiry.end(None)
        self.searches.close()
        self.projector.close()
        if self.shared is not None:
            self.shared.close()
        if self.witness is not None:
            self.witness.sender.close(max(0.0, end - monotonic()))
        self.usage.close()
        self.faults.flush()
        for state in self.living():
            state.close()


def _blocks(settings: Settings, model: str | None) -> Blocks:
    """Return what renders blocks as configured."""
    counting: str = settings.token_counting
    return Blocks(
        Shares(
            max_tokens=settings.max_injection_tokens,
            guaranteed_categories=settings.guaranteed_categories,
            guaranteed_tokens=settings.guaranteed_token_budget,
            similarity_weight=settings.similarity_weight,
            confidence_weight=settings.confidence_weight,
            found_share=settings.context_found_share,
        ),
        tokens_for(model or settings.model.model or settings.model_name, exact=counting == "tiktoken"),
        turns=settings.max_context_turns,
        quoting=settings.context_turns,
        enabled=settings.enabled and settings.injection_enabled,
    )
