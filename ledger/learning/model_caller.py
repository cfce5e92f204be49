"""Model caller: spaces the calls of a home, retries failures that may pass, and notifies observers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commands import Command
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ModelError, ModelRejectedError, ModelUnavailableError, ReplyError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.kinds import FailureReason
from backstory.ledger.core.memory import BARRIERS
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage, usage_of
from backstory.ledger.learning.observing import CallStarted, Observer, Observers, provider_of
from backstory.ledger.log.writer import Writer

_BACKOFF_SECONDS = (1.0, 60.0)
_PATIENCE_SECONDS = 300.0


def ask_once(model: Model, prompt: Prompt) -> Answer:
    """Ask a model with one call, and enforce the port: other exceptions and other results become a ModelError.

    Raises:
        ModelUnavailableError, ModelRejectedError: As the port.
    """
    try:
        answer: object = model.ask(prompt)
    except ModelError:
        raise
    except Exception as error:
        raise ModelUnavailableError(f"{model.name} failed ({type(error).__name__}): {error}") from error
    if isinstance(answer, Answer) and isinstance(answer.text, str) and isinstance(answer.model, str):
        return answer
    raise ModelRejectedError(f"{model.name} is no model: its ask() returned a {type(answer).__name__}, not an Answer")


def reason_of(error: ModelError) -> FailureReason:
    """Return why an update failed, as commits state it."""
    if isinstance(error, ReplyError):
        return "reply"
    return "unavailable" if isinstance(error, ModelUnavailableError) else "rejected"


class ModelRequest(msgspec.Struct, kw_only=True):
    """A question to a model, whose answer leads to a commit.

    Attributes:
        writer: the scope.
        turns: the turns that it is about.
        prompt: what the model is asked.
        cause: the cause of the commit.
        basis: the seq of the memory that the prompt shows.
        log: `State.log` when the model was asked.
        at: the date of a backfilled commit.
        attempts: the calls so far, those of earlier updates included.
    """

    writer: Writer
    turns: TurnRange
    prompt: Prompt
    cause: Cause
    basis: int
    log: str
    at: datetime | None
    attempts: int = 0

    def call(self, model: Model) -> CallStarted:
        """Count a call, and return its notification."""
        from backstory.ledger.text.tokens import estimate_tokens

        self.attempts += 1
        return CallStarted(
            scope=self.writer.scope,
            thread=self.cause.thread or "",
            turns=self.turns,
            provider=provider_of(model),
            model=self.cause.model or "",
            prompt=self.prompt.digest,
            estimated_tokens=estimate_tokens(self.prompt.system) + estimate_tokens(self.prompt.user),
            signals=self.cause.signals,
            attempt=self.attempts,
            kind=self.cause.kind,
        )

    def is_overtaken(self, *kinds: str) -> bool:
        """Whether a commit of one of these kinds (default: any barrier) came after the memory that the prompt shows."""
        with self.writer.state(durable=False) as state:
            barriers = state.memory.barriers
            return state.log != self.log or any(barriers.get(kind, 0) > self.basis for kind in kinds or BARRIERS)

    def commit(self, command: Command, answer: Answer | None, *, covered: TurnRange | None = None) -> Commit:
        """Commit what an answer, or its failure, leads to.

        Args:
            command: what is decided.
            answer: the answer, whose model and tokens the cause names.
            covered: the turns that count as learned from by it.
        """
        usage = Usage() if answer is None else usage_of(answer)
        cause = msgspec.structs.replace(
            self.cause,
            turns=covered,
            prompt=self.prompt.digest if answer is None or answer.prompted else None,
            model=self.cause.model if answer is None else clip(answer.model, MAX_NAME),
            tokens_in=usage.input,
            tokens_out=usage.output,
        )
        return self.writer.commit(command, cause, at=self.at, log=self.log)


class ModelCaller:
    """Makes all calls of one home; safe for threads and forks.

    A failure that may pass is retried. The pause doubles from one second to a minute, or is as long as the server asks,
    at most five minutes. After `stop` no model is asked.

    Args:
        clock: the time between calls.
        max_attempts: the most calls for one prompt.
        min_gap: the fewest seconds between two calls, of any threads.
        observers: notified of each call and of each update.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        max_attempts: int = 5,
        min_gap: float = 0.5,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.clock = clock
        self.observers = Observers(observers, clock)
        self._max_attempts = max_attempts
        self._min_gap = timedelta(seconds=min_gap)
        self._next_call = self._asked = clock.now()
        self._mutex = threading.Lock()
        self._stopped = False
        self._hurrying: list[int] = []
        """The threads that currently skip the gap, by identifier."""

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held."""
        self._mutex = threading.Lock()
        self._hurrying = [thread for thread in self._hurrying if thread == threading.get_ident()]

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Skip the gap between calls inside the context, for a program that is about to end."""
        me = threading.get_ident()
        with self._mutex:
            self._hurrying.append(me)
        try:
            yield
        finally:
            with self._mutex:
                self._hurrying.remove(me)

    def stop(self) -> None:
        """Ask no model from now on."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called; an answer that arrives after it must not be committed."""
        return self._stopped

    def call(self, model: Model, request: ModelRequest) -> Answer | None:
        """Ask a model, with retries.

        Returns:
            The answer, or None where the request is overtaken and the model was not asked: an answer would be
            discarded, and the prompt may hold erased content.

        Raises:
            ModelUnavailableError, ModelRejectedError: As the port, or the program is shutting down.
        """

        def ask() -> Answer | None:
            self._take_turn()
            if self.stopped:
                raise ModelRejectedError("the program is shutting down")
            if request.is_overtaken():
                return None
            return self.observers.watch(request.call(model), lambda: ask_once(model, request.prompt))

        return self._persist(ask)

    def _take_turn(self) -> None:
        """Keep calls apart: each caller takes the next free moment and waits for it."""
        with self._mutex:
            now = self.clock.now()
            # If the clock was set back, move the reserved moment back with it.
            self._next_call -= max(self._asked - now, timedelta())
            self._asked = now
            if self._hurrying:
                return
            mine = max(now, self._next_call)
            self._next_call = mine + self._min_gap
        wait = (mine - now).total_seconds()
        if wait > 0:
            self.clock.sleep(wait)

    def _persist(self, ask: Callable[[], Answer | None]) -> Answer | None:
        from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

        def patience(state: RetryCallState) -> float:
            low, high = _BACKOFF_SECONDS
            wait: float = min(high, low * 2 ** (state.attempt_number - 1))
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, ModelUnavailableError) else None
            return min(max(wait, asked or 0.0), _PATIENCE_SECONDS)

        return Retrying(
            stop=lambda state: self.stopped or bool(stop_after_attempt(self._max_attempts)(state)),
            wait=patience,
            retry=retry_if_exception_type(ModelUnavailableError),
            sleep=self.clock.sleep,
            reraise=True,
        )(ask)
