"""Packages of the index, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sizes import cannot

_OURS = ("ANTHROPIC_", "BACKSTORY_", "OPENAI_")


def python_with(package: str, folder: Path) -> str:
    """Install a package, or end the test where that cannot be; return the Python that has it."""
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", str(folder / "venv"), seconds=120)
    installed = run(str(python), "-m", "pip", "install", "-q", package, seconds=900)
    if installed.returncode:
        cannot(f"{package} cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
    return str(python)


def run(*command: str, seconds: int, **env: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return subprocess.run(
        command,
        env={**bare, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
