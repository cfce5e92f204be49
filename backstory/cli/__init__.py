"""Command line of Backstory: `backstory VERB`. It may import everything but the other integrations.

`app` lists the verbs, `verbs` has one function for each of them, and `pages` prints their results.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 success, 1 a negative answer, 2 wrong use, 3 a failure."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller closed it
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 open until the exit
    if "hook" in sys.argv:
        _answer_hook()
    # The memory goes with the process: without this a third of a verb's time is the search for cycles at its end.
    atexit.register(gc.freeze)
    try:
        from backstory.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)


def _answer_hook() -> None:
    """Answer the call of a hook, if this is one, and exit: to load all verbs would take a third of its time."""
    from backstory.hooks.running import called, run

    call = called(sys.argv[1:])
    if call is not None:
        gc.disable()
        try:
            run(*call)
        finally:
            os._exit(0)
