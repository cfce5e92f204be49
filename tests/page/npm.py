"""Programs of npm that the tests of the page run: where they are, and what is said where they are not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from browsing import ROOT
from sizes import cannot

__all__ = ["JS", "installed", "run_node"]

JS = Path(__file__).parent / "js"


def installed(name: str) -> Path:
    """Return a package's folder, or skip."""
    found = JS / "node_modules" / name
    if not found.exists():
        cannot(f"{name} is not installed: run npm ci in {JS.relative_to(ROOT)}")
    return found


def run_node(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a script by node in the root of the repository."""
    node = shutil.which("node")
    if node is None:
        cannot("node is not installed")
    return subprocess.run(
        [node or "", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
