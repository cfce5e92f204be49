"""Seal of a home of files: `HOME/sealed.json`, which every change looks for under the lock of its stream.

To set the seal, the file is written first, and then each lock is waited for until it was free once. A change that did
not find the file holds its lock by then, in a lock file that is there: the file is made and locked before the look. So
no change is missed, not even the first one of a new stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.disk.files import make_folder, put_in_place, sync_folder, translated
from backstory.ledger.disk.locks import kept_free, polled
from backstory.ledger.engines.port import Seal

NAME = "sealed.json"

_LOCKS = (f"{TRANSCRIPT}.lock", f"{LEDGER}.lock")


class _File(msgspec.Struct, frozen=True):
    """The content of sealed.json."""

    v: int
    state: Literal["moved", "arriving"]
    other: str


class FileSeal:
    """The seal of the home in a folder; `timeout` is how many seconds to wait for each lock."""

    def __init__(self, home: Path, timeout: float, clock: Clock) -> None:
        self._home = home
        self._path = home / NAME
        # Every commit looks for it, and making a text of a Path is a good part of what that costs.
        self._file = str(self._path)
        self._timeout = timeout
        self._clock = clock
        self._ours: Seal | None = None
        """The seal beneath which this object may change the home, because it has set it."""

    def read(self) -> Seal | None:
        """See `EventStore.seal`."""
        with translated(self._path, "read"):
            try:
                data = self._path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            found = msgspec.json.decode(data, type=_File)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StoreError(
                f"{self._path} says that the home takes no changes, and is damaged: {error}; remove it only if no copy "
                "of this home is in use"
            ) from error
        return Seal(found.state, found.other)

    def must_allow(self) -> None:
        """Refuse a change of a sealed home; the caller holds the lock of what it is about to change.

        Raises:
            SealedError: The home is sealed.
            StoreError: The seal cannot be read.
        """
        if not os.path.exists(self._file):  # noqa: PTH110
            return
        seal = self.read()
        if seal is not None and seal != self._ours:
            raise seal.refusal(f"jsonl:{self._home}")

    def put(self, seal: Seal | None) -> None:
        """See `EventStore.set_seal`."""
        with translated(self._path, "write"):
            if seal is None:
                self._path.unlink(missing_ok=True)
            else:
                make_folder(self._home)
                put_in_place(self._path, msgspec.json.encode(_File(1, seal.state, seal.other)), durable=True)
            sync_folder(self._home)
        self._ours = seal if seal is not None and seal.state == "arriving" else None
        if seal is not None:
            for lock in self._lock_files():
                self._wait_for(lock)

    def _wait_for(self, lock: str) -> None:
        """Wait until a change that is under way has ended."""

        def is_free() -> bool | None:
            with kept_free(lock) as free:
                return free or None

        if not polled(is_free, self._timeout, self._clock):
            raise LockTimeoutError(
                f"{lock} is held after {self._timeout:g} s: end the process that holds it, and try again; "
                f"{self._path} stays"
            )

    def _lock_files(self) -> Iterator[str]:
        for folder, _, files in os.walk(self._home):
            for name in _LOCKS:
                if name in files:
                    yield os.path.join(folder, name)  # noqa: PTH118
