"""The official clients, as users run them: their agents get a memory by the base URL alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packages import python_with
from served import FACT, Served
from sizes import PATIENT, cannot
from upstreams import (
    Answer,
    Request,
    StandIn,
    chat_stream,
    completion,
    document,
    message,
    message_stream,
    response,
    response_stream,
)

ROOT = Path(__file__).parents[3]
JS = Path(os.environ.get("NODE_CLIENTS") or ROOT / "tests" / "http" / "js") / "node_modules"
"""Where `npm ci` in tests/http/js has put the client."""
OUTPUT = ["You live in Bergen.", "You live in Bergen.", "You live in Bergen.", "You live in Bergen."]


def answer(request: Request) -> Answer:
    """Say where the user lives, if it is in the block."""
    words = words_for(request)
    assert request.header("authorization") == "Bearer sk-example"
    stream = bool(request.body.get("stream"))
    if request.path == "/v1/chat/completions":
        return chat_stream(*words) if stream else completion("".join(words))
    key = f"resp_{2 if 'previous_response_id' in request.body else 1}"
    return response_stream(*words, key=key) if stream else document(response("".join(words), key))


def words_for(request: Request) -> list[str]:
    known = re.search(r"User lives in (\w+)", request.raw.decode())
    return ["You live ", "in ", f"{known[1]}."] if known else ["I ", "do not know."]


def message_for(request: Request) -> Answer:
    """Answer as Anthropic's API does."""
    assert (request.path, request.header("authorization")) == ("/v1/messages", "Bearer sk-example")
    assert request.header("anthropic-version")
    words = words_for(request)
    return message_stream(*words) if request.body.get("stream") else message("".join(words))


def run(proxy: Served, *command: str) -> list[str]:
    named = ("ANTHROPIC_", "OPENAI_", "BACKSTORY_")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    # A base URL that the environment names for other programs is passed over: an agent without memory would not show.
    ours = {"PROXY_URL": proxy.url} | {f"{name}_BASE_URL": "http://127.0.0.1:9" for name in ("ANTHROPIC", "OPENAI")}
    keys = {f"{name}_API_KEY": "sk-example" for name in ("ANTHROPIC", "OPENAI")}
    told = subprocess.run(
        command,
        cwd=ROOT,
        env={**bare, **ours, **keys},
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


def node_with(package: str, script: str, folder: Path) -> tuple[str, str]:
    """The command that runs an example with a client of `npm ci`."""
    node = shutil.which("node")
    if node is None or not (JS / package).is_dir():
        missing = "node" if node is None else "npm ci --prefix tests/http/js"
        cannot(f"the client for JavaScript is not installed: {missing}")
    assert node is not None
    # Modules are looked for beside the script.
    shutil.copy(ROOT / "examples" / script, folder)
    (folder / "node_modules").symlink_to(JS)
    return node, str(folder / script)


@pytest.mark.slow
def test_the_javascript_client_gets_a_memory_by_its_base_url(proxy, upstream, tmp_path):
    upstream.then(answer)
    assert run(proxy, *node_with("openai", "proxy_openai.mjs", tmp_path)) == OUTPUT
    two_conversations(proxy, upstream)


# Anthropic's.


def one_conversation(proxy: Served, upstream: StandIn) -> None:
    assert all(FACT in request.body["system"] for request in upstream.requests)
    said = ["Where do I live?", "You live in Bergen.", "Say it again, word by word.", "You live in Bergen."]
    assert proxy.turns() == {"thread-1": said}


@pytest.mark.slow
@PATIENT
@pytest.mark.torture
def test_anthropics_python_client_gets_a_memory_by_its_base_url(claude, upstream, tmp_path):
    upstream.then(message_for)
    python = python_with("anthropic==2.14.0", tmp_path)
    assert run(claude, python, "examples/proxy_anthropic.py") == OUTPUT[:2]
    one_conversation(claude, upstream)


@pytest.mark.slow
def test_anthropics_javascript_client_gets_a_memory_by_its_base_url(claude, upstream, tmp_path):
    upstream.then(message_for)
    assert run(claude, *node_with("@anthropic-ai/sdk", "proxy_anthropic.mjs", tmp_path)) == OUTPUT[:2]
    one_conversation(claude, upstream)
