"""The NATS engine: the store's own messages, thousands of them on their way at the same time."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from backstory.ledger.engines.nats.holding import name_header
from backstory.ledger.engines.nats.jetstream import Outgoing
from backstory.ledger.engines.nats.messages import commit_note
from backstory.ledger.engines.nats.store import NatsStore
from backstory.ledger.engines.nats.subjects import COMMITS, Subjects
from benchmarks.many_streams.engines import on_disk
from benchmarks.many_streams.lines import lines
from benchmarks.private_nats import NatsCluster, NatsServer

__all__ = ["Nats"]

_AT_ONCE = 2000
_STALE = 10071
_ATTEMPTS = 10


class Nats:
    """Three nodes that sync every write, and a number of shards with three replicas; or one node with one."""

    name = "NATS"

    def __init__(self, folder: Path, *, shards: int = 4, replicas: int = 3) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="many-", dir=folder))
        self._shards = shards
        self.replicas = replicas
        self._cluster = NatsCluster(self._folder) if replicas > 1 else None
        self._nodes: Sequence[NatsServer] = (
            self._cluster.nodes if self._cluster else [NatsServer(self._folder / "node0", sync="always")]
        )
        self._at = ",".join(node.at for node in self._nodes)
        monitor = ",".join(node.monitor for node in self._nodes)
        self.url = f"nats://{self._at}/many?shards={shards}&replicas={replicas}&monitor={monitor}"
        self.start()
        with closing(NatsStore(self.url)) as store:
            store.head("users/nobody/ledger")

    def load(self, count: int) -> None:
        asyncio.run(self._load(count))

    async def _load(self, count: int) -> None:
        import nats

        subjects, waiting = Subjects("many", self._shards), lines(count)
        client = await nats.connect(self._at.split(","))
        jetstream = client.jetstream(timeout=30, publish_async_max_pending=_AT_ONCE)
        newest = dict.fromkeys(range(self._shards), 0)

        async def send(message: Outgoing) -> int | None:
            future = await jetstream.publish_async(message.subject, message.data, headers=message.headers())
            try:
                return int((await asyncio.wait_for(future, 20)).seq)
            except nats.js.errors.APIError as error:
                # An earlier attempt had arrived.
                return 0 if error.err_code == _STALE else None
            except (TimeoutError, nats.errors.Error):
                return None

        while some := list(itertools.islice(waiting, _AT_ONCE)):
            messages = [
                Outgoing(
                    subjects.of(COMMITS, name), line, commit_note(0, newest[subjects.shard(name)], 0), 0,
                    name=name_header(name),
                )
                for name, line in some
            ]  # fmt: skip
            for _ in range(_ATTEMPTS):
                answers = await asyncio.gather(*map(send, messages))
                for message, answer in zip(messages, answers, strict=True):
                    shard = int(message.subject.split(".", 2)[1])
                    newest[shard] = max(newest[shard], answer or 0)
                messages = [message for message, answer in zip(messages, answers, strict=True) if answer is None]
                if not messages:
                    break
            else:
                raise TimeoutError(f"{len(messages)} messages were not stored")
        await client.close()

    def settle(self) -> None:
        pass

    def bytes(self) -> int:
        return sum(on_disk(node.folder / "js") for node in self._nodes)

    def pids(self) -> list[int]:
        return [node.pid for node in self._nodes]

    def stop(self) -> None:
        for node in self._nodes:
            node.stop()

    def start(self) -> None:
        for node in self._nodes:
            node.launch()
        for node in self._nodes:
            node.wait()

    def folders(self) -> Iterable[Path]:
        return [node.folder / "js" for node in self._nodes]

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)
