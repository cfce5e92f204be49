"""What a worker answers on its port: whether it works, whether its engine answers, and metrics; nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from cli.commandline import Cli
from doubles.misbehaving import MisbehavingServer, completion
from fakes import PATIENCE, ScriptedModel, exchange, open_home, reply
from starlette.testclient import TestClient

from backstory import Backstory
from backstory.http.metrics import WorkerMetrics
from backstory.http.routes.worker import worker_app
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.port import Seal
from backstory.worker import Worker


class Probed:
    """A worker on a home that learns at once, and a client of its routes."""

    def __init__(self, home: Backstory, metrics: WorkerMetrics) -> None:
        self.home = home
        self.worker = Worker(home)
        self.client = TestClient(worker_app(self.worker, home, metrics))

    def ask(self, path: str) -> tuple[int, object]:
        answer = self.client.get(path)
        return answer.status_code, answer.json()

    def metric(self, name: str) -> float:
        (value,) = re.findall(rf"(?m)^{re.escape(name)} (\S+)$", self.client.get("/metrics").text)
        return float(value)


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[Probed]:
    metrics, model = WorkerMetrics(), ScriptedModel(reply("Likes tea"), repeat=True)
    with open_home(
        tmp_path, model, background=True, debounce_seconds=0, listeners=[metrics.on_commit], callbacks=[metrics]
    ) as home:
        yield Probed(home, metrics)


def test_it_is_ready_once_the_engine_has_answered_and_not_while_it_does_not(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = (503, {"ok": False, "detail": "store"})
    assert probed.ask("/readyz") == away
    probed.worker.look()
    assert probed.ask("/readyz") == (200, {"ok": True})
    looked = probed.metric("backstory_worker_last_look_timestamp_seconds")
    assert 0 <= time.time() - looked < PATIENCE
    with monkeypatch.context() as patch:
        patch.setattr(probed.home.store, "streams", lambda *_: (_ for _ in ()).throw(StoreError("down")))
        probed.worker.look()
    assert probed.ask("/readyz") == away
    # It works all the same: another process would not reach the engine, either.
    assert probed.ask("/healthz") == (200, {"ok": True})
    assert probed.metric("backstory_worker_engine_answers") == 0
    assert probed.metric("backstory_worker_last_look_timestamp_seconds") == looked
    probed.worker.look()
    assert probed.ask("/readyz") == (200, {"ok": True})
    assert probed.metric("backstory_worker_engine_answers") == 1


def test_it_is_not_ready_where_its_home_has_moved(probed: Probed) -> None:
    probed.worker.look()
    probed.home.store.set_seal(Seal("moved", "jsonl:/elsewhere"))
    assert probed.ask("/readyz") == (503, {"ok": False, "detail": "seal"})


def test_it_is_not_healthy_when_its_loop_stays_at_one_step(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [float(int(time.monotonic()) + 1)]
    monkeypatch.setattr("backstory.worker.time.monotonic", lambda: now[0])
    probed.worker.look()
    now[0] += 1000
    assert probed.ask("/healthz") == (503, {"ok": False, "detail": "loop"})
    probed.home.memory("ada").record("t", exchange("tea"))
    probed.worker.look()
    assert probed.ask("/healthz") == (200, {"ok": True})


def test_an_engine_that_lists_many_names_is_waited_for(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [float(int(time.monotonic()) + 1)]
    monkeypatch.setattr("backstory.worker.time.monotonic", lambda: now[0])
    streams = probed.home.store.streams
    listed = []

    def slow(prefix: str = "") -> Iterator[str]:
        if listed:
            now[0] += 1000
            assert probed.ask("/healthz") == (200, {"ok": True})
        listed.append(prefix)
        yield from streams(prefix)

    monkeypatch.setattr(probed.home.store, "streams", slow)
    probed.worker.look()
    # Once for the changes, and once for the scan.
    assert len(listed) == 2
    now[0] += 1000
    assert probed.ask("/healthz") == (503, {"ok": False, "detail": "loop"})


def test_a_pause_is_no_delay(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a look took long, so does the pause after it."""
    now = [float(int(time.monotonic()) + 1)]

    def look() -> None:
        now[0] += 250
        probed.worker.answered = True

    def wait(seconds: float) -> None:
        assert seconds == 1000
        now[0] += 999
        assert probed.ask("/healthz") == (200, {"ok": True})
        probed.worker.stop()

    monkeypatch.setattr("backstory.worker.time.monotonic", lambda: now[0])
    monkeypatch.setattr(probed.worker, "look", look)
    monkeypatch.setattr(probed.worker._stopped, "wait", wait)
    probed.worker.run()


def test_metrics_say_what_waits_and_what_is_under_way(tmp_path: Path) -> None:
    asked, released = threading.Event(), threading.Event()

    def answer(_: object) -> str:
        asked.set()
        assert released.wait(PATIENCE)
        return reply("Likes tea")

    metrics = WorkerMetrics()
    with (
        open_home(tmp_path) as recorder,
        open_home(
            tmp_path, ScriptedModel(answer, repeat=True), background=True, debounce_seconds=0, workers=1,
            listeners=[metrics.on_commit], callbacks=[metrics],
        ) as home,
    ):  # fmt: skip
        probed = Probed(home, metrics)
        recorder.memory("ada").record("t", exchange("tea"))
        probed.worker.look()
        assert asked.wait(PATIENCE)
        recorder.memory("bob").record("t", exchange("tea"))
        recorder.memory("bob").record("u", [{"role": "user", "content": "And milk?"}])
        probed.worker.look()
        states = [
            probed.metric(f'backstory_worker_threads{{state="{state}"}}') for state in ("due", "later", "under_way")
        ]
        assert states == [1, 1, 1]
        released.set()
        assert home.flush(PATIENCE)
        states = [
            probed.metric(f'backstory_worker_threads{{state="{state}"}}') for state in ("due", "later", "under_way")
        ]
        assert states == [0, 0, 0]
        assert probed.metric('backstory_commits_total{kind="extraction"}') >= 2
        assert probed.metric('backstory_updates_total{outcome="learned"}') >= 2
        text = probed.client.get("/metrics").text
        assert "ada" not in text
        assert "backstory_http" not in text


@pytest.mark.parametrize("path", ["/", "/v1/scopes", "/docs", "/openapi.json", "/v1/document", "/mcp", "/healthz/"])
def test_nothing_else_is_answered(probed: Probed, path: str) -> None:
    assert probed.client.get(path, follow_redirects=False).status_code == 404


def test_nothing_is_changed_by_a_request(probed: Probed) -> None:
    assert probed.client.post("/metrics").status_code == 405


# The command.


def test_the_command_answers_on_its_port_until_it_ends(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    with MisbehavingServer(lambda _: completion(reply("Likes tea")), repeat=True) as server:
        config = tmp_path / "config.yaml"
        model = {"provider": "openai", "model": "m", "api_key": "k", "base_url": server.base_url}
        config.write_text(json.dumps({"memory": {"model": model, "debounce_seconds": 0, "summary_min_turns": 0}}))
        chat = cli.file("chat.jsonl", *({**message, "thread_id": "t"} for message in exchange("tea")))
        with cli.running("--config", config, "--json", "worker", "--port", "0") as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert read(f"{url}/healthz") == b'{"ok":true}'
            cli.run("--user", "ada", "record", chat)
            until(url, r'(?m)^backstory_updates_total\{outcome="learned"\} 1\.0$')
            assert read(f"{url}/readyz") == b'{"ok":true}'
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


def read(address: str) -> bytes:
    with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 of this test
        return bytes(answer.read())


def until(url: str, pattern: str) -> None:
    end = time.monotonic() + PATIENCE
    while not re.search(pattern, read(f"{url}/metrics").decode()):
        assert time.monotonic() < end
        time.sleep(0.02)


def in_a_fresh_process(home: Path, before: str, *arguments: str) -> tuple[str, list[str]]:
    """Run the worker where nothing was imported before; return its output, and which modules of a server there are."""
    script = (
        "import sys\n"
        f"{before}\n"
        "from typer.testing import CliRunner\n"
        "from backstory.cli.app import app\n"
        f"ended = CliRunner().invoke(app, ['--home', {str(home)!r}, 'worker', *{arguments!r}])\n"
        "print(' '.join(ended.output.split()))\n"
        "print(*(name for name in sys.modules if name.startswith(('backstory.http', 'uvicorn', 'starlette'))))\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=True)
    said, modules = done.stdout.splitlines()[-2:]
    return said, modules.split()


def test_a_port_without_the_extra_says_which_one_is_missing(tmp_path: Path) -> None:
    said, _ = in_a_fresh_process(tmp_path, "sys.modules['uvicorn'] = None", "--port", "0")
    assert "--port needs the extra [server]: pip install 'backstory[server]' (uvicorn is missing)" in said


def test_without_a_port_nothing_of_the_server_is_imported(tmp_path: Path) -> None:
    said, modules = in_a_fresh_process(tmp_path, "")
    assert "no model" in said
    assert modules == []


def test_a_host_without_a_port_is_refused(tmp_path: Path) -> None:
    assert "--host needs --port" in Cli(tmp_path / "home").error("worker", "--host", "0.0.0.0", code=2)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = Cli(tmp_path / "home").error("worker", "--port", taken.getsockname()[1], code=3)
    assert "choose another --port" in said


def test_a_worker_on_a_home_that_has_moved_says_where_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    cli = Cli(tmp_path / "home")
    cli.run("--user", "ada", "fact", "add", "Likes tea")
    cli.run("copy", cli.home, tmp_path / "other")
    assert f"has moved to jsonl:{tmp_path / 'other'}" in cli.error("worker", code=3)
