"""What it costs to begin: importing the package, and asking the command line for help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.rows import Row, in_turn, ms

__all__ = ["starting"]


def _run(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run(arguments, check=True, capture_output=True)


def starting() -> Iterator[Row]:
    """Measure both beyond a bare interpreter's start."""
    command = str(Path(sys.executable).with_name("backstory"))
    bare, imported, helped = in_turn(
        _run(sys.executable, "-c", "pass"),
        _run(sys.executable, "-c", "import backstory"),
        _run(command, "--help"),
        rounds=21,
    )
    yield Row("import backstory, beyond a bare interpreter's start", ms(imported - bare), "≤ 150 ms")
    yield Row("backstory --help, beyond a bare interpreter's start", ms(helped - bare), "≤ 200 ms")
