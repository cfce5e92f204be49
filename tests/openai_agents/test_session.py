"""A session of the OpenAI Agents SDK with memory, run by the SDK's own runner on a model that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    is_openai_responses_compaction_aware_session,
)
from agents.run_config import CallModelData, ModelInputData
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from fakes import reply
from openai import AsyncOpenAI
from openai.types.responses import ResponseReasoningItem
from openai.types.responses.response_reasoning_item import Summary

from backstory import Backstory
from backstory.ledger.core.errors import LockTimeoutError, ScopeError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.openai_agents import BackstorySession


@contextlib.contextmanager
def talk(
    bs: Backstory, thread: str = "t", user: str | None = "ada", db: str | Path = ":memory:", **more: object
) -> Iterator[BackstorySession]:
    kept = SQLiteSession(thread, db)
    try:
        yield BackstorySession(kept, bs, user_id=user, **more)
    finally:
        kept.close()


def model(*steps: object) -> ScriptedModel:
    """Every answer has the same id, as with some models."""
    return ScriptedModel([{"output": [assistant_message(step)]} if isinstance(step, str) else step for step in steps])


def call(tool: str, **arguments: str) -> object:
    return function_call(tool, arguments, call_id="c1")


def options(session: BackstorySession, **more: object) -> dict[str, object]:
    more = {"call_model_input_filter": session.add_memory, "tracing_disabled": True, **more}
    return {"session": session, "run_config": RunConfig(**more)}


def ask(session: BackstorySession, agent: Agent, words: object, how: str = "run", **more: object) -> str:
    async def streamed() -> str:
        result = Runner.run_streamed(agent, words, **options(session, **more))
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    async def whole() -> str:
        return str((await Runner.run(agent, words, **options(session, **more))).final_output)

    return asyncio.run(streamed() if how == "run_streamed" else whole())


def said(bs: Backstory, user: str | None = "ada", thread: str = "t", agent: str | None = None) -> list[str]:
    memory = bs.memory_of(Scope(user, agent))
    if thread not in [known.thread for known in memory.threads()]:
        return []
    return [f"{turn.role}: {turn.content}" for turn in memory.transcript(thread)]


BOTH = pytest.mark.parametrize("how", ["run", "run_streamed"])


# What a run gets and leaves.


@BOTH
def test_the_block_reaches_the_model_and_both_words_are_recorded(bs, how):
    bs.memory("ada").add_fact("Ada plays the cello")
    scripted = model("The cello.")
    with talk(bs) as session:
        assert ask(session, Agent("a", instructions="Be kind.", model=scripted), "What do I play?", how) == "The cello."
    (call,) = scripted.calls
    assert call.system_instructions.startswith("Be kind.\n\n<memory>\n")
    assert "Ada plays the cello" in call.system_instructions
    assert said(bs) == ["user: What do I play?", "assistant: The cello."]


@BOTH
def test_words_that_say_the_same_are_each_recorded(bs, how):
    with talk(bs) as session:
        for _ in range(3):
            ask(session, Agent("a", model=model("Fine.")), "ok", how)
        assert len(asyncio.run(session.get_items())) == 6
    assert said(bs) == ["user: ok", "assistant: Fine."] * 3


@BOTH
def test_a_question_is_on_disk_before_the_model_is_asked_and_stays_when_it_fails(bs, how):
    seen: list[list[str]] = []

    def look(_: object) -> dict[str, object]:
        seen.append(said(bs))
        return {"output": [assistant_message("done")]}

    down = ModelStep.raise_error(RuntimeError("down"))
    with talk(bs) as session:
        agent = Agent("a", model=model(ModelStep.respond(look), down, "here again"))
        ask(session, agent, "first", how)
        assert seen == [["user: first"]]
        with pytest.raises(RuntimeError, match="down"):
            ask(session, agent, "second", how)
        ask(session, agent, "third", how)
    assert said(bs)[1:] == ["assistant: done", "user: second", "user: third", "assistant: here again"]


def test_facts_are_learned_from_the_words_and_told_in_the_next_conversation(bs):
    with talk(bs, "monday") as session:
        ask(session, Agent("a", model=model("Nice.")), "I moved to Bergen")
    memory = bs.memory("ada")
    memory.extract([{"thread_id": "monday", "reply": reply("Ada lives in Bergen")}])
    (fact,) = memory.facts()
    assert memory.why(fact.id).evidence[0].content == "I moved to Bergen"
    scripted = model("In Bergen.")
    with talk(bs, "tuesday") as session:
        ask(session, Agent("a", model=scripted), "Where do I live?")
    assert "Ada lives in Bergen" in scripted.calls[0].system_instructions


def test_an_empty_memory_leaves_the_instructions_as_they_are(bs):
    scripted = model("one", "two")
    with talk(bs) as session:
        ask(session, Agent("a", instructions="Be kind.", model=scripted), "hi")
        ask(session, Agent("a", model=scripted), "ho")
    assert [call.system_instructions for call in scripted.calls] == ["Be kind.", None]


def test_a_block_in_the_instructions_is_replaced(bs):
    memory = bs.memory("ada")
    memory.add_fact("Ada plays the cello")
    scripted = model("yes")
    with talk(bs) as session:
        ask(session, Agent("a", instructions=f"Be kind.\n\n{memory.context().text}", model=scripted), "hi")
    assert scripted.calls[0].system_instructions.count("<memory>") == 1


def test_what_a_question_finds_is_directly_before_it_and_stands_in_no_history(bs):
    memory = bs.memory("ada")
    cat = memory.add_fact("Ada's cat is called Whiskers", confidence=0.7).fact.id
    for n in range(30):
        memory.add_fact(f"Ada once counted to {n} thousand in the garden", confidence=0.95)
    scripted = model("Hi.", "Whiskers.", "Yes.")
    with talk(bs, max_tokens=120) as session:
        for words in ("hello", "what is the name of my cat?", [{"role": "user", "content": "and my cat?"}]):
            ask(session, Agent("a", model=scripted), words)
        kept = asyncio.run(session.get_items())
    assert len({call.system_instructions for call in scripted.calls}) == 1
    assert [item["content"] for item in scripted.calls[1].input if item["role"] == "user"] == [
        "hello",
        (
            "<memory>\nFacts for this question:\n- [context | 0.70] Ada's cat is called Whiskers\n</memory>\n\n"
            "what is the name of my cat?"
        ),
    ]
    assert "Whiskers" in str(scripted.calls[2].input[-1])
    assert "<memory>" not in str(kept) + str(said(bs))
    turns = memory.transcript("t")
    assert [cat in turn.metadata.get("context", {}).get("facts", ()) for turn in turns] == [
        *(False, False),
        *(False, True),
        *(False, True),
    ]


def test_reasoning_in_an_answer_is_not_recorded(bs):
    with talk(bs) as session:
        ask(session, Agent("a", model=model("<think>They ask where.</think>In Bergen.")), "Where do I live?")
        assert "<think>" in str(asyncio.run(session.get_items()))
        assert said(bs) == ["user: Where do I live?", "assistant: In Bergen."]
        asyncio.run(session.pop_item())
    assert said(bs) == ["user: Where do I live?"]


def test_a_filter_of_ones_own_may_call_it(bs):
    bs.memory("ada").add_fact("Ada plays the cello")
    scripted = model("yes")
    with talk(bs) as session:

        async def own(data: CallModelData[object]) -> ModelInputData:
            sent = await session.add_memory(data)
            return ModelInputData(input=sent.input, instructions=f"{sent.instructions}\n\nBe brief.")

        ask(session, Agent("a", model=scripted), "hi", call_model_input_filter=own)
    assert scripted.calls[0].system_instructions.endswith("</memory>\n\nBe brief.")


def test_memory_is_read_and_written_off_the_event_loop(bs, monkeypatch):
    threads: list[str] = []
    opened = Backstory.memory_of

    def noted(*args: object, **names: object):
        threads.append(threading.current_thread().name)
        return opened(*args, **names)

    monkeypatch.setattr(Backstory, "memory_of", noted)
    with talk(bs) as session:
        ask(session, Agent("a", model=model("yes")), "hi")
        asyncio.run(session.pop_item())
    assert len(threads) >= 4
    assert threading.main_thread().name not in threads


# What of a run is words.


def forecast(city: str) -> str:
    """Tell the weather."""
    return f"It rains in {city}."


weather = function_tool(forecast, name_override="weather")


@BOTH
def test_calls_of_tools_their_results_and_reasoning_are_not_recorded(bs, how):
    thought = ResponseReasoningItem(id="r1", type="reasoning", summary=[Summary(text="hm", type="summary_text")])
    look = {
        "output": [
            thought,
            assistant_message("Let me look."),
            call("weather", city="Bergen"),
        ]
    }
    with talk(bs) as session:
        agent = Agent("a", model=model(look, "Take an umbrella."), tools=[weather])
        ask(session, agent, "How is the weather?", how)
        kinds = [item.get("type", "message") for item in asyncio.run(session.get_items())]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output", "message"]
    assert said(bs) == ["user: How is the weather?", "assistant: Take an umbrella."]


def test_of_several_parts_the_text_is_recorded(bs):
    parts = [
        {"type": "input_text", "text": "This is my cat"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
    ]
    with talk(bs) as session:
        ask(session, Agent("a", model=model("Sweet.")), [{"role": "user", "content": parts}])
    assert said(bs) == ["user: This is my cat", "assistant: Sweet."]


def test_a_handover_is_one_conversation(bs):
    bs.memory("ada").add_fact("Ada plays the cello")
    second = model("I am the other one.")
    first = model({"output": [call("transfer_to_other")]})
    with talk(bs) as session:
        other = Agent("other", model=second)
        ask(session, Agent("a", model=first, handoffs=[other]), "Get me the other one")
    assert said(bs) == ["user: Get me the other one", "assistant: I am the other one."]
    assert "cello" in second.calls[0].system_instructions


def test_an_agent_that_is_called_as_a_tool_is_not_recorded(bs):
    inner = Agent("inner", model=model("inner answer"))
    outer = model({"output": [call("ask_inner", input="a prompt of the outer one")]}, "done")
    with talk(bs) as session:
        tools = [inner.as_tool("ask_inner", "Asks the inner one.")]
        ask(session, Agent("a", model=outer, tools=tools), "Ask it")
    assert said(bs) == ["user: Ask it", "assistant: done"]


def test_a_question_that_a_guardrail_stops_is_recorded_as_the_session_keeps_it(bs):
    async def refuse(*_: object) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    with talk(bs) as session:
        agent = Agent("a", model=model("never"), input_guardrails=[InputGuardrail(refuse)])
        with pytest.raises(InputGuardrailTripwireTriggered):
            ask(session, agent, "I live in Oslo")
        kept = [item["content"] for item in asyncio.run(session.get_items())]
    assert [line.removeprefix("user: ") for line in said(bs)] == kept


def test_a_run_that_waits_for_approval_and_goes_on_is_recorded_once(bs):
    careful = function_tool(forecast, needs_approval=True)
    scripted = model({"output": [call("forecast", city="Bergen")]}, "Take an umbrella.")
    with talk(bs) as session:
        agent = Agent("a", model=scripted, tools=[careful])

        async def both() -> None:
            result = await Runner.run(agent, "How is the weather?", **options(session))
            (asked,) = result.interruptions
            state = result.to_state()
            state.approve(asked)
            assert (await Runner.run(agent, state, **options(session))).final_output == "Take an umbrella."

        asyncio.run(both())
    assert said(bs) == ["user: How is the weather?", "assistant: Take an umbrella."]


# Whose memory.


def test_users_and_sessions_are_kept_apart(bs, tmp_path):
    async def everyone() -> None:
        with contextlib.ExitStack() as stack:
            runs = []
            for user in ("ada", "bob"):
                for thread in ("one", "two"):
                    db = tmp_path / f"{user}.db"
                    session = stack.enter_context(talk(bs, thread, user, db))
                    agent = Agent("a", model=model(f"yes, {user}"))
                    runs.append(Runner.run(agent, f"{user} in {thread}", **options(session)))
            await asyncio.gather(*runs)

    asyncio.run(everyone())
    for user in ("ada", "bob"):
        for thread in ("one", "two"):
            assert said(bs, user, thread) == [f"user: {user} in {thread}", f"assistant: yes, {user}"]


def test_an_agent_may_have_a_memory_of_its_own_and_all_users_one(bs):
    with talk(bs, agent_name="writer") as session:
        ask(session, Agent("a", model=model("yes")), "hi")
    with talk(bs, user=None, scope="global") as session:
        ask(session, Agent("a", model=model("yes")), "ho")
    assert said(bs) == []
    assert said(bs, agent="writer") == ["user: hi", "assistant: yes"]
    assert said(bs, None) == ["user: ho", "assistant: yes"]


def test_a_session_without_a_user_or_of_a_wrong_kind_is_refused(bs, tmp_path):
    kept = SQLiteSession("t")
    for user in (None, ""):
        with pytest.raises(ScopeError, match=r"no user id: .*user_id=.*scope=\"global\""):
            BackstorySession(kept, bs, user_id=user)
    with pytest.raises(UsageError, match="scope must be user or global"):
        BackstorySession(kept, bs, user_id="ada", scope="everyone")
    with pytest.raises(UsageError, match="home must be an open Backstory, got str"):
        BackstorySession(kept, "a folder", user_id="ada")
    with pytest.raises(UsageError, match=r"session must be a session of the SDK, .*, got str"):
        BackstorySession("t", bs, user_id="ada")
    with pytest.raises(UsageError, match="max_tokens"):
        BackstorySession(kept, bs, user_id="ada", max_tokens=0)
    client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="OpenAIConversationsSession cannot be wrapped"):
        BackstorySession(OpenAIConversationsSession(openai_client=client), bs, user_id="ada")
    with (
        Backstory.open(tmp_path / "strict", strict_user_scope=True) as strict,
        pytest.raises(ScopeError, match="strict_user_scope"),
    ):
        BackstorySession(kept, strict, scope="global")
    kept.close()


def test_with_record_off_it_only_reads(bs):
    bs.memory("ada").add_fact("Ada plays the cello")
    scripted = model("yes")
    with talk(bs, record=False) as session:
        ask(session, Agent("a", model=scripted), "hi")
        asyncio.run(session.pop_item())
    assert "cello" in scripted.calls[0].system_instructions
    assert said(bs) == []


# Taking back.


def test_an_item_that_is_taken_back_stands_no_longer_and_is_not_learned_from(bs):
    with talk(bs) as session:
        ask(session, Agent("a", model=model("Nice.")), "I live in Oslo")
        answer, question = (asyncio.run(session.pop_item()) for _ in range(2))
        assert (answer["role"], question["content"]) == ("assistant", "I live in Oslo")
        assert said(bs) == []
        assert bs.memory("ada").status().pending == ()
        ask(session, Agent("a", model=model("Nice.")), "I live in Oslo")
    assert said(bs) == ["user: I live in Oslo", "assistant: Nice."]


def test_only_the_turn_of_the_item_goes(bs):
    say = {"role": "user", "content": "ok"}
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    with talk(bs) as session:
        asyncio.run(session.add_items([say]))
        asyncio.run(session.add_items([{"role": "assistant", "content": "Hm."}, say]))
        asyncio.run(session.add_items([{"role": "assistant", "content": "Hm."}, call]))
        for expected in (3, 3, 2, 1):
            asyncio.run(session.pop_item())
            assert len(said(bs)) == expected
    assert said(bs) == ["user: ok"]


def test_an_item_from_before_the_session_was_wrapped_takes_nothing_away(bs):
    kept = SQLiteSession("t")
    asyncio.run(kept.add_items([{"role": "user", "content": "before"}]))
    bs.memory("ada").record("t", [{"role": "user", "content": "elsewhere"}])
    session = BackstorySession(kept, bs, user_id="ada")
    assert asyncio.run(session.pop_item()) == {"role": "user", "content": "before"}
    assert asyncio.run(session.pop_item()) is None
    assert said(bs) == ["user: elsewhere"]
    kept.close()


def test_clearing_the_session_keeps_memory(bs):
    with talk(bs) as session:
        ask(session, Agent("a", model=model("Nice.")), "I live in Oslo")
        asyncio.run(session.clear_session())
        assert asyncio.run(session.get_items()) == []
    assert len(said(bs)) == 2


# Faults.


@BOTH
def test_a_fault_of_memory_does_not_break_a_run_and_nothing_is_lost(bs, how, monkeypatch):
    def broken(*_: object, **__: object):
        raise LockTimeoutError("another process writes")

    with talk(bs) as session:
        with monkeypatch.context() as patched:
            patched.setattr(Backstory, "memory_of", broken)
            assert ask(session, Agent("a", instructions="Be kind.", model=model("yes")), "hi", how) == "yes"
            asyncio.run(session.pop_item())
        assert {fault.doing for fault in bs.faults.of(bs.memory("ada"))} == {"record", "inject"}
        assert session.flush()
    assert said(bs) == ["user: hi"]


def test_what_cannot_be_taken_back_is_taken_back_when_memory_works_again(bs, monkeypatch):
    """The turns before it stay, also one that says the same, and one where it failed after it was written."""
    say = {"role": "user", "content": "ok"}
    failing = [True, False]
    delete = bs.memory("ada").turns.__class__.delete

    def broken(turns: object, turn: object) -> None:
        before = failing.pop() if failing else None
        if before is not None:
            if not before:
                delete(turns, turn)
            raise OSError(28, "No space left on device")
        delete(turns, turn)

    with talk(bs) as session:
        for _ in range(3):
            asyncio.run(session.add_items([say]))
        monkeypatch.setattr(bs.memory("ada").turns.__class__, "delete", broken)
        asyncio.run(session.pop_item())
        assert {fault.doing for fault in bs.faults.of(bs.memory("ada"))} == {"withdraw"}
        session.flush()
        assert session.flush()
    assert said(bs) == ["user: ok", "user: ok"]


def test_a_turn_that_is_still_queued_is_recorded_before_it_is_taken_back(bs, monkeypatch):
    def broken(*_: object, **__: object):
        raise OSError(28, "No space left on device")

    with talk(bs) as session:
        with monkeypatch.context() as patched:
            patched.setattr(Backstory, "memory_of", broken)
            asyncio.run(session.add_items([{"role": "user", "content": "hi"}]))
        asyncio.run(session.pop_item())
        assert session.flush()
    assert said(bs) == []


def test_a_fault_of_the_wrapped_session_is_raised_and_nothing_is_recorded(bs):
    with talk(bs) as session:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(session.add_items([{"role": "user", "content": "hi"}]))
    assert said(bs) == []


@pytest.mark.parametrize("change", ["add", "pop"])
def test_a_change_that_is_cancelled_reaches_both_the_history_and_memory(bs, change):
    class Slow(SQLiteSession):
        """Finishes what it has begun, as the sessions of the SDK do, and is cancelled then."""

        begun: asyncio.Event
        ends: asyncio.Event

        async def _slowly(self) -> None:
            self.begun.set()
            await self.ends.wait()

        async def add_items(self, items):
            await self._slowly()
            await super().add_items(items)

        async def pop_item(self):
            await self._slowly()
            return await super().pop_item()

    async def cancelled() -> list[object]:
        kept = Slow("t")
        kept.begun, kept.ends = asyncio.Event(), asyncio.Event()
        session = BackstorySession(kept, bs, user_id="ada")
        item = {"role": "user", "content": "hi"}
        if change == "pop":
            kept.ends.set()
            await session.add_items([item])
            kept.begun.clear()
            kept.ends.clear()
        task = asyncio.create_task(session.add_items([item]) if change == "add" else session.pop_item())
        await kept.begun.wait()
        task.cancel()
        kept.ends.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        items = await session.get_items()
        kept.close()
        return items

    items = asyncio.run(cancelled())
    assert [f"{item['role']}: {item['content']}" for item in items] == said(bs)
    assert len(items) == (change == "add")


def test_an_item_that_cannot_be_read_is_left_out(bs):
    with talk(bs) as session:
        asyncio.run(session.add_items([{"role": "user", "content": 7}, {"role": "user", "content": "hi"}]))
    assert said(bs) == ["user: hi"]
    assert [fault.kind for fault in bs.faults.of(bs.memory("ada"))] == ["InputError"]


# As a session.


def test_what_else_the_wrapped_session_can_is_there(bs):
    client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1")
    with talk(bs) as plain:
        assert not is_openai_responses_compaction_aware_session(plain)
        kept = SQLiteSession("t")
        compacting = OpenAIResponsesCompactionSession("t", kept, client=client)
        assert is_openai_responses_compaction_aware_session(BackstorySession(compacting, bs, user_id="ada"))
        assert copy.copy(plain).session_id == "t"
        with pytest.raises(AttributeError, match="nothing_like_it"):
            plain.nothing_like_it  # noqa: B018 reading it is the test
        kept.close()


def test_a_long_id_of_a_session_is_a_thread_too(bs):
    with talk(bs, "x" * 2_000) as session:
        ask(session, Agent("a", model=model("yes")), "hi")
    (thread,) = bs.memory("ada").threads()
    assert thread.turns == 2


def test_the_history_outlives_the_process(bs, tmp_path: Path):
    scripted = model("one", "two")
    for words in ("first", "second"):
        with talk(bs, db=tmp_path / "chats.db") as session:
            ask(session, Agent("a", model=scripted), words)
    assert [item["content"] for item in scripted.calls[1].input if item["role"] == "user"] == ["first", "second"]
    assert [line.partition(": ")[2] for line in said(bs)] == ["first", "one", "second", "two"]


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "openai-agents.md").read_text("utf-8")
    block = page.split("\n\n`BackstorySession` wraps")[0]
    code = "\n".join(line for line in block.splitlines() if line.startswith("    ") and "pip install" not in line)
    code = code.replace('Agent("assistant")', 'Agent("assistant", model=scripted)')
    code = "\n".join(line[4:] for line in code.splitlines())
    names: dict[str, object] = {"scripted": model("In Bergen.")}
    with asyncio.Runner() as loops:
        asyncio.set_event_loop(loops.get_loop())  # `run_sync` leaves a loop of its own open
        exec(compile(code, "openai-agents.md", "exec"), names)  # noqa: S102 it is our own page
    names["session"].close()  # type: ignore[attr-defined]
    assert capsys.readouterr().out == "In Bergen.\n"
    with Backstory.open(tmp_path / ".backstory") as bs:
        assert said(bs, thread="thread-1") == ["user: Where do I live?", "assistant: In Bergen."]
