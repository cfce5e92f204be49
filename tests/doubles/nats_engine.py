"""NATS stores for tests: on one server or cluster, below a prefix of their own."""

from __future__ import annotations

import itertools
import os

from fakes import PATIENCE

from backstory.ledger.log.clock import Clock
from backstory.ledger.log.store.nats.store import NatsStore

_numbers = itertools.count()


class NatsEngine:
    """Opens stores on one server or cluster, below one prefix, and closes them all at the end."""

    def __init__(self, at: str, options: str = "replicas=1&sync=always") -> None:
        self.url = f"nats://{at}/t{os.getpid()}-{next(_numbers)}?{options}"
        self.stores: list[NatsStore] = []

    def open(
        self, *, lock_timeout: float = PATIENCE, answer_timeout: float = PATIENCE, clock: Clock | None = None
    ) -> NatsStore:
        store = NatsStore(self.url, lock_timeout=lock_timeout, answer_timeout=answer_timeout, clock=clock)
        self.stores.append(store)
        return store

    def close(self) -> None:
        for store in self.stores:
            store.close()
