"""What OpenTelemetry is told of learning: spans and metrics by the conventions, counters of ours, never content."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.misbehaving import MisbehavingServer, completion, failure
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from backstory import __version__
from backstory import otel as telemetry
from backstory.config.settings import DEFAULT_MODEL
from backstory.ledger.core.errors import ConfigError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.model import Answer, Prompt, Usage
from backstory.ledger.extraction.models.openai import OpenAIModel
from backstory.otel import CallEnded, CallStarted, HostTelemetry, OpenTelemetryObserver, Refusal, UpdateSettled

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "observability.md").read_text(encoding="utf-8")

Attributes = dict[str, object]


class Backend:
    """What a host has: providers, and what they were told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def observer(self) -> OpenTelemetryObserver:
        return OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def metrics(self) -> dict[str, list[HistogramDataPoint | NumberDataPoint]]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def counted(self) -> dict[str, list[tuple[float, Attributes]]]:
        """Counters' values and histograms' sums, with their attributes."""
        return {
            name: [
                (point.value if isinstance(point, NumberDataPoint) else point.sum, dict(point.attributes or {}))
                for point in points
            ]
            for name, points in self.metrics().items()
        }

    def everything(self) -> str:
        return " ".join([*(span.to_json() for span in self.spans), repr(self.counted())])


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.tracers.shutdown()
    backend.meters.shutdown()


def learn(home: Path, backend: Backend, *script: object, clock: FakeClock | None = None) -> None:
    """Learn from one exchange of ada's after each step that ends an update."""
    model = ScriptedModel(*script)  # type: ignore[arg-type]
    memory = open_home(home, model, clock=clock, callbacks=[backend.observer()]).memory("ada", "coder")
    number = 0
    while model._script:
        number += 1
        memory.record("t", exchange("tea", number))
        memory.extract()


def calling(call: Callable[[], object], text: str) -> Callable[[Prompt], str]:
    def think(prompt: Prompt) -> str:
        call()
        return text

    return think


ASKED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "custom",
    "gen_ai.request.model": "scripted",
}


# Spans


def test_a_call_is_a_span_by_the_conventions(tmp_path, backend):
    learn(tmp_path, backend, Answer(reply("Likes tea"), "served-model", Usage(110, 7)))
    (span,) = backend.spans
    assert (span.name, span.kind, span.parent) == ("chat scripted", trace.SpanKind.CLIENT, None)
    attributes = dict(span.attributes or {})
    assert len(str(attributes.pop("backstory.prompt.digest"))) == 64
    assert int(str(attributes.pop("backstory.prompt.estimated_tokens"))) > 100
    attributes.pop("backstory.signals", None)
    assert attributes == ASKED | {
        "gen_ai.response.model": "served-model",
        "gen_ai.usage.input_tokens": 110,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.conversation.id": "t",
        "gen_ai.agent.name": "coder",
        "user.id": "ada",
        "backstory.turns.first": 1,
        "backstory.turns.last": 2,
        "backstory.attempt": 1,
    }
    assert span.status.status_code is trace.StatusCode.UNSET
    scope = span.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version) == ("backstory", __version__)


def test_each_attempt_has_a_span_and_a_failed_one_says_so_without_a_word_of_the_error(tmp_path, backend):
    busy = ModelUnavailableError("busy with marzipan")
    busy.__cause__ = TimeoutError("marzipan")
    learn(tmp_path, backend, busy, reply("Likes tea"))
    failed, answered = backend.spans
    assert (failed.status.status_code, failed.status.description) == (trace.StatusCode.ERROR, None)
    assert (failed.attributes or {})["error.type"] == "TimeoutError"
    assert failed.events == ()
    assert answered.status.status_code is trace.StatusCode.UNSET
    assert "error.type" not in (answered.attributes or {})
    assert [(span.attributes or {})["backstory.attempt"] for span in backend.spans] == [1, 2]


def test_what_is_not_known_has_no_attribute(backend):
    observer = backend.observer()
    call = CallStarted(
        scope=Scope(), thread="t", turns=TurnRange(1, 1), provider="openai", model="m", prompt="", estimated_tokens=1
    )
    observer.on_call_started(call)
    observer.on_call_ended(CallEnded(call=call, seconds=1))
    (span,) = backend.spans
    assert not {"user.id", "gen_ai.agent.name", "gen_ai.response.model", "backstory.signals"} & set(
        span.attributes or {}
    )
    assert set(backend.counted()) == {"gen_ai.client.operation.duration"}


def test_signals_are_an_attribute(backend):
    observer = backend.observer()
    call = CallStarted(
        scope=Scope(),
        thread="t",
        turns=TurnRange(1, 1),
        provider="openai",
        model="m",
        prompt="",
        estimated_tokens=1,
        signals=("correction", "goal"),
    )
    observer.on_call_started(call)
    observer.on_call_ended(CallEnded(call=call, seconds=1))
    assert (backend.spans[0].attributes or {})["backstory.signals"] == ("correction", "goal")


def test_the_span_is_current_while_the_model_is_asked_and_no_longer(tmp_path, backend):
    during: list[trace.Span] = []
    before = context.get_current()
    learn(
        tmp_path,
        backend,
        calling(lambda: during.append(trace.get_current_span()), reply("Likes tea")),
        ModelRejectedError("no"),
    )
    first, _ = backend.spans
    assert [span.get_span_context() for span in during] == [first.context]
    assert context.get_current() == before


def test_what_a_host_extracts_itself_lies_below_its_own_span(tmp_path, backend):
    with backend.tracers.get_tracer("host").start_as_current_span("nightly") as span:
        learn(tmp_path, backend, reply("Likes tea"))
    call = next(found for found in backend.spans if found.name == "chat scripted")
    assert call.parent is not None
    assert call.parent.span_id == span.get_span_context().span_id


def test_what_a_worker_learns_has_a_span_without_a_parent(tmp_path, backend):
    model = ScriptedModel(reply("Likes tea"))
    settings = {"background": True, "debounce_seconds": 0, "callbacks": [backend.observer()]}
    with (
        open_home(tmp_path, model, **settings) as home,
        backend.tracers.get_tracer("host").start_as_current_span("request"),
    ):
        memory = home.memory("ada")
        memory.record("t", exchange("tea"))
        assert memory.flush(PATIENCE)
    call = next(found for found in backend.spans if found.name == "chat scripted")
    assert call.parent is None


def test_calls_at_the_same_time_keep_their_spans_apart(backend):
    observer = backend.observer()
    one, two = (
        CallStarted(
            scope=Scope(user), thread="t", turns=TurnRange(1, 1), provider="p", model="m", prompt="", estimated_tokens=1
        )
        for user in ("same", "same")
    )
    observer.on_call_started(one)
    observer.on_call_started(two)
    observer.on_call_ended(CallEnded(call=two, seconds=1, tokens_in=2))
    observer.on_call_ended(CallEnded(call=one, seconds=1, tokens_in=1))
    inner, outer = backend.spans
    assert [(span.attributes or {})["gen_ai.usage.input_tokens"] for span in (outer, inner)] == [1, 2]
    assert inner.parent == outer.context


# Metrics


def test_calls_are_measured_by_the_conventions(tmp_path, backend):
    clock = FakeClock()

    def think(prompt: Prompt) -> Answer:
        clock.advance(2.5)
        return Answer(reply("Likes tea"), "served-model", Usage(110, 7))

    learn(tmp_path, backend, ModelUnavailableError("busy"), think, clock=clock)
    counted = backend.counted()
    answered = ASKED | {"gen_ai.response.model": "served-model"}
    assert sorted(counted["gen_ai.client.operation.duration"], key=lambda point: point[0]) == [
        (0, ASKED | {"error.type": "ModelUnavailableError"}),
        (2.5, answered),
    ]
    assert counted["gen_ai.client.token.usage"] == [
        (110, answered | {"gen_ai.token.type": "input"}),
        (7, answered | {"gen_ai.token.type": "output"}),
    ]


def test_the_buckets_are_those_the_conventions_advise(tmp_path, backend):
    learn(tmp_path, backend, Answer(reply(), "m", Usage(1, 1)))
    metrics = backend.metrics()
    assert {
        name: tuple(points[0].explicit_bounds)
        for name, points in metrics.items()
        if isinstance(points[0], HistogramDataPoint)
    } == {
        "gen_ai.client.operation.duration": (
            0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
        ),
        "gen_ai.client.token.usage": (
            1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
        ),
    }  # fmt: skip


def test_updates_candidates_and_turns_are_counted_by_outcome(backend):
    observer = backend.observer()
    refusals = (Refusal("newFact", "gate", 2), Refusal("removal", "gate", 1))
    common = {"scope": Scope("ada"), "thread": "t", "turns": TurnRange(3, 6)}
    observer.on_update(
        UpdateSettled(**common, seq=2, outcome="learned", accepted={"newFact": 3}, refusals=refusals)  # type: ignore[arg-type]
    )
    observer.on_update(UpdateSettled(**common, seq=3, outcome="failed", reason="reply"))  # type: ignore[arg-type]
    observer.on_update(UpdateSettled(**common, seq=4, outcome="failed", reason="reply"))  # type: ignore[arg-type]
    assert backend.counted() == {
        "backstory.updates": [(1, {"outcome": "learned"}), (2, {"outcome": "failed", "reason": "reply"})],
        "backstory.turns": [(4, {"outcome": "learned"}), (8, {"outcome": "failed"})],
        "backstory.candidates": [
            (3, {"outcome": "accepted", "kind": "newFact"}),
            (2, {"outcome": "refused", "kind": "newFact", "rule": "gate"}),
            (1, {"outcome": "refused", "kind": "removal", "rule": "gate"}),
        ],
    }


def test_no_metric_has_an_attribute_with_as_many_values_as_there_are_users(tmp_path, backend):
    learn(tmp_path, backend, Answer(reply("Likes tea"), "m", Usage(1, 1)), ModelRejectedError("no"), "half {")
    keys = {key for points in backend.counted().values() for _, attributes in points for key in attributes}
    assert keys == {
        "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model",
        "gen_ai.token.type", "error.type", "outcome", "reason", "kind",
    }  # fmt: skip


def test_a_call_that_began_before_the_host_had_telemetry_is_measured(backend):
    call = CallStarted(
        scope=Scope(), thread="t", turns=TurnRange(1, 1), provider="p", model="m", prompt="", estimated_tokens=1
    )
    backend.observer().on_call_ended(CallEnded(call=call, seconds=1))
    assert backend.spans == ()
    assert [name for name, _ in backend.counted().items()] == ["gen_ai.client.operation.duration"]


def test_no_attribute_holds_content(tmp_path, backend):
    error = ModelUnavailableError("cannot read quokka")
    error.__cause__ = ValueError("quokka")
    answer = (
        '{"newFacts": [{"content": "Likes marzipan", "category": "obelisk"}, {"text": "tamarind"}], '
        '"factsToRemove": [{"id": "tamarind", "reason": "vuvuzela"}]}'
    )
    model = ScriptedModel(error, Answer(answer, "m", Usage(1, 1)), "zanzibar {")
    memory = open_home(tmp_path, model, callbacks=[backend.observer()]).memory("ada")
    for number in range(2):
        memory.record("t", exchange("tapioca", number))
        memory.extract()
    everything = backend.everything()
    assert len(backend.spans) == 3
    secrets = ("quokka", "marzipan", "obelisk", "tamarind", "vuvuzela", "zanzibar", "tapioca")
    assert [secret for secret in secrets if secret in everything] == []


# Set-up


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.mark.usefixtures("without_opentelemetry")
def test_without_opentelemetry_everything_works(tmp_path, caplog):
    memory = open_home(tmp_path, ScriptedModel(reply("Likes tea"))).memory("ada")
    memory.record("t", exchange("tea"))
    assert memory.extract().failed == 0
    assert [fact.content for fact in memory.facts()] == ["Likes tea"]
    assert caplog.records == []


@pytest.mark.usefixtures("without_opentelemetry")
def test_who_asks_for_opentelemetry_where_there_is_none_is_told_what_to_install():
    with pytest.raises(ConfigError, match=r"pip install 'backstory\[otel\]'"):
        OpenTelemetryObserver()


def test_a_broken_opentelemetry_is_told_of_once_and_harms_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    monkeypatch.delattr("opentelemetry.metrics", raising=False)
    memory = open_home(tmp_path, ScriptedModel(reply("Likes tea"))).memory("ada")
    memory.record("t", exchange("tea"))
    assert memory.extract().failed == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_host_that_gives_the_observer_itself_is_told_once(tmp_path, backend, monkeypatch):
    monkeypatch.setattr(HostTelemetry, "on_update", lambda *_: pytest.fail("told twice"))
    learn(tmp_path, backend, reply("Likes tea"))
    assert len(backend.spans) == 1


def test_a_host_with_callbacks_of_its_own_keeps_opentelemetry(tmp_path):
    observers = telemetry.observers_of([telemetry.Observer()])
    assert [type(observer) for observer in observers] == [telemetry.Observer, HostTelemetry]


# The page


def run(script: str, home: Path, address: str) -> str:
    environment = {**os.environ, "HOME": str(home), "OPENAI_BASE_URL": address}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60, env=environment).stdout


@pytest.mark.slow
def test_the_pages_example_is_in_force_by_itself_also_where_the_host_comes_later(tmp_path):
    example = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)[0]
    set_up, _, learning = example.partition("from backstory import Backstory\n")
    providers, _, learning = learning.partition("\nwith ")
    opened = (
        "import sys\nfrom backstory import Backstory\n"
        "with Backstory.open('~/.backstory', model='m') as early: early.memory('bob').status()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    with MisbehavingServer(completion(reply("Moved to Bergen"))) as server:
        shown = run(f"{opened}{set_up}{providers}\nwith {learning}", tmp_path, server.base_url)
    assert shown == f"chat {DEFAULT_MODEL} 11\n"


SUMMARY = '{"summary": "They talked about tea."}'


def told_by_every_path(home: Path, backend: Backend) -> None:
    """A home whose learning has every attribute: answered, failed, refused, and a thread that grows long."""
    answers = [failure(401), completion(reply("Likes tea", "Likes tea")), completion("half {"), completion(SUMMARY)]
    with MisbehavingServer(*answers) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        home_of_all = open_home(home, model, callbacks=[backend.observer()], summary_min_turns=6)
        memory = home_of_all.memory("ada", "coder")
        for number in range(3):
            memory.record("t", exchange("tea", number))
            memory.extract()


def test_the_page_names_every_attribute_and_metric_and_no_other(tmp_path, backend):
    told_by_every_path(tmp_path, backend)
    spans = {key for span in backend.spans for key in span.attributes or {}}
    rows = PAGE.partition("| attribute | |\n")[2].partition("\n\n")[0].splitlines()[1:]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}
    assert named == spans | {"backstory.signals"}
    metrics = {
        name: {key for _, attributes in points for key in attributes} for name, points in backend.counted().items()
    }
    table = re.findall(r"^\| `([\w.]+)` \| (?:s|\{\w+\}) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name: set(re.findall(r"`([\w.]+)`", attributes)) for name, attributes in table} == metrics
