"""Paths of a DeerFlow without memory managers: its own memory files, and the home beside them."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import msgspec

from backstory.ledger.core.scope import Scope

_OURS = "backstory"


class MemoryPaths(msgspec.Struct, frozen=True):
    """Paths of the home and of DeerFlow's files.

    Attributes:
        home: The home folder; None for the configured one.
        base: The folder of DeerFlow's files, if there is one.
        file: The single memory file that DeerFlow's configuration names.
        shared: Whether `file` is the memory of all users without an agent.
    """

    home: Path | None = None
    base: Path | None = None
    file: Path | None = None
    shared: bool = False

    def scope(self, scope: Scope) -> Scope:
        """Return the scope to use; users share the global one if DeerFlow is configured so."""
        return Scope() if self.shared and scope.agent is None else scope

    def source(self, scope: Scope) -> Path | None:
        """Return the folder or file of DeerFlow's memory of a scope; None if it has none."""
        return self.file if scope == Scope() and self.file is not None else self.base


def find_paths(config: object) -> MemoryPaths:
    """Return the paths for a storage.

    The home is the folder `backstory` in the folder of an absolute `storage_path`, else in DeerFlow's base folder.

    Args:
        config: The configuration of the storage, which newer versions of DeerFlow pass.
    """
    stated = getattr(config, "storage_path", None)
    if isinstance(stated, str):
        root = Path(stated or os.environ.get("DEERMEM_DATA_DIR") or "~/.deermem").expanduser().absolute()
        return MemoryPaths(root / _OURS, root)
    try:
        base = Path(import_module("deerflow.config.paths").get_paths().base_dir)
        stated = import_module("deerflow.config.memory_config").get_memory_config().storage_path
    except ModuleNotFoundError:
        return MemoryPaths()
    if not stated:
        return MemoryPaths(base / _OURS, base)
    path = Path(stated)
    if not path.is_absolute():
        return MemoryPaths(base / _OURS, base, base / path)
    folder = path if path.is_dir() else path.parent
    return MemoryPaths(folder / _OURS, base, path, shared=True)
