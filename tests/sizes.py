"""Sizes of long tests: one case of each kind in `make test`, all in `make torture`; seeds and skips of fault tests."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import settings

LONG = os.environ.get("TORTURE", "") not in ("", "0")
"""Whether this is `make torture`. Read once at collection: tests see an environment without settings."""

REQUIRED = os.environ.get("BACKSTORY_REQUIRE") == "all"


def sized(short: int, long: int) -> int:
    """How many times to do something."""
    return long if LONG else short


def examples(share: float = 1) -> int:
    """How many examples Hypothesis tries where each is costly: a share of 15, 40 or 250 by the profile, at least five.

    Where an example takes a millisecond, nothing is stated: the profile's own number is tried.
    """
    assert share <= 2, f"{share} is no share of the examples"
    return max(5, round(min(settings().max_examples, sized(40, 250)) * share))


PATIENT = pytest.mark.timeout(sized(300, 3600))
"""Marks tests whose long form takes longer than any other test may."""


def chance(default: int) -> random.Random:
    """Random numbers that `SEED=n` repeats; the seed is printed, so pytest shows it beside a failure."""
    seed = int(os.environ.get("SEED") or default)
    print(f"SEED={seed}")  # noqa: T201 for whoever has to repeat a failure
    return random.Random(seed)  # noqa: S311 damage is no secret


def cannot(reason: str) -> None:
    """Skip with the reason; where everything is required, fail with it."""
    if REQUIRED:
        pytest.fail(f"BACKSTORY_REQUIRE=all, but {reason}")
    pytest.skip(reason)


def bytes_below(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder, whatever it is called."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
