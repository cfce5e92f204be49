from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backstory import Backstory


@pytest.fixture
def bs(tmp_path: Path):
    with Backstory.open(tmp_path / "home") as home:
        yield home


@pytest.fixture(autouse=True)
def loop():
    """The event loop of `run_sync`, which would leave its own open."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        yield
        asyncio.set_event_loop(None)
