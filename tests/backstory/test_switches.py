"""What can be switched off stays off: `enabled` and `mode`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes import ScriptedModel, exchange, open_home, reply

from backstory.ledger.core.errors import InputError, UsageError


def test_nothing_is_recorded_or_learned_where_memory_is_off(tmp_path: Path) -> None:
    model = ScriptedModel(reply("User likes tea"), repeat=True)
    with open_home(tmp_path / "home", model, enabled=False, background=True, debounce_seconds=0) as bs:
        memory = bs.memory("ada")
        result = memory.record("t1", exchange("tea"), immediate=True)
        assert (result.threads, result.turns, result.skipped) == (1, 0, 2)
        assert asyncio.run(memory.arecord("t1", exchange("tea"))).turns == 0
        assert memory.flush(timeout=1)
        assert memory.status().pending == ()
        assert model.prompts == []
    assert not list(tmp_path.glob("home/**/*.jsonl"))


def test_a_message_that_cannot_be_read_is_told_where_memory_is_off_too(tmp_path: Path) -> None:
    with open_home(tmp_path, enabled=False) as bs:
        memory = bs.memory(scope="global")
        with pytest.raises(InputError):
            memory.record("t1", [{"role": "wizard", "content": "x"}])
    with pytest.raises(UsageError, match="was closed"):
        memory.record("t1", exchange("tea"))


def test_what_was_pending_stays_so_where_memory_is_off(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        bs.memory(scope="global").record("t1", exchange("tea"))
    model = ScriptedModel(reply("User likes tea"), repeat=True)
    with open_home(tmp_path, model, enabled=False, background=True, debounce_seconds=0) as bs:
        assert not bs.memory(scope="global").flush(timeout=0.01)
        assert model.prompts == []
    with open_home(tmp_path, model) as bs:
        assert bs.memory(scope="global").extract().updates == 1


def test_reading_auditing_and_entering_by_hand_work_where_memory_is_off(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("User likes tea"))) as bs:
        bs.memory(scope="global").record("t1", exchange("tea"))
        assert bs.memory(scope="global").extract().updates == 1
    with open_home(tmp_path, enabled=False) as bs:
        memory = bs.memory(scope="global")
        (fact,) = memory.facts()
        assert memory.why(fact.id).evidence
        assert memory.add_fact("User likes rain").commit == 3
        assert memory.revert(3).commit == 4
        assert memory.verify().ok


def test_in_tool_mode_nothing_is_learned_in_the_background(tmp_path: Path) -> None:
    model = ScriptedModel(reply("User likes tea"), repeat=True)
    with open_home(tmp_path, model, mode="tool", background=True, debounce_seconds=0) as bs:
        memory = bs.memory(scope="global")
        assert memory.record("t1", exchange("tea"), immediate=True).turns == 2
        assert not memory.flush(timeout=0.01)
        assert model.prompts == []
        assert memory.facts() == ()
        assert memory.extract().updates == 1
        assert [fact.content for fact in memory.facts()] == ["User likes tea"]
    assert len(model.prompts) == 1


def test_in_middleware_mode_it_is_learned_in_the_background(tmp_path: Path) -> None:
    model = ScriptedModel(reply("User likes tea"), repeat=True)
    with open_home(tmp_path, model, mode="middleware", background=True, debounce_seconds=0) as bs:
        bs.memory(scope="global").record("t1", exchange("tea"))
        assert bs.memory(scope="global").flush(timeout=20)
        assert len(bs.memory(scope="global").facts()) == 1
