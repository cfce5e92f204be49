from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, open_home

from backstory import Backstory
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.mcp.answering import Opened
from backstory.mcp.server import memory_server
from backstory.memory import MemoryHandle


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bs(tmp_path: Path, clock: FakeClock):
    with open_home(tmp_path / "home", clock=clock) as home:
        yield home


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


@pytest.fixture
def server(bs: Backstory):
    return memory_server(bs, lambda _request, _need: Opened(bs.memory("ada")))


@pytest.fixture
def learned(memory: MemoryHandle) -> MemoryHandle:
    """Commit 2 learned from a conversation: two facts and a section."""
    memory.record(
        "t1",
        [
            {"role": "user", "content": "I write Rust in Oslo.", "id": "a1"},
            {"role": "assistant", "content": "Noted.", "id": "a2"},
        ],
    )
    said = {
        "newFacts": [
            {"content": "Ada writes Rust", "category": "knowledge", "confidence": 0.9, "evidence": ["a1"]},
            {"content": "Ada lives in Oslo", "confidence": 0.9},
        ],
        "user": {"workContext": {"summary": "Writes Rust.", "shouldUpdate": True}},
    }
    memory.extract([RecordedReply("t1", json.dumps(said))])
    return memory
