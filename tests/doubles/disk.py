"""Disk of a test: sees the calls that reach it, and lets one of them fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REAL = {name: getattr(os, name) for name in ("write", "fdatasync", "fsync", "ftruncate")}


def place_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


class Disk:
    """The calls that reach the disk below a home, in order; `fail` makes the next one of a kind go wrong."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.calls: list[tuple[str, Path]] = []
        self.faults: list[tuple[str, str, Callable[..., object]]] = []
        for name in REAL:
            monkeypatch.setattr(os, name, self._stand_in(name))

    def _stand_in(self, name: str) -> Callable[..., object]:
        def call(descriptor: int, *arguments: object) -> object:
            place = place_of(descriptor)
            if place.name.startswith("pytest") or not (
                place.is_relative_to(self.home) or self.home.is_relative_to(place)
            ):
                return REAL[name](descriptor, *arguments)
            self.calls.append((name, place))
            for fault in self.faults:
                if fault[0] == name and place.name.startswith(fault[1]):
                    self.faults.remove(fault)
                    return fault[2](descriptor, *arguments)
            return REAL[name](descriptor, *arguments)

        return call

    def fail(self, name: str, number: int, *, on: str = "ledger.jsonl", after: int | None = None) -> None:
        """Let a call fail; with `after` a write takes so many bytes first."""

        def fault(descriptor: int, *arguments: object) -> object:
            if after is not None:
                self.fail(name, number, on=on)
                data = arguments[0]
                assert isinstance(data, bytes | memoryview)
                return REAL["write"](descriptor, data[:after])
            raise OSError(number, os.strerror(number))

        self.faults.append((name, on, fault))

    def shorten(self, *sizes: int) -> None:
        """Let writes take only so many bytes, without an error."""
        for size in sizes:
            self.faults.append(("write", "ledger", lambda fd, data, size=size: REAL["write"](fd, data[:size])))
