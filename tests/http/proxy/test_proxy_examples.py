"""The official clients, as users run them: their agents get a memory by the base URL alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served import FACT, Served
from sizes import cannot
from upstreams import Answer, Request, StandIn, chat_stream, completion, document, response, response_stream

ROOT = Path(__file__).parents[3]
JS = Path(os.environ.get("NODE_CLIENTS") or ROOT / "tests" / "http" / "js") / "node_modules"
"""Where `npm ci` in tests/http/js has put the client."""
OUTPUT = ["You live in Bergen.", "You live in Bergen.", "You live in Bergen.", "You live in Bergen."]


def answer(request: Request) -> Answer:
    """Say where the user lives, if it is in the block."""
    known = re.search(r"User lives in (\w+)", request.raw.decode())
    words = ["You live ", "in ", f"{known[1]}."] if known else ["I ", "do not know."]
    assert request.header("authorization") == "Bearer sk-example"
    stream = bool(request.body.get("stream"))
    if request.path == "/v1/chat/completions":
        return chat_stream(*words) if stream else completion("".join(words))
    key = f"resp_{2 if 'previous_response_id' in request.body else 1}"
    return response_stream(*words, key=key) if stream else document(response("".join(words), key))


def run(proxy: Served, *command: str, **env: str) -> list[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    told = subprocess.run(
        command,
        cwd=ROOT,
        env={**bare, "OPENAI_BASE_URL": proxy.url, "OPENAI_API_KEY": "sk-example", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout.splitlines()


def two_conversations(proxy: Served, upstream: StandIn) -> None:
    assert [request.path.removeprefix("/v1") for request in upstream.requests] == [
        "/chat/completions",
        "/chat/completions",
        "/responses",
        "/responses",
    ]
    assert all(FACT in request.raw.decode() for request in upstream.requests)
    said = ["Where do I live?", "You live in Bergen.", "Say it again, word by word.", "You live in Bergen."]
    assert list(proxy.turns().values()) == [said, said]


@pytest.mark.slow
def test_the_python_client_gets_a_memory_by_its_base_url(proxy, upstream):
    upstream.then(answer)
    assert run(proxy, sys.executable, "examples/proxy_openai.py") == OUTPUT
    two_conversations(proxy, upstream)


@pytest.mark.slow
def test_the_javascript_client_gets_a_memory_by_its_base_url(proxy, upstream, tmp_path):
    node = shutil.which("node")
    if node is None or not (JS / "openai").is_dir():
        missing = "node" if node is None else "npm ci --prefix tests/http/js"
        cannot(f"the client for JavaScript is not installed: {missing}")
    assert node is not None
    # Modules are looked for beside the script.
    shutil.copy(ROOT / "examples" / "proxy_openai.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(JS)
    upstream.then(answer)
    assert run(proxy, node, str(tmp_path / "proxy_openai.mjs")) == OUTPUT
    two_conversations(proxy, upstream)
