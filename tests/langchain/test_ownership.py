"""Whose words they are: users who share a thread, agents that share one, agents that are tools of others."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from scripted_agents import Scripted, agent, ask, calls, config, run, said, threads

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware


def test_the_words_of_a_user_who_leaves_a_thread_stay_out_of_the_next_ones_memory(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    ask(mine, "I am Ada")
    ask(mine, "I am Bob", user="bob")
    ask(mine, "Ada again")
    assert said(bs) == ["user: I am Ada", "assistant: echo: I am Ada", "user: Ada again", "assistant: echo: Ada again"]
    assert said(bs, "bob") == ["user: I am Bob", "assistant: echo: I am Bob"]


def test_a_checkpointer_remembers_whose_words_they_are_in_another_process(bs):
    saver = InMemorySaver()
    ask(agent(bs, checkpointer=saver), "I am Ada")
    ask(agent(bs, checkpointer=saver), "I am Bob", user="bob")
    ask(agent(bs, checkpointer=saver), "Ada again")
    assert said(bs) == ["user: I am Ada", "assistant: echo: I am Ada", "user: Ada again", "assistant: echo: Ada again"]
    assert said(bs, "bob") == ["user: I am Bob", "assistant: echo: I am Bob"]


def test_without_a_checkpointer_the_process_remembers_whose_words_they_are(bs):
    mine = agent(bs)
    history: list[dict[str, object]] = []
    for user, text in (("ada", "I am Ada"), ("bob", "I am Bob"), ("ada", "Ada again"), ("bob", "Bob again")):
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history, user)["messages"][-1].text})
    assert said(bs) == ["user: I am Ada", "assistant: echo: I am Ada", "user: Ada again", "assistant: echo: Ada again"]
    assert said(bs, "bob")[::2] == ["user: I am Bob", "user: Bob again"]


def test_a_user_who_goes_on_from_a_conversation_without_a_thread_gets_none_of_the_others_words(bs):
    mine = agent(bs)
    history = run(mine, [HumanMessage("I am Ada")], thread=None)["messages"]
    told = [{"role": message.type, "content": message.text} for message in history]
    run(mine, [*told, HumanMessage("I am Bob")], "bob", None)
    assert threads(bs) == threads(bs, "bob")
    assert said(bs, "bob", threads(bs, "bob")[0]) == ["user: I am Bob", "assistant: echo: I am Bob"]


def test_users_whose_conversations_begin_alike_each_go_on_from_their_own(bs):
    mine = agent(bs)
    told = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "echo: hi"}]
    for user in ("ada", "bob"):
        ask(mine, "hi", user=user, thread=None)
    run(mine, [*told, HumanMessage("Ada again")], thread=None)
    (thread,) = threads(bs)
    assert thread not in threads(bs, "bob")
    assert len(said(bs, thread=thread)) == 4


def test_a_message_is_known_by_its_id_where_the_words_before_it_are_left_out(bs):
    mine = agent(bs)
    history = run(mine, [HumanMessage("first")])["messages"]
    history = run(mine, [*history, HumanMessage("Ada's secret")])["messages"]
    run(mine, [*history[2:], HumanMessage("I am Bob")], "bob")
    assert said(bs, "bob") == ["user: I am Bob", "assistant: echo: I am Bob"]


def test_two_middlewares_with_memories_of_their_own_both_record(bs):
    class Everybody(BackstoryMiddleware):
        pass

    mine = agent(bs, after=[Everybody(bs, scope="global")], checkpointer=InMemorySaver())
    for text in ("one", "two"):
        ask(mine, text)
    expected = ["user: one", "assistant: echo: one", "user: two", "assistant: echo: two"]
    assert said(bs) == said(bs, None) == expected


def test_the_same_words_of_another_user_are_theirs(bs):
    mine = agent(bs)
    ask(mine, "hi")
    ask(mine, "hi", user="bob")
    assert said(bs) == said(bs, "bob") == ["user: hi", "assistant: echo: hi"]


def test_a_question_that_was_never_answered_stays_with_whoever_asked_it(bs):
    mine = agent(bs, Scripted(RuntimeError("down")), checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        ask(mine, "Ada's secret")
    ask(mine, "Bob's question", user="bob")
    assert said(bs) == ["user: Ada's secret"]
    assert said(bs, "bob") == ["user: Bob's question", "assistant: echo: Bob's question"]


def test_nobody_is_told_what_another_user_of_the_thread_has_in_memory(bs):
    bs.memory("ada").add_fact("Ada lives in Oslo")
    bs.memory("bob").add_fact("Bob lives in Bergen")
    model = Scripted()
    mine = agent(bs, model, checkpointer=InMemorySaver())
    ask(mine, "hi")
    ask(mine, "hi", user="bob")
    assert ["Oslo" in system for system in model.systems] == [True, False]
    assert ["Bergen" in system for system in model.systems] == [False, True]


def test_two_agents_of_one_user_on_one_thread_record_the_same_words_once(bs):
    saver = InMemorySaver()
    ask(agent(bs, Scripted("one"), checkpointer=saver), "first")
    ask(agent(bs, Scripted("two"), checkpointer=saver), "second")
    assert said(bs) == ["user: first", "assistant: one", "user: second", "assistant: two"]


def test_two_agents_with_memories_of_their_own_each_record_what_they_took_part_in(bs):
    saver = InMemorySaver()
    ask(agent(bs, checkpointer=saver, memory={"agent_name": "one"}), "first")
    ask(agent(bs, checkpointer=saver, memory={"agent_name": "two"}), "second")
    first = ["user: first", "assistant: echo: first"]
    assert said(bs, agent="one") == first
    assert said(bs, agent="two") == [*first, "user: second", "assistant: echo: second"]


def _handoff(bs: Backstory, saver: InMemorySaver | None, names: bool):
    """A desk that hands over to a specialist, both with memory, on one conversation."""

    @tool
    def hand_over(runtime: ToolRuntime) -> Command:
        """Hand over to the specialist."""
        told = ToolMessage("handed over", tool_call_id=runtime.tool_call_id)
        return Command(goto="specialist", graph=Command.PARENT, update={"messages": [*runtime.state["messages"], told]})

    pipeline = create_agent(
        Scripted(calls("hand_over")),
        tools=[hand_over],
        middleware=[BackstoryMiddleware(bs, agent_name="desk" if names else None)],
    )
    specialist = create_agent(
        Scripted("the special answer"),
        middleware=[BackstoryMiddleware(bs, agent_name="specialist" if names else None)],
    )
    graph = StateGraph(MessagesState)
    graph.add_node("desk", pipeline)
    graph.add_node("specialist", specialist)
    graph.add_edge(START, "desk")
    graph.add_edge("specialist", END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_handover_records_the_question_once_and_the_final_answer(bs, checkpointed):
    graph = _handoff(bs, InMemorySaver() if checkpointed else None, names=False)
    graph.invoke({"messages": [HumanMessage("a hard one")]}, config())
    assert said(bs) == ["user: a hard one", "assistant: the special answer"]


def test_a_handover_between_agents_with_memories_of_their_own_records_the_answer_with_who_gave_it(bs):
    graph = _handoff(bs, InMemorySaver(), names=True)
    graph.invoke({"messages": [HumanMessage("a hard one")]}, config())
    assert said(bs, agent="desk") == ["user: a hard one"]
    assert said(bs, agent="specialist") == ["user: a hard one", "assistant: the special answer"]


@pytest.mark.parametrize("process", ["same", "another"])
def test_an_agent_that_is_a_node_of_a_graph_keeps_users_apart(bs, process):
    saver = InMemorySaver()

    def as_node():
        graph = StateGraph(MessagesState)
        graph.add_node("agent", agent(bs))
        graph.add_edge(START, "agent")
        return graph.compile(checkpointer=saver)

    compiled = as_node()
    compiled.invoke({"messages": [HumanMessage("I am Ada")]}, config())
    compiled = compiled if process == "same" else as_node()
    compiled.invoke({"messages": [HumanMessage("I am Bob")]}, config("bob"))
    assert said(bs) == ["user: I am Ada", "assistant: echo: I am Ada"]
    assert said(bs, "bob") == ["user: I am Bob", "assistant: echo: I am Bob"]


def _nested(bs: Backstory, outer_has_memory: bool, how: str, model: Scripted):
    inner = agent(bs, model)

    if how == "inherited":

        @tool
        def research(topic: str) -> str:
            """Look something up."""
            return inner.invoke({"messages": [HumanMessage(topic)]})["messages"][-1].text
    elif how == "own config":

        @tool
        def research(topic: str) -> str:
            """Look something up."""
            own = {**config("ada", "sub"), "metadata": {"who": "me"}, "tags": ["x"]}
            return inner.invoke({"messages": [HumanMessage(topic)]}, own)["messages"][-1].text
    elif how == "async":

        @tool
        async def research(topic: str) -> str:
            """Look something up."""
            return (await inner.ainvoke({"messages": [HumanMessage(topic)]}))["messages"][-1].text
    else:

        @tool
        def research(topic: str, runtime: ToolRuntime) -> str:
            """Look something up."""
            return inner.invoke({"messages": [HumanMessage(topic)]}, runtime.config)["messages"][-1].text

    outer = Scripted(calls(("research", {"topic": "secret orders"}), ("research", {"topic": "more"})), "done")
    if outer_has_memory:
        return agent(bs, outer, tools=[research], checkpointer=InMemorySaver())
    return create_agent(outer, tools=[research], checkpointer=InMemorySaver())


OWN_CONFIG = pytest.param(
    "own config",
    marks=pytest.mark.skipif(
        tuple(map(int, version("langgraph").split(".")[:2])) < (1, 2),
        reason="before 1.2 LangGraph says nothing of the tool to a run with a config of its own",
    ),
)


@pytest.mark.parametrize("how", ["inherited", OWN_CONFIG, "runtime config", "async"])
@pytest.mark.parametrize("outer_has_memory", [True, False])
def test_what_an_agent_tells_another_through_a_tool_is_not_recorded_but_memory_is_injected(bs, outer_has_memory, how):
    bs.memory("ada").add_fact("Ada lives in Oslo")
    model = Scripted("found", "found more")
    nested = _nested(bs, outer_has_memory, how, model)
    if how == "async":
        asyncio.run(nested.ainvoke({"messages": [HumanMessage("look it up")]}, config()))
    else:
        nested.invoke({"messages": [HumanMessage("look it up")]}, config())
    assert len(model.systems) == 2
    assert all("Oslo" in system for system in model.systems)
    assert said(bs) == (["user: look it up", "assistant: done"] if outer_has_memory else [])
    assert threads(bs) == (["t"] if outer_has_memory else [])


def test_an_agent_that_is_a_node_of_a_graph_called_as_a_tool_is_not_recorded_either(bs):
    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent(bs))
    graph.add_edge(START, "agent")
    inner = graph.compile()

    @tool
    def research(topic: str) -> str:
        """Look something up."""
        return inner.invoke({"messages": [HumanMessage(topic)]})["messages"][-1].text

    ask(agent(bs, Scripted(calls(("research", {"topic": "orders"})), "done"), tools=[research]), "look it up")
    assert said(bs) == ["user: look it up", "assistant: done"]


def test_two_agents_at_once_on_one_thread_lose_nothing_and_repeat_nothing(bs):
    both = threading.Barrier(2, timeout=20)

    def meet(messages) -> str:
        both.wait()
        return f"answer to {messages[-1].text}"

    history = [HumanMessage("before"), AIMessage("yes?")]
    mine = agent(bs, Scripted("yes?", meet, meet))
    run(mine, history[:1])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: run(mine, [*history, HumanMessage(text)]), ["left", "right"]))
    recorded = said(bs)
    assert recorded[:2] == ["user: before", "assistant: yes?"]
    assert sorted(recorded[2:]) == [
        "assistant: answer to left",
        "assistant: answer to right",
        "user: left",
        "user: right",
    ]


def test_sixteen_threads_of_users_and_conversations_mix_nothing_up(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    free = agent(bs)

    def talk(n: int) -> None:
        user, thread = f"user {n % 5}", f"t{n}"
        for turn in range(3):
            text = f"{n}.{turn}"
            ask(mine if n % 2 else free, text, user=user, thread=thread)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(talk, range(32)))
    for n in range(32):
        expected = [line for turn in range(3) for line in (f"user: {n}.{turn}", f"assistant: echo: {n}.{turn}")]
        assert said(bs, f"user {n % 5}", f"t{n}") == expected
    assert sum(len(threads(bs, f"user {n}")) for n in range(5)) == 32
