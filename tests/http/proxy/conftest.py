"""A home with a fact of ada's, a stand-in for the model server, and a proxy between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import open_home
from served import FACT, Served, served, served_to_anthropic
from upstreams import StandIn, completion, message

from backstory import Backstory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path / "home") as bs:
        bs.memory("ada").add_fact(FACT, "context", 0.9)
        yield bs


@pytest.fixture
def upstream() -> Iterator[StandIn]:
    with StandIn(completion("You live in Bergen.")) as standin:
        yield standin


@pytest.fixture
def proxy(home: Backstory, upstream: StandIn) -> Iterator[Served]:
    with served(home, upstream.base_url) as one:
        yield one


@pytest.fixture
def claude(home: Backstory, upstream: StandIn) -> Iterator[Served]:
    """A proxy to Anthropic's clients."""
    upstream.then(message("You live in Bergen."))
    with served_to_anthropic(home, upstream.base_url) as one:
        yield one
