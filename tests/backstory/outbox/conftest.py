"""Fixtures of the tests of outbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import open_home
from outboxes import Disk, Elapsed, by_hand

from backstory.home import Backstory
from backstory.outbox.fail_safe import FailSafeMemory


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path) -> Iterator[Backstory]:
    with open_home(home) as bs:
        yield bs


@pytest.fixture
def disk(bs: Backstory) -> Disk:
    return Disk(bs)


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def door(bs: Backstory, elapsed: Elapsed) -> FailSafeMemory:
    """A door whose deliveries are only tried again by `record` and `flush`."""
    return by_hand(bs, elapsed)
