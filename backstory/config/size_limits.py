"""Size limits of configured values, counted with every alias and shared reference written out.

A few lines of YAML can stand for billions of values if each refers to the one before several times. Each value is
measured only once, so the check is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

DEEPEST = 64
"""Maximum levels of nesting; the known keys need four."""

_MOST_VALUES = 100_000
"""Maximum number of values in a configuration, keys included; a typical file has a few hundred."""

_MOST_BITS = 1024
"""Maximum size of a number: about 300 digits."""

T = TypeVar("T")


def check_extent(
    whole: T, parts: Callable[[T], Iterable[T]], refused: Callable[[T, str], Exception], *, loops: bool = False
) -> None:
    """Check the size and the depth of a nested value.

    Args:
        whole: The value.
        parts: Returns the direct parts of a value.
        refused: Creates the error from a part and a reason.
        loops: Whether a part may contain itself; it is then counted once.

    Raises:
        Exception: What `refused` creates, if a part is too large or nested too deep.
    """
    known: dict[int, tuple[T, int, int]] = {}
    """By identity: the value (a reference keeps the identity valid), its size and its depth."""

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
    """Check the size and the depth of configured values.

    Args:
        values: Keys and values.
        refused: Creates the error from a key and a reason.

    Raises:
        Exception: What `refused` creates, if a value is too large or nested too deep.
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
