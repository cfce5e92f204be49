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
from typing import Any
from unittest import mock

from benchmarks.peers.deer_flow import deerflow
from benchmarks.peers.stand_ins import DIMENSIONS, USER, Opened, embed, stated

_ROOM = 1_000_000


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


def _model(messages: Sequence[Any]) -> dict[str, Any]:
    asked = messages[-1]["content"].rpartition("<conversation")[2]
    kind = {"category": "preference", "confidence": 0.9}
    return {"newFacts": [{"content": content, **kind} for content in stated(asked)]}


@contextmanager
def backstory_that_learns(folder: Path) -> Iterator[Opened]:
    from backstory import Backstory

    # Both wait half a second between calls of a model; DeerFlow's flush at the end leaves that out.
    options = {"embedding_model": "none", "min_seconds_between_calls": 0}
    options |= {"max_facts": _ROOM, "max_facts_limit": _ROOM}
    with Backstory.open(folder / "home", model=_model, **options) as home:
        memory = home.memory(user_id=USER)

        def record(number: int, text: str) -> None:
            said = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
            memory.record(f"thread-{number}", said)

        def learn() -> None:
            done = memory.flush(timeout=300)
            assert done, done

        yield Opened(
            memory.add_fact,
            lambda query: [hit.content for hit in memory.search(query, top_k=5)],
            lambda: {fact.content for fact in memory.facts()},
            record,
            learn,
            memory.context,
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


Memories = dict[str, Callable[[Path], Any]]

STORES: Memories = {
    "Backstory, by words": lambda folder: backstory(folder, by_meaning=False),
    "Backstory, hybrid": lambda folder: backstory(folder, by_meaning=True),
    "mem0, faiss": lambda folder: mem0(folder, store="faiss"),
    "mem0, qdrant in a folder": lambda folder: mem0(folder, store="qdrant"),
    "LangGraph, SqliteStore": langgraph,
    "eventsourcing, SQLite": eventsourcing,
}
if not hasattr(sqlite3.Connection, "enable_load_extension"):
    # Its index is an extension of SQLite, which not every Python loads.
    del STORES["LangGraph, SqliteStore"]
LEARNERS: Memories = {"Backstory, learning": backstory_that_learns, "DeerFlow": deerflow}
"""Those that learn from conversations, with a model's stand-in."""
MEMORIES = STORES | LEARNERS
SEARCHES = {name for name in MEMORIES if not name.startswith("eventsourcing")}
"""Those that search; the others are compared in what they keep."""
