"""Which facts were used of late: how warmth grows, cools, is kept, is shared, is lost, and what it is good for."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import Access, FactRemoved
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.lifecycle.maintenance import doctor
from backstory.memory import MemoryHandle
from backstory.projections.document.fact_use import FactUse, ScopeUse

DAY = 86_400.0
ADA = Scope("ada")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path, clock: FakeClock) -> Iterator[Backstory]:
    with open_home(home, clock=clock) as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    """Three facts learned in commit 2: fact_2_0, fact_2_1, fact_2_2."""
    memory = bs.memory("ada")
    memory.record("t1", exchange("tea"))
    memory.extract([RecordedReply("t1", reply("Likes tea", "Runs", "Swims"))])
    return memory


def file(home: Path) -> Path:
    return home / "users/ada/access.json"


def heats(bs: Backstory) -> dict[str, float]:
    return {fact_id: access.heat for fact_id, access in bs._services.states(ADA).use.facts().items()}


def stored(home: Path) -> dict[str, float]:
    return {fact_id: access["heat"] for fact_id, access in json.loads(file(home).read_text())["facts"].items()}


# How warm a fact is.


def test_each_use_adds_one_to_what_is_left_after_the_half_life(
    bs: Backstory, memory: MemoryHandle, clock: FakeClock
) -> None:
    assert memory.touch("fact_2_0") == 1
    assert heats(bs) == {"fact_2_0": 1.0}
    clock.advance(30 * DAY)
    memory.touch("fact_2_0")
    assert heats(bs) == {"fact_2_0": 1.5}
    clock.advance(60 * DAY)
    memory.touch("fact_2_0", "fact_2_1")
    assert heats(bs) == {"fact_2_0": 1.375, "fact_2_1": 1.0}
    assert bs._services.states(ADA).use.facts()["fact_2_0"].at == "2026-05-30T12:00:00.000000Z"


def test_the_half_life_is_the_policys(bs: Backstory, memory: MemoryHandle, clock: FakeClock) -> None:
    memory.set_policy(eviction_access_half_life_days=1)
    memory.touch("fact_2_0")
    clock.advance(DAY)
    memory.touch("fact_2_0")
    assert heats(bs) == {"fact_2_0": 1.5}


def test_a_fact_named_twice_in_one_use_is_used_once(bs: Backstory, memory: MemoryHandle) -> None:
    assert memory.touch("fact_2_0", "fact_2_0") == 1
    assert heats(bs) == {"fact_2_0": 1.0}


def test_what_is_not_remembered_is_not_warmed_and_no_error(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    assert memory.touch() == 0
    assert memory.touch("fact_9_9", "", "fact_2") == 0
    memory.flush()
    assert heats(bs) == {}
    assert not file(home).exists()


def test_a_clock_that_was_set_back_cools_nothing(bs: Backstory, memory: MemoryHandle, clock: FakeClock) -> None:
    memory.touch("fact_2_0")
    clock.advance(-10 * DAY)
    memory.touch("fact_2_0")
    assert heats(bs) == {"fact_2_0": 2.0}


def test_an_agent_that_reads_its_users_facts_warms_them(bs: Backstory, memory: MemoryHandle) -> None:
    assert bs.memory("ada", "coder").touch("user:fact_2_1", "fact_2_0") == 1
    assert heats(bs) == {"fact_2_1": 1.0}


# What it is good for.


def test_at_the_cap_the_hybrid_policy_keeps_what_is_used_and_says_so(bs: Backstory, memory: MemoryHandle) -> None:
    memory.set_policy(fact_eviction_policy="hybrid", max_facts=3)
    memory.touch("fact_2_0", "fact_2_2")
    memory.add_fact("Has a dog")
    commit = memory.log(limit=1)[0]
    (gone,) = [event for event in commit.events if isinstance(event, FactRemoved)]
    assert gone.fact.id == "fact_2_1"
    assert commit.cause.heat == {
        fact_id: Access(1.0, "2026-03-01T12:00:00.000000Z") for fact_id in ("fact_2_0", "fact_2_2")
    }


def test_a_change_to_the_hybrid_policy_counts_what_was_used_before_it(memory: MemoryHandle) -> None:
    memory.touch("fact_2_0")
    memory.set_policy(fact_eviction_policy="hybrid", max_facts=1)
    assert [fact.id for fact in memory.facts()] == ["fact_2_0"]
    assert set(memory.log(limit=1)[0].cause.heat) == {"fact_2_0"}


def test_the_confidence_policy_asks_nobody_and_records_no_heat(bs: Backstory, memory: MemoryHandle) -> None:
    memory.touch("fact_2_0")
    memory.add_fact("Has a dog")
    assert memory.log(limit=1)[0].cause.heat == {}


# How it is kept.


def test_it_is_written_when_it_is_flushed_by_rename_and_for_nobody_else(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    memory.touch("fact_2_0")
    assert not file(home).exists()
    memory.flush()
    assert stored(home) == {"fact_2_0": 1.0}
    assert stat.S_IMODE(file(home).stat().st_mode) == 0o600
    assert not file(home).with_name(".access.json.new").exists()


def test_it_is_written_when_the_home_is_closed_and_read_when_it_is_opened(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    memory.touch("fact_2_0")
    bs.close()
    with open_home(home, clock=clock) as again:
        assert heats(again) == {"fact_2_0": 1.0}
        again.memory("ada").touch("fact_2_0")
        assert heats(again) == {"fact_2_0": 2.0}


def test_uses_in_quick_succession_are_written_once_and_later_ones_by_themselves(
    memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    for _ in range(3):
        memory.touch("fact_2_0")
    assert not file(home).exists()
    clock.advance(6)
    memory.touch("fact_2_1")
    assert set(stored(home)) == {"fact_2_0", "fact_2_1"}
    before = file(home).stat().st_mtime_ns, file(home).stat().st_ino
    memory.touch("fact_2_1")
    assert (file(home).stat().st_mtime_ns, file(home).stat().st_ino) == before


def met(bs: Backstory, user: str) -> None:
    """A user who comes once, and of whose facts one is used."""
    handle = bs.memory(user)
    handle.add_fact("Likes tea")
    handle.touch(*(fact.id for fact in handle.facts()))


def test_the_uses_of_users_who_do_not_come_again_are_written_when_others_come(
    bs: Backstory, clock: FakeClock, home: Path
) -> None:
    """Their writers would be kept until then, and each has all that was read of its memory."""
    for number in range(6):
        met(bs, f"user{number}")
        clock.advance(2)
    written = [number for number in range(6) if (home / f"users/user{number}/access.json").exists()]
    assert written == [0, 1, 2]
    assert [use._writer().scope.user for use in bs._services.states.usage.unwritten] == ["user3", "user4", "user5"]


def test_where_nothing_can_be_written_few_uses_are_kept(bs: Backstory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> bool:
        raise StoreError("no")

    monkeypatch.setattr(ScopeUse, "_write", refused)
    monkeypatch.setattr("backstory.projections.document.fact_use._MOST_UNWRITTEN", 2)
    for number in range(5):
        met(bs, f"user{number}")
    assert len(bs._services.states.usage.unwritten) == 2


def test_a_fact_that_is_gone_is_dropped_with_the_next_writing(memory: MemoryHandle, home: Path) -> None:
    memory.touch("fact_2_0", "fact_2_1")
    memory.remove_fact("fact_2_0")
    memory.flush()
    assert set(stored(home)) == {"fact_2_1"}
    memory.touch("fact_2_1")
    memory.clear()
    memory.flush()
    assert not file(home).exists()


def test_two_homes_merge_what_they_know_rather_than_overwrite_it(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    with open_home(home, clock=clock) as other:
        theirs = other.memory("ada")
        theirs.touch("fact_2_0", "fact_2_1")
        theirs.touch("fact_2_1")
        memory.touch("fact_2_0", "fact_2_2")
        theirs.flush()
        memory.flush()
        assert stored(home) == {"fact_2_0": 1.0, "fact_2_1": 2.0, "fact_2_2": 1.0}
        assert heats(other) == stored(home)


def test_merging_takes_the_later_use_and_the_heat_that_is_left_by_then(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    with open_home(home, clock=clock) as other:
        theirs = other.memory("ada")
        for _ in range(8):
            theirs.touch("fact_2_0")
        clock.advance(30 * DAY)
        memory.touch("fact_2_0")
        theirs.flush()
        memory.flush()
        # Eight uses a half-life ago are four now.
        assert bs._services.states(ADA).use.facts() == {"fact_2_0": Access(4.0, "2026-03-31T12:00:00.000000Z")}


def test_many_threads_lose_no_use(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    threads = [
        threading.Thread(target=lambda: [memory.touch("fact_2_0") and memory.flush() for _ in range(5)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory.flush()
    assert stored(home) == {"fact_2_0": 20.0}


# What goes wrong costs warmth and nothing else.


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version":1}',
        b'{"version":1,"facts":{"fact_2_1":5}}',
        b'{"version":1,"facts":{"fact_2_1":{"heat":"x","at":"2026-01-01T00:00:00.000000Z"}}}',
        b'{"version":1,"facts":{"fact_2_1":' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_begun_anew_with_a_warning(
    memory: MemoryHandle, home: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file(home).write_bytes(text)
    memory.touch("fact_2_0")
    memory.flush()
    assert stored(home) == {"fact_2_0": 1.0}
    assert "access.json is damaged" in caplog.text


@pytest.mark.parametrize(
    ("heat", "at"), [("-1", "2026-01-01T00:00:00.000000Z"), ("1", "soon"), ("0", "2026-01-01T00:00:00.000000Z")]
)
def test_an_entry_that_cannot_be_is_passed_over(
    bs: Backstory, memory: MemoryHandle, home: Path, heat: str, at: str
) -> None:
    good = '{"heat":2.0,"at":"2026-03-01T00:00:00.000000Z"}'
    file(home).write_text(f'{{"version":1,"facts":{{"fact_2_0":{{"heat":{heat},"at":"{at}"}},"fact_2_1":{good}}}}}')
    assert heats(bs) == {"fact_2_1": 2.0}


def test_a_time_to_come_keeps_nothing_warm_for_good(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    file(home).write_text('{"version":1,"facts":{"fact_2_0":{"heat":2.0,"at":"9999-01-01T00:00:00.000000Z"}}}')
    assert bs._services.states(ADA).use.facts()["fact_2_0"].at == "2026-03-01T12:00:00.000000Z"


def test_a_home_where_it_cannot_be_written_works_as_ever(
    memory: MemoryHandle, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file(home).with_name(".access.json.new").mkdir()
    for _ in range(2):
        assert memory.touch("fact_2_0") == 1
        assert memory.flush()
    assert caplog.text.count("cannot be stored for now") == 1
    file(home).with_name(".access.json.new").rmdir()
    memory.flush()
    assert stored(home) == {"fact_2_0": 2.0}


def test_whoever_keeps_its_lock_is_not_waited_for_long(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    uses = FactUse(clock, patience=0.01)
    heat = ScopeUse(uses, file(home), lambda: memory._services.own)
    others = FileLocks(1, SystemClock())
    heat.touch(["fact_2_0"])
    with others.held(str(file(home).with_name("access.lock"))):
        heat.flush()
        assert not file(home).exists()
    uses.close()
    assert stored(home) == {"fact_2_0": 1.0}


def test_a_child_process_can_use_facts_and_leaves_its_parents_uses_to_the_parent(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    memory.touch("fact_2_0")
    bs._services.states.usage.mutex.acquire()  # as a thread of the parent may, in the moment of the fork
    try:
        child = multiprocessing.get_context("fork").Process(target=_use, args=(memory,))
        child.start()
    finally:
        bs._services.states.usage.mutex.release()
    child.join(20)
    child.kill()
    assert child.exitcode == 0
    assert stored(home) == {"fact_2_1": 1.0}
    memory.flush()
    assert stored(home) == {"fact_2_0": 1.0, "fact_2_1": 1.0}


def _use(memory: MemoryHandle) -> None:
    memory.touch("fact_2_1")
    memory.flush()
    os._exit(0)


# Forgetting and checking.


def test_what_is_forgotten_is_in_no_byte_of_it_and_the_rest_stays_warm(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    memory.import_document([{"content": "A secret", "id": "zanzibar", "confidence": 0.9}])
    memory.touch("zanzibar", "fact_2_0")
    memory.flush()
    memory.forget("zanzibar")
    assert not file(home).exists()
    memory.flush()
    assert stored(home) == {"fact_2_0": 1.0}
    bs.close()
    assert b"zanzibar" not in file(home).read_bytes()


def test_another_process_does_not_bring_back_what_was_forgotten(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    with open_home(home, clock=clock) as other:
        theirs = other.memory("ada")
        theirs.touch("fact_2_0", "fact_2_1")
        memory.forget("fact_2_0")
    assert set(stored(home)) == {"fact_2_1"}


def test_an_erasure_in_the_middle_of_a_writing_is_noticed(
    bs: Backstory, memory: MemoryHandle, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.touch("fact_2_0", "fact_2_1")
    writer = memory._services.own
    standing = writer.reader.standing()
    answers = iter([standing])
    current = writer.reader.standing
    memory.forget("fact_2_0")
    # Who asked just before the erasure got this answer.
    monkeypatch.setattr(writer.reader, "standing", lambda: next(answers, None) or current())
    bs._services.states(ADA).use.flush()
    assert set(stored(home)) == {"fact_2_1"}


def test_an_erasure_says_so_where_it_cannot_be_removed(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    memory.touch("fact_2_0")
    memory.flush()
    file(home).unlink()
    file(home).mkdir()
    with pytest.raises(StoreError, match="cannot remove"):
        memory.forget("fact_2_0")
    assert "Likes tea" in [fact.content for fact in memory.facts()]


def test_verify_and_doctor_find_nothing_wrong_with_it(
    bs: Backstory, memory: MemoryHandle, home: Path, clock: FakeClock
) -> None:
    memory.touch("fact_2_0")
    memory.flush()
    assert memory.verify().ok
    assert [check for check in doctor(home, clock=clock, environ={}) if not check.ok and check.check != "model"] == []
    file(home).write_text("{")
    assert memory.verify().ok
    assert [scope.user for scope in bs.scopes()] == ["ada"]


def test_a_hybrid_policy_that_configuration_brings_counts_what_was_used_before_it(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    memory.touch("fact_2_0")
    bs.close()
    with open_home(home, fact_eviction_policy="hybrid", max_facts=10) as again:
        after = again.memory("ada")
        after.add_fact("Has a dog")
        policy = next(commit for commit in after.log() if commit.cause.kind == "policy")
        assert set(policy.cause.heat) == {"fact_2_0"}
