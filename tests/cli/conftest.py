from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from commandline import Cli, fact, reply, said
from typer.main import get_command

_built = lru_cache(get_command)


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "BACKSTORY_")) or name in (
            "FORCE_COLOR",
            "NO_COLOR",
            "COLUMNS",
            "PYTHONUNBUFFERED",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # The runner would build all verbs anew for each command line, which takes longer than to run one.
    monkeypatch.setattr("typer.testing._get_command", _built)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@pytest.fixture
def story(cli: Cli) -> Cli:
    """Commit 2 learns three things and refuses one, commit 3 replaces one of them."""
    cli.run(
        "record",
        cli.file(
            "said.jsonl",
            said("t1", "a1", "user", "I write Rust in Oslo."),
            said("t1", "a2", "assistant", "Noted."),
            said("t2", "b1", "user", "I moved to Bergen."),
            said("t2", "b2", "assistant", "Good."),
        ),
    )
    cli.run(
        "extract",
        "--replies",
        cli.file(
            "replies.jsonl",
            reply(
                "t1",
                fact("User writes Rust", evidence=["a1"]),
                fact("User lives in Oslo"),
                fact("User may like tea", 0.3),
                user={"workContext": {"summary": "Writes Rust.", "shouldUpdate": True}},
            ),
            reply(
                "t2",
                fact("User lives in Bergen"),
                factsToRemove=[{"id": "fact_2_1", "reason": "moved", "replacementFactIndex": 0}],
            ),
        ),
    )
    return cli


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[str], str]], None]]:
    """A model's server on this machine: give it a function from the prompt to the answer."""
    answer: list[Callable[[str], str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = answer[-1]("\n".join(message["content"] for message in asked["messages"]))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            body = {"id": "1", "object": "chat.completion", "created": 1, "model": "stub-1", "choices": [choice]}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            # A command line that was interrupted waits for no answer.
            with contextlib.suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    yield answer.append
    server.shutdown()
    server.server_close()
    thread.join()
