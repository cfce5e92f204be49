"""Recorder of agent runs: writes the messages of a run to the memory of the user who owns them.

The question is recorded at the begin of a run, before a summary, a crash or an interrupt can lose it; the answer at the
end. A message belongs to the user of the run in which it first appeared, and goes to no other user's memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import orjson
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from backstory.langchain.conversations import UNKNOWN_USER, Conversation, Conversations
from backstory.langchain.run import Run, RunState, from_tool, is_kept, is_node

if TYPE_CHECKING:
    from backstory.integrations.identity import RunIdentity
    from backstory.outbox.fail_safe import FailSafeMemory


class RunRecorder:
    """Records the conversations of an agent's runs. Safe for threads."""

    def __init__(self, fail_safe: FailSafeMemory, tags: Sequence[str] = ()) -> None:
        self._fail_safe = fail_safe
        self._tags = tags
        self._conversations = Conversations()

    def begin(self, who: RunIdentity, state: RunState, before: Run | None, config: Mapping[str, object]) -> Run:
        """Record the conversation at the begin of a run.

        Args:
            who: The scope and the thread of the run.
            state: The state of the agent.
            before: The earlier run that the state keeps.
            config: The config of the run.

        Returns:
            The run, to be kept in the state.
        """
        conversation = Conversation(state.get("messages", []))
        scope, user = who.scope, _owner_digest(who.scope.user)
        if from_tool(config):
            return Run(who.thread or "", scope.user, scope.agent, records=False)
        thread = who.thread or self._conversations.name(scope, conversation)
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
            scope.user,
            scope.agent,
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

    def end(self, run: Run, state: RunState, given: Mapping[str, object]) -> Run:
        """Record the messages that a run added, and the question again, since its text may have changed.

        The last answer notes in its metadata what it was `given` to read.
        """
        if not run.records:
            return run
        messages = state.get("messages", [])
        conversation = Conversation(messages)
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


def _by_user(conversation: Conversation, owners: Sequence[str]) -> dict[str, list[str]]:
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
