"""Small disk of a test's own, which can be filled: a file system in memory, where one may be mounted."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from sizes import REQUIRED, cannot

_MEGABYTES = 192
_PIECES = (1 << 20, 4096, 1)


class Disk(msgspec.Struct, frozen=True):
    """A folder; `small` if it is a disk of its own, which can be filled."""

    folder: Path
    small: bool

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no free byte for the length of the block."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            for piece in _PIECES:
                _write_all(file.fileno(), bytes(piece))
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk() -> Iterator[Disk]:
    """Mount an empty disk for the length of the block; a folder stands in for it where this is not permitted."""
    folder = Path(tempfile.mkdtemp(prefix="backstory-disk-"))
    # A server may run as a user of its own.
    folder.chmod(0o755)
    size = f"size={_MEGABYTES}m,mode=755"
    mount = shutil.which("mount") or "false"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", size, "none", folder], check=False, capture_output=True)
    if done.returncode and REQUIRED:
        cannot(f"a small disk cannot be mounted: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield Disk(folder, done.returncode == 0)
    finally:
        if done.returncode == 0:
            # Lazily: a server that was killed a moment ago may still have it open.
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def _write_all(file: int, piece: bytes) -> None:
    try:
        while True:
            os.write(file, piece)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
