"""Memory manager for DeerFlow: `manager_class: backstory.deerflow:BackstoryMemoryManager`."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Literal, Self

from pydantic import PrivateAttr

from backstory.deerflow.config import read_backend_config
from backstory.deerflow.hosting import Hosting, scope_named
from backstory.deerflow.memory import HostedMemory, PlainDocument, checked_document
from backstory.deerflow.observers import HOOKS, read_hooks
from backstory.ledger.core.errors import CapError, ConfigError
from backstory.ledger.core.policy import read_category

try:
    from deerflow.agents.memory.manager import MemoryManager

    from backstory.deerflow.errors import GatewayStart, translated
except ImportError as error:
    raise ConfigError(
        "BackstoryMemoryManager needs a DeerFlow that has memory managers, and none is installed: install DeerFlow; "
        "for older versions use `storage_class: backstory.deerflow:LedgerMemoryStorage`"
    ) from error

_log = logging.getLogger(__name__)

_PERSONS_CONFIDENCE = 0.5
_AGENTS_CONFIDENCE = 0.7


class BackstoryMemoryManager(MemoryManager):
    """Memory for DeerFlow's agents, kept as a ledger in the folder `backstory` below `storage_path`.

    The memory that DeerFlow kept there before is imported on first use, and its files stay unchanged. Agent names are
    not case-sensitive; without an agent it is the user's own memory. An agent has only its own facts, and shares the
    user's summaries.

    `add` and `add_nowait` never raise for a fault of memory: the conversation is queued. All other methods raise
    MemoryCorruptionError for a damaged log, MemoryConflictError if a retry may succeed, MemoryUnavailableError (also an
    OSError) if the store cannot be reached, ValueError for an invalid request and KeyError for an unknown fact.
    """

    supports_search: ClassVar[bool] = True

    _hosting: Hosting = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Open the home. Hooks are removed from `backend_config`, which holds plain data afterwards.

        Raises:
            ConfigError: A value is out of range, or a hook is invalid.
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
        """Create a manager from configuration and the host's hooks; a hook in `backend_config` overrides the host's.

        Raises:
            ConfigError: A value is out of range, or a hook is invalid.
            SystemExit: The same while DeerFlow's gateway starts, which would survive any other error without memory.
        """
        given = dict(backend_config or {})
        for name in HOOKS:
            if name != "callbacks" and given.get(name) is None and host_hooks.get(name) is not None:
                given[name] = host_hooks[name]
        with GatewayStart.stopped_by_wrong_values():
            return cls.model_validate({"backend_config": given, "mode": mode, "callbacks": host_hooks.get("callbacks")})

    def _memory(self, user_id: str | None, agent_name: str | None) -> HostedMemory:
        return self._hosting.memory(scope_named(user_id, agent_name))

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
        """Record a conversation, for extraction after `debounce_seconds` without new messages."""
        self._record(user_id, agent_name, thread_id, messages, trace_id=trace_id)

    def add_nowait(
        self, thread_id: str, messages: list[object], *, agent_name: str | None = None, user_id: str | None = None
    ) -> None:
        """Record a conversation for immediate extraction, as before the agent drops messages."""
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
        except Exception:  # noqa: BLE001 an error here would break the agent's run
            # Faults of memory are handled further in; this is an invalid name or a closed home.
            _log.exception("a conversation of %s cannot be recorded", agent_name or "the lead agent")

    def get_context(self, user_id: str | None, *, agent_name: str | None = None, thread_id: str | None = None) -> str:
        """Return the context block; in tool mode only its summaries, since the agent searches the facts itself."""
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
    ) -> list[PlainDocument]:
        """Return the facts most like a query, best first, in the form of the document."""
        if not query or not query.strip() or top_k <= 0:
            return []
        kind = None if category is None else read_category(category)
        with translated():
            scope = scope_named(user_id, agent_name)
            with self._hosting.counted(scope, "search"):
                return self._hosting.memory(scope).found(query, top_k, kind)

    # The document.

    def get_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> PlainDocument:
        """Return the document."""
        with translated():
            return self._memory(user_id, agent_name).plain()

    def export_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> PlainDocument:
        """Return the document, for a backup or an import elsewhere."""
        return self.get_memory(user_id=user_id, agent_name=agent_name)

    def reload_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> PlainDocument:
        """Read the log again, update memory.json and return the document."""
        with translated():
            memory = self._memory(user_id, agent_name)
            memory.reload()
            return memory.plain()

    def import_memory(
        self, memory_data: PlainDocument, *, user_id: str | None = None, agent_name: str | None = None
    ) -> PlainDocument:
        """Replace memory by a document, and return the result; refused items are recorded with the reason.

        If the logs are damaged they are moved aside, and `movedAside` of the result names the files.
        """
        with translated():
            scope = scope_named(user_id, agent_name)
            # Nothing is moved aside for a document that is none.
            checked_document(memory_data)

            def replaced() -> PlainDocument:
                memory = self._hosting.memory(scope)
                memory.overwrite(memory_data)
                return memory.plain()

            return self._hosting.beyond_damage(scope, replaced)

    def clear_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> PlainDocument:
        """Clear all memories of a user or, with an agent, only that agent's. The history stays and can be restored.

        If logs are damaged they are moved aside, and `movedAside` of the result names the files.
        """
        with translated():
            scope = scope_named(user_id, agent_name)
            return self._hosting.beyond_damage(
                scope, lambda: self._hosting.clear(scope).plain(), whole_user=scope.agent is None
            )

    def delete_memory(self, *, user_id: str | None = None, agent_name: str | None = None) -> None:
        """Clear memory as `clear_memory` does. To erase its content use `backstory forget`."""
        self.clear_memory(user_id=user_id, agent_name=agent_name)

    # Single facts, changed by a person or by an agent's tool.

    def create_fact(
        self,
        content: str,
        category: str = "context",
        confidence: float | None = None,
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> tuple[PlainDocument, str | None]:
        """Add a fact; return the document and the id of the fact.

        An agent's fact competes for room under the rules for facts of a model. A person's fact is kept as entered by
        hand; if memory is full of such facts, the id is None, from which DeerFlow's gateway makes an answer. Without a
        confidence it is DeerFlow's: 0.5 for a person's fact, and 0.7 for an agent's, as of its tool.

        Raises:
            ValueError: "content", "confidence" or "Duplicate fact"; or, in words for the agent, why it is refused.
        """
        text, kind = _content(content), read_category(category)
        stated = None if confidence is None else _confidence(confidence)
        with translated():
            memory = self._hosting.memory_to_change(scope_named(user_id, agent_name))
            unstated = _AGENTS_CONFIDENCE if memory.is_by_model else _PERSONS_CONFIDENCE
            sure = unstated if stated is None else stated
            try:
                added = memory.add_fact(text, kind, sure).fact.id
            except CapError as error:
                if memory.is_by_model:
                    raise
                _log.warning("a fact for %s was not stored: %s", memory.scope, error)
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
    ) -> PlainDocument:
        """Change the given parts of a fact. If a person changes it, no model changes it afterwards.

        Raises:
            KeyError: There is no such fact.
            ValueError: "content", "confidence" or "Duplicate fact"; or, in words for the agent, why it may not do so.
        """
        text = None if content is None else _content(content)
        kind = None if category is None else read_category(category)
        sure = None if confidence is None else _confidence(confidence)
        with translated(fact_id):
            memory = self._hosting.memory_to_change(scope_named(user_id, agent_name))
            memory.change(fact_id, text, kind, sure)
            return memory.plain()

    def delete_fact(self, fact_id: str, *, agent_name: str | None = None, user_id: str | None = None) -> PlainDocument:
        """Remove a fact.

        Raises:
            KeyError: There is no such fact.
            ValueError: An agent asks, and a person entered the fact.
        """
        with translated(fact_id):
            memory = self._hosting.memory_to_change(scope_named(user_id, agent_name))
            memory.remove_fact(fact_id)
            return memory.plain()

    # The host's life.

    def shutdown_flush(self, timeout: float) -> bool:
        """Extract from all pending turns within `timeout` seconds; return whether none is left."""
        return self._hosting.flush(timeout)

    def warm(self) -> bool:
        """Load the vocabulary that counts tokens; return False if only an estimate is available."""
        return self._hosting.warm()

    def warm_retrieval(self) -> bool:
        """Wait until pending turns of earlier processes are scheduled. The search index needs no warming."""
        return self._hosting.resumed()

    def close(self) -> None:
        """Close the home; pending turns stay on disk."""
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
    ) -> list[PlainDocument]:
        """See `search`."""
        return await asyncio.to_thread(
            self.search, query, top_k, user_id=user_id, agent_name=agent_name, category=category
        )


def _content(content: str) -> str:
    text = content.strip()
    if not text:
        raise ValueError("content")
    return text


def _confidence(confidence: float) -> float:
    # A NaN fails the comparison.
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ValueError("confidence")
    return float(confidence)
