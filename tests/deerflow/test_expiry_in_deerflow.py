"""Facts in DeerFlow's doors whose time is over: neither the manager nor the older storage shows one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock
from hosts import Host, contents
from older import Installed, created, fact, open_storage

HERON = fact("fact_a1", "Saw a heron", expiresAt="2026-03-01")
DOG = fact("fact_a2", "Has a dog")
BOTH, ONE = ["Saw a heron", "Has a dog"], ["Has a dog"]
DAY = 24 * 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of every home that is opened."""
    clock = FakeClock()
    monkeypatch.setattr("backstory.home.SystemClock", lambda: clock)
    return clock


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(monkeypatch, tmp_path / "deer")
    yield installed
    installed.remove()


def said(document: dict[str, Any]) -> list[str]:
    return [one["content"] for one in document["facts"]]


def test_the_manager_shows_none(host: Host, clock: FakeClock) -> None:
    manager = host.manager()
    manager.import_memory({"facts": [HERON, DOG]}, user_id="ada")
    assert contents(manager) == BOTH
    assert "heron" in manager.get_context("ada")
    clock.advance(DAY)
    assert contents(manager) == contents(host.manager()) == ONE
    assert "heron" not in manager.get_context("ada")
    assert manager.search("heron", user_id="ada") == []
    assert "heron" not in str(manager.export_memory(user_id="ada"))
    with pytest.raises(KeyError):
        manager.update_fact("fact_a1", "Saw two herons", user_id="ada")


def test_the_older_storage_shows_none_and_a_host_that_saves_one_does_not_bring_it_back(
    older: Installed, clock: FakeClock
) -> None:
    storage = open_storage()
    assert storage.save(created(storage.load(user_id="ada"), HERON, DOG), user_id="ada")
    held = storage.load(user_id="ada")
    assert said(held) == BOTH
    clock.advance(DAY)
    assert said(storage.load(user_id="ada")) == ONE
    assert storage.save(created(held, fact("fact_a3", "Has a cat")), user_id="ada")
    assert said(storage.reload(user_id="ada")) == [*ONE, "Has a cat"]
