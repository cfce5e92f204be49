"""What a search is narrowed to: the same is found whether it is told key by key, gathered, or known from the start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec
import pytest
from doubles.bag import BagOfWords
from fakes import FakeClock, open_home
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.projections.search import filters as bounds
from backstory.projections.search.corpus import LiveFacts
from backstory.projections.search.filters import SearchFilters
from backstory.projections.search.lexical import index as lexical
from backstory.projections.search.lexical.entry import Entry
from backstory.projections.search.lexical.index import LexicalIndex
from backstory.projections.search.lexical.lazy_filter import LazyFilter
from backstory.projections.search.vectors import vector_space as space
from backstory.projections.search.vectors.embedder import packed

DAY = 86_400.0


class Asked:
    """Says what is allowed, and counts how often it was asked."""

    def __init__(self, keys: Collection[str], most: int | None = None) -> None:
        self.tested: list[str] = []
        self.gathered = 0
        self.keys = keys
        self.allowed = LazyFilter(self._test, self._gather, len(keys) if most is None else most)

    def _test(self, key: str) -> bool:
        self.tested.append(key)
        return key in self.keys

    def _gather(self) -> Collection[str]:
        self.gathered += 1
        return set(self.keys)


def test_all_are_gathered_once_and_only_when_somebody_asks() -> None:
    asked = Asked({"a", "b"})
    assert ("a" in asked.allowed, "c" in asked.allowed, 7 in asked.allowed, asked.gathered) == (True, False, False, 0)
    assert asked.allowed.gathered is None
    assert (len(asked.allowed), set(asked.allowed), set(asked.allowed.all())) == (2, {"a", "b"}, {"a", "b"})
    assert asked.gathered == 1
    assert asked.allowed.gathered == {"a", "b"}


# By words.


def index_of(count: int) -> LexicalIndex:
    return LexicalIndex(Entry(f"f{n}", "tea " * (n % 7 + 1) + "and more") for n in range(count))


def test_of_many_that_are_allowed_only_the_best_are_looked_up() -> None:
    index = index_of(1000)
    asked = Asked({f"f{n}" for n in range(0, 1000, 2)})
    found = index.ranked("tea", 3, asked.allowed)
    assert found == index.ranked("tea", 3, asked.keys)
    assert len(asked.tested) < 20
    assert asked.gathered == 0


def test_few_that_are_allowed_are_gathered_after_some_were_looked_up_in_vain() -> None:
    index = index_of(1000)
    worst = index.ranked("tea", 1000)[-3:]
    asked = Asked({scored.key for scored in worst})
    assert index.ranked("tea", 2, asked.allowed) == worst[:2]
    assert asked.gathered == 1
    assert len(asked.tested) <= 1000 // lexical._WALK
    asked.tested.clear()
    assert index.ranked("tea", 2, asked.allowed) == worst[:2]
    assert (asked.gathered, asked.tested) == (1, [])


def test_many_that_are_allowed_and_rank_low_are_found_all_the_same() -> None:
    index = index_of(1000)
    low = index.ranked("tea", 1000)[500:]
    asked = Asked({scored.key for scored in low})
    assert index.ranked("tea", 4, asked.allowed) == low[:4]
    assert asked.gathered == 1


@given(
    count=st.integers(0, 60),
    allowed=st.sets(st.integers(0, 59)),
    k=st.integers(1, 20),
    tried=st.integers(1, 3),
    known=st.booleans(),
)
def test_by_words_the_same_is_found_however_it_is_told_what_is_allowed(
    count: int, allowed: set[int], k: int, tried: int, known: bool
) -> None:
    index, names = index_of(count), {f"f{number}" for number in allowed}
    keep = Asked(names).allowed
    if known:
        keep.all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "_TRIED", tried)
        expected = [scored for scored in index.ranked("tea more", 60) if scored.key in names][:k]
        assert index.ranked("tea more", k, keep) == expected
        assert index.ranked("tea more", k, names) == expected
        assert index.ranked("tea more", k, sorted(names)) == expected


def test_what_is_allowed_and_says_nothing_of_it_is_not_found() -> None:
    index = index_of(100)
    index.put([Entry("rain", "rain all day")])
    for keep in ({"rain"}, Asked({"rain"}).allowed):
        assert index.ranked("tea", 3, keep) == []


# By meaning.


def space_of(points: list[tuple[int, int]]) -> space.VectorSpace:
    """Vectors at these angles; of one key there may be several."""
    import numpy as np

    made = space.VectorSpace(2)
    for number, (key, angle) in enumerate(points):
        vector = np.array([[np.cos(angle / 10), np.sin(angle / 10)]], np.float32)
        made.put([((f"k{key}", bytes([number])), packed(vector)[0])])
    return made


@given(
    points=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=50),
    allowed=st.sets(st.integers(0, 30)),
    more=st.integers(0, 40),
    k=st.integers(1, 20),
    ahead=st.integers(1, 3),
)
def test_by_meaning_the_same_is_found_however_it_is_told_what_is_allowed(
    points: list[tuple[int, int]], allowed: set[int], more: int, k: int, ahead: int
) -> None:
    np = pytest.importorskip("numpy")
    pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
    names, made = {f"k{number}" for number in allowed}, space_of(points)
    query = np.array([1, 0], np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "_AHEAD", ahead)
        expected = [near for near in made.nearest(query, 60) if near[0] in names][:k]
        keep = Asked(names, len(names) + more).allowed
        assert made.nearest(query, k, keep) == expected
        assert made.nearest(query, k, names) == expected
        keep.all()
        assert made.nearest(query, k, keep) == expected


def test_of_what_is_equally_near_the_lesser_keys_come_first_however_many_there_are() -> None:
    np = pytest.importorskip("numpy")
    pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
    made = space_of([(90 - number, 3) for number in range(70)] + [(10, 2)])
    query = np.array([1, 0], np.float32)
    for keep in (None, Asked({f"k{number}" for number in range(100)}).allowed):
        assert [key for key, _ in made.nearest(query, 3, keep)] == ["k10", "k21", "k22"]


@pytest.mark.parametrize("allowed", [3, 40, 400, 1000])
def test_as_many_are_found_as_there_are(allowed: int) -> None:
    np = pytest.importorskip("numpy")
    pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
    chance = np.random.default_rng(1)
    points = chance.standard_normal((1000, 8)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    made = space.VectorSpace(8)
    made.put([((f"k{n}", b""), data) for n, data in enumerate(packed(points))])
    names = {f"k{number}" for number in chance.choice(1000, allowed, replace=False)}
    for k in (1, 20, 300):
        asked = Asked(names, 1000)
        found = [key for key, _ in made.nearest(points[0], k, asked.allowed)]
        assert len(found) == len(set(found)) == min(k, allowed)
        assert set(found) <= names
        if (k, allowed) == (1, 1000):
            assert (len(asked.tested), asked.gathered) == (1, 0)


# Of facts.

facts = st.builds(
    Fact,
    id=st.sampled_from("abcdefgh"),
    content=st.sampled_from(["tea", "rain"]),
    category=st.sampled_from(["goal", "context"]),
    confidence=st.just(0.9),
    created_at=st.sampled_from(
        ["", "2026-01-01", "2026-01-01T10:00:00.000000Z", "2026-01-02T00:00:00.000000Z", "soon"]
    ),
    source=st.sampled_from(["t1", "t2", "manual"]),
    seq=st.just(2),
)
memories = st.lists(facts, max_size=8).map(lambda some: Memory(facts={fact.id: fact for fact in some}))
times = st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-01T10:00:00Z", "2026-01-02T00:00:00Z", "2027-01-01"])


def within(fact: Fact, stated: SearchFilters) -> bool:
    return (
        stated.category in (None, fact.category)
        and stated.thread in (None, fact.source)
        and (stated.since is None or fact.created_at >= stated.since)
        and (stated.until is None or fact.created_at < stated.until)
    )


@given(
    history=st.lists(memories, min_size=1, max_size=4),
    kept=st.booleans(),
    asked=st.builds(
        partial(SearchFilters.read, "facts"),
        category=st.sampled_from([None, "goal", "context"]),
        thread=st.sampled_from([None, "t1", "manual", "else"]),
        since=times,
        until=times,
    ),
    few=st.integers(-1, 8),
)
def test_what_lies_within_bounds_is_told_alike_by_key_and_all_at_once_whatever_has_changed(
    history: list[Memory], kept: bool, asked: SearchFilters, few: int
) -> None:
    followed = LiveFacts()
    for memory in history:
        followed.follow(memory)
        if kept:
            followed.filed()
    live = followed.live
    expected = {name for name, fact in live.items() if within(fact, asked)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_FEW", few)
        keep = asked.of_facts(followed)
        if asked == SearchFilters():
            assert keep is None
            return
        assert keep is not None
        assert {name for name in "abcdefgh" if name in keep} == expected
        if isinstance(keep, LazyFilter):
            assert len(expected) <= keep.most <= len(live)
            assert keep.most > few
        assert set(keep) == expected
        assert len(keep) == len(expected)


def test_facts_are_filed_where_they_are_now() -> None:
    followed = LiveFacts()
    before = Fact(id="a", content="tea", category="goal", confidence=0.9, created_at="2026-01-01", source="t1", seq=2)
    followed.follow(Memory(facts={"a": before}))
    filed = followed.filed()
    after = msgspec.structs.replace(before, category="context")
    followed.follow(Memory(facts={"a": after}))
    assert followed.filed() is filed
    assert [dict(file) for file in filed.smallest("context", None, None, None)] == [{"a": after}]
    assert not any(filed.smallest("goal", None, None, None))
    assert not any(filed.smallest("context", "t2", None, None))
    assert not any(filed.smallest(None, None, "2026-01-02", None))
    followed.follow(Memory(facts={"a": msgspec.structs.replace(after, created_at="2026-02-01")}))
    assert len(filed.smallest(None, None, "2026-01-01", None)) == 1


# Through the door.


@pytest.fixture(params=[False, True], ids=["words", "meaning"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BagOfWords | None:
    if request.param:
        pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
    made = BagOfWords() if request.param else None
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: made)
    return made


@pytest.mark.parametrize("few", [0, 1000])
def test_bounds_come_before_the_cut_in_a_large_memory_too(
    few: int, model: BagOfWords | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in ((bounds, few), (lexical, 2), (space, 2)):
        monkeypatch.setattr(name, "_FEW", value)
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        memory = bs.memory("ada")
        for number in range(30):
            memory.add_fact(f"tea tea {number}", "preference")
        clock.advance(DAY)
        for number in range(4):
            memory.add_fact(f"a story that has at its end something to do with tea, part {number}", "goal")
        memory.record("t1", [{"role": "user", "content": "tea early", "at": "2026-01-01T00:00:00Z"}])
        memory.record("t2", [{"role": "user", "content": f"tea {n}", "at": "2026-01-03"} for n in range(9)])
        if model is not None:
            memory.embed()
        narrowed: list[Callable[..., object]] = [
            lambda k: memory.search("tea", top_k=k, category="goal"),
            lambda k: memory.search("tea", top_k=k, since="2026-03-02"),
            lambda k: memory.search("tea", top_k=k, thread="manual", since="2026-03-02"),
        ]
        for search in narrowed:
            assert [hit.category for hit in search(3)] == ["goal"] * 3
            assert [hit.category for hit in search(50)] == ["goal"] * 4
        assert len(memory.search("tea", top_k=40, until="2026-03-01")) == 30
        early = memory.search("tea", top_k=3, within="turns", until="2026-01-02")
        assert [hit.content for hit in early] == ["tea early"]
        assert not memory.search("tea", within="turns", until="2026-01-01T00:00:00Z")
        assert memory.search("tea", within="turns", since="2026-01-01T00:00:00Z", until="2026-01-02")
        assert len(memory.search("tea", top_k=30, within="turns", since="2026-01-02")) == 9
