"""A memory manager as the host sees it, and the factory that finds one by its dotted path."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class MemoryCallbacks:
    """Told of each call of a model that memory makes."""

    def on_memory_llm_call(
        self,
        invoke_config: dict[str, object],
        *,
        thread_id: str | None,
        user_id: str | None,
        trace_id: str | None,
        model_name: str | None,
    ) -> None:
        """About to ask; `invoke_config` may be written to."""

    def on_memory_llm_result(
        self,
        invoke_config: dict[str, object],
        *,
        prompt: object,
        response: object,
        error: BaseException | None,
        duration_ms: float,
        model_name: str | None,
    ) -> None:
        """Asked, whatever came of it."""


class MemoryManagerError(RuntimeError):
    """Memory failed."""


class MemoryConflictError(MemoryManagerError):
    """Somebody else wrote first."""


class MemoryCorruptionError(MemoryManagerError):
    """What is on disk cannot be trusted."""


class MemoryManager(BaseModel):
    """The contract: `add`, `get_context` and `from_config` must be there, the rest may."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    backend_config: dict[str, object] = Field(default_factory=dict)
    mode: Literal["middleware", "tool"] = "middleware"
    callbacks: MemoryCallbacks | None = None

    supports_search: ClassVar[bool] = False
    requires_passive_writes_in_tool_mode: ClassVar[bool] = False

    @field_validator("backend_config", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return value or {}

    @model_validator(mode="after")
    def _agrees(self) -> MemoryManager:
        searches = type(self).search is not MemoryManager.search
        if type(self).supports_search != searches:
            raise ValueError("supports_search does not say what search does")
        if self.mode == "tool" and not searches:
            raise ValueError("tools need a search")
        return self

    @abstractmethod
    def add(
        self,
        thread_id: str,
        messages: list[object],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
        trace_id: str | None = None,
    ) -> None: ...

    @abstractmethod
    def get_context(
        self, user_id: str | None, *, agent_name: str | None = None, thread_id: str | None = None
    ) -> str: ...

    @classmethod
    @abstractmethod
    def from_config(
        cls,
        backend_config: dict[str, object],
        *,
        mode: Literal["middleware", "tool"] = "middleware",
        **host_hooks: object,
    ) -> MemoryManager: ...

    def add_nowait(
        self, thread_id: str, messages: list[object], *, agent_name: str | None = None, user_id: str | None = None
    ) -> None:
        self.add(thread_id, messages, agent_name=agent_name, user_id=user_id)

    def search(
        self,
        query: str,
        top_k: int = 5,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        category: str | None = None,
    ) -> list[dict[str, object]]:
        raise NotImplementedError

    def get_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, object]:
        raise NotImplementedError

    def delete_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> None:
        raise NotImplementedError

    def clear_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, object]:
        raise NotImplementedError

    def import_memory(
        self, memory_data: dict[str, object], *, user_id: str | None = None, agent_name: str | None = None
    ) -> dict[str, object]:
        raise NotImplementedError

    def export_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, object]:
        raise NotImplementedError

    def shutdown_flush(self, timeout: float) -> bool:
        return True

    def warm(self) -> bool | None:
        return None

    def reload_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, object]:
        raise NotImplementedError

    def create_fact(
        self,
        content: str,
        category: str = "context",
        confidence: float = 0.5,
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> tuple[dict[str, object], str | None]:
        raise NotImplementedError

    def delete_fact(
        self, fact_id: str, *, agent_name: str | None = None, user_id: str | None = None
    ) -> dict[str, object]:
        raise NotImplementedError

    def update_fact(
        self,
        fact_id: str,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> dict[str, object]:
        raise NotImplementedError

    def on_pre_compress(self, messages: list[object]) -> str:
        return ""

    def on_turn_start(self, turn_number: int, message: object, **kwargs: object) -> None:
        return None

    async def aadd(
        self,
        thread_id: str,
        messages: list[object],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
        trace_id: str | None = None,
    ) -> None:
        self.add(thread_id, messages, agent_name=agent_name, user_id=user_id, trace_id=trace_id)

    async def aget_context(
        self, user_id: str | None, *, agent_name: str | None = None, thread_id: str | None = None
    ) -> str:
        return self.get_context(user_id, agent_name=agent_name, thread_id=thread_id)

    async def asearch(
        self,
        query: str,
        top_k: int = 5,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        category: str | None = None,
    ) -> list[dict[str, object]]:
        return self.search(query, top_k, user_id=user_id, agent_name=agent_name, category=category)

    def close(self) -> None:
        return None


class HostConfig:
    """What the host's own configuration says; tests set it."""

    manager_class: str = ""
    backend_config: ClassVar[dict[str, object]] = {}
    mode: Literal["middleware", "tool"] = "middleware"
    hooks: ClassVar[dict[str, object]] = {}


_one: list[MemoryManager] = []


def resolve_manager_class(path: str) -> type[MemoryManager]:
    """Find a manager by `package.module:Class` or `package.module.Class`."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"{path} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, MemoryManager)):
        raise ValueError(f"{path} is no memory manager")  # noqa: TRY004 as the host does
    return found


def get_memory_manager() -> MemoryManager:
    """Return the one manager of the process."""
    if not _one:
        cls = resolve_manager_class(HostConfig.manager_class)
        _one.append(cls.from_config(dict(HostConfig.backend_config), mode=HostConfig.mode, **HostConfig.hooks))
    return _one[0]


def reset_memory_manager() -> None:
    """Forget it."""
    _one.clear()
