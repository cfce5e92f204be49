"""Sixteen clients that read, write and repeat requests at once; `make bench` lets them do so for a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mixing import mixing
from benchmarks.serving import served


@pytest.mark.slow
def test_many_clients_lose_and_double_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as port:
        found = mixing(tmp_path, port, clients=16, seconds=1.5)
    assert (found.notes, found.errors, found.lost, found.doubled) == ((), 0, 0, 0)
    assert found.requests >= 16
    assert found.repeated > 0
