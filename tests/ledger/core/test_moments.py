"""One spelling of a moment."""

from __future__ import annotations

import pytest

from backstory.ledger.core.moments import begins, ends, parse_moment, spell_moment, stated_time


@pytest.mark.parametrize(
    "text", ["2026-03-01T10:00:00Z", "2026-03-01T12:00:00+02:00", "2026-03-01T10:00:00", " 2026-03-01 10:00:00.000 "]
)
def test_a_moment_is_spelled_in_utc_with_microseconds(text: str) -> None:
    moment = parse_moment(text)
    assert moment is not None
    assert spell_moment(moment) == "2026-03-01T10:00:00.000000Z"


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "0001-01-01T00:00:00+23:00"])
def test_what_is_no_moment_is_none(text: str) -> None:
    assert parse_moment(text) is None


@pytest.mark.parametrize(
    ("text", "spelled", "first", "behind"),
    [
        ("2026", "2026", "2026-01-01T00:00", "2027-01-01T00:00"),
        (" 2026-12 ", "2026-12", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("2024-02-29", "2024-02-29", "2024-02-29T00:00", "2024-03-01T00:00"),
        ("2026-03Z", "2026-03", "2026-03-01T00:00", "2026-04-01T00:00"),
        ("2026-03+09:00", "2026-03+09:00", "2026-02-28T15:00", "2026-03-31T15:00"),
        ("2026-03-05t10:30z", "2026-03-05T10:30", "2026-03-05T10:30", "2026-03-05T10:30"),
        ("2026-03-05 10:30:00-01:00", "2026-03-05T10:30:00-01:00", "2026-03-05T11:30", "2026-03-05T11:30"),
    ],
)
def test_a_stated_time_is_as_precise_as_it_is_written(text: str, spelled: str, first: str, behind: str) -> None:
    assert stated_time(text) == spelled
    assert stated_time(spelled) == spelled
    assert (begins(spelled)[:16], ends(spelled)[:16]) == (first, behind)


def test_a_stated_time_without_an_offset_takes_the_one_that_is_given() -> None:
    assert stated_time("2026-03", "+02:00") == "2026-03+02:00"
    assert stated_time("2026-03-05T10:00Z", "+02:00") == "2026-03-05T10:00"
    assert begins("2026-03+02:00") < begins("2026-03")


@pytest.mark.parametrize(
    "text", ["", "soon", "26", "2026-13", "2026-02-30", "2026-3", "2026-03-05T25:00", "0000", "2026+25"]
)
def test_what_is_no_stated_time_is_none(text: str) -> None:
    assert stated_time(text) is None


def test_the_first_and_the_last_year_have_ends() -> None:
    assert ends("9999") > "9999-12-31T23"
    assert begins("0001+09:00") < "0001-01-02"
