"""DeerFlow integration: Backstory as the memory of DeerFlow, named in its configuration.

    memory:
      manager_class: backstory.deerflow:BackstoryMemoryManager     # DeerFlow with memory managers
      storage_class: backstory.deerflow:LedgerMemoryStorage        # older versions

Each class is loaded on first use, since no version of DeerFlow supports both. The folder may import everything but the
other integrations and the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.deerflow.manager import BackstoryMemoryManager as BackstoryMemoryManager
    from backstory.deerflow.storage import LedgerMemoryStorage as LedgerMemoryStorage

__all__ = ["BackstoryMemoryManager", "LedgerMemoryStorage"]

_MODULES = {"BackstoryMemoryManager": "backstory.deerflow.manager", "LedgerMemoryStorage": "backstory.deerflow.storage"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
