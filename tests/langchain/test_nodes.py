"""Nodes for a graph of one's own: what they put into the state, what they record, and for whom."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
from pathlib import Path
from typing import Annotated

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, interrupt
from scripted_agents import Scripted, config, run, said, threads

from backstory import Backstory
from backstory.langchain import MemoryNodes, MemoryState
from backstory.ledger.core.errors import ScopeError, UsageError


def graph(nodes: MemoryNodes, model: Scripted | None = None, *, asynchronous=False, saver=None, state=MemoryState):
    asked = model or Scripted()

    def prompt(state) -> list[AnyMessage]:
        return [SystemMessage(f"Be kind.\n\n{state['memory']}"), *state["messages"]]

    def answer(state):
        return {"messages": [asked.invoke(prompt(state))]}

    async def aanswer(state):
        return {"messages": [await asked.ainvoke(prompt(state))]}

    built = StateGraph(state)
    built.add_node("before", nodes.abefore if asynchronous else nodes.before)
    built.add_node("model", aanswer if asynchronous else answer)
    built.add_node("after", nodes.aafter if asynchronous else nodes.after)
    for one, other in ((START, "before"), ("before", "model"), ("model", "after"), ("after", END)):
        built.add_edge(one, other)
    return built.compile(checkpointer=saver)


def ask(built, text: str, user: str | None = "ada", thread: str = "t", **more) -> dict:
    return run(built, [HumanMessage(text)], user, thread, **more)


# Async nodes need `ainvoke`.
@pytest.mark.parametrize(("asynchronous", "called"), [(False, "invoke"), (False, "ainvoke"), (True, "ainvoke")])
def test_the_block_reaches_the_model_and_both_words_are_recorded(bs, asynchronous, called):
    bs.memory("ada").add_fact("Ada plays the cello")
    model = Scripted("I know.")
    built = graph(MemoryNodes(bs), model, asynchronous=asynchronous)
    given = {"messages": [HumanMessage("What do I play?")]}
    if called == "invoke":
        built.invoke(given, config())
    else:
        asyncio.run(built.ainvoke(given, config()))
    (system,) = model.systems
    assert system.startswith("Be kind.\n\n<memory>\n")
    assert "Ada plays the cello" in system
    assert said(bs) == ["user: What do I play?", "assistant: I know."]


def test_the_prompt_has_what_stands_first_and_what_is_found_before_the_question(bs):
    memory = bs.memory("ada")
    cat = memory.add_fact("Ada's cat is called Whiskers", confidence=0.7).fact.id
    for n in range(30):
        memory.add_fact(f"Ada once counted to {n} thousand in the garden", confidence=0.95)
    nodes, model = MemoryNodes(bs, max_tokens=120), Scripted("Whiskers.")
    built = StateGraph(MemoryState)
    answer = {"messages": lambda state: [model.invoke(nodes.prompt(state, "Be kind."))]}
    built.add_sequence(
        [("before", nodes.before), ("model", lambda s: {"messages": answer["messages"](s)}), ("after", nodes.after)]
    )
    built.set_entry_point("before")
    state = ask(built.compile(), "what is the name of my cat?")
    (sent,) = model.sent
    assert [message.text for message in sent] == [
        f"Be kind.\n\n{state['memory']}",
        f"{state['memory_found']}\n\nwhat is the name of my cat?",
    ]
    assert "Whiskers" in state["memory_found"]
    assert state["messages"][0].text == "what is the name of my cat?"
    assert memory.transcript("t")[-1].metadata["context"]["facts"][-1] == cat
    assert nodes.prompt({"messages": [], "memory": "", "memory_found": ""}) == []


def test_with_a_checkpointer_each_message_is_recorded_once(bs):
    built = graph(MemoryNodes(bs), saver=InMemorySaver())
    for words in ("one", "ok", "ok"):
        ask(built, words)
    assert said(bs) == [
        line for words in ("one", "ok", "ok") for line in (f"user: {words}", f"assistant: echo: {words}")
    ]


def test_without_one_the_host_may_send_the_whole_conversation_each_time(bs):
    built = graph(MemoryNodes(bs))
    history: list[object] = []
    for words in ("I live in Bergen", "I play the cello"):
        history = run(built, [*history, HumanMessage(words)])["messages"]
    assert [line.partition(":")[0] for line in said(bs)] == ["user", "assistant"] * 2


def test_a_question_is_on_disk_before_the_model_is_asked_and_stays_when_it_fails(bs):
    seen: list[list[str]] = []

    def look(_):
        seen.append(said(bs))
        return "done"

    built = graph(MemoryNodes(bs), Scripted(look, RuntimeError("down"), "here again"), saver=InMemorySaver())
    ask(built, "first")
    assert seen == [["user: first"]]
    with pytest.raises(RuntimeError, match="down"):
        ask(built, "second")
    assert said(bs)[-1] == "user: second"
    built.invoke(None, config())
    assert said(bs) == ["user: first", "assistant: done", "user: second", "assistant: here again"]


def test_an_earlier_block_does_not_stay_in_the_state(bs):
    memory, model = bs.memory("ada"), Scripted()
    fact = memory.add_fact("Ada plays the cello").fact
    built = graph(MemoryNodes(bs), model, saver=InMemorySaver())
    assert "cello" in ask(built, "hi")["memory"]
    memory.forget(fact.id)
    assert ask(built, "ho")["memory"] == ""
    assert "cello" not in model.systems[-1]


def test_memory_that_cannot_be_read_or_written_does_not_break_the_graph(bs, tmp_path, monkeypatch, caplog):
    built = graph(MemoryNodes(bs), saver=InMemorySaver())
    bs.memory("ada").add_fact("Ada plays the cello")
    ask(built, "hi")

    def broken(*_: object, **__: object):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Backstory, "memory_of", broken)
        state = ask(built, "ho")
    assert state["messages"][-1].text == "echo: ho"
    assert state["memory"] == ""
    assert {fault.doing for fault in bs.faults.of(bs.memory("ada"))} == {"record", "inject"}
    assert MemoryNodes(bs).flush()
    assert said(bs)[-2:] == ["user: ho", "assistant: echo: ho"]


def test_users_have_their_own_memory_and_a_shared_thread_is_told_apart(bs):
    built = graph(MemoryNodes(bs), saver=InMemorySaver())
    ask(built, "I am Ada", user=None, context={"user_id": "ada"})
    ask(built, "I am Bob", user="bob")
    assert said(bs) == ["user: I am Ada", "assistant: echo: I am Ada"]
    assert said(bs, "bob") == ["user: I am Bob", "assistant: echo: I am Bob"]


def test_a_run_without_a_user_is_refused_as_by_the_middleware(bs):
    model = Scripted()
    with pytest.raises(ScopeError, match="no user id"):
        ask(graph(MemoryNodes(bs), model), "hi", user=None)
    assert model.sent == []
    ask(graph(MemoryNodes(bs, scope="global")), "hi", user=None)
    assert threads(bs, None) == ["t"]


def test_an_interrupted_run_belongs_to_the_user_who_asked(bs):
    nodes = MemoryNodes(bs)
    built = StateGraph(MemoryState)
    built.add_node("before", nodes.before)
    built.add_node("model", lambda _: {"messages": [("ai", f"so: {interrupt('really?')}")]})
    built.add_node("after", nodes.after)
    for one, other in ((START, "before"), ("before", "model"), ("model", "after")):
        built.add_edge(one, other)
    compiled = built.compile(checkpointer=InMemorySaver())
    ask(compiled, "do it")
    compiled.invoke(Command(resume="yes"), config("bob"))
    assert said(bs) == ["user: do it", "assistant: so: yes"]
    assert threads(bs, "bob") == []


@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
def test_a_streamed_run_is_recorded_and_shows_no_memory_as_a_message(bs, mode):
    bs.memory("ada").add_fact("Ada plays the cello")
    built = graph(MemoryNodes(bs), Scripted("a long answer"), saver=InMemorySaver())
    parts = list(built.stream({"messages": [HumanMessage("hi")]}, config(), stream_mode=mode))
    assert said(bs) == ["user: hi", "assistant: a long answer"]
    if mode == "messages":
        assert {"before", "after"}.isdisjoint(info["langgraph_node"] for _, info in parts)
        assert "cello" not in "".join(chunk.text for chunk, _ in parts)


def test_a_state_of_the_graphs_own_is_extended(bs):
    class Own(MemoryState):
        steps: Annotated[list[str], operator.add]

    built = graph(MemoryNodes(bs), state=Own)
    state = built.invoke({"messages": [HumanMessage("hi")], "steps": ["one"]}, config())
    assert state["steps"] == ["one"]
    assert said(bs) == ["user: hi", "assistant: echo: hi"]


def test_a_state_may_be_a_dataclass(bs):
    @dataclasses.dataclass
    class Own:
        messages: Annotated[list[AnyMessage], add_messages]
        memory: str = ""
        backstory_runs: dict = dataclasses.field(default_factory=dict)

    nodes = MemoryNodes(bs)
    built = StateGraph(Own)
    built.add_node("before", nodes.before)
    built.add_node("model", lambda state: {"messages": [("ai", f"{len(state.memory)} characters")]})
    built.add_node("after", nodes.after)
    for one, other in ((START, "before"), ("before", "model"), ("model", "after")):
        built.add_edge(one, other)
    run(built.compile(), [HumanMessage("hi")])
    assert said(bs) == ["user: hi", "assistant: 0 characters"]


def test_a_graph_that_keeps_no_run_is_told_how_to_keep_one(bs):
    nodes = MemoryNodes(bs)
    built = StateGraph(MemoryState)
    built.add_node("after", nodes.after)
    built.add_edge(START, "after")
    with pytest.raises(UsageError, match=r"add `before` .* extend MemoryState"):
        ask(built.compile(), "hi")


def test_nodes_that_opened_a_home_close_it(tmp_path):
    with MemoryNodes(tmp_path / "home", max_facts=20) as nodes:
        ask(graph(nodes), "hi")
        assert nodes.backstory.config.settings.max_facts == 20
    with pytest.raises(UsageError):
        nodes.backstory.memory("ada")


def test_nodes_record_also_where_the_configuration_says_that_models_use_tools(tmp_path):
    with Backstory.open(tmp_path / "home", mode="tool") as bs:
        ask(graph(MemoryNodes(bs)), "hi")
        assert said(bs) == ["user: hi", "assistant: echo: hi"]


def test_the_example_of_the_page_runs(bs):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "langchain.md").read_text("utf-8")
    section = page.split("## Nodes of your own graph\n")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    ") or not line.strip())
    names: dict[str, object] = {
        "bs": bs,
        "model": Scripted(),
        "INSTRUCTIONS": "Be kind.",
        "SystemMessage": SystemMessage,
        "StateGraph": StateGraph,
    }
    exec(compile(code, "langchain.md", "exec"), names)  # noqa: S102 it is our own page
    ask(names["graph"].compile(), "hi")
    assert said(bs) == ["user: hi", "assistant: echo: hi"]
