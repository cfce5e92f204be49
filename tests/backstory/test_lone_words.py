"""A user's words without an answer, through the API: learned on request, and every flush says what it left and why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply

from backstory import Flushed
from backstory.ledger.core.errors import NoModelError, UsageError
from backstory.memory import MemoryHandle
from backstory.operations import recording

OSLO: list[dict[str, object]] = [{"role": "user", "content": "I live in Oslo"}]
OK: list[dict[str, object]] = [{"role": "user", "content": "ok"}]


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    """Forget which homes were warned about: pytest names temporary folders alike in every run."""
    recording._warned.clear()
    yield
    recording._warned.clear()


def contents(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def test_a_flush_learns_from_a_lone_message(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Lives in Oslo")), background=True) as bs:
        memory = bs.memory("ada")
        memory.record("t", OSLO)
        assert memory.flush(PATIENCE) == Flushed(done=True)
        assert contents(memory) == ["Lives in Oslo"]
        assert memory.flush(PATIENCE)
        assert memory.status().pending == ()


def test_an_extract_learns_from_a_lone_message(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Lives in Oslo"))) as bs:
        memory = bs.memory("ada")
        memory.record("t", OSLO)
        assert memory.extract().updates == 1
        assert contents(memory) == ["Lives in Oslo"]
        assert memory.extract().updates == 0


def test_the_async_twins_do_too(tmp_path: Path) -> None:
    async def talked() -> None:
        with open_home(tmp_path, ScriptedModel(reply("Lives in Oslo"), reply("Likes tea")), background=True) as bs:
            memory = bs.memory("ada")
            await memory.arecord("t", OSLO)
            assert await memory.aflush(PATIENCE) == Flushed(done=True)
            await memory.arecord("u", exchange("tea")[:1])
            assert await bs.aflush(PATIENCE) == Flushed(done=True)
            assert contents(memory) == ["Lives in Oslo", "Likes tea"]

    asyncio.run(talked())


def test_a_home_that_is_flushed_learns_from_it_unless_it_goes_on_elsewhere(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Lives in Oslo")), background=True) as bs:
        memory = bs.memory("ada")
        memory.record("t", OSLO)
        assert bs.flush(PATIENCE, unanswered=False)
        assert [thread.waiting_for for thread in memory.status().pending] == ["answer"]
        assert bs.flush(PATIENCE)
        assert contents(memory) == ["Lives in Oslo"]


def test_closing_leaves_it_to_a_later_process(tmp_path: Path) -> None:
    clock, model = FakeClock(), ScriptedModel(reply("Lives in Oslo"))
    with open_home(tmp_path, model, clock=clock, background=True) as bs:
        bs.memory("ada").record("t", OSLO)
    assert model.prompts == []
    clock.advance(600)
    with open_home(tmp_path, model, clock=clock, background=True) as bs:
        memory = bs.memory("ada")
        assert bs.flush(PATIENCE, unanswered=False)
        assert contents(memory) == ["Lives in Oslo"]


def test_an_acknowledgement_alone_triggers_no_call(tmp_path: Path) -> None:
    model = ScriptedModel(reply())
    with open_home(tmp_path, model, background=True) as bs:
        memory = bs.memory("ada")
        memory.record("t", OK)
        assert memory.flush(PATIENCE)
        assert memory.extract().updates == 0
        assert model.prompts == []
        assert [(one.turns, one.due_in, one.waiting_for) for one in memory.status().pending] == [(1, None, None)]


# Why a flush is not done.


def test_without_a_model_a_flush_says_so_and_an_extract_raises(tmp_path: Path) -> None:
    with open_home(tmp_path, background=True) as bs:
        memory = bs.memory("ada")
        assert memory.flush()
        assert bs.flush()
        memory.record("a", OK)
        assert memory.flush()
        memory.record("t", OSLO)
        for flushed in (memory.flush(), bs.flush()):
            assert not flushed
            assert flushed.reason is not None
            assert flushed.reason.startswith("no model can be asked without a key or an address: set OPENAI_API_KEY")
            assert "pass a client or a function as `model` to Backstory.open" in flushed.reason
            assert flushed.reason.endswith("pending turns: 1")
        with pytest.raises(NoModelError, match="OPENAI_API_KEY"):
            memory.extract()


def test_where_nothing_is_extracted_in_the_background_a_flush_names_the_way(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel()) as bs:
        bs.memory("ada").record("t", OSLO)
        assert "call `extract`" in str(bs.memory("ada").flush().reason)
    with open_home(tmp_path, ScriptedModel(), enabled=False, background=True) as bs:
        assert "`enabled` is off" in str(bs.memory("ada").flush().reason)
    with pytest.raises(UsageError, match="was closed"):
        bs.flush()


def test_a_flush_says_where_memory_json_cannot_be_written(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(reply("Lives in Oslo")), background=True) as bs:
        memory = bs.memory("ada")
        (tmp_path / "users" / "ada" / "memory.json").mkdir(parents=True)
        memory.record("t", OSLO)
        flushed = memory.flush(PATIENCE)
        assert not flushed
        assert f"{tmp_path / 'users' / 'ada' / 'memory.json'} could not be written" in str(flushed.reason)
        (tmp_path / "users" / "ada" / "memory.json").rmdir()
        assert memory.flush(PATIENCE)


def test_the_result_is_frozen_and_true_where_it_is_done() -> None:
    assert Flushed.unless(None, None) == Flushed(done=True)
    both = Flushed.unless("one", None, "two")
    assert (bool(both), both.reason) == (False, "one; two")
    with pytest.raises(AttributeError):
        both.done = True  # type: ignore[misc]


# Recording without a model.


def test_a_recording_without_a_model_warns_once_per_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("one", "two", "one"):
        with open_home(tmp_path / name, background=True) as bs:
            for thread in ("t", "u"):
                bs.memory("ada").record(thread, OSLO)
                bs.memory("ada").record(thread, OSLO)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.partition(":")[0] for message in told] == [str(tmp_path / "one"), str(tmp_path / "two")]
    assert all("nothing is extracted from it until there is a model" in message for message in told)
    assert all("set OPENAI_API_KEY" in message for message in told)


@pytest.mark.parametrize(
    "settings", [{"mode": "tool"}, {"enabled": False}, {"background": False}, {"model": ScriptedModel()}]
)
def test_where_that_is_meant_nothing_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, object]
) -> None:
    with open_home(tmp_path, **{"background": True, **settings}) as bs:  # type: ignore[arg-type]
        bs.memory("ada").record("t", OSLO)
    assert caplog.records == []


def test_opening_alone_does_not_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_home(tmp_path, background=True) as bs:
        bs.memory("ada").record("t", [])
        bs.memory("ada").status()
    assert caplog.records == []
