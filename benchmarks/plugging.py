"""What memory costs an agent of LangChain: in a call of its model, in a turn, and where sixteen threads talk at once.

An agent with the middleware and one without answer the same words in turn, with a model that answers at once: a
conversation of twenty turns after the other, each turn about something new, with a checkpointer.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware
from backstory.ledger.text.blocks import strip_memory_blocks
from benchmarks.conversing import Message, StandIn, Talk, compared, deliver, generated, opened, real, talked
from benchmarks.injecting import FACTS, remembering
from benchmarks.rows import Row

__all__ = ["answered", "many_conversations", "plugging", "through"]

_TURNS = 20
_COLD = 2
_THREADS = 16
_WORDS = (
    *("the", "scheduling", "tool", "night", "trains", "Rust", "black", "coffee", "release", "tunnels", "Bergen"),
    *("bicycles", "short", "answers", "spring", "concert", "unit", "tests", "red", "notebook", "ferry", "wool"),
    *("sweaters", "packages", "power", "seats", "network", "fetch", "remind", "finish", "May", "question", "where"),
)

Handler = Callable[[ModelRequest], ModelResponse]
AsyncHandler = Callable[[ModelRequest], Awaitable[ModelResponse]]


def _answer(question: str) -> str:
    return f"That is {hashlib.sha256(question.encode()).hexdigest()[:8]}, which I would call a good question."


class Instant(BaseChatModel):
    """A chat model that answers at once, the same to the same words, whatever memory puts before them."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, messages: list[BaseMessage], *_args: object, **_kwargs: object) -> ChatResult:
        said = strip_memory_blocks(str(messages[-1].content)).strip()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(_answer(said)))])

    async def _agenerate(self, messages: list[BaseMessage], *_args: object, **_kwargs: object) -> ChatResult:
        return self._generate(messages)


class Span(msgspec.Struct, frozen=True):
    """Seconds that something took, by the wall and of the processor; what else runs here waits for something."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Span:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Span) -> Span:
        return Span(self.wall - other.wall, self.cpu - other.cpu)


class _Inside(AgentMiddleware):
    """Takes the time of the model's call alone."""

    took = Span(0, 0)

    def wrap_model_call(self, request: ModelRequest, handler: Handler) -> ModelResponse:
        start = Span.now()
        try:
            return handler(request)
        finally:
            self.took = Span.now() - start

    async def awrap_model_call(self, request: ModelRequest, handler: AsyncHandler) -> ModelResponse:
        start = Span.now()
        try:
            return await handler(request)
        finally:
            self.took = Span.now() - start


class _Outside(AgentMiddleware):
    """Takes the time of what stands between it and the model."""

    def __init__(self, inside: _Inside) -> None:
        super().__init__()
        self.added: list[Span] = []
        self._inside = inside

    def wrap_model_call(self, request: ModelRequest, handler: Handler) -> ModelResponse:
        start = Span.now()
        response = handler(request)
        self.added.append(Span.now() - start - self._inside.took)
        return response

    async def awrap_model_call(self, request: ModelRequest, handler: AsyncHandler) -> ModelResponse:
        start = Span.now()
        response = await handler(request)
        self.added.append(Span.now() - start - self._inside.took)
        return response


class _Timed(BackstoryMiddleware):
    """Takes its own time at both ends of a turn."""

    def __init__(self, bs: Backstory) -> None:
        super().__init__(bs, user_id="ada")
        self.began: list[Span] = []
        self.ended: list[Span] = []

    def before_agent(self, state, runtime):
        start = Span.now()
        update = super().before_agent(state, runtime)
        self.began.append(Span.now() - start)
        return update

    def after_agent(self, state, runtime):
        start = Span.now()
        update = super().after_agent(state, runtime)
        self.ended.append(Span.now() - start)
        return update

    async def abefore_agent(self, state, runtime):
        return await asyncio.to_thread(self.before_agent, state, runtime)

    async def aafter_agent(self, state, runtime):
        return await asyncio.to_thread(self.after_agent, state, runtime)


class _Agent:
    """An agent, with memory or without, and how long its runs and what is around its model's calls take."""

    def __init__(self, *memory: AgentMiddleware) -> None:
        inside = _Inside()
        self._outside = _Outside(inside)
        self._graph = create_agent(Instant(), middleware=[self._outside, *memory, inside], checkpointer=InMemorySaver())
        self.runs: list[Span] = []

    @property
    def added(self) -> list[Span]:
        return self._outside.added

    def run(self, words: str, thread: str) -> None:
        start = Span.now()
        self._graph.invoke(*_asked(words, thread))
        self.runs.append(Span.now() - start)

    async def arun(self, words: str, thread: str) -> None:
        start = Span.now()
        await self._graph.ainvoke(*_asked(words, thread))
        self.runs.append(Span.now() - start)


def _asked(words: str, thread: str) -> tuple[dict[str, object], dict[str, object]]:
    return {"messages": [HumanMessage(words)]}, {"configurable": {"thread_id": thread}}


def _questions(conversations: int, way: str) -> Iterator[tuple[str, str]]:
    """Twenty turns of each conversation, after a few to get warm with."""
    chance = random.Random(way)
    for turn in range(-_COLD, conversations * _TURNS):
        thread = f"{way}-{turn // _TURNS}"
        yield f"{' '.join(chance.choices(_WORDS, k=20))}?", thread


async def _asynchronously(agents: Sequence[_Agent], conversations: int) -> None:
    for words, thread in _questions(conversations, "async"):
        for agent in agents:
            await agent.arun(words, thread)


def plugging(conversations: int) -> Iterator[Row]:
    """Measure so many conversations of twenty turns, with and without memory of 500 facts in turn."""
    for way in ("sync", "async"):
        with tempfile.TemporaryDirectory() as folder:
            remembering(Path(folder))
            with opened(Path(folder), StandIn(), background=True, debounce_seconds=300) as bs:
                bs.warm()
                timed = _Timed(bs)
                agents = (_Agent(), _Agent(timed))
                if way == "async":
                    asyncio.run(_asynchronously(agents, conversations))
                else:
                    for words, thread in _questions(conversations, way):
                        for agent in agents:
                            agent.run(words, thread)
                assert bs.memory("ada").status().turns >= 2 * conversations * _TURNS
        yield from _rows(way, timed, *agents)


def _rows(way: str, timed: _Timed, bare: _Agent, with_memory: _Agent) -> Iterator[Row]:
    call = f"the middleware in a model call, {FACTS} facts, {way}"
    without = Span(*(statistics.median(spans) for spans in _apart(bare.added)))
    yield Row(f"{call}: adds, p50; p99", _p50_p99([span - without for span in with_memory.added]), "≤ 2 ms; ≤ 10 ms")
    yield Row("  at the end of a turn: the answer recorded, synced", _p50_p99(timed.ended), "≤ 3 ms (p50)")
    yield Row("  at its beginning: the question recorded, synced", _p50_p99(timed.began))
    yield Row("  a whole run with it", _p50_p99(with_memory.runs))
    yield Row("  a whole run without it", _p50_p99(bare.runs))


def _p50_p99(spans: Sequence[Span]) -> str:
    wall, cpu = (f"{1e3 * statistics.median(part):.2f} ms; {1e3 * _p99(part):.2f} ms" for part in _apart(spans))
    return f"{wall} ({cpu} of CPU)"


def _apart(spans: Sequence[Span]) -> tuple[list[float], list[float]]:
    """Wall and processor, without the first two: nothing is warm then."""
    return [span.wall for span in spans[_COLD:]], [span.cpu for span in spans[_COLD:]]


def _p99(part: Sequence[float]) -> float:
    return sorted(part)[int(0.99 * len(part))]


# Many at once.


def answered(talk: Talk) -> Talk:
    """Return a conversation in which the agent answers as `Instant` does, question by question."""
    messages: list[Message] = []
    for message in talk.messages:
        if message["role"] == "user":
            question = str(message["content"])
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": _answer(question)}]
    return msgspec.structs.replace(talk, messages=tuple(messages))


def through(middleware: BackstoryMiddleware) -> Callable[[Backstory, Talk], Iterator[object]]:
    """Return what has conversations through an agent, one for all of them, that keeps them with a checkpointer."""
    graph = create_agent(Instant(), middleware=[middleware], checkpointer=InMemorySaver())

    def turns(_: Backstory, talk: Talk) -> Iterator[object]:
        config = {"configurable": {"thread_id": talk.thread, "user_id": talk.user}}
        for message in talk.messages[::2]:
            yield graph.invoke({"messages": [HumanMessage(str(message["content"]))]}, config)

    return turns


def many_conversations(count: int, data: Path | None = None) -> Iterator[Row]:
    """Have so many conversations in sixteen threads, real ones where there is data, and look at every turn."""
    for users, name in ((1, "one memory"), (_THREADS, f"{_THREADS} users")):
        talks = generated(count, users) if data is None else real(data, count, users)
        yield from _many(talks, f"recorded, {name}")
    yield from _many([answered(talk) for talk in talks], f"through the middleware, {name}", agent=True)


def _many(talks: Sequence[Talk], name: str, *, agent: bool = False) -> Iterator[Row]:
    model = StandIn()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "shared", model, background=True) as bs:
        if agent:
            with BackstoryMiddleware(bs) as middleware:
                spent = talked(bs, talks, threads=_THREADS, deliver=through(middleware))
        else:
            spent = talked(bs, talks, threads=_THREADS, deliver=deliver)
        found = compared(bs, model, talks, Path(folder) / "alone")
    yield Row(
        f"{_THREADS} threads, {len(talks):,} conversations, {name}: turns lost, doubled, not shown, shown twice; "
        "threads not done with; with another memory than one thread leaves",
        f"{found.lost}, {found.doubled}, {found.unseen}, {found.seen_again}; {found.unfinished}; {found.differing}",
        "0, 0, 0, 0; 0; 0",
    )
    yield Row(
        f"  {found.turns:,} turns, {found.updates:,} updates: all said; all learned but turns that wait for more",
        f"{spent.said:.1f} s; {spent.learned:.1f} s; {found.quiet}",
    )
