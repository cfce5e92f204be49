"""The JSONL engine: the store itself writes, without waiting for the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from backstory.ledger.engines.jsonl.store import JsonlStore
from benchmarks.many_streams.engines import on_disk
from benchmarks.many_streams.lines import lines

__all__ = ["Files"]

_AT_ONCE = 100_000
"""A store keeps a little about every stream that it has appended to, which is not to be measured here."""


class Files:
    """Files in a temporary folder."""

    name = "files"
    replicas = 1

    def __init__(self, folder: Path) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="many-", dir=folder))
        self.url = f"jsonl:{self._home}"

    def load(self, count: int) -> None:
        waiting = lines(count)
        with patch.object(os, "fsync", lambda _: None), patch.object(os, "fdatasync", lambda _: None):
            for start in range(0, count, _AT_ONCE):
                with closing(JsonlStore(self._home)) as store:
                    for _ in range(min(_AT_ONCE, count - start)):
                        stream, line = next(waiting)
                        store.append(stream, [line], 0)

    def settle(self) -> None:
        os.sync()

    def bytes(self) -> int:
        return on_disk(self._home)

    def pids(self) -> list[int]:
        return []

    def stop(self) -> None:
        pass

    def start(self) -> None:
        pass

    def folders(self) -> Iterable[Path]:
        return [self._home]

    def close(self) -> None:
        shutil.rmtree(self._home)
