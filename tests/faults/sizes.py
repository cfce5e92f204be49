"""How long the fault tests run: short in every test run, long in `make torture`; and where their chance comes from."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

LONG = os.environ.get("TORTURE", "") not in ("", "0")
"""Read once, as the tests are collected: the environment that a test sees is emptied of settings."""

REQUIRED = os.environ.get("BACKSTORY_REQUIRE") == "all"


def sized(short: int, long: int) -> int:
    """How many times to do something."""
    return long if LONG else short


PATIENT = pytest.mark.timeout(sized(120, 3600))
"""For tests whose long form takes longer than any other test may."""


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
