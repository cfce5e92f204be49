"""Bad input and bad days: the agent answers, nothing is lost, nothing is mixed up, and `status` tells."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deerflow.agents.memory.manager import MemoryConflictError, MemoryCorruptionError, MemoryManagerError
from fakes import PATIENCE
from hosts import ChatModel, Host, contents, learned, learning, talk
from langchain_core.messages import AIMessage, HumanMessage

from backstory.deerflow.memory import HostedMemory
from backstory.ledger.core.errors import StoreError, WrongExpectedVersionError
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.writer import Writer


def folder_of(host: Host, user: str = "ada") -> Path:
    return host.folder / "backstory" / "users" / user


def damage(file: Path) -> bytes:
    """Change a word in the middle of a log; return the file as it was."""
    was = file.read_bytes()
    lines = was.splitlines(keepends=True)
    lines[0] = lines[0].replace(b'"seq":1', b'"seq":7', 1)
    file.write_bytes(b"".join(lines))
    assert file.read_bytes() != was
    return was


@contextlib.contextmanager
def locked(manager, log: str) -> Iterator[None]:
    """Hold the lock of a log as another process would, and have nobody wait long for it."""
    home = manager._hosting.home
    home.store._locks._timeout = 0.02
    path = home.home / "users" / "ada" / f"{log}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
        home.store._locks._timeout = 10


def said(manager, thread: str = "t1", user: str = "ada") -> list[str]:
    return [turn.content for turn in manager._hosting.home.memory_of(Scope(user)).transcript(thread)]


def faults(manager, user: str = "ada") -> dict[tuple[str, str], int]:
    memory = manager._hosting.home.memory_of(Scope(user))
    return {(fault.doing, fault.kind): fault.count for fault in memory.status().faults}


# Faults of memory.


def test_a_damaged_log_is_corruption_to_the_gateway_and_nothing_to_the_agent(host):
    before = host.manager()
    before.create_fact("Likes tea", user_id="ada")
    before.close()
    was = damage(folder_of(host) / "ledger.jsonl")
    manager = host.manager(ChatModel())
    for call in (
        lambda: manager.get_memory(user_id="ada"),
        lambda: manager.reload_memory(user_id="ada"),
        lambda: manager.create_fact("x", user_id="ada"),
        lambda: manager.update_fact("x", content="y", user_id="ada"),
        lambda: manager.delete_fact("x", user_id="ada"),
        lambda: manager.search("tea", user_id="ada"),
        lambda: manager.get_context("ada"),
    ):
        with pytest.raises(MemoryCorruptionError, match=r"ledger.*line 1"):
            call()
    manager.add("t1", talk(), user_id="ada")
    manager.add_nowait("t1", talk(), user_id="ada")
    (folder_of(host) / "ledger.jsonl").write_bytes(was)
    assert learned(manager) == ["Likes tea"]
    assert said(manager) == ["I like tea.", "Noted."]
    counted = faults(manager)
    assert counted["inject", "CorruptLogError"] == counted["search", "CorruptLogError"] == 1
    assert counted["record", "CorruptLogError"] >= 1


def test_a_fault_while_injecting_is_logged_once_and_counted_each_time(host, caplog):
    manager = host.manager(ChatModel())
    manager.create_fact("Likes tea", user_id="ada")
    manager.close()
    damage(folder_of(host) / "ledger.jsonl")
    again = host.manager(ChatModel())
    caplog.clear()
    for _ in range(3):
        with pytest.raises(MemoryCorruptionError):
            again.get_context("ada")
    told = [record for record in caplog.records if "inject" in record.getMessage()]
    assert len(told) == 1
    counted = {fault.doing: fault.count for fault in again._hosting.home.faults.of(Scope("ada"))}
    assert counted["inject"] == 3


def test_once_injecting_went_well_its_next_fault_is_logged_again(host, monkeypatch, caplog):
    manager = host.manager(ChatModel())
    fails = [True, True, False, True]
    monkeypatch.setattr(HostedMemory, "body", lambda self, thread, facts: "told" if not fails.pop(0) else _refuse())
    for _ in range(4):
        with contextlib.suppress(MemoryManagerError):
            manager.get_context("ada")
    assert sum("disk full" in record.getMessage() for record in caplog.records) == 2
    assert faults(manager) == {("inject", "StoreError"): 3}


def _refuse():
    raise StoreError("disk full")


def test_wrong_use_is_no_fault_of_memory(host):
    manager = host.manager(ChatModel(), strict_user_scope=True)
    for call in (manager.get_context, lambda user: manager.search("tea", user_id=user)):
        with pytest.raises(ValueError, match="strict_user_scope"):
            call(None)
    assert "inject" not in {fault.doing for fault in manager._hosting.home.faults.of(Scope())}
    assert "search" not in {fault.doing for fault in manager._hosting.home.faults.of(Scope())}


def test_a_lock_that_somebody_keeps_is_a_conflict_and_what_was_said_waits(host):
    manager = host.manager(ChatModel())
    with locked(manager, "ledger"), pytest.raises(MemoryConflictError):
        manager.create_fact("Likes tea", user_id="ada")
    with locked(manager, "transcript"):
        manager.add("t1", talk(number=1), user_id="ada")
        manager.add("t1", [*talk(number=1), *talk("And coffee.", number=2)], user_id="ada")
        assert manager.shutdown_flush(0.3) is False
    assert manager.shutdown_flush(PATIENCE)
    assert said(manager) == ["I like tea.", "Noted.", "And coffee.", "Noted."]
    assert faults(manager)["record", "LockTimeoutError"] >= 1


def test_a_store_that_hangs_does_not_hold_the_shutdown_up(host, monkeypatch):
    manager = host.manager(ChatModel())
    goes_on = threading.Event()
    monkeypatch.setattr(manager._hosting._fail_safe, "flush", lambda timeout: goes_on.wait(PATIENCE))
    monkeypatch.setattr("backstory.deerflow.hosting._CLOSING_SECONDS", 0.1)
    close = manager._hosting.home.close
    monkeypatch.setattr(manager._hosting.home, "close", lambda: goes_on.wait(PATIENCE) and close())
    begun = time.monotonic()
    assert manager.shutdown_flush(0.2) is False
    manager.close()
    assert time.monotonic() - begun < PATIENCE / 2
    goes_on.set()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreError("disk full"), MemoryManagerError),
        (StoreError("disk full"), OSError),
        (OSError(28, "No space left"), MemoryManagerError),
        (OSError(28, "No space left"), OSError),
        (WrongExpectedVersionError("late", actual=3), MemoryConflictError),
    ],
)
def test_a_store_that_refuses_is_an_error_both_the_gateway_and_a_guard_know(host, monkeypatch, error, kind):
    manager = host.manager(ChatModel())

    def fails(*args, **more):
        raise error

    monkeypatch.setattr(Writer, "commit", fails)
    with pytest.raises(kind, match=r"disk full|No space|late"):
        manager.create_fact("Likes tea", user_id="ada")


def test_words_wait_out_a_store_that_refuses_them_in_their_order(host, monkeypatch):
    manager = host.manager(ChatModel())
    record = Writer.record
    refusals = iter([StoreError("full")] * 2)

    def sometimes(*args, **more):
        for error in refusals:
            raise error
        return record(*args, **more)

    monkeypatch.setattr(Writer, "record", sometimes)
    manager.add("t1", talk("First", number=1), user_id="ada")
    manager.add("t1", [*talk("First", number=1), *talk("Second", number=2)], user_id="ada")
    manager.add("t1", [*talk("First", number=1), *talk("Second", number=2), *talk("Third", number=3)], user_id="ada")
    assert manager.shutdown_flush(PATIENCE)
    assert said(manager)[::2] == ["First", "Second", "Third"]
    assert faults(manager) == {("record", "StoreError"): 2}


def test_a_model_that_is_down_parks_what_was_said_and_the_agent_goes_on(host):
    model = ChatModel(ConnectionError("refused"))
    manager = host.manager(model, max_attempts=1)
    manager.add("t1", talk(), user_id="ada")
    assert manager.shutdown_flush(PATIENCE)
    assert manager.get_context("ada") == ""
    (parked,) = manager._hosting.home.memory("ada").status().parked
    assert (parked.reason, parked.turns) == ("unavailable", 2)
    assert faults(manager) == {("extract", "ConnectionError"): 1}


def test_a_model_that_answers_nonsense_costs_one_update_and_nothing_else(host):
    model = ChatModel("I would rather not.")
    manager = host.manager(model)
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == []
    model.answer = learning("Likes coffee")
    manager.add("t1", [*talk(), *talk("And coffee.", number=2)], user_id="ada")
    assert learned(manager) == ["Likes coffee"]


# Bad input.


def test_a_message_nobody_can_read_is_left_out_and_the_rest_is_kept(host):
    manager = host.manager(ChatModel())
    manager.add("t1", [object(), *talk(), {"role": "oracle", "content": "?"}, 7], user_id="ada")
    assert said(manager) == ["I like tea.", "Noted."]
    assert faults(manager) == {("record", "InputError"): 3}


def test_what_is_no_list_of_messages_is_counted_and_harms_nobody(host):
    manager = host.manager(ChatModel())
    for nothing in (None, 7, "words"):
        manager.add("t1", nothing, user_id="ada")
    manager.add("t1", [], user_id="ada")
    manager.add("", talk(), user_id="ada")
    assert manager._hosting.home.memory("ada").threads() == ()
    assert faults(manager)


def test_any_thread_id_is_a_conversation_of_its_own(host):
    manager = host.manager(ChatModel())
    ids = ["a/b/../c", "x" * 10_000, "x" * 9_999 + "y", "ünï/cødé", "\ud800", " "]
    for number, thread in enumerate(ids):
        manager.add(thread, talk(f"Number {number}"), user_id="ada")
    threads = [known.thread for known in manager._hosting.home.memory("ada").threads()]
    assert len(set(threads)) == len(ids)
    assert [said(manager, thread)[0] for thread in threads] == [f"Number {number}" for number in range(len(ids))]


def test_fifty_megabytes_are_kept_and_the_prompt_stays_small(host):
    model = ChatModel()
    manager = host.manager(model)
    manager.add("t1", [HumanMessage("tea " * (50 * 1024 * 256), id="1"), AIMessage("Noted.", id="2")], user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert len(model.asked[0].messages[1].content) < 100_000


def test_a_hosts_list_that_changes_later_changes_nothing(host):
    manager = host.manager(ChatModel())
    messages = talk()
    with locked(manager, "transcript"):
        manager.add("t1", messages, user_id="ada")
        messages[0].content = "Something else"
        messages.clear()
    assert manager.shutdown_flush(PATIENCE)
    assert said(manager) == ["I like tea.", "Noted."]


# Many at once.


def test_a_user_id_that_changes_in_mid_thread_mixes_nothing_up(host):
    manager = host.manager(ChatModel())
    manager.add("t1", talk("I am Ada", number=1), user_id="ada")
    manager.add("t1", talk("I am Bob", number=2), user_id="bob")
    assert said(manager, user="ada")[0] == "I am Ada"
    assert said(manager, user="bob") == ["I am Bob", "Noted."]


def test_sixteen_threads_of_conversations_lose_nothing_and_learn_everything_once(host):
    asked = Counter()
    lock = threading.Lock()

    class Counting(ChatModel):
        def invoke(self, messages, /, config=None):
            words = messages[1].content
            with lock:
                for number in range(64):
                    asked[number] += f"word-{number:03}-here" in words
            return AIMessage(learning())

    manager = host.manager(Counting(), workers=4)

    def converse(number: int) -> None:
        user, agent = f"user-{number % 4}", "coder" if number % 2 else None
        for turn in range(2):
            messages = talk(f"word-{number:03}-here", number=1) + (talk("Go on", number=2) if turn else [])
            manager.add(f"t{number}", messages, user_id=user, agent_name=agent)
            manager.get_context(user, agent_name=agent, thread_id=f"t{number}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(converse, range(64)))
    assert manager.shutdown_flush(60)
    assert asked == dict.fromkeys(range(64), 1)


def test_two_agents_on_one_thread_at_once_each_keep_what_they_were_told(host):
    manager = host.manager(ChatModel())
    start = threading.Barrier(2)

    def speak(agent: str) -> None:
        start.wait(PATIENCE)
        for number in range(20):
            manager.add("t1", talk(f"{agent} {number}", number=number), user_id="ada", agent_name=agent)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(speak, ["coder", "cook"]))
    for agent in ("coder", "cook"):
        turns = manager._hosting.home.memory("ada", agent).transcript("t1")
        assert [turn.content for turn in turns][::2] == [f"{agent} {number}" for number in range(20)]
    assert contents(manager) == []
