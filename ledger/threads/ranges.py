"""Ranges of ordinals, both ends included, kept in order and apart: those that touch are one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

__all__ = ["Range", "Ranges", "add", "complement", "members", "overlap", "remove", "without"]

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = list[Range]

_first, _last = itemgetter(0), itemgetter(1)


def add(ranges: Ranges, first: int, last: int) -> None:
    """Add a range; it becomes one with those that it meets or touches."""
    start, end = _meeting(ranges, first - 1, last + 1)
    if start < end:
        first, last = min(first, ranges[start][0]), max(last, ranges[end - 1][1])
    ranges[start:end] = [(first, last)]


def remove(ranges: Ranges, first: int, last: int) -> None:
    """Take a range out."""
    start, end = _meeting(ranges, first, last)
    if start < end:
        before, behind = (ranges[start][0], first - 1), (last + 1, ranges[end - 1][1])
        ranges[start:end] = [left for left in (before, behind) if left[0] <= left[1]]


def overlap(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return those that have an ordinal in common with a range."""
    start, end = _meeting(ranges, first, last)
    return ranges[start:end]


def without(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return what is left of one range without others."""
    return complement(overlap(ranges, first, last), first, last)


def complement(ranges: Iterable[Range], first: int, last: int) -> Ranges:
    """Return what is between ranges that are in order, from an ordinal to another."""
    left: Ranges = []
    for start, end in ranges:
        if first < start:
            left.append((first, start - 1))
        first = max(first, end + 1)
    if first <= last:
        left.append((first, last))
    return left


def members(ranges: Iterable[Range]) -> set[int]:
    """Return the ordinals in ranges, one by one."""
    return {n for first, last in ranges for n in range(first, last + 1)}


def _meeting(ranges: Ranges, first: int, last: int) -> tuple[int, int]:
    """The slice of the ranges that have an ordinal in common with a range."""
    start = bisect_left(ranges, first, key=_last)
    return start, max(start, bisect_right(ranges, last, key=_first))
