"""Three NATS servers, each write synced: commits beside bare publications, opening beside files, and following."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from backstory.ledger.core.commit import head_of
from backstory.ledger.engines.nats.store import NatsStore
from backstory.testing.lines import chain
from benchmarks.following import following
from benchmarks.looking import looking
from benchmarks.opening import opening
from benchmarks.private_nats import NatsCluster, binary
from benchmarks.rows import Row, in_turn, ms, times

__all__ = ["clustering"]

_WRITERS = 16
_EACH = 25
_FOLLOWED = 200


def clustering(commits: int) -> Iterator[Row]:
    """Measure the NATS engine; `commits` are those of the scope that is opened."""
    if binary() is None:
        yield Row("NATS: left out", "nats-server is not installed")
        return
    with tempfile.TemporaryDirectory() as folder, NatsCluster(Path(folder) / "servers") as cluster:
        url = f"nats://{cluster.at}/bench?monitor={cluster.monitor}"
        yield from _writing(cluster, url)
        yield from _following(url)
        yield from looking(NatsStore(url))
        yield from following("NATS", url)
        yield from opening(url, commits)


def _writing(cluster: NatsCluster, url: str) -> Iterator[Row]:
    lines = chain(_EACH)
    rounds = itertools.count()
    with closing(NatsStore(url)) as store:
        store.head("warm/ledger")

        def ours() -> None:
            turn = next(rounds)

            def write(who: int) -> None:
                for seq, line in enumerate(lines):
                    store.append(f"users/w{turn}-{who}/ledger", [line], seq)

            threads = [threading.Thread(target=write, args=(who,)) for who in range(_WRITERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        with closing(_Bare(cluster.at, lines)) as bare:
            took, least = in_turn(ours, bare.publish, rounds=7)
    count = _WRITERS * _EACH
    yield Row(
        "NATS, three replicas, synced: 16 writers / nats-py with an acknowledgement each",
        times(least / took),
        "≥ 0.4 ×",
    )
    yield Row("  commits/s, bare publications/s", f"{count / took:,.0f}, {count / least:,.0f}")


class _Bare:
    """16 tasks that publish the same bytes through nats-py, each waiting for its acknowledgement."""

    def __init__(self, at: str, lines: list[bytes]) -> None:
        self._lines = lines
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._connect(at))

    async def _connect(self, at: str) -> None:
        import nats

        self._client = await nats.connect(at.split(","))
        self._jetstream = self._client.jetstream()
        await self._jetstream.add_stream(name="bare", subjects=["bare.>"], num_replicas=3)

    def publish(self) -> None:
        self._loop.run_until_complete(self._publish())

    async def _publish(self) -> None:
        async def write(who: int) -> None:
            for line in self._lines:
                await self._jetstream.publish(f"bare.{who}", line)

        await asyncio.gather(*map(write, range(_WRITERS)))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def _following(url: str) -> Iterator[Row]:
    """Measure the time from an acknowledgement until a follower on another connection has the commit."""
    lines = chain(_FOLLOWED)
    acknowledged: list[float] = []
    seen: list[float] = []
    with closing(NatsStore(url)) as writer, closing(NatsStore(url)) as reader:
        ready = threading.Event()

        def follow() -> None:
            for record in itertools.islice(reader.follow("users/lines/ledger"), _FOLLOWED):
                seen.append(time.perf_counter())
                if head_of(record.line).seq == 1:
                    ready.set()

        follower = threading.Thread(target=follow)
        follower.start()
        for seq, line in enumerate(lines):
            writer.append("users/lines/ledger", [line], seq)
            acknowledged.append(time.perf_counter())
            ready.wait(5)
            time.sleep(0.005)
        follower.join()
    delays = sorted(max(0.0, there - sent) for sent, there in zip(acknowledged, seen, strict=True))
    p99 = delays[int(len(delays) * 0.99)]
    yield Row(
        "  a follower's delay after an acknowledgement, p50, p99",
        f"{ms(statistics.median(delays))}, {ms(p99)}",
        "≤ 250 ms",
    )


if __name__ == "__main__":
    import sys

    for row in clustering(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
        print(row.what, "|", row.figure, "|", row.target, flush=True)
