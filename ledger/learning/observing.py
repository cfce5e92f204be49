"""What anyone who watches the learning is told: each call of a model, before and after, and each update's end.

Nothing told holds content: no word of a turn, a fact or an answer, nor of an error's message. Names are there (users,
agents, threads, models), numbers, and the names of our own rules.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import ModelError, ModelUnavailableError
from backstory.ledger.core.events import Candidate, CandidateRejected, FactRemoved, TurnRange, UpdateFailed
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.model import Answer, Model, Usage
from backstory.ledger.log.clock import Clock, SystemClock

__all__ = [
    "CallEnded",
    "CallStarted",
    "CallsOnly",
    "Observer",
    "Observers",
    "Refusal",
    "UpdateSettled",
    "provider_of",
    "token_count",
    "usage_of",
]

_log = logging.getLogger(__name__)

_MAX_TOKENS = 2**63 - 1
_DISCARDED = frozenset({"basis", "covered"})


class CallStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A model is about to be asked.

    `turns` are those of `thread` that are asked about, `prompt` the digest of the templates in force,
    `estimated_tokens` our own estimate of the whole prompt's size, `signals` what was seen in the conversation.
    `provider` is `openai` for whatever speaks that protocol, else `custom`. `attempt` counts from 1 and goes on
    counting where parked turns are tried again. `kind` is `extraction`, or `summary` where they are to be summed up.
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
    """A model answered, or did not.

    `call` is the very object that the call's start was told with. `model` is the model that says it answered, tokens
    are as the server counted them. `error` is None after an answer, else `unavailable` (worth another try), `rejected`
    (not worth one) or `interrupted`; `error_type` then names the class of the error beneath.
    """

    call: CallStarted
    seconds: float
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    error: str | None = None
    error_type: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """How many candidates of one kind one rule refused in an update."""

    kind: str
    rule: str
    count: int


class UpdateSettled(msgspec.Struct, frozen=True, kw_only=True):
    """An update became a commit, `seq`; one that was interrupted before that is never told.

    `outcome` is `learned`, `discarded` (the answer came too late to be used) or `failed` (its turns are parked,
    unless they are done with by then).
    `reason` says why an update failed: `unavailable`, `rejected`, `reply`; or what the answer came too late for:
    `basis`, `covered`, None where it held nothing to discard. `accepted` counts candidates by kind, `refused` by rule,
    `refusals` by both; `evicted` counts facts that gave way to new ones. `attempts` counts the calls for these turns,
    also those of earlier updates; tokens are those of the last one.
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
        """Refused candidates, counted by the rule that refused them."""
        counts: Counter[str] = Counter()
        for refusal in self.refusals:
            counts[refusal.rule] += refusal.count
        return dict(counts)


class Observer:
    """What to derive from in order to be told: override what is of interest, the rest does nothing.

    Callbacks run in the thread that learns, outside of every lock; all of one update run in the same one. While one
    runs, its thread of the conversation is still being worked on: it may read memory and record, but to `flush`,
    or to `extract` the same thread, would wait for itself. To `extract` another thread waits for whoever is at that
    one, and two callbacks that do so to each other's wait for ever: leave it to the workers, or to a thread of your own
    that the callback does not wait for. What a callback raises is logged and changes nothing, except KeyboardInterrupt
    and SystemExit: they pass and end the update, though no worker.
    """

    def on_call_started(self, call: CallStarted) -> None:
        """A model is about to be asked; once per attempt."""

    def on_call_ended(self, ended: CallEnded) -> None:
        """The call is over; follows each `on_call_started`, whatever happened."""

    def on_update(self, update: UpdateSettled) -> None:
        """An update was committed; also one that failed, and one from a recorded answer, for which nobody was asked."""


class CallsOnly(Observer):
    """Passes calls on, which cost money whatever comes of them, and keeps updates back that are never committed."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def on_call_started(self, call: CallStarted) -> None:
        """See `Observer`."""
        self._observer.on_call_started(call)

    def on_call_ended(self, ended: CallEnded) -> None:
        """See `Observer`."""
        self._observer.on_call_ended(ended)


class Observers:
    """All who watch, told one after the other; safe for threads where they are."""

    def __init__(self, observers: Sequence[Observer] = (), *, clock: Clock | None = None) -> None:
        self._observers = tuple(observers)
        self._elapsed = _stopwatch(clock)

    def watch(self, call: CallStarted, ask: Callable[[], Answer]) -> Answer:
        """Make a call, and tell of it before and after."""
        self._tell(lambda observer: observer.on_call_started(call))
        start = self._elapsed()
        try:
            answer = ask()
        except BaseException as error:
            failed = _failed(call, self._since(start), error)
            self._tell(lambda observer: observer.on_call_ended(failed))
            raise
        ended = _answered(call, self._since(start), answer)
        self._tell(lambda observer: observer.on_call_ended(ended))
        return answer

    def settled(self, scope: Scope, turns: TurnRange, attempts: int, commit: Commit) -> None:
        """Tell what became of an update."""
        if self._observers:
            update = _settled(scope, turns, attempts, commit)
            self._tell(lambda observer: observer.on_update(update))

    def _since(self, start: float) -> float:
        # A clock that was set back must not make a call end before it began.
        return max(0.0, self._elapsed() - start)

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # noqa: BLE001 whoever watches must not be able to harm what is watched
                _log.exception("the callback %s failed; the update goes on", type(observer).__name__)


def _stopwatch(clock: Clock | None) -> Callable[[], float]:
    """Seconds of the machine's monotonic clock, or of a clock that was put in its place."""
    if clock is None or isinstance(clock, SystemClock):
        return time.monotonic
    return lambda: clock.now().timestamp()


def provider_of(model: Model) -> str:
    """Say whose protocol a model speaks, in the words of OpenTelemetry where it has one for it."""
    from backstory.ledger.extraction.openai import OpenAIModel

    return "openai" if isinstance(model, OpenAIModel) else "custom"


def token_count(count: object) -> int | None:
    """Return a number of tokens as a server stated it; None where no count can be so."""
    if isinstance(count, bool) or not isinstance(count, int):
        return None
    return count if 0 <= count <= _MAX_TOKENS else None


def usage_of(answer: Answer) -> Usage:
    """Return what an answer says it cost, in tokens: a bill of another shape says nothing, and must harm nobody."""
    stated: object = answer.usage
    if not isinstance(stated, Usage):
        return Usage()
    return Usage(token_count(stated.input), token_count(stated.output))


def _answered(call: CallStarted, seconds: float, answer: Answer) -> CallEnded:
    usage = usage_of(answer)
    return CallEnded(
        call=call,
        seconds=seconds,
        model=clip(answer.model, MAX_NAME),
        tokens_in=usage.input,
        tokens_out=usage.output,
    )


def _failed(call: CallStarted, seconds: float, error: BaseException) -> CallEnded:
    kind = "interrupted"
    if isinstance(error, ModelError):
        kind = "unavailable" if isinstance(error, ModelUnavailableError) else "rejected"
    # Only the name of the class: what an error says may quote what was sent.
    return CallEnded(call=call, seconds=seconds, error=kind, error_type=type(error.__cause__ or error).__name__)


def _kind(candidate: Candidate) -> str:
    return str(candidate.__struct_config__.tag)


def _outcome(commit: Commit, reason: str | None) -> str:
    if reason in _DISCARDED:
        return "discarded"
    if reason is not None:
        return "failed"
    # An answer that was used covers its turns; one that proposed nothing can be too late all the same.
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
            case _:
                pass
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
