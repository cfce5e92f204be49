"""The engines as this measurement needs them: started, filled quickly with what they would write, and started again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

__all__ = ["Engine", "forget_pages", "memory_of", "on_disk"]


class Engine(Protocol):
    """A private engine; `load` writes in the form that the store itself writes, with less waiting for the disk."""

    name: str
    url: str
    replicas: int

    def load(self, count: int) -> None: ...

    def settle(self) -> None:
        """Bring about what a server does by itself after a while."""

    def bytes(self) -> int:
        """Return what all of it takes on the disk, on all servers."""

    def pids(self) -> list[int]:
        """Return the servers' processes."""

    def stop(self) -> None: ...

    def start(self) -> None:
        """Start the servers; return when they say that they are ready."""

    def folders(self) -> Iterable[Path]: ...

    def close(self) -> None: ...


def on_disk(folder: Path) -> int:
    """Return the bytes of the blocks that a folder's files and folders take."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                total += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total


def memory_of(pids: Iterable[int]) -> int:
    """Return the bytes of RAM that processes take; what they share is counted once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def forget_pages(folders: Iterable[Path]) -> None:
    """Have the kernel drop the pages of files, so that they are read from the disk."""
    for folder in folders:
        os.sync()
        for path, _, names in os.walk(folder):
            for name in names:
                descriptor = os.open(f"{path}/{name}", os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
