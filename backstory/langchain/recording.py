"""What of an agent's conversation goes into whose memory, and when.

The question is recorded when a run begins, so that it is safe whatever a summary, a crash or an interrupt does later,
and the answer when it ends. Each message belongs to the user in whose run it was first seen, and goes into no other
user's memory, whoever takes part in the thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import orjson
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import BaseModel

from backstory.langchain.conversations import NOBODY, Conversation, Conversations
from backstory.langchain.run import Run, RunState, from_tool, is_kept, is_node

if TYPE_CHECKING:
    from backstory.langchain.identity import Who
    from backstory.outbox.fail_safe import FailSafeMemory

__all__ = ["Recorder"]


class Recorder:
    """Takes in the conversations of an agent's runs; safe for threads."""

    def __init__(self, deliveries: FailSafeMemory) -> None:
        self._deliveries = deliveries
        self._conversations = Conversations()

    def begin(self, who: Who, state: RunState, before: Run | None, config: Mapping[str, object]) -> Run:
        """Record what stands in an agent's state as a run begins; `before` is the run that the state keeps."""
        talk = Conversation(state.get("messages", []))
        scope, user = who.scope, _owner(who.scope.user)
        if from_tool(config):
            return Run(who.thread or "", scope.user, scope.agent, records=False)
        thread = who.thread or self._conversations.name(scope, talk)
        kept = is_kept(config)
        known = {} if before is None else before.by_id()
        # To a node of a larger graph LangGraph gives nothing that it kept of the run before; and where several users
        # have spoken in a thread that nobody keeps, words that this process does not know may be anybody's.
        shared = not kept and self._conversations.is_shared(thread, user)
        earlier = NOBODY if shared or (kept and before is None and is_node(config)) else None
        owners = self._conversations.owners(thread, talk, known, user, earlier=earlier)
        heard = self._conversations.heard(scope, thread, talk)
        ids = [message.id or "" for message in talk.said]
        if not kept:
            ids[talk.asked :] = self._conversations.ids(scope, thread, talk)
        mine = [n for n, owner in enumerate(owners) if owner == user]
        before_it = [talk.said[n] for n in mine if n < talk.asked]
        question = [_under(talk.said[n], ids[n]) for n in mine if n >= talk.asked]
        if heard:
            before_it = []
        run = Run(
            thread,
            scope.user,
            scope.agent,
            owners=_by_user(talk, owners),
            asked={talk.said[n].id or "": ids[n] for n in mine if n >= talk.asked},
            said=len(talk.said),
            began=talk.whole.hex(),
            alone=talk.asked == 0,
        )
        if kept:
            came = self._deliver(run, [*before_it, *question])
        else:
            # Ids are new in every run: what was said before is known by its words alone.
            came = self._deliver(run, [_under(message, None) for message in before_it], sent_before=True)
            came = self._deliver(run, question) and came
        return run if came else msgspec.structs.replace(run, missed=True)

    def end(self, run: Run, state: RunState) -> Run:
        """Record what a run has added, and the question again: something may have changed its words."""
        if not run.records:
            return run
        messages = state.get("messages", [])
        talk = Conversation(messages)
        user, known = _owner(run.user), run.by_id()
        owners = self._conversations.added(run.thread, talk, known, user)
        # Their ids may have changed, where another run was given the same objects.
        began = run.said if talk.upto(run.said).hex() == run.began else 0
        added = [
            message
            for n, message in enumerate(talk.said)
            if message.id in run.asked or (n >= began and message.id not in known)
        ]
        lost = not known.keys() <= {message.id for message in talk.said}
        delivered = [_under(message, run.asked.get(message.id or "", message.id)) for message in added]
        answer = _structured(messages, state.get("structured_response"))
        came = self._deliver(run, [*delivered, *answer], immediate=lost)
        alone = bytes.fromhex(run.began) if run.alone else None
        self._conversations.answered(run.scope, run.thread, alone, talk, heard=came and not run.missed)
        return msgspec.structs.replace(run, owners=_by_user(talk, owners))

    def _deliver(
        self, run: Run, messages: Sequence[object], *, immediate: bool = False, sent_before: bool = False
    ) -> bool:
        """Hand messages over; False where they are not recorded yet, and may never be."""
        if not messages:
            return True
        return (
            self._deliveries.record(run.scope, run.thread, messages, immediate=immediate, sent_before=sent_before)
            is not None
        )


def _owner(user: str | None) -> str:
    """Whose a message is, in a state that streams show: one user of a thread is not told the others' names."""
    return "" if user is None else hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()[:16]


def _under(message: BaseMessage, key: str | None) -> BaseMessage:
    return message if message.id == key else message.model_copy(update={"id": key})


def _by_user(talk: Conversation, owners: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for message, owner in zip(talk.said, owners, strict=True):
        if message.id:
            found.setdefault(owner, []).append(message.id)
    return found


def _structured(messages: Sequence[BaseMessage], answer: object) -> list[dict[str, object]]:
    """The answer of an agent that answers in a structure by a call of a tool: as JSON, for nothing else says it."""
    last = messages[-1] if messages else None
    asked = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if answer is None or asked is None or not isinstance(last, ToolMessage):
        return []
    call = next((call for call in asked.tool_calls if call["id"] == last.tool_call_id), None)
    # An answer may be left from an earlier run; a structure without a class of its own has any name.
    if call is None or (not isinstance(answer, dict) and type(answer).__name__ != call["name"]):
        return []
    return [{"role": "assistant", "id": asked.id, "content": _as_json(answer)}]


def _as_json(answer: object) -> str:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    return orjson.dumps(answer, default=str).decode()
