"""The end of a process and the beginning of the next: nothing said is lost, and nobody waits for a model that hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes import PATIENCE
from hosts import ChatModel, contents, learned, learning, talk

from backstory import Backstory

TESTS = Path(__file__).parent.parent


class Hanging:
    """An answer that comes when somebody says so; `asked` tells that it is waited for."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self) -> str:
        self.asked.set()
        self.goes_on.wait(PATIENCE)
        return learning("Came too late")


@pytest.fixture
def hanging():
    one = Hanging()
    yield one
    one.goes_on.set()


def test_what_is_pending_is_learned_before_the_process_ends(host):
    manager = host.manager(ChatModel(), debounce_seconds=300)
    for user in ("ada", "bob"):
        manager.add("t1", talk(), user_id=user)
    assert manager.shutdown_flush(PATIENCE) is True
    assert contents(manager, "ada") == contents(manager, "bob") == ["Likes tea"]


def test_words_that_may_still_be_answered_are_left_to_the_next_process(host):
    manager = host.manager(ChatModel(), debounce_seconds=300)
    manager.add("t1", talk(), user_id="ada")
    manager.add("t2", talk()[:1], user_id="ada")
    assert manager.shutdown_flush(PATIENCE) is True
    (waiting,) = manager._hosting.home.memory("ada").status().pending
    assert (waiting.thread, waiting.waiting_for) == ("t2", "answer")
    manager.close()
    model = ChatModel(learning("Likes milk"))
    again = host.manager(model, debounce_seconds=0, answer_wait_seconds=0)
    assert again.warm_retrieval() is True
    assert learned(again) == ["Likes tea", "Likes milk"]
    assert len(model.asked) == 1


def test_without_a_model_there_is_nothing_to_wait_for_at_the_end_and_one_warning(host, caplog):
    manager = host.manager(None, debounce_seconds=0)
    manager.add("t1", talk(), user_id="ada")
    assert manager.shutdown_flush(PATIENCE) is True
    assert ["the host offers no model" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("llm", [None, ChatModel()])
def test_with_nothing_pending_a_shutdown_is_done_at_once(host, llm):
    manager = host.manager(llm)
    assert manager.shutdown_flush(0.5) is True


@pytest.mark.slow
def test_a_model_that_hangs_is_not_waited_for_past_the_limit_and_the_next_process_learns(host, hanging):
    manager = host.manager(ChatModel(hanging), debounce_seconds=300)
    manager.add("t1", talk(), user_id="ada")
    begun = time.monotonic()
    assert manager.shutdown_flush(0.2) is False
    manager.close()
    assert time.monotonic() - begun < PATIENCE / 2
    assert hanging.asked.is_set()
    hanging.goes_on.set()
    with Backstory.open(host.folder / "backstory") as home:
        (waiting,) = home.memory("ada").status().pending
        assert waiting.turns == 2
    after = host.manager(ChatModel())
    assert after.warm_retrieval() is True
    assert learned(after) == ["Likes tea"]


@pytest.mark.slow
def test_what_a_killed_process_left_is_learned_once_also_of_people_who_do_not_come_back(host):
    script = (
        "import os, sys, threading\n"
        f"sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / 'standin')!r}, {str(TESTS / 'deerflow')!r}]\n"
        "from pathlib import Path\n"
        "from hosts import ChatModel, Host, talk\n"
        f"manager = Host(Path({str(host.folder)!r})).manager(ChatModel(lambda: threading.Event().wait()))\n"
        "for user in ('ada', 'bob', None):\n    manager.add('t1', talk(), user_id=user)\n"
        "print(manager.shutdown_flush(0.1), flush=True)\n"
        "os._exit(9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=TESTS.parent, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (9, "False"), ended.stderr
    model = ChatModel()
    manager = host.manager(model)
    assert manager.warm_retrieval()
    assert manager.shutdown_flush(PATIENCE)
    assert len(model.asked) == 3
    for user in ("ada", "bob", None):
        assert contents(manager, user) == ["Likes tea"]


def test_one_damaged_memory_does_not_keep_the_others_from_being_learned_from(host, caplog):
    before = host.manager(None)
    for user in ("ada", "bob", "cid"):
        before.add("t1", talk(), user_id=user)
    before.close()
    log = host.folder / "backstory" / "users" / "bob" / "transcript.jsonl"
    log.write_bytes(log.read_bytes().replace(b"tea", b"tee", 1))
    manager = host.manager(ChatModel())
    assert manager.warm_retrieval()
    assert learned(manager) == ["Likes tea"]
    assert contents(manager, "cid") == ["Likes tea"]
    assert "user bob was not looked at, and is tried again" in caplog.text


def test_a_start_opens_only_the_memories_that_have_changed(host):
    manager = host.manager(ChatModel())
    for user in ("ada", "bob"):
        manager.add("t1", talk(), user_id=user)
    assert learned(manager) == ["Likes tea"]
    manager.close()
    opened = []
    for _ in range(2):
        manager = host.manager(ChatModel())
        assert manager.warm_retrieval()
        opened.append(sorted(str(writer.scope) for writer in manager._hosting.home._services.states.writers()))
        manager.close()
    assert opened == [["user ada", "user bob"], []]


def test_what_comes_after_the_end_is_taken_all_the_same(host):
    model = ChatModel()
    manager = host.manager(model)
    manager.create_fact("Sails", user_id="ada")
    for _ in range(2):
        manager.close()
    assert manager.shutdown_flush(1) is True
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Sails", "Likes tea"]
    manager.close()
    assert contents(manager) == ["Sails", "Likes tea"]
    manager.close()
    assert manager.clear_memory(user_id="ada")["facts"] == []
    manager.close()
    assert manager.warm() in (True, False)
    assert len(model.asked) == 1


def test_the_documents_file_is_exact_once_the_home_is_closed(host):
    manager = host.manager(ChatModel())
    manager.create_fact("Likes tea", user_id="ada")
    manager.close()
    assert "Likes tea" in (host.folder / "backstory" / "users" / "ada" / "memory.json").read_text()


def test_warming_loads_the_counter_of_tokens(host, monkeypatch):
    counted = host.manager(token_counting="char")  # noqa: S106 not that kind of token
    assert counted.warm() is True
    manager = host.manager()
    monkeypatch.setattr(manager._hosting.home, "warm", lambda timeout: "tiktoken:o200k_base")
    assert manager.warm() is True
    monkeypatch.setattr(manager._hosting.home, "warm", lambda timeout: "estimate")
    assert manager.warm() is False


def test_who_opens_the_home_again_while_it_is_closed_keeps_theirs(host, monkeypatch):
    from backstory.deerflow import hosting

    manager = host.manager(ChatModel(), debounce_seconds=300)
    manager.add("t1", talk(), user_id="ada")
    old = manager._hosting.home
    within = hosting._within

    def overtaken(seconds, name, work):
        # A late request comes as soon as the lock is free.
        assert manager.get_memory(user_id="ada")["facts"] == []
        return within(seconds, name, work)

    monkeypatch.setattr(hosting, "_within", overtaken)
    manager.close()
    monkeypatch.undo()
    assert manager._hosting.home is not old
    manager.add("t2", talk(), user_id="ada")
    assert len(manager._hosting.home.memory("ada").threads()) == 2
    manager.close()


def test_a_running_process_takes_up_the_pending_turns_of_one_that_was_killed(host, monkeypatch):
    monkeypatch.setattr("backstory.deerflow.hosting._TAKING_UP_SECONDS", 0.01)
    asked = threading.Event()
    model = ChatModel(lambda: asked.set() or learning("Likes tea"))
    manager = host.manager(model, debounce_seconds=1)
    assert manager.warm_retrieval()
    # It ends without having learned from what it recorded, as a killed one does.
    with Backstory.open(host.folder / "backstory", background=False) as other:
        other.memory("ada", "coder").record("t1", talk())
    assert asked.wait(PATIENCE)
    assert learned(manager, agent="coder") == ["Likes tea"]
