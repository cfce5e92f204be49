"""Two axes of time: what was true, and what was believed; compared with a plain model of intervals."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from fakes import FakeClock, open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples
from typer.testing import CliRunner

from backstory import MemoryHandle
from backstory.cli.app import app
from backstory.ledger.core.errors import RefusedError, UsageError
from backstory.ledger.core.moments import spell_moment

DAY = 24 * 3600.0
YEARS = (2024, 2026, 2027, 2030)
Interval = tuple[str, str, str]
"""When a fact begins, the first moment behind it, and the first moment at which it is not remembered."""


def year(number: int) -> str:
    return f"{number}-01-01T00:00:00.000000Z"


class Model:
    """What memory knows, as one dictionary of intervals by fact."""

    def __init__(self) -> None:
        self.known: dict[str, Interval] = {}

    def true_in(self, number: int, believed: str) -> set[str]:
        first, behind = year(number), year(number + 1)
        return {
            fact
            for fact, (begin, end, gone) in self.known.items()
            if begin < behind and end > first and believed < gone
        }


steps = st.tuples(
    st.sampled_from(["add", "add", "add", "end", "end now", "remove", "take back"]),
    st.integers(0, 400),
    st.none() | st.sampled_from(YEARS),
    st.none() | st.sampled_from(YEARS),
    st.none() | st.sampled_from(YEARS),
    st.integers(0, 7),
)


def take(memory: MemoryHandle, clock: FakeClock, model: Model, step: tuple[object, ...], number: int) -> None:
    """Do one thing to memory and to the model."""
    what, _, since, until, expiry, which = step
    now = spell_moment(clock.now())
    live = sorted(fact.id for fact in memory.facts())
    before = dict(model.known)
    if what == "add":
        stated = {"valid_from": since, "valid_until": until, "expires_at": expiry}
        try:
            change = memory.add_fact(
                f"Thing {number % 5}", **{name: str(value) for name, value in stated.items() if value is not None}
            )
        except RefusedError:
            return
        model.known[change.fact.id] = (
            "" if since is None else year(since),  # type: ignore[arg-type]
            "~" if until is None else year(until + 1),  # type: ignore[operator]
            "~" if expiry is None else year(expiry + 1),  # type: ignore[operator]
        )
    elif not live:
        return
    else:
        fact = live[which % len(live)]  # type: ignore[operator]
        begin, _, gone = model.known[fact]
        if what in ("remove", "take back"):
            memory.remove_fact(fact)
            del model.known[fact]
        else:
            stated_end = until if what == "end" else None
            try:
                memory.remove_fact(fact, ended=True, valid_until=None if stated_end is None else str(stated_end))
            except RefusedError:
                return
            stood = model.known[fact][1]
            end = year(stated_end + 1) if isinstance(stated_end, int) else now if stood == "~" else stood
            model.known[fact] = (begin, end, gone)
    if what == "take back":
        memory.revert()
        model.known = before


@settings(max_examples=examples(), deadline=None)
@given(st.lists(steps, min_size=1, max_size=9))
def test_a_replay_is_what_was_live_and_both_are_the_model(history: list[tuple[object, ...]]) -> None:
    clock = FakeClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_home(Path(folder) / "home", clock=clock) as bs,
    ):
        memory, model = bs.memory("ada"), Model()
        believed: list[tuple[int, str, dict[int, set[str]]]] = []
        for number, step in enumerate(history):
            clock.advance(float(step[1]) * DAY + 2)  # type: ignore[arg-type]
            take(memory, clock, model, step, number)
            now = spell_moment(clock.now())
            live = {one: {fact.id for fact in memory.facts(valid_at=str(one))} for one in YEARS}
            assert live == {one: model.true_in(one, now) for one in YEARS}
            believed.append((memory.head().seq, now, live))
        for _, now, live in believed:
            assert {one: {fact.id for fact in memory.facts(now, valid_at=str(one))} for one in YEARS} == live
        last = {seq: (now, live) for seq, now, live in believed}
        for seq, (now, live) in last.items():
            if seq and memory._services.logs(memory._services.writer).commit(seq).at == now:
                assert {one: {fact.id for fact in memory.facts(seq, valid_at=str(one))} for one in YEARS} == live
        assert memory.verify().problems == ()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memory(tmp_path: Path, clock: FakeClock):  # type: ignore[no-untyped-def]
    """Ada lived in Oslo, then in Bergen; in Paris long ago; commits 2 to 6."""
    with open_home(tmp_path / "home", clock=clock) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Lives in Oslo", valid_from="2019")
        memory.add_fact("Lives in Bergen", valid_from="2026-02")
        memory.remove_fact("fact_2_0", ended=True, valid_until="2026-01")
        memory.add_fact("Lives in Paris", valid_from="2011", valid_until="2012-08")
        memory.add_fact("Likes tea")
        yield memory


def contents(memory: MemoryHandle, **asked: object) -> list[str]:
    return [fact.content for fact in memory.facts(**asked)]  # type: ignore[arg-type]


def test_what_was_true_then_as_is_known_now_and_as_was_believed(memory: MemoryHandle) -> None:
    assert contents(memory) == ["Lives in Bergen", "Likes tea"]
    assert contents(memory, valid_at="2025-06-01") == ["Lives in Oslo", "Likes tea"]
    assert contents(memory, valid_at="2026-02-10T12:00") == ["Lives in Bergen", "Likes tea"]
    assert contents(memory, at=2, valid_at="2026-02-10") == ["Lives in Oslo"]
    assert contents(memory, at=3, valid_at="2026") == ["Lives in Oslo", "Lives in Bergen"]
    assert contents(memory, valid_at="2012") == ["Lives in Paris", "Likes tea"]
    assert contents(memory, valid_at="2012-09-01T00:00:00Z") == ["Likes tea"]
    with pytest.raises(UsageError, match="valid_at must be a time"):
        memory.facts(valid_at="soon")


def test_a_moment_shows_what_was_true_at_a_time(memory: MemoryHandle) -> None:
    shown = memory.moment(valid_at="2012", sort="content")
    assert [fact.content for fact in shown.facts.items] == ["Likes tea", "Lives in Paris"]
    assert (shown.count, shown.seq) == (2, memory.head().seq)
    assert [fact.content for fact in memory.moment(2, valid_at="2026-02-10").facts.items] == ["Lives in Oslo"]
    with pytest.raises(UsageError, match="valid_at must be a time"):
        memory.moment(valid_at="soon")


def test_what_was_brought_back_or_was_wrong_has_not_ended(memory: MemoryHandle) -> None:
    memory.revert(4, force=True)
    back, _ = memory.facts(valid_at="2025")
    assert (back.content, back.valid_until) == ("Lives in Oslo", None)
    memory.revert(5)
    assert "Lives in Paris" not in contents(memory, valid_at="2012")
    assert "Lives in Paris" in contents(memory, at=6, valid_at="2012")


def test_a_revert_of_a_revert_ends_a_fact_again(memory: MemoryHandle, tmp_path: Path) -> None:
    memory.add_fact("Lives in Rome")
    memory.remove_fact("fact_7_0", ended=True)
    before = memory.facts(valid_at="2026-03-01")
    for seq, day in ((4, "2025"), (5, "2012"), (8, "2026-03-01")):
        known = memory.facts(valid_at=day)
        memory.revert(seq)
        assert memory.facts(valid_at=day) != known
        memory.revert("HEAD")
        again = memory.facts(valid_at=day)
        assert [(f.id, f.valid_from, f.content) for f in again] == [(f.id, f.valid_from, f.content) for f in known]
    assert [fact.content for fact in before] == contents(memory, valid_at="2026-03-01")
    assert memory.why("fact_2_0").periods[0].valid_until == "2026-01"
    assert memory.why("fact_7_0").periods[0].valid_until == "2026-03-01T12:00:00.000000"
    memory.revert("HEAD")
    assert "Lives in Rome" in contents(memory)
    assert memory.verify().problems == ()
    assert (memory.what_if().added, memory.what_if().removed) == ((), ())
    with open_home(tmp_path / "home") as another:
        assert another.memory("ada").verify().ok


def test_what_had_ended_before_a_clear_is_known_only_before_it(memory: MemoryHandle) -> None:
    memory.clear()
    memory.add_fact("Lives in Oslo", valid_from="2003", valid_until="2004")
    assert contents(memory, valid_at="2012") == contents(memory, valid_at="2025") == []
    assert [hit.valid_from for hit in memory.search("Lives in Paris or Oslo", include_past=True)] == ["2003"]
    assert [period.valid_from for period in memory.why("fact_8_0").periods] == ["2003"]
    assert contents(memory, at=6, valid_at="2012") == ["Lives in Paris", "Likes tea"]
    memory.revert(7)
    assert contents(memory, valid_at="2012") == ["Lives in Paris", "Likes tea"]
    assert [period.valid_from for period in memory.why("fact_8_0").periods] == ["2019", "2003"]
    memory.revert("HEAD")
    assert contents(memory, valid_at="2012") == []
    assert contents(memory, at=9, valid_at="2012") == ["Lives in Paris", "Likes tea"]
    assert memory.verify().problems == ()


def test_what_had_ended_before_a_replacing_import_is_known_only_before_it(memory: MemoryHandle) -> None:
    rome = {"id": "r", "content": "Lives in Rome", "confidence": 0.9, "validFrom": "2012", "validUntil": "2013"}
    memory.import_document({"version": "1.0", "facts": [rome]}, replace=True)
    assert contents(memory, valid_at="2012") == ["Lives in Rome"]
    assert [hit.content for hit in memory.search("Lives in Paris or Rome", include_past=True)] == ["Lives in Rome"]
    assert [period.valid_from for period in memory.why("r").periods] == ["2012"]
    assert memory.why("fact_5_0").periods == ()
    assert contents(memory, at=6, valid_at="2012") == ["Lives in Paris", "Likes tea"]
    memory.revert(7)
    assert "Lives in Paris" in contents(memory, valid_at="2012")
    memory.revert("HEAD")
    assert contents(memory, valid_at="2012") == ["Lives in Rome"]
    assert memory.verify().problems == ()


@pytest.mark.parametrize("target", [0, 1])
def test_a_rollback_to_the_empty_memory_leaves_no_past(memory: MemoryHandle, target: int) -> None:
    memory.rollback(target)
    assert memory.facts(include_past=True) == ()
    memory.revert("HEAD")
    assert contents(memory, valid_at="2012") == ["Lives in Paris", "Likes tea"]


def test_a_rollback_brings_back_the_past_of_its_moment_too(memory: MemoryHandle) -> None:
    """What was added since as past is set aside, and what was live again has ended again."""
    memory.revert(4)
    before = [memory.facts(valid_at=day) for day in ("2012", "2025", "2030")]
    memory.rollback(3)
    assert "Lives in Paris" not in contents(memory, valid_at="2012")
    assert contents(memory, valid_at="2012") == contents(memory, at=3, valid_at="2012")
    assert "Lives in Paris" not in [hit.content for hit in memory.search("Paris", include_past=True)]
    memory.revert("HEAD")
    assert [memory.facts(valid_at=day) for day in ("2012", "2025", "2030")] == before
    memory.rollback(4)
    assert [(f.content, f.valid_until) for f in memory.facts(valid_at="2025")] == [
        (f.content, f.valid_until) for f in memory.facts(4, valid_at="2025")
    ]
    assert memory.verify().problems == ()


def test_the_revert_of_a_rollback_ends_again_what_it_had_brought_back(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as bs:
        memory = bs.memory("ada")
        memory.add_fact("Lives in Oslo", valid_from="2019")
        memory.add_fact("Likes tea")
        memory.remove_fact("fact_2_0", ended=True, valid_until="2026-01")
        known = memory.facts(include_past=True)
        memory.rollback(3)
        assert [fact.valid_until for fact in memory.facts()] == [None, None]
        memory.revert("HEAD")
        assert memory.facts(include_past=True) == known
        assert [period.valid_until for period in memory.why("fact_2_0").periods] == ["2026-01"]


@pytest.mark.parametrize("seed", range(12))
def test_the_past_after_a_rollback_is_that_of_its_moment_and_after_its_revert_that_from_before(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 it is to be repeated

    def past(memory: MemoryHandle, at: int | None = None) -> set[tuple[object, ...]]:
        live = {fact.id for fact in memory.facts(at)}
        told = memory.facts(at, include_past=True)
        return {(fact.content, fact.valid_from, fact.valid_until, fact.id in live) for fact in told}

    with open_home(tmp_path / "home") as bs:
        memory = bs.memory("ada")
        for n in range(40):
            live, head = memory.facts(), memory.head().seq
            match chance.randrange(8):
                case 0 | 1:
                    memory.add_fact(f"Lives in town {n}", valid_from="2019")
                case 2:
                    memory.add_fact(f"Lives in town {n}", valid_from="2011", valid_until="2012")
                case 3 if live:
                    memory.remove_fact(chance.choice(live).id, ended=True, valid_until="2025")
                case 4 if head > 2:
                    memory.revert(chance.randint(2, head), force=True)
                case 5 if live:
                    memory.clear()
                case 6 | 7 if head > 3:
                    before, target = past(memory), chance.randint(2, head - 1)
                    if memory.rollback(target).commit is None:
                        continue
                    assert past(memory) == past(memory, target)
                    if chance.randrange(2):
                        memory.revert("HEAD")
                        assert past(memory) == before
        periods = {
            (fact.content, period.valid_from, period.valid_until)
            for fact in memory.facts(include_past=True)
            for period in memory.why(fact.id).periods
        }
        assert {told[:2] for told in periods} == {told[:2] for told in past(memory)}
        assert memory.verify().problems == ()


def test_a_difference_tells_what_ended_from_what_was_wrong(memory: MemoryHandle, tmp_path: Path) -> None:
    memory.remove_fact("fact_6_0")
    found = memory.diff(3, 7)
    assert ([fact.id for fact in found.removed], found.ended) == (["fact_2_0"], {"fact_2_0": "2026-01"})
    assert memory.diff(6, 7).ended == {}
    assert memory.diff(2, 3).ended == {}
    shown = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), "--user", "ada", "diff", "3", "7"]).stdout
    assert shown == "- Lives in Oslo  fact_2_0, context, 0.90, ended: true until 2026-01\n"


def test_a_search_finds_what_is_over_only_where_it_is_asked_to(memory: MemoryHandle) -> None:
    assert not memory.search("Paris")
    assert [hit.content for hit in memory.search("Paris", include_past=True)] == ["Lives in Paris"]
    (oslo,) = memory.search("lives", valid_at="2025")
    assert (oslo.content, oslo.valid_from, oslo.valid_until) == ("Lives in Oslo", "2019", "2026-01")
    assert not memory.search("Paris", include_past=True, category="goal")
    with pytest.raises(UsageError, match="only facts are true at a time or have ended: search facts") as refused:
        memory.search("Paris", within="turns", include_past=True)
    # Doors name their options in different ways.
    assert "past" not in str(refused.value)


def test_why_lists_all_periods_of_a_statement(memory: MemoryHandle) -> None:
    memory.add_fact("lives in OSLO.", valid_from="2030")
    for fact in ("fact_2_0", "fact_7_0"):
        assert [(p.id, p.valid_from, p.valid_until, p.live) for p in memory.why(fact).periods] == [
            ("fact_2_0", "2019", "2026-01", False),
            ("fact_7_0", "2030", None, True),
        ]
    memory.remove_fact("fact_7_0")
    assert [period.id for period in memory.why("fact_2_0").periods] == ["fact_2_0"]


def test_an_erased_fact_has_not_ended(memory: MemoryHandle) -> None:
    memory.forget("fact_5_0")
    assert contents(memory, valid_at="2012") == ["Likes tea"]
    assert memory.verify().problems == ()
