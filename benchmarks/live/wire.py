"""What goes over the wire to the model server: each request counted, each answer bounded.

A relay on the loopback, so that the client is the one every user has, with nothing of it replaced.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

__all__ = ["Call", "Wire"]


class Call(msgspec.Struct, frozen=True):
    """One request: the form of reply it asked for, the status it came back with (0: none came), and its seconds."""

    form: str
    status: int
    seconds: float


class Wire:
    """Relays to a server at an http address, with a bound on an answer's tokens put into each request.

    A tiny model may not know when to stop; our client sends no bound of its own, and the server has no option for one.
    `patience` is how many seconds the server may be silent.
    """

    def __init__(self, address: str, max_tokens: int, patience: float) -> None:
        self.calls: list[Call] = []
        self._far = urlsplit(address)
        self._max_tokens = max_tokens
        self._patience = patience
        self._near = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._near.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def address(self) -> str:
        """Where to send requests instead."""
        return f"http://127.0.0.1:{self._near.server_port}{self._far.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._near.shutdown()
        self._near.server_close()

    def relay(self, path: str, sent: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send a request on; returns the status and body to answer with."""
        body = {**json.loads(sent), "max_tokens": self._max_tokens}
        status, start = 0, time.perf_counter()
        far = HTTPConnection(self._far.hostname or "", self._far.port, timeout=self._patience)
        try:
            far.request("POST", path, json.dumps(body), headers)
            response = far.getresponse()
            answer = response.read()
            status = response.status
        finally:
            far.close()
            form = body.get("response_format", {}).get("type", "text")
            self.calls.append(Call(form, status, time.perf_counter() - start))
        return status, answer


def _handler(wire: Wire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": "application/json", "Authorization": self.headers.get("Authorization", "")}
            try:
                status, answer = wire.relay(self.path, sent, headers)
            except OSError as error:
                status, answer = 502, json.dumps({"error": {"message": f"the server broke off: {error}"}}).encode()
            # Who interrupted the run is not there any more to be answered.
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    return Handler
