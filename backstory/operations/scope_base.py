"""What every part of a memory handle stands on: the scope's writer, its log, and who reads whose memory."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.descriptors import translate_verbs
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ConfigError, NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.model import Model
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.writer import Writer, read_commits
from backstory.ledger.threads.due import Timing
from backstory.outbox.faults import Faults
from backstory.projections.context import Blocks
from backstory.projections.document.projector import DocumentProjector
from backstory.projections.document.usage import UsageTracker
from backstory.projections.history.replay import read_moment
from backstory.projections.index.index import Indexes, ScopeIndex
from backstory.projections.search.services import SearchServices
from backstory.projections.turns import TurnLogs

if TYPE_CHECKING:
    from backstory.outbox.outbox import Outbox
    from backstory.witness.witness import Witness

__all__ = ["HomeServices", "Progress", "ScopeBase", "begun_fact", "known_policy", "live_fact"]

_LOOK_AGAIN_SECONDS = 0.05
_COMPLETE_ID = re.compile(r"fact_\d+_\d+", re.ASCII)
"""An id as the ledger gives it: fact_2_1 is one, and never short for fact_2_11."""

Progress = Callable[[int], None]
"""Told how many steps of a long work are done."""


class HomeServices(msgspec.Struct, frozen=True):
    """What a handle works with; one per opened home."""

    updater: Updater
    summarizer: Summarizer
    asking: Callable[[Path | None], Updater]
    """Makes one that asks as configured, with other templates if some are given, for work that ends in no commit."""
    timing: Timing
    model: Model | None
    models: Callable[[object], Model | None]
    """Makes a model of what a host has, with the configured key and address; None where there is none."""
    producer: Producer | None
    retention: Retention | None
    document: Callable[[Scope], Path]
    projector: DocumentProjector
    heat: UsageTracker
    faults: Faults
    waiting: Outbox
    blocks: Blocks
    index: Indexes
    searches: SearchServices
    turns: TurnLogs
    witness: Witness | None
    closed: threading.Event
    queue_max_depth: int
    enabled: bool
    actor: str
    conversation: str | None = None
    """In which changes are made by hand, if in any."""

    def must_be_open(self) -> None:
        """Refuse to go on with a home that was closed.

        Raises:
            UsageError: it was.
        """
        if self.closed.is_set():
            raise UsageError("this home was closed: open it again with Backstory.open")


def _nobody() -> Sequence[Writer]:
    return ()


class ScopeBase:
    """A scope's writer and, for an agent, the writer of the user's memory that it reads until it has one of its own.

    `agents` gives the writers of all of the user's agents, where there are any.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        translate_verbs(cls)

    def __init__(
        self,
        writer: Writer,
        engine: HomeServices,
        fallback: Writer | None = None,
        agents: Callable[[], Sequence[Writer]] = _nobody,
    ) -> None:
        self._own = writer
        self._services = engine
        self._fallback = fallback
        self._agents = agents

    @property
    def scope(self) -> Scope:
        """Whose memory this is."""
        return self._own.scope

    @property
    def _writer(self) -> Writer:
        self._services.must_be_open()
        return self._own

    def _reading(self) -> Writer:
        """An agent that has learnt nothing of its own reads its user's memory; writing never mixes them."""
        if self._fallback is not None and self._writer.memory().seq == 0:
            return self._fallback
        return self._writer

    def _commits(self, writer: Writer) -> Iterator[Commit]:
        """All commits that are durable, from the first on, for what has to walk them."""
        return read_commits(writer.store, writer.ledger, until=writer.store.durable_head(writer.ledger))

    def _logs(self, writer: Writer) -> ScopeIndex:
        """What is asked about a scope's logs without walking them."""
        return self._services.index(writer.scope)

    def _memory(self, at: int | str | None = None) -> Memory:
        writer = self._reading()
        if at is None:
            return writer.memory()
        return self._logs(writer).memory_at(read_moment(at))

    def _known_fact(self, writer: Writer, fact_id: str, *, whole: bool = False) -> str:
        """Return the id of a fact, live or gone, by its id; by a unique beginning too, unless it has to be `whole`.

        Raises:
            NotFoundError: there is and was no such fact; what is a complete id is never taken for a beginning.
            UsageError: several begin so.
        """
        exactly = whole or _COMPLETE_ID.fullmatch(fact_id) is not None
        try:
            found = self._logs(writer).find_fact(fact_id)
        except UsageError:
            if not exactly:
                raise
            found = ""
        if exactly and found != fact_id:
            raise NotFoundError(
                f"there is and was no fact {fact_id}: give its id in full, as `fact list` and `log` show it"
            )
        return found

    def _cause(self, kind: str, **fields: object) -> Cause:
        thread = self._services.conversation if kind == "manual" else None
        return msgspec.structs.replace(Cause(kind=kind, actor=self._services.actor, thread=thread), **fields)

    @contextlib.contextmanager
    def _claimed(self, thread: str) -> Iterator[None]:
        """Keep background workers and other processes off a thread; whoever is at it already is waited for."""
        producer, writer = self._services.producer, self._writer
        with contextlib.nullcontext() if producer is None else producer.claim(writer, thread):
            while True:
                with writer.store.lease(writer.ledger, thread) as mine:
                    if mine:
                        yield
                        return
                writer.clock.sleep(_LOOK_AGAIN_SECONDS)

    def _must_know(self, thread: str) -> None:
        with self._writer.reader.state() as state:
            if thread not in state.transcript.threads:
                raise NotFoundError(f"there is no thread {thread} in the memory of {self.scope}: see `threads`")


def live_fact(memory: Memory, fact_id: str) -> Fact:
    """Return a live fact by its whole id, as whoever changes it has to name it.

    Raises:
        NotFoundError: there is no live fact of this id.
    """
    if fact_id not in memory.facts:
        raise NotFoundError(
            f"there is no live fact {fact_id}: give its id in full, as `fact list` shows it; `why` tells of one that "
            "is gone"
        )
    return memory.facts[fact_id]


def begun_fact(memory: Memory, fact_id: str) -> Fact:
    """Return a live fact by its id or a unique beginning of it; what is a complete id is never taken for a beginning.

    Raises:
        NotFoundError: no live fact begins so.
        UsageError: several do.
    """
    if fact_id in memory.facts or _COMPLETE_ID.fullmatch(fact_id):
        return live_fact(memory, fact_id)
    found = [fact for fact in memory.facts.values() if fact_id and fact.id.startswith(fact_id)]
    if len(found) > 1:
        raise UsageError(f"{fact_id} begins the ids of {len(found)} facts: say more")
    return found[0] if found else live_fact(memory, fact_id)


def known_policy(changes: Mapping[str, PolicyValue]) -> None:
    """Refuse a policy key that there is not.

    Raises:
        ConfigError: it names the nearest key, or all there are.
    """
    for key in sorted(set(changes) - set(POLICY_KEYS)):
        near = get_close_matches(key, POLICY_KEYS, 1, 0.5)
        meant = f"the nearest is {near[0]}" if near else f"they are {', '.join(POLICY_KEYS)}"
        raise ConfigError(f"{key} is no policy key; {meant}")
