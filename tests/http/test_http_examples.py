"""The examples of other languages, run against a real server as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from doubles.curls import curls
from serving import app_client
from sizes import cannot

pytestmark = pytest.mark.slow  # processes

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JS = Path(__file__).parent / "js"


@contextmanager
def server(
    home: Path, *, user: str | None = None, config: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start `backstory serve` on a home; yields its address, and checks that it ends well."""
    stated = [*(("--user", user) if user else ()), *(("--config", str(config)) if config else ())]
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "backstory.cli", "--home", str(home), *stated, "--json", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**bare, **(env or {})},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def run(*command: str, cwd: Path = ROOT, **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def program(name: str) -> str:
    """Where a program is."""
    found = shutil.which(name)
    if found is None:
        cannot(f"{name} is not installed")
    return found or ""


def package(name: str) -> Path:
    """Where a package of npm is."""
    found = JS / "node_modules" / name
    if not found.exists():
        cannot(f"{name} is not installed: run npm ci in {JS.relative_to(ROOT)}")
    return found


def test_the_page_about_the_server_begins_with_requests_that_answer_what_it_shows(tmp_path: Path) -> None:
    shown = curls(ROOT / "docs/how-to/server.md")
    with app_client(tmp_path) as client:
        for curl in shown:
            said = client.request(curl.method, curl.path, json=curl.body).text
            assert curl.answers(said), said
    assert len(shown) == 3


def test_the_shell_example_learns_explains_and_undoes_also_a_second_time(tmp_path: Path) -> None:
    program("curl")
    with server(tmp_path) as url:
        for attempt in range(2):
            out = run("sh", str(EXAMPLES / "rest.sh"), BACKSTORY_URL=url)
            answers = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            recorded = [answer["turns"] for answer in answers if "backlog" in answer]
            assert recorded == [2, 2]
            assert next(answer["updates"] for answer in answers if "updates" in answer) == 1 - attempt
            assert "Alan is allergic to peanuts" in next(answer["text"] for answer in answers if "text" in answer)
            why = next(answer for answer in answers if "evidence" in answer)
            assert "allergic to peanuts" in why["evidence"][0]["content"]
            assert answers[-1]["items"][0]["cause"]["kind"] == "revert"


@pytest.mark.torture
def test_the_typescript_example_has_the_right_types_and_remembers(tmp_path: Path) -> None:
    node, compiler = program("node"), package("typescript") / "bin" / "tsc"
    built = tmp_path / "built"
    # Beside the packages, since the compiler looks for types there.
    source = JS / "rest.ts"
    shutil.copy(EXAMPLES / "rest.ts", source)
    try:
        settings = "--strict --target es2022 --module nodenext --moduleResolution nodenext --types node"
        run(node, str(compiler), *settings.split(), "--outDir", str(built), str(source), cwd=JS)
    finally:
        source.unlink()
    (built / "package.json").write_text('{"type": "module"}')
    with server(tmp_path / "home") as url:
        for attempt in range(2):
            out = run(node, str(built / "rest.js"), BACKSTORY_URL=url)
            assert "agent: You live in Bergen." in out
            # What was undone is marked, so a model does not bring it back.
            assert ("User lives in Bergen, because you said: I moved to Bergen." in out) is (attempt == 0)
            assert "facts left: 0" in out


def test_the_examples_send_a_token(tmp_path: Path) -> None:
    program("curl")
    made = run(
        sys.executable, "-m", "backstory.cli", "--home", str(tmp_path), "--json", "token", "add", "x", "--for", "alan"
    )
    with server(tmp_path) as url:
        out = run("sh", str(EXAMPLES / "rest.sh"), BACKSTORY_URL=url, BACKSTORY_TOKEN=json.loads(made)["token"])
        assert '"actor":"token:x"' in out
