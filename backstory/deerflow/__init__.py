"""Backstory as DeerFlow's memory: name one of these two in its configuration, and nothing else of it changes.

    memory:
      manager_class: backstory.deerflow:BackstoryMemoryManager     # DeerFlow with memory managers
      storage_class: backstory.deerflow:LedgerMemoryStorage        # older versions

Each is loaded when it is asked for: no DeerFlow has both contracts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.deerflow.manager import BackstoryMemoryManager as BackstoryMemoryManager
    from backstory.deerflow.storage import LedgerMemoryStorage as LedgerMemoryStorage

__all__ = ["BackstoryMemoryManager", "LedgerMemoryStorage"]

_PLACES = {"BackstoryMemoryManager": "backstory.deerflow.manager", "LedgerMemoryStorage": "backstory.deerflow.storage"}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
