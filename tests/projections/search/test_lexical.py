"""The index by words: what it ranks how, and that growing it is the same as building it."""

from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs
from sizes import examples

from backstory.projections.search.lexical import index as lexical
from backstory.projections.search.lexical.entry import Entry, Scored
from backstory.projections.search.lexical.index import LexicalIndex
from backstory.projections.search.lexical.neighbours import Neighbours


def facts(*texts: str) -> LexicalIndex:
    return LexicalIndex(Entry(f"f{n}", text) for n, text in enumerate(texts))


def thread(*texts: str, name: str = "t", speakers: str = "AB") -> list[Entry]:
    who = itertools.cycle({"A": "Anna", "B": "Ben"}[letter] for letter in speakers)
    return [Entry(f"{name}{n}", text, next(who), name, n) for n, text in enumerate(texts)]


def keys(found: list[Scored]) -> list[str]:
    return [scored.key for scored in found]


def test_the_entry_that_says_it_comes_first_and_what_says_nothing_of_it_is_no_hit() -> None:
    index = facts("likes green tea", "works in Lisbon", "drinks tea with milk every morning in winter")
    assert keys(index.ranked("green teas", 5)) == ["f0", "f2"]


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    index = facts("likes tea", "likes tea too", "likes tea as well", "has a violin")
    assert keys(index.ranked("tea violin", 1)) == ["f3"]


def test_a_short_entry_is_ahead_of_a_long_one_that_says_it_as_often() -> None:
    index = facts("plays chess", "plays chess with uncle Georg on rainy Sunday afternoons")
    assert keys(index.ranked("chess", 2)) == ["f0", "f1"]


def test_saying_it_twice_counts_for_more_but_not_twice() -> None:
    index = facts("tea tea", "tea cup", "red cup")
    twice, once = index.ranked("tea", 2)
    assert twice.key == "f0"
    assert once.score < twice.score < 2 * once.score


@pytest.mark.parametrize("query", ["", "   ", "?!", "zzzz"])
def test_a_query_without_a_word_that_is_known_finds_nothing(query: str) -> None:
    assert facts("likes tea").ranked(query, 5) == []


def test_an_empty_index_finds_nothing() -> None:
    index = LexicalIndex()
    assert (index.ranked("tea", 5), index.explain("tea", "f0"), len(index)) == ([], (), 0)


@pytest.mark.parametrize("k", [0, -1])
def test_nothing_is_found_where_nothing_is_asked_for(k: int) -> None:
    assert facts("tea").ranked("tea", k) == []


def test_of_equals_the_newest_comes_first_and_one_that_is_replaced_keeps_its_place() -> None:
    index = facts(*["likes tea"] * 4)
    assert keys(index.ranked("tea", 4)) == ["f3", "f2", "f1", "f0"]
    index.put([Entry("f1", "likes tea!")])
    assert keys(index.ranked("tea", 4)) == ["f3", "f2", "f1", "f0"]
    index.drop(["f1"])
    index.put([Entry("f1", "likes tea")])
    assert keys(index.ranked("tea", 2)) == ["f1", "f3"]


def test_in_a_large_index_a_word_that_is_everywhere_tells_nothing_beside_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lexical, "_LARGE", 4)
    index = facts("user likes tea", "user likes rain", "user likes tea and rain", "user runs", "user swims")
    assert keys(index.ranked("user tea", 9)) == ["f0", "f2"]
    assert len(index.ranked("user", 9)) == 5
    assert len(facts("user likes tea", "user likes rain").ranked("user tea", 9)) == 2


def test_among_many_equals_the_cut_takes_the_newest() -> None:
    index = facts(*["likes tea"] * 500)
    assert keys(index.ranked("tea", 3)) == ["f499", "f498", "f497"]


@pytest.mark.parametrize("kept", [None, 400, 5])
def test_of_equals_the_one_of_most_worth_comes_first_before_any_cut_and_never_ahead_of_what_fits_better(kept) -> None:
    index = facts(*["likes tea"] * 500, "tea")
    keep = None if kept is None else {f"f{n}" for n in range(kept)} | {"f500"}

    def worth(key: str) -> float:
        return 0.0 if key == "f500" else 0.9 if key in ("f1", "f3") else 0.5

    last = "f499" if kept is None else f"f{kept - 1}"
    assert keys(index.ranked("tea", 4, keep, worth)) == ["f500", "f3", "f1", last]
    assert keys(index.ranked("tea", 2, keep)) == ["f500", last]


def test_chinese_words_of_two_characters_are_found() -> None:
    index = facts("用户喜欢喝乌龙茶", "用户在上海工作", "用户养了一只猫")
    assert keys(index.ranked("上海", 1)) == ["f1"]
    assert keys(index.ranked("爱喝什么茶", 1)) == ["f0"]


@pytest.mark.parametrize("query", ["swimmming", "swimmng", "swiming", "siwmming"])
def test_a_slip_of_a_key_is_forgiven(query: str) -> None:
    index = facts("goes swimming", "goes running")
    (only,) = index.ranked(query, 5)
    assert only.key == "f0"
    assert only.score <= index.ranked("swimming", 1)[0].score


def test_a_word_that_is_known_is_never_taken_for_another() -> None:
    index = facts("has a horse", "has a house")
    assert keys(index.ranked("house", 5)) == ["f1"]


def test_of_what_a_slip_may_mean_the_commonest_is_taken() -> None:
    index = facts("has a horse", "has a house", "sold the house")
    assert set(keys(index.ranked("hoxse", 5))) == {"f1", "f2"}


def test_an_answer_is_found_by_the_words_of_its_question() -> None:
    index = LexicalIndex(thread("Where did you learn pottery?", "In a village near Porto.", "How nice.", "And cheap."))
    found = index.ranked("pottery", 4)
    assert keys(found)[:2] == ["t0", "t1"]
    assert [scored.score for scored in found] == sorted((scored.score for scored in found), reverse=True)


def test_words_carry_four_turns_on_and_no_further_and_less_the_farther() -> None:
    index = LexicalIndex(thread("pottery", *["well"] * 6))
    scores = {scored.key: scored.score for scored in index.ranked("pottery", 9)}
    assert list(scores) == ["t0", "t1", "t2", "t3", "t4"]


def test_words_carry_back_too_but_less() -> None:
    index = LexicalIndex(thread(*["well"] * 5, "pottery", *["well"] * 5))
    scores = {scored.key: scored.score for scored in index.ranked("pottery", 11)}
    assert set(scores) == {f"t{n}" for n in range(1, 10)}
    assert scores["t6"] > scores["t4"]


def test_an_entry_is_as_wide_as_its_words_and_those_around_it_in_part() -> None:
    nearby = Neighbours()
    for slot, length in enumerate((10, 0, 20), 1):
        nearby.put(slot, length, "t", slot, slot)
    widths = (10 + 0.3 * 20, 0.8 * 10 + 0.4 * 20, 20 + 0.5 * 10)
    assert list(nearby.relative_widths(3)[1:]) == pytest.approx([width * 3 / sum(widths) for width in widths])


def test_a_long_neighbour_does_not_drown_what_stands_beside_it() -> None:
    answer = "pottery " * 8 + "clay " * 300
    index = LexicalIndex(thread(answer, "The pottery class was on Tuesday.", answer, "well", "fine"))
    nearby = {part.where: part.score for part in index.explain("pottery", "t1")}
    assert nearby["own words"] > nearby["nearby"]
    short = LexicalIndex(thread("pottery " * 20, "The pottery class was on Tuesday."))
    assert {part.where: part.score for part in short.explain("pottery", "t1")}["nearby"] > 0.5 * short.ranked(
        "pottery", 1
    )[0].score


def test_a_short_question_comes_behind_what_is_said_unless_its_speaker_mostly_asks() -> None:
    asked, told = "Do you play tea games?", "I play tea games."
    mixed = LexicalIndex(thread(told, asked, asked, told, speakers="AABB"))
    assert [key in ("t0", "t3") for key in keys(mixed.ranked("tea games", 4))] == [True, True, False, False]
    assert {part.where: part.score < 0 for part in mixed.explain("tea", "t1")}["short question"]
    asking = LexicalIndex([Entry(f"a{n}", asked, "user") for n in range(3)])
    assert all(part.score > 0 for part in asking.explain("tea", "a0"))
    assert [part.where for part in facts(asked).explain("tea", "f0")] == ["own words"]


def test_facts_count_for_their_turn_and_not_for_its_neighbours() -> None:
    turns = thread("yes", "the big one", "no")
    turns[1] = structs.replace(turns[1], facts=("Plays the cello", "Owns a cello"))
    index = LexicalIndex(turns)
    assert keys(index.ranked("cello", 9)) == keys(index.ranked("celo", 9)) == ["t1"]
    index.put([structs.replace(turns[1], facts=())])
    assert index.ranked("cello", 9) == []


def test_another_thread_is_no_neighbour_and_facts_have_none() -> None:
    index = LexicalIndex([*thread("pottery", "yes", name="a"), *thread("no", "never", name="b"), Entry("f", "tea")])
    assert set(keys(index.ranked("pottery", 9))) == {"a0", "a1"}
    assert keys(index.ranked("tea", 9)) == ["f"]


def test_neighbours_close_up_when_one_between_them_goes() -> None:
    index = LexicalIndex(thread("pottery", "b", "c", "d", "e", "fine"))
    assert "t5" not in keys(index.ranked("pottery", 9))
    index.drop(["t2"])
    assert "t5" in keys(index.ranked("pottery", 9))


def test_a_turn_that_comes_late_takes_its_place_in_its_thread() -> None:
    turns = thread("pottery", "b", "c", "d", "e")
    late = LexicalIndex([turns[0], *turns[2:]])
    late.put([turns[1]])
    assert {s.key: s.score for s in late.ranked("pottery", 9)} == {
        s.key: s.score for s in LexicalIndex(turns).ranked("pottery", 9)
    }


def test_who_said_it_counts() -> None:
    index = LexicalIndex(thread("I like tea", "I like tea", speakers="AB"))
    assert keys(index.ranked("What does Ben like to drink, tea?", 1)) == ["t1"]
    assert keys(index.ranked("Anna's tea", 1)) == ["t0"]


def test_a_speaker_alone_is_something_to_find() -> None:
    index = LexicalIndex(thread("hello", "hi", "bye"))
    assert keys(index.ranked("anna", 9)) == ["t2", "t0"]


@pytest.mark.parametrize("query", ["the concert in March", "concert 2026", "the concert of 8 March", "3月 concert"])
def test_the_day_it_was_said_on_counts(query: str) -> None:
    index = LexicalIndex(
        [
            Entry("old", "The concert was loud", at="2025-02-07T10:00:00Z"),
            Entry("new", "The concert was quiet", at="2026-03-08T10:00:00Z"),
            Entry("none", "The concert was long", at="soon"),
        ]
    )
    assert keys(index.ranked(query, 1)) == ["new"]


def test_only_what_is_kept_is_ranked_before_the_cut() -> None:
    index = facts(*[f"tea number {n}" for n in range(300)])
    keep = {f"f{n}" for n in range(0, 300, 100)}
    for kept in (keep, sorted(keep), dict.fromkeys(keep)):
        assert keys(index.ranked("tea", 10, kept)) == ["f200", "f100", "f0"]
    most = {f"f{n}" for n in range(299)} | {"elsewhere"}
    assert keys(index.ranked("tea", 2, most)) == ["f298", "f297"]
    assert index.ranked("tea", 5, ()) == []
    assert index.ranked("tea", 5, ["elsewhere"]) == []


def test_the_parts_of_a_score_add_up_to_it_and_say_where_each_word_was() -> None:
    index = LexicalIndex(
        [
            *thread("Where do you keep the violins?", "In the kitchen.", "Really?"),
            Entry("x", "kitchen", at="2026-03-08"),
        ]
    )
    query = "Ben, violins in the kitchn, March"
    for scored in index.ranked(query, 9):
        parts = index.explain(query, scored.key)
        assert sum(part.score for part in parts) == pytest.approx(scored.score, abs=1e-12)
        assert all(part.score > 0 for part in parts)
    assert {(part.word, part.where) for part in index.explain(query, "t1")} == {
        ("violins", "nearby"),
        ("kitchn", "own words"),
        ("ben", "speaker"),
    }
    assert ("march", "day") in {(part.word, part.where) for part in index.explain(query, "x")}
    assert index.explain(query, "nobody") == ()


def test_what_is_dropped_is_nowhere() -> None:
    index = facts("likes tea", "likes coffee")
    index.drop(["f0", "f0", "never there"])
    assert index.ranked("tea", 5) == []
    assert index.explain("tea", "f0") == ()
    assert len(index) == 1


def test_many_changes_do_not_make_it_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "_MANY_DEAD", 5)
    index = LexicalIndex(thread("pottery", "fine"))
    for n in range(100):
        index.put([Entry("other", f"word{n}", "Anna", "u", 1, "2026-03-08")])
    assert len(index._postings) < 30
    assert index.ranked("word7", 5) == []
    assert keys(index.ranked("pottery", 5)) == ["t0", "t1"]
    assert [part.where for part in index.explain("word99 anna march", "other")] == ["own words", "speaker", "day"]


def test_adding_one_at_a_time_leaves_few_segments_to_look_through() -> None:
    index = LexicalIndex()
    for n in range(200):
        index.put([Entry(f"f{n}", f"likes tea number {n}")])
        assert index.ranked("tea", 1)[0].key == f"f{n}"
    assert len(index._postings._segments) <= 10


WORDS = st.lists(st.sampled_from(["tea", "cup", "violin", "jump", "cat", "茶叶", "Ben"]), max_size=6).map(" ".join)
QUERIES = ("tea", "violin cup ben", "茶", "jmup violn anna March 2026")


class Changing(RuleBasedStateMachine):
    """Whatever happens to an index, it answers as one that is built of what is left, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.index = LexicalIndex()
        self.left: dict[str, Entry] = {}

    @rule(
        names=st.lists(st.sampled_from(string.ascii_lowercase), max_size=8),
        text=WORDS,
        group=st.sampled_from(["", "t", "u"]),
        order=st.integers(0, 9),
        speaker=st.sampled_from(["", "Anna", "Ben"]),
        at=st.sampled_from(["", "2026-03-08T10:00:00Z", "2025-01-02T10:00:00Z"]),
        told=st.lists(WORDS, max_size=2).map(tuple),
        end=st.sampled_from(["", "?", " cup" * 40]),
    )
    def put(
        self,
        *,
        names: list[str],
        text: str,
        group: str,
        order: int,
        speaker: str,
        at: str,
        told: tuple[str, ...],
        end: str,
    ) -> None:
        entries = [Entry(name, f"{text} {name}{end}", speaker, group, order + ord(name), at, told) for name in names]
        self.index.put(entries)
        self.left.update((entry.key, entry) for entry in entries)

    @rule(names=st.lists(st.sampled_from(string.ascii_lowercase), max_size=8))
    def drop(self, names: list[str]) -> None:
        self.index.drop(names)
        for name in names:
            self.left.pop(name, None)

    @rule(query=st.sampled_from(QUERIES))
    def ask(self, query: str) -> None:
        self.index.ranked(query, 3)

    @invariant()
    def it_answers_as_if_built_at_once(self) -> None:
        anew = LexicalIndex(self.left.values())
        assert len(self.index) == len(anew)
        for query in QUERIES:
            found = self.index.ranked(query, 30)
            assert found == anew.ranked(query, 30)
            assert found[:2] == self.index.ranked(query, 2)
            keep = [name for name in self.left if name < "k"]
            assert self.index.ranked(query, 30, keep) == [scored for scored in found if scored.key < "k"]
            for scored in found[:3]:
                assert sum(part.score for part in self.index.explain(query, scored.key)) == pytest.approx(scored.score)


@pytest.fixture(autouse=True, scope="module")
def _begins_anew_soon() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "_MANY_DEAD", 20)
        yield


TestChanging = Changing.TestCase
TestChanging.settings = settings(max_examples=examples(1 / 4))


def test_of_a_long_text_that_nobody_knows_only_a_few_words_are_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("backstory.projections.search.lexical.index.spellings", lambda word: asked.append(word) or [])
    strange = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}qzx" for n in range(300)]
    assert LexicalIndex([Entry("a", "Ada plays the piano")]).ranked(" ".join(strange), 5) == []
    assert len(asked) == 8
