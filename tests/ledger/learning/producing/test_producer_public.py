"""Through the public surface"""

from __future__ import annotations

import itertools
import threading

import pytest
from fakes import PATIENCE, FakeClock, Gate, ScriptedModel, exchange, open_home, reply
from producers import ACK, told

from backstory.ledger.core.errors import (
    ConfigError,
)
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.memory import MemoryHandle


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def test_what_is_recorded_is_learned_from_by_itself(home):
    memory = home(reply("Likes tea"), debounce_seconds=0).memory("ada")
    learned = threading.Event()
    watcher = home(listeners=(lambda *told: learned.set(),)).memory("ada")
    assert watcher.facts() == ()
    memory.record("t", exchange("tea"))
    assert memory.flush(PATIENCE)
    assert texts(memory) == texts(watcher) == ["Likes tea"]


def test_without_a_flush_too(home):
    learned = threading.Event()
    memory = home(reply("Likes tea"), debounce_seconds=0, listeners=(lambda *told: learned.set(),)).memory("ada")
    memory.record("t", exchange("tea"))
    assert learned.wait(PATIENCE)


def test_at_once_overtakes_the_debounce(home):
    learned = threading.Event()
    memory = home(reply("Likes tea"), listeners=(lambda *told: learned.set(),)).memory("ada")
    memory.record("t", exchange("tea"))
    assert [thread.due_in for thread in memory.status().pending] == [30.0]
    memory.record("t", exchange("milk"), immediate=True)
    assert learned.wait(PATIENCE)


def test_leaving_the_context_learns_from_what_is_pending(tmp_path):
    with open_home(tmp_path, ScriptedModel(reply("Likes tea")), background=True) as backstory:
        backstory.memory("ada").record("t", exchange("tea"))
    assert texts(open_home(tmp_path).memory("ada")) == ["Likes tea"]


def test_due_times_outlive_a_restart(home):
    clock = FakeClock()
    first = home(clock=clock).memory("ada")
    first.record("t", exchange("tea"))
    clock.advance(20)
    first.record("u", exchange("milk"))
    second = home(clock=clock).memory("ada")
    for memory in (first, second):
        assert {thread.thread: thread.due_in for thread in memory.status().pending} == {"t": 10.0, "u": 30.0}
    clock.advance(15)
    assert {thread.thread: thread.due_in for thread in second.status().pending} == {"t": 0.0, "u": 15.0}
    learning = home(reply("Likes tea"), clock=clock).memory("ada")
    assert learning.flush(PATIENCE)
    assert second.status().pending == ()


def test_without_a_background_a_flush_tells_whether_anything_is_due(home):
    memory = home(reply("Likes tea"), background=False).memory("ada")
    assert memory.flush(0)
    memory.record("t", ACK)
    assert memory.flush(0)
    memory.record("t", exchange("tea"))
    flushed = memory.flush(0)
    assert not flushed
    assert flushed.reason is not None
    assert flushed.reason.endswith("call `extract`; pending turns: 4")
    memory.extract()
    assert memory.flush(0)


def test_a_recorder_is_told_when_too_much_is_due(home):
    gate = Gate(reply("Likes tea"))
    memory = home(gate, workers=1, queue_max_depth=1, debounce_seconds=0).memory("ada")
    try:
        assert memory.record("a", exchange("tea")).backlog is False
        assert gate.entered.wait(PATIENCE)
        assert memory.record("b", exchange("tea")).backlog is False
        assert memory.record("c", exchange("tea")).backlog is True
        assert [thread.thread for thread in memory.status().pending] == ["a", "b", "c"]
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE)
    assert memory.status().pending == ()


def test_back_pressure_sheds_no_correction_and_lets_it_go_first(home):
    gate = Gate(reply())
    memory = home(gate, reply(), workers=1, queue_max_depth=1, debounce_seconds=0).memory("ada")
    try:
        memory.record("a", exchange("tea"))
        assert gate.entered.wait(PATIENCE)
        for thread in ("b", "c", "d"):
            memory.record(thread, told("The rain has stopped."))
        assert memory.record("wrong", told("That's wrong, I live in Bergen.")).backlog is True
        assert [thread.thread for thread in memory.status().pending] == ["a", "b", "c", "d", "wrong"]
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE)
    assert memory.status().pending == ()
    learned = [entry.cause.thread for entry in reversed(memory.log()) if entry.cause.thread]
    assert learned == ["a", "wrong", "b", "c", "d"]


def test_a_broken_pattern_file_fails_when_the_home_is_opened(tmp_path):
    (tmp_path / "goal.toml").write_text("mine = ['(']")
    for settings in ({"background": True}, {"background": False}):
        with pytest.raises(ConfigError, match=r"goal\.toml"):
            open_home(tmp_path, ScriptedModel(), patterns_dir=str(tmp_path), **settings)


def test_patterns_of_ones_own_say_who_goes_first(home, tmp_path):
    folder = tmp_path / "patterns"
    folder.mkdir()
    (folder / "correction.toml").write_text("mine = ['\\brain\\b']")
    gate = Gate(reply())
    memory = home(gate, reply(), workers=1, debounce_seconds=0, patterns_dir=str(folder)).memory("ada")
    try:
        memory.record("a", exchange("tea"))
        assert gate.entered.wait(PATIENCE)
        memory.record("b", told("That's wrong."))
        memory.record("c", told("The rain has stopped."))
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE)
    assert [entry.cause.thread for entry in reversed(memory.log()) if entry.cause.thread] == ["a", "c", "b"]


def test_extracting_here_while_workers_are_there_asks_about_nothing_twice(home):
    backstory = home(reply("Likes tea"), debounce_seconds=0, workers=4)
    memory = backstory.memory("ada")
    for number in range(8):
        memory.record(f"t{number % 3}", exchange("tea", number))
        memory.extract()
    assert memory.flush(PATIENCE)
    ranges = [(entry.cause.thread, entry.cause.turns) for entry in memory.log() if entry.cause.turns is not None]
    covered = [(thread, n) for thread, turns in ranges for n in range(turns.first, turns.last + 1)]
    assert len(covered) == len(set(covered)) == 16
    refused = [event for entry in memory.log() for event in entry.events if getattr(event, "rule", "") == "covered"]
    assert refused == []


@pytest.mark.parametrize("workers", [1, 3])
def test_two_homes_opened_on_one_folder_cover_no_turn_twice_and_lose_none(home, workers):
    homes = [home(reply("Likes tea"), debounce_seconds=0, workers=workers) for _ in range(2)]
    memories = [backstory.memory("ada") for backstory in homes]
    for number in range(12):
        memories[number % 2].record(f"t{number % 3}", exchange(f"topic {number}", number))
    for _ in range(3):
        for memory in memories:
            assert memory.flush(PATIENCE)
    status = memories[0].status()
    assert (status.pending, status.parked) == ((), ())
    entries = memories[0].log()
    covered = [
        (entry.cause.thread, n)
        for entry in entries
        if entry.cause.turns is not None
        for n in range(entry.cause.turns.first, entry.cause.turns.last + 1)
    ]
    assert sorted(covered) == sorted((f"t{t}", n) for t in range(3) for n in range(1, 9))
    assert memories[0].verify().ok
    assert memories[0].document() == memories[1].document()


def test_a_function_that_raises_is_tried_and_parked(tmp_path):
    clock = FakeClock()
    calls: list[float] = []

    def think(messages: list[dict[str, str]]) -> str:
        calls.append(clock.now().timestamp())
        raise ValueError("a bug in the host")

    with open_home(tmp_path, think, clock=clock, background=True, max_attempts=3) as backstory:
        memory = backstory.memory("ada")
        memory.record("t", exchange("tea"))
        assert not memory.flush(PATIENCE)
        (parked,) = memory.status().parked
        assert (parked.reason, parked.attempts) == ("unavailable", 3)
        assert "a bug in the host" in parked.detail
    assert [later - earlier for earlier, later in itertools.pairwise(calls)] == [1, 2]


def test_calls_of_all_threads_are_kept_apart(tmp_path):
    clock = FakeClock()
    model = ScriptedModel(reply("Likes tea"), repeat=True)
    with open_home(tmp_path, model, clock=clock, min_seconds_between_calls=7) as backstory:
        for user in ("ada", "bob"):
            memory = backstory.memory(user)
            for thread in ("t1", "t2"):
                memory.record(thread, exchange("tea"))
            memory.extract()
    assert clock.slept == [7, 7, 7]


def test_retrying_and_discarding_beside_workers(home):
    backstory = home("half {", reply("Likes tea"), debounce_seconds=0)
    memory = backstory.memory("ada")
    memory.record("t", exchange("tea"))
    assert not memory.flush(PATIENCE)
    assert [(item.reason, item.attempts) for item in memory.status().parked] == [("reply", 1)]
    assert memory.retry().failed == 0
    assert texts(memory) == ["Likes tea"]
    assert memory.status().parked == ()


def test_a_clear_while_a_worker_waits_for_the_model(home):
    gate = Gate(reply("Likes tea"))
    memory = home(gate, debounce_seconds=0).memory("ada")
    memory.record("t", exchange("tea"))
    assert gate.entered.wait(PATIENCE)
    memory.clear()
    gate.opened.set()
    assert memory.flush(PATIENCE)
    assert texts(memory) == []
    assert memory.status().pending == ()
    assert len(memory._services.home.model.prompts) == 1


def test_a_revert_while_a_worker_waits_asks_again_on_the_memory_after_it(home):
    gate = Gate(reply("Likes tea"))
    first_done = iter([reply("Lives in Oslo"), gate, reply("Likes green tea")])

    def think(prompt: Prompt) -> str | Answer:
        step = next(first_done)
        return step(prompt) if isinstance(step, Gate) else step

    memory = home(think, debounce_seconds=0).memory("ada")
    memory.record("t", exchange("fish"))
    assert memory.flush(PATIENCE)
    memory.record("t", exchange("tea"))
    assert gate.entered.wait(PATIENCE)
    memory.revert(2)
    gate.opened.set()
    assert memory.flush(PATIENCE)
    assert texts(memory) == ["Likes green tea"]
    prompts = memory._services.home.model.prompts
    assert len(prompts) == 3
    assert "Lives in Oslo" in prompts[1].user
    assert "Lives in Oslo" not in prompts[2].user


def test_a_status_tells_of_each_thread_when_it_is_due(home):
    clock = FakeClock()
    memory = home(clock=clock, debounce_seconds=10, max_wait_seconds=25).memory("ada")
    memory.record("quiet", ACK)
    for _ in range(3):
        memory.record("t", exchange("tea"), mode="append")
        clock.advance(8)
    memory.record("lone", exchange("tea")[:1])
    clock.advance(1)
    told = {thread.thread: (thread.turns, thread.due_in, thread.waiting_for) for thread in memory.status().pending}
    assert told == {"quiet": (2, None, None), "t": (6, 0.0, "model"), "lone": (1, 599.0, "answer")}
    extracting = home(reply(), background=False, clock=clock, debounce_seconds=10, max_wait_seconds=25).memory("ada")
    told = {thread.thread: (thread.due_in, thread.waiting_for) for thread in extracting.status().pending}
    assert told == {"quiet": (None, None), "t": (0.0, None), "lone": (599.0, "answer")}
    extracting.record("u", exchange("milk"))
    assert [(thread.due_in, thread.waiting_for) for thread in extracting.status().pending][-1] == (10.0, "debounce")
