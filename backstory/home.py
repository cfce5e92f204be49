"""Home of memories: opened once, it hands out one handle per scope."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, Unpack, runtime_checkable

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import (
    LockTimeoutError,
    NoModelError,
    StoreError,
    UnavailableError,
)
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.learning.flushed import Flushed
from backstory.ledger.learning.observing import Observer
from backstory.ledger.log.pipeline import Salts, random_salt
from backstory.ledger.log.writer import Listener
from backstory.open_files import translate_verbs
from backstory.operations import learning
from backstory.outbox.faults import Faults
from backstory.outbox.outbox import Outbox
from backstory.projections.index.builder import IndexProgress
from backstory.scope_state import ScopeStates
from backstory.services.home_services import HomeServices
from backstory.users.memories import MemoriesOfHome

if TYPE_CHECKING:
    from backstory.config.keys import SettingKeys
    from backstory.config.model_factory import ModelLike
    from backstory.ledger.learning.producer import Producer

_log = logging.getLogger(__name__)


@runtime_checkable
class Closes(Protocol):
    """An object with connections to close."""

    def close(self) -> None:
        """Close them."""


def _must_be_complete(store: EventStore) -> None:
    """Refuse a home that is still being copied; an engine that cannot be reached may come back.

    Raises:
        SealedError: It is.
    """
    seal = None
    with contextlib.suppress(UnavailableError):
        seal = store.seal()
    if seal is not None and seal.state == "arriving":
        store.close()
        raise seal.refusal(str(store))


@translate_verbs
class Backstory(MemoriesOfHome):
    """The memories of one home folder. Open one with `Backstory.open`; it is a context manager.

    `home` is the folder, `config` the configuration with the origin of each value, `store` the engine that keeps the
    logs. Every method that does I/O has an async twin with an `a` before its name.
    """

    def __init__(self, services: HomeServices, *, owned: Closes | None = None) -> None:
        super().__init__(services)
        self._owned = owned
        self._closing = 0
        """The process that closes the home: a forked child may close it again."""
        self._mutex = ForkLock()

    # Opening and closing.

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
        as_hosted: bool = False,
        **settings: Unpack[SettingKeys],
    ) -> Self:
        """Open a home. Its folder need not exist yet.

        Without a model recording and reading work, and nothing is extracted.

        Args:
            home: The folder; as configured unless given, else `~/.backstory`.
            config: A YAML file, or a mapping of keys.
            model: A model's name, an OpenAI client, a LangChain chat model, or a function of one argument: it gets the
                list of chat messages (`role`, `content`) and returns the text of the answer, or the object that the
                prompt asks for as a dict. As configured unless given.
            background: Extract what is recorded in the background, unless `enabled` is off or `mode` is `tool`.
            clock: The source of time.
            salts: The source of the salts that commits carry.
            listeners: Get each commit, after it is durable.
            callbacks: Observe calls of the model and updates, without content.
            actor: Who changes memory by hand; the operating system's user unless given.
            progress: Gets the progress while an index is built.
            as_hosted: Begin with the settings and the model that a host such as DeerFlow left in the home, as the
                command line does; all others override them.
            **settings: Single configuration keys.

        Returns:
            The home.

        Raises:
            ConfigError: A key is unknown, a value is outside its range, the store cannot be opened, or a callback is no
                Observer.
            SealedError: The home is an incomplete copy of another.
        """
        from backstory.config.loading import base_folder, chosen_model, load_settings
        from backstory.config.store_factory import open_store
        from backstory.otel import observers_of

        loaded = load_settings(config, settings, home=home, as_hosted=as_hosted)
        stated = loaded.settings
        observers = observers_of(callbacks)
        clock = clock or SystemClock()
        if stated.patterns is not None and (background or model is not None):
            # An error in them is raised here, not by a worker later.
            from backstory.ledger.extraction.signals import load_signals

            load_signals(stated.patterns)
        folder = base_folder(home, stated)
        store = open_store(loaded, folder)
        _must_be_complete(store)
        chosen = chosen_model(model, loaded)
        states = ScopeStates(
            loaded,
            folder,
            store,
            model=None if chosen is None else chosen.name,
            background=background,
            clock=clock,
            salts=salts,
            listeners=listeners,
            progress=progress,
        )
        services = HomeServices(
            loaded, states, model=chosen, background=background, clock=clock, observers=observers, actor=actor
        )
        owned = chosen if chosen is not model and isinstance(chosen, Closes) else None
        return cls(services, owned=owned)

    def warm(self, timeout: float | None = None) -> str:
        """Wait until the vocabulary that counts the tokens of a block is loaded.

        Args:
            timeout: In seconds; None waits as long as it takes.

        Returns:
            What counts by then, for example `tiktoken:o200k_base`; `estimate` where no vocabulary is at hand.
        """
        self._services.states.must_be_open()
        return self._services.states.blocks.tokens.wait(timeout).name

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text as those of a block are counted.

        An estimate counts until the vocabulary is loaded; see `warm`.

        Args:
            text: The text.

        Returns:
            Its tokens; the estimate errs on the high side.

        Raises:
            UsageError: The text is no string, or the home is closed.
        """
        self._services.states.must_be_open()
        return self._services.states.blocks.tokens.value.count(checks.text("text", text))

    def flush(self, timeout: float | None = None, *, unanswered: bool = True) -> Flushed:
        """Run everything that is pending in the memories in use, for a host that is about to end.

        Calls of the model follow each other without a gap. What is left of the time is given to the witness; whether it
        took the heads does not change the result. `MemoryHandle.flush` covers a single memory and its memory.json.

        Args:
            timeout: In seconds; `shutdown_flush_timeout_seconds` unless given.
            unanswered: Learn also from a user's last words, which may still be answered. A host whose conversations go
                on elsewhere, or after a restart, leaves them pending; `close` does.

        Returns:
            True when nothing due is left; otherwise a false result with its `reason`.
        """
        self._services.states.must_be_open()
        producer = self._services.producer
        limit = self.config.settings.shutdown_flush_timeout_seconds if timeout is None else timeout
        end = time.monotonic() + limit
        self._services.states.expiry.run_due()
        if producer is None:
            done = learning.not_learned(self._services, self._services.states.writers())
        else:
            done = producer.drain(limit, unanswered=unanswered)
        if self._services.states.witness is not None:
            self._services.states.witness.sender.flush(max(0.0, end - time.monotonic()))
        return done

    def watch(self, scope: Scope) -> bool:
        """Learn in the background from what was recorded in a memory by other processes, too.

        A home learns from what it records itself, and from what is pending in the memories in use: it looks at them
        once a minute. Call this for others in which another process may have recorded; `backstory worker` does so for
        all.

        Args:
            scope: The memory, such as one of `owners`.

        Returns:
            Whether something is pending in it: turns, an erasure that was interrupted, or heads that the witness does
            not have yet.

        Raises:
            NoModelError: The home was opened without a model, or without background learning.
            StoreError, CorruptLogError, LockTimeoutError: It could not be read.
        """
        producer, writer = self._producer(), self._writer(scope)
        pending, witness = producer.watch(writer), self._services.states.witness
        return (
            pending
            or writer.reader.has_unfinished_erasure
            or (witness is not None and not witness.sender.has_sent(scope))
        )

    def refresh(self, scope: Scope, *, erased: bool = False) -> bool:
        """Bring the copies of a memory in the home's folder up to date with its logs.

        They follow by themselves when the memory is used. Call this for one that is not, and that another machine
        changes; `backstory serve` and `backstory worker` do so.

        Args:
            scope: The memory.
            erased: Whether lines were erased, or the logs removed: then the copies are deleted first.

        Returns:
            Whether it was done; False where the ledger is locked, or a copy could not be written, which is logged.

        Raises:
            UsageError: The home is closed.
            StoreError, CorruptLogError: The logs cannot be read.
        """
        self._services.states.must_be_open()
        writer = self._writer(scope)
        state = self._services.states(scope)
        if erased or self._services.states.searches.has_stale_vectors(writer):
            try:
                with self.store.locked(writer.ledger, wait=False):
                    state.purge()
            except LockTimeoutError:
                return False
        if self.store.head(writer.ledger).seq == 0:
            return True
        done = state.document.flush()
        state.follow()
        return done

    def must_learn(self) -> None:
        """Check that the home learns in the background.

        Raises:
            NoModelError: It was opened without a model, or without background learning.
        """
        self._producer()

    def _producer(self) -> Producer:
        self._services.states.must_be_open()
        if self._services.producer is None:
            raise NoModelError(learning.why_not_in_background(self._services))
        return self._services.producer

    def waiting(self) -> tuple[int, int]:
        """Count what waits in the memories in use, for a host's metrics.

        A memory that cannot be read is left out. An engine of other machines that does not answer is asked no further,
        because each question waits for it.

        Returns:
            The number of conversations that are pending, and of those whose update failed.
        """
        self._services.states.must_be_open()
        pending = parked = 0
        for writer in self._services.states.writers():
            try:
                with writer.reader.backlog() as backlog:
                    for one in backlog.waiting(self._services.timing):
                        pending += one.turns > 0
                        parked += bool(one.parked)
            except StoreError:
                if self.store.capabilities().path is None:
                    break
            except UnavailableError:
                continue
        return pending, parked

    @property
    def learning_load(self) -> tuple[int, int, int]:
        """The number of conversations that are due and wait, that are due later, and that are learned from now.

        It is what the background of this process has in mind, for a host's metrics; no log is read for it.
        """
        producer = self._services.producer
        return (0, 0, 0) if producer is None else producer.load()

    def close(self) -> None:
        """Run what is pending within `shutdown_flush_timeout_seconds`, then close; the rest stays pending on disk.

        So do a user's last words, which may still be answered: a later process learns from them.

        Every memory.json is exact then. Closing again does nothing. Handles that are left raise UsageError.
        """
        with self._mutex:
            if self._closing == os.getpid() or self._services.states.closed.is_set():
                return
            self._closing = os.getpid()
        services = self._services
        timeout = self.config.settings.shutdown_flush_timeout_seconds
        end = time.monotonic() + timeout
        # Before the workers end, since it is to be extracted too; an outage must not take all of their time.
        services.outbox.close(timeout / 2)
        if services.producer is not None:
            services.producer.close(max(0.0, end - time.monotonic()))
        services.states.closed.set()
        services.updater.stop()
        services.states.close(end)
        self.store.close()
        if self._owned is not None:
            self._owned.close()

    def __repr__(self) -> str:
        return f"<Backstory at {self.home}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def renew(self) -> None:
        """Replace locks in a forked child, where no thread of the parent runs. `os.fork` does so by itself."""
        for part in self._services.parts():
            part.renew()

    # Async twins.

    awarm = in_thread(warm)
    aflush = in_thread(flush)
    aclose = in_thread(close)
    awatch = in_thread(watch)
    arefresh = in_thread(refresh)
    awaiting = in_thread(waiting)

    # Its state.

    @property
    def model(self) -> str | None:
        """The name of the model that extracts; None where none is configured."""
        return None if self._services.model is None else self._services.model.name

    @property
    def faults(self) -> Faults:
        """What failed in each memory while an agent went on, with counts."""
        return self._services.faults

    @property
    def shared_reads(self) -> Mapping[str, int]:
        """How many reads of memories from Redis were a `hit`, a `miss`, `stale` or `refused`; empty without Redis."""
        shared = self._services.states.shared
        return {} if shared is None else dict(shared.reads)

    @property
    def outbox(self) -> Outbox:
        """Deliveries that could not be recorded and are tried again; see `FailSafeMemory`."""
        return self._services.outbox
