"""Fixtures of the tests of producing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import PATIENCE, ScriptedModel, Step, open_home
from producers import Home, Open, Shop

from backstory.home import Backstory


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Open]:
    """Open shops with workers, and let none outlive its test."""
    shops: list[Shop] = []

    def start(*script: Step, **settings: object) -> Shop:
        shop = Shop(tmp_path, *script, **settings)  # type: ignore[arg-type]
        shop.producer.start()
        shops.append(shop)
        return shop

    yield start
    for shop in shops:
        shop.producer.close(0)
        for worker in list(shop.producer._threads):
            worker.join(PATIENCE)
            assert not worker.is_alive()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened: list[Backstory] = []

    def start(*script: Step, **settings: object) -> Backstory:
        model = ScriptedModel(*script, repeat=True) if script else None
        more: dict[str, object] = {"background": True, "shutdown_flush_timeout_seconds": 1, **settings}
        opened.append(open_home(tmp_path, model, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for backstory in opened:
        backstory.close()
