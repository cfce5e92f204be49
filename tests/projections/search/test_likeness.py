"""How like facts are to a text: what it promises, and that following changes ends where beginning anew does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import open_home
from hypothesis import given
from hypothesis import strategies as st

from backstory.projections.search import query as searching
from backstory.projections.search.corpus import IndexChange
from backstory.projections.search.lexical.entry import Entry
from backstory.projections.search.similarity import Similarity

WORDS = ("tea", "violin", "bees", "Oslo", "喝茶", "running", "run")


def holding(texts: dict[str, str]) -> Similarity:
    likeness = Similarity()
    likeness.take(IndexChange(put=[Entry(key=key, text=text) for key, text in texts.items()], anew=True))
    return likeness


def test_the_same_words_are_alike_altogether_and_others_not_at_all() -> None:
    alike = holding({"a": "Plays the violin", "b": "Keeps bees"}).of("plays the VIOLIN")
    assert alike == {"a": pytest.approx(1.0)}


def test_what_shares_more_and_rarer_words_is_more_alike() -> None:
    likeness = holding({"a": "green tea", "b": "green bees", "c": "black tea", "d": "tea"})
    alike = likeness.of("green tea, please")
    assert alike["a"] > alike["c"] > 0
    assert alike["b"] > 0
    assert likeness.of("black")["c"] > likeness.of("black green tea")["d"]


def test_words_that_no_entry_has_make_all_less_like_it() -> None:
    likeness = holding({"a": "Plays the violin"})
    assert 0 < likeness.of("violin, xylophone and bassoon")["a"] < likeness.of("violin")["a"]


@pytest.mark.parametrize("query", ["", " \n", "zebra", "?!"])
def test_nothing_is_like_nothing(query: str) -> None:
    assert holding({"a": "Plays the violin", "b": "", "c": "..."}).of(query) == {}


def test_nothing_is_like_anything_where_there_is_nothing() -> None:
    assert Similarity().of("tea") == {}


def test_an_answer_is_not_remembered_past_a_change() -> None:
    likeness = holding({"a": "tea"})
    assert likeness.of("tea") is likeness.of("tea")
    likeness.take(IndexChange(drop=["a"], put=[Entry(key="b", text="tea")]))
    assert set(likeness.of("tea")) == {"b"}
    likeness.take(IndexChange(anew=True))
    assert likeness.of("tea") == {}


texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
changes = st.lists(st.tuples(st.dictionaries(st.sampled_from("abcd"), texts), st.sets(st.sampled_from("abcd"))))


@given(walk=changes, query=texts)
def test_following_changes_ends_where_beginning_anew_does(
    walk: list[tuple[dict[str, str], set[str]]], query: str
) -> None:
    likeness, held = Similarity(), dict[str, str]()
    for put, drop in walk:
        gone = [key for key in drop if key in held]
        likeness.take(IndexChange(put=[Entry(key=key, text=text) for key, text in put.items()], drop=gone))
        held = {key: text for key, text in held.items() if key not in gone} | put
        alike = likeness.of(query)
        assert alike == pytest.approx(holding(held).of(query))
        assert all(0 < value <= 1 for value in alike.values())


@given(walk=changes, most=st.integers(1, 3), query=texts)
def test_entries_that_are_compared_in_parts_are_all_compared_in_the_end(
    walk: list[tuple[dict[str, str], set[str]]], most: int, query: str
) -> None:
    likeness, held = Similarity(), dict[str, str]()
    for put, drop in walk:
        gone = [key for key in drop if key in held]
        likeness.take(IndexChange(put=[Entry(key=key, text=text) for key, text in put.items()], drop=gone), most)
        held = {key: text for key, text in held.items() if key not in gone} | put
        assert likeness.of(query).keys() <= held.keys()
    for _ in held:
        likeness.take(IndexChange(), most)
    assert likeness.of(query) == pytest.approx(holding(held).of(query))


def test_the_newest_of_very_many_facts_are_compared_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_FACTS_AT_ONCE", 2)
    for background in (True, False):
        with open_home(tmp_path / str(background), background=background, embedding_model="none") as bs:
            memory = bs.memory("ada")
            ids = [memory.add_fact(f"Ada sails boat {n}").fact.id for n in range(5)]
            services = memory._services
            search = services.home.states(services.scope).search
            found = [set(search.likeness(services.memory(), "boats")) for _ in range(3)]
            assert found == ([set(ids[3:]), set(ids[1:]), set(ids)] if background else [set(ids)] * 3)


def test_it_loads_no_library_of_numbers() -> None:
    code = (
        "import sys\n"
        "from backstory.projections.search.query import Search\n"
        "from backstory.projections.search.similarity import Similarity\n"
        "Similarity().of('tea')\n"
        "sys.exit('numpy' in sys.modules or 'faiss' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
