"""Dates in a prompt: the day and the time at the speaker's place, with the offset from UTC.

A model turns "yesterday" into a date by them. A host that gives no offset has its times in UTC, and the prompt says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from backstory.ledger.core.events import Turn
from backstory.ledger.core.moments import local_moment
from backstory.ledger.extraction.excerpt import on_one_line

_DAY = len("2026-03-01")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def said_at(turn: Turn) -> str:
    """Return when a turn was said, such as `Sunday 2026-03-01 22:44 -07:00`."""
    moment = local_moment(turn.at, turn.offset)
    if moment is None:
        return on_one_line(turn.at)
    return f"{_WEEKDAYS[moment.weekday()]} {moment:%Y-%m-%d %H:%M} {turn.offset or 'UTC'}"


def when(turns: Sequence[Turn]) -> str:
    """Return when the first and the last of some turns were said, in one text."""
    if not turns:
        return ""
    first, last = min(turns, key=_at), max(turns, key=_at)
    return " to ".join(dict.fromkeys([said_at(first), said_at(last)]))


def over_days(turns: Sequence[Turn]) -> bool:
    """Whether turns were said on different days, each by the speaker's own calendar."""
    return any(_day(turn) != _day(turns[0]) for turn in turns)


def days(moments: Iterable[str]) -> str:
    """Return the days of the first and the last moment in UTC, such as `2026-03-01 to 2026-03-04`."""
    found = [on_one_line(moment)[:_DAY] for moment in moments]
    return " to ".join(dict.fromkeys([min(found), max(found)])) if found else ""


def _at(turn: Turn) -> str:
    return turn.at


def _day(turn: Turn) -> date | str:
    moment = local_moment(turn.at, turn.offset)
    return turn.at if moment is None else moment.date()
