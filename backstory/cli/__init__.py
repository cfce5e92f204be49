"""The command line. `backstory --help` says what there is; `app` is its table of contents."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave the process: 0 done, 1 the answer is no, 2 wrong use, 3 cannot."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller closed it: there is nowhere to speak to
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 it stays open to the end
    try:
        from backstory.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
