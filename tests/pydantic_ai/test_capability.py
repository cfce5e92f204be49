"""The capability in runs of Pydantic AI's own agent, on its models for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from fakes import reply
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ImageUrl, ToolDefinition
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from backstory import Backstory
from backstory.ledger.core.errors import ConfigError, LockTimeoutError, ScopeError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.pydantic_ai import BackstoryMemory

Answers = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


class Scripted:
    """A model that gives its answers in turn, and keeps what it was sent."""

    def __init__(self, *answers: str | ToolCallPart | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._answer, stream_function=self._stream)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(messages)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return ModelResponse(parts=[TextPart(said) if isinstance(said, str) else said])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo):
        (part,) = self._answer(messages, info).parts
        for word in part.content.split(" "):
            yield f"{word} "

    def texts(self, call: int = -1) -> list[str]:
        """All texts of a call, in order."""
        return [part.content for message in self.sent[call] for part in message.parts if hasattr(part, "content")]


def agent(bs: Backstory, model: Scripted, **more: object) -> Agent:
    given = {"instructions": "Be kind.", **more}
    return Agent(model.model, capabilities=[BackstoryMemory(bs, user_id="ada")], **given)


def said(bs: Backstory, thread: str = "t", user: str | None = "ada", name: str | None = None) -> list[str]:
    memory = bs.memory_of(Scope(user, name))
    if thread not in [known.thread for known in memory.threads()]:
        return []
    return [f"{turn.role}: {turn.content}" for turn in memory.transcript(thread)]


def streamed(one: Agent, words: str, **more: object) -> str:
    async def run() -> str:
        async with one.run_stream(words, **more) as result:
            return [text async for text in result.stream_text(debounce_by=None)][-1]

    return asyncio.get_event_loop().run_until_complete(run())


def whole(one: Agent, words: str, **more: object) -> str:
    return str(one.run_sync(words, **more).output)


BOTH = pytest.mark.parametrize("ask", [whole, streamed])


# What a run gets and leaves.


@BOTH
def test_the_block_reaches_the_model_and_both_words_are_recorded(bs, ask):
    bs.memory("ada").add_fact("Ada plays the cello")
    scripted = Scripted("The cello.")
    assert ask(agent(bs, scripted), "What do I play?", conversation_id="t").strip() == "The cello."
    assert any(text.startswith("<memory>\n") and "Ada plays the cello" in text for text in scripted.texts())
    assert [line.strip() for line in said(bs)] == ["user: What do I play?", "assistant: The cello."]


@BOTH
def test_a_question_is_on_disk_before_the_model_is_asked_and_stays_when_it_fails(bs, ask):
    scripted = Scripted("first", RuntimeError("down"))
    seen = []
    scripted.model = FunctionModel(
        lambda messages, info: seen.append(said(bs)) or scripted._answer(messages, info),
        stream_function=scripted._stream,
    )
    one = agent(bs, scripted)
    whole(one, "One", conversation_id="t")
    assert seen == [["user: One"]]
    with pytest.raises(RuntimeError, match="down"):
        ask(one, "Two", conversation_id="t")
    assert said(bs) == ["user: One", "assistant: first", "user: Two"]


def test_facts_are_learned_and_told_in_the_next_conversation(bs):
    whole(agent(bs, Scripted("Nice.")), "I moved to Bergen", conversation_id="monday")
    memory = bs.memory("ada")
    memory.extract([{"thread_id": "monday", "reply": reply("Ada lives in Bergen")}])
    (fact,) = memory.facts()
    assert memory.why(fact.id).evidence[0].content == "I moved to Bergen"
    scripted = Scripted("In Bergen.")
    whole(agent(bs, scripted), "Where do I live?", conversation_id="tuesday")
    assert any("Ada lives in Bergen" in text for text in scripted.texts())
    (answer,) = (turn for turn in memory.transcript("tuesday") if turn.role == "assistant")
    assert memory.why_said(answer.id).facts[0].id == fact.id


def test_what_a_call_gets_never_enters_the_history(bs):
    bs.memory("ada").add_fact("Ada plays the cello")
    one = agent(bs, Scripted("The cello.", "Since 2020."))
    first = one.run_sync("What do I play?")
    second = one.run_sync("Since when?", message_history=first.all_messages())
    assert b"memory>" not in second.all_messages_json()


def test_runs_with_one_history_are_one_thread_and_each_word_is_recorded_once(bs):
    one = agent(bs, Scripted("Fine.", "Fine."))
    first = one.run_sync("ok")
    one.run_sync("ok", message_history=first.all_messages())
    (thread,) = bs.memory("ada").threads()
    assert said(bs, thread.thread) == ["user: ok", "assistant: Fine."] * 2


def test_what_stands_is_behind_the_system_prompt_and_what_is_found_before_the_newest_question(bs):
    memory = bs.memory("ada")
    memory.add_fact("Ada's cat is called Whiskers", confidence=0.7)
    for n in range(30):
        memory.add_fact(f"Ada once counted to {n} thousand in the garden", confidence=0.95)
    scripted = Scripted("Hi.", ToolCallPart("look", {}), "Whiskers.", "Yes.")
    one = Agent(
        scripted.model,
        system_prompt="Answer in one word.",
        capabilities=[BackstoryMemory(bs, user_id="ada", max_tokens=120)],
    )
    one.tool_plain(lambda: "done", name="look")
    history: list[ModelMessage] = []
    for words in ("hello", "what is the name of my cat?", ["and my cat?", ImageUrl("https://example.com/a.png")]):
        history = one.run_sync(words, message_history=history).all_messages()
    found = "<memory>\nFacts for this question:\n- [context | 0.70] Ada's cat is called Whiskers\n</memory>\n\n"
    asked = [
        [part.content for message in call for part in message.parts if isinstance(part, UserPromptPart)]
        for call in scripted.sent
    ]
    assert asked[:3] == [["hello"], *[["hello", f"{found}what is the name of my cat?"]] * 2]
    assert asked[3][1:] == [
        "what is the name of my cat?",
        [found, "and my cat?", ImageUrl("https://example.com/a.png")],
    ]
    heads = [call[0].parts for call in scripted.sent]
    assert {tuple(map(type, parts)) for parts in heads} == {(SystemPromptPart, SystemPromptPart, UserPromptPart)}
    assert {parts[0].content for parts in heads} == {"Answer in one word."}
    (standing,) = {parts[1].content for parts in heads}
    assert "in the garden" in standing


@pytest.mark.parametrize(
    ("prompt", "recorded"),
    [
        (["Look at", ImageUrl("https://example.com/a.png"), TextContent("this fjord")], ["user: Look at\nthis fjord"]),
        ([ImageUrl("https://example.com/a.png")], []),
    ],
)
def test_of_a_prompt_with_pictures_the_words_are_recorded(bs, prompt, recorded):
    bs.memory("ada").add_fact("Ada likes fjords")
    agent(bs, Scripted("Pretty.")).run_sync(prompt, conversation_id="t")
    assert said(bs) == [*recorded, "assistant: Pretty."]


def test_a_history_that_ends_with_the_question_is_a_question(bs):
    """As adapters of user interfaces run an agent."""
    history = [
        ModelRequest.user_text_prompt("Hello"),
        ModelResponse(parts=[TextPart("Hello!")]),
        ModelRequest.user_text_prompt("I row."),
    ]
    agent(bs, Scripted("Good.")).run_sync(message_history=history, conversation_id="t")
    assert said(bs) == ["user: I row.", "assistant: Good."]


def test_of_calls_of_tools_only_the_final_answer_is_recorded(bs):
    one = agent(bs, Scripted(ToolCallPart("look", {}), "It is there."))
    one.tool_plain(lambda: "the key is under the mat", name="look")
    one.run_sync("Where is the key?", conversation_id="t")
    assert said(bs) == ["user: Where is the key?", "assistant: It is there."]


def test_a_structured_answer_is_recorded_as_json(bs):
    class Town(BaseModel):
        name: str

    one = Agent(
        TestModel(custom_output_args={"name": "Bergen"}),
        output_type=Town,
        capabilities=[BackstoryMemory(bs, user_id="ada")],
    )
    one.run_sync("Where?", conversation_id="t")
    assert said(bs) == ["user: Where?", 'assistant: {"name":"Bergen"}']


def test_a_run_that_waits_for_its_tools_has_no_answer_yet(bs):
    from pydantic_ai import DeferredToolResults
    from pydantic_ai.toolsets import ExternalToolset

    outside = ExternalToolset([ToolDefinition(name="look", parameters_json_schema={"type": "object"})])
    one = agent(
        bs,
        Scripted(ToolCallPart("look", {}, tool_call_id="c1"), "There."),
        toolsets=[outside],
        output_type=[str, DeferredToolRequests],
    )
    waiting = one.run_sync("Where?", conversation_id="t")
    assert said(bs) == ["user: Where?"]
    results = DeferredToolResults(calls={"c1": "under the mat"})
    one.run_sync(message_history=waiting.all_messages(), deferred_tool_results=results, conversation_id="t")
    assert said(bs) == ["user: Where?", "assistant: There."]


def test_a_run_that_is_run_again_with_its_id_is_recorded_once(bs):
    one = agent(bs, Scripted("Fine.", "Fine."))
    for _ in range(2):
        one.run_sync("I row.", run_id="r1", conversation_id="t")
    assert said(bs) == ["user: I row.", "assistant: Fine."]


def test_without_recording_memory_is_read_and_nothing_is_kept(bs):
    bs.memory("ada").add_fact("Ada plays the cello")
    scripted = Scripted("The cello.")
    Agent(scripted.model, capabilities=[BackstoryMemory(bs, user_id="ada", record=False)]).run_sync("What do I play?")
    assert any("Ada plays the cello" in text for text in scripted.texts())
    assert not bs.memory("ada").threads()


# Whose memory.


@pytest.mark.parametrize(
    "named",
    [
        {"deps": {"user_id": "bob"}},
        {"deps": SimpleNamespace(user_id="bob")},
        {"metadata": {"user_id": "bob"}},
        {"deps": SimpleNamespace(user_id="bob"), "metadata": {"user_id": "eve"}},
    ],
)
def test_the_user_of_a_run_beats_that_of_the_capability(bs, named):
    agent(bs, Scripted("Hi.")).run_sync("I am Bob", conversation_id="t", **named)
    assert said(bs, user="bob") == ["user: I am Bob", "assistant: Hi."]
    assert said(bs) == []


def test_a_user_may_be_a_uuid_and_the_thread_may_be_named_by_the_run(bs):
    who = UUID(int=7)
    agent(bs, Scripted("Hi.")).run_sync("Hello", deps={"user_id": who, "thread_id": "mine"})
    assert said(bs, "mine", str(who)) == ["user: Hello", "assistant: Hi."]


def test_a_run_without_a_user_is_refused_before_the_model_is_asked(bs):
    scripted = Scripted()
    with pytest.raises(ScopeError, match=r"deps\.user_id"):
        Agent(scripted.model, capabilities=[BackstoryMemory(bs)]).run_sync("Hello")
    assert scripted.sent == []


def test_one_memory_of_all_users_and_one_of_an_agent(bs):
    one = Agent(Scripted("Hi.").model, capabilities=[BackstoryMemory(bs, scope="global", agent_name="lead")])
    one.run_sync("Hello", conversation_id="t", deps={"user_id": "ada"})
    assert said(bs, user=None, name="lead") == ["user: Hello", "assistant: Hi."]


def test_runs_at_one_time_keep_their_users_apart(bs):
    async def both() -> None:
        one = agent(bs, Scripted(*["Hi."] * 8))
        await asyncio.gather(*(one.run(f"I am {n}", deps={"user_id": f"u{n}"}, conversation_id="t") for n in range(8)))

    asyncio.get_event_loop().run_until_complete(both())
    assert [said(bs, user=f"u{n}") for n in range(8)] == [[f"user: I am {n}", "assistant: Hi."] for n in range(8)]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"home": "~/memory"}, UsageError),
        ({"scope": "all"}, UsageError),
        ({"max_tokens": 0}, UsageError),
        ({"agent_name": "a b"}, ScopeError),
    ],
)
def test_wrong_use_is_refused_at_once(bs, wrong, error):
    with pytest.raises(error):
        BackstoryMemory(**{"home": bs, **wrong})


def test_a_shared_memory_that_the_configuration_forbids_is_refused(tmp_path):
    with (
        Backstory.open(tmp_path, strict_user_scope=True) as bs,
        pytest.raises((ScopeError, ConfigError), match="strict_user_scope"),
    ):
        BackstoryMemory(bs, scope="global")


# Faults of memory.


def test_a_memory_that_cannot_be_read_or_written_breaks_no_run(bs, monkeypatch):
    def locked(*_: object, **__: object) -> None:
        raise LockTimeoutError("locked")

    scripted = Scripted("Hi.")
    one = agent(bs, scripted)
    with monkeypatch.context() as patch:
        patch.setattr(Backstory, "memory_of", locked)
        assert whole(one, "Hello", conversation_id="t") == "Hi."
    assert scripted.texts() == ["Hello"]
    assert BackstoryMemory(bs, user_id="ada").flush()
    assert said(bs) == ["user: Hello", "assistant: Hi."]


def test_an_empty_memory_leaves_a_call_unchanged(bs):
    scripted = Scripted("Hi.")
    whole(agent(bs, scripted), "Hello")
    assert scripted.texts() == ["Hello"]


def test_the_example_of_the_page_runs_as_a_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    page = (Path(__file__).parents[2] / "docs/how-to/pydantic-ai.md").read_text(encoding="utf-8")
    block = page.split("\n\n`BackstoryMemory` is")[0]
    lines = [line[4:] for line in block.splitlines() if line.startswith("    ") and "pip install" not in line]
    code = "\n".join(lines).replace('"openai:gpt-5-mini"', "scripted")
    assert "scripted" in code
    exec(compile(code, "pydantic-ai.md", "exec"), {"scripted": Scripted("In Bergen.").model})  # noqa: S102 it is our own page
    assert capsys.readouterr().out == "In Bergen.\n"
    with Backstory.open(tmp_path / ".backstory") as bs:
        assert said(bs, "thread-1") == ["user: Where do I live?", "assistant: In Bergen."]
