"""Services of a home: what the operations on all of its memories share."""

from __future__ import annotations

import getpass
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import Renews, register
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.model_caller import ModelCaller
from backstory.ledger.learning.observing import CallsOnly, Observer
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.summarizer import Summarizer, SummaryLimits
from backstory.ledger.learning.updater import Updater
from backstory.ledger.threads.due import Timing
from backstory.outbox.faults import ModelFaults
from backstory.outbox.outbox import Outbox
from backstory.scope_state import ScopeStates

if TYPE_CHECKING:
    from backstory.config.loading import Loaded


class HomeServices:
    """What the operations on a home's memories share; there is one per opened home.

    A forked child renews it, part by part.

    Args:
        loaded: The configuration.
        states: The states of the memories.
        model: The model that extracts; None where there is none.
        background: Whether threads learn in the background.
        clock: The time of updates.
        observers: Observe calls of the model and updates.
        actor: Who changes memory by hand where a handle names no other actor; the operating system's user unless given.
    """

    def __init__(
        self,
        loaded: Loaded,
        states: ScopeStates,
        *,
        model: Model | None,
        background: bool,
        clock: Clock,
        observers: Sequence[Observer],
        actor: str | None,
    ) -> None:
        self.loaded = loaded
        self.settings = settings = loaded.settings
        self.states = states
        self.faults = states.faults
        self.outbox = Outbox(states.faults)
        self.actor = actor or _current_user()
        self.model = model
        self.model_named = loaded.model_named if model is None else model.name
        """The name of the model for `status`, also of a host's model that cannot be asked here."""
        self.extracts = background and settings.enabled and settings.mode == "middleware"
        """Whether what is recorded is to be extracted without a request, once there is a model."""
        self.timing = Timing(settings.debounce_seconds, settings.max_wait_seconds, settings.answer_wait_seconds)
        self._clock = clock
        self._observers = observers
        self.updater = self._updater(settings.prompts, [*observers, ModelFaults(states.faults)])
        self.summarizer = Summarizer(
            self.updater,
            SummaryLimits(settings.summary_min_turns, settings.summary_min_tokens, settings.summary_max_chars),
        )
        self.producer = self._producer()
        register(self)

    def _producer(self) -> Producer | None:
        """Make what learns in the background, and start it; None where nothing is to be learned there."""
        if self.model is None or not self.extracts:
            return None
        producer = Producer(
            self.updater,
            self.model,
            timing=self.timing,
            workers=self.settings.workers,
            retention_days=self.settings.transcript_retention_days,
            summarizer=self.summarizer,
        )
        # A child forked while another thread loads what `record` needs would wait for that for ever.
        importlib.import_module("backstory.ledger.messages")
        producer.start()
        return producer

    def updater_with(self, prompts: Path | None) -> Updater:
        """Make an updater with the given templates, or the configured ones, for work that ends in no commit."""
        return self._updater(prompts or self.updater.prompts, [CallsOnly(observer) for observer in self._observers])

    def _updater(self, prompts: Path | None, observers: Sequence[Observer]) -> Updater:
        settings = self.settings
        model_caller = ModelCaller(
            clock=self._clock,
            max_attempts=settings.max_attempts,
            min_gap=settings.min_seconds_between_calls,
            observers=observers,
        )
        return Updater(
            model_caller,
            prompts=prompts,
            patterns=settings.patterns,
            prompt_max_tokens=settings.prompt_max_tokens,
        )

    def parts(self) -> Iterator[Renews]:
        """Yield what begins anew in a forked child, the oldest first."""
        yield self.faults
        yield self.updater.model_caller
        if self.producer is not None:
            yield self.producer
        yield from self.states.parts()
        yield self.outbox


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
