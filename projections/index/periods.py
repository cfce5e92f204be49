"""Periods in which ended facts were true: an interval tree of days, laid out as keys in order.

The nodes are the numbers of days. A period is kept at one of them: of its days, the one whose number is divisible by
the highest power of two. So what holds at some time of a span is at a day of the span or at one of the 22 on either
side that lie on the way down to it, and no question reads all periods. At its node each period is there twice, in the
order of beginnings and in the order of ends. (Kriegel, Pötke and Seidl, 2000: the relational interval tree.)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import msgspec

from backstory.projections.index.kv import LAST, number

_BEGINNINGS, _ENDS = b"b", b"e"
_NODE_BYTES = 4
_MIDNIGHT = "T00:00:00.000000Z"
_LEVELS = date.max.toordinal().bit_length()
_MOMENT_BYTES = len("2026-03-12T10:30:00.123456Z")
_SEQ = slice(1 + _NODE_BYTES + _MOMENT_BYTES, 1 + _NODE_BYTES + _MOMENT_BYTES + 8)


class EndedPeriod(msgspec.Struct, frozen=True, array_like=True):
    """When an ended fact was true, as moments, and the fact as bytes; `begin` is "" where it is unknown."""

    begin: str
    end: str
    fact: msgspec.Raw


def keys_of(period: EndedPeriod, seq: int, fact_id: str) -> tuple[bytes, bytes]:
    """Return the two keys of a period, which commit `seq` ended."""
    last = _last_day(period.begin, period.end)
    # What ended before it began is at the day of its end, which every span that holds both has.
    node = _node(min(_day(period.begin), last), last)
    behind = number(seq) + fact_id.encode()
    return _at(_BEGINNINGS, node, period.begin) + behind, _at(_ENDS, node, period.end) + behind


def ended_by(key: bytes) -> int:
    """Read the seq of the commit that ended a fact from one of its keys."""
    return int.from_bytes(key[_SEQ], "big")


def ranges_of(first: str, behind: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield ranges of keys, each from one key to below another; they hold each period of a span once, and some more.

    Args:
        first: the first moment of the span.
        behind: the first moment behind it; `first` for a single moment.
    """
    low, high = _day(first), _last_day(first, behind)
    # What begins at a moment is true then, what begins behind a span is not.
    moment = LAST if first == behind else b""
    yield _at(_BEGINNINGS, low), _at(_BEGINNINGS, high + 1)
    for level in range(_LEVELS):
        before, after = (low >> level | 1) << level, (high >> level | 1) << level
        if before < low:
            yield _at(_ENDS, before, first) + LAST, _at(_ENDS, before + 1)
        if after > high:
            yield _at(_BEGINNINGS, after), _at(_BEGINNINGS, after, behind) + moment


def _at(order: bytes, node: int, moment: str | None = None) -> bytes:
    key = order + node.to_bytes(_NODE_BYTES, "big")
    return key if moment is None else key + moment.encode().ljust(_MOMENT_BYTES)


def _day(moment: str) -> int:
    """Return the number of a moment's day; the first or the last one for a text before or behind all moments."""
    return date.fromisoformat(min(max(moment, str(date.min)), str(date.max))[:10]).toordinal()


def _last_day(begin: str, end: str) -> int:
    """Return the number of the last day before an end; of the end itself where nothing is before it."""
    return max(1, _day(end) - (end > begin and end.endswith(_MIDNIGHT)))


def _node(first: int, last: int) -> int:
    """Return the number from one to another that is divisible by the highest power of two."""
    level = ((first - 1) ^ last).bit_length() - 1
    return last >> level << level
