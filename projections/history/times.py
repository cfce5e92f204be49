"""Reader of times and commits as people and programs give them: the one place where they are read.

A time is a `datetime`, a `date`, ISO 8601, `now`, `today`, `yesterday`, or `3d ago` (s, min, h, d, w). It is in UTC
unless it has a zone. A text stands for all of its last unit where that is a day, a second or less: `2026-03-12` is the
whole day, and `10:30:00` the whole second, since pages show times to the second. A commit is its number, `HEAD`,
`HEAD~N`, or the beginning of its hash.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import NamedTuple, Protocol

from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.moments import begins, ends, parse_moment, spell_moment, stated_time
from backstory.projections.history.moment import Moment

When = str | date
"""A time: a text, a datetime or a date."""

At = int | When
"""A commit, by its number or by a text, or a time."""

TIMES = "2026-03-12T10:30:00Z (ISO 8601), a date, `yesterday` or `3d ago`"
COMMITS = "its number, HEAD, HEAD~1 or the beginning of its hash"

_LONGEST_SEQ = 18
_FEWEST_DIGITS = 4
_DAYS = {"today": 0, "yesterday": 1}
_AGO = re.compile(r"(\d{1,9})\s*([a-z]+)\s+ago", re.ASCII)
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
_SECOND = re.compile(r"(?<![\d+-])(?:\d\d:\d\d:\d\d|(?<=[Tt ])\d{6})(?:[.,](\d+))?", re.ASCII)
_MICROSECOND_DIGITS = 6
_HEAD = re.compile(r"head(?:~(\d{0,18}))?", re.ASCII)
_HASH = re.compile(rf"[0-9a-f]{{{_FEWEST_DIGITS},64}}", re.ASCII)


class Commits(Protocol):
    """The ledger that a commit is looked for in."""

    def last(self) -> int:
        """Return the number of the last commit, 0 if there is none."""

    def time_of(self, seq: int) -> str:
        """Return the time of a commit."""

    def with_hash(self, beginning: str) -> Sequence[int]:
        """Return the numbers of commits whose hash begins so, two of them at most."""


class _Period(NamedTuple):
    """The stretch of time that a text stands for; both ends are included."""

    first: datetime
    last: datetime
    is_day: bool = False


class TimeReader:
    """Reads times and commits.

    Args:
        now: Returns the present time.
        commits: The ledger that commits are looked for in.
    """

    def __init__(self, now: Callable[[], datetime], commits: Commits) -> None:
        self._now = now
        self._commits = commits

    def time(self, name: str, value: object, *, end: bool = False) -> str:
        """Return a time as the logs spell it: the beginning of what was given, or its end.

        Raises:
            UsageError: It is none; `name` is what the caller calls it.
        """
        period = self._period(value)
        if period is None:
            raise UsageError(f"{name} must be a time, such as {TIMES}, got {_shown(value)}")
        return spell_moment(period.last if end else period.first)

    def span(self, since: object, until: object) -> tuple[str | None, str | None]:
        """Return the bounds of a span of time, the second of which is not in it; None is no bound.

        Raises:
            UsageError: One is no time, or the span is empty.
        """
        first = None if since is None else self.time("since", since)
        end = None if until is None else self.time("until", until)
        day = None if until is None else self._period(until)
        if day is not None and day.is_day and day.last < datetime.max.replace(tzinfo=UTC):
            end = spell_moment(day.last + datetime.resolution)
        if first is not None and end is not None and first >= end:
            raise UsageError(f"until must be later than since, got {first} and {end}")
        return first, end

    def valid_span(self, name: str, value: object) -> tuple[str, str]:
        """Return the first moment of a time that facts may state, or of any other time, and the first one behind it.

        Both are the same for a single moment.

        Raises:
            UsageError: It is none.
        """
        stated = stated_time(value) if isinstance(value, str) else None
        if stated is not None:
            return begins(stated), ends(stated)
        first, last = self.time(name, value), self.time(name, value, end=True)
        return first, last if first == last else last[:-1] + "~"

    def bound(self, name: str, value: object, *, end: bool = False) -> Moment:
        """Return a bound of a range of commits: a commit's number, or a time as `time` does.

        Raises:
            UsageError: It is neither.
            NotFoundError: The ledger has no such commit; a number is not looked up.
        """
        seq = self._seq(name, value)
        if seq is not None:
            return seq
        if self._period(value) is None:
            raise _neither(name, value)
        return self.time(name, value, end=end)

    def cut(self, name: str, value: object, *, whole_days: bool = True) -> Moment:
        """Return the moment at which memory is looked at: a commit's number, or the end of a time, now at the latest.

        Args:
            name: What the caller calls it.
            value: The commit or the time.
            whole_days: Whether a day will do, for its end.

        Raises:
            UsageError: It is neither, it is in the future, or a day where a day will not do.
            NotFoundError: The ledger has no such commit; a number is not looked up.
        """
        seq = self._seq(name, value)
        if seq is not None:
            return seq
        period = self._period(value)
        if period is None:
            raise _neither(name, value)
        if period.is_day and not whole_days:
            raise UsageError(
                f"{value!r} is a whole day: {name} takes a moment of it, such as {period.last:%Y-%m-%dT%H:%M:%SZ} for "
                "its end, or a commit"
            )
        return self._end_by_now(name, value, period)

    def commit(self, name: str, value: object, least: int = 0) -> int:
        """Return the number of a commit; whether the ledger has one of this number is not looked up.

        Raises:
            UsageError: It is no commit, or less than `least`.
            NotFoundError: The ledger has no such commit.
        """
        seq = self._seq(name, value)
        if seq is None:
            raise UsageError(f"{name} must be given by {COMMITS}, got {_shown(value)}: see `log`")
        return _number(name, seq, least)

    def _seq(self, name: str, value: object) -> int | None:
        """Return the number of a commit; None if it is no commit."""
        if isinstance(value, int) and not isinstance(value, bool):
            return _number(name, value)
        if not isinstance(value, str):
            return None
        text = value.strip().casefold()
        if text.isdecimal() and len(text) <= _LONGEST_SEQ:
            return self._numbered(text)
        head = _HEAD.fullmatch(text)
        if head is not None:
            last, back = self._commits.last(), 0 if head[1] is None else int(head[1] or 1)
            if back > last:
                raise NotFoundError(f"there is no commit {value.strip()}: the ledger ends at {last}")
            return last - back
        return self._hashed(text) if _HASH.fullmatch(text) else None

    def _numbered(self, digits: str) -> int:
        """Return a number; one that is greater than the last commit's may be the beginning of a hash."""
        seq = int(digits)
        if _HASH.fullmatch(digits) and seq > self._commits.last():
            found = self._commits.with_hash(digits)
            return found[0] if len(found) == 1 else seq
        return seq

    def _hashed(self, beginning: str) -> int:
        found = self._commits.with_hash(beginning)
        if not found:
            raise NotFoundError(f"there is no commit whose hash begins with {beginning}: see `log --json`")
        if len(found) > 1:
            raise UsageError(
                f"{beginning} begins the hashes of several commits, {found[0]} and {found[1]} among them: give more"
            )
        return found[0]

    def _end_by_now(self, name: str, value: object, period: _Period) -> str:
        """Return the end of a time; of one that is not over yet the present, since its end would show what is to come.

        Raises:
            UsageError: The time has not begun.
        """
        now = self._now()
        if period.last <= now:
            return spell_moment(period.last)
        # Another machine's clock may be ahead of this one: what it has written is not in the future.
        last = self._commits.last()
        present = max(spell_moment(now), self._commits.time_of(last) if last else "")
        if spell_moment(period.first) > present:
            raise UsageError(
                f"{name} is in the future: it is {now:%Y-%m-%dT%H:%M:%SZ} now, got {_shown(value)}; leave it out for "
                "memory as it is now"
            )
        return min(spell_moment(period.last), present)

    def _period(self, value: object) -> _Period | None:
        if isinstance(value, datetime):
            moment = parse_moment(value.isoformat())
            return None if moment is None else _Period(moment, moment)
        if isinstance(value, date):
            return _day(value)
        return self._read(value.strip()) if isinstance(value, str) else None

    def _read(self, text: str) -> _Period | None:
        word = text.casefold()
        if word == "now":
            return _Period(self._now(), self._now())
        if word in _DAYS:
            return _day(self._now().date() - timedelta(_DAYS[word]))
        ago = _AGO.fullmatch(word)
        if ago is not None:
            return self._ago(int(ago[1]), ago[2])
        try:
            return _day(date.fromisoformat(text))
        except ValueError:
            return _unit(text)

    def _ago(self, count: int, unit: str) -> _Period | None:
        try:
            moment = self._now() - count * _UNITS[unit]
        except (KeyError, OverflowError):
            return None
        return _Period(moment, moment)


def depends_on_clock(text: str) -> bool:
    """Whether a time means another moment when it is read again later."""
    word = text.strip().casefold()
    return word == "now" or word in _DAYS or _AGO.fullmatch(word) is not None


def _day(day: date) -> _Period:
    return _Period(
        datetime.combine(day, time_of_day.min, UTC), datetime.combine(day, time_of_day.max, UTC), is_day=True
    )


def _unit(text: str) -> _Period | None:
    """Return the second, or the part of one, that a time names; a time to the minute is its beginning."""
    moment = parse_moment(text)
    second = _SECOND.search(text)
    if moment is None or second is None:
        return None if moment is None else _Period(moment, moment)
    digits = min(len(second[1] or ""), _MICROSECOND_DIGITS)
    return _Period(moment, moment + timedelta(microseconds=10 ** (_MICROSECOND_DIGITS - digits) - 1))


def _neither(name: str, value: object) -> UsageError:
    return UsageError(f"{name} must be a commit ({COMMITS}) or a time (such as {TIMES}), got {_shown(value)}")


def _number(name: str, value: int, least: int = 0) -> int:
    if not least <= value < 10**_LONGEST_SEQ:
        what = "the number of a commit (0 for the empty memory)" if least == 0 else "the number of a commit"
        raise UsageError(
            f"{name} must be {what}, at least {least} and at most {_LONGEST_SEQ} digits long, got {_shown(value)}"
        )
    return value


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:
        # Python does not spell a number of thousands of digits.
        return "a number of very many digits"
