"""Scopes that are locked or damaged, and a disk that is full: a clear error, others unaffected, no restart needed."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cli.commandline import Cli
from doubles.disk import Disk
from fakes import PATIENCE
from serving import app_client, process_server, thread_server
from starlette.testclient import TestClient

HOLDS = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(home: Path, user: str) -> Iterator[None]:
    """Another process holds the lock of a user's memory."""
    (lock,) = [
        path for path in (home / "users" / user).iterdir() if path.suffix == ".lock" and "ledger" in path.name
    ] or [home / "users" / user / "ledger.lock"]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.kill()


def contents(client: TestClient | httpx.Client, user: str) -> list[str]:
    return [fact["content"] for fact in client.get("/v1/facts", params={"user": user, "limit": 1000}).json()["items"]]


def add(client: TestClient | httpx.Client, user: str, content: str) -> httpx.Response:
    answer: httpx.Response = client.post("/v1/facts", params={"user": user}, json={"content": content})
    return answer


# Locked.


@pytest.mark.slow
def test_a_locked_scope_is_503_and_others_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with thread_server(home, file_lock_timeout_seconds=1) as running, running.client() as client:
        for user in ("ada", "bob"):
            assert add(client, user, "Runs").status_code == 201
        with locked(home, "ada"), ThreadPoolExecutor(2) as pool:
            refused = pool.submit(running.post, "/v1/facts?user=ada", {"content": "Swims"})
            # Reading waits for no lock, and others are not concerned.
            assert contents(client, "ada") == ["Runs"]
            assert add(client, "bob", "Swims").status_code == 201
            assert not refused.done()
            answer = refused.result(PATIENCE)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"] == "LockTimeoutError"
            # Held by another process, or by a thread of this one that waits for that process.
            assert "ledger.lock is " in answer.json()["detail"]
            assert (
                client.post("/api/memory/facts", json={"content": "x"}, headers={"X-Backstory-User": "ada"}).status_code
                == 409
            )
        assert add(client, "ada", "Swims").status_code == 201
        assert contents(client, "ada") == ["Runs", "Swims"]
        assert client.get("/v1/verify?user=ada").json()["ok"]


@pytest.mark.slow
def test_many_writes_to_a_locked_scope_leave_room_for_others(tmp_path: Path) -> None:
    """More of them than there are places and threads."""
    home = tmp_path / "home"
    with thread_server(home, file_lock_timeout_seconds=3, max_facts=500) as running, running.client() as client:
        for user in ("ada", "bob"):
            assert add(client, user, "Runs").status_code == 201
        begun = threading.Semaphore(0)

        def write(number: int) -> int:
            with running.client() as own:
                begun.release()
                return add(own, "ada", f"Fact {number}").status_code

        with ThreadPoolExecutor(150) as pool:
            with locked(home, "ada"):
                waiting = [pool.submit(write, number) for number in range(150)]
                for _ in waiting:
                    assert begun.acquire(timeout=PATIENCE)
                for number in range(5):
                    assert contents(client, "bob") == ["Runs"]
                    assert client.get("/v1/facts?user=ada").status_code == 200
                    del number
                assert add(client, "bob", "Swims").status_code == 201
                # All of this while they wait: those that came first have not been refused yet.
                assert not all(one.done() for one in waiting)
            statuses = [one.result(PATIENCE) for one in waiting]
        assert set(statuses) <= {201, 503}
        assert len(contents(client, "ada")) == 1 + statuses.count(201)


# Damaged.


def test_a_damaged_scope_is_503_and_others_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cli = Cli(home)
    with app_client(home) as client:
        for user in ("ada", "bob"):
            for content in ("Runs", "Swims"):
                assert add(client, user, content).status_code == 201
    log = home / "users" / "ada" / "ledger.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"Runs", b"Lies", 1))
    said = cli.error("--user", "ada", "fact", "add", "more", code=3)
    with app_client(home) as client:
        refused = add(client, "ada", "more")
        assert refused.status_code == 503
        assert refused.json()["error"] == "CorruptLogError"
        assert refused.json()["detail"] in said
        assert add(client, "bob", "more").status_code == 201
        assert client.get("/v1/verify?user=ada").json()["ok"] is False
        assert client.get("/metrics").status_code == 200
        assert client.get("/healthz").status_code == 200
        listed = client.get("/v1/scopes")
        assert listed.status_code == 200
        assert [one["user"] for one in listed.json()["items"]] == ["bob"]
        (broken,) = listed.json()["unreadable"]
        assert (broken["user"], broken["agent"]) == ("ada", None)
        assert broken["detail"] in said
        cli.run("--user", "ada", "repair")
        assert add(client, "ada", "after").status_code == 201
        assert "after" in contents(client, "ada")
        # The document of before the repair is moved aside and written anew in the background.
        end = time.monotonic() + PATIENCE
        while not client.get("/v1/verify?user=ada").json()["ok"]:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_damage_while_the_server_runs(tmp_path: Path) -> None:
    """A log that another program cut into is noticed by the next write, and repaired beside the running server."""
    home = tmp_path / "home"
    with app_client(home) as client:
        for content in ("Runs", "Swims"):
            assert add(client, "ada", content).status_code == 201
        log = home / "users" / "ada" / "ledger.jsonl"
        with log.open("ab") as end:
            end.write(b'{"not": "a commit"}\n')
        assert add(client, "ada", "more").status_code == 503
        assert add(client, "bob", "more").status_code == 201
        Cli(home).run("--user", "ada", "repair")
        assert add(client, "ada", "after").status_code == 201
        assert contents(client, "ada") == ["Runs", "Swims", "after"]


# A full disk.


def test_a_full_disk_is_503_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    disk = Disk(home, monkeypatch)
    turn = {"thread": "t", "messages": [{"role": "user", "content": "Hi"}]}
    with app_client(home) as client:
        assert add(client, "ada", "Runs").status_code == 201
        assert client.post("/v1/record?user=ada", json=turn).status_code == 200
        head = client.get("/v1/head?user=ada").json()
        for name, number in (("write", errno.ENOSPC), ("fdatasync", errno.EDQUOT)):
            disk.fail(name, number, on="ledger.jsonl")
            refused = add(client, "ada", "Swims")
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"] == "StoreError"
            assert "free some space" in refused.json()["detail"]
            disk.fail("write", number, on="transcript.jsonl", after=10)
            turn["messages"] = [{"role": "user", "content": "Hi"}, {"role": "user", "content": "there"}]
            assert client.post("/v1/record?user=ada", json=turn).status_code == 503
            assert disk.faults == []
            assert client.get("/v1/head?user=ada").json() == head
            assert contents(client, "ada") == ["Runs"]
        assert add(client, "ada", "Swims").status_code == 201
        assert client.post("/v1/record?user=ada", json=turn).json()["turns"] == 1
        assert client.get("/v1/verify?user=ada").json()["ok"]


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while(small_disk: Path) -> None:
    """A server of its own on a small disk; it says so in /readyz, and needs no restart once there is room."""
    home, ballast = small_disk / "home", small_disk / "ballast"
    with process_server(home) as running, running.client() as client:
        assert client.get("/readyz").status_code == 200
        kept = []
        assert add(client, "ada", "First").status_code == 201
        with pytest.raises(OSError, match="No space left"):
            fill_up(ballast)
        for number in range(50):
            answer = add(client, "ada", f"Fact {number} " + "y" * 2000)
            if answer.status_code == 503:
                break
            kept.append(answer.json()["fact"]["content"])
        assert answer.status_code == 503
        assert "No space left on device" in answer.json()["detail"]
        assert contents(client, "ada") == ["First", *kept]
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert not ready.json()["ok"]
        assert str(small_disk) not in ready.text
        assert client.get("/healthz").status_code == 200
        ballast.unlink()
        assert client.get("/readyz").status_code == 200
        assert add(client, "ada", "Last").status_code == 201
        assert contents(client, "ada") == ["First", *kept, "Last"]
        assert client.get("/v1/verify?user=ada").json()["ok"]
        assert running.end()[0] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    from sizes import cannot

    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], check=False, capture_output=True, text=True
    )
    if made.returncode != 0:
        cannot(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


# Killed.


@pytest.mark.slow
@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.torture), 40])
def test_what_was_acknowledged_before_a_kill_is_there_once(tmp_path: Path, after: int) -> None:
    home = tmp_path / "home"
    acknowledged: list[int] = []
    enough = threading.Event()
    lock = threading.Lock()

    def record(client: httpx.Client, number: int) -> None:
        said = {
            "thread": f"t{number % 10}",
            "mode": "append",
            "messages": [{"role": "user", "content": f"Turn {number}"}],
        }
        try:
            answer = client.post("/v1/record?user=ada", json=said, headers={"Idempotency-Key": f"k{number}"})
        except httpx.HTTPError:
            return
        if answer.status_code == 200:
            with lock:
                acknowledged.append(number)
                if len(acknowledged) >= after:
                    enough.set()

    with process_server(home) as running, running.client() as client, ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(record, client, number) for number in range(100)]
        assert enough.wait(PATIENCE)
        running.kill()
        for one in sent:
            one.result(PATIENCE)

    def turns(client: httpx.Client) -> list[str]:
        found = []
        for thread in range(10):
            answer = client.get("/v1/turns", params={"user": "ada", "thread": f"t{thread}"})
            found += [turn["content"] for turn in answer.json().get("items", ())]
        return found

    with process_server(home) as running, running.client() as client:
        found = turns(client)
        assert len(found) == len(set(found))
        assert {f"Turn {number}" for number in acknowledged} <= set(found)
        assert client.get("/v1/verify?user=ada").json()["ok"]
        # A client that got no answer sends the same again.
        for number in range(100):
            record(client, number)
        assert sorted(turns(client)) == sorted(f"Turn {number}" for number in range(100))
        assert running.end()[0] == 0
