"""TCP proxy between clients and a server: it keeps back answers, holds all bytes for a while, and cuts connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self


class _Pair:
    """Both ends of a connection."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.halves = threading.Event()
        """Set where half of the next answer is to be the last that comes."""

    def end(self) -> None:
        for each in (self.near, self.far):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Proxy:
    """Passes bytes on; while `deaf` is set, what the server says is thrown away."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self.deaf = threading.Event()
        self.unheard = threading.Event()
        """Set once something that the server said was thrown away."""
        self._flowing = threading.Event()
        self._flowing.set()
        self._guard = threading.Lock()
        self._pairs: set[_Pair] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread that waits for connections keeps a socket open that is only closed.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._flowing.set()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        with self._guard:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.end()

    def halve(self) -> None:
        """Break each connection in the middle of its next answer; of those without one none is broken."""
        with self._guard:
            for pair in self._pairs:
                pair.halves.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold all bytes for the length of the block, then let them go on."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._server))
                except OSError:
                    near.close()
                    continue
                pair = _Pair(near, far)
                with self._guard:
                    self._pairs.add(pair)
                threading.Thread(target=self._pump, args=(pair, near, far), daemon=True).start()
                threading.Thread(target=self._pump, args=(pair, far, near), daemon=True).start()

    def _pump(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        answers = source is pair.far
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                if answers and pair.halves.is_set():
                    target.sendall(data[: len(data) // 2])
                    break
                if answers and self.deaf.is_set():
                    self.unheard.set()
                else:
                    target.sendall(data)
        self._end(pair)

    def _end(self, pair: _Pair) -> None:
        with self._guard:
            self._pairs.discard(pair)
        pair.end()
