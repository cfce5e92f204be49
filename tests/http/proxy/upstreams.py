"""A model server on the loopback that streams, fails, stalls or breaks off as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

PATIENCE = 60.0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: list[tuple[str, str]]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name), None)


@dataclass(frozen=True)
class Answer:
    """What is answered: its parts are sent one after the other, each once `hold` lets it.

    A body of several parts is sent in chunks. With `breaks` the connection closes without the end of the body, and
    without any part it closes without an answer.
    """

    parts: tuple[bytes, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    breaks: bool = False
    hold: Callable[[int], None] = lambda _: None


def document(value: object, status: int = 200, **headers: str) -> Answer:
    return Answer((json.dumps(value).encode(),), status, {"Content-Type": "application/json", **headers})


def completion(content: str | None, status: int = 200, **message: object) -> Answer:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    return document({"id": "c1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}, status)


def failure(status: int, message: str = "no") -> Answer:
    return document({"error": {"message": message, "type": "error", "param": None, "code": None}}, status)


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(index: int = 0, finish_reason: str | None = None, **fields: object) -> bytes:
    choice = {"index": index, "delta": fields, "finish_reason": finish_reason}
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]})


def events(*parts: bytes, **options: Any) -> Answer:
    return Answer(parts, headers={"Content-Type": "text/event-stream; charset=utf-8"}, **options)


def chat_stream(*words: str, **options: Any) -> Answer:
    said = (delta(content=word) for word in words)
    return events(delta(role="assistant", content=""), *said, delta(finish_reason="stop"), event(b"[DONE]"), **options)


def response(text: str, key: str = "resp_1", **fields: object) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": f"msg_{key}", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": key,
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


def response_stream(*words: str, key: str = "resp_1", **options: Any) -> Answer:
    begun = {"type": "response.created", "sequence_number": 0, "response": {**response("", key), "output": []}}
    said = [
        {
            "type": "response.output_text.delta",
            "sequence_number": n,
            "item_id": f"msg_{key}",
            "output_index": 0,
            "content_index": 0,
            "logprobs": [],
            "delta": word,
        }
        for n, word in enumerate(words, 1)
    ]
    done = {"type": "response.completed", "sequence_number": 99, "response": response("".join(words), key)}
    return events(*[b"event: %s\n" % str(one["type"]).encode() + event(one) for one in (begun, *said, done)], **options)


def message(*blocks: str | dict[str, object], reason: str = "end_turn", key: str = "msg_1") -> Answer:
    """An answer of Anthropic's protocol."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return document({**_message(key), "content": content, "stop_reason": reason})


def _message(key: str) -> dict[str, object]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": key, "type": "message", "role": "assistant", "model": "m", "content": []}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}


def named(kind: str, **fields: object) -> bytes:
    """An event of Anthropic's protocol."""
    return b"event: %s\n" % kind.encode() + event({"type": kind, **fields})


def block_events(index: int, kind: str, *deltas: str, **fields: object) -> list[bytes]:
    """The events of a block: of text, of thinking, or of a call of a tool."""
    name = {"text": "text", "thinking": "thinking"}.get(kind, "partial_json")
    delta_kind = {"text": "text_delta", "thinking": "thinking_delta"}.get(kind, "input_json_delta")
    begun = {"type": kind, **({name: ""} if kind in ("text", "thinking") else {"input": {}}), **fields}
    said = [named("content_block_delta", index=index, delta={"type": delta_kind, name: delta}) for delta in deltas]
    return [
        named("content_block_start", index=index, content_block=begun),
        *said,
        named("content_block_stop", index=index),
    ]


def message_events(*blocks: list[bytes], reason: str = "end_turn", key: str = "msg_1") -> list[bytes]:
    """The events of a whole message, of its blocks' events."""
    end = named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 1})
    inner = [part for block in blocks for part in block]
    return [named("message_start", message=_message(key)), named("ping"), *inner, end, named("message_stop")]


def message_stream(*words: str, reason: str = "end_turn", key: str = "msg_1", **options: Any) -> Answer:
    return events(*message_events(block_events(0, "text", *words), reason=reason, key=key), **options)


Behaviour = Answer | Callable[[Request], Answer]


class StandIn:
    """Answers with one behaviour after the other, and with the last one for ever."""

    def __init__(self, *script: Behaviour) -> None:
        self.requests: list[Request] = []
        self.gone = threading.Event()
        """A client closed its connection in the middle of an answer."""
        self._script = list(script)
        self._mutex = threading.Lock()
        self._server = _Listener(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def last(self) -> Request:
        return self.requests[-1]

    def then(self, *script: Behaviour) -> None:
        """Answer so from now on."""
        self._script = list(script)

    def answer(self, request: Request) -> Answer:
        with self._mutex:
            self.requests.append(request)
            behaviour = self._script[0] if len(self._script) == 1 else self._script.pop(0)
        return behaviour if isinstance(behaviour, Answer) else behaviour(request)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep the terminal quiet: connections are broken off here on purpose."""


def _handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are two packets, and the second would wait 40 ms for the first to be acknowledged.
        disable_nagle_algorithm = True

        def _do(self) -> None:
            raw = self._body()
            answer = server.answer(Request(self.command, self.path, list(self.headers.items()), raw))
            if not answer.parts and answer.breaks:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            chunked = len(answer.parts) > 1 or answer.breaks
            if chunked:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(sum(map(len, answer.parts))))
            self.end_headers()
            try:
                for n, part in enumerate(answer.parts):
                    answer.hold(n)
                    self.wfile.write(_chunk(part) if chunked else part)
                answer.hold(len(answer.parts))
                if answer.breaks:
                    self.close_connection = True
                elif chunked:
                    self.wfile.write(_chunk(b""))
            except OSError:
                server.gone.set()
                raise

        do_GET = do_POST = do_DELETE = do_PUT = _do  # noqa: N815 as http.server wants them

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts: Iterable[bytes] = iter(lambda: self.rfile.read(int(self.rfile.readline(), 16) + 2)[:-2], b"")
            return b"".join(parts)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    return Handler


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)
