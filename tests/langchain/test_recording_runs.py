"""What of an agent's runs is recorded, and that nothing is recorded twice or lost."""

from __future__ import annotations

import asyncio
import threading

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from scripted_agents import Scripted, agent, ask, calls, config, run, said, threads

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware
from backstory.langchain.conversations import SpokenMessages
from backstory.outbox.fail_safe import FailSafeMemory


@tool
def weather(city: str = "Oslo") -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def test_a_question_and_its_answer_are_recorded_with_a_checkpointer(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    for text in ("hi", "ok", "ok"):
        ask(mine, text)
    assert said(bs) == ["user: hi", "assistant: echo: hi", *["user: ok", "assistant: echo: ok"] * 2]


def test_a_question_and_its_answer_are_recorded_without_a_checkpointer(bs):
    mine = agent(bs)
    for text in ("hi", "ok", "ok"):
        ask(mine, text)
    assert said(bs) == ["user: hi", "assistant: echo: hi", *["user: ok", "assistant: echo: ok"] * 2]


@pytest.mark.parametrize("again", ["same agent", "another process"])
def test_a_host_that_sends_the_whole_conversation_with_every_run_is_recorded_once(bs, again):
    history: list[dict[str, object]] = []
    mine = agent(bs)
    for text in ("hi", "ok", "ok", "bye"):
        mine = mine if again == "same agent" else agent(bs)
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history)["messages"][-1].text})
    assert said(bs) == [f"{message['role']}: {message['content']}" for message in history]


def test_a_host_that_sends_back_what_an_agent_returned_is_recorded_once(bs):
    mine = agent(bs, Scripted("one", calls("weather"), "two", "three"), tools=[weather])
    history: list[object] = []
    for text in ("a", "b", "c"):
        history = run(mine, [*history, HumanMessage(text)])["messages"]
    assert said(bs) == ["user: a", "assistant: one", "user: b", "assistant: two", "user: c", "assistant: three"]


def test_a_run_without_a_thread_is_one_by_itself(bs):
    mine = agent(bs)
    ask(mine, "hi", thread=None)
    ask(mine, "hi", thread=None)
    found = threads(bs)
    assert len(found) == 2
    assert all(said(bs, thread=name) == ["user: hi", "assistant: echo: hi"] for name in found)


def test_a_run_without_a_thread_that_goes_on_word_for_word_is_the_same_thread(bs):
    mine = agent(bs)
    history: list[object] = []
    for text in ("hi", "how are you", "ok", "ok"):
        history = run(mine, [*history, HumanMessage(text)], thread=None)["messages"]
        history = [{"role": message.type, "content": message.text} for message in history]
    (thread,) = threads(bs)
    assert len(said(bs, thread=thread)) == 8
    run(mine, [{"role": "user", "content": "hello"}, *history[1:], HumanMessage("bye")], thread=None)
    assert len(threads(bs)) == 2


@pytest.mark.parametrize("again", ["same agent", "another process"])
def test_a_run_without_a_thread_goes_on_in_the_thread_that_is_in_the_log(bs, again):
    history: list[object] = []
    mine = agent(bs)
    for text in ("hi", "how are you", "ok", "ok"):
        mine = mine if again == "same agent" else agent(bs)
        history = run(mine, [*history, HumanMessage(text)], thread=None)["messages"]
        history = [{"role": message.type, "content": message.text} for message in history]
    (thread,) = threads(bs)
    assert said(bs, thread=thread) == [
        f"{'user' if m['role'] == 'human' else 'assistant'}: {m['content']}" for m in history
    ]


def test_of_conversations_that_begin_alike_the_one_that_goes_furthest_is_gone_on_from(bs):
    mine = agent(bs)
    longer = run(mine, [HumanMessage("hi")], thread=None)["messages"]
    longer = run(mine, [*longer, HumanMessage("more")], thread=None)["messages"]
    (first,) = threads(bs)
    ask(mine, "hi", thread=None)
    run(mine, [*longer, HumanMessage("even more")], thread=None)
    assert len(said(bs, thread=first)) == 6
    assert len(threads(bs)) == 2


def test_a_question_that_was_answered_in_a_structure_is_a_new_conversation_when_it_comes_again(bs):
    model = Scripted(calls(("Answer", {"city": "Oslo"})), calls(("Answer", {"city": "Oslo"})))
    mine = agent(bs, model, response_format=ToolStrategy(Answer))
    for _ in range(2):
        run(mine, [HumanMessage("where?")], thread=None)
    assert len(threads(bs)) == 2


def test_a_conversation_of_another_user_is_not_gone_on_from_without_its_words(bs):
    mine = agent(bs)
    ask(mine, "hi", thread=None)
    ask(mine, "hi", user="bob", thread=None)
    assert said(bs, "bob", threads(bs, "bob")[0]) == ["user: hi", "assistant: echo: hi"]


def test_a_question_is_recorded_before_the_model_is_asked(bs):
    seen: list[list[str]] = []
    mine = agent(bs, Scripted(lambda _: seen.append(said(bs)) or "yes"))
    ask(mine, "is it there already?")
    assert seen == [["user: is it there already?"]]


def test_a_run_that_dies_leaves_the_question_and_another_try_does_not_repeat_it(bs):
    for checkpointer in (None, InMemorySaver()):
        thread = f"t{checkpointer is None}"
        mine = agent(bs, Scripted(RuntimeError("the model is gone")), checkpointer=checkpointer)
        history = [{"role": "user", "content": "remember me", "id": "m1"}]
        with pytest.raises(RuntimeError, match="the model is gone"):
            run(mine, history, thread=thread)
        assert said(bs, thread=thread) == ["user: remember me"]
        run(mine, history, thread=thread)
        assert said(bs, thread=thread) == ["user: remember me", "assistant: echo: remember me"]


def test_a_run_that_is_tried_again_does_not_repeat_a_question_that_has_no_id(bs):
    mine = agent(bs, Scripted("yes?", RuntimeError("the model is gone")))
    told = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    run(mine, told[:1])
    with pytest.raises(RuntimeError):
        run(mine, [*told, {"role": "user", "content": "remember me"}])
    run(mine, [*told, {"role": "user", "content": "remember me"}])
    assert said(bs) == ["user: hi", "assistant: yes?", "user: remember me", "assistant: echo: remember me"]


def test_a_host_that_keeps_no_calls_of_tools_goes_on_from_the_same_conversation(bs):
    mine = agent(bs, Scripted(calls("weather"), "sunny"), tools=[weather])
    history = run(mine, [HumanMessage("weather?")], thread=None)["messages"]
    told = [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": history[-1].text}]
    run(mine, [*told, HumanMessage("thanks")], thread=None)
    (thread,) = threads(bs)
    assert said(bs, thread=thread) == [
        "user: weather?",
        "assistant: sunny",
        "user: thanks",
        "assistant: echo: thanks",
    ]


def test_tools_calls_and_results_are_not_recorded(bs):
    model = Scripted(calls("weather", ("weather", {"city": "Rome"}), text="let me see"), "sunny everywhere")
    ask(agent(bs, model, tools=[weather]), "weather?")
    assert said(bs) == ["user: weather?", "assistant: sunny everywhere"]


def test_system_messages_of_a_host_and_the_block_of_memory_are_not_recorded(bs):
    bs.memory("ada").add_fact("Ada lives in Oslo")
    mine = agent(bs, system_prompt="Be kind.")
    run(mine, [SystemMessage("Be brief."), HumanMessage("hi")])
    assert said(bs) == ["user: hi", "assistant: echo: hi"]


def test_an_upload_takes_the_answer_along(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    for checkpointed in (mine, agent(bs)):
        ask(checkpointed, "<uploaded_files>\n- a.pdf\n</uploaded_files>", thread=f"u{checkpointed is mine}")
        assert said(bs, thread=f"u{checkpointed is mine}") == []


@pytest.fixture
def immediate(monkeypatch) -> list[bool]:
    """Whether each delivery was to be learned from at once."""
    seen: list[bool] = []
    record = FailSafeMemory.record

    def watched(*args, immediate: bool, **more):
        seen.append(immediate)
        return record(*args, immediate=immediate, **more)

    monkeypatch.setattr(FailSafeMemory, "record", watched)
    return seen


@pytest.mark.parametrize("summarizer_first", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_summary_loses_nothing_and_is_not_recorded_itself(bs, summarizer_first, checkpointed, immediate):
    summing = SummarizationMiddleware(Scripted(*["They talked."] * 9), trigger=("messages", 5), keep=("messages", 2))
    around = {"before" if summarizer_first else "after": [summing]}
    mine = agent(bs, checkpointer=InMemorySaver() if checkpointed else None, **around)
    history: list[object] = []
    expected = []
    for n in range(8):
        asked = [HumanMessage(f"question {n}")]
        history = run(mine, asked if checkpointed else [*history, *asked])["messages"]
        expected += [f"user: question {n}", f"assistant: echo: question {n}"]
    assert any("They talked." in message.text for message in history)
    assert said(bs) == expected
    assert any(immediate)
    assert not any(immediate[:4])


def test_a_summary_in_the_middle_of_a_run_loses_nothing(bs):
    summing = SummarizationMiddleware(Scripted(*["They talked."] * 9), trigger=("messages", 4), keep=("messages", 1))
    model = Scripted(calls("weather"), calls("weather"), calls("weather"), "done")
    mine = agent(bs, model, before=[summing], tools=[weather], checkpointer=InMemorySaver())
    ask(mine, "a long way")
    ask(mine, "and more")
    assert said(bs) == ["user: a long way", "assistant: done", "user: and more", "assistant: echo: and more"]


def test_a_conversation_from_before_the_middleware_is_recorded_with_the_first_run(bs):
    saver = InMemorySaver()
    ask(agent(bs, checkpointer=saver), "old", user="nobody")
    from langchain.agents import create_agent

    plain = create_agent(Scripted(), checkpointer=saver)
    plain.invoke({"messages": [HumanMessage("before")]}, config(thread="t2"))
    ask(agent(bs, checkpointer=saver), "after", thread="t2")
    expected = ["user: before", "assistant: echo: before", "user: after", "assistant: echo: after"]
    assert said(bs, thread="t2") == expected


def test_words_changed_by_another_middleware_replace_what_was_recorded_first(bs):
    class Redacts(AgentMiddleware):
        def before_model(self, state, runtime):
            last = state["messages"][-1]
            return {"messages": [last.model_copy(update={"content": "my number is ***"})]}

    for checkpointer in (InMemorySaver(), None):
        thread = f"t{checkpointer is None}"
        mine = agent(bs, Scripted("noted"), after=[Redacts()], checkpointer=checkpointer)
        ask(mine, "my number is 12345", thread=thread)
        assert said(bs, thread=thread) == ["user: my number is ***", "assistant: noted"]


def test_a_message_of_a_kind_nobody_knows_is_left_out_and_counted(bs):
    mine = agent(bs, Scripted("fine"), checkpointer=InMemorySaver())
    run(mine, [ChatMessage("beep", role="robot"), HumanMessage("hi")])
    assert said(bs) == ["user: hi", "assistant: fine"]
    assert [(fault.doing, fault.kind) for fault in bs.memory("ada").status().faults] == [("record", "InputError")]


def test_an_interrupt_keeps_the_question_and_the_answer_comes_with_the_resume(bs):
    @tool
    def confirm() -> str:
        """Ask a person."""
        return interrupt("may I?")

    saver = InMemorySaver()
    mine = agent(bs, Scripted(calls("confirm"), "done"), tools=[confirm], checkpointer=saver)
    ask(mine, "do it")
    assert said(bs) == ["user: do it"]
    mine.invoke(Command(resume="yes"), config())
    assert said(bs) == ["user: do it", "assistant: done"]


def test_a_person_who_approves_a_tool_is_no_part_of_what_is_recorded(bs):
    approving = HumanInTheLoopMiddleware(interrupt_on={"weather": True})
    for place in ("before", "after"):
        model = Scripted(calls("weather"), "sunny")
        around = {place: [approving]}
        mine = agent(bs, model, tools=[weather], checkpointer=InMemorySaver(), **around)
        asked = run(mine, [HumanMessage("weather?")], thread=place)
        assert "__interrupt__" in asked
        assert said(bs, thread=place) == ["user: weather?"]
        mine.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config(thread=place))
        assert said(bs, thread=place) == ["user: weather?", "assistant: sunny"]


def test_a_resume_belongs_to_whoever_asked_and_needs_no_user(bs):
    @tool
    def confirm() -> str:
        """Ask a person."""
        return interrupt("may I?")

    saver = InMemorySaver()
    bs.memory("ada").add_fact("Ada lives in Oslo")
    model = Scripted(calls("confirm"), "done")
    mine = agent(bs, model, tools=[confirm], checkpointer=saver)
    ask(mine, "do it")
    again = agent(bs, model, tools=[confirm], checkpointer=saver)
    again.invoke(Command(resume="yes"), {"configurable": {"thread_id": "t"}})
    assert said(bs) == ["user: do it", "assistant: done"]
    assert "Oslo" in model.systems[-1]


class Answer(BaseModel):
    city: str


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_structured_answer_is_recorded_as_json(bs, checkpointed):
    model = Scripted(calls(("Answer", {"city": "Oslo"})), calls(("Answer", {"city": "Bergen"})))
    mine = agent(
        bs, model, response_format=ToolStrategy(Answer), checkpointer=InMemorySaver() if checkpointed else None
    )
    history = run(mine, [HumanMessage("where?")])
    assert history["structured_response"] == Answer(city="Oslo")
    then = [HumanMessage("and now?")]
    run(mine, then if checkpointed else [*history["messages"], *then])
    assert said(bs) == [
        "user: where?",
        'assistant: {"city":"Oslo"}',
        "user: and now?",
        'assistant: {"city":"Bergen"}',
    ]


def test_a_question_that_was_answered_in_a_structure_is_not_asked_anew_by_the_next_one(bs):
    model = Scripted(calls(("Answer", {"city": "Oslo"})), calls(("Answer", {"city": "Bergen"})))
    mine = agent(bs, model, response_format=ToolStrategy(Answer))
    history = run(mine, [HumanMessage("where?")])["messages"]
    told = [message.model_copy(update={"id": None}) for message in history]
    run(mine, [*told, HumanMessage("and now?")])
    assert [line for line in said(bs) if line.startswith("user")] == ["user: where?", "user: and now?"]


@pytest.mark.parametrize("schema", [{"title": "Answer", "type": "object", "properties": {"city": {"type": "string"}}}])
def test_a_structured_answer_without_a_class_is_recorded_as_json(bs, schema):
    model = Scripted(calls(("Answer", {"city": "Oslo"})))
    run(agent(bs, model, response_format=ToolStrategy(schema)), [HumanMessage("where?")])
    assert said(bs) == ["user: where?", 'assistant: {"city":"Oslo"}']


def test_a_structured_answer_of_an_earlier_run_is_not_recorded_again(bs):
    @tool(return_direct=True)
    def look() -> str:
        """Look out of the window."""
        return "rain"

    model = Scripted(calls(("Answer", {"city": "Oslo"})), calls("look"))
    mine = agent(bs, model, tools=[look], response_format=ToolStrategy(Answer), checkpointer=InMemorySaver())
    run(mine, [HumanMessage("where?")])
    run(mine, [HumanMessage("what do you see?")])
    assert said(bs) == ["user: where?", 'assistant: {"city":"Oslo"}', "user: what do you see?"]


def test_a_structured_answer_that_is_text_is_recorded_as_it_is(bs):
    mine = agent(bs, Scripted('{"city": "Oslo"}'), response_format=ProviderStrategy(Answer))
    run(mine, [HumanMessage("where?")])
    assert said(bs) == ["user: where?", 'assistant: {"city": "Oslo"}']


def test_a_summary_over_a_conversation_without_ids_records_nothing_twice(bs):
    expected: list[str] = []
    told: list[dict[str, object]] = []
    for n in range(6):
        summing = SummarizationMiddleware(Scripted("They talked."), trigger=("messages", 6), keep=("messages", 4))
        told.append({"role": "user", "content": f"question {n}"})
        answer = run(agent(bs, before=[summing]), told)["messages"][-1].text
        told.append({"role": "assistant", "content": answer})
        expected += [f"user: question {n}", f"assistant: {answer}"]
    assert said(bs) == expected


def test_a_run_that_changes_no_message_but_adds_one_waits_for_the_debounce(bs, immediate):
    mine = agent(bs, checkpointer=InMemorySaver())
    for text in ("a", "b"):
        ask(mine, text)
    assert immediate == [False] * 4


def test_ids_that_somebody_changes_in_the_middle_of_a_run_repeat_nothing(bs):
    history = [HumanMessage("hi"), AIMessage("yes?", id="a1"), HumanMessage("more")]

    def meddle(messages) -> str:
        history[1].id = "another"
        return "fine"

    run(agent(bs, Scripted(meddle)), history)
    assert said(bs) == ["user: hi", "assistant: yes?", "user: more", "assistant: fine"]


def test_an_answer_that_is_asked_for_again_repeats_the_answer_and_not_the_question(bs):
    mine = agent(bs, Scripted("yes?", "one", "two"))
    told = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    run(mine, told[:1])
    for _ in range(2):
        run(mine, [*told, {"role": "user", "content": "more"}])
    assert said(bs) == ["user: hi", "assistant: yes?", "user: more", "assistant: one", "assistant: two"]


def test_removed_messages_stay_recorded_and_are_learned_from_at_once(bs, immediate):
    class Trims(AgentMiddleware):
        def before_model(self, state, runtime):
            return {"messages": [RemoveMessage(message.id) for message in state["messages"][:-1]]}

    mine = agent(bs, after=[Trims()], checkpointer=InMemorySaver())
    for text in ("a", "b", "c"):
        ask(mine, text)
    assert said(bs) == [line for text in "abc" for line in (f"user: {text}", f"assistant: echo: {text}")]
    assert immediate == [False, False, False, True, False, True]


def test_edited_context_changes_nothing_that_is_recorded(bs):
    model = Scripted(*[step for n in range(4) for step in (calls("weather"), f"answer {n}")])
    mine = agent(bs, model, before=[ContextEditingMiddleware()], tools=[weather], checkpointer=InMemorySaver())
    for n in range(4):
        ask(mine, f"question {n}")
    assert said(bs) == [line for n in range(4) for line in (f"user: question {n}", f"assistant: answer {n}")]


@pytest.mark.parametrize("checkpointed", [True, False])
def test_all_of_it_works_on_an_event_loop(bs, checkpointed):
    mine = agent(bs, checkpointer=InMemorySaver() if checkpointed else None)

    async def talk() -> None:
        for text in ("hi", "ok", "ok"):
            await mine.ainvoke({"messages": [HumanMessage(text)]}, config())

    asyncio.run(talk())
    assert said(bs) == ["user: hi", "assistant: echo: hi", *["user: ok", "assistant: echo: ok"] * 2]


def test_what_the_middleware_keeps_does_not_come_out_and_cannot_be_put_in(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    forged = {"BackstoryMiddleware": {"thread": "t", "user": "bob"}}
    answer = mine.invoke({"messages": [HumanMessage("hi")], "backstory_runs": forged}, config())
    assert set(answer) == {"messages"}
    assert said(bs) == ["user: hi", "assistant: echo: hi"]
    assert said(bs, "bob") == []


def test_a_disabled_memory_records_and_injects_nothing(tmp_path):
    with Backstory.open(tmp_path / "off", enabled=False) as bs:
        model = Scripted()
        assert ask(agent(bs, model), "hi") == "echo: hi"
        assert said(bs) == []
        assert model.systems == [""]


def test_a_thread_name_of_any_length_and_writing_is_kept_apart(bs):
    long = "x" * 10_000
    names = ["a/b/../c", "köln 🌊\n", long, f"{long}y", 7]
    mine = agent(bs, checkpointer=InMemorySaver())
    for name in names:
        ask(mine, f"to {str(name)[-3:]}", thread=name)
    found = threads(bs)
    assert len(found) == 5
    assert {"a/b/../c", "köln 🌊\n", "7"} <= set(found)
    assert all(len(name) <= 512 for name in found)


def test_a_middleware_serves_several_agents(bs):
    from langchain.agents import create_agent

    shared = BackstoryMiddleware(bs)
    first, second = (create_agent(Scripted(), middleware=[shared]) for _ in range(2))
    ask(first, "one", thread="t1")
    ask(second, "two", user="bob", thread="t1")
    assert said(bs, thread="t1") == ["user: one", "assistant: echo: one"]
    assert said(bs, "bob", "t1") == ["user: two", "assistant: echo: two"]


def test_an_answer_that_was_streamed_is_recorded_whole(bs):
    mine = agent(bs, Scripted("a longer answer in parts", "another one"), checkpointer=InMemorySaver())
    for mode in ("messages", "updates"):
        list(mine.stream({"messages": [HumanMessage(f"ask for {mode}")]}, config(), stream_mode=mode))
    assert said(bs)[1::2] == ["assistant: a longer answer in parts", "assistant: another one"]
    assert all(isinstance(turn, str) for turn in said(bs))
    assert isinstance(mine.get_state(config()).values["messages"][-1], AIMessage)


def test_a_conversation_is_told_from_one_whose_words_are_parted_otherwise_or_said_by_another():
    alike = [
        [HumanMessage("ab"), AIMessage("c")],
        [HumanMessage("a"), AIMessage("bc")],
        [AIMessage("ab"), HumanMessage("c")],
        [HumanMessage("abc")],
    ]
    assert len({SpokenMessages(messages).whole for messages in alike}) == 4
    assert SpokenMessages(alike[0]).whole == SpokenMessages([SystemMessage("x"), *alike[0]]).whole


# What a host sends without a checkpointer.


def sent(text: str, key: object) -> dict[str, object]:
    return {"role": "user", "content": text, "id": str(key)}


def test_an_id_that_every_question_has_hides_none(bs):
    mine = agent(bs)
    questions = ("I live in Oslo", "I have a dog", "I play the cello")
    for text in questions:
        run(mine, [sent(text, 0)])
    assert said(bs) == [words for text in questions for words in (f"user: {text}", f"assistant: echo: {text}")]


def test_ids_that_are_places_in_what_is_sent_hide_no_question(bs):
    mine, history = agent(bs), []
    questions = ("I live in Oslo", "I have a dog", "I play the cello", "I like tea")
    for text in questions:
        history.append({"role": "user", "content": text})
        window = [{**message, "id": str(n)} for n, message in enumerate(history[-3:])]
        history.append({"role": "assistant", "content": run(mine, window)["messages"][-1].text})
    assert said(bs) == [words for text in questions for words in (f"user: {text}", f"assistant: echo: {text}")]


def test_words_that_come_again_in_a_window_are_said_again(bs):
    mine, history = agent(bs, Scripted("one", "two", "one", "two")), []
    for text in ("yes", "no", "yes", "no"):
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history[-2:])["messages"][-1].text})
    assert said(bs) == [f"{message['role']}: {message['content']}" for message in history]


def test_an_agent_that_is_not_to_record_is_given_memory_and_says_nothing_to_it(bs):
    bs.memory("ada").add_fact("Likes tea")
    mine = agent(bs, model := Scripted(), memory={"record": False})
    ask(mine, "Write a report about tea")
    assert "Likes tea" in model.systems[0]
    assert said(bs) == []


def test_a_stream_names_no_other_user_of_the_thread(bs):
    mine = agent(bs, checkpointer=InMemorySaver())
    ask(mine, "hi", user="grace")
    states = list(mine.stream({"messages": [HumanMessage("hello")]}, config("bob"), stream_mode="values"))
    assert "bob" in repr(states[-1]["backstory_runs"])
    # The first one is the state as the run before has left it.
    assert "grace" not in repr(states[1:])


def test_memory_without_a_model_is_said_to_learn_nothing(bs, caplog):
    with caplog.at_level("WARNING"):
        BackstoryMiddleware(bs)
    assert [("model=" in record.getMessage()) for record in caplog.records] == [True]


def test_many_locked_memories_leave_an_event_loop_its_threads(bs, monkeypatch):
    began, free = threading.Barrier(33), threading.Event()
    guarded = FailSafeMemory.guarded

    def locked(self, memory, doing, call, otherwise):
        if getattr(memory, "user", None) != "ada":
            began.wait(20)
            free.wait(20)
        return guarded(self, memory, doing, call, otherwise)

    monkeypatch.setattr(FailSafeMemory, "guarded", locked)
    mine = agent(bs)

    async def talk(user: str) -> str:
        answer = await mine.ainvoke({"messages": [HumanMessage("hi")]}, config(user))
        return str(answer["messages"][-1].text)

    async def everybody() -> str:
        others = [asyncio.create_task(talk(f"user{n}")) for n in range(32)]
        await asyncio.get_running_loop().run_in_executor(None, began.wait, 20)
        healthy = await asyncio.wait_for(talk("ada"), 20)
        free.set()
        await asyncio.gather(*others)
        return healthy

    assert asyncio.run(everybody()) == "echo: hi"


def test_a_window_that_is_sent_again_after_a_failure_is_recorded_once(bs):
    mine, history = agent(bs, Scripted("a0", "a1", "a2", OSError("no model"), "a3")), []
    for text in ("q0", "q1", "q2"):
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history[-5:])["messages"][-1].text})
    history.append({"role": "user", "content": "q3"})
    with pytest.raises(OSError, match="no model"):
        run(mine, history[-5:])
    history.append({"role": "assistant", "content": run(mine, history[-5:])["messages"][-1].text})
    assert said(bs) == [f"{message['role']}: {message['content']}" for message in history]


def test_what_memory_failed_to_record_comes_with_the_next_run(bs, monkeypatch):
    mine, history = agent(bs), []

    def talk(text: str) -> None:
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history)["messages"][-1].text})

    with monkeypatch.context() as patch:
        patch.setattr(FailSafeMemory, "record", lambda *_, **__: None)
        talk("my name is Bob")
    talk("I live in Rome")
    assert said(bs) == [f"{message['role']}: {message['content']}" for message in history]


def test_what_was_said_before_a_run_and_could_not_be_recorded_comes_with_the_next(bs, monkeypatch):
    mine, record, calls = agent(bs), FailSafeMemory.record, []
    # Another process has had this conversation until now.
    history = [{"role": "user", "content": "I live in Oslo"}, {"role": "assistant", "content": "Nice"}]

    def fails_first(self, *given, **more):
        calls.append(given)
        return None if len(calls) == 1 else record(self, *given, **more)

    monkeypatch.setattr(FailSafeMemory, "record", fails_first)
    for text in ("hi", "bye"):
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history)["messages"][-1].text})
    assert {"user: I live in Oslo", "assistant: Nice"} <= set(said(bs))


class Politely(AgentMiddleware):
    """Sends an answer back to the model once."""

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state, runtime):
        if "politely" in state["messages"][-1].text:
            return None
        return {"messages": [HumanMessage("say it again, politely")], "jump_to": "model"}


def test_a_run_that_goes_on_after_its_end_stays_its_users(bs):
    bs.memory("ada").add_fact("Ada is a surgeon")
    bs.memory(scope="global").add_fact("Nobody's")
    mine = agent(bs, model := Scripted(), before=[Politely()])
    ask(mine, "hello")
    assert ["surgeon" in system for system in model.systems] == [True, True]
    assert said(bs, None) == []


# Several users in one thread.


@pytest.mark.parametrize("window", [2, 4, 100])
def test_a_window_shows_no_user_what_another_has_said(bs, window):
    mine, history = agent(bs), []
    for user, text in [("ada", "I am Ada"), ("ada", "my diagnosis"), ("ada", "and more"), ("bob", "I am Bob")] * 2:
        history.append({"role": "user", "content": text})
        history.append({"role": "assistant", "content": run(mine, history[-window:], user)["messages"][-1].text})
    assert not [words for words in said(bs, "bob") if "diagnosis" in words or "more" in words or "Ada" in words]
    assert not [words for words in said(bs, "ada") if "Bob" in words]


def test_reasoning_in_an_answer_is_not_recorded(bs):
    model = Scripted("<think>They ask where.</think>\n\nIn Bergen.", "<thinking>Hm.</thinking>By the sea.")
    mine = agent(bs, model)
    history = run(mine, [HumanMessage("Where do I live?")])["messages"]
    run(mine, [*history, HumanMessage("And where there?")])
    assert said(bs) == [
        "user: Where do I live?",
        "assistant: In Bergen.",
        "user: And where there?",
        "assistant: By the sea.",
    ]


def test_an_agent_of_one_project_tags_what_it_records_and_reads_no_other_project(bs):
    memory = bs.memory("ada")
    memory.add_fact("Heron goes live on Fridays", tags=["heron"])
    memory.add_fact("Gull uses tabs", tags=["gull"])
    model = Scripted("noted")
    ask(agent(bs, model, memory={"tags": ["heron"]}), "When do we go live?")
    (thread,) = memory.threads()
    assert [turn.tags for turn in memory.transcript(thread.thread)] == [("heron",), ("heron",)]
    asked = model.systems[0]
    assert "Heron goes live" in asked
    assert "Gull" not in asked
