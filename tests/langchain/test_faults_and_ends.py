"""Bad days: whatever memory does, the agent answers; nothing is lost that can be kept; and how a home is closed."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes import PATIENCE, Gate, ScriptedModel, reply
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agents import Scripted, agent, ask, config, run, said

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware
from backstory.ledger.core.errors import ModelUnavailableError, StoreError
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle
from backstory.operations.recording import Intake

ADA = Scope("ada")


def faults(bs: Backstory) -> list[tuple[str, str, int]]:
    return [(fault.doing, fault.kind, fault.count) for fault in bs.faults.of(ADA)]


def test_memory_that_cannot_be_read_leaves_the_call_as_it_is_and_is_logged_once(bs, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(MemoryHandle, "context", fail)
    model = Scripted()
    prompt = "Be kind.\n\n<memory>\nFacts:\n- [context | 0.90] from before\n</memory>"
    mine = agent(bs, model, system_prompt=prompt, checkpointer=InMemorySaver())
    with caplog.at_level(logging.WARNING):
        for text in ("a", "b", "c"):
            assert ask(mine, text) == f"echo: {text}"
    assert model.systems == [prompt] * 3
    assert faults(bs) == [("inject", "StoreError", 3)]
    assert len([record for record in caplog.records if "the disk is gone" in record.getMessage()]) == 1
    assert len(said(bs)) == 6


def test_what_cannot_be_recorded_waits_and_comes_in_order(bs, monkeypatch):
    true_record = Writer.record
    down = [True]

    def record(self, *args, **more):
        if down[0]:
            raise StoreError("the disk is full")
        return true_record(self, *args, **more)

    monkeypatch.setattr(Writer, "record", record)
    middleware = BackstoryMiddleware(bs)
    mine = create_agent(Scripted(), middleware=[middleware], checkpointer=InMemorySaver())
    for text in ("a", "b", "c"):
        assert ask(mine, text) == f"echo: {text}"
    assert said(bs) == []
    down[0] = False
    assert middleware.flush(PATIENCE)
    assert said(bs) == [line for text in "abc" for line in (f"user: {text}", f"assistant: echo: {text}")]
    assert faults(bs)[0][:2] == ("record", "StoreError")


@pytest.mark.slow
def test_a_store_that_another_process_has_locked_keeps_an_agent_waiting_once(tmp_path, monkeypatch):
    with Backstory.open(tmp_path, file_lock_timeout_seconds=1) as bs:
        bs.memory("ada").add_fact("Ada lives in Oslo")
        model = Scripted()
        mine = agent(bs, model, checkpointer=InMemorySaver())
        ask(mine, "before")
        tried = []
        take_in = Intake.take_in
        monkeypatch.setattr(
            Intake,
            "take_in",
            lambda *args, **more: tried.append(threading.current_thread()) or take_in(*args, **more),
        )
        with contextlib.ExitStack() as held:
            for lock in tmp_path.rglob("*.lock"):
                fcntl.flock(held.enter_context(lock.open("rb+")), fcntl.LOCK_EX)
            for text in ("a", "b", "c"):
                assert ask(mine, text) == f"echo: {text}"
            assert tried.count(threading.main_thread()) == 1
        assert all("Oslo" in system for system in model.systems)
        assert bs.outbox.flush(PATIENCE)
        assert said(bs) == [
            line for text in ("before", *"abc") for line in (f"user: {text}", f"assistant: echo: {text}")
        ]


@pytest.mark.parametrize("learning", [True, False])
def test_a_damaged_log_does_not_break_an_answer(tmp_path, learning):
    home = tmp_path / "home"
    with Backstory.open(home) as bs:
        ask(agent(bs), "before")
        bs.memory("ada").add_fact("Ada lives in Oslo")
    for log in home.rglob("*.jsonl"):
        content = bytearray(log.read_bytes())
        content[40] ^= 1
        log.write_bytes(content)
    with Backstory.open(home, model=ScriptedModel(repeat=True) if learning else None) as bs:
        assert ask(agent(bs, system_prompt="Be kind."), "after") == "echo: after"
        assert {doing for doing, _, _ in faults(bs)} == {"inject", "record"}
        assert {kind for _, kind, _ in faults(bs)} == {"CorruptLogError"}


def test_a_bug_of_ours_does_not_break_an_answer(bs, monkeypatch):
    from backstory.langchain import run_memory

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run_memory, "SpokenMessages", fail)
    assert ask(agent(bs), "hi") == "echo: hi"
    monkeypatch.undo()
    mine = agent(bs, Scripted(lambda _: monkeypatch.setattr(run_memory, "SpokenMessages", fail) or "fine"))
    assert ask(mine, "ho") == "fine"
    assert [fault[:2] for fault in faults(bs)] == [("record", "ZeroDivisionError")]


def test_a_home_that_was_closed_does_not_break_an_answer(tmp_path):
    bs = Backstory.open(tmp_path)
    mine = agent(bs)
    ask(mine, "hi")
    bs.close()
    assert ask(mine, "still there?") == "echo: still there?"


def test_an_answer_does_not_wait_for_what_is_learned(tmp_path):
    gate = Gate(reply("Ada likes tea"))
    with Backstory.open(tmp_path, model=ScriptedModel(gate), debounce_seconds=0, summary_min_turns=0) as bs:
        mine = agent(bs, checkpointer=InMemorySaver())
        ask(mine, "I like tea")
        assert gate.entered.wait(PATIENCE)
        assert ask(mine, "and more") == "echo: and more"
        assert bs.memory("ada").facts() == ()
        gate.opened.set()


def test_a_model_that_is_down_is_counted_and_its_turns_stay_pending(tmp_path):
    model = ScriptedModel(ModelUnavailableError("down"), repeat=True)
    with Backstory.open(tmp_path, model=model, background=False, max_attempts=1, min_seconds_between_calls=0) as bs:
        assert ask(agent(bs), "I like tea") == "echo: I like tea"
        bs.memory("ada").extract()
        assert ("extract", "ModelUnavailableError", 1) in faults(bs)
        assert len(said(bs)) == 2


def test_what_an_agent_learns_is_used_in_its_next_run(tmp_path):
    model = ScriptedModel(reply("Ada likes tea"), repeat=True)
    with Backstory.open(tmp_path, model=model, debounce_seconds=0, summary_min_turns=0) as bs:
        chat = Scripted()
        mine = agent(bs, chat)
        ask(mine, "I like tea", thread="one")
        assert bs.memory("ada").flush(PATIENCE)
        ask(mine, "what do I like?", thread="two")
        assert "Ada likes tea" in chat.systems[-1]


def test_a_huge_message_is_recorded_in_time(bs):
    text = "word " * 2_000_000
    began = time.monotonic()
    assert run(agent(bs, Scripted("fine")), [HumanMessage(text)])["messages"][-1].text == "fine"
    assert time.monotonic() - began < PATIENCE / 2
    question, answer = said(bs)
    assert 900_000 < len(question) <= 1_000_010
    assert answer == "assistant: fine"


def test_one_line_opens_the_home_that_configuration_names(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path / "configured"))
    with BackstoryMiddleware() as middleware:
        ask(create_agent(Scripted(), middleware=[middleware]), "hi")
        assert middleware.backstory.home == tmp_path / "configured"
    with Backstory.open(tmp_path / "configured") as bs:
        assert said(bs) == ["user: hi", "assistant: echo: hi"]


def test_settings_reach_the_home_that_is_opened(tmp_path):
    with BackstoryMiddleware(tmp_path, mode="tool", max_facts=20, config={"debounce_seconds": 5}) as middleware:
        stated = middleware.backstory.config.settings
        assert (stated.mode, stated.max_facts, stated.debounce_seconds) == ("tool", 20, 5)


def test_a_home_that_was_open_stays_open(bs):
    with BackstoryMiddleware(bs) as middleware:
        pass
    middleware.close()
    assert bs.memory("ada").facts() == ()


def test_a_home_that_nobody_needs_any_more_is_closed_without_a_wait(tmp_path):
    gate = Gate(reply("Ada likes tea"))
    middleware = BackstoryMiddleware(
        tmp_path, model=ScriptedModel(gate), debounce_seconds=0, summary_min_turns=0, min_seconds_between_calls=0
    )
    home = middleware.backstory
    ask(create_agent(Scripted(), middleware=[middleware]), "I like tea")
    assert gate.entered.wait(PATIENCE)
    before = set(threading.enumerate())
    del middleware
    gc.collect()
    closing = [thread for thread in threading.enumerate() if thread.name == "backstory-closing"]
    assert closing or set(threading.enumerate()) - before
    gate.opened.set()
    for thread in closing:
        thread.join(PATIENCE)
    with Backstory.open(tmp_path) as bs:
        assert [fact.content for fact in bs.memory("ada").facts()] == ["Ada likes tea"]
    assert home._services.states.closed.is_set()


def test_a_forked_child_leaves_the_home_to_its_parent(tmp_path, monkeypatch):
    middleware = BackstoryMiddleware(tmp_path)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        middleware.close()
    assert middleware.backstory.memory("ada").facts() == ()
    middleware.backstory.close()


ENDS = """
import os, sys
sys.path.insert(0, {tests!r})
sys.path.insert(0, {here!r})
from scripted_agents import Scripted, ask
from fakes import ScriptedModel, reply
from langchain.agents import create_agent
from backstory.langchain import BackstoryMiddleware

killed = os.fork() == 0
home = {killed!r} if killed else {ended!r}
middleware = BackstoryMiddleware(home, model=ScriptedModel(reply("Ada likes tea")), summary_min_turns=0)
ask(create_agent(Scripted(), middleware=[middleware]), "I like tea")
if killed:
    os._exit(9)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
"""


@pytest.mark.slow
def test_a_process_that_ends_has_learned_and_one_that_is_killed_has_recorded(tmp_path):
    here = Path(__file__).parent
    script = ENDS.format(
        tests=str(here.parent), here=str(here), killed=str(tmp_path / "killed"), ended=str(tmp_path / "ended")
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for name, facts, pending in (("killed", [], [2]), ("ended", ["Ada likes tea"], [])):
        with Backstory.open(tmp_path / name) as bs:
            assert said(bs) == ["user: I like tea", "assistant: echo: I like tea"]
            assert [fact.content for fact in bs.memory("ada").facts()] == facts
            assert [waiting.turns for waiting in bs.memory("ada").status().pending] == pending


def test_without_langchain_the_error_names_what_to_install(tmp_path):
    script = """
import sys
sys.modules["langchain"] = None
try:
    import backstory.langchain
except ImportError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True)
    assert "pip install 'backstory[langchain]'" in told.stdout


def test_a_context_that_says_nothing_and_no_config_at_all_is_refused_in_words(bs):
    with pytest.raises(Exception, match="no user id"):
        agent(bs).invoke({"messages": [HumanMessage("hi")]}, config(None, None))


def test_without_a_model_one_warning_is_enough(bs, caplog):
    mine = agent(bs)
    for text in ("a", "b"):
        ask(mine, text)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["give BackstoryMiddleware a model=" in message for message in warned] == [True]
