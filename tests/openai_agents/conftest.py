from __future__ import annotations

from pathlib import Path

import pytest

from backstory import Backstory


@pytest.fixture
def bs(tmp_path: Path):
    with Backstory.open(tmp_path / "home") as home:
        yield home
