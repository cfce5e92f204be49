"""An engine for tests that keeps no file in the home: its logs are in a folder beside it, with those of other homes.

It has no more than the port asks of every engine, so what runs on it uses nothing that only files can do. It is chosen
by `storage_class`, also by another process that finds this module.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Capabilities, EventStore

STORAGE_CLASS = "elsewhere:ElsewhereStore"


def logs_of(home: Path) -> Path:
    """Where the logs of a home are, and of all homes in the same folder."""
    return home.parent / "elsewhere"


class ElsewhereStore:
    """The streams of a home, and of those in the same folder."""

    def __init__(self, home: Path) -> None:
        self._store = JsonlStore(logs_of(home))

    def __str__(self) -> str:
        return f"elsewhere:{self._store.home}"

    def capabilities(self) -> Capabilities:
        return Capabilities()


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: ElsewhereStore, *args: object, **kwargs: object) -> object:
        return getattr(self._store, name)(*args, **kwargs)

    return method


for _name, _value in vars(EventStore).items():
    if callable(_value) and not _name.startswith("_") and not hasattr(ElsewhereStore, _name):
        setattr(ElsewhereStore, _name, _passed_on(_name))
