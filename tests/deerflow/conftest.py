"""DeerFlow is not on the package index: a stand-in of its contract takes its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for folder in ("standin", "cli"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

from hosts import Host  # noqa: E402


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with a home of its own, whose managers are all closed in the end."""
    one = Host(tmp_path / "deer")
    yield one
    one.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[[str], Host]]:
    """Makes hosts by the names of their folders."""
    made: list[Host] = []

    def make(name: str) -> Host:
        made.append(Host(tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.close()
