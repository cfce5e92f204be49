"""Redis for tests: one server for the run, in which each worker has a database, and private ones that may be lost."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from fakes import PATIENCE
from sizes import cannot

from doubles import run

_DATABASES = 64

_kept: list[RedisServer] = []
"""What this process has started for the run; it outlives this process."""


class RedisPlace(msgspec.Struct, frozen=True):
    """Where a database of Redis is."""

    port: int
    database: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/{self.database}"


class RedisServer:
    """A `redis-server` that keeps nothing on disk."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = RedisPlace(self.port).url
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self.process = subprocess.Popen(
            ["redis-server", *words, "--databases", str(_DATABASES)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
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
        """Have it answer again; it has answered once when this returns."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as asked:
            asked.sendall(b"PING\r\n")
            assert asked.recv(16).startswith(b"+PONG")


def _must_be_there() -> None:
    if shutil.which("redis-server") is None:
        cannot("redis-server is not installed")


def _start() -> RedisPlace:
    server = RedisServer()
    server.start()
    _kept.append(server)
    assert server.process is not None
    run.until_the_end(server.process.pid)
    return RedisPlace(server.port)


def empty_redis() -> RedisPlace:
    """Return this worker's database on the run's server, emptied."""
    from redis import Redis

    _must_be_there()
    place = RedisPlace(run.once("redis", RedisPlace, _start).port, run.worker() % _DATABASES)
    with Redis.from_url(place.url) as client:
        client.flushdb()
    return place


@contextmanager
def own_redis() -> Iterator[RedisServer]:
    """Start a server of a test's own, which may take it away."""
    _must_be_there()
    server = RedisServer()
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
