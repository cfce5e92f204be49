"""An index by words that goes on from a file: it answers as one that is built at once, and damage is noticed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sizes import examples

from backstory.projections.derived_files import DamagedError, replacing
from backstory.projections.search.lexical import index as lexical
from backstory.projections.search.lexical.column_file import ColumnFile, write_columns
from backstory.projections.search.lexical.entry import Entry, key_at, place_of
from backstory.projections.search.lexical.index import LexicalIndex
from backstory.projections.search.lexical.lazy_filter import StoredFilter
from backstory.projections.search.lexical.places import StoredKeys, StoredPlaces

WORDS = st.lists(st.sampled_from(["tea", "cup", "violin", "jump", "cat", "茶叶", "Ben"]), max_size=6).map(" ".join)
QUERIES = ("tea", "violin cup ben", "茶", "jmup violn anna March 2026")


def stored(index: LexicalIndex, folder: Path, places: type[StoredPlaces] = StoredPlaces) -> LexicalIndex:
    path = folder / "words"
    columns, keys = index.columns()
    assert len(keys) == len(index)
    with replacing(path) as fresh:
        write_columns(fresh, columns | {"keys": keys})
    return LexicalIndex(stored=places(ColumnFile(path)))


class Storing(RuleBasedStateMachine):
    """Whatever happens to an index before and after it is stored, it answers as one that is built at once."""

    places = StoredPlaces

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.index = LexicalIndex()
        self.left: dict[str, Entry] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(
        orders=st.lists(st.integers(1, 20), max_size=8),
        text=WORDS,
        group=st.sampled_from(["t", "u u", "5"]),
        speaker=st.sampled_from(["", "Anna", "Ben"]),
        at=st.sampled_from(["", "2026-03-08T10:00:00Z", "2025-01-02T10:00:00Z"]),
        told=st.lists(WORDS, max_size=2).map(tuple),
        end=st.sampled_from(["", "?", " cup" * 40, " cup" * 300]),
    )
    def put(
        self, *, orders: list[int], text: str, group: str, speaker: str, at: str, told: tuple[str, ...], end: str
    ) -> None:
        entries = [
            self.entry(Entry(key_at(group, order), f"{text} w{order}{end}", speaker, group, order, at, told))
            for order in orders
        ]
        self.index.put(entries)
        self.left.update((entry.key, entry) for entry in entries)

    def entry(self, entry: Entry) -> Entry:
        return entry

    @rule(group=st.sampled_from(["t", "u u", "5"]), orders=st.lists(st.integers(1, 20), max_size=8))
    def drop(self, group: str, orders: list[int]) -> None:
        keys = [key_at(group, order) for order in orders]
        self.index.drop(keys)
        for key in keys:
            self.left.pop(key, None)

    @rule()
    def store(self) -> None:
        self.index = stored(self.index, Path(self.folder.name), self.places)
        assert self.index.added == 0

    @invariant()
    def it_answers_as_if_built_at_once(self) -> None:
        anew = LexicalIndex(self.left.values())
        assert len(self.index) == len(anew)
        for query in QUERIES:
            found = self.index.ranked(query, 60)
            assert found == anew.ranked(query, 60)
            assert found[:2] == self.index.ranked(query, 2)
            keep = [key for key in self.left if place_of(key)[1] < 9]
            allowed = [scored for scored in found if scored.key in keep]
            assert self.index.ranked(query, 60, keep) == allowed
            assert self.index.ranked(query, 60, self.filtered(keep)) == allowed
            for scored in found[:3]:
                assert self.index.explain(query, scored.key) == anew.explain(query, scored.key)

    def filtered(self, keep: list[str]) -> StoredFilter:
        first = self.index._first
        slots = [slot > 0 and self.index._key(slot) in keep for slot in range(first)]
        here = self.index._stored or self.places.__new__(self.places)
        return StoredFilter(keep.__contains__, lambda: keep, len(keep), here, np.array(slots, bool))


class StoringKeys(Storing):
    """The same with entries that are in no group."""

    places = StoredKeys

    def entry(self, entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, group="", order=0, facts=())


@pytest.fixture(autouse=True, scope="module")
def _begins_anew_soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "_MANY_DEAD", 20)
        yield


TestStoring = Storing.TestCase
TestStoring.settings = settings(max_examples=examples(1 / 4))
TestStoringKeys = StoringKeys.TestCase
TestStoringKeys.settings = settings(max_examples=examples(1 / 8))


def test_a_file_holds_no_word_of_what_was_dropped(tmp_path: Path) -> None:
    index = LexicalIndex(
        Entry(key_at("t", n), text, "Anna", "t", n) for n, text in enumerate(("tea", "violin", "cup"), 1)
    )
    index = stored(index, tmp_path)
    assert b"violin" in (tmp_path / "words").read_bytes()
    index.drop([key_at("t", 2)])
    stored(index, tmp_path)
    assert b"violin" not in (tmp_path / "words").read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    stored(LexicalIndex([Entry(key_at("t", 1), "tea", "Anna", "t", 1)]), tmp_path)
    return tmp_path / "words"


def test_each_flipped_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedError):
            ColumnFile(path)


def test_each_cut_and_anything_behind_the_end_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for content in (*(whole[:at] for at in range(len(whole))), whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(DamagedError):
            ColumnFile(path)


def test_a_file_that_is_cut_or_written_to_while_it_is_open_is_noticed(path: Path) -> None:
    file = ColumnFile(path)
    assert file.is_untouched()
    assert file.texts("own words") == ["tea"]
    with path.open("r+b") as other:
        other.truncate(40)
    assert not file.is_untouched()
    with pytest.raises(DamagedError, match="cut short"):
        file.texts("own words")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ColumnFile(path)
