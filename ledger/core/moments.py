"""Moments: points in time as texts of one format, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = re.compile(r"\d{9,19}(?:\.\d+)?", re.ASCII)
_FIRST_EPOCH = 10**8
_DAY = timedelta(days=1)

# Cached, because every decision parses the times of every fact and they seldom change.
_moment = lru_cache(maxsize=4096)(datetime.fromisoformat)


def spell_moment(moment: datetime) -> str:
    """Return a moment in the format of the logs: ISO 8601, UTC, microseconds, `Z`; the texts sort by time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_moment(text: str) -> datetime | None:
    """Parse an ISO 8601 moment, as UTC if it has no zone; None if the text is not a moment."""
    moment = parse_local(text)
    return None if moment is None else moment.astimezone(UTC)


def parse_local(text: str) -> datetime | None:
    """Parse an ISO 8601 moment and keep its offset; as `parse_moment` otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment.astimezone(UTC)  # no log can hold a moment that is out of range in UTC
    except (ValueError, OverflowError):
        return None
    return moment


def days_since(moment: str, at: str) -> float:
    """Return the days from one ISO 8601 moment to another; 0 if `at` is the earlier one."""
    days = (_moment(at) - _moment(moment)) / _DAY
    return days if days > 0 else 0.0  # every decision asks this of every fact, and `max` takes longer than the rest


def read_time(value: object) -> str | None:
    """Return a moment in the format of the logs, from ISO 8601 or the seconds (or milli-, microseconds) since 1970.

    None if the value is no moment: of a number those that a clock showed since 1973.
    """
    if isinstance(value, bool):
        return None
    number = value if isinstance(value, int | float) else None
    if isinstance(value, str):
        if (moment := parse_moment(value)) is not None:
            return spell_moment(moment)
        number = float(value) if _EPOCH.fullmatch(value.strip()) else None
    if number is None or not _FIRST_EPOCH <= number < _FIRST_EPOCH * 10**9:
        return None
    # 10**8 seconds are the year 1973, and 10**11 the year 5138: so the unit is known by the size.
    while number >= _FIRST_EPOCH * 1_000:
        number /= 1_000
    try:
        return spell_moment(datetime.fromtimestamp(number, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def spell_offset(moment: datetime) -> str | None:
    """Return the offset of a moment from UTC, such as `-07:00`; None for UTC."""
    return moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :] if moment.utcoffset() else None


def local_moment(at: str, offset: str | None) -> datetime | None:
    """Return a moment at an offset as `spell_offset` gives it; None if one of the two is not valid."""
    zone = parse_local(f"2000-01-01T00:00{offset or 'Z'}")
    moment = parse_local(at)
    if moment is None or zone is None:
        return None
    try:
        return moment.astimezone(zone.tzinfo)
    except OverflowError:
        return None


# Stated times: a year, a month, a day or a moment, as precise as it was said.

_STATED = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?P<time>[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?)?)?"
    r"(?P<zone>[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_MONTHS = 12
_FIRST, _LAST = spell_moment(datetime.min.replace(tzinfo=UTC)), spell_moment(datetime.max.replace(tzinfo=UTC))


def stated_time(text: str, offset: str | None = None) -> str | None:
    """Return a year, month, day or moment in the one spelling that facts keep; None if the text is none.

    Its precision stays as it is written: `2026`, `2026-03`, `2026-03-05`, `2026-03-05T10:00`. Behind it comes the
    offset from UTC that the text states, otherwise `offset`; none for UTC.
    """
    found = _STATED.fullmatch(text.strip())
    if found is None:
        return None
    zone = found["zone"] or offset or ""
    if zone.upper() in ("Z", "+00:00", "-00:00"):
        zone = ""
    spelled = text.strip()[: found.start("zone") if found["zone"] else None].upper().replace(" ", "T")
    return None if _bounds(spelled + zone) is None else spelled + zone


def begins(stated: str) -> str:
    """Return the first moment of a stated time, as `spell_moment` does."""
    bounds = _bounds(stated)
    return _FIRST if bounds is None else bounds[0]


def ends(stated: str) -> str:
    """Return the first moment behind a stated year, month or day, which are included; a moment is its own end."""
    bounds = _bounds(stated)
    return _LAST if bounds is None else bounds[1]


# Cached, because every decision and every read asks for the ends of the facts in memory.
@lru_cache(maxsize=4096)
def _bounds(stated: str) -> tuple[str, str] | None:
    found = _STATED.fullmatch(stated)
    if found is None:
        return None
    zone = found["zone"] or ""
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    try:
        first = datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}{found['time'] or 'T00:00'}{zone or 'Z'}")
    except ValueError:
        return None
    behind: datetime | None = first
    if found["time"] is None:
        try:
            if found["day"] is not None:
                behind = first + timedelta(days=1)
            elif found["month"] is not None and month < _MONTHS:
                behind = first.replace(month=month + 1)
            else:
                behind = first.replace(year=year + 1, month=1)
        except (ValueError, OverflowError):
            behind = None
    return _spelled_or(first, _FIRST), _LAST if behind is None else _spelled_or(behind, _LAST)


def _spelled_or(moment: datetime, bound: str) -> str:
    """Return a moment as `spell_moment` does; `bound` where it is out of range in UTC."""
    try:
        return spell_moment(moment)
    except OverflowError:
        return bound
