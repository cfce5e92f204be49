"""TCP proxy between a client and a server, which can keep back what the server answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes on; while `deaf` is set, what the server says is thrown away."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.deaf = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._server))
                self._pairs.append((near, far))
                threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_server: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not (from_server and self.deaf.is_set()):
                    target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
