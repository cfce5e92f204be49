"""Servers on homes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served_home import CheckedClient, Server, copied


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers by the names of their folders, with settings."""
    made: list[Server] = []

    def make(name: str = "home", **settings: object) -> Server:
        made.append(Server(tmp_path / name, **settings))
        return made[-1]

    yield make
    for one in made:
        one.home.close()


@pytest.fixture
def server(servers: Callable[..., Server]) -> Server:
    return servers()


@pytest.fixture
def client(server: Server) -> Iterator[CheckedClient]:
    with server.client() as client:
        yield client


@pytest.fixture
def told(servers: Callable[..., Server], tmp_path: Path) -> Server:
    """A server on a copy of the stored home."""
    copied(tmp_path / "told")
    return servers("told")
