"""The servers of a run end with it, also where it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import PATIENCE

from doubles import run

pytestmark = pytest.mark.process

RUN = """
import subprocess, sys, types
from doubles import run

class Config:
    class pluginmanager:
        register = lambda beginner: begun.append(beginner)

begun = []
run.begin(Config)
server = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
run.until_the_end(server.pid)
print(run.folder(), server.pid, flush=True)
sys.stdin.readline()
begun[0].pytest_unconfigure()
"""


def is_there(process: int) -> bool:
    """Whether a process is there and not only waits to be reaped."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not show its processes as files")
@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL], ids=["ends", "terminated", "killed"])
def test_a_server_ends_with_its_run_and_leaves_no_file(end: signal.Signals | None) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, server = process.stdout.readline().split()
        assert is_there(int(server))
        if end is None:
            process.communicate("end\n", timeout=PATIENCE)
            assert process.returncode == 0
            # What began the run has waited for it.
            assert not is_there(int(server))
        else:
            process.send_signal(end)
    gives_up = time.monotonic() + PATIENCE
    while is_there(int(server)) or Path(folder).exists():
        assert time.monotonic() < gives_up
        time.sleep(0.01)


def test_what_is_made_once_is_the_same_for_all() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 7

    assert [run.once(f"test-{os.getpid()}", int, make) for _ in range(2)] == [7, 7]
    assert made == [1]
