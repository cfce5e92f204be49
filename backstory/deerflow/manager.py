"""DeerFlow's memory, kept as a ledger: `manager_class: backstory.deerflow:BackstoryMemoryManager`."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import ClassVar, Literal, Self

from pydantic import PrivateAttr

from backstory.deerflow.config import read_backend_config
from backstory.deerflow.hooks import HOOKS, read_hooks
from backstory.deerflow.hosting import Hosting, scope_named
from backstory.deerflow.memory import Document, HostedMemory
from backstory.ledger.core.errors import CapError, ConfigError, DuplicateFactError, NotFoundError
from backstory.ledger.core.policy import CATEGORIES

try:
    from deerflow.agents.memory.manager import MemoryManager

    from backstory.deerflow.errors import translated
except ImportError as error:
    raise ConfigError(
        "BackstoryMemoryManager needs a DeerFlow that has memory managers, and there is none here: install DeerFlow; "
        "for versions before them use `storage_class: backstory.deerflow:LedgerMemoryStorage`"
    ) from error

__all__ = ["BackstoryMemoryManager"]

_log = logging.getLogger(__name__)

_DUPLICATE = "Duplicate fact"
"""What DeerFlow's gateway and tools know a refusal by."""


class BackstoryMemoryManager(MemoryManager):
    """Memory for DeerFlow's agents: every update is a commit that can be asked why, and undone.

    It lies in the folder `backstory` below `storage_path`; what DeerFlow kept there before is taken over on first use
    and left as it is. An agent's name means the same in any case; no agent is the user's own memory.
    An agent has facts of its own alone, and shows the user's summaries where it has none.

    `add` and `add_nowait` never raise for a fault of memory: what was said waits. Everything else raises
    MemoryCorruptionError for a damaged log, MemoryConflictError where another try may help, MemoryUnavailableError (an
    OSError too) where the store cannot be reached, ValueError for what can never be and KeyError for an unknown fact.
    """

    supports_search: ClassVar[bool] = True

    _hosting: Hosting = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Open the home; hooks may stand in `backend_config`, which holds plain data afterwards.

        Raises:
            ConfigError: a key nobody knows, a value outside its range, or a hook that is none.
        """
        super().model_post_init(context)
        given = dict(self.backend_config)
        hooks = {name: given.pop(name) for name in HOOKS if name in given}
        hooks.setdefault("callbacks", self.callbacks)
        self._hosting = Hosting(read_backend_config(given, self.mode), read_hooks(hooks))
        self.backend_config = given

    @classmethod
    def from_config(
        cls,
        backend_config: dict[str, object] | None = None,
        *,
        mode: Literal["middleware", "tool"] = "middleware",
        **host_hooks: object,
    ) -> Self:
        """Build one from configuration and the host's hooks; a hook in `backend_config` beats the host's."""
        given = dict(backend_config or {})
        for name in HOOKS:
            if name != "callbacks" and given.get(name) is None and host_hooks.get(name) is not None:
                given[name] = host_hooks[name]
        return cls.model_validate({"backend_config": given, "mode": mode, "callbacks": host_hooks.get("callbacks")})

    def _memory(self, user_id: str | None, agent_name: str | None, *, in_hands: bool = False) -> HostedMemory:
        return self._hosting.memory(scope_named(user_id, agent_name), in_hands=in_hands)

    # What agents do.

    def add(
        self,
        thread_id: str,
        messages: list[object],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
        trace_id: str | None = None,
    ) -> None:
        """Keep a conversation, to be learned from when it has been quiet for `debounce_seconds`."""
        self._record(user_id, agent_name, thread_id, messages, trace_id=trace_id)

    def add_nowait(
        self, thread_id: str, messages: list[object], *, agent_name: str | None = None, user_id: str | None = None
    ) -> None:
        """Keep words that are about to be lost to the agent, to be learned from now."""
        self._record(user_id, agent_name, thread_id, messages, immediate=True)

    def _record(
        self,
        user_id: str | None,
        agent_name: str | None,
        thread_id: str,
        messages: list[object],
        *,
        trace_id: str | None = None,
        immediate: bool = False,
    ) -> None:
        try:
            scope = scope_named(user_id, agent_name)
            self._hosting.record(scope, thread_id, messages, trace_id=trace_id, immediate=immediate)
        except Exception:  # noqa: BLE001 nobody guards an agent's middleware but this
            # No fault of memory, those are counted: a name that cannot be one, or a home that was closed.
            _log.exception("a conversation of %s cannot be recorded", agent_name or "the lead agent")

    def get_context(self, user_id: str | None, *, agent_name: str | None = None, thread_id: str | None = None) -> str:
        """Return the text to inject; in tool mode the summaries alone, for the agent searches the facts itself."""
        with translated():
            scope = scope_named(user_id, agent_name)
            with self._hosting.counted(scope, "inject"):
                return self._hosting.memory(scope).body(thread_id, facts=self.mode != "tool")

    def search(
        self,
        query: str,
        top_k: int = 5,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        category: str | None = None,
    ) -> list[Document]:
        """Return the facts most like a query, the best first, as the document states them.

        A category that is none of ours is `context`, as it is where facts are entered.
        """
        if not query or not query.strip() or top_k <= 0:
            return []
        kind = None if category is None else _category(category)
        with translated():
            scope = scope_named(user_id, agent_name)
            with self._hosting.counted(scope, "search"):
                return self._hosting.memory(scope).found(query, top_k, kind)

    # The document.

    def get_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> Document:
        """Return the document."""
        with translated():
            return self._memory(user_id, agent_name).plain()

    def export_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> Document:
        """Return the document, to keep or to import elsewhere."""
        return self.get_memory(user_id=user_id, agent_name=agent_name)

    def reload_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> Document:
        """Return the document afresh from the log; memory.json shows it then."""
        with translated():
            memory = self._memory(user_id, agent_name)
            memory.reload()
            return memory.plain()

    def import_memory(
        self, memory_data: Document, *, user_id: str | None = None, agent_name: str | None = None
    ) -> Document:
        """Make memory what a document says, and return it; what of it is refused is recorded with the reason."""
        with translated():
            memory = self._memory(user_id, agent_name)
            memory.overwrite(memory_data)
            return memory.plain()

    def clear_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> Document:
        """Empty all that a user owns or, with an agent, that agent's memory alone; the history stays, to undo it."""
        with translated():
            return self._hosting.clear(scope_named(user_id, agent_name)).plain()

    def delete_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> None:
        """Empty memory as `clear_memory` does; to erase what was in it for good there is `backstory forget`."""
        self.clear_memory(user_id=user_id, agent_name=agent_name)

    # Facts by hand.

    def create_fact(
        self,
        content: str,
        category: str = "context",
        confidence: float = 0.5,
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> tuple[Document, str | None]:
        """Enter a fact; return the document and the fact's id, None where memory is full.

        Raises:
            ValueError: "content", "confidence" or "Duplicate fact".
        """
        text, kind, sure = _content(content), _category(category), _confidence(confidence)
        with translated():
            memory = self._memory(user_id, agent_name, in_hands=True)
            try:
                added = memory.add_fact(text, kind, sure).fact.id
            except DuplicateFactError as error:
                raise ValueError(_DUPLICATE) from error
            except CapError:
                added = None
            return memory.plain(), added

    def update_fact(
        self,
        fact_id: str,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> Document:
        """Change what is given of a fact; from then on it is the person's.

        Raises:
            KeyError: there is no such fact. ValueError: "content", "confidence" or "Duplicate fact".
        """
        text = None if content is None else _content(content)
        kind = None if category is None else _category(category)
        sure = None if confidence is None else _confidence(confidence)
        with translated():
            memory = self._memory(user_id, agent_name, in_hands=True)
            try:
                memory.change(fact_id, text, kind, sure)
            except NotFoundError as error:
                raise KeyError(fact_id) from error
            except DuplicateFactError as error:
                raise ValueError(_DUPLICATE) from error
            return memory.plain()

    def delete_fact(self, fact_id: str, *, agent_name: str | None = None, user_id: str | None = None) -> Document:
        """Remove a fact.

        Raises:
            KeyError: there is no such fact.
        """
        with translated():
            memory = self._memory(user_id, agent_name, in_hands=True)
            try:
                memory.remove_fact(fact_id)
            except NotFoundError as error:
                raise KeyError(fact_id) from error
            return memory.plain()

    # The host's life.

    def shutdown_flush(self, timeout: float) -> bool:
        """Learn from what is pending, within so many seconds whatever hangs; what is left stays pending on disk."""
        return self._hosting.flush(timeout)

    def warm(self) -> bool:
        """Load the vocabulary that counts tokens; False where none is at hand and an estimate is used."""
        return self._hosting.warm()

    def warm_retrieval(self) -> bool:
        """Look after what former processes left pending; search needs no warming, its index is kept."""
        return self._hosting.resumed()

    def close(self) -> None:
        """Let go of the home; what is not learned from yet stays pending on disk."""
        self._hosting.close()

    # Off the event loop.

    async def aadd(
        self,
        thread_id: str,
        messages: list[object],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
        trace_id: str | None = None,
    ) -> None:
        """See `add`."""
        await asyncio.to_thread(
            self.add, thread_id, messages, agent_name=agent_name, user_id=user_id, trace_id=trace_id
        )

    async def aget_context(
        self, user_id: str | None, *, agent_name: str | None = None, thread_id: str | None = None
    ) -> str:
        """See `get_context`."""
        return await asyncio.to_thread(self.get_context, user_id, agent_name=agent_name, thread_id=thread_id)

    async def asearch(
        self,
        query: str,
        top_k: int = 5,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        category: str | None = None,
    ) -> list[Document]:
        """See `search`."""
        return await asyncio.to_thread(
            self.search, query, top_k, user_id=user_id, agent_name=agent_name, category=category
        )


def _content(content: str) -> str:
    text = content.strip()
    if not text:
        raise ValueError("content")
    return text


def _category(category: str) -> str:
    """DeerFlow lets a category be any word; here what is no category of ours is context, as in an import."""
    word = category.strip().casefold()
    return word if word in CATEGORIES else "context"


def _confidence(confidence: float) -> float:
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not math.isfinite(confidence):
        raise ValueError("confidence")
    if not 0 <= confidence <= 1:
        raise ValueError("confidence")
    return float(confidence)
