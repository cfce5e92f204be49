"""Bound on the size and the depth of a configured value, with every alias and shared reference written out.

A few lines of YAML stand for billions of values when each line refers to the one before it several times. Each value is
measured once, so that it takes no longer to refuse such a file than to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

__all__ = ["DEEPEST", "check_extent", "check_values"]

DEEPEST = 64
"""Levels of nesting; our own keys need four."""

_MOST_VALUES = 100_000
"""Values in a whole configuration, keys included; a file that a person writes has some hundreds."""

_MOST_BITS = 1024
"""Of a number: some 300 digits."""

T = TypeVar("T")


def check_extent(
    whole: T, parts: Callable[[T], Iterable[T]], refused: Callable[[T, str], Exception], *, loops: bool = False
) -> None:
    """Raise what `refused` makes of a part that is too large or nested too deep, and of words that say so.

    A part that holds itself is refused too, or with `loops` counted once and not followed.
    """
    known: dict[int, tuple[T, int, int]] = {}
    """By identity: the value, which is kept so that no other takes its place, how many values it comes to, how deep."""

    def measured(value: T, level: int) -> tuple[int, int]:
        if id(value) in known:
            _, size, depth = known[id(value)]
            if not (size or loops):
                raise refused(value, "holds itself")
            return max(size, 1), depth
        known[id(value)] = (value, 0, 0)
        size, depth = 1, 0
        for part in parts(value):
            inner, below = measured(part, level + 1) if level < DEEPEST else (0, 0)
            size, depth = size + inner, max(depth, below + 1)
            if level + depth > DEEPEST:
                raise refused(value, f"is nested more than {DEEPEST} levels deep")
            if size > _MOST_VALUES:
                raise refused(value, f"comes to more than {_MOST_VALUES} values when its aliases are written out")
        known[id(value)] = (value, size, depth)
        return size, depth

    measured(whole, 0)


def check_values(values: Iterable[tuple[str, object]], refused: Callable[[str, str], Exception]) -> None:
    """Raise what `refused` makes of the key of a value that is too large or nested too deep, and of words that say so.

    The values are plain Python ones, as YAML or a host gives them. A number that Python does not spell is too large.
    """
    for key, value in values:

        def named(_: object, why: str, key: str = key) -> Exception:
            return refused(key, why)

        def parts(value: object, key: str = key) -> Iterable[object]:
            if isinstance(value, int) and value.bit_length() > _MOST_BITS:
                raise refused(key, "holds a number of more than 300 digits")
            if isinstance(value, Mapping):
                return [part for pair in value.items() for part in pair]
            return value if isinstance(value, list | tuple | set | frozenset) else ()

        check_extent(value, parts, named)
