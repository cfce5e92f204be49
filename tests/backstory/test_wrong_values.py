"""What the Python door is given and cannot use is told in words, by an error of ours, and so in the async twins."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeClock, exchange, open_home, reply
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from backstory.checks import messages_in, whole
from backstory.home import Backstory
from backstory.ledger.core.errors import InputError, NotFoundError, UsageError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

HUGE = 10**30
ENDLESS = 10**5000
Call = tuple[str, tuple[object, ...], dict[str, object], str]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path / "home", embedding_model="none") as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    memory = home.memory("ada")
    memory.record("t1", exchange("tea"))
    memory.extract([RecordedReply("t1", reply("Likes tea"))])
    memory.add_fact("Likes coffee")
    return memory


def calls(name: str, values: tuple[object, ...], told: str, key: str | None = None, *args: object) -> list[Call]:
    """One call for each wrong value, given by place, or by the name of a parameter behind `args`."""
    return [(name, (value,) if key is None else args, {} if key is None else {key: value}, told) for value in values]


NO_TEXT = (5, b"t1", 1.5, [], {})
NO_COUNT = ("3", 1.5, math.nan, True, b"1", [], -1, HUGE, ENDLESS)
NO_TIME = (5.5, b"2026", True, [], "soon", "", "2026-13-01", math.nan)
NO_MOMENT = (1.5, b"1", True, [], "soon", "", math.nan)
NO_MESSAGES = (5, 1.5, b"hello", {"role": "user", "content": "hi"}, {}, SimpleNamespace(role="user", content="hi"))

HANDLE: list[Call] = [
    *calls("document", NO_MOMENT, "at must be a commit"),
    *calls("rollback", (None, *NO_MOMENT), "to must be a commit"),
    *calls("diff", NO_MOMENT, "b must be a commit", "b", 1),
    *calls("revert", (None, 1.5, b"1", [], "soon", ""), "the commit to undo must be given by its number, HEAD"),
    *calls("why", (None, *NO_TEXT), "fact_id must be a string, got"),
    *calls("log", NO_TEXT, "fact_id must be a string, got", "fact"),
    *calls("log", NO_COUNT, "limit must be a whole number", "limit"),
    *calls("log", NO_TEXT, "thread must be a string, got", "thread"),
    *calls("flush", (None, "3", -1, math.nan, True), "timeout must be a number from 0"),
    *calls("forget", NO_TEXT, "fact_id must be a string, got", "fact_id"),
    *calls("forget", NO_TEXT, "thread_id must be a string, got", "thread_id"),
    *calls("forget", NO_TEXT, "matching must be a string, got", "matching"),
    *(call for name in ("transcript", "discard") for call in calls(name, NO_TEXT, "thread must be a string, got")),
    *(call for name in ("retry", "extract") for call in calls(name, NO_TEXT, "thread must be a string, got", "thread")),
    *calls("why_not", (None, *NO_TEXT), "text must be a string, got"),
    *calls("add_fact", (None, *NO_TEXT), "content must be a string, got"),
    *calls("edit_fact", NO_TEXT, "content must be a string, got", "content", "fact_2_0"),
    *calls("search", (None, *NO_TEXT), "query must be a string, got"),
    *calls("search", (*NO_COUNT, 0), "top_k must be a whole number", "top_k", "tea"),
    *calls("search", NO_TEXT, "thread must be a string, got", "thread", "tea"),
    *calls("search", (*NO_TIME, 5, HUGE), "since must be a time, such as", "since", "tea"),
    *calls("search", (*NO_TIME, 5, HUGE), "until must be a time, such as", "until", "tea"),
    *calls(
        "search",
        ("x", math.nan, True, 1.5, -2, [], ENDLESS),
        "min_similarity must be a number from -1 to 1",
        "min_similarity",
        "a",
    ),
    *calls("search", NO_TEXT, "category must be a string, got", "category", "tea"),
    *calls("search", (5, None, []), "facts or turns", "within", "tea"),
    *calls("context", NO_MESSAGES, "must be a list of messages"),
    *calls("context", NO_TEXT, "thread must be a string, got", "thread"),
    *calls("context", (*NO_COUNT, 0), "max_tokens must be a whole number of tokens", "max_tokens"),
    *calls("graph", NO_TEXT, "fact must be a string, got", "fact"),
    *calls("graph", NO_TEXT, "thread must be a string, got", "thread"),
    *calls("graph", (*NO_COUNT, 0, None), "limit must be a whole number", "limit"),
    *calls("graph", (*NO_TIME, HUGE, ENDLESS, -1), "(commit|since must be)", "since"),
    *calls("message_flow", NO_TEXT, "thread must be a string, got", "thread"),
    *calls("message_flow", (*NO_COUNT, 0, None), "limit must be a whole number", "limit"),
    *calls("message_flow", (*NO_TIME, HUGE, 1), "(commit|since must be)", "since"),
]

TURNS: list[Call] = [
    *calls("get", (None, *NO_COUNT), "k must be .* newest turns"),
    *calls("get_by_position", (None, "1", 1.5, math.nan, True, [], HUGE), "position must be a whole number"),
    *calls("get_by_id", (None, *NO_TEXT), "turn_id must be a string, got"),
    *calls("get_by_role", (None, *NO_TEXT), "role must be a string, got"),
    *calls("get_by_content", (None, *NO_TEXT), "content must be a string, got"),
    *calls("try_remember", (None, *NO_TEXT), "keyword must be a string, got"),
    *calls("get_by_actions", (None, 5, b"x", {}, 1.5, int), "actions must be a list of names"),
    *calls("addressed_to", (None, *NO_TEXT), "name must be a string, got"),
    *calls("find_news", (None, "hello", *NO_MESSAGES), "must be a list of messages"),
    *calls("find_news", (None, *NO_COUNT), "k must be .* newest turns", "k", []),
    *calls("add_batch", (None, "hello", *NO_MESSAGES), "must be a list of messages"),
    *calls("add_batch", NO_TEXT, "thread must be a string, got", "thread", exchange("tea")),
    *calls("add", (None, 5, "hello"), "a message must be a dict"),
    *calls("add", NO_TEXT, "thread must be a string, got", "thread", exchange("tea")[0]),
    *calls("delete", (None, 5, "hello"), "a message must be a dict"),
]

VIEWS: list[Call] = [
    *calls("view", NO_COUNT, "bound must be .* newest turns", "bound"),
    *calls("view", NO_TEXT, "thread must be a string, got", "thread"),
    *calls("view", ("yes", 1, []), "ignore_id must be True or False", "ignore_id"),
    *calls("of", (None, *NO_TEXT), "thread must be a string, got"),
]


def made(door: object, name: str, args: tuple[object, ...], more: dict[str, object]) -> object:
    called = getattr(door, name)(*args, **more)
    return asyncio.run(called) if inspect.iscoroutine(called) else called


def check(door: object, call: Call, *, twin: bool) -> None:
    name, args, more, told = call
    with pytest.raises(UsageError, match=told) as caught:
        made(door, f"a{name}" if twin else name, args, more)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_every_wrong_value_of_the_handle_is_told(memory: MemoryHandle) -> None:
    before = memory.head()
    for call in HANDLE:
        check(memory, call, twin=False)
        check(memory, call, twin=True)
    assert memory.head() == before


def test_every_wrong_value_of_the_turns_is_told(memory: MemoryHandle) -> None:
    before = memory.turns.get()
    for call in TURNS:
        check(memory.turns, call, twin=False)
        check(memory.turns, call, twin=True)
    for call in VIEWS:
        check(memory.turns, call, twin=False)
    assert memory.turns.get() == before


@pytest.mark.parametrize("given", [None, "hello", *NO_MESSAGES])
def test_what_is_no_list_of_messages_is_not_recorded(memory: MemoryHandle, given: object) -> None:
    with pytest.raises(InputError, match="must be a list of messages"):
        memory.record("t2", given)  # type: ignore[arg-type]
    assert [thread.thread for thread in memory.threads()] == ["t1"]


class Fields(BaseModel):
    """As many messages are: what goes through it meets its fields."""

    role: str = "user"
    content: str = "hi"


def test_a_message_whose_fields_can_be_gone_through_is_no_list(memory: MemoryHandle) -> None:
    with pytest.raises(InputError, match="list of messages, got a single object"):
        memory.record("t2", Fields())
    assert memory.record("t2", [Fields()]).turns == 1


def test_where_nothing_is_injected_wrong_use_is_told_all_the_same(tmp_path: Path) -> None:
    with open_home(tmp_path, injection_enabled=False) as bs, pytest.raises(InputError, match="list of messages"):
        bs.memory(scope="global").context(5)  # type: ignore[arg-type]


def test_anything_that_can_be_gone_through_is_a_list_of_messages(memory: MemoryHandle) -> None:
    said = exchange("violin", 9)
    assert memory.record("t2", (message for message in said)).turns == 2
    assert messages_in(iter([1, None])) == [1, None]
    assert memory.context(iter(said)).facts
    assert memory.turns.find_news(tuple(said)) == []
    assert memory.turns.get_by_actions("Plan") == memory.turns.get_by_actions({"Plan"}) == []


def test_numbers_that_are_far_too_large_but_can_be_counted_ask_for_all(memory: MemoryHandle) -> None:
    many = 10**18 - 1
    assert len(memory.search("likes", top_k=many)) == len(memory.facts()) == 2
    assert memory.context(max_tokens=many).left_out == 0
    assert memory.graph(limit=many) == memory.graph()
    assert memory.turns.get(many) == memory.turns.view(bound=many).get() == memory.turns.get()
    assert memory.turns.get_by_position(many) is memory.turns.get_by_position(-many) is None
    assert memory.graph(since=many).nodes == ()


# Times.


def test_a_graph_begins_at_a_time_however_it_is_given(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("Likes tea")
        clock.advance(86_400)
        memory.add_fact("Likes coffee")
        now = clock.now()
        assert memory.graph(since=now) == memory.graph(since=spell_moment(now)) != memory.graph()
        assert memory.graph(since=now).nodes == memory.graph(since=3).nodes
        assert asyncio.run(memory.agraph(since=now)) == memory.graph(since=now)


@given(value=st.integers())
def test_a_whole_number_is_returned_or_told(value: int) -> None:
    if 1 <= value < 10**18:
        assert whole("k", value, 1) == value
    else:
        with pytest.raises(UsageError, match="k must be "):
            whole("k", value, 1)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-03-02", "2026-03-01"),
        ("2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"),
        ("2026-03-02T00:00:00+02:00", "2026-03-01T22:00:00Z"),
        (date(2026, 3, 2), datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("within", ["facts", "turns"])
def test_a_span_with_nothing_in_it_is_wrong_use(memory: MemoryHandle, since, until, within) -> None:
    with pytest.raises(UsageError, match="until must be later than since"):
        memory.search("tea", since=since, until=until, within=within)


# Threads.


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_a_thread_that_is_not_there_is_not_searched(memory: MemoryHandle, within) -> None:
    with pytest.raises(NotFoundError, match="there is no thread nope"):
        memory.search("tea", thread="nope", within=within)
    with pytest.raises(NotFoundError, match="no thread nope"):
        asyncio.run(memory.asearch("tea", thread="nope", within=within))
    assert not memory.search("xylophone", thread="t1", within=within)


def test_sources_that_are_no_threads_are_there_for_facts_alone(home: Backstory, memory: MemoryHandle) -> None:
    assert not memory.search("xylophone", thread="manual")
    assert not memory.search("xylophone", thread="import")
    assert not home.memory("bob").search("tea", thread="manual")
    with pytest.raises(NotFoundError):
        memory.search("tea", thread="manual", within="turns")


def test_a_source_whose_turns_are_elsewhere_is_there_as_long_as_a_fact_is(memory: MemoryHandle) -> None:
    said = {"content": "Plays chess", "category": "context", "confidence": 0.9, "source": "old", "id": "fact_old"}
    memory.import_document({"version": "1.0", "facts": [said]})
    (fact,) = [fact for fact in memory.facts() if fact.content == "Plays chess"]
    assert fact.source == "old"
    assert [hit.id for hit in memory.search("chess", thread="old")] == [fact.id]
    assert not memory.search("xylophone", thread="old")
    with pytest.raises(NotFoundError):
        memory.search("chess", thread="old", within="turns")
    memory.remove_fact(fact.id)
    with pytest.raises(NotFoundError):
        memory.search("chess", thread="old")


def test_an_agent_that_reads_its_users_facts_knows_both_their_threads(home: Backstory, memory: MemoryHandle) -> None:
    agent = home.memory("ada", "coder")
    agent.record("mine", exchange("rust"))
    memory.record("t2", exchange("said, and not learned from"))
    assert [hit.content for hit in agent.search("tea", thread="t1")] == ["Likes tea"]
    assert not agent.search("xylophone", thread="t1")
    assert not agent.search("tea", thread="t2")
    assert not agent.search("tea", thread="mine")
    with pytest.raises(NotFoundError):
        agent.search("tea", thread="nope")
    with pytest.raises(NotFoundError):
        agent.search("tea", thread="t1", within="turns")


def test_a_conversation_may_ask_for_a_block_before_it_begins(memory: MemoryHandle) -> None:
    assert memory.context(thread="new").text == memory.context().text
