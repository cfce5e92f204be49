"""Where a DeerFlow without memory managers keeps its memory, and where ours lies beside it."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import msgspec

from backstory.ledger.core.scope import Scope

__all__ = ["Places", "places_of"]

_OURS = "backstory"


class Places(msgspec.Struct, frozen=True):
    """`home` is ours, None where configuration says it; `base` is the folder of DeerFlow's own files, if any.

    `file` is the one file that configuration names: a user without an agent has no other memory where it is `shared`,
    and without a user it is the memory of nobody in particular.
    """

    home: Path | None = None
    base: Path | None = None
    file: Path | None = None
    shared: bool = False

    def scope(self, scope: Scope) -> Scope:
        """Tell whose memory a scope's is: users share one where DeerFlow is configured so."""
        return Scope() if self.shared and scope.agent is None else scope

    def source(self, scope: Scope) -> Path | None:
        """Tell in what folder or file DeerFlow's own memory of a scope is; None where it has none."""
        return self.file if scope == Scope() and self.file is not None else self.base


def places_of(config: object) -> Places:
    """Find out where everything lies; `config` is the storage's own, which newer versions hand over.

    Ours is the folder `backstory` in DeerFlow's: that of a `storage_path` that is absolute, else its base folder.
    """
    stated = getattr(config, "storage_path", None)
    if isinstance(stated, str):
        root = Path(stated or os.environ.get("DEERMEM_DATA_DIR") or "~/.deermem").expanduser().absolute()
        return Places(root / _OURS, root)
    try:
        base = Path(import_module("deerflow.config.paths").get_paths().base_dir)
        stated = import_module("deerflow.config.memory_config").get_memory_config().storage_path
    except ModuleNotFoundError:
        return Places()
    if not stated:
        return Places(base / _OURS, base)
    path = Path(stated)
    if not path.is_absolute():
        return Places(base / _OURS, base, base / path)
    folder = path if path.is_dir() else path.parent
    return Places(folder / _OURS, base, path, shared=True)
