"""Metrics of servers and workers, for Prometheus: numbers and names of rules and models, never content or user ids."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import CandidateRejected
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope as MemoryScope
from backstory.ledger.learning.observing import CallEnded, Observer, UpdateSettled

if TYPE_CHECKING:
    from backstory.home import Backstory
    from backstory.worker import Worker

__all__ = ["CONTENT_TYPE", "HomeMetrics", "Metrics", "Timed", "WorkerMetrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class HomeMetrics(Observer):
    """Counts what a home does in this process. Each has a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.commits = Counter("backstory_commits", "Commits of this process, by kind.", ("kind",), registry=registry)
        self.refusals = Counter(
            "backstory_candidates_refused", "Candidates that a rule refused.", ("rule",), registry=registry
        )
        self.updates = Counter(
            "backstory_updates", "Updates from conversations, by outcome.", ("outcome",), registry=registry
        )
        self.calls = Histogram(
            "backstory_model_call_seconds",
            "Time of calls of the model.",
            ("model", "error"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self.tokens = Counter(
            "backstory_model_tokens", "Tokens of calls of the model.", ("model", "direction"), registry=registry
        )
        self.outbox = Gauge("backstory_outbox_deliveries", "Deliveries that wait to be recorded.", registry=registry)
        self.shared_reads = Gauge(
            "backstory_shared_reads", "Reads of memories from Redis, by outcome.", ("outcome",), registry=registry
        )

    def on_commit(self, scope: MemoryScope, commit: Commit, before: Memory, after: Memory) -> None:
        """Listen to the commits of a home; see `ledger.log.writer.Listener`."""
        del scope, before, after
        self.commits.labels(commit.cause.kind).inc()
        for event in commit.events:
            if isinstance(event, CandidateRejected):
                self.refusals.labels(event.rule).inc()

    def on_call_ended(self, ended: CallEnded) -> None:
        """See `Observer`."""
        model = ended.model or ended.call.model
        self.calls.labels(model, ended.error or "").observe(ended.seconds)
        self.tokens.labels(model, "in").inc(ended.tokens_in or 0)
        self.tokens.labels(model, "out").inc(ended.tokens_out or 0)

    def on_update(self, update: UpdateSettled) -> None:
        """See `Observer`."""
        self.updates.labels(update.outcome).inc()

    def text(self, home: Backstory) -> bytes:
        """Return all metrics in Prometheus's text format, those that the home knows as they are now."""
        self.outbox.set(home.outbox.count)
        for outcome, count in home.shared_reads.items():
            self.shared_reads.labels(outcome).set(count)
        return generate_latest(self.registry)


class Metrics(HomeMetrics):
    """Counts what a server and its home do."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = Histogram(
            "backstory_http_request_seconds",
            "Time to the end of an answer, by route.",
            ("method", "route", "status"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.refused_requests = Counter(
            "backstory_http_over_limit", "Requests that went over a limit.", ("limit",), registry=self.registry
        )
        self.pending = Gauge("backstory_threads_pending", "Threads that wait for an update.", registry=self.registry)
        self.parked = Gauge("backstory_threads_parked", "Threads whose update failed.", registry=self.registry)
        self.proxied = Counter(
            "backstory_proxy_requests",
            "Requests of the proxy: what memory did, and what became of the answer.",
            ("about", "outcome"),
            registry=self.registry,
        )

    def over(self, limit: str) -> None:
        """Count a request that went over a limit."""
        self.refused_requests.labels(limit).inc()

    def proxy(self, about: Literal["memory", "answer"], outcome: str) -> None:
        """Count an outcome of a request to the proxy; see `Note`."""
        self.proxied.labels(about, outcome).inc()

    def text(self, home: Backstory) -> bytes:
        """See `HomeMetrics.text`; each memory in use is asked what waits in it."""
        pending, parked = home.waiting()
        self.pending.set(pending)
        self.parked.set(parked)
        return super().text(home)


class WorkerMetrics(HomeMetrics):
    """Counts what a worker and its home do."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = Gauge(
            "backstory_worker_threads",
            "Threads that this worker has in mind: due (they wait for their turn), later (not due yet), under_way.",
            ("state",),
            registry=self.registry,
        )
        self.engine = Gauge(
            "backstory_worker_engine_answers",
            "Whether the engine answered when it was asked last for new turns.",
            registry=self.registry,
        )
        self.looked = Gauge(
            "backstory_worker_last_look_timestamp_seconds",
            "When the last look for new turns ended that the engine answered, since 1970; 0 before the first.",
            registry=self.registry,
        )

    def text_of(self, worker: Worker, home: Backstory) -> bytes:
        """See `HomeMetrics.text`; no log is read for it."""
        for state, count in zip(("due", "later", "under_way"), home.learning_load, strict=True):
            self.waiting.labels(state).set(count)
        self.engine.set(worker.answered)
        self.looked.set(worker.looked or 0)
        return self.text(home)


class Timed:
    """ASGI middleware that measures each request, by the path of its route: that holds no name of a user or a fact."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._seconds = metrics.seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Measure a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), "none"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", None) or "none"
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._seconds.labels(method, route, status).observe(time.perf_counter() - begun)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
