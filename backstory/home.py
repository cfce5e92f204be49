"""A home of memories: opened once, handing out one handle per scope."""

from __future__ import annotations

import getpass
import importlib
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from backstory.descriptors import translate_verbs
from backstory.ledger.core.errors import CorruptLogError, ScopeError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.learning.next_summary import SummaryLimits
from backstory.ledger.learning.observing import CallsOnly, Observer
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import Listener, Salts, Writer, random_salt, read_commits
from backstory.ledger.threads.due import Timing
from backstory.memory import MemoryHandle
from backstory.operations.context import blocks_of
from backstory.operations.services import HomeServices, ScopeServices
from backstory.outbox.faults import Faults, ModelFaults
from backstory.outbox.outbox import Outbox
from backstory.projections.document.projector import DocumentProjector
from backstory.projections.document.usage import UsageTracker
from backstory.projections.history.scope_counts import tally
from backstory.projections.index.builder import IndexProgress
from backstory.projections.index.index import Indexes
from backstory.projections.search.services import SearchServices
from backstory.projections.turns import TurnFollowers, TurnLogs
from backstory.results import ScopeSummary

if TYPE_CHECKING:
    from backstory.config.loading import Loaded
    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.signals import Signals

__all__ = ["Backstory"]

_SMALL_BYTES = 1 << 16
_RECENT = 256
"""So many scopes stay in memory although nobody holds them: a host asks for the same ones again and again."""


@runtime_checkable
class Closes(Protocol):
    """What has connections to close."""

    def close(self) -> None:
        """Close them."""


@translate_verbs
class Backstory:
    """Memories below one home folder; a context manager. Open one with `Backstory.open`."""

    def __init__(
        self,
        home: Path,
        loaded: Loaded,
        store: EventStore,
        engine: HomeServices,
        *,
        clock: Clock,
        salts: Salts,
        listeners: tuple[Listener, ...] = (),
        owned: Closes | None = None,
    ) -> None:
        from backstory.config.loading import policy_values

        self.home = home
        self.config = loaded
        self.store = store
        self._services = engine
        self._clock = clock
        self._salts = salts
        self._listeners = listeners
        self._owned = owned
        self._policy = policy_values(loaded)
        self._closing = False
        self._writers: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Scope, Writer] = OrderedDict()
        self._mutex = threading.Lock()
        _homes.add(self)

    def renew(self) -> None:
        """Begin anew in a forked child: no thread of the parent that held the lock, or was closing, is there."""
        self._mutex = threading.Lock()
        self._closing = self._services.closed.is_set()

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        *,
        config: str | Path | Mapping[str, object] | None = None,
        model: ModelLike | None = None,
        background: bool = True,
        clock: Clock | None = None,
        salts: Salts = random_salt,
        listeners: tuple[Listener, ...] = (),
        callbacks: Iterable[Observer] = (),
        actor: str | None = None,
        progress: IndexProgress | None = None,
        **settings: object,
    ) -> Self:
        """Open a home, which need not exist yet.

        `config` is a YAML file or a mapping, `settings` are single keys; `model` is a model's name, an OpenAI client, a
        LangChain chat model, a function, or None: then configuration and environment say. Without any model recording
        and reading work, and nothing is tried. With `background` what is recorded is learned from by itself, unless
        `enabled` is off or `mode` is `tool`. `callbacks` are told of each call of the model and each update, without
        content: see `backstory.otel.Observer`.

        Raises:
            ConfigError: an unknown key, a value outside its range, an engine that is not there or is none, a callback
                that is no Observer.
        """
        from backstory.config.embedder_factory import as_embedder
        from backstory.config.loading import base_folder, load_settings
        from backstory.config.model_factory import as_model
        from backstory.config.store_factory import open_store
        from backstory.otel import watchers

        loaded = load_settings(config, settings)
        stated = loaded.settings
        observers = watchers(callbacks)
        clock = clock or SystemClock()
        patterns = Path(stated.patterns_dir) if stated.patterns_dir else None
        if patterns is not None and (background or model is not None):
            # What is wrong with them is said here and now, not by a worker some day.
            _signals(patterns)
        folder = base_folder(home, stated)
        store = open_store(loaded, folder)
        asked = as_model(model, stated)
        embedder = as_embedder(stated)

        def asking(prompts: Path | None, watched_by: Sequence[Observer]) -> Updater:
            return Updater(
                clock=clock,
                max_attempts=stated.max_attempts,
                min_gap=stated.min_seconds_between_calls,
                observers=watched_by,
                prompts=prompts,
                patterns=patterns,
                prompt_max_tokens=stated.prompt_max_tokens,
            )

        templates = Path(stated.prompts_dir) if stated.prompts_dir else None
        place = _documents(folder)
        faults = Faults(place, clock)
        updater = asking(templates, [*observers, ModelFaults(faults)])
        summarizer = Summarizer(
            updater.asking,
            SummaryLimits(stated.summary_min_turns, stated.summary_min_tokens, stated.summary_max_chars),
            prompts=templates,
            prompt_max_tokens=stated.prompt_max_tokens,
        )
        timing = Timing(stated.debounce_seconds, stated.max_wait_seconds)
        days = stated.transcript_retention_days
        retention = None if days is None else Retention(days, clock)
        producer = None
        if asked is not None and background and stated.enabled and stated.mode == "middleware":
            producer = Producer(
                updater,
                asked,
                timing=timing,
                clock=clock,
                workers=stated.workers,
                retention=retention,
                summarizer=summarizer,
                signals=_signals(patterns),
            )
            # A child forked while another thread loads what `record` needs would wait for that for ever.
            importlib.import_module("backstory.ledger.messages")
            producer.start()
        index = Indexes(store, folder, progress=progress)
        followers = TurnFollowers(store)
        searches = SearchServices(
            place,
            embedder,
            background=background,
            top_k=stated.search_top_k,
            min_similarity=stated.search_min_similarity,
            followers=followers,
        )
        witness = None
        if stated.witness:
            from backstory.witness.witness import Witness

            witness = Witness(stated.witness, store, place, faults, clock)
        projector = DocumentProjector(
            store, place, lambda scope, moment: index(scope).memories_when(moment), index=index
        )
        engine = HomeServices(
            updater=updater,
            summarizer=summarizer,
            asking=lambda prompts: asking(prompts or templates, [CallsOnly(observer) for observer in observers]),
            timing=timing,
            model=asked,
            models=lambda given: as_model(given, stated),
            producer=producer,
            retention=retention,
            document=place,
            projector=projector,
            heat=UsageTracker(place, clock),
            faults=faults,
            waiting=Outbox(faults),
            blocks=blocks_of(stated, None if asked is None else asked.name),
            index=index,
            searches=searches,
            turns=TurnLogs(store, followers),
            witness=witness,
            closed=threading.Event(),
            queue_max_depth=stated.queue_max_depth,
            enabled=stated.enabled,
            actor=actor or _who(),
        )
        owned = asked if asked is not model and isinstance(asked, Closes) else None
        return cls(folder, loaded, store, engine, clock=clock, salts=salts, listeners=listeners, owned=owned)

    @property
    def model(self) -> str | None:
        """The name of the model that learns from what is said; None where none is configured."""
        return None if self._services.model is None else self._services.model.name

    @property
    def faults(self) -> Faults:
        """What failed in each memory, and how often, while an agent went on."""
        return self._services.faults

    @property
    def waiting(self) -> Outbox:
        """Deliveries that memory failed to take; see `FailSafeMemory`."""
        return self._services.waiting

    def memory(self, user_id: str | None = None, agent_name: str | None = None) -> MemoryHandle:
        """Return the memory of a user and an agent, either of which may be absent; both absent is the global one.

        Raises:
            ScopeError: a name that cannot be one, or no user where configuration requires one.
            UsageError: the home was closed.
        """
        self._services.must_be_open()
        scope = Scope.of(user_id, agent_name)
        if self.config.settings.strict_user_scope and scope.user is None:
            raise ScopeError("strict_user_scope is on, so every memory needs a user id: give one")
        fallback = self._writer(Scope(scope.user)) if scope.agent is not None else None
        services = ScopeServices(
            self._writer(scope), self._services, fallback, lambda: self._agents_of(scope), self._services.actor
        )
        return MemoryHandle(services)

    def _agents_of(self, scope: Scope) -> list[Writer]:
        return [self._writer(owner) for owner in self.owners() if owner.user == scope.user and owner.agent is not None]

    def _writer(self, scope: Scope) -> Writer:
        """Return the one writer of a scope, as long as anybody holds it or it was asked for lately."""
        with self._mutex:
            writer = self._writers.get(scope)
            known = writer is not None
            if writer is None:
                writer = self._new_writer(scope, self._all_listeners())
                self._writers[scope] = writer
                self._services.projector.watch(writer)
                if self._services.witness is not None:
                    self._services.witness.sender.watch(writer)
            self._recent[scope] = writer
            self._recent.move_to_end(scope)
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        if not known and self._services.producer is not None:
            try:
                self._services.producer.watch(writer)
            except BaseException:
                # Whoever asks for it next has to try again, or what is pending in it would wait for good.
                with self._mutex:
                    self._writers.pop(scope, None)
                    self._recent.pop(scope, None)
                raise
        return writer

    def _all_listeners(self) -> tuple[Listener, ...]:
        witness = self._services.witness
        ours = (self._services.projector.note, *(() if witness is None else (witness.sender.note,)))
        return (*ours, *self._listeners)

    def _new_writer(self, scope: Scope, listeners: tuple[Listener, ...] = ()) -> Writer:
        return Writer(
            self.store,
            scope,
            clock=self._clock,
            salts=self._salts,
            policy=self._policy,
            listeners=listeners,
            snapshots=self._services.index(scope),
            purge=self._purge,
            heat=lambda: self._services.heat.of(scope),
        )

    def _purge(self, scope: Scope) -> None:
        self._services.index(scope).delete()
        self._services.searches.purge(scope, self.store)
        self._services.turns.purge(scope)
        self._services.projector.purge(scope)
        self._services.blocks.purge(scope)
        self._services.heat.purge(scope, self._writers.get(scope))
        self._services.faults.purge(scope)

    def warm(self, timeout: float | None = None) -> str:
        """Wait until the vocabulary that counts a block's tokens is loaded, for so many seconds at most.

        Returns what counts by then, as `tiktoken:o200k_base`; `estimate` where no vocabulary is at hand.
        """
        self._services.must_be_open()
        return self._services.blocks.tokens.wait(timeout).name

    def scopes(self) -> tuple[ScopeSummary, ...]:
        """Return every scope of the home: whose it is, its last seq, and how many facts it has."""
        return tuple(self._summary(owner, f"{folder}/{LEDGER}".lstrip("/")) for folder, owner in self._found().items())

    def _summary(self, scope: Scope, stream: str) -> ScopeSummary:
        """There may be any number of scopes, most of them small: what is read for a summary is not kept."""
        tallied = tally(self.store, scope, stream) if self.store.size(stream) < _SMALL_BYTES else None
        if tallied is None:
            # It has an index to ask, or it is not the scope's log at all: a writer says whose it is.
            memory = (self._writers.get(scope) or self._new_writer(scope)).memory()
            tallied = memory.seq, len(memory.facts)
        return ScopeSummary(scope.user, scope.agent, *tallied)

    def owners(self) -> tuple[Scope, ...]:
        """Return whose memories the home holds, also those whose logs are damaged."""
        return tuple(self._found().values())

    def _found(self) -> dict[str, Scope]:
        """The scopes of the home by their folders, in order."""
        self._services.must_be_open()
        found: dict[str, Scope] = {}
        damaged: dict[str, CorruptLogError] = {}
        for stream in self.store.streams():
            folder, _, kind = stream.rpartition("/")
            if kind not in (LEDGER, TRANSCRIPT) or folder in found:
                continue
            try:
                owner = Scope.in_folder(folder) or self._owner(stream, folder)
            except CorruptLogError as damage:
                damaged[folder] = damage
            else:
                if owner is not None:
                    found[folder] = owner
        for folder, error in damaged.items():
            if folder not in found:
                raise error
        return {folder: found[folder] for folder in sorted(found)}

    def _owner(self, stream: str, folder: str) -> Scope | None:
        """The first commit says whose a stream is, where its folder's name is cut too short to say it.

        A log that was copied to a place of no scope, or of another one, is not that scope's.
        """
        first = next(read_commits(self.store, stream), None)
        owner = None if first is None else Scope(first.cause.user, first.cause.agent)
        return owner if owner is not None and owner.folder == folder else None

    def flush(self, timeout: float | None = None) -> bool:
        """Have all that is pending in the memories in use learned from now, for a host that is about to end.

        True when nothing due is left within so many seconds, `shutdown_flush_timeout_seconds` unless given; calls of
        the model follow each other without a gap. Of a single memory, and of its memory.json, its own `flush` tells.
        What is left of the time is given to the witness; whether it took the heads does not change the result.
        """
        self._services.must_be_open()
        producer = self._services.producer
        limit = self.config.settings.shutdown_flush_timeout_seconds if timeout is None else timeout
        end = time.monotonic() + limit
        done = producer is None or producer.drain(limit)
        if self._services.witness is not None:
            self._services.witness.sender.flush(max(0.0, end - time.monotonic()))
        return done

    def close(self) -> None:
        """Learn from what is pending, within `shutdown_flush_timeout_seconds`; the rest stays pending on disk.

        Every memory.json is exact then. Closing again does nothing; handles that are left say that the home is closed.
        """
        with self._mutex:
            if self._closing:
                return
            self._closing = True
        timeout = self.config.settings.shutdown_flush_timeout_seconds
        end = time.monotonic() + timeout
        # Before the workers end, as it is to be learned from; what hangs here must not take all of their time.
        self._services.waiting.close(timeout / 2)
        producer = self._services.producer
        if producer is not None:
            producer.close(max(0.0, end - time.monotonic()))
        self._services.closed.set()
        self._services.updater.stop()
        self._services.searches.close()
        self._services.projector.close()
        if self._services.witness is not None:
            self._services.witness.sender.close(max(0.0, end - time.monotonic()))
        self._services.heat.close()
        self._services.faults.close()
        self._services.index.close()
        self.store.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _signals(patterns: Path | None) -> Signals:
    from backstory.ledger.extraction.signals import load_signals

    return load_signals(patterns)


def _documents(folder: Path) -> Callable[[Scope], Path]:
    return lambda scope: folder / scope.folder / "memory.json"


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


_homes: weakref.WeakSet[Backstory] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for home in list(_homes):
        home.renew()


os.register_at_fork(after_in_child=_after_fork_in_child)
