"""Secrets of streams: `<stream>.key` beside each log, 32 random bytes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from backstory.ledger.disk.files import open_in_folder, sync, sync_folder, translated, write_whole
from backstory.ledger.disk.locks import FileLocks

_KEY_BYTES = 32


class StreamKeys:
    """The secrets of the streams below a home folder.

    Args:
        home: The folder.
        locks: The locks of the streams.
        must_allow: Refuses changes where the home is sealed.
    """

    def __init__(self, home: Path, locks: FileLocks, must_allow: Callable[[], None]) -> None:
        self._home = home
        self._locks = locks
        self._must_allow = must_allow

    def get(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream, from `<stream>.key`; see `EventStore.key`."""
        path = self._home / f"{stream}.key"
        with translated(path, "read"):
            while True:
                with suppress(FileNotFoundError):
                    key = path.read_bytes()
                    if len(key) == _KEY_BYTES:
                        return key
                    # A damaged key recognises nothing, so a new one is as good.
                    if create:
                        path.unlink(missing_ok=True)
                if not create:
                    return None
                with self._locks.held(f"{self._home}/{stream}.lock"):
                    self._must_allow()
                    _make_key(path, os.urandom(_KEY_BYTES))

    def put(self, stream: str, key: bytes | None) -> None:
        """Set the secret of a stream, or destroy it; see `EventStore.set_key`."""
        if key is None or self.get(stream) != key:
            self._destroy(stream)
            path = self._home / f"{stream}.key"
            if key is not None:
                with translated(path, "write"):
                    _make_key(path, key)

    def _destroy(self, stream: str) -> None:
        path = self._home / f"{stream}.key"
        with self._locks.held(f"{self._home}/{stream}.lock"), translated(path, "remove"):
            self._must_allow()
            # Who was killed while making one may have left a copy.
            for copy in (path, *path.parent.glob(f".{path.name}.*")):
                if copy.exists():
                    copy.unlink()
                    sync_folder(path.parent)


def _make_key(path: Path, key: bytes) -> None:
    """Put a key in place, unless another process was first."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    descriptor, _ = open_in_folder(fresh, os.O_WRONLY | os.O_TRUNC)
    try:
        write_whole(descriptor, key)
        sync(descriptor)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        os.close(descriptor)
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
