"""The block in the system message of every call: at its end, once, up to date, and nowhere else."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agents import Scripted, agent, ask, calls, config, run, said

from backstory.langchain import BackstoryMiddleware
from backstory.langchain.system_message import with_block
from backstory.memory import MemoryHandle
from backstory.outbox.fail_safe import FailSafeMemory


@pytest.fixture
def memory(bs):
    memory = bs.memory("ada")
    memory.add_fact("Ada lives in Oslo")
    return memory


BLOCK = "<memory>\nFacts:\n- [context | 0.90] Ada lives in Oslo\n</memory>"
OTHER = "<memory>\nUser Context:\n- Work: none\n</memory>"


def test_the_block_stands_at_the_end_of_the_system_message(bs, memory):
    model = Scripted()
    ask(agent(bs, model, system_prompt="Be kind."), "hi")
    assert model.systems == [f"Be kind.\n\n{BLOCK}"]


def test_without_a_system_message_the_block_is_one(bs, memory):
    model = Scripted()
    ask(agent(bs, model), "hi")
    assert model.systems == [BLOCK]
    assert [message.type for message in model.sent[0]] == ["system", "human"]


def test_an_empty_memory_leaves_the_request_as_it_is(bs):
    seen = []

    class Watches(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            seen.append(request)
            return handler(request)

    ask(agent(bs, before=[Watches()], after=[type("After", (Watches,), {})()], system_prompt="Be kind."), "hi")
    outer, inner = seen
    assert inner is outer


def test_every_call_of_a_run_gets_the_block_as_memory_is_then(bs, memory):
    @tool
    def learn() -> str:
        """Something happens meanwhile."""
        memory.add_fact("Ada has a dog")
        return "done"

    model = Scripted(calls("learn"), "fine")
    ask(agent(bs, model, tools=[learn], system_prompt="Be kind."), "hi")
    assert ["dog" in system for system in model.systems] == [False, True]
    assert [system.count("<memory>") for system in model.systems] == [1, 1]


def test_the_same_talk_over_the_same_memory_gives_the_same_bytes(bs, memory):
    bs.warm(20)
    for n in range(40):
        memory.add_fact(f"Ada likes the number {n}")
    model = Scripted("a", "b", "c")
    for _ in range(3):
        ask(agent(bs, model, system_prompt="Be kind."), "which numbers do I like?", thread=None)
    assert len(set(model.systems)) == 1


def test_retries_and_fallbacks_do_not_put_it_in_twice(bs, memory):
    retrying = ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False, on_failure="error")
    for place in ("before", "after"):
        failing, fallback = Scripted(*[RuntimeError("down")] * 9), Scripted()
        middles = [ModelFallbackMiddleware(fallback), retrying]
        asked = agent(bs, failing, system_prompt="Be kind.", **{place: middles})
        assert ask(asked, place, thread=place) == f"echo: {place}"
        assert {*failing.systems, *fallback.systems} == {f"Be kind.\n\n{BLOCK}"}
        assert said(bs, thread=place) == [f"user: {place}", f"assistant: echo: {place}"]


def test_two_middlewares_put_in_one_block(bs, memory):
    class Second(BackstoryMiddleware):
        pass

    model = Scripted()
    ask(agent(bs, model, after=[Second(bs)], system_prompt="Be kind."), "hi")
    assert model.systems == [f"Be kind.\n\n{BLOCK}"]
    assert said(bs) == ["user: hi", "assistant: echo: hi"]


def test_a_block_that_a_developer_has_put_into_the_prompt_is_replaced(bs, memory):
    model = Scripted()
    old = memory.context().text
    memory.add_fact("Ada has a dog")
    ask(agent(bs, model, system_prompt=f"Be kind.\n\n{old}\n\nBe brief."), "hi")
    assert model.systems[0].startswith("Be kind.\n\nBe brief.\n\n<memory>\n")
    assert model.systems[0].count("<memory>") == 1
    assert "dog" in model.systems[0]


def test_a_prompt_may_speak_of_the_tag(bs, memory):
    prompt = "What stands in <memory>…</memory> was learned.\n<memory>\nmine\n</memory>"
    model = Scripted()
    ask(agent(bs, model, system_prompt=prompt), "hi")
    assert model.systems == [f"{prompt}\n\n{BLOCK}"]


def test_a_system_message_of_blocks_keeps_them_and_what_marks_them_for_a_cache():
    first = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    message = SystemMessage(content=[first, {"type": "text", "text": f"\n\n{OTHER}"}], id="s")
    changed = with_block(message, BLOCK)
    assert changed.content == [first, {"type": "text", "text": f"\n\n{BLOCK}"}]
    assert changed.id == "s"
    assert with_block(changed, BLOCK) is changed
    assert with_block(changed, "").content == [first]
    assert with_block(SystemMessage(content=["plain", {"type": "image", "url": "x"}]), BLOCK).content == [
        "plain",
        {"type": "image", "url": "x"},
        {"type": "text", "text": f"\n\n{BLOCK}"},
    ]


def test_a_block_is_put_in_replaced_and_taken_out_without_a_trace():
    bare = SystemMessage("Be kind.\n")
    put = with_block(bare, OTHER)
    assert put.content == f"Be kind.\n\n\n{OTHER}"
    assert with_block(put, BLOCK).content == f"Be kind.\n\n\n{BLOCK}"
    assert with_block(put, "").content == bare.content
    assert with_block(bare, "") is bare
    assert with_block(None, "") is None
    assert with_block(SystemMessage(f"{OTHER}\n\nBe kind."), "").content == "Be kind."
    assert with_block(SystemMessage(f"{OTHER}Close with </memory>."), "").content == "Close with </memory>."


def test_a_cleared_memory_takes_its_block_out_of_the_prompt(bs, memory):
    old = memory.context().text
    memory.clear()
    model = Scripted()
    ask(agent(bs, model, system_prompt=f"Be kind.\n\n{old}"), "hi")
    assert model.systems == ["Be kind."]


def test_the_block_never_enters_the_state(bs, memory):
    mine = agent(bs, checkpointer=InMemorySaver(), system_prompt="Be kind.")
    ask(mine, "hi")
    assert "Oslo" not in str(mine.get_state(config()).values)
    assert not any("Oslo" in line for line in said(bs))


def test_max_tokens_bounds_the_block(bs, memory):
    for n in range(60):
        memory.add_fact(f"Ada has visited the city with the long name number {n}")
    model = Scripted()
    ask(agent(bs, model, memory={"max_tokens": 100}), "hi")
    assert 1 <= model.systems[0].count("\n- ") <= 8


def test_a_failing_tool_that_is_retried_records_one_answer(bs, memory):
    outcomes = [RuntimeError("once"), "fine"]

    @tool
    def shaky() -> str:
        """Works the second time."""
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    ask(agent(bs, Scripted(calls("shaky"), "done"), tools=[shaky], after=[retry]), "try")
    assert said(bs) == ["user: try", "assistant: done"]


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"])
def test_every_way_of_streaming_carries_the_answer_and_injects(bs, memory, mode):
    model = Scripted("a streamed answer")
    mine = agent(bs, model, checkpointer=InMemorySaver(), system_prompt="Be kind.")
    parts = list(mine.stream({"messages": [HumanMessage("hi")]}, config(), stream_mode=mode))
    assert parts or mode == "custom"
    assert model.systems == [f"Be kind.\n\n{BLOCK}"]
    assert said(bs) == ["user: hi", "assistant: a streamed answer"]
    if mode != "custom":
        assert "Oslo" not in str(parts)


def test_streaming_on_an_event_loop_injects_and_records(bs, memory):
    model = Scripted("a streamed answer")
    mine = agent(bs, model, system_prompt="Be kind.")

    async def stream() -> list[object]:
        asked = {"messages": [HumanMessage("hi")]}
        return [part async for part in mine.astream(asked, config(), stream_mode="messages")]

    assert len(asyncio.run(stream())) >= 3
    assert model.systems == [f"Be kind.\n\n{BLOCK}"]
    assert said(bs) == ["user: hi", "assistant: a streamed answer"]


def crowded(bs):
    """A memory of more facts than fit into 120 tokens."""
    memory = bs.memory("ada")
    memory.add_fact("Ada's cat is called Whiskers", confidence=0.7)
    for n in range(30):
        memory.add_fact(f"Ada once counted to {n} thousand in the garden", confidence=0.95)
    return memory


def test_what_a_question_finds_goes_directly_before_it(bs):
    crowded(bs)
    model = Scripted()
    mine = agent(bs, model, memory={"max_tokens": 120})
    run(mine, [HumanMessage("hi"), AIMessage("hello"), HumanMessage("what is the name of my cat?")])
    (sent,) = model.sent
    assert "Whiskers" not in sent[0].text
    assert "thousand" in sent[0].text
    found = "<memory>\nFacts for this question:\n- [context | 0.70] Ada's cat is called Whiskers\n</memory>"
    assert [message.text for message in sent[1:]] == ["hi", "hello", f"{found}\n\nwhat is the name of my cat?"]
    # It is in the call alone.
    assert said(bs)[-2] == "user: what is the name of my cat?"


def test_what_a_question_in_parts_finds_is_its_first_part(bs):
    crowded(bs)
    model = Scripted("Whiskers.")
    parts = [{"type": "text", "text": "what is the name of my cat?"}]
    run(agent(bs, model, memory={"max_tokens": 120}), [HumanMessage(parts)])
    first, second = model.sent[0][1].content
    assert "Whiskers" in first["text"]
    assert second == parts[0]


def test_fifty_calls_have_one_standing_part_and_each_begins_as_the_one_before(bs):
    crowded(bs)
    model = Scripted(*(f"answer {n}" for n in range(12)))
    mine = agent(bs, model, memory={"max_tokens": 120})
    said: list[object] = []
    for n in range(12):
        said.append(HumanMessage(f"what is {'the name of my cat' if n % 2 else 'in the garden'}, {n}?"))
        said.append(run(mine, said)["messages"][-1])
    assert len(set(model.systems)) == 1
    for before, after in itertools.pairwise(model.sent):
        newest = len(before) - 1
        assert [m.content for m in before[:newest]] == [m.content for m in after[:newest]]


def test_the_turn_of_an_answer_notes_what_it_was_given(bs):
    memory = bs.memory("ada")
    tea = memory.add_fact("Ada likes tea").fact.id
    run(agent(bs, Scripted("Tea.", "Coffee.")), [HumanMessage("What do I like?")])
    (thread,) = memory.threads()
    question, answer = memory.transcript(thread.thread)
    assert question.metadata == {}
    noted = answer.metadata["context"]
    assert (noted["facts"], noted["turns"], noted["seq"], len(noted["digest"])) == ([tea], [], memory.head().seq, 64)
    assert "tea" not in str(noted).replace(tea, "")


@pytest.fixture
def read(monkeypatch):
    """How memory was read: in which thread of the program, and for which conversation."""
    seen: list[tuple[threading.Thread, str | None]] = []
    context = MemoryHandle.context

    def watched(*args, thread: str | None, **more):
        seen.append((threading.current_thread(), thread))
        return context(*args, thread=thread, **more)

    monkeypatch.setattr(MemoryHandle, "context", watched)
    return seen


def test_the_summaries_of_the_conversation_are_asked_for(bs, read):
    ask(agent(bs), "hi", thread="t 1")
    ask(agent(bs, memory={"mode": "tool"}), "hi", thread=None)
    assert [thread for _, thread in read] == ["t 1", None]


def test_an_event_loop_never_waits_for_memory(bs, read, monkeypatch):
    wrote: list[threading.Thread] = []
    record = FailSafeMemory.record
    monkeypatch.setattr(
        FailSafeMemory,
        "record",
        lambda *args, **more: wrote.append(threading.current_thread()) or record(*args, **more),
    )
    asyncio.run(agent(bs).ainvoke({"messages": [HumanMessage("hi")]}, config()))
    assert len(wrote) == 2
    assert len(read) == 1
    assert threading.main_thread() not in [*wrote, read[0][0]]
