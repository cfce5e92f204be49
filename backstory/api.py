"""A home of memories: opened once, handing out one handle per scope."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from backstory.config import Loaded, base_folder, load_settings, policy_values
from backstory.handle import MemoryHandle
from backstory.models import ModelLike, as_model
from backstory.results import ScopeSummary
from backstory.scoped import Engine
from ledger.clock import Clock, SystemClock
from ledger.commit import Commit
from ledger.errors import ConfigError, CorruptLogError, ScopeError
from ledger.memory import Memory
from ledger.producer import Producer, Timing
from ledger.scope import LEDGER, TRANSCRIPT, Scope
from ledger.store import EventStore
from ledger.store.jsonl import JsonlStore
from ledger.updater import Updater
from ledger.writer import Listener, Salts, Writer, random_salt, read_commits
from projections.document import DocumentFile
from projections.replay import memories_when

__all__ = ["Backstory"]


class Backstory:
    """Memories below one home folder; a context manager. Open one with `Backstory.open`."""

    def __init__(
        self,
        home: Path,
        loaded: Loaded,
        store: EventStore,
        engine: Engine,
        *,
        clock: Clock,
        salts: Salts,
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        self.home = home
        self.config = loaded
        self.store = store
        self._engine = engine
        self._clock = clock
        self._salts = salts
        self._listeners = listeners
        self._writers: dict[Scope, Writer] = {}
        self._documents: dict[Scope, DocumentFile] = {}
        self._mutex = threading.Lock()

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
        actor: str | None = None,
        **settings: object,
    ) -> Self:
        """Open a home, which need not exist yet.

        `config` is a YAML file or a mapping, `settings` are single keys; `model` is a model's name, an OpenAI client, a
        LangChain chat model, a function, or None: then configuration and environment say. Without any model recording
        and reading work, and nothing is tried. With `background` what is recorded is learned from by itself.

        Raises:
            ConfigError: an unknown key, a value outside its range, an engine that is not there.
        """
        loaded = load_settings(config, settings)
        stated = loaded.settings
        clock = clock or SystemClock()
        folder = base_folder(home, stated)
        store = _store(stated.event_store, folder, stated.file_lock_timeout_seconds)
        asked = as_model(model, stated)
        updater = Updater(
            clock=clock,
            max_attempts=stated.max_attempts,
            min_gap=stated.min_seconds_between_calls,
            prompts=Path(stated.prompts_dir) if stated.prompts_dir else None,
        )
        timing = Timing(stated.debounce_seconds, stated.max_wait_seconds)
        producer = None
        if asked is not None and background:
            producer = Producer(updater, asked, timing=timing, clock=clock, workers=stated.workers)
            producer.start()
        engine = Engine(
            updater=updater,
            timing=timing,
            model=asked,
            producer=producer,
            document=lambda scope: folder / scope.folder / "memory.json",
            queue_max_depth=stated.queue_max_depth,
            actor=actor or _who(),
        )
        return cls(folder, loaded, store, engine, clock=clock, salts=salts, listeners=listeners)

    def memory(self, user_id: str | None = None, agent_name: str | None = None) -> MemoryHandle:
        """Return the memory of a user and an agent, either of which may be absent; both absent is the global one.

        Raises:
            ScopeError: a name that cannot be one, or no user where configuration requires one.
        """
        scope = Scope.of(user_id, agent_name)
        if self.config.settings.strict_user_scope and scope.user is None:
            raise ScopeError("strict_user_scope is on, so every memory needs a user id: give one")
        fallback = self._writer(Scope(scope.user)) if scope.agent is not None else None
        return MemoryHandle(self._writer(scope), self._engine, fallback)

    def _writer(self, scope: Scope) -> Writer:
        with self._mutex:
            writer = self._writers.get(scope)
            if writer is not None:
                return writer
            writer = Writer(
                self.store,
                scope,
                clock=self._clock,
                salts=self._salts,
                policy=policy_values(self.config),
                listeners=(self._show, *self._listeners),
            )
            self._writers[scope] = writer
        if self._engine.producer is not None:
            self._engine.producer.watch(writer)
        return writer

    def _show(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        """Keep memory.json at the newest commit: under the lock, and only if nobody has gone further meanwhile."""
        stream = scope.stream(LEDGER)
        file = self._documents.get(scope)
        if file is None:
            path = self._engine.document(scope)
            file = DocumentFile(path, lambda moment: memories_when(self.store, scope, moment))
            self._documents[scope] = file
        with self.store.locked(stream):
            if self.store.head(stream).seq == commit.seq:
                file.write(after, before)

    def scopes(self) -> tuple[ScopeSummary, ...]:
        """Return every scope of the home: whose it is, its last seq, and how many facts it has."""
        summaries = []
        for scope in self.owners():
            memory = self._writer(scope).memory()
            summaries.append(ScopeSummary(scope.user, scope.agent, memory.seq, len(memory.facts)))
        return tuple(summaries)

    def owners(self) -> tuple[Scope, ...]:
        """Return whose memories the home holds, also those whose logs are damaged."""
        found: dict[str, Scope] = {}
        damaged: dict[str, CorruptLogError] = {}
        for stream in self.store.streams():
            folder, _, kind = stream.rpartition("/")
            if kind not in (LEDGER, TRANSCRIPT) or folder in found:
                continue
            try:
                owner = Scope.in_folder(folder) or self._owner(stream)
            except CorruptLogError as damage:
                damaged[folder] = damage
            else:
                # A log that was copied to a place of no scope, or of another one, is not that scope's.
                if owner is not None and owner.folder == folder:
                    found[folder] = owner
        for folder, error in damaged.items():
            if folder not in found:
                raise error
        return tuple(found[folder] for folder in sorted(found))

    def _owner(self, stream: str) -> Scope | None:
        """The first commit says whose a stream is, where its folder's name is cut too short to say it."""
        first = next(read_commits(self.store, stream), None)
        return None if first is None else Scope(first.cause.user, first.cause.agent)

    def close(self) -> None:
        """Learn from what is pending, within `shutdown_flush_timeout_seconds`; the rest stays pending on disk."""
        producer = self._engine.producer
        if producer is not None:
            producer.close(self.config.settings.shutdown_flush_timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _store(url: str, folder: Path, lock_timeout: float) -> EventStore:
    if url == "jsonl:":
        return JsonlStore(folder, lock_timeout=lock_timeout)
    engine = url.partition(":")[0]
    raise ConfigError(f"there is no event store {engine!r} in this version; it is jsonl:")


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
