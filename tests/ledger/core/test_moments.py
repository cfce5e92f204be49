"""One spelling of a moment."""

from __future__ import annotations

import pytest

from backstory.ledger.core.moments import parse_moment, spell_moment


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
