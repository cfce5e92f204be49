"""Command line of Backstory: `backstory VERB`. It may import everything but the other integrations.

`app` lists the verbs, `verbs` has one function for each of them, and `pages` prints their results.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 success, 1 a negative answer, 2 wrong use, 3 a failure."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller closed it
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 open until the exit
    try:
        from backstory.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
