"""Words past their time (`transcript_retention_days`): erased with proof, once nothing is to be learned from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, Gate, ScriptedModel, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.errors import ModelRejectedError
from backstory.ledger.core.events import Erased, Redacted, Section, SummaryUpdated
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle

DAY = 86_400.0


def opened(home: Path, clock: FakeClock, *script: object) -> Backstory:
    return open_home(home, ScriptedModel(*script), clock=clock, transcript_retention_days=30)  # type: ignore[arg-type]


def bytes_of(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def said(memory: MemoryHandle, thread: str) -> list[str]:
    return [turn.content for turn in memory.transcript(thread)]


def test_turns_past_their_time_go_from_every_byte_and_what_was_learned_stays(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock, reply("Likes tea"), reply("Runs")) as bs:
        memory = bs.memory("ada")
        memory.record("old", exchange("jasmine"))
        memory.extract()
        clock.advance(31 * DAY)
        memory.record("new", exchange("running"))
        memory.extract()
        assert said(memory, "old") == []
        assert said(memory, "new") != []
        assert [fact.content for fact in memory.facts()] == ["Likes tea", "Runs"]
        assert memory.verify().ok
        (entry,) = memory.log(limit=1)
        assert (entry.cause.kind, entry.cause.action, entry.cause.actor) == ("redaction", "expired", "configuration")
        assert {event.what for event in entry.events if isinstance(event, Redacted)} == {"expired"}
    assert b"jasmine" not in bytes_of(tmp_path)


def test_what_is_still_to_be_learned_from_is_kept_however_old(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock, reply("Likes tea")) as bs:
        memory = bs.memory("ada")
        memory.record("old", exchange("jasmine"))
        clock.advance(400 * DAY)
        assert not memory.flush()
        assert said(memory, "old") != []
        memory.extract()
        clock.advance(3_601)
        memory.flush()
        assert said(memory, "old") == []


def test_it_looks_once_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looked = FakeClock(), []
    monkeypatch.setattr(Writer, "expire", lambda writer, before: looked.append(before))
    with opened(tmp_path, clock) as bs:
        for minutes in (0, 30, 29, 2, 30):
            clock.advance(60 * minutes)
            bs.memory("ada").flush()
    assert len(looked) == 2


def test_nothing_is_written_where_nothing_is_past_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock, reply("Likes tea")) as bs:
        memory = bs.memory("ada")
        memory.record("old", exchange("jasmine"))
        memory.extract()
        before = memory.head()
        clock.advance(29 * DAY)
        memory.flush()
        assert memory.head() == before


def test_a_failure_that_quotes_turns_goes_with_them_once_they_no_longer_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock, ModelRejectedError("refused: jasmine"), reply("Likes tea")) as bs:
        memory = bs.memory("ada")
        memory.record("old", exchange("jasmine"))
        memory.extract()
        clock.advance(31 * DAY)
        memory.flush()
        # They are parked, and remain so.
        assert said(memory, "old") != []
        assert b"refused: jasmine" in bytes_of(tmp_path)
        memory.retry()
        memory.extract()
        clock.advance(3_601)
        memory.flush()
        assert said(memory, "old") == []
        assert memory.verify().ok
    assert b"jasmine" not in bytes_of(tmp_path)


def test_an_answer_under_way_is_not_lost_to_it(tmp_path: Path) -> None:
    clock = FakeClock()
    home = opened(tmp_path, clock, reply("Likes tea"))
    home.memory("ada").record("old", exchange("jasmine"))
    home.memory("ada").extract()
    clock.advance(31 * DAY)
    gate = Gate(reply("Runs"))

    def tidy_meanwhile(prompt: object) -> str:
        home.memory("ada").flush()
        gate.opened.set()
        return gate(prompt)  # type: ignore[arg-type]

    with opened(tmp_path, clock, tidy_meanwhile) as bs:
        memory = bs.memory("ada")
        memory.record("new", exchange("running"))
        memory.extract()
        assert [fact.content for fact in memory.facts()] == ["Likes tea", "Runs"]
        assert [entry.cause.kind for entry in memory.log()][:2] == ["extraction", "redaction"]
    home.close()


def test_workers_in_the_background_do_it_too(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock, reply("Likes tea")) as bs:
        bs.memory("ada").record("old", exchange("jasmine"))
        bs.memory("ada").extract()
    clock.advance(31 * DAY)
    model = ScriptedModel(reply("Runs"))
    with Backstory.open(tmp_path, model=model, clock=clock, transcript_retention_days=30, debounce_seconds=0) as bs:
        memory = bs.memory("ada")
        memory.record("new", exchange("running"))
        assert memory.flush()
        assert said(memory, "old") == []


def test_an_expiry_is_no_barrier_either_where_what_it_said_again_was_erased_later() -> None:
    again = SummaryUpdated("thread/1/1-2/t", Section(), Section("Much was said."))
    expired = Redacted("ledger", 2, 0, "expired", section="thread/2/1-4/t")
    for events in ((expired, again), (expired, Erased("0" * 64))):
        fold = Fold(Memory())
        fold.advance(7, "2026-03-01T12:00:00.000000Z", "redaction", events)
        assert fold.barriers == {}


def test_a_summary_goes_with_its_last_turn_although_the_earlier_ones_still_wait(tmp_path: Path) -> None:
    clock, summed = FakeClock(), json.dumps({"summary": "They spoke of secret plans"})
    model = ScriptedModel(ModelRejectedError("no"), reply("Likes tea"), summed, reply("Runs"))
    with open_home(tmp_path, model, clock=clock, transcript_retention_days=30, summary_min_turns=3) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("trains"))
        memory.extract()
        clock.advance(60)
        memory.record("t", [{"role": "user", "content": "I like tea."}], mode="append")
        memory.extract()
        assert [(one.first, one.last) for one in memory.summaries("t")] == [(1, 3)]
        clock.advance(31 * DAY)
        memory.record("u", exchange("running"))
        memory.extract()
        assert said(memory, "t") == ["I like trains.", "trains it is."]
        assert memory.summaries("t") == ()
        assert memory.verify().ok
    assert b"secret plans" not in bytes_of(tmp_path)
