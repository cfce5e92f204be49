"""Search as people use it: what is found, what is not, in what order, and that it is true at the moment of asking."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from fakes import FakeClock, exchange, open_home, reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import RefusedError, UsageError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.search.results import Found

DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bs(home: Path, clock: FakeClock) -> Iterator[Backstory]:
    with open_home(home, clock=clock, embedding_model="none") as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


def texts(found: Iterable[object]) -> list[str]:
    return [hit.content for hit in found]


def said(content: str, **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


def learn(memory: MemoryHandle, thread: str, *facts: str) -> None:
    memory.record(thread, exchange(thread), mode="append")
    memory.extract([RecordedReply(thread, reply(*facts))])


# What is found.


def test_a_fact_is_found_by_its_words_with_what_is_known_of_it(memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin", "Lives in Oslo")
    (hit,) = memory.search("violin")
    fact = memory.facts()[0]
    assert (hit.id, hit.content, hit.category, hit.confidence) == (fact.id, "Plays the violin", "context", 0.9)
    assert (hit.created_at, hit.source, hit.by_hand) == (fact.created_at, "t1", False)
    assert (hit.thread, hit.why) == (None, None)
    assert hit.score > 0


def test_a_turn_is_found_with_where_and_when_and_by_whom_it_was_said(memory: MemoryHandle) -> None:
    memory.record("t1", [said("I play the violin.", id="m1", name="Ada", at="2026-01-02T03:04:05Z")])
    memory.record("t2", exchange("tea"))
    (hit,) = memory.search("violin", within="turns", top_k=1)
    assert (hit.id, hit.content, hit.thread, hit.n) == ("m1", "I play the violin.", "t1", 1)
    assert (hit.role, hit.name, hit.at) == ("user", "Ada", "2026-01-02T03:04:05.000000Z")
    assert (hit.category, hit.confidence, hit.source) == (None, None, None)


def test_the_best_come_first_and_no_more_than_were_asked_for(memory: MemoryHandle) -> None:
    for text in ("Likes green tea from Uji", "Likes coffee", "Keeps bees", "Drinks green tea"):
        memory.add_fact(text)
    found = memory.search("green tea")
    assert set(texts(found)) == {"Likes green tea from Uji", "Drinks green tea"}
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert texts(memory.search("green tea", top_k=1)) == texts(found)[:1]


def test_as_many_as_configured_are_found_unless_told_otherwise(home: Path) -> None:
    with open_home(home, search_top_k=2, embedding_model="none") as bs:
        memory = bs.memory(scope="global")
        for number in range(4):
            memory.add_fact(f"Likes tea number {number}")
        assert (len(memory.search("tea")), len(memory.search("tea", top_k=3))) == (2, 3)


@pytest.mark.parametrize("query", ["", "  \n", "zebra", "!?"])
@pytest.mark.parametrize("within", ["facts", "turns"])
def test_where_nothing_is_alike_nothing_is_found(memory: MemoryHandle, query: str, within: str) -> None:
    learn(memory, "t1", "Likes tea")
    found = memory.search(query, within=within)
    assert (list(found), found.total, found.model, found.embedded) == ([], 1 if within == "facts" else 2, None, 0)


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_nothing_is_found_in_an_empty_memory_and_nothing_is_made_of_it(bs: Backstory, within: str) -> None:
    assert not bs.memory("nobody").search("tea", within=within)
    assert not bs.home.exists()


def test_found_is_a_sequence(memory: MemoryHandle) -> None:
    for text in ("Likes green tea", "Drinks tea", "Grows tea"):
        memory.add_fact(text)
    found = memory.search("tea")
    assert (len(found), found[0], list(found[1:]), found[-1] in found) == (3, next(iter(found)), list(found)[1:], True)
    assert found == memory.search("tea")
    with pytest.raises(AttributeError):
        found.total = 7


# Bounds.


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"category": " "}, "has no name"),
        ({"category": "goal", "within": "turns"}, "only facts have a category"),
        ({"within": "threads"}, "facts or turns"),
        ({"since": "soon"}, "since must be a time.* got 'soon'"),
        ({"until": "13"}, "until must be a time"),
        ({"top_k": 0}, "at least 1"),
    ],
)
def test_wrong_bounds_are_refused(memory: MemoryHandle, more: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        memory.search("tea", **more)


def test_facts_are_narrowed_to_a_category_a_thread_and_a_span_of_time(memory: MemoryHandle, clock: FakeClock) -> None:
    learn(memory, "t1", "Tea in the morning")
    clock.advance(DAY)
    learn(memory, "t2", "Tea at noon")
    clock.advance(DAY)
    memory.add_fact("Tea at night", "preference")
    assert len(memory.search("tea")) == 3
    assert texts(memory.search("tea", category="preference")) == ["Tea at night"]
    assert texts(memory.search("tea", thread="t1")) == ["Tea in the morning"]
    assert texts(memory.search("tea", thread="manual")) == ["Tea at night"]
    assert texts(memory.search("tea", since="2026-03-03")) == ["Tea at night"]
    assert texts(memory.search("tea", until="2026-03-02T12:00:00Z")) == ["Tea in the morning"]
    assert texts(memory.search("tea", since="2026-03-02T13:00:00+01:00", until="2026-03-02")) == ["Tea at noon"]
    assert not memory.search("tea", thread="t1", category="preference")


def test_turns_are_narrowed_to_a_thread_and_a_span_of_time(memory: MemoryHandle) -> None:
    memory.record("t1", [said("Tea one", at="2026-01-01T00:00:00Z"), said("Tea two", at="2026-01-02T00:00:00Z")])
    memory.record("t2", [said("Tea three", at="2026-01-03T00:00:00Z")])
    find = memory.search
    assert set(texts(find("tea", within="turns", thread="t1"))) == {"Tea one", "Tea two"}
    assert set(texts(find("tea", within="turns", since="2026-01-02"))) == {"Tea two", "Tea three"}
    assert texts(find("tea", within="turns", since="2026-01-02", until="2026-01-02")) == ["Tea two"]
    assert texts(find("tea", within="turns", thread="t2")) == ["Tea three"]


def test_bounds_come_before_the_cut(memory: MemoryHandle) -> None:
    for number in range(30):
        memory.add_fact(f"Tea {number}", "preference")
    for number in range(3):
        memory.add_fact(f"A long story that has at its very end something to do with tea, part {number}", "goal")
    assert len(memory.search("tea", top_k=3, category="goal")) == 3
    assert len(memory.search("tea", top_k=300)) == 33


# At the moment of asking.


def test_what_changes_is_found_as_it_is_now(memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin")
    name = memory.search("violin")[0].id
    memory.edit_fact(name, "Plays the cello", confidence=0.8)
    assert not memory.search("violin")
    assert memory.search("cello")[0].confidence == 0.8
    memory.remove_fact(name)
    assert not memory.search("cello")
    memory.revert()
    assert texts(memory.search("cello")) == ["Plays the cello"]


def test_a_revised_turn_is_found_by_its_new_words_only(memory: MemoryHandle) -> None:
    memory.record("t1", [said("I play the violin.", id="m1")])
    assert memory.search("violin", within="turns")
    memory.record("t1", [said("I play the cello.", id="m1")])
    assert not memory.search("violin", within="turns")
    assert texts(memory.search("cello", within="turns")) == ["I play the cello."]


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_what_another_handle_wrote_is_found_at_once(home: Path, bs: Backstory, within: str) -> None:
    memory = bs.memory("ada")
    assert not memory.search("violin", within=within)
    with open_home(home, embedding_model="none") as other:
        learn(other.memory("ada"), "violin", "Plays the violin")
    assert memory.search("violin", within=within)


def test_an_agent_without_facts_finds_its_users_facts_and_its_own_turns(bs: Backstory) -> None:
    learn(bs.memory("ada"), "t1", "Plays the violin")
    agent = bs.memory("ada", "helper")
    agent.record("t2", [said("I play the violin, too.")])
    assert texts(agent.search("violin")) == ["Plays the violin"]
    assert texts(agent.search("violin", within="turns")) == ["I play the violin, too."]
    agent.add_fact("Keeps bees")
    assert texts(agent.search("violin")) == ["Plays the violin"]


def test_facts_that_are_found_grow_warm(bs: Backstory, memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin", "Lives in Oslo")
    memory.search("violin")
    memory.search("violin", within="turns")
    assert set(bs._services.states(Scope("ada")).use.facts()) == {memory.facts()[0].id}


# Erasure.


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_what_is_forgotten_is_found_by_nobody(home: Path, bs: Backstory, memory: MemoryHandle, within: str) -> None:
    memory.record("violin", [said("I play the violin.", id="m1"), said("And the flute.", id="m2")])
    memory.record("violin", [{"role": "assistant", "content": "Both."}], mode="append")
    memory.extract([RecordedReply("violin", reply("Plays the violin", "Plays the flute"))])
    with open_home(home, embedding_model="none") as other:
        theirs = other.memory("ada")
        for handle in (memory, theirs):
            assert handle.search("violin", within=within)
        memory.forget(matching="violin")
        for handle in (memory, theirs):
            assert not handle.search("violin", within=within)
            assert "flute" in handle.search("flute", within=within)[0].content


def test_a_search_keeps_nothing_of_what_is_forgotten(bs: Backstory, memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin")
    memory.search("violin")
    search = memory._services.state.search
    before = search._kept
    memory.forget(matching="violin")
    assert search._kept is not before
    assert search._kept.facts.live == {}


def test_forgetting_waits_for_no_search_and_no_search_for_it(memory: MemoryHandle) -> None:
    learn(memory, "t1", *(f"Plays the violin, part {number}" for number in range(8)))
    stop, found = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            found.append(len(memory.search("violin")) + len(memory.search("violin", within="turns")))

    seekers = [threading.Thread(target=look) for _ in range(3)]
    for seeker in seekers:
        seeker.start()
    for number in range(8):
        memory.forget(matching=f"part {number}")
    stop.set()
    for seeker in seekers:
        seeker.join(20)
        assert not seeker.is_alive()
    assert found
    assert not memory.search("violin")


# Why.


def test_a_hit_explains_itself_on_request(memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin", "Keeps bees in a violin case")
    found = memory.search("violin", explain=True)
    assert [hit.why.words_rank for hit in found] == [1, 2]
    for hit in found:
        assert {part.word for part in hit.why.words} == {part.word for part in found[0].why.words}
        assert sum(part.score for part in hit.why.words) == pytest.approx(hit.why.words_score)
        assert (hit.why.meaning_rank, hit.why.similarity) == (None, None)


def test_hits_are_spelled_as_the_contract_says(memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin")
    (fact,) = msgspec.to_builtins(tuple(memory.search("violin")))
    assert set(fact) == {"id", "content", "score", "category", "confidence", "createdAt", "source"}
    turn = msgspec.to_builtins(memory.search("t1", within="turns")[0])
    assert set(turn) == {"id", "content", "score", "thread", "n", "role", "at"}


# Likeness.


def test_likeness_is_about_the_memory_it_is_given(bs: Backstory, memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin", "Keeps bees")
    search = memory._services.state.search
    before = memory._services.own.memory()
    violin, bees = before.facts
    alike = search.likeness(before, "Do you play the violin?")
    assert 0 < alike[violin] <= 1
    assert alike.get(bees, 0.0) < alike[violin]
    memory.remove_fact(violin)
    assert violin in search.likeness(before, "violin")
    assert violin not in search.likeness(memory._services.own.memory(), "violin")
    assert not search.likeness(Memory(), "violin")


def test_likeness_waits_for_nobody_who_searches(bs: Backstory, memory: MemoryHandle) -> None:
    learn(memory, "t1", "Plays the violin")
    search, now = memory._services.state.search, memory._services.own.memory()
    found: list[object] = []
    with search._kept.locks["facts"], search._kept.locks["turns"]:
        asking = threading.Thread(target=lambda: found.append(search.likeness(now, "violin")))
        asking.start()
        asking.join(20)
        assert found


# A home of searches.


def test_only_some_scopes_words_stay_in_memory(bs: Backstory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.scope_state._WARM", 2)
    for name in ("ada", "bob", "cleo"):
        bs.memory(name).add_fact(f"{name} likes tea")
        assert len(bs.memory(name).search("tea")) == 1
    assert {state.scope.user for state in bs._services.states.living() if "search" in vars(state)} == {"bob", "cleo"}
    assert len(bs.memory("ada").search("tea")) == 1
    assert bs.memory("ada")._services.state.search is bs.memory("ada")._services.state.search


def test_threads_find_the_same_while_others_write(memory: MemoryHandle) -> None:
    learn(memory, "t0", "Plays the violin")
    wrong: list[object] = []

    def look() -> None:
        for _ in range(30):
            for within in ("facts", "turns"):
                found = memory.search("violin" if within == "facts" else "t0", within=within)
                if not found:
                    wrong.append(found)

    seekers = [threading.Thread(target=look) for _ in range(4)]
    for seeker in seekers:
        seeker.start()
    for number in range(10):
        learn(memory, f"t{number + 1}", f"Keeps {number} bees")
    for seeker in seekers:
        seeker.join()
    assert wrong == []


def _in_a_child(memory: MemoryHandle) -> None:
    os._exit(0 if len(memory.search("violin")) == 1 and memory.search("t1", within="turns") else 1)


def test_a_forked_child_searches_although_a_thread_of_its_parent_was_searching(
    bs: Backstory, memory: MemoryHandle
) -> None:
    learn(memory, "t1", "Plays the violin")
    memory.search("violin")
    search = memory._services.state.search
    locks = search._kept.locks
    with locks["facts"], locks["turns"], bs._services.states._mutex:
        child = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(memory,))
        child.start()
        child.join(20)
    assert child.exitcode == 0


# Random histories.

TOPICS = ("tea", "violin", "bees", "Oslo", "茶道")
words = st.sampled_from(TOPICS)
steps = st.lists(
    st.tuples(
        st.sampled_from(["say", "add", "add", "edit", "remove", "supersede", "forget", "revert", "clear", "search"]),
        words,
        st.integers(0, 3),
    ),
    max_size=14,
)


def walk(memory: MemoryHandle, number: int, step: tuple[str, str, int]) -> None:
    kind, topic, which = step
    facts = memory.facts()
    with suppress(RefusedError):
        match kind:
            case "say":
                memory.record(f"t{which}", exchange(f"{topic} {number}", number))
            case "add":
                memory.add_fact(f"Likes {topic} {number}", ("preference", "goal")[which % 2])
            case "edit" if facts:
                memory.edit_fact(facts[which % len(facts)].id, f"Loves {topic} {number}")
            case "remove" if facts:
                memory.remove_fact(facts[which % len(facts)].id)
            case "supersede":
                memory.record(f"t{which}", [said(f"Rather {topic} {number}", id=f"u{which}")])
            case "forget":
                memory.forget(matching=topic)
            case "revert":
                memory.revert(force=True)
            case "clear" if which == 0:
                memory.clear()
            case "search":
                memory.search(topic)
                memory.search(topic, within="turns")


def answers(memory: MemoryHandle) -> list[Found]:
    return [
        memory.search(topic, within=within, top_k=top, explain=True)
        for topic in (*TOPICS, " ".join(TOPICS))
        for within in ("facts", "turns")
        for top in (1, 100)
    ]


def check_true(memory: MemoryHandle) -> None:
    live = {(fact.id, fact.content, fact.category, fact.confidence) for fact in memory.facts()}
    standing = {
        (thread.thread, turn.n, turn.id, turn.content)
        for thread in memory.threads()
        for turn in memory.transcript(thread.thread)
    }
    for topic in TOPICS:
        facts = memory.search(topic, top_k=100)
        assert {(hit.id, hit.content, hit.category, hit.confidence) for hit in facts} <= live
        assert {hit.id for hit in facts} >= {name for name, content, *_ in live if topic in content.split()}
        turns = memory.search(topic, within="turns", top_k=100)
        assert {(hit.thread, hit.n, hit.id, hit.content) for hit in turns} <= standing
        assert {(hit.thread, hit.n) for hit in turns} >= {
            (thread, n) for thread, n, _, content in standing if topic in content.split()
        }
        for category in ("preference", "goal"):
            narrowed = memory.search(topic, top_k=2, category=category)
            assert len(narrowed) >= min(2, sum(1 for hit in facts if hit.category == category))
            assert all(hit.category == category for hit in narrowed)
        for thread in {hit.thread for hit in turns}:
            narrowed = memory.search(topic, top_k=2, within="turns", thread=thread)
            assert len(narrowed) >= min(2, sum(1 for hit in turns if hit.thread == thread))
            assert all(hit.thread == thread for hit in narrowed)


@settings(max_examples=examples(1 / 4))
@given(history=steps)
def test_after_any_history_search_is_true_complete_and_as_if_built_anew(
    history: list[tuple[str, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    with open_home(home, embedding_model="none") as bs, open_home(home, embedding_model="none") as other:
        memory, theirs = bs.memory("ada"), other.memory("ada")
        for number, step in enumerate(history):
            walk(memory, number, step)
            if step[0] in ("forget", "search"):
                check_true(theirs)
        check_true(memory)
        with open_home(home, embedding_model="none") as anew:
            expected = answers(anew.memory("ada"))
        assert answers(memory) == expected
        assert answers(theirs) == expected
