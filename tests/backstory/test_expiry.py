"""Facts that say until when they hold: no read shows them after that, and a commit of its own takes them out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, open_home, reply

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError, RefusedError, UsageError
from backstory.ledger.core.events import FactRemoved
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.graph import FactNode

TODAY, TOMORROW = "2026-03-01", "2026-03-02"
CODE = "The code word is heron"
DAY = timedelta(days=1).total_seconds()


@pytest.fixture
def clock() -> FakeClock:
    """Noon of TODAY."""
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path, clock: FakeClock) -> Iterator[Backstory]:
    with open_home(tmp_path / "home", clock=clock, agent_reads="both") as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    memory = home.memory("ada")
    memory.add_fact(CODE, expires_at=TODAY)
    memory.add_fact("Has a dog")
    return memory


def contents(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def on_disk(home: Backstory) -> list[str]:
    document = json.loads((home.home / "users/ada/memory.json").read_bytes())
    return [fact["content"] for fact in document["facts"]]


def test_no_read_shows_a_fact_once_it_is_over(memory: MemoryHandle, home: Backstory, clock: FakeClock) -> None:
    agent = home.memory("ada", "coder")
    memory.search("heron")
    assert CODE in memory.context().text
    before = memory.heads_seen()
    clock.advance(DAY / 2)
    assert not before.stand()
    assert contents(memory) == ["Has a dog"]
    assert [fact.content for fact in memory.document().facts] == ["Has a dog"]
    assert [fact.content for fact in memory.own.document().facts] == ["Has a dog"]
    assert [fact.content for fact in memory.moment().facts.items] == ["Has a dog"]
    assert contents(agent) == ["Has a dog"]
    assert [hit.content for hit in agent.search("heron dog")] == ["Has a dog"]
    assert not memory.search("heron")
    assert CODE not in memory.context("heron").text
    assert [summary.facts for summary in home.scopes()] == [1]
    with pytest.raises(NotFoundError):
        memory.fact("fact_2_0")
    with pytest.raises(NotFoundError):
        memory.edit_fact("fact_2_0", "The code word is gull")
    with open_home(home.home, clock=clock) as another:
        assert contents(another.memory("ada")) == ["Has a dog"]


def test_why_and_the_graph_do_not_call_it_live(memory: MemoryHandle, clock: FakeClock) -> None:
    memory.add_fact("Has a visa", valid_from="2025", valid_until=TODAY)
    names = ["fact_2_0", "fact_3_0", "fact_4_0"]

    def live() -> list[list[bool]]:
        drawn = {node.fact: node.live for node in memory.graph().nodes if isinstance(node, FactNode)}
        return [[memory.why(name).live for name in names], [drawn[name] for name in names]]

    assert live() == [[True] * 3] * 2
    assert memory.why("fact_2_0").lapsed is None
    clock.advance(DAY / 2)
    assert live() == [[False, True, False]] * 2
    code, visa = memory.why("fact_2_0"), memory.why("fact_4_0")
    assert (code.fact is not None, code.lapsed, code.removed, code.periods) == (
        True,
        f"{TOMORROW}T00:00:00.000000Z",
        None,
        (),
    )
    assert [(one.valid_until, one.live) for one in visa.periods] == [(TODAY, False)]
    memory.add_fact("Has a cat")
    assert live() == [[False, True, False]] * 2
    code = memory.why("fact_2_0")
    assert (code.lapsed, code.removed and code.removed.reason) == (None, "expired")
    assert [(one.valid_until, one.live) for one in memory.why("fact_4_0").periods] == [(TODAY, False)]


def test_memory_at_an_earlier_time_shows_it_and_at_a_later_one_does_not(memory: MemoryHandle, clock: FakeClock) -> None:
    clock.advance(2 * DAY)
    assert [fact.content for fact in memory.facts(f"{TODAY}T23:59:59Z")] == [CODE, "Has a dog"]
    assert [fact.content for fact in memory.facts("2026-03-02T00:00:00Z")] == ["Has a dog"]
    assert [fact.content for fact in memory.facts(3)] == [CODE, "Has a dog"]


def test_today_shows_what_is_over_later_today(memory: MemoryHandle) -> None:
    memory.add_fact("Is at a fair", valid_until="2026-03-01T15:00")
    assert [fact.content for fact in memory.facts("today")] == contents(memory)
    assert [fact.content for fact in memory.document("2026-03-01").facts] == contents(memory)


def test_memory_json_is_what_the_log_says_until_the_next_commit(
    memory: MemoryHandle, home: Backstory, clock: FakeClock
) -> None:
    memory.flush()
    clock.advance(DAY)
    assert memory.verify().problems == ()
    assert on_disk(home) == [CODE, "Has a dog"]
    memory.add_fact("Has a cat")
    memory.flush()
    added, expiry, *_ = memory.log()
    assert (expiry.cause.kind, expiry.summary, added.seq) == ("expiry", "1 expired", expiry.seq + 1)
    (gone,) = expiry.events
    assert isinstance(gone, FactRemoved)
    assert (gone.fact.content, gone.reason) == (CODE, "expired")
    assert on_disk(home) == ["Has a dog", "Has a cat"]
    assert memory.verify().problems == ()


def test_a_fact_whose_time_passes_has_ended(memory: MemoryHandle, home: Backstory, clock: FakeClock) -> None:
    memory.add_fact("Has a visa", valid_until="2026-03-05")
    clock.advance(3 * DAY)
    assert contents(memory) == ["Has a dog", "Has a visa"]
    clock.advance(2 * DAY)
    assert contents(memory) == ["Has a dog"]
    home.flush()
    assert [(e.fact.content, e.reason) for e in memory.log()[0].events if isinstance(e, FactRemoved)] == [
        (CODE, "expired"),
        ("Has a visa", "ended"),
    ]
    why = memory.why("fact_4_0")
    assert why.removed is not None
    assert (why.removed.reason, why.removed.valid_until) == ("ended", "2026-03-05")


def test_the_background_takes_it_out_at_the_moment(tmp_path: Path, clock: FakeClock) -> None:
    with open_home(tmp_path / "other", clock=clock) as bs:
        memory = bs.memory("ada")
        memory.add_fact(CODE, expires_at=TODAY)
        expiry = bs._services.states.expiry
        assert expiry.run_due() == 0
        clock.advance(DAY / 2)
        assert expiry.run_due() == 1
        assert memory.log()[0].cause.kind == "expiry"
        assert expiry.run_due() == 0


def test_a_thread_does_that_without_being_asked(tmp_path: Path, clock: FakeClock) -> None:
    swept = threading.Event()
    kinds: list[str] = []

    def note(scope: object, commit: Commit, before: object, after: object) -> None:
        kinds.append(commit.cause.kind)
        if commit.cause.kind == "expiry":
            swept.set()

    with open_home(tmp_path / "other", clock=clock, background=True, listeners=[note]) as bs:
        memory = bs.memory("ada")
        memory.add_fact(CODE, expires_at=TODAY)
        clock.advance(DAY / 2)
        assert contents(memory) == []
        assert swept.wait(PATIENCE)
        assert kinds[-1] == "expiry"


@pytest.mark.parametrize("force", [False, True])
def test_no_undo_brings_it_back(memory: MemoryHandle, clock: FakeClock, force: bool) -> None:
    memory.remove_fact("fact_2_0")
    clock.advance(DAY)
    undone = memory.revert(force=force)
    assert [note.kind for note in undone.superseded] == ["expired"]
    memory.rollback(3)
    assert contents(memory) == ["Has a dog"]
    memory.add_fact("Lent a book", expires_at="2026-03-04")
    clock.advance(5 * DAY)
    memory.add_fact("Has a cat")
    expiry = next(commit for commit in memory.log() if commit.cause.kind == "expiry")
    memory.revert(expiry.seq, force=force)
    assert contents(memory) == ["Has a dog", "Has a cat"]


def test_an_expected_head_stands_although_something_has_lapsed(memory: MemoryHandle, clock: FakeClock) -> None:
    clock.advance(DAY)
    change = memory.expecting(memory.head().hash).add_fact("Has a cat")
    assert change.commit == memory.head().seq == 5


def test_a_model_is_not_shown_it(memory: MemoryHandle, tmp_path: Path, clock: FakeClock) -> None:
    prompts: list[str] = []

    def answer(prompt: object) -> str:
        prompts.append(str(prompt))
        return reply()

    with open_home(tmp_path / "asked", model=answer, clock=clock) as bs:
        asked = bs.memory("ada")
        asked.add_fact(CODE, expires_at=TODAY)
        asked.add_fact("Has a dog")
        clock.advance(DAY)
        asked.record("t", [{"role": "user", "content": "I like tea"}, {"role": "assistant", "content": "Noted."}])
        clock.advance(DAY)
        asked.extract()
    assert "Has a dog" in prompts[0]
    assert "heron" not in prompts[0]


def test_what_is_told_of_a_time(memory: MemoryHandle) -> None:
    with pytest.raises(UsageError, match="valid_until must be a year, a month, a day or a moment"):
        memory.add_fact("Has a visa", valid_until="soon")
    with pytest.raises(RefusedError, match="expired"):
        memory.add_fact("Had a visa", expires_at="2020")
    with pytest.raises(UsageError, match="say that it has"):
        memory.remove_fact("fact_3_0", valid_until="2025")
    assert memory.edit_fact("fact_3_0", valid_from="2024").fact.valid_from == "2024"
    assert memory.remove_fact("fact_3_0", ended=True, valid_until="2025").fact.valid_until == "2025"


def test_a_reply_states_times_in_the_offset_of_the_turn_that_it_cites(memory: MemoryHandle) -> None:
    said = {"role": "user", "content": "I am in Tokyo until March", "at": "2026-03-01T20:00:00+09:00"}
    memory.record("t", [{**said, "id": "u"}, {"role": "assistant", "content": "Enjoy!"}])
    fact = {"content": "Is in Tokyo", "confidence": 0.9, "evidence": ["u"], "validUntil": "2026-03"}
    memory.extract([RecordedReply("t", json.dumps({"newFacts": [fact]}))])
    (learned,) = (fact for fact in memory.facts() if fact.content == "Is in Tokyo")
    assert learned.valid_until == "2026-03+09:00"


def test_status_says_what_ends_within_a_week(memory: MemoryHandle, clock: FakeClock) -> None:
    memory.add_fact("Has a visa", valid_until="2026-03-07")
    memory.add_fact("Has a lease", valid_until="2026-03-08")
    ending = memory.status().ending
    assert [(one.content, one.at[:10]) for one in ending] == [(CODE, "2026-03-02"), ("Has a visa", "2026-03-08")]
    clock.advance(DAY)
    assert [one.content for one in memory.status().ending] == ["Has a visa", "Has a lease"]
    assert memory.status().facts == 3
