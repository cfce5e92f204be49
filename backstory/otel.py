"""OpenTelemetry observer: a span for each call of a model, and counters for updates, candidates and turns.

Spans and metrics of calls follow the conventions for generative AI. No attribute holds content.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.learning.observing import CallEnded, CallStarted, Observer, Refusal, UpdateSettled

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = [
    "CallEnded",
    "CallStarted",
    "HostTelemetry",
    "Observer",
    "OpenTelemetryObserver",
    "Refusal",
    "UpdateSettled",
    "observers_of",
]

_log = logging.getLogger(__name__)

_OPERATION = "chat"
_SECONDS = tuple(0.01 * 2**n for n in range(14))
_TOKENS = tuple(4**n for n in range(14))
"""Bucket bounds as the conventions advise: up to 82 seconds, up to 67 million tokens."""

_Attributes = dict[str, str | int | list[str]]


class OpenTelemetryObserver(Observer):
    """Reports to OpenTelemetry, with the host's providers unless others are given.

    A call's span is current while the model is asked, so spans of an instrumented client are its children.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        """Create the instruments.

        Raises:
            ConfigError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ConfigError("OpenTelemetryObserver needs opentelemetry-api: pip install 'backstory[otel]'") from error
        from backstory.version import __version__

        self._tracer = trace.get_tracer("backstory", __version__, tracer_provider)
        self._open: dict[int, tuple[Span, Token[Context]]] = {}
        """Spans of calls that are under way, by the identity of their `CallStarted`, which lives as long."""
        meter = metrics.get_meter("backstory", __version__, meter_provider)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "How long a call of a model took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a call, as the server counted them.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._updates = meter.create_counter("backstory.updates", "{update}", "Updates committed.")
        self._candidates = meter.create_counter("backstory.candidates", "{candidate}", "Candidates settled.")
        self._turns = meter.create_counter("backstory.turns", "{turn}", "Turns that updates were about.")

    def on_call_started(self, call: CallStarted) -> None:
        """Open a span and make it the current one."""
        from opentelemetry import context, trace

        span = self._tracer.start_span(
            f"{_OPERATION} {call.model}", kind=trace.SpanKind.CLIENT, attributes=_asked(call) | _about(call)
        )
        self._open[id(call)] = span, context.attach(trace.set_span_in_context(span))

    def on_call_ended(self, ended: CallEnded) -> None:
        """Close the span; count seconds and tokens."""
        self._close(ended)
        attributes = _asked(ended.call)
        if ended.model is not None:
            attributes["gen_ai.response.model"] = ended.model
        for kind, tokens in (("input", ended.tokens_in), ("output", ended.tokens_out)):
            if tokens is not None:
                self._usage.record(tokens, {**attributes, "gen_ai.token.type": kind})
        if ended.error_type is not None:
            attributes["error.type"] = ended.error_type
        self._duration.record(ended.seconds, attributes)

    def _close(self, ended: CallEnded) -> None:
        from opentelemetry import context, trace

        span, token = self._open.pop(id(ended.call), (None, None))
        if span is None or token is None:
            return
        context.detach(token)
        span.set_attributes(_came_back(ended))
        if ended.error is not None:
            # Without a description: what an error says may quote what was sent.
            span.set_status(trace.StatusCode.ERROR)
        span.end()

    def on_update(self, update: UpdateSettled) -> None:
        """Count the update, its candidates and its turns."""
        outcome: _Attributes = {"outcome": update.outcome}
        self._updates.add(1, outcome if update.reason is None else {**outcome, "reason": update.reason})
        self._turns.add(update.turns.last - update.turns.first + 1, outcome)
        for kind, count in update.accepted.items():
            self._candidates.add(count, {"outcome": "accepted", "kind": kind})
        for refusal in update.refusals:
            self._candidates.add(refusal.count, {"outcome": "refused", "kind": refusal.kind, "rule": refusal.rule})


def _asked(call: CallStarted) -> _Attributes:
    """What spans and metrics of a call have in common: few values, none of them a user's."""
    return {
        "gen_ai.operation.name": _OPERATION,
        "gen_ai.provider.name": call.provider,
        "gen_ai.request.model": call.model,
    }


def _about(call: CallStarted) -> _Attributes:
    about: _Attributes = {
        "gen_ai.conversation.id": call.thread,
        "backstory.turns.first": call.turns.first,
        "backstory.turns.last": call.turns.last,
        "backstory.attempt": call.attempt,
        "backstory.prompt.digest": call.prompt,
        "backstory.prompt.estimated_tokens": call.estimated_tokens,
    }
    if call.kind != "extraction":
        about["backstory.call.kind"] = call.kind
    if call.signals:
        about["backstory.signals"] = list(call.signals)
    if call.scope.user is not None:
        about["user.id"] = call.scope.user
    if call.scope.agent is not None:
        about["gen_ai.agent.name"] = call.scope.agent
    return about


def _came_back(ended: CallEnded) -> _Attributes:
    attributes = {
        "gen_ai.response.model": ended.model,
        "gen_ai.usage.input_tokens": ended.tokens_in,
        "gen_ai.usage.output_tokens": ended.tokens_out,
        "error.type": ended.error_type,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def observers_of(callbacks: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return the observers of a home: the host's callbacks and, unless it is among them, OpenTelemetry.

    Raises:
        ConfigError: A callback is no Observer.
    """
    given = tuple(callbacks)
    for callback in given:
        if not isinstance(callback, Observer):
            raise ConfigError(
                f"callbacks holds a {getattr(callback, '__name__', type(callback).__name__)}, which is no Observer: "
                "derive from backstory.otel.Observer and give an instance"
            )
    if any(isinstance(callback, OpenTelemetryObserver | HostTelemetry) for callback in given):
        return given
    return (*given, HostTelemetry())


class HostTelemetry(Observer):
    """Reports to OpenTelemetry once the host uses it, and costs nothing before.

    A host that has set up a provider has imported opentelemetry, so this imports nothing that is not loaded already.
    """

    def __init__(self) -> None:
        self._joined: Observer | None = None
        self._mutex = ForkLock()

    def on_call_started(self, call: CallStarted) -> None:
        """See `OpenTelemetryObserver`."""
        self._host().on_call_started(call)

    def on_call_ended(self, ended: CallEnded) -> None:
        """See `OpenTelemetryObserver`."""
        self._host().on_call_ended(ended)

    def on_update(self, update: UpdateSettled) -> None:
        """See `OpenTelemetryObserver`."""
        self._host().on_update(update)

    def _host(self) -> Observer:
        with self._mutex:
            if self._joined is None and sys.modules.get("opentelemetry.trace") is not None:
                try:
                    self._joined = OpenTelemetryObserver()
                except Exception as error:  # noqa: BLE001 a host's broken install is logged once, not at every call
                    _log.warning("OpenTelemetry is there but cannot be used, so nothing is reported to it: %s", error)
                    self._joined = _NOBODY
            return self._joined or _NOBODY


_NOBODY = Observer()
