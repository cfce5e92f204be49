"""Counts of a ledger: its commits by time and kind, in buckets of equal width, and what models did by day.

The index keeps times and kinds in blocks of 256 commits, so that a hundred thousand commits are some four hundred
entries, and each question is answered from them exactly. The log format forbids times that go back, and nothing here
checks that. So a block is read as runs in which they do not, and a log of another program is counted right, too.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.projections.history.moment import Moment
from backstory.projections.index.kv import name_in, named

BLOCK = 256
"""How many commits a block holds; a kind's position among those of its block fits in a byte."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIME_BYTES = 8


class CommitTime(msgspec.Struct, frozen=True):
    """A commit and its time."""

    seq: int
    at: str


class TimelineBucket(msgspec.Struct, frozen=True):
    """The commits of one stretch of time: `at` is its beginning and `seq` the lowest number of a commit in it."""

    at: str
    seq: int
    commits: int
    kinds: dict[str, int]


class Timeline(msgspec.Struct, frozen=True):
    """Commits counted by time and by kind of cause.

    `commits` and `kinds` count the range, `first` and `last` are the commits of it with the lowest and highest number.
    `buckets` are stretches of equal width between `since` and `until`, the earliest first; empty ones are left out.
    Where the range holds no commit, a bound that was not given as a time is None.
    """

    commits: int
    first: CommitTime | None
    last: CommitTime | None
    since: str | None
    until: str | None
    kinds: dict[str, int]
    buckets: tuple[TimelineBucket, ...]


class TimelineBlock(msgspec.Struct, array_like=True):
    """Times and kinds of up to 256 commits.

    `times` are microseconds since 1970, eight bytes each, the lowest byte first; `kinds` are positions in `names`, a
    byte each. `turns` are the places of commits that are earlier than the one before them.
    """

    times: bytes
    kinds: bytes
    names: tuple[str, ...]
    turns: tuple[int, ...]

    def add(self, commit: Commit) -> None:
        """Add the next commit."""
        time, kind = _microseconds(commit.at), commit.cause.kind
        if self.times and time < int.from_bytes(self.times[-_TIME_BYTES:], "little", signed=True):
            self.turns += (len(self.kinds),)
        if kind not in self.names:
            self.names += (kind,)
        self.times += time.to_bytes(_TIME_BYTES, "little", signed=True)
        self.kinds += bytes((self.names.index(kind),))


class _Run(msgspec.Struct, frozen=True):
    """Commits of a block, from `low` to below `high`, in which times do not go back; the block begins with `seq`."""

    seq: int
    times: array[int]
    kinds: bytes
    names: tuple[str, ...]
    low: int
    high: int

    def count(self, low: int, high: int) -> Iterator[tuple[str, int]]:
        for number, name in enumerate(self.names):
            found = self.kinds.count(number, low, high)
            if found:
                yield name, found


class _Bucket(msgspec.Struct):
    seq: int
    commits: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)


def timeline(blocks: Iterable[TimelineBlock], since: Moment | None, until: Moment | None, buckets: int) -> Timeline:
    """Count commits.

    Args:
        blocks: All blocks of a ledger.
        since: The first commit's number or the earliest time.
        until: The last commit's number or the latest time.
        buckets: Into how many stretches to divide the time.
    """
    runs = [run for run in _between(_runs(blocks), since, until) if run.low < run.high]
    earliest = min((run.times[run.low] for run in runs), default=None)
    start = _microseconds(since) if isinstance(since, str) else earliest
    end = (
        _microseconds(until) if isinstance(until, str) else max((run.times[run.high - 1] for run in runs), default=None)
    )
    first = last = None
    found: dict[int, _Bucket] = {}
    edges: Sequence[int] = ()
    if runs and start is not None and end is not None:
        edges = [start + number * (end - start) // buckets for number in range(buckets)]
        found = _counted(runs, edges)
        first, last = _commit(runs[0], runs[0].low), _commit(runs[-1], runs[-1].high - 1)
    kinds: Counter[str] = Counter()
    for bucket in found.values():
        kinds += bucket.kinds
    return Timeline(
        kinds.total(),
        first,
        last,
        None if start is None else _spelled(start),
        None if end is None else _spelled(end),
        dict(sorted(kinds.items())),
        tuple(
            TimelineBucket(_spelled(edges[number]), bucket.seq, bucket.commits, dict(sorted(bucket.kinds.items())))
            for number, bucket in sorted(found.items())
        ),
    )


def _runs(blocks: Iterable[TimelineBlock]) -> Iterator[_Run]:
    seq = 1
    for block in blocks:
        times = _times_in(block)
        for low, high in pairwise((0, *block.turns, len(times))):
            yield _Run(seq, times, block.kinds, block.names, low, high)
        seq += len(times)


def _between(runs: Iterable[_Run], since: Moment | None, until: Moment | None) -> Iterator[_Run]:
    """Cut runs down to a range, both ends included."""
    start = _microseconds(since) if isinstance(since, str) else 0
    end = _microseconds(until) if isinstance(until, str) else 0
    for run in runs:
        low, high = run.low, run.high
        if isinstance(since, str):
            low = bisect_left(run.times, start, low, high)
        elif since is not None:
            low = max(low, since - run.seq)
        if isinstance(until, str):
            high = bisect_right(run.times, end, run.low, high)
        elif until is not None:
            high = min(high, until - run.seq + 1)
        yield msgspec.structs.replace(run, low=low, high=high)


def _counted(runs: Iterable[_Run], edges: Sequence[int]) -> dict[int, _Bucket]:
    """Count the commits between edges, by the number of the edge before them."""
    found: dict[int, _Bucket] = {}
    for run in runs:
        low = run.low
        while low < run.high:
            number = bisect_right(edges, run.times[low]) - 1
            high = run.high
            if number + 1 < len(edges):
                high = bisect_left(run.times, edges[number + 1], low, high)
            bucket = found.setdefault(number, _Bucket(run.seq + low))
            bucket.commits += high - low
            for name, count in run.count(low, high):
                bucket.kinds[name] += count
            low = high
    return found


def _commit(run: _Run, place: int) -> CommitTime:
    return CommitTime(run.seq + place, _spelled(run.times[place]))


def _times_in(block: TimelineBlock) -> array[int]:
    times = array("q")
    times.frombytes(block.times)
    if sys.byteorder == "big":
        times.byteswap()
    return times


def _microseconds(time: str) -> int:
    """A time of the log in microseconds since 1970; 0 for a text that is none, as only another program writes it."""
    moment = parse_moment(time)
    return 0 if moment is None else (moment - _EPOCH) // _MICROSECOND


def _spelled(microseconds: int) -> str:
    return spell_moment(_EPOCH + microseconds * _MICROSECOND)


class DayUsage(msgspec.Struct, frozen=True):
    """What one model did on one day, in UTC; `model` is None where a commit states tokens and no model.

    `updates` are the commits that state the model, failed updates and summaries of long threads included.
    """

    day: str
    model: str | None
    updates: int
    tokens_in: int
    tokens_out: int


class ModelUsage(msgspec.Struct, frozen=True):
    """What models did, by day and model, the earliest day first."""

    days: tuple[DayUsage, ...]


class UsageCount(msgspec.Struct, frozen=True, array_like=True):
    """What a day and a model are kept with."""

    updates: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, cause: Cause) -> UsageCount:
        """Return the count with one more commit."""
        return UsageCount(
            self.updates + 1, self.tokens_in + (cause.tokens_in or 0), self.tokens_out + (cause.tokens_out or 0)
        )

    def at(self, key: bytes) -> DayUsage:
        """Return what is counted under a key."""
        day, end = name_in(key)
        model, _ = name_in(key[end:])
        return DayUsage(day, model or None, self.updates, self.tokens_in, self.tokens_out)


def usage_key(commit: Commit) -> bytes | None:
    """Return the key that a commit counts under; None where no model was asked."""
    cause = commit.cause
    if cause.model is None and cause.tokens_in is None and cause.tokens_out is None:
        return None
    return named(commit.at[: len("2026-03-02")]) + named(cause.model or "")
