"""Session of the OpenAI Agents SDK that records what another session keeps, and reads memory for its runs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

from agents import OpenAIConversationsSession, SessionSettings, TResponseInputItem
from agents.memory import Session
from agents.run_config import CallModelData, ModelInputData

from backstory.home import Backstory
from backstory.integrations.host_memory import HostMemory
from backstory.integrations.identity import check_scope, id_text
from backstory.integrations.prompt_block import GAP, text_after_block, text_with_block
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import NotFoundError, ScopeError, UsageError
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.ledger.threads.delivery.turn_match import Said

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept
    from backstory.projections.turns import TurnView

_T = TypeVar("_T")

_SPOKEN = ("user", "assistant")


class BackstorySession:
    """A conversation of one user: wraps any session of the SDK, which keeps the history, and records what is said.

    Give it to a run twice, as the session and as the filter of the model's input:

        session = BackstorySession(SQLiteSession("thread-1", "chats.db"), bs, user_id="ada")
        config = RunConfig(call_model_input_filter=session.add_memory)
        result = await Runner.run(agent, "Where do I live?", session=session, run_config=config)

    The id of the session is the thread. A fault of memory is logged, counted and shown by `status`, and never breaks a
    run; a fault of the wrapped session is raised as always. What is not part of the protocol of sessions, such as
    compaction, is the wrapped session's.

    Attributes:
        session_id: The id of the wrapped session.
        session_settings: The settings of the wrapped session.
    """

    def __init__(
        self,
        session: Session,
        home: Backstory,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        scope: MemoryScope = "user",
        max_tokens: int | None = None,
        record: bool = True,
    ) -> None:
        """Wrap a session.

        Args:
            session: Keeps the history. An `OpenAIConversationsSession` cannot be wrapped.
            home: An open home. One serves any number of sessions.
            user_id: The user who speaks.
            agent_name: Gives this agent its own memory.
            scope: "user" for the user's memory, "global" for one memory of all users.
            max_tokens: Maximum size of the context block. Default: the configuration's.
            record: Whether to record. Turn it off where no person writes the input.

        Raises:
            ScopeError: There is no user id, a name is invalid, or a shared memory is forbidden.
            UsageError: A value has the wrong type.
        """
        self._memory = HostMemory(home, max_tokens)
        if isinstance(session, OpenAIConversationsSession):
            raise UsageError(
                "an OpenAIConversationsSession cannot be wrapped, since the SDK treats it by its class: call "
                "memory.record(…) after the run, or use another session"
            )
        if not hasattr(session, "session_id"):
            raise UsageError(
                f'session must be a session of the SDK, such as SQLiteSession("thread-1"), got {type(session).__name__}'
            )
        check_scope(scope, strict=home.config.settings.strict_user_scope)
        user = id_text("user_id", user_id)
        if scope == "user" and user is None:
            raise ScopeError(
                "this session has no user id: give BackstorySession a user_id=; for one memory of all users use "
                'scope="global"'
            )
        self._scope = Scope.of(user if scope == "user" else None, id_text("agent_name", agent_name))
        self._session = session
        self._thread = bounded_name(session.session_id)
        self._records = record
        self._given: dict[str, object] = {}
        """What the answer of the run under way is given, as its turn notes it."""
        self.session_id: str = session.session_id
        self.session_settings: SessionSettings | None = getattr(session, "session_settings", None)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the history that the wrapped session keeps.

        Args:
            limit: How many of the newest items. Default: as the wrapped session.
        """
        return await self._session.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the wrapped session, and record the messages among them. They are durable on return.

        Every one is new, also one that says the same as another before.

        Args:
            items: Messages, calls of tools, their results, reasoning. Only words of the user and answers are recorded.
        """
        await _to_its_end(self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item from the wrapped session. Its turn no longer stands: nothing is learned from it.

        Facts that were learned from it before stay; `revert` undoes them.
        """
        return await _to_its_end(self._pop())

    async def clear_session(self) -> None:
        """Clear the wrapped session, to begin anew. Memory stays; `forget` erases a thread."""
        await self._session.clear_session()

    async def add_memory(self, data: CallModelData[object]) -> ModelInputData:
        """Return the input of a model with the context block.

        What stands goes to the end of the instructions, what a question finds directly before the newest question. It
        replaces an earlier block. Give it to `RunConfig(call_model_input_filter=…)`, or call it in a filter of your
        own.

        Args:
            data: What the SDK is about to send.
        """
        sent = data.model_data
        # Other items do not show the topic, and may be unreadable.
        spoken = filter(_is_spoken, sent.input)
        block = await run_in_thread(self._memory.block, self._scope, spoken, self._thread)
        if block is None:
            return sent
        self._given = block.note()
        asked = _with_found(sent.input, block.found) if block.found else None
        instructions = text_with_block(sent.instructions or "", block.text if asked is None else block.standing)
        return dataclasses.replace(
            sent, instructions=instructions or None, input=sent.input if asked is None else asked
        )

    def flush(self, timeout: float = 30.0) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self._memory.flush(timeout)

    def __getattr__(self, name: str) -> object:
        # Not through `self`, since a copy that is being made has no session yet.
        return getattr(object.__getattribute__(self, "_session"), name)

    async def _add(self, items: list[TResponseInputItem]) -> None:
        await self._session.add_items(items)
        if self._records:
            await run_in_thread(self._record, list(items))

    async def _pop(self) -> TResponseInputItem | None:
        item = await self._session.pop_item()
        if item is not None and self._records:
            await run_in_thread(self._withdraw, item)
        return item

    def _record(self, items: list[TResponseInputItem]) -> None:
        try:
            # Ids of the SDK are no proof: some models give the same id to every answer.
            messages = [{**item, "id": uuid4().hex} if _is_spoken(item) else item for item in items]
            answer = next((n for n in reversed(range(len(items))) if _role(items[n]) == "assistant"), None)
            if answer is not None and self._given:
                messages[answer] = {**messages[answer], "metadata": self._given}
        except Exception as error:  # noqa: BLE001 a fault of memory must not break a run
            self._memory.home.faults.note(self._scope, "record", error)
            return
        self._memory.record(self._scope, self._thread, messages)

    def _withdraw(self, item: TResponseInputItem) -> None:
        found: list[TurnView] = []

        def withdraw(kept: Kept) -> None:
            turns = self._memory.home.memory_of(self._scope).turns.of(self._thread)
            # Items are taken from the end, so the turn is the newest one, or the item was never recorded. After an
            # attempt that failed, and may have been written, it is the same turn.
            newest = found or turns.get(1)
            if newest and newest[0].role == kept.role and newest[0].content in Said.of(kept).forms:
                found[:] = newest
                with suppress(NotFoundError):
                    turns.delete(newest[0])

        self._memory.take_back(self._scope, self._thread, item, withdraw)


def _role(item: object) -> object:
    return item.get("role") if isinstance(item, Mapping) else None


def _is_spoken(item: object) -> bool:
    return _role(item) in _SPOKEN


def _with_found(items: list[TResponseInputItem], found: str) -> list[TResponseInputItem] | None:
    """Return items with this part of a block before the newest question; None where there is none to put it before."""
    for n in reversed(range(len(items))):
        item = items[n]
        if _role(item) != "user" or not isinstance(item, Mapping):
            continue
        content = item.get("content")
        if isinstance(content, str):
            changed: object = {**item, "content": text_after_block(content, found)}
        elif isinstance(content, list):
            changed = {**item, "content": [{"type": "input_text", "text": f"{found}{GAP}"}, *content]}
        else:
            return None
        return [*items[:n], cast("TResponseInputItem", changed), *items[n + 1 :]]
    return None


async def _to_its_end(change: Coroutine[object, object, _T]) -> _T:
    """Make a change of the history and of memory as one, also where the run is cancelled in between."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # it is seen: the cancellation is what the run raises
        raise
