"""Observers of a DeerFlow host: its tracing and callbacks, trace ids of conversations, the metrics of each update."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import CandidateRejected, Event
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.observing import CallEnded, CallStarted, Observer, UpdateSettled
from backstory.ledger.messages import KeepHidden

CallMetrics: TypeAlias = "dict[str, object]"
TraceContext: TypeAlias = "Callable[[str], AbstractContextManager[object]]"
"""Binds a trace id for the time of a `with` block."""


@runtime_checkable
class Callbacks(Protocol):
    """Callbacks around a model call. A method `on_memory_llm_result` after the call is optional."""

    def on_memory_llm_call(
        self,
        invoke_config: dict[str, object],
        *,
        thread_id: str | None,
        user_id: str | None,
        trace_id: str | None,
        model_name: str | None,
    ) -> None:
        """Called before the model; changes of `invoke_config` apply to the call."""


class Hooks(msgspec.Struct, frozen=True):
    """The hooks of a host, each None if the host has none.

    `host_llm` is a LangChain chat model, and `host_llm_factory` creates one.
    """

    callbacks: Callbacks | None = None
    keep_hidden: KeepHidden | None = None
    trace_context: TraceContext | None = None
    extraction: Callable[[CallMetrics], object] | None = None
    host_llm: object | None = None
    host_llm_factory: Callable[[], object] | None = None


_CALLED = ("should_keep_hidden_message", "trace_context_manager", "extraction_callback", "host_llm_factory")
HOOKS = ("callbacks", "host_llm", *_CALLED)
"""DeerFlow's names of the hooks."""


def read_hooks(given: Mapping[str, object]) -> Hooks:
    """Return the hooks among a host's arguments; other arguments are ignored.

    Raises:
        ConfigError: A hook is not callable, or the callbacks lack their method.
    """
    callbacks = given.get("callbacks")
    if callbacks is not None and not isinstance(callbacks, Callbacks):
        raise ConfigError(f"callbacks must have a method on_memory_llm_call, got {type(callbacks).__name__}")
    called: list[Any] = [given.get(name) for name in _CALLED]
    for name, hook in zip(_CALLED, called, strict=True):
        if hook is not None and not callable(hook):
            raise ConfigError(f"{name} must be callable, got {type(hook).__name__}")
    keep_hidden, trace_context, extraction, factory = called
    return Hooks(callbacks, keep_hidden, trace_context, extraction, given.get("host_llm"), factory)


_log = logging.getLogger(__name__)

_MOST_TRACES = 4096
_TRACING = ("trace_context_manager", "memory goes on without it")
_NEW_FACT = "newFact"
_GATE = "gate"
_GATED = {_NEW_FACT: "facts", "newSummary": "summaries", "removal": "removals", "consolidation": "consolidations"}
"""DeerFlow's names for the kinds of candidates that have a gate."""
_REASONS = {
    "facts": ("missing", "scope", "durability", "authority"),
    "summaries": ("missing", "scope", "authority"),
    "removals": ("missing", "scope", "replacement"),
    "consolidations": ("missing", "scope", "durability", "authority"),
}
"""The gate labels that DeerFlow counts for each kind."""


_WHY_PARKED = {
    "unavailable": "the model could not be reached",
    "rejected": "the model refused to answer",
    "reply": "the answer cannot be read",
}


@contextlib.contextmanager
def hook_guarded(name: str, otherwise: str) -> Iterator[None]:
    """Log an error of a host's hook in the block, since it must not affect memory."""
    try:
        yield
    except Exception:  # noqa: BLE001 a hook can raise anything
        _log.exception("the host's %s failed; %s", name, otherwise)


class RunTraces:
    """The last trace id of each conversation, for a bounded number of conversations. Safe for threads."""

    def __init__(self, hooks: Hooks) -> None:
        self._bind = hooks.trace_context
        self._ids: Recent[tuple[Scope, str], str] = Recent(_MOST_TRACES)

    def note(self, scope: Scope, thread: str, trace_id: str | None) -> None:
        """Remember the trace id of a conversation; without one the last stays."""
        if trace_id is not None:
            self._ids.put((scope, thread), trace_id)

    def of(self, scope: Scope, thread: str) -> str | None:
        """Return the last trace id of a conversation; None if it has none."""
        return self._ids.get((scope, thread))

    @contextlib.contextmanager
    def bound(self, trace_id: str | None) -> Iterator[None]:
        """Bind a trace id with the host's hook for the time of a block. Errors of the hook are only logged."""
        undo = contextlib.ExitStack()
        if trace_id is not None and self._bind is not None:
            with hook_guarded(*_TRACING):
                undo.enter_context(self._bind(trace_id))
        try:
            yield
        finally:
            with hook_guarded(*_TRACING):
                undo.close()


class CallObserver(Observer):
    """Tracks the model call of each thread, and reports each update to the host's `extraction_callback`.

    Args:
        hooks: The host's hooks.
        traces: The trace ids of conversations.
        events: Returns the events of a commit.
    """

    def __init__(self, hooks: Hooks, traces: RunTraces, events: Callable[[Scope, int], Sequence[Event]]) -> None:
        self._report = hooks.extraction
        self._traces = traces
        self._events = events
        self._here = threading.local()

    @property
    def current(self) -> CallStarted | None:
        """The present model call of this thread."""
        call = getattr(self._here, "call", None)
        return call if isinstance(call, CallStarted) else None

    def on_call_started(self, call: CallStarted) -> None:
        """See `Observer`."""
        self._here.call = call

    def on_call_ended(self, ended: CallEnded) -> None:  # noqa: ARG002 an observer's words
        """See `Observer`."""
        self._here.call = None

    def on_update(self, update: UpdateSettled) -> None:
        """See `Observer`."""
        if update.outcome == "failed":
            _warn_of_parked(update)
        if self._report is None or not update.attempts:
            # Without a model call it is no extraction in DeerFlow's sense.
            return
        trace_id = self._traces.of(update.scope, update.thread)
        refused_at_gate = any(refusal.rule == _GATE for refusal in update.refusals)
        events = self._events(update.scope, update.seq) if refused_at_gate else ()
        with self._traces.bound(trace_id):
            # The caller of the observers logs its errors.
            self._report(metrics_of(update, trace_id, events))


def _warn_of_parked(update: UpdateSettled) -> None:
    """Say once that turns are parked; without content, as in every line of the log."""
    unavailable = update.reason == "unavailable"
    _log.warning(
        "%s, thread %s: an update failed (%s), and turns %d to %d are parked, see commit %d: %s",
        update.scope,
        update.thread,
        _WHY_PARKED.get(update.reason or "", update.reason),
        update.turns.first,
        update.turns.last,
        update.seq,
        "they are tried again later" if unavailable else "`backstory retry` asks the model again",
    )


def metrics_of(update: UpdateSettled, trace_id: str | None, events: Sequence[Event] = ()) -> CallMetrics:
    """Return the metrics of an update under DeerFlow's names; a failed one has only its cost.

    Args:
        update: The update.
        trace_id: The trace id of its conversation.
        events: The events of its commit, which name the labels of refused candidates.
    """
    tokens = [count for count in (update.tokens_in, update.tokens_out) if count is not None]
    metrics: CallMetrics = {
        "thread_id": update.thread,
        "user_id": update.scope.user,
        "agent_name": update.scope.agent,
        "trace_id": trace_id,
        "model_name": update.model,
        "success": update.outcome == "learned",
        "token_usage": {
            "input_tokens": update.tokens_in or 0,
            "output_tokens": update.tokens_out or 0,
            "total_tokens": sum(tokens),
        }
        if tokens
        else None,
    }
    if update.outcome == "failed":
        return metrics
    refused = {(refusal.kind, refusal.rule): refusal.count for refusal in update.refusals}
    of_facts = sum(count for (kind, _), count in refused.items() if kind == _NEW_FACT)
    extracted = update.accepted.get(_NEW_FACT, 0) + of_facts
    unsure = refused.get((_NEW_FACT, "threshold"), 0)
    metrics |= {
        "facts_extracted": extracted,
        "facts_passed_confidence": extracted - unsure,
        "rejected_low_confidence": unsure,
        "facts_passed_scope_gate": extracted - refused.get((_NEW_FACT, _GATE), 0),
        "rejected_by_scope_gate": sum(count for (kind, rule), count in refused.items() if rule == _GATE),
        "scope_gate_rejections": _by_label(events),
        "rejected_by_rule": update.refused,
    }
    return metrics


def _by_label(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    counts = {kind: dict.fromkeys(reasons, 0) for kind, reasons in _REASONS.items()}
    for event in events:
        if isinstance(event, CandidateRejected) and event.rule == _GATE:
            kind = _GATED.get(str(event.candidate.__struct_config__.tag))
            label = event.detail.partition(" ")[0]
            if kind is not None and label in counts[kind]:
                counts[kind][label] += 1
    return counts
