"""Witnesses to test against, and a forger: whoever can write the files can also compute the hashes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from small_home import resealed

from backstory.ledger.core.commit import EMPTY, head_of
from backstory.ledger.core.errors import WitnessError
from backstory.testing.lines import as_file

USER = "ada"
LEDGER = f"users/{USER}/ledger"
TRANSCRIPT = f"users/{USER}/transcript"


def lines_of(path: Path) -> list[dict[str, object]]:
    """What a witness file says."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def forge(home: Path, stream: str, old: bytes, new: bytes) -> None:
    """Replace words in a log and compute every hash anew; what is derived from it is taken away."""
    file = home / f"{stream}.jsonl"
    head, lines = EMPTY, []
    for line in file.read_bytes().splitlines():
        lines.append(resealed(line, prev=head.hash, replace=(old, new)))
        head = head_of(lines[-1])
    assert as_file(lines) != file.read_bytes()
    file.write_bytes(as_file(lines))
    take_away_what_is_derived(home)


def take_away_what_is_derived(home: Path) -> None:
    for file in home.rglob("*"):
        if file.name in ("index.sqlite", "memory.json"):
            file.unlink()


class Memo:
    """A destination that keeps what it is given, fails when it is told to, and can be made to hang."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.tried = 0
        self.fails = False
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def name(self) -> str:
        return "memo"

    def append(self, lines: bytes) -> None:
        self.tried += 1
        self.asked.set()
        self.go_on.wait(20)
        if self.fails:
            raise WitnessError("memo is out", kind="Planned")
        self.batches.append(lines)

    @property
    def seqs(self) -> list[list[int]]:
        return [[json.loads(line)["seq"] for line in batch.splitlines()] for batch in self.batches]


class Server:
    """An address on this machine; `answers` are its statuses, the last one for good."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers = [200]
        self.location = ""
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []


@contextmanager
def served() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            told.headers.append(dict(self.headers))
            told.paths.append(self.path)
            self.send_response(told.answers[0] if len(told.answers) == 1 else told.answers.pop(0))
            if told.location:
                self.send_header("Location", told.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Server(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
