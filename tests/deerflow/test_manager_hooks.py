"""What a host hands over beside configuration: its model, its tracing, and who is told what memory costs."""

from __future__ import annotations

import contextlib
import json
import threading
from types import SimpleNamespace

import pytest
from deerflow.agents.memory.manager import MemoryCallbacks
from fakes import PATIENCE
from hosts import ChatModel, contents, learned, learning, talk
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from backstory.ledger.core.errors import ConfigError


class Told(MemoryCallbacks):
    """Keeps what it is told and, before a call, writes into its configuration."""

    def __init__(self, before: BaseException | None = None, after: BaseException | None = None) -> None:
        self.calls: list[SimpleNamespace] = []
        self.results: list[SimpleNamespace] = []
        self._before = before
        self._after = after

    def on_memory_llm_call(self, invoke_config, **told):
        self.calls.append(SimpleNamespace(config=invoke_config, thread=threading.get_ident(), **told))
        invoke_config["metadata"] = {"trace": told["trace_id"]}
        if self._before is not None:
            raise self._before

    def on_memory_llm_result(self, invoke_config, **told):
        self.results.append(SimpleNamespace(config=invoke_config, **told))
        if self._after is not None:
            raise self._after


class Traced:
    """Binds trace ids as the host does: one at a time, in the thread that is bound."""

    def __init__(self) -> None:
        self.here = threading.local()
        self.log: list[tuple[str, str]] = []

    @property
    def now(self) -> str | None:
        return getattr(self.here, "trace", None)

    @contextlib.contextmanager
    def __call__(self, trace_id):
        before, self.here.trace = self.now, trace_id
        self.log.append(("enter", trace_id))
        try:
            yield
        finally:
            self.here.trace = before
            self.log.append(("leave", trace_id))


# The model.


def test_the_hosts_model_learns_where_none_is_named_for_memory(host):
    model = ChatModel()
    manager = host.manager(model)
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    (call,) = model.asked
    assert [type(message) for message in call.messages] == [SystemMessage, HumanMessage]
    assert "I like tea." in call.messages[1].content
    commit = manager._hosting.home.memory("ada").log(limit=1)[0]
    assert (commit.cause.model, commit.cause.tokens_in, commit.cause.tokens_out) == ("host-model", 50, 7)


@pytest.mark.parametrize(
    "config",
    [{"model": {"model": "m", "base_url": "http://127.0.0.1:9/v1"}}, {"model_name": "m"}, {"model": {"api_key": "k"}}],
)
def test_a_model_named_for_memory_beats_the_hosts_which_is_not_even_made(host, config, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def never():
        raise AssertionError("nobody needs it")

    manager = host.manager(hooks={"host_llm_factory": never}, **config)
    assert manager._hosting.home.memory("ada").status().model == (
        config.get("model_name") or config["model"].get("model", "gpt-5-mini")
    )


def test_a_key_that_lies_in_the_environment_does_not_beat_the_hosts_model(host, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    manager = host.manager(ChatModel())
    assert manager._hosting.home.memory("ada").status().model == "host-model"
    assert host.manager(None)._hosting.home.memory("ada").status().pending == ()


def test_where_the_host_has_no_model_nothing_is_asked_and_nothing_is_lost(host, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    manager = host.manager(None, debounce_seconds=0)
    assert "the host offers no model" in caplog.text
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == []
    (waiting,) = manager._hosting.home.memory("ada").status().pending
    assert waiting.turns == 2
    manager.close()
    again = host.manager(ChatModel())
    assert again.warm_retrieval()
    assert learned(again) == ["Likes tea"]


def test_a_model_named_without_key_or_address_is_told(host, caplog):
    host.manager(ChatModel(), model={"model": "gpt-5-mini"})
    assert "no key or address" in caplog.text


def test_a_host_may_hand_over_a_model_that_is_made_already(host):
    model = ChatModel()
    manager = host.manager(host_llm=model)
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]


def test_what_is_no_chat_model_is_refused(host):
    with pytest.raises(ConfigError, match="the host's model must be a LangChain chat model, got dict"):
        host.manager({"model": "x"})


def test_a_model_of_another_provider_is_made_by_langchain(host, monkeypatch):
    made = []

    def make(name, **how):
        made.append((name, how))
        return ChatModel()

    monkeypatch.setattr("langchain.chat_models.init_chat_model", make)
    foreign = {"provider": "anthropic", "model": "claude", "api_key": "k", "base_url": None, "temperature": 0.2}
    manager = host.manager(None, model=foreign)
    assert made == [("claude", {"model_provider": "anthropic", "api_key": "k", "temperature": 0.2})]
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]


def test_a_provider_that_langchain_cannot_make_is_told_without_the_key(host, monkeypatch):
    def fails(name, **how):
        raise ValueError(f"cannot do {name} with {how['api_key']}")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", fails)
    with pytest.raises(ConfigError, match=r"anthropic:claude.*cannot do claude with \*\*\*") as refused:
        host.manager(None, model={"provider": "anthropic", "model": "claude", "api_key": "sk-secret"})
    assert "sk-secret" not in repr(refused.value)
    with pytest.raises(ConfigError, match="model"):
        host.manager(None, model={"provider": "anthropic"})


class Status(Exception):  # noqa: N818 as providers' errors, it has a code
    def __init__(self, code):
        super().__init__(f"HTTP {code}")
        self.status_code = code


@pytest.mark.parametrize(
    ("code", "reason"), [(401, "rejected"), (400, "rejected"), (429, "unavailable"), (503, "unavailable")]
)
def test_a_providers_refusal_is_told_from_an_outage(host, code, reason):
    manager = host.manager(ChatModel(Status(code)), max_attempts=1)
    manager.add("t1", talk(), user_id="ada")
    manager.shutdown_flush(20)
    (parked,) = manager._hosting.home.memory("ada").status().parked
    assert parked.reason == reason


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": learning("Likes tea")}],
        [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": learning("Likes tea")}],
        f"<think>hm</think>```json\n{learning('Likes tea')}\n```",
    ],
)
def test_an_answer_in_blocks_or_in_prose_is_read(host, content):
    model = ChatModel(content)
    model.invoke = lambda messages, config=None: AIMessage(content)
    manager = host.manager(model)
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]


@pytest.mark.parametrize("content", ["", [], [{"type": "reasoning", "reasoning": "hm"}]])
def test_an_empty_answer_is_an_outage_that_parks_the_turns(host, content):
    model = ChatModel()
    model.invoke = lambda messages, config=None: AIMessage(content)
    manager = host.manager(model, max_attempts=1)
    manager.add("t1", talk(), user_id="ada")
    manager.shutdown_flush(20)
    assert manager._hosting.home.memory("ada").status().parked[0].reason == "unavailable"


# Callbacks.


def test_callbacks_are_told_of_a_call_and_what_they_write_goes_along_with_it(host):
    model, told = ChatModel(), Told()
    manager = host.manager(model, hooks={"callbacks": told})
    assert manager.callbacks is told
    manager.add("t1", talk(), user_id="ada", agent_name="Coder", trace_id="trace-1")
    learned(manager, agent="coder")
    (call,) = told.calls
    assert (call.thread_id, call.user_id, call.trace_id, call.model_name) == ("t1", "ada", "trace-1", "host-model")
    assert call.thread == model.asked[0].thread
    assert model.asked[0].config == {"run_name": "memory_agent", "metadata": {"trace": "trace-1"}}
    (result,) = told.results
    assert result.config is call.config
    assert result.prompt == model.asked[0].messages
    assert isinstance(result.response, AIMessage)
    assert result.error is None
    assert result.duration_ms >= 0
    assert result.model_name == "host-model"


def test_callbacks_are_told_of_a_failure_as_the_provider_raised_it(host):
    failure, told = Status(401), Told()
    manager = host.manager(ChatModel(failure), hooks={"callbacks": told})
    manager.add("t1", talk(), user_id="ada")
    manager.shutdown_flush(20)
    (result,) = told.results
    assert result.error is failure
    assert result.response is None
    assert contents(manager) == []


@pytest.mark.parametrize(
    "told", [Told(before=ValueError("x")), Told(after=ValueError("x")), Told(ValueError(), OSError())]
)
def test_a_callback_that_fails_changes_nothing(host, told, caplog):
    manager = host.manager(ChatModel(), hooks={"callbacks": told})
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert (len(told.calls), len(told.results)) == (1, 1)
    assert "failed" in caplog.text


def test_callbacks_without_the_later_of_the_two_hooks_will_do(host):
    class Older:
        def on_memory_llm_call(self, invoke_config, **told):
            pass

    manager = host.manager(ChatModel(), callbacks=Older())
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]


def test_callbacks_are_told_of_a_model_of_our_own_too(host, monkeypatch):
    from backstory.ledger.extraction.models.model import Answer, Usage
    from backstory.ledger.extraction.models.openai import OpenAIModel

    def ask(self, prompt):
        return Answer(learning("Likes tea"), "gpt-real", Usage(11, 3))

    monkeypatch.setattr(OpenAIModel, "ask", ask)
    told = Told()
    manager = host.manager(
        None, hooks={"callbacks": told}, model={"model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}
    )
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert (told.calls[0].thread_id, told.calls[0].model_name) == ("t1", "m")
    (result,) = told.results
    assert json.loads(result.response.content)["newFacts"]
    assert result.response.usage_metadata == {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}


def test_callbacks_that_nobody_could_call_back_are_refused(host):
    for bad in ({"callbacks": object()}, {"extraction_callback": 1}, {"trace_context_manager": "x"}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            host.manager(ChatModel(), **bad)


# Tracing.


def test_the_trace_of_a_conversation_is_bound_while_it_is_learned_from(host):
    traced, seen = Traced(), []
    model = ChatModel(lambda: seen.append(traced.now) or learning("Likes tea"))
    metrics = lambda told: seen.append(traced.now)  # noqa: E731
    manager = host.manager(model, hooks={"trace_context_manager": traced, "extraction_callback": metrics})
    manager.add("t1", talk(), user_id="ada", trace_id="old")
    manager.add("t1", talk(), user_id="ada", trace_id="new")
    manager.add("t1", talk(), user_id="ada")
    learned(manager)
    assert seen == ["new", "new"]
    assert traced.log == [("enter", "new"), ("leave", "new")] * 2
    assert traced.now is None


def test_each_conversation_of_each_user_has_its_own_trace(host):
    told = Told()
    manager = host.manager(ChatModel(), hooks={"callbacks": told})
    for user, thread in (("ada", "t1"), ("ada", "t2"), ("bob", "t1")):
        manager.add(thread, talk(), user_id=user, trace_id=f"{user}-{thread}")
        learned(manager)
    assert [call.trace_id for call in told.calls] == ["ada-t1", "ada-t2", "bob-t1"]


def test_without_a_trace_nothing_is_bound(host):
    traced, told = Traced(), Told()
    manager = host.manager(ChatModel(), hooks={"trace_context_manager": traced, "callbacks": told})
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert traced.log == []
    assert told.calls[0].trace_id is None


@pytest.mark.parametrize("where", ["called", "entered", "left"])
def test_a_binding_that_fails_changes_nothing(host, where, caplog):
    @contextlib.contextmanager
    def half():
        if where == "entered":
            raise ValueError("x")
        yield
        raise ValueError("x")

    def bind(trace_id):
        if where == "called":
            raise ValueError("x")
        return half()

    manager = host.manager(ChatModel(), hooks={"trace_context_manager": bind})
    manager.add("t1", talk(), user_id="ada", trace_id="trace")
    assert learned(manager) == ["Likes tea"]
    assert "trace_context_manager failed" in caplog.text


def test_the_oldest_traces_are_forgotten_where_there_are_many():
    from backstory.deerflow.observers import Hooks, RunTraces
    from backstory.ledger.core.scope import Scope

    traces = RunTraces(Hooks())
    for number in range(5000):
        traces.note(Scope("ada"), f"t{number}", f"trace-{number}")
        traces.note(Scope("ada"), "t0", "trace-0")
    assert traces.of(Scope("ada"), "t0") == "trace-0"
    assert traces.of(Scope("ada"), "t4999") == "trace-4999"
    assert traces.of(Scope("ada"), "t1") is None


# Metrics.


def metrics_after(host, answer, *, max_attempts=1, **config):
    told = []
    manager = host.manager(
        ChatModel(answer), hooks={"extraction_callback": told.append}, max_attempts=max_attempts, **config
    )
    manager.add("t1", talk(), user_id="ada", trace_id="trace")
    manager.shutdown_flush(20)
    return told


def test_metrics_of_an_extraction_have_deerflows_names(host):
    answer = json.dumps(
        {
            "newFacts": [
                {"content": "Likes tea", "confidence": 0.9},
                {"content": "Perhaps likes rum", "confidence": 0.3},
                {"content": "Wants this file renamed", "confidence": 0.9, "scope": "task"},
                {"content": "Is in a hurry", "confidence": 0.9, "durability": "session"},
                {"content": "Should obey", "confidence": 0.9, "authority": "instruction"},
            ],
            "user": {"topOfMind": {"summary": "This file", "shouldUpdate": True, "scope": "task"}},
        }
    )
    (told,) = metrics_after(host, answer)
    assert told == {
        "thread_id": "t1",
        "user_id": "ada",
        "agent_name": None,
        "trace_id": "trace",
        "model_name": "host-model",
        "success": True,
        "token_usage": {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57},
        "facts_extracted": 5,
        "facts_passed_confidence": 4,
        "rejected_low_confidence": 1,
        "facts_passed_scope_gate": 2,
        "rejected_by_scope_gate": 4,
        "scope_gate_rejections": {
            "facts": {"missing": 0, "scope": 1, "durability": 1, "authority": 1},
            "summaries": {"missing": 0, "scope": 1, "authority": 0},
            "removals": {"missing": 0, "scope": 0, "replacement": 0},
            "consolidations": {"missing": 0, "scope": 0, "durability": 0, "authority": 0},
        },
        "rejected_by_rule": {"threshold": 1, "gate": 4},
    }


@pytest.mark.parametrize("answer", ["no JSON at all", Status(401), Status(503)])
def test_metrics_of_a_failure_say_so(host, answer):
    (told,) = metrics_after(host, answer)
    assert told["success"] is False
    assert "facts_extracted" not in told


def test_a_callback_for_metrics_that_fails_changes_nothing(host):
    def fails(told):
        raise ValueError("x")

    manager = host.manager(ChatModel(), hooks={"extraction_callback": fails})
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]


# Hidden messages.


def test_a_hidden_message_is_kept_where_the_host_says_that_a_person_said_it(host):
    def keep(extra):
        return extra.get("response") == "mine"

    manager = host.manager(ChatModel(), hooks={"should_keep_hidden_message": keep})
    said = [
        HumanMessage("The blue one", id="1", additional_kwargs={"hide_from_ui": True, "response": "mine"}),
        HumanMessage("Reminder", id="2", additional_kwargs={"hide_from_ui": True}),
        AIMessage("Blue it is", id="3"),
    ]
    manager.add("t1", said, user_id="ada")
    turns = manager._hosting.home.memory("ada").transcript("t1")
    assert [turn.content for turn in turns] == ["The blue one", "Blue it is"]


def test_a_hook_for_hidden_messages_that_fails_hides_them(host, caplog):
    def fails(extra):
        raise ValueError("x")

    manager = host.manager(ChatModel(), hooks={"should_keep_hidden_message": fails})
    hidden = HumanMessage("Reminder", id="2", additional_kwargs={"hide_from_ui": True})
    manager.add("t1", [*talk(), hidden], user_id="ada")
    assert len(manager._hosting.home.memory("ada").transcript("t1")) == 2
    assert "should_keep_hidden_message" in caplog.text


def test_the_hook_is_asked_again_about_a_message_that_it_failed_at(host):
    fails = True

    def keep(extra: dict[str, object]) -> bool:
        if fails:
            raise RuntimeError("not now")
        return True

    manager = host.manager(ChatModel(), hooks={"should_keep_hidden_message": keep})
    hidden = HumanMessage("I live in Oslo.", id="x1", additional_kwargs={"hide_from_ui": True})
    said = [hidden, AIMessage("Noted.", id="x2"), *talk()]
    for thread in ("t0", "t1"):
        manager.add(thread, said, user_id="ada")
    fails = False
    manager.add("t1", said, user_id="ada")
    assert "x1" in [turn.id for turn in manager._hosting.home.memory("ada").transcript("t1")]


# Where hooks may stand.


def test_any_hook_in_the_configuration_beats_the_hosts(host):
    ours, theirs = [], []
    never = ChatModel(AssertionError("the host's was asked"))
    hooks = {"extraction_callback": theirs.append}
    manager = host.manager(never, hooks=hooks, extraction_callback=ours.append, host_llm_factory=ChatModel)
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert (len(ours), len(theirs)) == (1, 0)


def test_a_hook_in_the_configuration_beats_the_hosts_and_does_not_stay_there(host):
    ours, theirs = Told(), Told()
    manager = host.manager(ChatModel(), hooks={"callbacks": theirs}, callbacks=ours, should_keep_hidden_message=bool)
    manager.add("t1", talk(), user_id="ada")
    learned(manager)
    assert (len(ours.calls), len(theirs.calls)) == (1, 0)
    json.dumps(manager.backend_config)
    assert set(manager.backend_config) == {"storage_path", "min_seconds_between_calls"}


# What fails.


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no json", "(the answer cannot be read), and turns 1 to 2 are parked, see commit 2: `backstory retry` asks"),
        (ValueError("no such deployment"), "are parked, see commit 2"),
    ],
)
def test_an_update_that_is_parked_is_one_warning_in_the_log_of_the_gateway(host, caplog, answer, reason):
    manager = host.manager(ChatModel(answer), max_attempts=1)
    manager.add("t1", talk("My pin is 4711."), user_id="ada", agent_name="coder")
    manager.shutdown_flush(PATIENCE)
    told = [record for record in caplog.records if "parked" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]
    assert "user ada, agent coder, thread t1: an update failed" in told[0].getMessage()
    assert reason in told[0].getMessage()
    assert "4711" not in caplog.text
