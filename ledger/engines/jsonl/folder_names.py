"""Names of folders: listed again only after the folder that holds them has changed. A home may have 100,000 users."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["FolderNames", "stream_names"]

_SETTLED_NS = 2 * 10**9
"""A folder that has just changed may change again within the same tick of the file system's clock."""

_REMEMBERED_FROM = 64
"""Shorter lists are read again: that costs no more than to look whether they have changed."""


class _Listing(msgspec.Struct, frozen=True):
    """The names in a folder, as of its last change."""

    changed: int
    names: Sequence[str]


class FolderNames:
    """Names of the folders below those of a home; safe for threads."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._listings: dict[str, _Listing] = {}

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of all folders right below a folder, sorted; none where it does not exist.

        Raises:
            OSError: The folder cannot be read.
        """
        path = self._home / folder
        try:
            changed = path.stat().st_mtime_ns
            known = self._listings.get(folder)
            if known is not None and known.changed == changed:
                return known.names
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            self._listings.pop(folder, None)
            return ()
        if len(names) >= _REMEMBERED_FROM and abs(time.time_ns() - changed) > _SETTLED_NS:
            self._listings[folder] = _Listing(changed, names)
        return names


def stream_names(home: str, prefix: str) -> Iterator[str]:
    """Walk through the folders that can hold a stream of that name; folders that vanish meanwhile are skipped."""
    # The deepest folder that the prefix names; those beside it are not looked at.
    below = prefix[: prefix.rfind("/") + 1]
    folders = [(home + below, below)]
    while folders:
        folder, below = folders.pop()
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.is_dir():
                    if not entry.is_symlink() and (f"{name}/".startswith(prefix) or prefix.startswith(f"{name}/")):
                        folders.append((entry.path, f"{name}/"))
                elif name.endswith(".jsonl") and name.startswith(prefix):
                    yield name.removesuffix(".jsonl")
