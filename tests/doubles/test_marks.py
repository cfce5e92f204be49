"""Each test that needs a browser, an engine or a process is marked with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from doubles.marks import _names_reached, mark


class Starter:
    def __init__(self) -> None:
        self.started = False

    def start(self) -> None:
        subprocess.run([sys.executable, "-c", ""], check=True)


def make() -> Starter:
    return Starter()


def by_a_fixture() -> Iterator[Starter]:
    yield make()


def starts(starter: Starter) -> None:
    [each.start() for each in [starter]]


def only_looks(starter: Starter) -> None:
    assert not starter.started


def test_a_process_is_found_behind_a_fixture_and_a_method_that_is_called() -> None:
    assert "subprocess" in _names_reached((starts, by_a_fixture))
    assert "subprocess" not in _names_reached((only_looks, by_a_fixture))


def test_this_test_is_marked(request: pytest.FixtureRequest) -> None:
    Starter().start()
    mark(request.node)
    assert request.node.get_closest_marker("process")
    assert not request.node.get_closest_marker("engine")
