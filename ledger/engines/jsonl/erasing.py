"""Erasure in a file: a new log with stubs is written beside the old one and put in its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from backstory.ledger.disk.files import sync
from backstory.ledger.engines.port import Record
from backstory.ledger.engines.promises import must_be_erasure

_MOVED_ASIDE = ("{}.torn-*", "{}.damaged-*", ".{}.mending", ".{}.copying", ".{}.erasing")
"""What a crash, a repair, or a repair or an erasure that was killed leaves beside a log."""


def remove_moved_aside(path: Path) -> None:
    """Remove the files that were moved aside from a log: they may hold what is erased."""
    for moved in _MOVED_ASIDE:
        for sidecar in path.parent.glob(moved.format(path.stem)):
            sidecar.unlink()


def write_erased(path: Path, stream: str, records: Iterable[Record], lines: Mapping[int, bytes]) -> None:
    """Write a log anew with lines replaced by their erasures; after an error the old one is there as it was."""
    fresh = path.with_name(f".{path.stem}.erasing")
    target = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(target, "wb") as file:
            for seq, record in enumerate(records, 1):
                line = lines.get(seq)
                if line is not None:
                    must_be_erasure(stream, seq, record.line, line)
                file.write((record.line if line is None else line) + b"\n")
            file.flush()
            sync(file.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
