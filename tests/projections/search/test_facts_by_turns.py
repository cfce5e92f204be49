"""Facts by the turns that they cite, and turns by the facts that cite them: they order what is found, and add none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from doubles.bag import BagOfWords
from fakes import open_home

from backstory.home import Backstory
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.search import known, query
from backstory.projections.search.vectors.background_embedding import BackgroundEmbedding
from backstory.projections.search.vectors.embedder import Floats

TURNS = {
    "u1": "The cello from grandmother is in the attic.",
    "u2": "We bake bread on Sundays.",
}
FACTS = {"u2": "Has an old instrument, and oven", "u1": "Has an old instrument, and attic"}
"""Alike but for one word; the first stands in the log first."""


class AllAlike(BagOfWords):
    """A stand-in to which all texts are alike, and none is like a question."""

    def query(self, text: str) -> Floats:
        return np.roll(self._vector(text), 1)

    def _vector(self, text: str) -> Floats:
        return np.eye(1, self.dimensions, dtype=np.float32)[0]


class Kites(AllAlike):
    """A stand-in to which every question is about kites."""

    def query(self, text: str) -> Floats:
        return self._vector("kite")

    def _vector(self, text: str) -> Floats:
        return super()._vector(text) if "kite" in text else np.roll(super()._vector(text), 1)


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> AllAlike:
    model = AllAlike()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: model)
    return model


@pytest.fixture
def bs(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path) as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    memory = bs.memory("ada")
    learn(memory)
    return memory


def learn(memory: MemoryHandle, *, embed: bool = True) -> None:
    memory.record("t1", [{"role": "user", "content": text, "id": turn} for turn, text in TURNS.items()])
    facts = [{"content": text, "confidence": 0.9, "evidence": [turn]} for turn, text in FACTS.items()]
    memory.extract([RecordedReply("t1", json.dumps({"newFacts": facts}))])
    memory.add_fact("Likes tea")
    if embed:
        memory.embed()


def found(memory: MemoryHandle, question: str) -> list[str]:
    return [hit.content for hit in memory.search(question, min_similarity=0.5)]


def test_of_facts_alike_that_comes_first_whose_turn_fits(memory: MemoryHandle) -> None:
    assert found(memory, "old instrument") == [FACTS["u1"], FACTS["u2"]]
    assert found(memory, "old instrument cello grandmother") == [FACTS["u1"], FACTS["u2"]]
    assert found(memory, "old instrument bake bread") == [FACTS["u2"], FACTS["u1"]]


@pytest.fixture
def without_meaning(tmp_path: Path) -> Iterator[MemoryHandle]:
    with open_home(tmp_path / "words", embedding_model="none") as bs:
        memory = bs.memory("ada")
        learn(memory, embed=False)
        yield memory


def test_so_it_is_by_words_alone(without_meaning: MemoryHandle) -> None:
    assert found(without_meaning, "old instrument") == [FACTS["u1"], FACTS["u2"]]
    assert found(without_meaning, "old instrument bake bread") == [FACTS["u2"], FACTS["u1"]]
    assert found(without_meaning, "bread") == []
    (first, second) = without_meaning.search("old instrument bake bread", explain=True)
    assert (first.why.cited_rank, second.why.cited_rank) == (1, 2)
    assert first.score == first.why.words_score == second.why.words_score
    assert first.why.words_score == pytest.approx(sum(part.score for part in first.why.words))
    # More are ranked than are asked for: the best may be the last by its own words.
    assert [hit.content for hit in without_meaning.search("old instrument bake bread", top_k=1)] == [FACTS["u2"]]
    without_meaning.forget(matching="bread")
    assert found(without_meaning, "old instrument bake bread") == [FACTS["u1"], FACTS["u2"]]


def test_what_cites_nothing_is_not_behind_what_cites_a_turn_that_fits(
    memory: MemoryHandle, without_meaning: MemoryHandle
) -> None:
    for each in (memory, without_meaning):
        each.add_fact("Has an old oven, and bakes bread")
        assert found(each, "old oven bake bread")[0] == "Has an old oven, and bakes bread"


@pytest.mark.parametrize("settings", [{}, {"embedding_model": "none"}], ids=["by both", "by words"])
def test_facts_are_found_where_the_transcript_cannot_be_read(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with open_home(tmp_path, **settings) as bs:  # type: ignore[arg-type]
        learn(bs.memory("ada"), embed=not settings)
    transcript = tmp_path / "users" / "ada" / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"attic", b"cabin"))
    with open_home(tmp_path, **settings) as bs:  # type: ignore[arg-type]
        assert set(found(bs.memory("ada"), "old instrument bake bread")) == set(FACTS.values())
        assert set(found(bs.memory("ada"), "old instrument")) == set(FACTS.values())
    assert [record.levelname for record in caplog.records if "turns that they cite" in record.message] == ["WARNING"]


def test_a_hit_says_so(memory: MemoryHandle) -> None:
    first, second = memory.search("old instrument bake bread", min_similarity=0.5, explain=True)
    assert (first.why.cited_rank, second.why.cited_rank) == (1, 2)
    assert first.why.cited_score > second.why.cited_score > 0
    (tea,) = memory.search("tea", min_similarity=0.5, explain=True)
    assert (tea.why.cited_rank, tea.why.cited_score) == (None, None)


def test_no_fact_is_found_by_its_turn_alone(memory: MemoryHandle) -> None:
    assert found(memory, "bread") == []
    assert found(memory, "bread tea") == ["Likes tea"]


def test_an_erased_turn_orders_nothing(memory: MemoryHandle) -> None:
    assert found(memory, "old instrument bake bread") == [FACTS["u2"], FACTS["u1"]]
    memory.forget(matching="bread")
    assert found(memory, "old instrument bake bread") == [FACTS["u1"], FACTS["u2"]]


def test_a_fact_that_cites_nothing_reads_no_turns(bs: Backstory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = bs.memory("bob")
    memory.record("t1", [{"role": "user", "content": "tea"}])
    memory.add_fact("Likes tea")
    memory.embed()
    monkeypatch.setattr(query.Known, "by_turns", lambda *_: pytest.fail("it reads turns"))
    assert found(memory, "tea") == ["Likes tea"]


def test_a_search_of_facts_does_not_wait_for_a_long_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(tmp_path) as bs:
        learn(bs.memory("ada"))
    monkeypatch.setattr(query, "AT_ONCE", 1)
    # What embeds in the background reads the turns, too.
    monkeypatch.setattr(BackgroundEmbedding, "wanted", lambda *_: None)
    with open_home(tmp_path, background=True) as bs:
        memory = bs.memory("ada")
        assert found(memory, "old instrument bake bread")[0] == FACTS["u1"]
        search = bs._services.states(memory.scope).search
        assert search._catching_up is not None
        search._catching_up.join(20)
        assert found(memory, "old instrument bake bread")[0] == FACTS["u2"]


def test_of_turns_alike_that_comes_first_whose_fact_means_it(bs: Backstory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: Kites())
    with open_home(bs.home) as home:
        memory = home.memory("ada")
        memory.record("t1", [{"role": "user", "content": "Yes, that old one.", "id": turn} for turn in ("u1", "u2")])
        memory.embed()

        def order() -> list[tuple[str, int | None]]:
            return [(hit.id, hit.why.cited_rank) for hit in memory.search("old toy", within="turns", explain=True)]

        assert order() == [("u2", None), ("u1", None)]
        facts = [{"content": "Owns a red kite", "confidence": 0.9, "evidence": ["u1"]}]
        memory.extract([RecordedReply("t1", json.dumps({"newFacts": facts}))])
        memory.embed()
        assert order() == [("u1", 1), ("u2", None)]
        memory.remove_fact(memory.facts()[0].id)
        assert order() == [("u2", None), ("u1", None)]


def test_of_turns_with_the_same_fact_the_order_is_that_of_their_words(
    bs: Backstory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: Kites())
    ids = [f"u{number}" for number in range(12)]
    with open_home(bs.home) as home:
        memory = home.memory("ada")
        memory.record("t1", [{"role": "user", "content": "Yes, that old one.", "id": turn} for turn in ids])
        memory.extract(
            [RecordedReply("t1", json.dumps({"newFacts": [{"content": "A kite", "confidence": 0.9, "evidence": ids}]}))]
        )
        memory.embed()
        hits = memory.search("old toy", within="turns", top_k=12, explain=True)
        assert len(hits) == 12
        assert [hit.why.cited_rank for hit in hits] == [hit.why.words_rank for hit in hits]


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_who_begins_with_the_file_orders_them_as_who_has_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: Kites())
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        learn(memory)
        memory.record("t2", [{"role": "user", "content": "That old toy.", "id": turn} for turn in ("v1", "v2")])
        facts = [{"content": "Owns a red kite", "confidence": 0.9, "evidence": ["v1"]}]
        memory.extract([RecordedReply("t2", json.dumps({"newFacts": facts}))])
        memory.embed()
        answer = memory.search("old instrument toy bake bread", within=within, explain=True)
        assert any(hit.why.cited_rank for hit in answer)
    monkeypatch.setattr(known, "AT_ONCE", 0)
    for _ in ("who writes the file", "who finds it"):
        with open_home(tmp_path) as bs:
            again = bs.memory("ada").search("old instrument toy bake bread", within=within, explain=True)
            assert again == answer
