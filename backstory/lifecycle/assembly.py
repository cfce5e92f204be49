"""Assembly of a home: makes the services that all of its memories share, as the settings ask for them."""

from __future__ import annotations

import getpass
import importlib
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore
from backstory.ledger.learning.expiry import Expiry
from backstory.ledger.learning.next_summary import SummaryLimits
from backstory.ledger.learning.observing import CallsOnly, Observer
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.pipeline import Salts
from backstory.ledger.log.writer import Listener
from backstory.ledger.threads.due import Timing
from backstory.outbox.faults import EmbeddingFaults, Faults, ModelFaults, ScopeFaults
from backstory.outbox.outbox import Outbox
from backstory.projections.document.fact_use import FactUse
from backstory.projections.document.projector import DocumentProjector
from backstory.projections.index.builder import IndexProgress
from backstory.projections.search.services import SearchServices
from backstory.projections.search.vectors.packaged_model import UNRELATED, PackagedEmbedder
from backstory.scope_state import ScopeStates
from backstory.services.context import blocks_of
from backstory.services.services import HomeServices

if TYPE_CHECKING:
    from backstory.config.loading import Loaded
    from backstory.config.model_factory import ModelLike
    from backstory.config.settings import Settings
    from backstory.ledger.extraction.signals import Signals
    from backstory.ledger.text.scaffolding import Scaffolding
    from backstory.projections.search.vectors.embedder import Embedder
    from backstory.projections.shared.memories import SharedMemories


def assemble(
    loaded: Loaded,
    folder: Path,
    store: EventStore,
    *,
    model: ModelLike | None,
    background: bool,
    clock: Clock,
    salts: Salts,
    listeners: tuple[Listener, ...],
    observers: Sequence[Observer],
    actor: str | None,
    progress: IndexProgress | None,
) -> HomeServices:
    """Make the services of a home; see `Backstory.open`.

    Raises:
        ConfigError: A model, an embedder or a witness cannot be made as configured.
    """
    from backstory.config.embedder_factory import as_embedder
    from backstory.config.loading import chosen_model, policy_values

    settings = loaded.settings

    def document(scope: Scope) -> Path:
        return folder / scope.folder / "memory.json"

    def updater_with(prompts: Path | None, observed_by: Sequence[Observer]) -> Updater:
        return Updater(
            clock=clock,
            max_attempts=settings.max_attempts,
            min_gap=settings.min_seconds_between_calls,
            observers=observed_by,
            prompts=prompts,
            patterns=_path(settings.patterns_dir),
            prompt_max_tokens=settings.prompt_max_tokens,
        )

    chosen = chosen_model(model, loaded)
    embedder = as_embedder(settings)
    templates = _path(settings.prompts_dir)

    def faults_of(scope: Scope) -> ScopeFaults:
        # A thread of the background must not keep a home that nothing uses.
        home = states_alive()
        return (
            ScopeFaults(faults, scope, document(scope).with_name("faults.json")) if home is None else home(scope).faults
        )

    faults = Faults(clock, faults_of)
    updater = updater_with(templates, [*observers, ModelFaults(faults)])
    summarizer = Summarizer(
        updater.model_caller,
        SummaryLimits(settings.summary_min_turns, settings.summary_min_tokens, settings.summary_max_chars),
        prompts=templates,
        prompt_max_tokens=settings.prompt_max_tokens,
    )
    timing = Timing(settings.debounce_seconds, settings.max_wait_seconds, settings.answer_wait_seconds)
    days = settings.transcript_retention_days
    retention = None if days is None else Retention(days, clock)
    extracts = background and settings.enabled and settings.mode == "middleware"
    producer = None
    if chosen is not None and extracts:
        producer = Producer(
            updater,
            chosen,
            timing=timing,
            clock=clock,
            workers=settings.workers,
            retention=retention,
            summarizer=summarizer,
            signals=signals_of(settings),
        )
        # A child forked while another thread loads what `record` needs would wait for that for ever.
        importlib.import_module("backstory.ledger.messages")
        producer.start()
    shared = shared_memories(settings, store)

    searches = SearchServices(
        document,
        embedder,
        background=background,
        top_k=settings.search_top_k,
        min_similarity=_least_alike(settings, embedder),
        embedded=EmbeddingFaults(faults),
    )
    witness = None
    if settings.witness:
        from backstory.witness.witness import Witness

        def opened() -> list[Scope]:
            home = states_alive()
            return [] if home is None else [writer.scope for writer in home.writers()]

        witness = Witness(settings.witness, store, document, faults, clock, opened=opened)
    projector = DocumentProjector(
        store, share=None if shared is None else shared.keep, lock_timeout=settings.file_lock_timeout_seconds
    )
    usage = FactUse(clock)
    expiry = Expiry(clock, background=background)
    blocks = blocks_of(settings, None if chosen is None else chosen.name)
    states = ScopeStates(
        store,
        folder,
        clock=clock,
        salts=salts,
        policy=policy_values(loaded),
        listeners=listeners,
        witness=None if witness is None else witness.sender,
        projector=projector,
        blocks=blocks,
        searches=searches,
        usage=usage,
        faults=faults,
        shared=shared,
        shares_sections=settings.shared_summaries,
        expiry=expiry,
        progress=progress,
    )
    states_alive = weakref.ref(states)
    projector.finish_with(states)
    return HomeServices(
        updater=updater,
        summarizer=summarizer,
        updater_with=lambda prompts: updater_with(
            prompts or templates, [CallsOnly(observer) for observer in observers]
        ),
        timing=timing,
        model=chosen,
        model_from=lambda given: chosen_model(given, loaded),
        model_named=loaded.model_named if chosen is None else chosen.name,
        producer=producer,
        retention=retention,
        expiry=expiry,
        folder=folder,
        document=document,
        states=states,
        projector=projector,
        usage=usage,
        faults=faults,
        outbox=Outbox(faults),
        blocks=blocks,
        searches=searches,
        shared=shared,
        witness=witness,
        closed=threading.Event(),
        queue_max_depth=settings.queue_max_depth,
        enabled=settings.enabled,
        extracts=extracts,
        actor=actor or _current_user(),
    )


def signals_of(settings: Settings) -> Signals:
    """Load the signal patterns, the packaged ones or those of `patterns_dir`.

    Raises:
        ConfigError: The folder is missing, or a file in it cannot be used.
    """
    from backstory.ledger.extraction.signals import load_signals

    return load_signals(_path(settings.patterns_dir))


def scaffolding_of(settings: Settings) -> Scaffolding:
    """Load the wrappers of what no person said, the packaged ones and those of `patterns_dir`.

    Raises:
        ConfigError: The file in the folder cannot be used.
    """
    from backstory.ledger.text.scaffolding import load_scaffolding

    return load_scaffolding(_path(settings.patterns_dir))


def shared_memories(settings: Settings, store: EventStore) -> SharedMemories | None:
    """Make the shared memories that `redis_url` asks for; None without it, and for files.

    Beside files lies an index, which every process on that machine reads as fast.

    Raises:
        ConfigError: The package for Redis is missing, or the URL is none of Redis.
    """
    if not settings.redis_url or isinstance(store, JsonlStore):
        return None
    from backstory.projections.shared.memories import SharedMemories
    from backstory.projections.shared.redis_cache import RedisCache

    return SharedMemories(store, RedisCache(settings.redis_url), settings.redis_ttl_seconds)


def check_folders(settings: Settings) -> None:
    """Read the files that only an update reads otherwise, so that an error is shown now and not by a worker later.

    Raises:
        ConfigError: A folder of prompts or patterns is missing, or a file in it cannot be used.
    """
    from backstory.ledger.extraction.deerflow_files import agents_with_templates
    from backstory.ledger.extraction.templates import load_templates

    if settings.prompts_dir:
        folder = Path(settings.prompts_dir)
        for agent in (None, *agents_with_templates(folder)):
            load_templates(folder, agent)
    if settings.patterns_dir:
        signals_of(settings)
        scaffolding_of(settings)


def _least_alike(settings: Settings, embedder: Embedder | None) -> float:
    """Return the cosine below which nothing is found by meaning alone; only that of the packaged model was measured."""
    if settings.search_min_similarity is not None:
        return settings.search_min_similarity
    return UNRELATED if isinstance(embedder, PackagedEmbedder) else 0.0


def _path(folder: str | None) -> Path | None:
    return Path(folder) if folder else None


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
