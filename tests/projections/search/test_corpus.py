"""What can be found: live facts and standing turns, followed as they come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from fakes import FakeClock, exchange, open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import Event, Fact, FactAdded, FactRemoved, FactRevised, Redacted
from backstory.ledger.core.memory import Memory, evolve
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.memory import MemoryHandle
from backstory.projections.search import corpus
from backstory.projections.search.corpus import FactChanges, IndexChange, LiveFacts, StandingTurns, turn_entry
from backstory.projections.search.lexical.entry import Entry

ADA = Scope("ada")
TRANSCRIPT = ADA.stream("transcript")


class Mirror:
    """An index that only does what it is told: what it holds is what can be found."""

    def __init__(self) -> None:
        self.held: dict[str, Entry] = {}

    def take(self, change: IndexChange) -> IndexChange:
        if change.anew:
            self.held.clear()
        for key in change.drop:
            assert self.held.pop(key, None) is not None, f"{key} was never there"
        # What is replaced keeps its place.
        self.held.update({entry.key: entry for entry in change.put})
        return change

    def texts(self) -> list[str]:
        return [entry.text for entry in self.held.values()]


@pytest.fixture
def bs(tmp_path: Path) -> Backstory:
    return open_home(tmp_path / "home")


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


def fact(name: str, content: str, confidence: float = 0.9) -> Fact:
    return Fact(
        id=name, content=content, category="context", confidence=confidence, created_at="", source="manual", seq=2
    )


def remembering(*facts: Fact) -> Memory:
    return Memory(facts={one.id: one for one in facts})


# Facts.


def test_facts_are_told_by_their_differences() -> None:
    facts, mirror = LiveFacts(), Mirror()
    tea, oslo, cat = fact("a", "Likes tea"), fact("b", "Lives in Oslo"), fact("c", "Has a cat")
    mirror.take(facts.follow(remembering(tea, oslo)))
    change = mirror.take(facts.follow(remembering(tea, fact("b", "Lives in Bergen"), cat)))
    assert ([entry.key for entry in change.put], list(change.drop), change.anew) == (["b", "c"], [], False)
    change = mirror.take(facts.follow(remembering(cat)))
    assert (list(change.put), sorted(change.drop)) == ([], ["a", "b"])
    assert mirror.texts() == ["Has a cat"]
    assert list(facts.live) == ["c"]


def test_a_fact_that_says_the_same_is_not_indexed_again_and_told_as_it_is_now() -> None:
    facts = LiveFacts()
    facts.follow(remembering(fact("a", "Likes tea", 0.7)))
    change = facts.follow(remembering(fact("a", "Likes tea", 0.95)))
    assert (list(change.put), list(change.drop)) == ([], [])
    assert facts.live["a"].confidence == 0.95


def test_a_memory_may_be_an_older_one() -> None:
    facts, mirror = LiveFacts(), Mirror()
    older, newer = remembering(fact("a", "x")), remembering(fact("a", "y"), fact("b", "z"))
    for memory in (older, newer, older):
        mirror.take(facts.follow(memory))
    assert mirror.texts() == ["x"]


contents = st.sampled_from(["x", "y", "z"])
memories = st.dictionaries(st.sampled_from("abcde"), contents).map(
    lambda drawn: remembering(*(fact(name, content) for name, content in drawn.items()))  # in any order
)


@given(st.lists(memories, max_size=6))
def test_following_any_memories_ends_where_the_last_one_is(walk: list[Memory]) -> None:
    facts, mirror = LiveFacts(), Mirror()
    for memory in walk:
        mirror.take(facts.follow(memory))
        # In the same order, too: it decides between equals.
        assert [(key, entry.text) for key, entry in mirror.held.items()] == [
            (key, one.content) for key, one in memory.facts.items()
        ]


def happened(drawn: tuple[str, str, bool]) -> Callable[[Memory], Event | None]:
    """What a draw comes to in a memory: a fact goes, comes, says another thing, or is erased."""
    name, content, erased = drawn

    def event(memory: Memory) -> Event | None:
        before = memory.facts.get(name)
        if content == "gone":
            if before is None:
                return None
            redacted = Redacted(stream="ledger", seq=1, index=0, what="fact", fact=name)
            return redacted if erased else FactRemoved(before, "stale")
        after = fact(name, content)
        return FactAdded(after) if before is None else FactRevised(before, after, "edited")

    return event


draws = st.tuples(st.sampled_from("abcde"), st.sampled_from(["x", "y", "gone"]), st.booleans()).map(happened)


@given(st.lists(st.lists(draws, max_size=5), max_size=6))
def test_following_by_events_ends_where_the_last_memory_is(walk: list[list[Callable[[Memory], Event | None]]]) -> None:
    facts, mirror, memory = LiveFacts(), Mirror(), Memory()
    for step in walk:
        events = []
        for draw in step:
            event = draw(memory)
            if event is not None:
                events.append(event)
                memory = evolve(memory, event)
        facts.filed()
        with mock.patch.object(corpus, "_compared", side_effect=AssertionError("all facts are compared")):
            mirror.take(facts.follow(memory, events))
        assert [(key, entry.text) for key, entry in mirror.held.items()] == [
            (key, one.content) for key, one in memory.facts.items()
        ]
        (files,) = facts.filed().smallest(None, "manual", None, None)
        assert files == facts.live == memory.facts


def test_events_that_do_not_lead_to_the_memory_are_not_believed() -> None:
    facts, mirror = LiveFacts(), Mirror()
    mirror.take(facts.follow(remembering(fact("a", "x"), fact("b", "y"))))
    mirror.take(facts.follow(remembering(fact("a", "x"), fact("c", "z")), [FactAdded(fact("d", "z"))]))
    assert mirror.texts() == ["x", "z"]
    mirror.take(facts.follow(remembering(fact("c", "z")), []))
    assert mirror.texts() == ["z"]


def test_a_search_after_a_commit_does_not_compare_all_facts(
    bs: Backstory, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add_fact("Likes tea")
    assert [hit.content for hit in memory.search("tea")] == ["Likes tea"]
    monkeypatch.setattr(corpus, "_compared", lambda *_: pytest.fail("all facts are compared"))
    memory.add_fact("Likes green tea")
    assert len(memory.search("tea")) == 2
    with open_home(bs.home) as other:
        other.memory("ada").add_fact("Sells tea")
    assert len(memory.search("tea")) == 3
    memory.remove_fact(memory.search("tea")[0].id)
    assert len(memory.search("tea")) == 2


def test_facts_are_compared_where_many_commits_came_or_the_ledger_is_another(bs: Backstory, tmp_path: Path) -> None:
    changes = FactChanges(bs.store, ADA)
    heads = []
    for number in range(3):
        bs.memory("ada").add_fact(f"Owns {number} ships")
        heads.append(bs.store.head(ADA.stream("ledger")))
        assert (changes.until(heads[-1]) is None) == (number == 0)
    assert changes.until(heads[-1]) == ()
    assert changes.until(heads[0]) is None
    events = changes.until(heads[2])
    assert events is not None
    assert [event.fact.content for event in events if isinstance(event, FactAdded)] == ["Owns 1 ships", "Owns 2 ships"]
    with open_home(tmp_path / "another") as another:
        for number in range(5):
            another.memory("ada").add_fact(f"Owns {number} cows")
        assert changes.until(another.store.head(ADA.stream("ledger"))) is None


# Turns.


class Reader:
    """The turns of a home's scope, and an index that follows them."""

    def __init__(self, home: Path) -> None:
        self.store = JsonlStore(home)
        self.turns = StandingTurns(self.store, ADA)
        self.mirror = Mirror()

    def look(self) -> IndexChange:
        change = self.mirror.take(self.turns.follow(self.store.head(TRANSCRIPT)))
        assert self.mirror.held == {key: turn_entry(said) for key, said in self.turns.standing.items()}
        entries = list(self.turns.entries())
        assert {entry.key: entry for entry in entries} == self.mirror.held
        for thread in {entry.group for entry in entries}:
            of_thread = [entry for entry in entries if entry.group == thread]
            assert of_thread == sorted(of_thread, key=lambda entry: entry.order)
            assert [entry.key for entry in of_thread] == list(self.turns.of(thread))
        return change

    def texts(self) -> list[str]:
        self.look()
        return self.mirror.texts()


@pytest.fixture
def reader(bs: Backstory) -> Reader:
    return Reader(bs.home)


def test_an_empty_transcript_has_nothing_to_find(reader: Reader) -> None:
    assert reader.texts() == []


def test_turns_are_read_on_from_where_they_were_read_last(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", exchange("tea"))
    assert [entry.text for entry in reader.look().put] == ["I like tea.", "tea it is."]
    memory.record("t2", exchange("coffee"))
    change = reader.look()
    assert ([entry.text for entry in change.put], change.anew) == (["I like coffee.", "coffee it is."], False)
    change = reader.look()
    assert (list(change.put), list(change.drop), change.anew) == ([], [], False)
    assert len(reader.mirror.held) == 4


def test_a_turn_has_its_speaker_its_thread_its_place_and_its_time(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", [{"role": "user", "content": "Hi.", "name": "Ada", "at": "2026-01-02T03:04:05Z"}])
    memory.record("t1", [{"role": "assistant", "content": "Hello."}], mode="append")
    hi, hello = reader.look().put
    assert (hi.speaker, hi.group, hi.order, hi.at) == ("Ada", "t1", 1, "2026-01-02T03:04:05.000000Z")
    assert (hello.speaker, hello.group, hello.order) == ("assistant", "t1", 2)


def test_the_hosts_ids_may_repeat_between_threads_and_revisions(memory: MemoryHandle, reader: Reader) -> None:
    for thread in ("t", "1 t", "t 1"):
        memory.record(thread, exchange("tea", 1))
    memory.record("t", [{"role": "user", "content": "I like coffee.", "id": "u1"}])
    assert len(reader.texts()) == 6
    assert len({said.id for said in reader.turns.standing.values()}) == 2


def test_a_superseded_turn_is_gone_and_its_revision_found(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", exchange("tea", 1))
    reader.look()
    memory.record("t1", [{"role": "user", "content": "I like coffee.", "id": "u1"}])
    change = reader.look()
    assert ([entry.text for entry in change.put], len(change.drop)) == (["I like coffee."], 1)
    assert reader.texts() == ["tea it is.", "I like coffee."]
    assert Reader(reader.store.home).texts() == reader.texts()


steps = st.lists(
    st.tuples(st.sampled_from(["say", "say", "edit", "append", "forget", "look"]), st.integers(0, 2)), max_size=12
)


@settings(max_examples=examples(1 / 4))
@given(steps=steps)
def test_following_a_transcript_ends_where_reading_it_anew_does(
    steps: Iterable[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_home(tmp_path_factory.mktemp("home"), clock=FakeClock()) as bs:
        memory, reader = bs.memory("ada"), Reader(bs.home)
        for number, (step, which) in enumerate(steps):
            thread = f"t{which}"
            if step == "say":
                memory.record(thread, exchange(f"tea {number}", number))
            elif step == "edit":
                memory.record(thread, [{"role": "user", "content": f"Edited {number}", "id": f"u{which}"}])
            elif step == "append":
                memory.record(thread, exchange("more"), mode="append")
            elif step == "forget":
                with suppress(NotFoundError):
                    memory.forget(thread_id=thread)
            elif step == "look":
                reader.look()
        reader.look()
        anew = Reader(bs.home)
        anew.look()
        assert reader.mirror.held == anew.mirror.held
        assert list(reader.mirror.held) == list(anew.mirror.held)
        standing = {
            (one.thread, turn.n, turn.content) for one in memory.threads() for turn in memory.transcript(one.thread)
        }
        assert {(said.thread, said.n, said.content) for said in reader.turns.standing.values()} == standing
