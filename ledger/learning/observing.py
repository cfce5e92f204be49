"""Observers of learning: notified before and after each call of a model, and at the end of each update.

Notifications hold no content: no text of a turn, a fact, an answer or an error message. They hold names (users, agents,
threads, models, rules) and numbers.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import ModelError, ModelUnavailableError
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    ErasureEvent,
    FactEvent,
    FactRemoved,
    SectionEvent,
    SettingEvent,
    TurnEvent,
    TurnRange,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.model import Answer, Model, usage_of

_log = logging.getLogger(__name__)

_DISCARDED = frozenset({"basis", "covered"})


class CallStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to begin.

    Attributes:
        scope: whose memory.
        thread: the thread that the turns belong to.
        turns: the turns that the call is about.
        provider: `openai` for a server that speaks that protocol, otherwise `custom`.
        model: the requested model.
        prompt: the digest of the templates in force.
        estimated_tokens: the estimated size of the whole prompt.
        signals: the signals found in the conversation.
        attempt: counts from 1, and goes on counting where parked turns are retried.
        kind: `extraction` or `summary`.
    """

    scope: Scope
    thread: str
    turns: TurnRange
    provider: str
    model: str
    prompt: str
    estimated_tokens: int
    signals: tuple[str, ...] = ()
    attempt: int = 1
    kind: str = "extraction"


class CallEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has ended.

    Attributes:
        call: the same object that announced the start.
        seconds: how long the call took.
        model: the model named in the answer.
        tokens_in: tokens of the prompt, as the server reports them.
        tokens_out: tokens of the answer, as the server reports them.
        error: None after an answer, otherwise `unavailable` (a retry may succeed), `rejected` (a retry is pointless)
            or `interrupted`.
        error_type: the class of the underlying error.
        status: the HTTP status of a server that answered with an error.
    """

    call: CallStarted
    seconds: float
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    error: str | None = None
    error_type: str | None = None
    status: int | None = None


class Refusal(msgspec.Struct, frozen=True):
    """The number of candidates of one kind that one rule refused in an update."""

    kind: str
    rule: str
    count: int


class UpdateSettled(msgspec.Struct, frozen=True, kw_only=True):
    """An update that has become a commit; an update interrupted before its commit is not reported.

    Attributes:
        scope: whose memory.
        thread: the thread that the turns belong to.
        turns: the turns of the update.
        seq: the number of the commit.
        outcome: `learned`, `discarded` (the answer came too late) or `failed` (the turns are parked, unless another
            commit has covered them).
        reason: of a failure `unavailable`, `rejected` or `reply`; of a discarded answer `basis` or `covered`, or None
            where the answer proposed nothing.
        attempts: the calls made for these turns, those of earlier updates included.
        model: the model named in the answer.
        prompt: the digest of the templates.
        signals: the signals found in the conversation.
        tokens_in: tokens of the last prompt.
        tokens_out: tokens of the last answer.
        accepted: accepted candidates by kind.
        refusals: refused candidates by kind and rule.
        evicted: facts removed to make room for new ones.
    """

    scope: Scope
    thread: str
    turns: TurnRange
    seq: int
    outcome: str
    reason: str | None = None
    attempts: int = 0
    model: str | None = None
    prompt: str | None = None
    signals: tuple[str, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    accepted: Mapping[str, int] = {}
    refusals: tuple[Refusal, ...] = ()
    evicted: int = 0

    @property
    def refused(self) -> dict[str, int]:
        """The number of refused candidates by rule."""
        counts: Counter[str] = Counter()
        for refusal in self.refusals:
            counts[refusal.rule] += refusal.count
        return dict(counts)


class Observer:
    """The base class of observers: override the callbacks of interest, the others do nothing.

    Callbacks run in the thread that learns, outside of every lock. All callbacks of one update run in the same thread.
    While a callback runs, its conversation is still being worked on. The callback may read memory and record. It must
    not call `flush`, or `extract` for the same conversation: either would wait for itself. Calling `extract` for
    another conversation may deadlock with a callback of that one; use a thread that the callback does not wait for.

    An exception in a callback is logged and changes nothing. KeyboardInterrupt and SystemExit are passed on and end
    the update, but no worker.
    """

    def on_call_started(self, call: CallStarted) -> None:
        """Handle the start of a call; runs once per attempt."""

    def on_call_ended(self, ended: CallEnded) -> None:
        """Handle the end of a call; follows every `on_call_started`."""

    def on_update(self, update: UpdateSettled) -> None:
        """Handle the commit of an update, a failed one and one from a recorded reply included."""


class CallsOnly(Observer):
    """Observer that passes on calls, but not updates: for a rerun, whose calls cost money and are never committed."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def on_call_started(self, call: CallStarted) -> None:
        """See `Observer`."""
        self._observer.on_call_started(call)

    def on_call_ended(self, ended: CallEnded) -> None:
        """See `Observer`."""
        self._observer.on_call_ended(ended)


class Observers:
    """All observers, notified in order; safe for threads if each observer is."""

    def __init__(self, observers: Sequence[Observer], clock: Clock) -> None:
        self._observers = tuple(observers)
        # A clock that replaces the system's is read instead of the monotonic one.
        self._elapsed = time.monotonic if isinstance(clock, SystemClock) else lambda: clock.now().timestamp()

    def watch(self, call: CallStarted, ask: Callable[[], Answer]) -> Answer:
        """Make a call, and notify the observers before and after it."""
        self._notify(lambda observer: observer.on_call_started(call))
        start = self._elapsed()
        try:
            answer = ask()
        except BaseException as error:
            failed = _failed(call, self._since(start), error)
            self._notify(lambda observer: observer.on_call_ended(failed))
            raise
        seconds, usage = self._since(start), usage_of(answer)
        model = clip(answer.model, MAX_NAME)
        ended = CallEnded(call=call, seconds=seconds, model=model, tokens_in=usage.input, tokens_out=usage.output)
        self._notify(lambda observer: observer.on_call_ended(ended))
        return answer

    def settled(self, scope: Scope, turns: TurnRange, attempts: int, commit: Commit) -> None:
        """Notify the observers of an update's commit."""
        if self._observers:
            update = _settled(scope, turns, attempts, commit)
            self._notify(lambda observer: observer.on_update(update))

    def _since(self, start: float) -> float:
        # A clock may be set back during the call.
        return max(0.0, self._elapsed() - start)

    def _notify(self, callback: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                callback(observer)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # noqa: BLE001 an observer must not break the update
                _log.exception("the callback %s failed; the update goes on", type(observer).__name__)


def provider_of(model: Model) -> str:
    """Return the protocol of a model: OpenTelemetry's name `openai`, or `custom`."""
    from backstory.ledger.extraction.models.openai import OpenAIModel

    return "openai" if isinstance(model, OpenAIModel) else "custom"


def _failed(call: CallStarted, seconds: float, error: BaseException) -> CallEnded:
    kind = "interrupted"
    if isinstance(error, ModelError):
        kind = "unavailable" if isinstance(error, ModelUnavailableError) else "rejected"
    # Only the class name: the message may quote the prompt.
    status = error.status if isinstance(error, ModelError) else None
    underlying = type(error.__cause__ or error).__name__
    return CallEnded(call=call, seconds=seconds, error=kind, error_type=underlying, status=status)


def _kind(candidate: Candidate) -> str:
    return str(candidate.__struct_config__.tag)


def _outcome(commit: Commit, reason: str | None) -> str:
    if reason in _DISCARDED:
        return "discarded"
    if reason is not None:
        return "failed"
    # A used answer covers its turns. An answer that proposed nothing may also have come too late.
    return "learned" if commit.cause.turns is not None else "discarded"


def _settled(scope: Scope, turns: TurnRange, attempts: int, commit: Commit) -> UpdateSettled:
    cause = commit.cause
    refusals: Counter[tuple[str, str]] = Counter()
    reason: str | None = None
    evicted = 0
    for event in commit.events:
        match event:
            case CandidateRejected():
                refusals[_kind(event.candidate), event.rule] += 1
                reason = event.rule if event.rule in _DISCARDED else reason
            case UpdateFailed():
                reason = event.reason
            case FactRemoved(reason="cap"):
                evicted += 1
            case FactEvent() | SectionEvent() | UpdateProposed() | SettingEvent() | ErasureEvent() | TurnEvent():
                pass
            case _:
                assert_never(event)
    accepted = candidates_of(event for event in commit.events if not isinstance(event, CandidateRejected))
    return UpdateSettled(
        scope=scope,
        thread=cause.thread or "",
        turns=turns,
        seq=commit.seq,
        outcome=_outcome(commit, reason),
        reason=reason,
        attempts=attempts,
        model=cause.model,
        prompt=cause.prompt,
        signals=cause.signals,
        tokens_in=cause.tokens_in,
        tokens_out=cause.tokens_out,
        accepted=dict(Counter(map(_kind, accepted))),
        refusals=tuple(Refusal(kind, rule, count) for (kind, rule), count in refusals.items()),
        evicted=evicted,
    )
