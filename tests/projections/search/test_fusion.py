"""Two rankings made one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backstory.projections.search.lexical.entry import Scored
from backstory.projections.search.results import Explanation, by_words_and_cited, fused


def ranking(keys: str) -> list[Scored]:
    return [Scored(key, 1.0 / n) for n, key in enumerate(keys, 1)]


def never(key: str) -> bool:
    return False


def best(words: str, meaning: str, missing: str = "", k: int = 99, within: str = "turns") -> str:
    found = fused(ranking(words), ranking(meaning), lambda key: key in missing, k, within=within)
    return "".join(one.key for one in found)


def test_what_both_have_is_ahead_of_what_one_has() -> None:
    assert best("ab", "cb")[0] == "b"


def test_first_in_both_scores_one() -> None:
    (only,) = fused(ranking("a"), ranking("a"), never, 5, within="turns")
    assert only.score == 1
    assert only.why == Explanation((), 1, 1.0, 1, 1.0)


def test_words_count_for_more_than_meaning() -> None:
    assert best("a", "b") == "ab"


def test_what_is_best_by_meaning_alone_is_among_the_first() -> None:
    assert best("abcdefghij", "z").index("z") == 5


def test_of_facts_meaning_counts_as_much_as_words_and_what_is_far_ahead_stays_ahead() -> None:
    words, meaning = [Scored("a", 9.0), Scored("b", 2.0)], [Scored("b", 0.83), Scored("a", 0.82), Scored("c", 0.7)]
    assert [one.key for one in fused(words, meaning, never, 9, within="facts")] == ["a", "b", "c"]
    assert [one.key for one in fused(meaning, words, never, 9, within="facts")] == ["a", "b", "c"]
    assert best("abcdefghij", "zy", within="facts").index("z") == 1
    assert best("ab", "b", within="facts") == "ba"
    assert best("ab", "b", missing="a", within="facts") == "ab"


def test_of_facts_that_comes_first_whose_turns_fit_and_none_is_added() -> None:
    words, turns = [Scored("a", 5.0), Scored("b", 4.0)], [Scored("b", 7.0), Scored("c", 6.0)]
    found = fused(words, [], never, 9, within="facts", by_cited=turns, citing="abc")
    assert [(one.key, one.why.cited_rank, one.why.cited_score) for one in found] == [("b", 1, 7.0), ("a", None, None)]
    assert 0 <= found[1].score <= found[0].score <= 1


def test_what_cites_nothing_stands_by_what_it_cites_as_by_its_own_words() -> None:
    words, turns = [Scored("a", 5.0), Scored("b", 4.0)], [Scored("b", 4.5)]
    assert [one.key for one in fused(words, [], never, 9, within="facts", by_cited=turns, citing="b")] == ["a", "b"]
    for citing, scores in (("b", [("a", 5.0), ("b", 4.5)]), ("ab", [("b", 4.5), ("a", 2.5)])):
        assert [(one.key, one.score) for one in by_words_and_cited(words, turns, citing)] == scores
    assert [(one.key, one.score) for one in by_words_and_cited(words, [], "ab")] == [("a", 5.0), ("b", 4.0)]


def test_a_rank_that_is_not_there_is_none() -> None:
    by_key = {one.key: one for one in fused(ranking("ab"), ranking("c"), never, 5, within="turns")}
    b, c = by_key["b"].why, by_key["c"].why
    assert (b.words_rank, b.meaning_rank, b.similarity) == (2, None, None)
    assert (c.words_rank, c.words_score, c.meaning_rank) == (None, None, 1)


def test_what_is_not_embedded_yet_is_not_punished_for_it() -> None:
    assert best("ab", "b") == "ba"
    assert best("ab", "b", missing="a") == "ab"
    assert best("abc", "", missing="abc") == "abc"


def test_one_alone_is_left_as_it_is() -> None:
    assert best("abc", "") == "abc"
    assert best("", "abc") == "abc"
    assert best("", "") == ""


def test_only_so_many_are_returned() -> None:
    assert best("abc", "cd", k=2) == best("abc", "cd")[:2]
    assert best("abc", "cd", k=0) == ""


KEYS = st.lists(st.sampled_from("abcdefgh"), unique=True).map("".join)
SPACES = st.sampled_from(["facts", "turns"])


@given(KEYS, KEYS, KEYS, SPACES)
def test_every_entry_is_there_once_and_scores_fall(words: str, meaning: str, missing: str, within: str) -> None:
    found = fused(ranking(words), ranking(meaning), lambda key: key in missing, 99, within=within)
    assert sorted(one.key for one in found) == sorted(set(words + meaning))
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(0 <= one.score <= 1 for one in found)


@given(KEYS, KEYS, SPACES)
def test_better_in_both_is_never_behind(words: str, meaning: str, within: str) -> None:
    order = best(words, meaning, within=within)
    for one in set(words) & set(meaning):
        for other in set(words) & set(meaning):
            if words.index(one) < words.index(other) and meaning.index(one) < meaning.index(other):
                assert order.index(one) < order.index(other)
