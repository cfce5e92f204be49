"""Memory of runs: opens the home, identifies runs, records them and reads the block; used by middleware and nodes.

The question is recorded at the begin of a run, before a summary, a crash or an interrupt can lose it; the answer at the
end. A message belongs to the user of the run in which it first appeared, and goes to no other user's memory.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self
from uuid import uuid4

import msgspec
import orjson
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from backstory.home import Backstory
from backstory.integrations.closing import Closing
from backstory.integrations.host_memory import HostMemory
from backstory.integrations.identity import Identity, check_scope, present_config
from backstory.langchain.conversations import UNKNOWN_USER, Conversations, SpokenMessages
from backstory.langchain.run import Run, RunState, RunUpdate, from_tool, is_kept, is_node, part_of
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.ledger.text.tags import read_tags
from backstory.operations.recording import consider_warned

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.projections.context import Context


class RunRecorder:
    """Records the conversations of an agent's runs. Safe for threads."""

    def __init__(self, fail_safe: HostMemory, tags: Sequence[str]) -> None:
        self._fail_safe = fail_safe
        self._tags = tags
        self._conversations = Conversations()

    def begin(self, named: Run, state: RunState, before: Run | None, config: Mapping[str, object]) -> Run:
        """Record the conversation at the begin of a run.

        Args:
            named: The run, with its scope and its thread; the thread is empty if the run has none.
            state: The state of the agent.
            before: The earlier run that the state keeps.
            config: The config of the run.

        Returns:
            The run, to be kept in the state.
        """
        conversation = SpokenMessages(state.get("messages", []))
        scope, user = named.scope, _owner_digest(named.user)
        thread = named.thread or self._thread_of(scope, conversation)
        kept = is_kept(config)
        known = {} if before is None else before.by_id()
        # A node of a larger graph does not get the state of the run before. And in an unkept thread with several
        # users, the owner of an unknown message cannot be known.
        shared = not kept and self._conversations.is_shared(thread, user)
        earlier = UNKNOWN_USER if shared or (kept and before is None and is_node(config)) else None
        owners = self._conversations.owners(thread, conversation, known, user, earlier=earlier)
        heard = self._conversations.heard(scope, thread, conversation)
        ids = [message.id or "" for message in conversation.said]
        if not kept:
            ids[conversation.asked :] = self._conversations.ids(scope, thread, conversation)
        mine = [n for n, owner in enumerate(owners) if owner == user]
        history = [conversation.said[n] for n in mine if n < conversation.asked]
        question = [_with_id(conversation.said[n], ids[n]) for n in mine if n >= conversation.asked]
        if heard:
            history = []
        run = Run(
            thread,
            named.user,
            named.agent,
            owners=_by_user(conversation, owners),
            asked={conversation.said[n].id or "": ids[n] for n in mine if n >= conversation.asked},
            said=len(conversation.said),
            began=conversation.whole.hex(),
            alone=conversation.asked == 0,
        )
        if kept:
            recorded = self._deliver(run, [*history, *question])
        else:
            # Ids are new in each run, so earlier messages are recognised by their text alone.
            recorded = self._deliver(run, [_with_id(message, None) for message in history], sent_before=True)
            recorded = self._deliver(run, question) and recorded
        return run if recorded else msgspec.structs.replace(run, missed=True)

    def _thread_of(self, scope: Scope, conversation: SpokenMessages) -> str:
        """Return the thread of a run without one: of the conversation that it continues, or a new one."""

        def recorded() -> Sequence[str]:
            return self._fail_safe.home.memory_of(scope).find_threads(conversation.said)

        known = self._conversations.name(scope, conversation)
        if known is None and conversation.asked:
            # Another process, or an earlier one, may have recorded it.
            nothing: Sequence[str] = ()
            known = next(iter(self._fail_safe.guarded(scope, "inject", recorded, nothing)), None)
        return known or f"run-{uuid4()}"

    def end(self, run: Run, state: RunState, given: Mapping[str, object]) -> Run:
        """Record the messages that a run added, and the question again, since its text may have changed.

        The last answer notes in its metadata what it was `given` to read.
        """
        messages = state.get("messages", [])
        conversation = SpokenMessages(messages)
        user, known = _owner_digest(run.user), run.by_id()
        owners = self._conversations.added(run.thread, conversation, known, user)
        # The ids may have changed if another run got the same objects.
        began = run.said if conversation.upto(run.said).hex() == run.began else 0
        added = [
            message
            for n, message in enumerate(conversation.said)
            if message.id in run.asked or (n >= began and message.id not in known)
        ]
        lost = not known.keys() <= {message.id for message in conversation.said}
        delivered = [_with_id(message, run.asked.get(message.id or "", message.id)) for message in added]
        answer = _structured(messages, state.get("structured_response"))
        recorded = self._deliver(run, _noted([*delivered, *answer], given), immediate=lost)
        alone = bytes.fromhex(run.began) if run.alone else None
        self._conversations.answered(run.scope, run.thread, alone, conversation, heard=recorded and not run.missed)
        return msgspec.structs.replace(run, owners=_by_user(conversation, owners))

    def _deliver(
        self, run: Run, messages: Sequence[object], *, immediate: bool = False, sent_before: bool = False
    ) -> bool:
        """Record messages; return False if they are queued or lost."""
        record = self._fail_safe.record
        return not messages or (
            record(run.scope, run.thread, messages, immediate=immediate, sent_before=sent_before, tags=self._tags)
            is not None
        )


def _owner_digest(user: str | None) -> str:
    """Return a digest of a user: streams show the state, and it must not reveal the names of other users."""
    return "" if user is None else hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()[:16]


def _with_id(message: BaseMessage, key: str | None) -> BaseMessage:
    return message if message.id == key else message.model_copy(update={"id": key})


def _by_user(conversation: SpokenMessages, owners: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for message, owner in zip(conversation.said, owners, strict=True):
        if message.id:
            found.setdefault(owner, []).append(message.id)
    return found


def _noted(messages: list[BaseMessage | dict[str, object]], given: Mapping[str, object]) -> list[object]:
    """Return messages with a note in the metadata of the last answer."""
    last = next((n for n in reversed(range(len(messages))) if not isinstance(messages[n], HumanMessage)), None)
    if last is None or not given:
        return list(messages)
    answer = messages[last]
    if isinstance(answer, BaseMessage):
        held = getattr(answer, "metadata", None)
        noted: object = answer.model_copy(update={"metadata": {**(held if isinstance(held, Mapping) else {}), **given}})
    else:
        noted = {**answer, "metadata": dict(given)}
    return [*messages[:last], noted, *messages[last + 1 :]]


def _structured(messages: Sequence[BaseMessage], answer: object) -> list[dict[str, object]]:
    """Return a structured answer that was given as a tool call, as a JSON message."""
    last = messages[-1] if messages else None
    asked = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if answer is None or asked is None or not isinstance(last, ToolMessage):
        return []
    call = next((call for call in asked.tool_calls if call["id"] == last.tool_call_id), None)
    # The state may hold the answer of an earlier run. A dict has no class to compare with the name of the tool.
    if call is None or (not isinstance(answer, dict) and type(answer).__name__ != call["name"]):
        return []
    text = answer.model_dump_json() if isinstance(answer, BaseModel) else orjson.dumps(answer, default=str).decode()
    return [{"role": "assistant", "id": asked.id, "content": text}]


_log = logging.getLogger(__name__)
_RUNS = 4_096


class RunMemory:
    """The memory of the runs of one middleware, or of one pair of nodes. Safe for threads.

    Attributes:
        backstory: The home.
        by_tools: Whether the model manages memory with tools.
        fail_safe: Reads and records without raising a fault of memory.

    Args:
        owner: The name under which the state of an agent keeps a run; errors name it.
        home: An open home, or a folder, or None for the configured one.
        scope: As for `Identity`.
        user_id: As for `Identity`.
        agent_name: As for `Identity`.
        mode: `middleware` or `tool`; None for the configured one.
        max_tokens: Maximum size of a block; None for the configured one.
        record: Whether to record runs.
        tags: The tags of what is recorded, and of the facts in a block; None for all.
        model: As for `Backstory.open`.
        config: As for `Backstory.open`.
        settings: As for `Backstory.open`.

    Raises:
        ConfigError: As `Backstory.open`.
        ScopeError: A user id or an agent name is invalid, or a shared memory is forbidden.
        UsageError: `home` has the wrong type, or is open and settings are given; or a tag is none.
    """

    def __init__(
        self,
        owner: str,
        home: Backstory | str | Path | None,
        *,
        scope: MemoryScope,
        user_id: str | None,
        agent_name: str | None,
        mode: Literal["middleware", "tool"] | None,
        max_tokens: int | None,
        record: bool,
        tags: Sequence[str] | None,
        model: ModelLike | None,
        config: str | Path | Mapping[str, object] | None,
        settings: Mapping[str, object],
    ) -> None:
        check_scope(scope, strict=False)
        if mode not in (None, "middleware", "tool"):
            raise UsageError(f"mode must be middleware or tool, got {mode!r}")
        self._owner = owner
        self._identity = Identity(scope, user_id, agent_name)
        self._tags = read_tags(tags or ())
        self._closing = None
        if isinstance(home, Backstory):
            if model is not None or config is not None or settings:
                raise UsageError("the home is open already: give model, config and settings to Backstory.open")
            self.backstory = home
        elif home is None or isinstance(home, str | Path):
            opening: Callable[..., Backstory] = Backstory.open
            self.backstory = opening(home, config=config, model=model, mode=mode, **settings)
            self._closing = Closing(self.backstory)
            weakref.finalize(self, self._closing.in_background).atexit = False
        else:
            raise UsageError(f"home must be a Backstory or the folder of a home, got {type(home).__name__}")
        stated = self.backstory.config.settings
        check_scope(scope, strict=stated.strict_user_scope)
        self.by_tools = (mode or stated.mode) == "tool"
        self._records = record and not self.by_tools
        self.fail_safe = HostMemory(self.backstory, max_tokens)
        self._recorder = RunRecorder(self.fail_safe, self._tags)
        self._given: Recent[tuple[Scope, str], dict[str, object]] = Recent(_RUNS)
        """What the answers of the runs under way are given, as their turns note it."""
        if self._records and stated.enabled and self.backstory.model is None:
            _log.warning(
                "conversations are recorded in %s, but no facts are extracted, since no model is configured: set "
                "OPENAI_API_KEY, or give %s a model=, such as the agent's own",
                self.backstory.home,
                owner,
            )
            consider_warned(self.backstory.home)

    def begin(self, state: RunState, context: object) -> Run:
        """Identify the present run, and record its conversation so far.

        Args:
            state: The state of the agent.
            context: The runtime context of the run.

        Returns:
            The run, to be kept in the state.

        Raises:
            ScopeError: The run names no user.
        """
        config = present_config()
        run = self._unrecorded(context, config)
        if self._records and not from_tool(config):
            try:
                run = self._recorder.begin(run, state, Run.within(state, self._owner), config)
            except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
                self.backstory.faults.note(run.scope, "record", error)
        return run

    def end(self, state: RunState) -> RunUpdate | None:
        """Record the messages that the run added; return the state update, None if nothing has changed."""
        run = Run.within(state, self._owner)
        if run is None or not run.records:
            return None
        try:
            return self.put(self._recorder.end(run, state, self._given.pop((run.scope, run.thread), {})), state)
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self.backstory.faults.note(run.scope, "record", error)
            return None

    def put(self, run: Run, state: RunState) -> RunUpdate:
        """Return the state update that keeps a run."""
        return run.put(state, self._owner)

    def run(self, state: Mapping[str, object], context: object, config: Mapping[str, object]) -> Run:
        """Return the present run from the state; without one, a run identified by the call.

        Raises:
            ScopeError: The run names no user.
        """
        return Run.within(state, self._owner) or self._unrecorded(context, config)

    def block(self, run: Run, messages: Sequence[object]) -> Context | None:
        """Return the context block for the messages of a run, and remember what the answer of the run is given.

        It is None where memory cannot be read.
        """
        spoken = (message for message in messages if isinstance(message, HumanMessage | AIMessage))
        made = self.fail_safe.block(run.scope, spoken, run.thread or None, facts=not self.by_tools, tags=self._tags)
        self._given.put((run.scope, run.thread), {} if made is None else made.note())
        return made

    def _unrecorded(self, context: object, config: Mapping[str, object]) -> Run:
        who = self._identity.of(context, part_of(config, "configurable"))
        return Run(who.thread or "", who.scope.user, who.scope.agent, records=False)

    def close(self) -> None:
        """Retry queued deliveries, and close the home if it was opened here. A second call does nothing."""
        if self._closing is not None:
            self._closing.now()
        else:
            self.fail_safe.flush(self.backstory.config.settings.shutdown_flush_timeout_seconds)


class HasRunMemory:
    """A part of a graph that keeps memory through a RunMemory."""

    _memory: RunMemory

    @property
    def backstory(self) -> Backstory:
        """The home."""
        return self._memory.backstory

    def flush(self, timeout: float = 30.0) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self._memory.fail_safe.flush(timeout)

    def close(self) -> None:
        """Retry queued deliveries, and close the home if it was opened here. A second call does nothing."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
