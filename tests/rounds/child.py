"""A process of a round: a module of this folder that works until its standard input ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fakes import PATIENCE

LONGEST = 3 * PATIENCE


class Child:
    """Runs `rounds.<module>` with these arguments."""

    def __init__(self, module: str, *arguments: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"rounds.{module}", *arguments],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            stdin=subprocess.PIPE,
        )

    def must_run(self) -> None:
        assert self._process.poll() is None, "it has ended by itself"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def end(self) -> None:
        """Have it end what is under way, and no more."""
        self._process.communicate(timeout=LONGEST)
        assert self._process.returncode == 0
