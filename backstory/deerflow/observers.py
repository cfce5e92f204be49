"""Which call of the model is whose, and what DeerFlow is told of each update."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence

from backstory.deerflow.hooks import Hooks, Metrics
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.events import CandidateRejected, Event
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.observing import CallEnded, CallStarted, Observer, UpdateSettled

__all__ = ["Traces", "Watch", "metrics_of"]

_log = logging.getLogger(__name__)

_MOST_TRACES = 4096
_NEW_FACT = "newFact"
_GATE = "gate"
_GATED = {_NEW_FACT: "facts", "newSummary": "summaries", "removal": "removals", "consolidation": "consolidations"}
"""Our kinds of candidates under DeerFlow's names; it has no gate for the others."""
_REASONS = {
    "facts": ("missing", "scope", "durability", "authority"),
    "summaries": ("missing", "scope", "authority"),
    "removals": ("missing", "scope", "replacement"),
    "consolidations": ("missing", "scope", "durability", "authority"),
}
"""What DeerFlow counts of each; here a label that is missing refuses nothing."""


class Traces:
    """The trace ids that conversations were handed over with, the last of each; the oldest go where there are many.

    Safe for threads.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._bind = hooks.trace_context
        self._ids: Recent[tuple[Scope, str], str] = Recent(_MOST_TRACES)

    def note(self, scope: Scope, thread: str, trace_id: str | None) -> None:
        """Remember the id of what is handed over now; without one the last stays."""
        if trace_id is not None:
            self._ids.put((scope, thread), trace_id)

    def of(self, scope: Scope, thread: str) -> str | None:
        """Return the id that a conversation was handed over with last, None where there was none."""
        return self._ids.get((scope, thread))

    @contextlib.contextmanager
    def bound(self, trace_id: str | None) -> Iterator[None]:
        """Have the host bind an id for the length of a block; what its binding raises is logged and changes nothing."""
        undo = contextlib.ExitStack()
        try:
            if trace_id is not None and self._bind is not None:
                undo.enter_context(self._bind(trace_id))
        except Exception:  # noqa: BLE001 a host's hook must not be able to harm memory
            _log.exception("the host's trace_context_manager failed; memory goes on without it")
        try:
            yield
        finally:
            try:
                undo.close()
            except Exception:  # noqa: BLE001 a host's hook must not be able to harm memory
                _log.exception("the host's trace_context_manager failed; memory goes on without it")


class Watch(Observer):
    """Knows what the thread it runs in is asking about, and tells the host's `extraction_callback` of each update.

    `events` gives the events of a commit, for what its numbers do not say.
    """

    def __init__(self, hooks: Hooks, traces: Traces, events: Callable[[Scope, int], Sequence[Event]]) -> None:
        self._tell = hooks.extraction
        self._traces = traces
        self._events = events
        self._here = threading.local()

    @property
    def current(self) -> CallStarted | None:
        """The call that is being made in this thread."""
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
        if self._tell is None or not update.attempts:
            # Nobody was asked: it is no extraction in DeerFlow's sense.
            return
        trace_id = self._traces.of(update.scope, update.thread)
        refused_at_gate = any(refusal.rule == _GATE for refusal in update.refusals)
        events = self._events(update.scope, update.seq) if refused_at_gate else ()
        with self._traces.bound(trace_id):
            # What it raises is logged by whoever tells observers.
            self._tell(metrics_of(update, trace_id, events))


def metrics_of(update: UpdateSettled, trace_id: str | None, events: Sequence[Event] = ()) -> Metrics:
    """Return the numbers of an update under DeerFlow's names; of one that failed, only what it cost.

    `events` are those of its commit; they say which label it was that the gate refused a candidate for.
    """
    tokens = [count for count in (update.tokens_in, update.tokens_out) if count is not None]
    told: Metrics = {
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
        return told
    refused = {(refusal.kind, refusal.rule): refusal.count for refusal in update.refusals}
    of_facts = sum(count for (kind, _), count in refused.items() if kind == _NEW_FACT)
    extracted = update.accepted.get(_NEW_FACT, 0) + of_facts
    unsure = refused.get((_NEW_FACT, "threshold"), 0)
    told |= {
        "facts_extracted": extracted,
        "facts_passed_confidence": extracted - unsure,
        "rejected_low_confidence": unsure,
        "facts_passed_scope_gate": extracted - refused.get((_NEW_FACT, _GATE), 0),
        "rejected_by_scope_gate": sum(count for (kind, rule), count in refused.items() if rule == _GATE),
        "scope_gate_rejections": _by_label(events),
        "rejected_by_rule": update.refused,
    }
    return told


def _by_label(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    counts = {kind: dict.fromkeys(reasons, 0) for kind, reasons in _REASONS.items()}
    for event in events:
        if isinstance(event, CandidateRejected) and event.rule == _GATE:
            kind = _GATED.get(str(event.candidate.__struct_config__.tag))
            label = event.detail.partition(" ")[0]
            if kind is not None and label in counts[kind]:
                counts[kind][label] += 1
    return counts
