"""Side file: a small private file beside a log that holds one value, whose loss costs little."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from backstory.ledger.disk.files import lock_beside, put_in_place, translated, unfinished

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class SideFile(Generic[_T]):
    """One value in a file of JSON. It is replaced whole or not at all, and never synced.

    Args:
        path: where it lies.
        shape: the type of the value.
        costs: what is lost with it.
    """

    def __init__(self, path: Path, shape: type[_T], costs: str) -> None:
        self.path = path
        self._shape = shape
        self._costs = costs

    @property
    def lock(self) -> str:
        """The path of its lock, for processes that change it."""
        return lock_beside(self.path)

    def is_there(self) -> bool:
        """Whether it is there, or what a killed process has left of it."""
        return self.path.exists() or unfinished(self.path).exists()

    def stamp(self) -> tuple[int, ...] | None:
        """Return what identifies one version of the file; None where there is none."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def read(self) -> _T | None:
        """Return the value; None where there is none, or it is damaged.

        Raises:
            OSError: It cannot be read.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._shape)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            _log.warning(
                "%s is damaged and is begun anew, which costs nothing but %s: %s", self.path, self._costs, error
            )
            return None

    def write(self, value: _T) -> None:
        """Replace the value.

        Raises:
            StoreError: The file cannot be written.
        """
        with translated(self.path, "write"):
            put_in_place(self.path, msgspec.json.encode(value))

    def remove(self) -> None:
        """Remove the file, with what a killed process has left of it.

        Raises:
            StoreError: It cannot be removed.
        """
        with translated(self.path, "remove"):
            for file in (self.path, unfinished(self.path)):
                file.unlink(missing_ok=True)
