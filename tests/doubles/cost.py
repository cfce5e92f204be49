"""Cost of a long text, judged by how it grows: no clock is compared with a number of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["assert_no_square"]

_LONGER = 4
_MOST = 8
"""How much more a text of four times the length may cost: between four, which is in proportion, and the square."""
_UNMEASURED = 0.002
"""Seconds of processor time below which a measurement says nothing."""
_TRIES = 5


def assert_no_square(read: Callable[[str], object], unit: str, length: int) -> None:
    """Read a text of a length and one four times as long; a busy machine gets more than one try."""
    units = max(1, length // len(unit))
    measured = []
    for _ in range(_TRIES):
        short, long = (_processor_time(read, unit * (units * times)) for times in (1, _LONGER))
        measured.append((short, long))
        if long < _MOST * max(short, _UNMEASURED):
            return
    raise AssertionError(f"{unit!r}: a text {_LONGER} times as long takes too long each time: {measured}")


def _processor_time(read: Callable[[str], object], text: str) -> float:
    begun = time.thread_time()
    read(text)
    return time.thread_time() - begun
