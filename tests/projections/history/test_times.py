"""Times and commits, as people and programs give them: one reader for every door."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from fakes import FakeClock, open_home
from hypothesis import given
from hypothesis import strategies as st

from backstory.home import Backstory
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.memory import MemoryHandle
from backstory.projections.history.times import TimeReader, depends_on_clock

NOW = datetime(2026, 3, 12, 10, 30, 0, 123456, tzinfo=UTC)


class Ledger:
    """Five commits, one a minute, the last one now."""

    hashes = ("aaaa1", "aaaa2", "bbbb3", "cccc4", "12345")

    def last(self) -> int:
        return len(self.hashes)

    def time_of(self, seq: int) -> str:
        return spell_moment(NOW - timedelta(minutes=len(self.hashes) - seq))

    def with_hash(self, beginning: str) -> Sequence[int]:
        return [seq for seq, text in enumerate(self.hashes, 1) if text.startswith(beginning)][:2]


READER = TimeReader(lambda: NOW, Ledger())


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ("2026-03-12T10:30:00.123456Z", "10:30:00.123456", "10:30:00.123456"),
        ("2026-03-12T10:30:00.123Z", "10:30:00.123000", "10:30:00.123999"),
        ("2026-03-12T10:30:00,1+00:00", "10:30:00.100000", "10:30:00.199999"),
        ("2026-03-12 10:30:00Z", "10:30:00.000000", "10:30:00.999999"),
        ("20260312T103000", "10:30:00.000000", "10:30:00.999999"),
        ("2026-03-12T10:30", "10:30:00.000000", "10:30:00.000000"),
        ("2026-03-12T16:00:00+05:30", "10:30:00.000000", "10:30:00.999999"),
        ("2026-03-12T16:00+05:30", "10:30:00.000000", "10:30:00.000000"),
        ("2026-03-12", "00:00:00.000000", "23:59:59.999999"),
        (date(2026, 3, 12), "00:00:00.000000", "23:59:59.999999"),
        ("today", "00:00:00.000000", "23:59:59.999999"),
        (datetime(2026, 3, 12, 10, 30), "10:30:00.000000", "10:30:00.000000"),  # noqa: DTZ001 without a zone it is UTC
        (datetime(2026, 3, 12, 12, 30, tzinfo=timezone(timedelta(hours=2))), "10:30:00.000000", "10:30:00.000000"),
        ("now", "10:30:00.123456", "10:30:00.123456"),
        ("10 min ago", "10:20:00.123456", "10:20:00.123456"),
        ("2h ago", "08:30:00.123456", "08:30:00.123456"),
        (" 30 Seconds ago ", "10:29:30.123456", "10:29:30.123456"),
    ],
)
def test_a_time_stands_for_all_of_its_last_unit(given: object, first: str, last: str) -> None:
    assert READER.time("at", given) == f"2026-03-12T{first}Z"
    assert READER.time("at", given, end=True) == f"2026-03-12T{last}Z"


@pytest.mark.parametrize(
    ("given", "day"),
    [("yesterday", "2026-03-11"), ("3d ago", "2026-03-09"), ("3 days ago", "2026-03-09"), ("1w ago", "2026-03-05")],
)
def test_a_day_may_be_counted_back(given: str, day: str) -> None:
    assert READER.time("since", given).startswith(day)
    assert depends_on_clock(given)
    assert not depends_on_clock(day)


@pytest.mark.parametrize(
    "value", ["soon", "", "13:00", "2026-13-01", "3 years ago", "999999999w ago", "ago", 3.5, None, True, b"2026", []]
)
def test_what_is_no_time_is_refused_in_words(value: object) -> None:
    with pytest.raises(UsageError, match="since must be a time, such as 2026-03-12T10:30:00Z"):
        READER.time("since", value)


@pytest.mark.parametrize(
    ("named", "seq"),
    [
        (3, 3), ("3", 3), (0, 0), ("HEAD", 5), (" head ", 5), ("HEAD~", 4), ("HEAD~1", 4), ("HEAD~5", 0),
        ("aaaa2", 2), ("BBBB", 3), ("12345", 5), ("12346", 12346),
    ],
)  # fmt: skip
def test_a_commit_is_its_number_a_place_before_the_head_or_the_beginning_of_its_hash(
    named: int | str, seq: int
) -> None:
    assert READER.commit("seq", named) == READER.bound("since", named) == READER.cut("at", named) == seq


@pytest.mark.parametrize(
    ("named", "error", "told"),
    [
        ("HEAD~6", NotFoundError, "the ledger ends at 5"),
        ("dddd", NotFoundError, "no commit whose hash begins with dddd"),
        ("aaaa", UsageError, "several commits, 1 and 2"),
        ("aaa", UsageError, "beginning of its hash"),
        ("-1", UsageError, "beginning of its hash"),
        (-1, UsageError, "at least 0"),
        (True, UsageError, "beginning of its hash"),
        ("9" * 5000, UsageError, "beginning of its hash"),
        ("soon", UsageError, "beginning of its hash"),
        (3.5, UsageError, "beginning of its hash"),
    ],
)
def test_what_is_no_commit_is_refused_in_words(named: int | str, error: type[Exception], told: str) -> None:
    for read in (READER.commit, READER.bound, READER.cut):
        with pytest.raises(error, match=told):
            read("at", named)


def test_a_time_is_no_commit() -> None:
    with pytest.raises(UsageError, match="must be given by its number"):
        READER.commit("seq", "2026-03-12T10:30:00Z")


def test_a_moment_in_the_future_is_refused() -> None:
    for ahead in ("2026-03-13", "2026-03-12T10:31:00Z", NOW + timedelta(seconds=1), "2026-03-12 10:30:01Z"):
        with pytest.raises(UsageError, match="at is in the future: it is 2026-03-12T10:30:00Z now"):
            READER.cut("at", ahead)
    assert READER.cut("at", "today") == READER.cut("at", "2026-03-12T10:30:00Z") == spell_moment(NOW)
    assert READER.cut("at", "now") == READER.cut("at", NOW) == spell_moment(NOW)


def test_what_a_clock_that_is_ahead_has_written_is_not_in_the_future() -> None:
    behind = TimeReader(lambda: NOW - timedelta(seconds=30), Ledger())
    assert behind.cut("at", spell_moment(NOW)) == behind.cut("at", "today") == spell_moment(NOW)
    with pytest.raises(UsageError, match="in the future"):
        behind.cut("at", NOW + timedelta(seconds=1))


@pytest.mark.parametrize("day", ["2026-03-11", "yesterday", date(2026, 3, 11), "20260311"])
def test_where_a_moment_is_wanted_a_whole_day_is_refused(day: str | date) -> None:
    if day == "20260311":
        assert READER.cut("to", day, whole_days=False) == 20260311
        return
    with pytest.raises(UsageError, match=r" is a whole day: to takes a moment of it, such as 2026-03-11T23:59:59Z"):
        READER.cut("to", day, whole_days=False)
    assert READER.cut("at", day) == "2026-03-11T23:59:59.999999Z"


def test_a_span_ends_with_the_end_of_a_day_and_before_any_other_time() -> None:
    assert READER.span(None, None) == (None, None)
    assert READER.span("2026-03-01", None) == ("2026-03-01T00:00:00.000000Z", None)
    assert READER.span(None, "2026-03-01") == (None, "2026-03-02T00:00:00.000000Z")
    assert READER.span("2026-03-01", "2026-03-01") == ("2026-03-01T00:00:00.000000Z", "2026-03-02T00:00:00.000000Z")
    assert READER.span(None, "9999-12-31") == (None, "9999-12-31T00:00:00.000000Z")
    assert READER.span(None, "2026-03-01T10:00:00Z") == (None, "2026-03-01T10:00:00.000000Z")
    with pytest.raises(UsageError, match="until must be later than since"):
        READER.span("2026-03-02", "2026-03-01")


@given(moment=st.datetimes() | st.datetimes(timezones=st.timezones()))
def test_a_datetime_is_exact_or_refused(moment: datetime) -> None:
    read = parse_moment(moment.isoformat())
    if read is None:
        with pytest.raises(UsageError, match="must be a time"):
            READER.time("since", moment)
    else:
        assert READER.time("since", moment) == READER.time("since", moment, end=True) == spell_moment(read)


@given(moment=st.datetimes(timezones=st.just(UTC)), digits=st.sampled_from(["seconds", "milliseconds", "microseconds"]))
def test_a_time_cut_short_stands_for_the_moment_that_it_was_cut_from(moment: datetime, digits: str) -> None:
    text = moment.isoformat(timespec=digits)
    assert READER.time("at", text) <= spell_moment(moment) <= READER.time("at", text, end=True)


# Through the doors.


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 3, 10, 12, 0, 0, 600_000, tzinfo=UTC))


@pytest.fixture
def memory(tmp_path: Path, clock: FakeClock) -> MemoryHandle:
    """Four commits, one a day, in the middle of a second."""
    memory = open_home(tmp_path / "home", clock=clock).memory("ada")
    for day in range(3):
        if day:
            clock.advance(86_400)
        memory.add_fact(f"fact {day}")
    return memory


def contents(memory: MemoryHandle, at: object) -> list[str]:
    return [fact.content for fact in memory.facts(at)]  # type: ignore[arg-type]


def test_a_time_that_a_page_shows_names_the_commit_beside_it(memory: MemoryHandle) -> None:
    assert contents(memory, "2026-03-11 12:00:00Z") == ["fact 0", "fact 1"]
    assert memory.moment("2026-03-11 12:00:00Z").seq == 3
    assert memory.rollback("2026-03-11 12:00:00Z", dry_run=True).events
    assert len(memory.diff("2026-03-10 12:00:00Z", "2026-03-11 12:00:00Z").added) == 1


def test_a_day_is_its_end_for_what_was_and_its_beginning_for_what_is_listed(memory: MemoryHandle) -> None:
    assert contents(memory, "2026-03-11") == contents(memory, "yesterday") == ["fact 0", "fact 1"]
    assert contents(memory, date(2026, 3, 10)) == contents(memory, "2d ago") == ["fact 0"]
    assert [entry.seq for entry in memory.log(since="yesterday")] == [4, 3]
    assert [entry.seq for entry in memory.log(since=date(2026, 3, 12))] == [4]
    assert memory.timeline("2026-03-11", "2026-03-11").commits == 1
    assert [hit.content for hit in memory.search("fact", since="2026-03-11", until="2026-03-11")] == ["fact 1"]


def test_a_datetime_is_taken_wherever_a_time_is(memory: MemoryHandle) -> None:
    moment = datetime(2026, 3, 11, 14, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert contents(memory, moment) == ["fact 0", "fact 1"]
    assert memory.document(moment).facts == memory.document(3).facts
    assert memory.moment(moment).seq == 3
    assert len(memory.diff(moment, datetime(2026, 3, 12, 12, 0, 0, 600_000, tzinfo=UTC)).added) == 1
    assert memory.rollback(moment, dry_run=True).events
    assert [entry.seq for entry in memory.log(since=moment)] == [4]


def test_a_commit_is_named_in_each_way_wherever_one_is(memory: MemoryHandle) -> None:
    first = memory.log()[-1].hash
    assert contents(memory, "HEAD~1") == contents(memory, 3)
    assert memory.seq_of(first[:8].upper()) == memory.seq_of("HEAD~3") == 1
    assert memory.diff(first, "HEAD~2") == memory.diff(1, 2)
    assert memory.revert("HEAD~1", dry_run=True) == memory.revert(3, dry_run=True)
    assert memory.rollback("HEAD~1", dry_run=True) == memory.rollback(3, dry_run=True)
    assert memory.what_if(until="HEAD~1").facts == 2
    assert memory.refusals("HEAD") == ()
    assert [entry.seq for entry in memory.log(since="HEAD~1")] == [4, 3]
    assert [memory.seq_of(entry.hash[:12]) for entry in memory.log()] == [4, 3, 2, 1]


def test_the_future_and_whole_days_are_refused_where_they_mislead(memory: MemoryHandle) -> None:
    before = memory.head()
    with pytest.raises(UsageError, match="at is in the future"):
        memory.document("2026-03-13")
    with pytest.raises(UsageError, match="b is in the future"):
        memory.diff(1, "2030-01-01T00:00:00Z")
    for call in (lambda: memory.rollback("2026-03-11"), lambda: memory.diff("yesterday", 4)):
        with pytest.raises(UsageError, match="is a whole day"):
            call()
    with pytest.raises(UsageError, match="HEAD is the present"):
        memory.rollback("HEAD~0")
    assert memory.head() == before


def test_an_agent_without_a_memory_of_its_own_counts_in_its_user_s(tmp_path: Path, clock: FakeClock) -> None:
    with open_home(tmp_path / "other", clock=clock, agent_reads="fallback") as bs:
        memory: Backstory = bs
        memory.memory("ada").add_fact("Likes tea")
        assert memory.memory("ada", "coder").seq_of("HEAD") == 2
