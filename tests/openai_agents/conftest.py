from __future__ import annotations

from pathlib import Path

import pytest
from agents import set_tracing_disabled

from backstory import Backstory


@pytest.fixture
def bs(tmp_path: Path):
    with Backstory.open(tmp_path / "home") as home:
        yield home


@pytest.fixture(autouse=True, scope="session")
def untraced() -> None:
    """No run of a test is reported to a server."""
    set_tracing_disabled(disabled=True)
