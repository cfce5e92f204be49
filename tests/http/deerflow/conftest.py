"""Gateways on homes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gateway_client import Gateway


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Makes gateways by the names of their folders, with settings."""
    made: list[Gateway] = []

    def make(name: str = "home", **settings: object) -> Gateway:
        made.append(Gateway(tmp_path / name, **settings))
        return made[-1]

    yield make
    for one in made:
        one.home.close()


@pytest.fixture
def gateway(gateways: Callable[..., Gateway]) -> Gateway:
    return gateways()
