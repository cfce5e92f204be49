"""A private Redis on a free port, which ends with the test."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes import PATIENCE
from sizes import cannot


class RedisServer:
    """A `redis-server` that keeps nothing on disk."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self.process = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self.process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Have it accept connections, and answer nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        cannot("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = RedisServer(free.getsockname()[1])
    server.start()
    try:
        yield server
    finally:
        server.kill()


def other_home(home: Path, other: Path) -> Path:
    """Another machine's home on the engine of a home; nothing derived from the logs is there yet."""
    other.mkdir()
    (other / "engine").symlink_to(home / "engine", target_is_directory=True)
    return other
