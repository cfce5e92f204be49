"""Memories to compare: each opens a folder, adds a fact durably as it does by default, and searches.

Each imports its own package, since only one is loaded in a process. All embed with the same stand-in, so that what is
timed is the memory and not a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

DIMENSIONS = 256
USER = "ada"
_ROOM = 1_000_000


class Opened(NamedTuple):
    """An open memory: what adds a fact, what finds facts, and what lists all that are kept."""

    add: Callable[[str], object]
    search: Callable[[str], Sequence[str]]
    kept: Callable[[], set[str]]


def embed(text: str) -> list[float]:
    """Return the words of a text as a vector of length 1; a word is always the same direction."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % DIMENSIONS] += 1.0
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [value / length for value in vector]


class _StandIn:
    """The stand-in as Backstory takes an embedder, and as mem0 does."""

    name, local = "stand-in", True

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Any:
        import numpy as np

        del timeout
        return np.array([embed(text) for text in texts], dtype=np.float32)

    def query(self, text: str) -> Any:
        return self.passages([text])[0]

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        del memory_action
        return embed(text)

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        del memory_action
        return [embed(text) for text in texts]


@contextmanager
def backstory(folder: Path, *, by_meaning: bool) -> Iterator[Opened]:
    from backstory import Backstory

    stand_in = mock.patch("backstory.config.embedder_factory.as_embedder", return_value=_StandIn())
    with stand_in if by_meaning else contextlib.nullcontext():
        named = {"embedding_model": "stand-in"} if by_meaning else {"embedding_model": "none"}
        with Backstory.open(folder / "home", background=False, max_facts=_ROOM, max_facts_limit=_ROOM, **named) as home:
            memory = home.memory(user_id=USER)
            if by_meaning:
                memory.embed()
            yield Opened(
                memory.add_fact,
                lambda query: [hit.content for hit in memory.search(query, top_k=5)],
                lambda: {fact.content for fact in memory.facts()},
            )


@contextmanager
def mem0(folder: Path, *, store: str) -> Iterator[Opened]:
    os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0"), "OPENAI_API_KEY": "none"}
    from mem0 import Memory

    place = {"collection_name": "facts", "path": str(folder / store), "embedding_model_dims": DIMENSIONS}
    if store == "qdrant":
        place["on_disk"] = True
    memory = Memory.from_config(
        {"vector_store": {"provider": store, "config": place}, "history_db_path": str(folder / "history.db")}
    )
    memory.embedding_model = _StandIn()

    def search(query: str) -> list[str]:
        found = memory.search(query, top_k=5, filters={"user_id": USER}, threshold=0.0)
        return [hit["memory"] for hit in found["results"]]

    def kept() -> set[str]:
        return {one["memory"] for one in memory.get_all(filters={"user_id": USER}, top_k=1_000_000)["results"]}

    yield Opened(lambda text: memory.add(text, user_id=USER, infer=False), search, kept)
    with contextlib.suppress(AttributeError):
        memory.vector_store.client.close()


@contextmanager
def langgraph(folder: Path) -> Iterator[Opened]:
    from langgraph.store.sqlite import SqliteStore

    index = {"dims": DIMENSIONS, "embed": lambda texts: [embed(text) for text in texts], "fields": ["text"]}
    connection = sqlite3.connect(folder / "store.db", check_same_thread=False, isolation_level=None)
    try:
        store = SqliteStore(connection, index=index)
        store.setup()
        place = ("memories", USER)

        def add(text: str) -> None:
            store.put(place, hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), {"text": text})

        yield Opened(
            add,
            lambda query: [item.value["text"] for item in store.search(place, query=query, limit=5)],
            lambda: {item.value["text"] for item in store.search(place, limit=1_000_000)},
        )
    finally:
        connection.close()


@contextmanager
def eventsourcing(folder: Path) -> Iterator[Opened]:
    os.environ |= {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
    from benchmarks.peers.event_sourced import MemoryApplication

    app = MemoryApplication()
    memory = app.memory(USER)

    def add(text: str) -> None:
        memory.add(text)
        app.save(memory)

    yield Opened(add, lambda _: [], lambda: set(app.memory(USER).facts))
    app.close()


MEMORIES: dict[str, Callable[[Path], Any]] = {
    "Backstory, by words": lambda folder: backstory(folder, by_meaning=False),
    "Backstory, hybrid": lambda folder: backstory(folder, by_meaning=True),
    "mem0, faiss": lambda folder: mem0(folder, store="faiss"),
    "mem0, qdrant in a folder": lambda folder: mem0(folder, store="qdrant"),
    "LangGraph, SqliteStore": langgraph,
    "eventsourcing, SQLite": eventsourcing,
}
if not hasattr(sqlite3.Connection, "enable_load_extension"):
    # Its index is an extension of SQLite, which not every Python loads.
    del MEMORIES["LangGraph, SqliteStore"]
SEARCHES = {name for name in MEMORIES if not name.startswith("eventsourcing")}
"""Those that search; the others are compared in what they keep."""
