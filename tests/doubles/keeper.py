"""Keeper of a run's servers: it waits until the run has ended, in whatever way, and takes its servers away.

Run as `python keeper.py FOLDER`. The process that began the run holds the lock on FOLDER/run, which the system takes
from it when it ends. It imports nothing but the standard library, so that it costs no time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 10.0


def _runs(process: int) -> bool:
    """Whether a process is there and, where the system shows it, does not only wait to be reaped."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()
    return state not in ("Z", "X")


def take_away(folder: Path) -> None:
    """End each process that is noted in the folder, as `NAME.process` with its id and signal, and delete the folder."""
    processes = []
    for note in folder.glob("*.process"):
        process, number = map(int, note.read_text("ascii").split())
        processes.append(process)
        with suppress(ProcessLookupError):
            os.kill(process, number)
            # A test may have stopped it.
            os.kill(process, signal.SIGCONT)
    end = time.monotonic() + _SECONDS
    while any(map(_runs, processes)) and time.monotonic() < end:
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def main(folder: Path) -> None:
    with (folder / "run").open("rb") as run:
        fcntl.flock(run, fcntl.LOCK_SH)
        take_away(folder)


if __name__ == "__main__":
    # What interrupts the run is no reason to leave its servers behind.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    main(Path(sys.argv[1]))
