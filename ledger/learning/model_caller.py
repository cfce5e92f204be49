"""Model caller: spaces the calls of a home, retries failures that may pass, and notifies observers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.errors import ModelError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage, usage_of
from backstory.ledger.learning.observing import CallStarted, Observer, Observers, provider_of

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


def call_started(
    scope: Scope, cause: Cause, turns: TurnRange, prompt: Prompt, model: Model, *, attempt: int
) -> CallStarted:
    """Return the notification of a call whose answer leads to a commit of this cause."""
    from backstory.ledger.text.tokens import estimate_tokens

    return CallStarted(
        scope=scope,
        thread=cause.thread or "",
        turns=turns,
        provider=provider_of(model),
        model=cause.model or "",
        prompt=prompt.digest,
        estimated_tokens=estimate_tokens(prompt.system) + estimate_tokens(prompt.user),
        signals=cause.signals,
        attempt=attempt,
        kind=cause.kind,
    )


def with_usage(cause: Cause, prompt: Prompt, answer: Answer | None) -> Cause:
    """Return a cause with the prompt's digest and the answer's model and tokens; without an answer, the digest only."""
    usage = Usage() if answer is None else usage_of(answer)
    return msgspec.structs.replace(
        cause,
        prompt=prompt.digest if answer is None or answer.prompted else None,
        model=cause.model if answer is None else clip(answer.model, MAX_NAME),
        tokens_in=usage.input,
        tokens_out=usage.output,
    )


class ModelCaller:
    """Makes all calls of one home; safe for threads and forks.

    A failure that may pass is retried. The pause doubles from one second to a minute, or is as long as the server asks,
    at most five minutes. After `stop` no model is asked.

    Args:
        clock: the time between calls.
        max_attempts: the most calls for one prompt.
        min_gap: the fewest seconds between two calls, of any threads.
        observers: notified of each call.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        max_attempts: int = 5,
        min_gap: float = 0.5,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._clock = clock
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

    def call(
        self, model: Model, prompt: Prompt, *, call: Callable[[], CallStarted], overtaken: Callable[[], bool]
    ) -> Answer | None:
        """Ask a model, with retries.

        Args:
            model: the model to ask.
            prompt: the prompt.
            call: returns the notification of each attempt, just before it.
            overtaken: whether an answer would be discarded; the prompt may then hold erased content.

        Returns:
            The answer, or None where `overtaken` is true and the model was not asked.

        Raises:
            ModelUnavailableError, ModelRejectedError: As the port, or the program is shutting down.
        """

        def ask() -> Answer | None:
            self._take_turn()
            if self.stopped:
                raise ModelRejectedError("the program is shutting down")
            if overtaken():
                return None
            return self.observers.watch(call(), lambda: ask_once(model, prompt))

        return self._persist(ask)

    def _take_turn(self) -> None:
        """Keep calls apart: each caller takes the next free moment and waits for it."""
        with self._mutex:
            now = self._clock.now()
            # If the clock was set back, move the reserved moment back with it.
            self._next_call -= max(self._asked - now, timedelta())
            self._asked = now
            if self._hurrying:
                return
            mine = max(now, self._next_call)
            self._next_call = mine + self._min_gap
        wait = (mine - now).total_seconds()
        if wait > 0:
            self._clock.sleep(wait)

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
            sleep=self._clock.sleep,
            reraise=True,
        )(ask)
