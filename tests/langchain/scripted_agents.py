"""A chat model that does what its script says and remembers what it was sent, and agents that use it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware
from backstory.ledger.core.scope import Scope

Step = str | AIMessage | BaseException | Callable[[list[BaseMessage]], "str | AIMessage"]


class Scripted(BaseChatModel):
    """Answers step by step, and `echo: …` with the user's last words when the script is over; `sent` is what it got."""

    _script: list[Step] = PrivateAttr(default_factory=list)
    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, *script: Step) -> None:
        super().__init__()
        self._script = list(script)

    @property
    def sent(self) -> list[list[BaseMessage]]:
        return self._sent

    @property
    def systems(self) -> list[str]:
        """The system message of each call, as text."""
        return [first.text if isinstance(first, SystemMessage) else "" for first, *_ in self._sent]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[object], **_: object) -> Scripted:
        return self

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        with self._lock:
            self._sent.append(list(messages))
            step = self._script.pop(0) if self._script else _echo
        if isinstance(step, BaseException):
            raise step
        said = step(messages) if callable(step) else step
        return AIMessage(said) if isinstance(said, str) else said

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(self, messages: list[BaseMessage], *_: object, **__: object) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        words = str(answer.content).split(" ")
        for n, word in enumerate(words):
            calls = answer.tool_calls if n == len(words) - 1 else []
            chunk = AIMessageChunk(
                content=word if n == 0 else f" {word}",
                tool_calls=calls,
                chunk_position="last" if n == len(words) - 1 else None,
            )
            yield ChatGenerationChunk(message=chunk)


def _echo(messages: list[BaseMessage]) -> str:
    return f"echo: {next(m.text for m in reversed(messages) if isinstance(m, HumanMessage))}"


_numbers = itertools.count(1)


def calls(*tools: str | tuple[str, dict[str, object]], text: str = "") -> AIMessage:
    """An answer that calls tools, each by its name or with arguments."""
    named = [(tool, {}) if isinstance(tool, str) else tool for tool in tools]
    return AIMessage(
        text, tool_calls=[{"name": name, "args": args, "id": f"call-{next(_numbers)}"} for name, args in named]
    )


def agent(bs: Backstory, model: Scripted | None = None, *, before=(), after=(), scope="user", **options):
    """An agent with memory; `before` and `after` are what stands around the middleware."""
    mine = BackstoryMiddleware(bs, scope=scope, **options.pop("memory", {}))
    return create_agent(model or Scripted(), middleware=[*before, mine, *after], **options)


def ask(agent, text: str, user: str | None = "ada", thread: str | None = "t", **more):
    """Run an agent with one question; returns its answer's text."""
    return run(agent, [{"role": "user", "content": text}], user, thread, **more)["messages"][-1].text


def run(agent, messages: list[object], user: str | None = "ada", thread: str | None = "t", **more):
    return agent.invoke({"messages": messages}, config(user, thread), **more)


def config(user: str | None = "ada", thread: str | None = "t", **more: object) -> dict[str, dict[str, object]]:
    named = {"user_id": user, "thread_id": thread, **more}
    return {"configurable": {name: value for name, value in named.items() if value is not None}}


def said(bs: Backstory, user: str | None = "ada", thread: str = "t", agent: str | None = None) -> list[str]:
    """What stands in a thread of a memory, as `role: words`; [] where there is no such thread."""
    memory = bs.memory_of(Scope(user, agent))
    if thread not in [known.thread for known in memory.threads()]:
        return []
    return [f"{turn.role}: {turn.content}" for turn in memory.transcript(thread)]


def threads(bs: Backstory, user: str | None = "ada") -> list[str]:
    return [known.thread for known in bs.memory_of(Scope(user)).threads()]
