"""Ranges of ordinals, both ends included, as sorted lists; ranges that touch are joined."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = list[Range]

_first, _last = itemgetter(0), itemgetter(1)


def add(ranges: Ranges, first: int, last: int) -> None:
    """Add a range in place; it is joined with those that it overlaps or touches."""
    start, end = _overlapping(ranges, first - 1, last + 1)
    if start < end:
        first, last = min(first, ranges[start][0]), max(last, ranges[end - 1][1])
    ranges[start:end] = [(first, last)]


def remove(ranges: Ranges, first: int, last: int) -> None:
    """Remove a range in place."""
    start, end = _overlapping(ranges, first, last)
    if start < end:
        before, behind = (ranges[start][0], first - 1), (last + 1, ranges[end - 1][1])
        ranges[start:end] = [left for left in (before, behind) if left[0] <= left[1]]


def overlap(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return the ranges that have an ordinal in common with a range."""
    start, end = _overlapping(ranges, first, last)
    return ranges[start:end]


def without(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return the parts of one range that others do not cover."""
    return complement(overlap(ranges, first, last), first, last)


def complement(ranges: Iterable[Range], first: int, last: int) -> Ranges:
    """Return the gaps between sorted ranges, from one ordinal to another."""
    left: Ranges = []
    for start, end in ranges:
        if first < start:
            left.append((first, start - 1))
        first = max(first, end + 1)
    if first <= last:
        left.append((first, last))
    return left


def members(ranges: Iterable[Range]) -> set[int]:
    """Return the ordinals in ranges as a set."""
    return {n for first, last in ranges for n in range(first, last + 1)}


def _overlapping(ranges: Ranges, first: int, last: int) -> tuple[int, int]:
    """Return the slice of the ranges that have an ordinal in common with a range."""
    start = bisect_left(ranges, first, key=_last)
    return start, max(start, bisect_right(ranges, last, key=_first))
