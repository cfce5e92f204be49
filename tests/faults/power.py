"""A file layer that forgets: it knows of every file below a folder what was last synced, and can lose all the rest.

POSIX promises no more than this: a file's content is what its last sync found in it, a folder's entries (births,
renames, removals) are those at the folder's own last sync. Real disks keep more, in any order; an `Image` is what one
might find, from nothing unsynced at all to some of it, with a file's unsynced end cut anywhere.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

REAL = {name: getattr(os, name) for name in ("fsync", "fdatasync", "open", "close")}
TICKING = ("open", "write", "pwrite", "ftruncate", "truncate", "rename", "replace", "unlink", "remove", "mkdir")

Inode = int
Entries = dict[str, tuple[Inode, bool]]
"""What a folder holds: by name the inode, and whether it is a folder itself."""


class Power:
    """Stands in the way of every call below `root` that changes or syncs something; `moment` is told of each,
    by one thread at a time.

    The real sync is left out: no plug is pulled here, and it would take most of the time.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.moment: Callable[[], None] = lambda: None
        self.syncs = 0
        self._contents: dict[Inode, bytes] = {}
        self._entries: dict[Inode, Entries] = {}
        self._kept: dict[Inode, int] = {}
        self._mutex = threading.RLock()
        self._looking = threading.local()
        self._telling = threading.Lock()
        self._listed(root)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)
        for name in TICKING:
            monkeypatch.setattr(os, name, self._ticking(getattr(os, name)))

    def close(self) -> None:
        """Let go of what was kept open, so that no inode was used twice."""
        for descriptor in self._kept.values():
            REAL["close"](descriptor)

    def _ticking(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            self._passing()
            return real(*arguments, **named)

        return call

    def _sync(self, descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not place.is_relative_to(self.root):
            return
        self._passing()
        # What is there when the sync begins is what it promises; another thread may write behind it.
        with self._mutex:
            self.syncs += 1
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self._listed(place)
            else:
                again = REAL["open"](f"/proc/self/fd/{descriptor}", os.O_RDONLY)
                inode = os.fstat(again).st_ino
                self._contents[inode] = os.pread(again, os.fstat(again).st_size, 0)
                self._keep(inode, again)
        self._passing()

    def _passing(self) -> None:
        """Tell of a moment, but not of those in which what is told looks at the disk itself."""
        if getattr(self._looking, "now", False):
            return
        self._looking.now = True
        try:
            with self._telling:
                self.moment()
        finally:
            self._looking.now = False

    def _listed(self, folder: Path) -> None:
        descriptor = REAL["open"](folder, os.O_RDONLY | os.O_DIRECTORY)
        entries: Entries = {}
        for name in os.listdir(descriptor):  # noqa: PTH208 of the folder that is open, wherever it is now
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                self._keep(found.st_ino, REAL["open"](name, os.O_RDONLY, dir_fd=descriptor))
            except FileNotFoundError:
                continue
            entries[name] = (found.st_ino, stat.S_ISDIR(found.st_mode))
        inode = os.fstat(descriptor).st_ino
        self._entries[inode] = entries
        self._keep(inode, descriptor)

    def _keep(self, inode: Inode, descriptor: int) -> None:
        if inode in self._kept:
            REAL["close"](descriptor)
        else:
            self._kept[inode] = descriptor

    def lose(self, found: Path, luck: random.Random | None = None) -> None:
        """Write down what would be found below the root if the power went now.

        Without luck nothing unsynced is left; with it each folder and file may have kept what was not synced.
        """
        with self._mutex:
            self._rebuild(self.root.stat().st_ino, self.root, found, luck)

    def _rebuild(self, inode: Inode, now: Path | None, found: Path, luck: random.Random | None) -> None:
        found.mkdir()
        entries = self._entries.get(inode, {})
        if luck is not None and now is not None and luck.random() < 0.5:
            entries = self._present(now)
        for name, (child, is_folder) in entries.items():
            beside = None if now is None else now / name
            try:
                same = beside is not None and beside.stat().st_ino == child
            except FileNotFoundError:
                same = False
            if is_folder:
                self._rebuild(child, beside if same else None, found / name, luck)
            else:
                data = self._contents.get(child, b"")
                if luck is not None and same and beside is not None:
                    data = _partly(data, beside.read_bytes(), luck)
                (found / name).write_bytes(data)

    def _present(self, folder: Path) -> Entries:
        found: Entries = {}
        for path in folder.iterdir():
            try:
                seen = path.stat()
            except FileNotFoundError:
                continue
            found[path.name] = (seen.st_ino, stat.S_ISDIR(seen.st_mode))
        return found


def _partly(synced: bytes, present: bytes, luck: random.Random) -> bytes:
    """What a disk may have kept of a file that grew after its last sync: all, nothing, or some, torn anywhere."""
    if not present.startswith(synced):
        return luck.choice([synced, present])
    return present[: luck.choice([len(synced), len(present), luck.randint(len(synced), len(present))])]
