"""`backstory mcp` as a process of its own: the protocol on its output, a clean end, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest
from assistants import ERAS, Person, using
from mcp.client.stdio import StdioServerParameters

from backstory import Backstory

pytestmark = pytest.mark.slow

PATIENCE = 60


def command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "backstory.cli", "--home", str(home), "--user", "ada", *words, "mcp"]


def parameters(home: Path, *words: str) -> StdioServerParameters:
    first, *rest = command(home, *words)
    cache = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
    return StdioServerParameters(command=first, args=rest, env=cache)


@pytest.mark.parametrize("era", [ERAS[0], *(pytest.param(era, marks=pytest.mark.torture) for era in ERAS[1:])])
def test_the_sdks_client_remembers_and_undoes_over_stdio(tmp_path, era):
    async def work(client):
        added = await client.call_tool("memory_add", {"content": "Ada lives in Oslo"})
        found = await client.call_tool("memory_search", {"query": "Oslo"})
        undone = await client.call_tool("memory_revert", {"seq": 2})
        return added, found, undone

    person = Person()
    added, found, undone = using(parameters(tmp_path), work, era=era, person=person)
    assert added.structured_content["fact_id"] == "fact_2_0"
    assert found.structured_content["count"] == 1
    assert (undone.structured_content["status"], len(person.asked)) == ("reverted", 1)
    with Backstory.open(tmp_path, background=False) as home:
        memory = home.memory("ada")
        assert memory.facts() == ()
        assert [entry.cause.actor for entry in memory.log()][:2] == ["mcp:tester, and the person agreed", "mcp:tester"]
        assert memory.verify().ok


class Process:
    """The server with bare pipes; `lines` holds what it has written."""

    def __init__(self, home: Path, *words: str) -> None:
        self._process = subprocess.Popen(
            command(home, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._deadline = threading.Timer(PATIENCE, self._process.kill)
        self._deadline.start()
        self._number = 0

    def __enter__(self) -> Self:
        client = {"name": "bare", "version": "1"}
        begun = self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        assert begun["serverInfo"]["name"] == "backstory"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()
        self._deadline.cancel()
        self._deadline.join()

    def send(self, message: object) -> None:
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, method: str, **params: object):
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            line = self._process.stdout.readline()
            assert line, self._process.stderr.read()
            answer = json.loads(line)
            assert answer["jsonrpc"] == "2.0"
            if answer.get("id") == self._number:
                return answer.get("result") or answer["error"]

    def close_input(self) -> tuple[int, bytes, bytes]:
        out, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, out, err

    def die(self) -> tuple[int, bytes]:
        """Close both ends while an answer is due, the output first."""
        self._process.stdout.close()
        add = {"name": "memory_add", "arguments": {"content": "Ada lives in Oslo"}}
        self.send({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": add})
        self._process.stdin.close()
        return self._process.wait(PATIENCE), self._process.stderr.read()

    def stop(self, number: signal.Signals) -> tuple[int, bytes, bytes]:
        self._process.send_signal(number)
        out, err = self._process.stdout.read(), self._process.stderr.read()
        return self._process.wait(PATIENCE), out, err


def contents(home: Path) -> list[str]:
    return [fact["content"] for fact in json.loads((home / "users/ada/memory.json").read_text())["facts"]]


def test_when_the_client_closes_the_input_all_is_on_disk_and_the_exit_is_0(tmp_path):
    with Process(tmp_path, "--debug") as server:
        server.ask("tools/call", name="memory_add", arguments={"content": "Ada lives in 東京 \x85"})
        code, out, err = server.close_input()
    assert (code, out) == (0, b"")
    assert b"Traceback" not in err
    assert contents(tmp_path) == ["Ada lives in 東京"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.torture)])
def test_a_signal_ends_it_as_cleanly_while_the_client_is_still_there(tmp_path, number):
    with Process(tmp_path) as server:
        server.ask("tools/call", name="memory_add", arguments={"content": "Ada lives in Oslo"})
        code, out, err = server.stop(number)
    assert (code, out, err) == (0, b"", b"")
    assert contents(tmp_path) == ["Ada lives in Oslo"]


def test_a_client_that_dies_leaves_no_process_behind(tmp_path):
    with Process(tmp_path) as server:
        code, err = server.die()
    assert (code, err) == (0, b"")


def test_nothing_but_the_protocol_is_on_the_output(tmp_path):
    (tmp_path / "users" / "ada").mkdir(parents=True)
    with Process(tmp_path, "--json") as server:
        # A line that is no message, an unknown tool, and a memory that breaks while it serves.
        server.send("no message")
        assert server.ask("tools/call", name="memory_nothing", arguments={})
        server.ask("tools/call", name="memory_add", arguments={"content": "Ada lives in Oslo"})
        log = tmp_path / "users/ada/ledger.jsonl"
        log.write_bytes(log.read_bytes().replace(b"Oslo", b"Rome") + b"garbage\n")
        broken = server.ask("tools/call", name="memory_add", arguments={"content": "Ada has a cat"})
        assert broken["isError"] is True
        code, out, _err = server.close_input()
    assert (code, out) == (0, b"")


def test_an_error_at_the_start_is_one_line_on_standard_error(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        command(tmp_path / "file", "--json"), input=b"", capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.count(b"\n") == 1
