"""`python` and `backstory` that have loaded the package already: one process imports it, and forks for each call.

A call has the arguments, the folder, the environment and the three streams of the program that calls, which ends as the
fork does.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULES = (
    "numpy",
    "sqlite3",
    "backstory.home",
    "backstory.memory",
    "backstory.cli.app",
    "backstory.cli.demo",
    "backstory.cli.pages.history",
    "backstory.cli.pages.tables",
    "backstory.config.loading",
    "backstory.ledger.extraction.prompt",
    "backstory.ledger.extraction.reply",
    "backstory.services.home_services",
    "backstory.memory_tests.run",
)
_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
call = [[*{arguments!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)]
socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2])
sys.exit(server.recv(1)[0])
"""
_LONGEST = 2**20


def program_at(path: Path, *arguments: str) -> str:
    """Return a script that calls the server with these arguments and its own."""
    return _CLIENT.format(python=sys.executable, path=str(path), arguments=arguments)


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """A process that answers the programs of a path, for the length of a block."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, __file__, str(listener.fileno())]
        # Streams that cannot seek, as those of the calls cannot.
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    with process:
        try:
            yield
        finally:
            process.kill()


def _serve(listening: int) -> None:
    """Answer calls, each in a process of its own; return in that process once it has done what it was called for."""
    for module in MODULES:
        importlib.import_module(module)
    with socket.socket(fileno=listening) as listener:
        # Those that answer are not waited for.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                break
            caller.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    called, streams, _, _ = socket.recv_fds(caller, _LONGEST, 3)
    if called and (process := os.fork()):
        caller.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) % 256]))
        os._exit(0)
    caller.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _run(*json.loads(called))


def _run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv = ["", *arguments[2:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), main.__dict__)  # noqa: S102 what `python -` does


if __name__ == "__main__":
    sys.path[0] = ""
    _serve(int(sys.argv[1]))
