"""An older DeerFlow, as far as a memory storage meets it: its contract, where it looks for things, how it loads one.

It looks up a storage by a dotted path that it parts at the last dot, and takes its own files when anything at all goes
wrong with that. `updated`, `created` and `deleted` do to a document what its updater, its gateway and its tools do.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from backstory.deerflow.storage import LedgerMemoryStorage

Document = dict[str, Any]
NAMES = ("backstory.deerflow:LedgerMemoryStorage", "backstory.deerflow.LedgerMemoryStorage")


class MemoryStorage(ABC):
    @abstractmethod
    def load(self, agent_name: str | None = None, *, user_id: str | None = None) -> Document: ...

    @abstractmethod
    def reload(self, agent_name: str | None = None, *, user_id: str | None = None) -> Document: ...

    @abstractmethod
    def save(self, memory_data: Document, agent_name: str | None = None, *, user_id: str | None = None) -> bool: ...


class Files(MemoryStorage):
    """What it falls back on."""

    def load(self, agent_name=None, *, user_id=None):
        raise AssertionError("the files were taken")

    reload = load

    def save(self, memory_data, agent_name=None, *, user_id=None):
        raise AssertionError("the files were taken")


OURS = "backstory.deerflow.storage"


class Installed:
    """Its modules in place of any other DeerFlow's, and our storage derived from its class; `remove` undoes that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, base: Path, storage_path: str = "") -> None:
        self.base = base
        self.home = base / "backstory"
        for name in [name for name in sys.modules if name.partition(".")[0] == "deerflow"]:
            monkeypatch.delitem(sys.modules, name)
        modules: dict[str, dict[str, object]] = {
            "deerflow": {},
            "deerflow.agents": {},
            "deerflow.agents.memory": {},
            "deerflow.agents.memory.storage": {"MemoryStorage": MemoryStorage},
            "deerflow.config": {},
            "deerflow.config.paths": {"get_paths": lambda: SimpleNamespace(base_dir=base)},
            "deerflow.config.memory_config": {"get_memory_config": lambda: SimpleNamespace(storage_path=storage_path)},
        }
        for name, members in modules.items():
            module = ModuleType(name)
            module.__path__ = []
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules.pop(OURS, None)

    def configure(self, storage_path: str) -> None:
        config = SimpleNamespace(storage_path=storage_path)
        vars(sys.modules["deerflow.config.memory_config"])["get_memory_config"] = lambda: config

    def remove(self) -> None:
        if (ours := sys.modules.pop(OURS, None)) is not None:
            ours._close_all()


def storage_by(path: str) -> MemoryStorage:
    """Make the storage that a configuration names, or the files without a word."""
    try:
        module, name = path.rsplit(".", 1)
        kind = getattr(import_module(module), name)
        return kind() if isinstance(kind, type) and issubclass(kind, MemoryStorage) else Files()
    except Exception:  # noqa: BLE001 so it does
        return Files()


def open_storage() -> LedgerMemoryStorage:
    storage = storage_by(NAMES[0])
    assert not isinstance(storage, Files)
    return storage  # type: ignore[return-value]


def empty(at: str = "2026-05-01T00:00:00Z") -> Document:
    def sections(*names: str) -> Document:
        return {name: {"summary": "", "updatedAt": ""} for name in names}

    return {
        "version": "1.0",
        "lastUpdated": at,
        "user": sections("workContext", "personalContext", "topOfMind"),
        "history": sections("recentMonths", "earlierContext", "longTermBackground"),
        "facts": [],
    }


def fact(fact_id: str, content: str, **more: object) -> Document:
    return {
        "id": fact_id,
        "content": content,
        "category": "preference",
        "confidence": 0.9,
        "createdAt": "2026-04-01T00:00:00.000000Z",
        "source": "thread-1",
        **more,
    }


def created(document: Document, *facts: Document) -> Document:
    """As the gateway does it: a flat copy with a new list."""
    return {**document, "facts": [*document["facts"], *facts]}


def deleted(document: Document, *ids: str) -> Document:
    return {**document, "facts": [one for one in document["facts"] if one["id"] not in ids]}


def patched(document: Document, fact_id: str, **fields: object) -> Document:
    return {**document, "facts": [{**one, **fields} if one["id"] == fact_id else one for one in document["facts"]]}


def updated(document: Document, *facts: Document, **summaries: str) -> Document:
    """As the updater does it: a deep copy, changed in place."""
    document = copy.deepcopy(document)
    for name, summary in summaries.items():
        group = "user" if name in document["user"] else "history"
        document[group][name] = {"summary": summary, "updatedAt": "2026-05-02T00:00:00.000000Z"}
    document["facts"].extend(facts)
    return document


def said(document: Document) -> Document:
    """A document but for the time that is ours to give."""
    return {name: part for name, part in document.items() if name != "lastUpdated"}
