"""A host as DeerFlow is one: it finds the manager by its path, hands over hooks, and talks in LangChain messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from deerflow.agents.memory.manager import HostConfig, MemoryManager, get_memory_manager, reset_memory_manager
from fakes import PATIENCE
from langchain_core.messages import AIMessage, HumanMessage

if TYPE_CHECKING:
    from backstory.deerflow import BackstoryMemoryManager

PATH = "backstory.deerflow:BackstoryMemoryManager"
EMPTY = {
    "user": {name: {"summary": "", "updatedAt": ""} for name in ("workContext", "personalContext", "topOfMind")},
    "history": {
        name: {"summary": "", "updatedAt": ""} for name in ("recentMonths", "earlierContext", "longTermBackground")
    },
    "facts": [],
}


def learning(*contents: str, **more: object) -> str:
    """A model's answer with some new facts."""
    facts = [{"content": content, "category": "preference", "confidence": 0.9} for content in contents]
    return json.dumps({"newFacts": facts, **more})


TEA = learning("Likes tea")


def talk(words: str = "I like tea.", answer: str = "Noted.", number: int = 1) -> list[object]:
    """What a person said and an agent answered."""
    return [HumanMessage(words, id=f"h{number}"), AIMessage(answer, id=f"a{number}")]


class ChatModel:
    """A chat model that says the same again and again, or what a function says; `asked` are its calls."""

    model_name = "host-model"

    def __init__(self, answer: str | Callable[[], str] | BaseException = TEA) -> None:
        self.answer = answer
        self.asked: list[SimpleNamespace] = []

    def invoke(self, messages: list[object], /, config: dict[str, object] | None = None) -> AIMessage:
        self.asked.append(SimpleNamespace(messages=messages, config=config, thread=threading.get_ident()))
        if isinstance(self.answer, BaseException):
            raise self.answer
        said = self.answer() if callable(self.answer) else self.answer
        return AIMessage(said, usage_metadata={"input_tokens": 50, "output_tokens": 7, "total_tokens": 57})


class Host:
    """One process of DeerFlow; `manager()` is what its factory gives, `restart()` a new one over the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[MemoryManager] = []

    def manager(
        self, llm: object = None, /, *, mode: str = "middleware", path: str = PATH, **config: object
    ) -> BackstoryMemoryManager:
        """Make a manager the way the factory does; `hooks` are the host's, `llm` what it offers."""
        hooks = config.pop("hooks", {})
        reset_memory_manager()
        HostConfig.manager_class = path
        HostConfig.mode = mode
        HostConfig.backend_config = {"storage_path": str(self.folder), "min_seconds_between_calls": 0, **config}
        HostConfig.hooks = {"host_llm_factory": lambda: llm, **hooks}
        manager = get_memory_manager()
        self._made.append(manager)
        return manager

    def close(self) -> None:
        reset_memory_manager()
        for manager in self._made:
            manager.close()


def learned(manager: MemoryManager, user: str = "ada", agent: str | None = None) -> list[str]:
    """What is remembered now, once nothing is due any more."""
    assert manager.shutdown_flush(PATIENCE)
    return contents(manager, user, agent)


def contents(manager: MemoryManager, user: str | None = "ada", agent: str | None = None) -> list[str]:
    return [fact["content"] for fact in manager.get_memory(user_id=user, agent_name=agent)["facts"]]


def without_times(document: dict[str, object]) -> dict[str, object]:
    return {key: document[key] for key in ("user", "history", "facts")}
