"""A TCP proxy that cuts a connection at the worst moment: when a request was sent, or when its answer is on its way."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Passes connections on to a port. `cut` chooses what becomes of the next request that holds some bytes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut: tuple[bytes, bool] | None = None
        self.refuses = False
        """Whether new connections are closed at once, as by a server that is gone."""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, mark: bytes, *, delivered: bool, then_refuse: bool = False) -> None:
        """Cut the connection of the next request with a mark: after its answer came, or before it is delivered."""
        self._cut = (mark, delivered)
        self._then_refuse = then_refuse

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            silenced = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, silenced), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, silenced), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, silenced: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._cut is not None and self._cut[0] in data:
                    delivered, self._cut = self._cut[1], None
                    self.refuses = self._then_refuse
                    self.cuts += 1
                    if not delivered:
                        break
                    silenced.set()
                server.sendall(data)
        _end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, silenced: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if silenced.is_set():
                    break
                client.sendall(data)
        _end(client, server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
