"""DeerFlow's manager reads while writers are stuck: it waits for none of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import ChatModel, Host, talk
from stuck import Stuck, held, returned, stuck_writers

from backstory.deerflow import BackstoryMemoryManager

READS: dict[str, Callable[[BackstoryMemoryManager], object]] = {
    "aget_context": lambda manager: asyncio.run(manager.aget_context("ada", thread_id="t1")),
    "asearch": lambda manager: asyncio.run(manager.asearch("tea", user_id="ada")),
    "export_memory": lambda manager: manager.export_memory(user_id="ada"),
    "get_context": lambda manager: manager.get_context("ada", thread_id="t1"),
    "get_memory": lambda manager: manager.get_memory(user_id="ada"),
    "reload_memory": lambda manager: manager.reload_memory(user_id="ada"),
    "search": lambda manager: manager.search("tea", user_id="ada"),
    "warm_retrieval": lambda manager: manager.warm_retrieval(),
}
OTHERS = {
    "aadd", "add", "add_nowait", "clear_memory", "close", "create_fact", "delete_fact", "delete_memory", "from_config",
    "import_memory", "shutdown_flush", "update_fact", "warm",
}  # fmt: skip


def test_every_method_of_the_manager_is_a_read_or_is_none() -> None:
    own = {name for name, value in vars(BackstoryMemoryManager).items() if callable(getattr(value, "__func__", value))}
    named = {name for name in own if not name.startswith(("_", "model_"))}
    assert named == {*READS, *OTHERS}


@pytest.fixture
def manager(host: Host) -> BackstoryMemoryManager:
    manager = host.manager(ChatModel(), debounce_seconds=300)
    manager.create_fact("Likes tea", user_id="ada")
    manager.add("t1", talk("I like tea."), user_id="ada")
    assert manager.shutdown_flush(20)
    return manager


@pytest.mark.parametrize("name", sorted(READS))
def test_no_read_of_the_manager_waits_for_a_writer(
    manager: BackstoryMemoryManager, host: Host, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bs = manager._hosting.home
    memory = bs.memory("ada")
    expected = READS[name](manager)
    memory.flush(0)  # or the document's writer waits for a lock, and a writer for it
    with memory._services.own.state():
        pass
    writes = [
        lambda: memory.add_fact("Has a dog"),
        lambda: memory.record("t2", [{"role": "user", "content": "Hello."}]),
    ]
    with stuck_writers(bs, bs.home / "users/ada", writes, monkeypatch):
        assert returned(lambda: READS[name](manager)) == expected
        other = host.manager(ChatModel())
        Stuck(other._hosting.home, monkeypatch)
        assert returned(lambda: READS[name](other)) == expected


def test_what_deerflow_remembered_before_is_taken_over_later_where_the_log_is_locked(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host.folder / "users" / "ada"
    folder.mkdir(parents=True)
    fact = {"id": "fact_1", "content": "Likes rye", "category": "preference", "confidence": 0.9}
    (folder / "memory.json").write_bytes(json.dumps({"user": {}, "history": {}, "facts": [fact]}).encode())
    manager = host.manager(ChatModel())
    home = Path(manager._hosting.home.home)
    with held(home / "users/ada/ledger.lock"):
        stuck = Stuck(manager._hosting.home, monkeypatch)
        assert returned(lambda: manager.get_memory(user_id="ada"))["facts"] == []  # type: ignore[index]
    stuck.finish()
    monkeypatch.undo()
    assert [fact["content"] for fact in host.manager(ChatModel()).get_memory(user_id="ada")["facts"]] == ["Likes rye"]
