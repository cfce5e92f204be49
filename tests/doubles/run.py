"""The whole run of the tests, by all its processes: a folder that they share, and servers that are there once.

The process that begins a run holds a lock in the folder, and its workers find the folder in their environment. Whoever
needs a server first starts it, and notes its processes; `keeper` ends them when the lock is free, so also where the
run was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

_NAME = "TESTS_RUN_FOLDER"
_KEEPER = Path(__file__).with_name("keeper.py")
_KEPT = "kept"
"""The file whose lock the keeper holds until it has done its work."""

_Made = TypeVar("_Made")


class _Beginner:
    """Ends the run where it began."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = (folder / "run").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._lock.close()
        if (self._folder / _KEPT).exists():
            with (self._folder / _KEPT).open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_SH)
        shutil.rmtree(self._folder, ignore_errors=True)


def begin(config: pytest.Config) -> None:
    """Begin a run, unless this process is a worker of one."""
    if not hasattr(config, "workerinput"):
        memory = Path("/dev/shm")  # noqa: S108 a folder of its own is made there
        within = memory if os.access(memory, os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix="backstory-run-", dir=within))
        # A server may run as a user of its own.
        folder.chmod(0o755)
        os.environ[_NAME] = str(folder)
        config.pluginmanager.register(_Beginner(folder))


def folder() -> Path:
    """Return the folder that all processes of the run share."""
    return Path(os.environ[_NAME])


def worker() -> int:
    """Return the number of this process among the workers of the run."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Let one process at a time into the block of that name."""
    with (folder() / f"{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(name: str, shape: type[_Made], make: Callable[[], _Made]) -> _Made:
    """Return what the first process of the run that asked has made."""
    with alone(name):
        place = folder() / f"{name}.json"
        if not place.exists():
            place.write_bytes(msgspec.json.encode(make()))
        return msgspec.json.decode(place.read_bytes(), type=shape)


def until_the_end(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have a process ended by a signal when the run ends, and not with this process."""
    with alone("keeping"):
        if not (folder() / _KEPT).exists():
            _keep()
    (folder() / f"{process}.process").write_text(f"{process} {int(number)}", "ascii")


def _keep() -> None:
    with (folder() / _KEPT).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), str(folder())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True, pass_fds=[held.fileno()],
        )  # fmt: skip
        # It outlives this process, which does not wait for it.
        keeper.returncode = 0
