"""What a turn costs a DeerFlow agent: its conversation handed to the memory manager at the end of each run.

DeerFlow hands over the whole conversation each time, tool calls and results included. Ours is synced to disk when `add`
returns. Where DeerFlow itself is installed, its own backend, which keeps the conversation in memory only, gets the same
in turn; otherwise a stand-in of its contract takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from benchmarks.rows import Row

__all__ = ["handing_over"]

_STAND_IN = Path(__file__).parent.parent / "tests" / "standin"
_DEERMEM = "deerflow.agents.memory.backends.deermem.deer_mem"
_TURNS = 20
_WORDS = (
    *("the", "scheduling", "tool", "night", "trains", "Rust", "black", "coffee", "release", "tunnels", "Bergen"),
    *("bicycles", "short", "answers", "spring", "concert", "unit", "tests", "red", "notebook", "ferry", "wool"),
)


class _Manager(Protocol):
    def add(self, thread_id: str, messages: list[object], *, user_id: str | None = None) -> None: ...

    async def aadd(self, thread_id: str, messages: list[object], *, user_id: str | None = None) -> None: ...

    def close(self) -> None: ...


class _Spans(msgspec.Struct, frozen=True):
    """Seconds of each hand-over, from the event loop and not, and of each probe of the disk."""

    ours: list[float]
    awaited: list[float]
    theirs: list[float]
    disk: list[float]


def handing_over(conversations: int) -> Iterator[Row]:
    """Measure so many conversations of twenty turns, each handed over whole after every turn."""
    if find_spec("deerflow") is None:
        sys.path.append(str(_STAND_IN))
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            spans = _measured(Path(folder), conversations)
    finally:
        logging.disable(level)
    messages = 4 * _TURNS
    yield Row(
        f"a turn handed over by DeerFlow (`add`), conversations of up to {messages} messages, synced, p50; p99",
        _p50_p99(spans.ours),
        "≤ 1.5 ms (p50)",
    )
    yield Row("  from an event loop (`aadd`)", _p50_p99(spans.awaited), "≤ 1.5 ms (p50)")
    yield Row("  of it the disk: as many bytes appended and synced alone, in turn", _p50_p99(spans.disk))
    theirs = _p50_p99(spans.theirs) if spans.theirs else "left out: DeerFlow is not installed"
    yield Row("  DeerFlow's own backend, which keeps them in memory only", theirs)


def _measured(folder: Path, conversations: int) -> _Spans:
    ours = _ours(folder / "ours")
    theirs = _theirs(folder / "theirs")
    spans = _Spans([], [], [], [])
    log = folder / "probe"
    try:
        for number in range(-1, conversations):
            found = _Spans([], [], [], []) if number < 0 else spans
            talk = _talk(number)
            for turn in range(1, _TURNS + 1):
                said: list[object] = [*talk[: 4 * turn]]
                found.ours.append(_added(ours, f"a{number}", said))
                found.awaited.append(asyncio.run(_awaited(ours, f"b{number}", said)))
                if theirs is not None:
                    found.theirs.append(_added(theirs, f"a{number}", said))
                found.disk.append(_synced(log))
    finally:
        ours.close()
    return spans


def _ours(folder: Path) -> _Manager:
    from backstory.deerflow import BackstoryMemoryManager

    manager: _Manager = BackstoryMemoryManager.from_config(_config(folder))
    return manager


def _theirs(folder: Path) -> _Manager | None:
    try:
        own = import_module(_DEERMEM)
    except ImportError:
        return None
    manager: _Manager = own.DeerMem.from_config(_config(folder))
    return manager


def _config(folder: Path) -> dict[str, object]:
    # Nothing is due before the end, and no model is asked.
    model = {"model": "none", "api_key": "none", "base_url": "http://127.0.0.1:9/v1"}
    return {"storage_path": str(folder), "debounce_seconds": 300, "shutdown_flush_timeout_seconds": 1, "model": model}


def _added(manager: _Manager, thread: str, messages: list[object]) -> float:
    start = time.perf_counter()
    manager.add(thread, messages, user_id="ada")
    return time.perf_counter() - start


async def _awaited(manager: _Manager, thread: str, messages: list[object]) -> float:
    # A loop starts its threads once, and a host's runs for long.
    await asyncio.to_thread(int)
    start = time.perf_counter()
    await manager.aadd(thread, messages, user_id="ada")
    return time.perf_counter() - start


def _synced(log: Path) -> float:
    start = time.perf_counter()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, b"x" * 1_500)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return time.perf_counter() - start


def _talk(number: int) -> Sequence[BaseMessage]:
    chance = random.Random(number)
    talk: list[BaseMessage] = []
    for turn in range(_TURNS):
        call = {"name": "search", "args": {"query": "x"}, "id": f"call-{turn}"}
        talk += [
            HumanMessage(" ".join(chance.choices(_WORDS, k=30)), id=f"h{turn}"),
            AIMessage("", id=f"c{turn}", tool_calls=[call]),
            ToolMessage("A result. " * 40, tool_call_id=f"call-{turn}", id=f"t{turn}"),
            AIMessage(" ".join(chance.choices(_WORDS, k=80)), id=f"a{turn}"),
        ]
    return talk


def _p50_p99(spans: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(spans):.2f} ms; {1e3 * sorted(spans)[int(0.99 * len(spans))]:.2f} ms"
