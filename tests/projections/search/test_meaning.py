"""Search by meaning as people use it: what it adds, how far it is, what happens without it, what an erasure leaves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from doubles.bag import BagOfWords
from fakes import PATIENCE, exchange, open_home, reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import ModelRejectedError, ModelUnavailableError, NoModelError, StoreError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.search.vectors.embedder import Floats, packed
from backstory.projections.search.vectors.scope_vectors import VECTORS

ADA = Scope("ada")


class Thesaurus(BagOfWords):
    """A stand-in that knows what some words mean; `broken` is raised instead of an answer."""

    def __init__(self, name: str = "thesaurus", *, local: bool = True) -> None:
        super().__init__(name, local=local)
        self.broken: Exception | None = None

    def query(self, text: str) -> Floats:
        if self.broken is not None:
            raise self.broken
        return super().query(text)

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        if self.broken is not None:
            raise self.broken
        return super().passages(texts, timeout)

    def _vector(self, text: str) -> Floats:
        return super()._vector(text.lower().replace("fiddle", "violin").replace("tunes", "violin"))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Thesaurus:
    model = Thesaurus()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: model)
    return model


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path, model: Thesaurus) -> Iterator[Backstory]:
    with open_home(home) as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    """Two facts and two turns, nothing of it embedded."""
    memory = bs.memory("ada")
    memory.record("t1", [{"role": "user", "content": "violin every day", "id": "m1"}, *exchange("tea")[1:]])
    memory.extract([RecordedReply("t1", reply("Plays violin", "Keeps bees"))])
    return memory


def texts(found: Iterable[object]) -> list[str]:
    return [hit.content for hit in found]


def vectors_of(home: Path) -> Path:
    return home / "users/ada" / VECTORS


# What it adds.


def test_what_means_the_same_is_found_once_it_is_embedded(memory: MemoryHandle) -> None:
    assert not memory.search("fiddle")
    memory.embed()
    assert texts(memory.search("fiddle"))[0] == "Plays violin"
    assert texts(memory.search("fiddle", within="turns"))[0] == "violin every day"


def test_search_says_how_far_meaning_is(memory: MemoryHandle) -> None:
    found = memory.search("violin")
    assert (found.model, found.embedded, found.total, found.trouble) == ("thesaurus", 0, 2, None)
    memory.embed()
    found = memory.search("violin", within="turns")
    assert (found.embedded, found.total) == (2, 2)
    memory.add_fact("Likes tea")
    found = memory.search("violin")
    assert (found.embedded, found.total) == (2, 3)
    for fact in memory.facts():
        memory.remove_fact(fact.id)
    found = memory.search("violin")
    assert (found.embedded, found.total, list(found)) == (0, 0, [])


def test_what_is_not_embedded_yet_is_found_by_its_words(memory: MemoryHandle) -> None:
    memory.embed()
    memory.add_fact("Repairs fiddle bows")
    assert texts(memory.search("fiddle bows"))[0] == "Repairs fiddle bows"


def test_a_hit_tells_what_meaning_has_to_do_with_it(memory: MemoryHandle) -> None:
    memory.embed()
    why = memory.search("fiddle", explain=True)[0].why
    assert (why.words, why.words_rank, why.words_score, why.meaning_rank) == ((), None, None, 1)
    assert 0 < why.similarity <= 1
    why = memory.search("violin", explain=True)[0].why
    assert (why.words_rank, why.meaning_rank) == (1, 1)
    assert why.words


def test_an_empty_query_means_nothing(memory: MemoryHandle, model: Thesaurus) -> None:
    memory.embed()
    assert not memory.search(" ")
    assert model.queries == []


@pytest.mark.parametrize("query", ["???", "- —", "_", "？！。", "...\n"])
def test_a_query_without_a_letter_or_digit_finds_nothing(memory: MemoryHandle, model: Thesaurus, query: str) -> None:
    memory.embed()
    assert not memory.search(query)
    assert not memory.search(query, within="turns", min_similarity=-1)
    assert model.queries == []


@pytest.mark.parametrize("query", ["-x", "7?", "茶", "the"])
def test_a_query_with_one_is_near_something(memory: MemoryHandle, query: str) -> None:
    memory.embed()
    assert memory.search(query, min_similarity=-1)


def test_a_hit_says_where_no_word_brought_it_in(memory: MemoryHandle) -> None:
    memory.embed()
    assert [(hit.content, hit.by_meaning) for hit in memory.search("violin", min_similarity=-1)] == [
        ("Plays violin", False),
        ("Keeps bees", True),
    ]
    assert memory.search("fiddle", within="turns")[0].by_meaning
    assert not memory.search("violin", within="turns")[0].by_meaning


def test_nothing_is_asked_of_a_model_that_has_read_nothing(memory: MemoryHandle, model: Thesaurus) -> None:
    assert memory.search("violin")
    assert model.queries == []


def test_the_threshold_bounds_what_meaning_alone_brings_in(home: Path, model: Thesaurus, memory: MemoryHandle) -> None:
    memory.embed()
    assert len(memory.search("fiddle", min_similarity=-1)) == 2
    assert texts(memory.search("fiddle", min_similarity=0.3)) == ["Plays violin"]
    assert not memory.search("fiddle", min_similarity=1.0)
    assert texts(memory.search("violin", min_similarity=1.0)) == ["Plays violin"]
    with open_home(home, search_min_similarity=0.3) as strict:
        assert texts(strict.memory("ada").search("fiddle")) == ["Plays violin"]
        assert len(strict.memory("ada").search("fiddle", min_similarity=-1)) == 2


def test_the_threshold_changes_no_order_of_what_words_find(memory: MemoryHandle) -> None:
    for text in ("A violin of wood", "Wood for the winter", "Bees of the wood"):
        memory.add_fact(text)
    memory.embed()
    free = memory.search("violin of wood", top_k=9, min_similarity=-1)
    strict = memory.search("violin of wood", top_k=9, min_similarity=1)
    assert [(hit.id, hit.score) for hit in free if not hit.by_meaning] == [(hit.id, hit.score) for hit in strict]
    assert len(strict) < len(free)


def test_a_search_says_how_much_is_found_by_words_alone(memory: MemoryHandle) -> None:
    assert memory.search("violin").missing == memory.search("violin").total == 2
    memory.embed()
    assert memory.search("violin").missing == 0


def test_bounds_come_before_the_cut(memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        memory.add_fact(f"violin {number}", "preference")
    memory.add_fact("Mends tunes and roofs and shoes", "goal")
    memory.embed()
    monkeypatch.setattr("backstory.projections.search.query._DEPTH", 1)
    assert texts(memory.search("fiddle", top_k=1, category="goal")) == ["Mends tunes and roofs and shoes"]


# At the moment of asking.


def test_a_meaning_that_is_known_still_brings_nothing_back(memory: MemoryHandle) -> None:
    memory.embed()
    name = memory.facts()[0].id
    memory.edit_fact(name, "Plays the piano")
    assert "Plays violin" not in texts(memory.search("fiddle"))
    memory.remove_fact(name)
    assert texts(memory.search("fiddle", min_similarity=-1)) == ["Keeps bees"]
    memory.record("t1", [{"role": "user", "content": "Rather nothing.", "id": "m1"}])
    assert "violin every day" not in texts(memory.search("fiddle", within="turns"))


def test_what_is_gone_takes_nobodys_place(memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        memory.add_fact(f"violin violin {number}")
    memory.embed()
    for fact in memory.facts():
        if fact.content.startswith("violin"):
            memory.remove_fact(fact.id)
    monkeypatch.setattr("backstory.projections.search.query._DEPTH", 1)
    assert texts(memory.search("fiddle", top_k=2, min_similarity=-1)) == ["Plays violin", "Keeps bees"]


# Without it.


@pytest.mark.parametrize("error", [ModelUnavailableError("nobody is at home"), ModelRejectedError("nobody is at home")])
def test_a_server_that_cannot_be_reached_leaves_search_by_words(
    memory: MemoryHandle, model: Thesaurus, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    memory.embed()
    model.broken = error
    with caplog.at_level(logging.WARNING):
        for query in ("violin", "plays violin", "violin"):
            found = memory.search(query)
            assert texts(found) == ["Plays violin"]
            assert (found.trouble, found.embedded) == ("nobody is at home", 2)
    assert [record.getMessage() for record in caplog.records] == ["search goes on by words alone: nobody is at home"]
    model.broken = None
    assert memory.search("fiddle").trouble is None
    model.broken = error
    with caplog.at_level(logging.WARNING):
        memory.search("something else")
    assert len(caplog.records) == 2


def test_a_search_by_words_alone_is_told_no_model(home: Path, model: Thesaurus, memory: MemoryHandle) -> None:
    memory.embed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: None)
        with open_home(home) as bs:
            found = bs.memory("ada").search("violin")
            assert (found.model, found.embedded, texts(found)) == (None, 0, ["Plays violin"])
            with pytest.raises(NoModelError, match="embedding_model"):
                bs.memory("ada").embed()


# Embedding.


def test_embed_says_how_far_it_came(memory: MemoryHandle, model: Thesaurus) -> None:
    told: list[tuple[int, int]] = []
    done = memory.embed(progress=lambda *step: told.append(step))
    assert (done.model, done.embedded, done.total, done.new) == ("thesaurus", 4, 4, 4)
    assert told[-1] == (4, 4)
    assert model.read == ["Plays violin", "Keeps bees", "user: violin every day", *model.read[3:]]
    memory.add_fact("Likes tea")
    assert memory.embed().new == 1
    assert memory.embed(timeout=0).new == 0


def test_embed_stops_in_time(memory: MemoryHandle) -> None:
    done = memory.embed(timeout=0)
    assert (done.embedded, done.total, done.new) == (0, 4, 0)


@pytest.mark.parametrize("timeout", [float("nan"), -1, -0.001, "x", True, [1]])
def test_a_time_that_is_none_is_wrong_use(memory: MemoryHandle, model: Thesaurus, timeout: object) -> None:
    with pytest.raises(UsageError, match=r"timeout must be a number from 0"):
        memory.embed(timeout=timeout)
    assert model.read == []


@pytest.mark.parametrize("timeout", [float("inf"), 10**400, 3600])
def test_there_may_be_any_time(memory: MemoryHandle, timeout: float) -> None:
    assert memory.embed(timeout=timeout).new == 4


def test_an_agent_and_its_user_share_the_time(
    bs: Backstory, memory: MemoryHandle, model: Thesaurus, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = bs.memory("ada", "helper")
    agent.record("t1", exchange("tea"))
    now = [0.0]
    monkeypatch.setattr("backstory.operations.search.time.monotonic", lambda: now[0])
    model.before = lambda _: now.__setitem__(0, now[0] + 60)
    agent.embed(timeout=1000)
    asked = [given for given in model.given if given is not None]
    assert asked[0] == pytest.approx(1000, abs=30)
    assert asked[1] == pytest.approx(940, abs=30)
    memory.add_fact("Likes tea")
    model.before = lambda _: now.__setitem__(0, now[0] + 1e6)
    agent.record("t2", exchange("milk"))
    assert agent.embed(timeout=1000).new == 2


def test_another_model_that_only_searches_takes_nothing_from_the_former(
    home: Path, model: Thesaurus, memory: MemoryHandle
) -> None:
    memory.embed()
    before = vectors_of(home).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: Thesaurus("another"))
        with open_home(home) as bs:
            found = bs.memory("ada").search("violin")
            assert (texts(found), found.embedded, found.model) == (["Plays violin"], 0, "another")
            assert vectors_of(home).read_bytes() == before
            assert bs.memory("ada").embed().new == 4
            assert bs.memory("ada").search("fiddle")
    assert vectors_of(home).read_bytes() != before


def test_an_agent_embeds_what_it_reads(bs: Backstory, memory: MemoryHandle) -> None:
    agent = bs.memory("ada", "helper")
    agent.record("t1", exchange("tea"))
    done = agent.embed()
    assert (done.embedded, done.total) == (6, 6)
    found = agent.search("fiddle")
    assert (found.embedded, found.total) == (2, 2)


def test_what_was_embedded_is_there_the_next_time(home: Path, memory: MemoryHandle, model: Thesaurus) -> None:
    memory.embed()
    count = len(model.read)
    with open_home(home) as later:
        assert texts(later.memory("ada").search("fiddle"))[0] == "Plays violin"
        assert later.memory("ada").embed().new == 0
    assert len(model.read) == count


def until(true: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_is_new_is_embedded_in_the_background_once_somebody_has_searched(home: Path, model: Thesaurus) -> None:
    with open_home(home, background=True) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Plays violin")
        assert model.read == []
        assert memory.search("violin").embedded == 0
        until(lambda: memory.search("fiddle").embedded == 1)
        assert texts(memory.search("fiddle")) == ["Plays violin"]
        memory.add_fact("Builds a violin")
        until(lambda: memory.search("fiddle").embedded == 2)


def test_nothing_is_embedded_in_the_background_of_a_home_without_one(memory: MemoryHandle, model: Thesaurus) -> None:
    memory.search("fiddle")
    assert not [thread for thread in threading.enumerate() if thread.name == "backstory-embedding"]
    assert model.read == []


def test_a_home_that_is_closed_embeds_no_more(home: Path, model: Thesaurus) -> None:
    entered, opened = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    bs = open_home(home, background=True)
    for number in range(40):
        bs.memory("ada").add_fact(f"Plays violin {number}")
    model.before = wait
    bs.memory("ada").search("fiddle")
    assert entered.wait(PATIENCE)
    closing = threading.Thread(target=bs.close)
    closing.start()
    until(lambda: bs._services.states.searches.embedding.ending)
    opened.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert 0 < len(model.read) < 40


def test_a_home_that_is_closed_closes_its_model(home: Path, model: Thesaurus) -> None:
    closed: list[str] = []
    model.close = lambda: closed.append(model.name)
    with open_home(home) as bs:
        bs.memory("ada").search("violin")
        assert closed == []
    assert closed == ["thesaurus"]


# Erasure.


def bytes_of(model: Thesaurus, text: str) -> bytes:
    return packed(model._vector(text)[None])[0]


def test_an_erasure_leaves_no_vector_of_what_it_took_and_keeps_the_rest(
    home: Path, memory: MemoryHandle, model: Thesaurus
) -> None:
    memory.record("t2", [{"role": "user", "content": "honey and bees"}])
    memory.embed()
    gone = [bytes_of(model, text) for text in ("Plays violin", "user: violin every day")]
    stays = [bytes_of(model, text) for text in ("Keeps bees", "user: honey and bees")]
    kept = vectors_of(home).read_bytes()
    assert all(vector in kept for vector in (*gone, *stays))
    with open_home(home) as other:
        assert other.memory("ada").search("fiddle")
        memory.forget(matching="violin")
        kept = vectors_of(home).read_bytes()
        assert not any(vector in kept for vector in gone)
        assert all(vector in kept for vector in stays)
        for handle in (memory, other.memory("ada")):
            assert "Plays violin" not in texts(handle.search("fiddle"))
            assert "violin every day" not in texts(handle.search("fiddle", within="turns"))
    model.read.clear()
    memory.embed()
    # What was said next to it was embedded with it, as the turn that it answers.
    assert model.read == ["assistant: tea it is."]


def test_forgetting_everything_takes_the_file(home: Path, memory: MemoryHandle) -> None:
    memory.embed()
    memory.forget(everything=True)
    assert not vectors_of(home).exists()


def test_an_erasure_reaches_vectors_that_nobody_has_looked_at(
    home: Path, memory: MemoryHandle, model: Thesaurus
) -> None:
    memory.embed()
    with open_home(home) as other:
        other.memory("ada").forget(matching="violin")
    kept = vectors_of(home).read_bytes()
    assert bytes_of(model, "Plays violin") not in kept
    assert bytes_of(model, "Keeps bees") in kept


def test_an_erasure_reaches_vectors_where_nothing_is_searched_by_meaning(home: Path, memory: MemoryHandle) -> None:
    memory.embed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: None)
        with open_home(home) as other:
            other.memory("ada").forget(matching="violin")
    assert not vectors_of(home).exists()


def test_an_erasure_without_vectors_makes_no_file_of_them(home: Path, memory: MemoryHandle) -> None:
    memory.search("fiddle")
    memory.forget(matching="violin")
    assert not list(home.glob("users/ada/vectors*"))


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_what_is_erased_while_it_is_embedded_is_not_kept(
    home: Path, memory: MemoryHandle, model: Thesaurus, within: str
) -> None:
    entered, opened = threading.Event(), threading.Event()

    def wait(read: Sequence[str]) -> None:
        if any(("every" in text) == (within == "turns") for text in read):
            entered.set()
            assert opened.wait(PATIENCE)

    model.before = wait
    embedding = threading.Thread(target=memory.embed)
    embedding.start()
    assert entered.wait(PATIENCE)
    with open_home(home) as other:
        other.memory("ada").forget(matching="violin")
    opened.set()
    embedding.join(PATIENCE)
    assert not embedding.is_alive()
    kept = vectors_of(home).read_bytes() if vectors_of(home).exists() else b""
    assert bytes_of(model, "Plays violin") not in kept
    assert bytes_of(model, "user: violin every day") not in kept
    model.before = lambda _: None
    done = memory.embed()
    assert done.embedded == done.total
    kept = vectors_of(home).read_bytes()
    assert bytes_of(model, "user: violin every day") not in kept


@pytest.mark.parametrize("within", ["facts", "turns"])
def test_what_is_erased_while_the_query_is_read_is_not_found(
    home: Path, memory: MemoryHandle, model: Thesaurus, within: str
) -> None:
    memory.embed()
    with open_home(home) as other:
        theirs = other.memory("ada")
        read = model.query

        def erase(text: str) -> Floats:
            theirs.forget(matching="violin")
            return read(text)

        model.query = erase
        assert not [text for text in texts(memory.search("violin", within=within)) if "violin" in text]


def test_words_that_an_interrupted_erasure_left_are_not_embedded(
    home: Path, memory: MemoryHandle, model: Thesaurus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("backstory.ledger.engines.jsonl.store.JsonlStore.redact", refuse)
        with pytest.raises(StoreError):
            memory.forget(matching="violin")
        memory.embed()
        assert not [text for text in model.read if "violin" in text]
        assert not memory.search("violin", within="turns")


steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "say", "edit", "remove", "forget", "embed", "search"]), st.integers(0, 3)),
    max_size=12,
)


@settings(max_examples=examples(1 / 8))
@given(history=steps)
def test_after_any_history_meaning_brings_in_what_stands_and_is_as_if_embedded_anew(
    history: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home, model = tmp_path_factory.mktemp("home"), Thesaurus()
    topics = ("violin", "tea", "bees", "oslo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: model)
        with open_home(home) as bs:
            memory = bs.memory("ada")
            for number, (step, which) in enumerate(history):
                facts, topic = memory.facts(), topics[which]
                if step == "add":
                    memory.add_fact(f"{topic} {number}")
                elif step == "say":
                    memory.record(f"t{which}", exchange(f"{topic} {number}"))
                elif step == "edit" and facts:
                    memory.edit_fact(facts[which % len(facts)].id, f"rather {topic} {number}")
                elif step == "remove" and facts:
                    memory.remove_fact(facts[which % len(facts)].id)
                elif step == "forget" and any(topic in fact.content for fact in facts):
                    memory.forget(matching=topic)
                elif step == "embed":
                    memory.embed()
                elif step == "search":
                    memory.search(topic)
                for found in (memory.search("fiddle"), memory.search(topic)):
                    assert set(texts(found)) <= {fact.content for fact in memory.facts()}
            memory.embed()
            queries = [(query, within) for query in ("fiddle", *topics) for within in ("facts", "turns")]
            before = [memory.search(query, within=within, top_k=20, min_similarity=-1) for query, within in queries]
            for found in before:
                assert found.embedded == found.total
                assert len(found) == found.total
            # However few are asked for, they are the best of all.
            few = [memory.search(query, within=within, top_k=2, min_similarity=-1) for query, within in queries]
            assert [list(found) for found in few] == [list(found[:2]) for found in before]
        vectors_of(home).unlink(missing_ok=True)
        with open_home(home) as bs:
            memory = bs.memory("ada")
            memory.embed()
            assert [
                memory.search(query, within=within, top_k=20, min_similarity=-1) for query, within in queries
            ] == before


# An embedder that does not keep to its port


class Spoilt(Thesaurus):
    """Once `spoil` is set, what it answers with is made of what it should."""

    spoil: Callable[[Floats], Floats] | None = None

    def query(self, text: str) -> Floats:
        return super().query(text) if self.spoil is None else self.spoil(super().query(text))

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        made = super().passages(texts, timeout)
        return made if self.spoil is None else self.spoil(made)


def fail(_: Floats) -> Floats:
    raise KeyError("I drink matcha")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made * np.nan,
        lambda made: made * np.inf,
        lambda made: made[:-1].reshape(-1, made.shape[-1]) if made.ndim > 1 else made[:0],
        lambda made: made[None],
        lambda _: None,
        lambda _: ["many", "words"],
        fail,
        lambda made: np.concatenate([made, made]) if made.ndim > 1 else made[None],
    ],
    ids=[
        "nan",
        "infinite",
        "one too few",
        "one axis too many",
        "nothing",
        "words",
        "an error",
        "one too many",
    ],
)
def test_an_embedder_that_breaks_its_port_costs_meaning_and_nothing_else(tmp_path, monkeypatch, caplog, spoil):
    embedder = Spoilt()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        memory.add_fact("plays the violin")
        memory.embed()
        memory.add_fact("drinks matcha")
        embedder.spoil = spoil
        for _ in range(3):
            found = memory.search("drinks")
            assert [hit.content for hit in found] == ["drinks matcha"]
            assert found.trouble is not None
            assert found.trouble.startswith("thesaurus ")
        with pytest.raises(ModelUnavailableError, match=r"^thesaurus "):
            memory.embed()
        (fault,) = memory.status().faults
        assert (fault.doing, fault.count) == ("search", 3)
        told = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.getMessage().partition(":")[0] for record in told] == ["search goes on by words alone"]
        assert "matcha" not in caplog.text
        embedder.spoil = None
        assert memory.embed().embedded == 2
        assert memory.search("fiddle")[0].content == "plays the violin"


def test_passages_of_another_size_than_queries_are_a_fault_and_cost_no_vector(tmp_path, monkeypatch, caplog):
    embedder = Spoilt()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        memory.add_fact("plays the violin")
        memory.embed()
        kept = vectors_of(tmp_path).read_bytes()
        memory.add_fact("drinks matcha")
        embedder.spoil = lambda made: made[:, :-1] if made.ndim > 1 else made
        with pytest.raises(ModelUnavailableError, match="a vector of 63 numbers, and its others have 64"):
            memory.embed()
        assert vectors_of(tmp_path).read_bytes() == kept
        assert texts(memory.search("fiddle")) == ["plays the violin"]
        assert "begun anew" not in caplog.text


def test_a_query_of_another_size_than_passages_is_a_fault_and_costs_no_vector(tmp_path, monkeypatch, caplog):
    embedder = Spoilt()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        memory.add_fact("plays the violin")
        memory.embed()
        kept = vectors_of(tmp_path).read_bytes()
        embedder.spoil = lambda made: made if made.ndim > 1 else made[:-1]
        found = memory.search("violin")
        assert (texts(found), "63 numbers, and its others have 64" in found.trouble) == (["plays the violin"], True)
        (fault,) = memory.status().faults
        assert (fault.doing, fault.count) == ("search", 1)
        assert vectors_of(tmp_path).read_bytes() == kept
        embedder.spoil = None
        assert texts(memory.search("fiddle")) == ["plays the violin"]
        assert memory.search("violin").trouble is None
        assert "begun anew" not in caplog.text


def test_what_goes_wrong_in_the_background_is_counted_although_no_search_meets_it(tmp_path, monkeypatch):
    embedder = Spoilt()
    embedder.spoil = lambda made: made * np.nan
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    with open_home(tmp_path, background=True) as home:
        memory = home.memory("ada")
        memory.add_fact("plays the violin")
        found = memory.search("violin")
        assert (texts(found), found.trouble, found.embedded) == (["plays the violin"], None, 0)
        until(lambda: memory.status().faults)
        fault = memory.status().faults[0]
        assert (fault.doing, fault.kind, "found by words" in fault.detail) == ("embed", "ModelUnavailableError", True)
        assert not vectors_of(tmp_path).exists()
