"""A model server on the loopback that does what it is told, badly, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 60.0
AUTHORITY = str(Path(__file__).with_name("authority.pem"))
"""One certificate, for SSL_CERT_FILE: every client reads those of the machine anew, 25 ms, also to speak plain HTTP."""


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def form(self) -> str:
        return self.body.get("response_format", {}).get("type", "text")


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0
    silent: bool = False


Behaviour = Response | Callable[[Request], Response]


def json_response(value: object, *, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(status, json.dumps(value).encode(), {"Content-Type": "application/json", **named})


def completion(content: object, *, finish_reason: str = "stop", **message: object) -> Response:
    return json_response(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "served-model",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": content, **message},
                }
            ],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }
    )


def failure(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Response:
    return json_response({"error": {"message": message, "type": "error", "code": code}}, status=status, **headers)


def cut_off(response: Response) -> Response:
    """Declare the whole body, send all but its last bytes, close."""
    return Response(response.status, response.body[:-10], response.headers, missing=10)


SILENCE = Response(silent=True)


def accepting(*forms: str, refusal: int) -> Callable[[Request], Response]:
    """Complete in the given forms of reply and answer every other one with a status."""
    return lambda request: completion(request.form) if request.form in forms else failure(refusal, "unknown form")


class MisbehavingServer:
    """Serve one scripted behaviour after the other, then the last one for ever when `repeat` is set."""

    def __init__(self, *script: Behaviour, repeat: bool = False) -> None:
        self.requests: list[Request] = []
        self._script = list(script)
        self._repeat = repeat
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = _Listener(("127.0.0.1", 0), _handler(self))
        # The default poll would make every test wait up to half a second for the shutdown.
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def forms(self) -> list[str]:
        return [request.form for request in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def answer(self, request: Request) -> Response:
        with self._lock:
            self.requests.append(request)
            if not self._script:
                return failure(418, "the script is over")
            behaviour = self._script[0] if self._repeat and len(self._script) == 1 else self._script.pop(0)
        return behaviour if isinstance(behaviour, Response) else behaviour(request)

    def wait_for_release(self) -> None:
        self._released.wait(PATIENCE)


class _Listener(ThreadingHTTPServer):
    # Handler threads are joined on close, so that none outlives its test.
    daemon_threads = False
    request_queue_size = 64


def _handler(server: MisbehavingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            response = server.answer(
                Request(self.path, {name.lower(): value for name, value in self.headers.items()}, json.loads(body))
            )
            if response.silent:
                server.wait_for_release()
                return
            self.send_response(response.status)
            for name, value in _with_length(response):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    return Handler


def _with_length(response: Response) -> Iterable[tuple[str, str]]:
    yield from response.headers.items()
    yield "Content-Length", str(len(response.body) + response.missing)
