"""Tool mode: the model manages its memory by itself, and what it does is told apart from what a person did."""

from __future__ import annotations

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agents import Scripted, agent, calls, config, run, said, threads

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware
from backstory.ledger.core.errors import StoreError

NAMES = ["memory_search", "memory_add", "memory_update", "memory_delete", "memory_why"]


def use(bs: Backstory, name: str, user: str | None = "ada", **arguments):
    """Have an agent call one tool; returns what the tool answered."""
    mine = agent(bs, Scripted(calls((name, arguments)), "done"), memory={"mode": "tool"}, name="lead")
    messages = run(mine, [HumanMessage("go")], user)["messages"]
    return json.loads(next(message.content for message in messages if isinstance(message, ToolMessage)))


def test_tool_mode_offers_five_tools_and_the_other_none(bs, tmp_path):
    assert [tool.name for tool in BackstoryMiddleware(bs, mode="tool").tools] == NAMES
    assert not getattr(BackstoryMiddleware(bs), "tools", [])
    with Backstory.open(tmp_path / "by config", mode="tool") as configured:
        assert [tool.name for tool in BackstoryMiddleware(configured).tools] == NAMES
        assert not getattr(BackstoryMiddleware(configured, mode="middleware"), "tools", [])
    with Backstory.open(tmp_path / "off", mode="tool", enabled=False) as off:
        assert not getattr(BackstoryMiddleware(off), "tools", [])


def test_a_model_is_told_what_every_argument_is_and_nothing_of_the_runtime(bs):
    for tool in BackstoryMiddleware(bs, mode="tool").tools:
        schema = tool.tool_call_schema.model_json_schema()["properties"]
        assert "runtime" not in schema
        assert all(argument.get("description") for argument in schema.values())
        assert tool.description


def test_a_fact_is_added_found_changed_explained_and_removed(bs):
    added = use(bs, "memory_add", content="Ada lives in Oslo", category="context", confidence=0.8)
    assert added["status"] == "added"
    found = use(bs, "memory_search", query="where does Ada live")
    assert found["count"] == 1
    result = found["results"][0]
    assert set(result) >= {"id", "content", "category", "confidence", "createdAt", "source"}
    assert (result["id"], result["content"]) == (added["fact_id"], "Ada lives in Oslo")
    fact = added["fact_id"]
    assert use(bs, "memory_update", fact_id=fact, content="Ada lives in Bergen") == {
        "fact_id": fact,
        "status": "updated",
    }
    told = use(bs, "memory_why", fact_id=fact)
    assert (told["content"], told["live"]) == ("Ada lives in Bergen", True)
    assert told["added"] == {"at": told["added"]["at"], "by": "agent:lead", "kind": "manual", "thread": "t"}
    assert len(told["history"]) == 2
    assert use(bs, "memory_delete", fact_id=fact) == {"fact_id": fact, "status": "deleted"}
    assert use(bs, "memory_search", query="Ada") == {"results": [], "count": 0}
    assert use(bs, "memory_why", fact_id=fact)["removed"]["reason"]


def test_a_search_takes_a_category_and_a_limit(bs):
    memory = bs.memory("ada")
    for n in range(5):
        memory.add_fact(f"Ada likes tea number {n}", "preference")
    memory.add_fact("Ada drinks tea at work", "context")
    assert use(bs, "memory_search", query="tea", limit=2)["count"] == 2
    assert use(bs, "memory_search", query="tea", category="context")["count"] == 1


def test_the_log_tells_a_models_change_from_a_persons(bs):
    memory = bs.memory("ada")
    memory.add_fact("Ada has a cat")
    fact = use(bs, "memory_add", content="Ada has a dog")["fact_id"]
    newest, oldest = memory.log()[0], memory.log()[1]
    assert (newest.cause.actor, newest.cause.thread, newest.cause.action) == ("agent:lead", "t", "add")
    assert oldest.cause.actor not in (None, "agent:lead")
    assert oldest.cause.thread is None
    assert memory.why(fact).added.cause.actor == "agent:lead"
    assert [entry.seq for entry in memory.log(thread="t")] == [newest.seq]
    assert memory.verify().ok


def test_an_agent_is_named_as_its_memory_before_its_graph(bs):
    mine = create_agent(
        Scripted(calls(("memory_add", {"content": "Ada has a dog"})), "done"),
        middleware=[BackstoryMiddleware(bs, mode="tool", agent_name="writer")],
        name="lead",
    )
    run(mine, [HumanMessage("go")])
    assert bs.memory("ada", "writer").log()[0].cause.actor == "agent:writer"
    plain = agent(bs, Scripted(calls(("memory_add", {"content": "Ada has a cat"})), "done"), memory={"mode": "tool"})
    run(plain, [HumanMessage("go")])
    assert bs.memory("ada").log()[0].cause.actor == "agent"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("memory_add", {"content": "  "}, "fact is empty"),
        ("memory_add", {"content": "x", "category": " "}, "a category is a name"),
        ("memory_add", {"content": "x", "confidence": 7}, "from 0 to 1"),
        ("memory_add", {"content": "Ada lives in Oslo"}, "duplicate"),
        ("memory_update", {"fact_id": "fact_9_9", "content": "x"}, "no live fact"),
        ("memory_update", {"fact_id": "fact_9_9"}, "nothing to change"),
        ("memory_delete", {"fact_id": "nothing"}, "no live fact"),
        ("memory_why", {"fact_id": "fact_9_9"}, "no fact"),
        ("memory_search", {"query": "x", "limit": 0}, "top_k"),
        ("memory_search", {"query": "x", "category": " "}, "no name"),
    ],
)
def test_what_a_model_does_wrong_it_is_told_and_the_run_goes_on(bs, name, arguments, told):
    bs.memory("ada").add_fact("Ada lives in Oslo")
    assert told in use(bs, name, **arguments)["error"]
    assert bs.memory("ada").status().faults == ()


def test_a_fault_of_memory_is_told_to_the_model_and_counted(bs, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(type(bs.memory("ada")), "add_fact", fail)
    told = use(bs, "memory_add", content="Ada has a dog")
    assert "cannot be reached" in told["error"]
    assert [(fault.doing, fault.kind) for fault in bs.memory("ada").status().faults] == [("tool", "StoreError")]


def test_nothing_is_recorded_and_sections_alone_are_injected(bs):
    memory = bs.memory("ada")
    memory.add_fact("Ada lives in Oslo")
    memory.import_document({"user": {"workContext": {"summary": "Ada builds bridges."}}, "facts": []})
    model = Scripted("fine")
    mine = agent(bs, model, memory={"mode": "tool"}, checkpointer=InMemorySaver(), system_prompt="Be kind.")
    run(mine, [HumanMessage("hi")])
    assert "Ada builds bridges." in model.systems[0]
    assert "Oslo" not in model.systems[0]
    assert threads(bs) == []
    assert said(bs) == []


def test_tools_keep_users_apart_and_work_on_an_event_loop(bs):
    model = Scripted(
        calls(("memory_add", {"content": "one"}), ("memory_add", {"content": "two"}), ("memory_add", {"content": "3"})),
        "done",
    )
    mine = agent(bs, model, memory={"mode": "tool"})
    asyncio.run(mine.ainvoke({"messages": [HumanMessage("go")]}, config("ada", "t", x=1), context={"user_id": "bob"}))
    assert sorted(fact.content for fact in bs.memory("bob").facts()) == ["3", "one", "two"]
    assert bs.memory("ada").facts() == ()


def test_what_a_tool_adds_is_a_models_and_comes_from_the_thread(bs):
    fact = use(bs, "memory_add", content="Ada lives in Oslo")["fact_id"]
    added = bs.memory("ada").fact(fact)
    assert (added.by_hand, added.source) == (False, "t")
    assert use(bs, "memory_update", fact_id=fact, confidence=0.8)["status"] == "updated"
    assert not bs.memory("ada").fact(fact).by_hand
    assert "under the threshold" in use(bs, "memory_update", fact_id=fact, confidence=0.2)["error"]
    assert "under the threshold" in use(bs, "memory_add", content="Ada sails", confidence=0.2)["error"]


def test_a_tool_leaves_alone_what_a_person_entered_and_says_so(bs):
    fact = bs.memory("ada").add_fact("Ada lives in Oslo").fact.id
    for name, arguments in (("memory_update", {"content": "Ada lives in Rome"}), ("memory_delete", {})):
        assert "only a person changes it" in use(bs, name, fact_id=fact, **arguments)["error"]
        refused = bs.memory("ada").log()[0].events
        assert [(event.rule, event.candidate.id) for event in refused] == [("by_hand", fact)]
    assert [one.content for one in bs.memory("ada").facts()] == ["Ada lives in Oslo"]
    assert bs.memory("ada").verify().ok


def test_a_full_memory_keeps_a_tools_newest_facts_and_all_of_a_persons(bs):
    memory = bs.memory("ada")
    memory.set_policy(max_facts=10)
    memory.add_fact("Ada is left-handed")
    for number in range(12):
        assert use(bs, "memory_add", content=f"Ada has {number} boats")["status"] == "added"
    kept = [fact.content for fact in memory.facts()]
    assert kept == ["Ada is left-handed", *(f"Ada has {number} boats" for number in range(3, 12))]
    for number in range(9):
        memory.add_fact(f"Ada has {number} cats")
    told = use(bs, "memory_add", content="Ada has no boat", confidence=1.0)["error"]
    assert "all of them were entered by hand: remove a fact or raise max_facts" in told


def test_a_memory_in_other_hands_says_whose_they_are(bs):
    memory = bs.memory("ada")
    memory.by("agent:lead", "t 1").add_fact("Ada lives in Oslo")
    memory.by("agent:lead").add_fact("Ada has a dog")
    memory.add_fact("Ada has a cat")
    found = [(entry.cause.actor, entry.cause.thread) for entry in reversed(memory.log())]
    assert found[-3:-1] == [("agent:lead", "t 1"), ("agent:lead", None)]
    assert found[-1][0] != "agent:lead"
    assert memory.threads() == ()
    assert memory.verify().ok
    from backstory.ledger.core.errors import UsageError

    with pytest.raises(UsageError, match="the actor is empty"):
        memory.by(" ")


def test_what_tools_did_in_a_thread_leaves_its_turns_to_be_learned_from(bs):
    memory = bs.memory("ada")
    memory.record("t", [{"role": "user", "content": "I moved"}, {"role": "assistant", "content": "I see"}])
    memory.by("agent:lead", "t").add_fact("Ada has moved")
    assert [waiting.turns for waiting in memory.status().pending] == [2]
    assert memory.verify().ok


def test_a_block_without_facts_has_room_for_everything_else(bs):
    memory = bs.memory("ada")
    memory.add_fact("Never say sir", "correction")
    memory.import_document({"user": {"workContext": {"summary": "Ada builds bridges."}}, "facts": []})
    for found in (memory.context(facts=False), asyncio.run(memory.acontext(facts=False))):
        assert found.text == "<memory>\nUser Context:\n- Work: Ada builds bridges.\n</memory>"
        assert (found.facts, found.left_out) == ((), 0)
    assert "Never say sir" in memory.context().text


def test_in_other_hands_nothing_but_what_is_entered_by_hand_belongs_to_the_conversation(bs):
    memory = bs.memory("ada").by("agent:lead", "t")
    memory.add_fact("Ada lives in Oslo")
    memory.clear()
    cleared, added = memory.log()[:2]
    assert (cleared.cause.actor, cleared.cause.thread) == ("agent:lead", None)
    assert (added.cause.actor, added.cause.thread) == ("agent:lead", "t")
