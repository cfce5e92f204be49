"""What a text is cut into, the same for what is kept and for what is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.projections.search.lexical.tokenizer import as_said, spellings, words_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("swimming lessons", "swims lesson"),
        ("Café au lait", "CAFE AU LAIT"),
        ("ＡＢＣ１２３", "abc123"),
        ("straße", "STRASSE"),
        ("Anna's dogs", "anna dog"),
        ("max_facts", "max facts"),
        ("don't worry", "worry"),
        ("\u0435\u0449\u0451 книги", "ЕЩЁ книга"),
    ],
)
def test_what_is_the_same_to_a_reader_is_the_same_to_the_index(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


def test_chinese_gives_characters_and_pairs_so_that_two_character_words_are_found() -> None:
    assert words_of("喝乌龙茶") == ["喝", "乌", "龙", "茶", "喝乌", "乌龙", "龙茶"]


def test_japanese_korean_and_thai_are_cut_without_spaces_too() -> None:
    for text, word in (("東京タワー", "東京"), ("한국어입니다", "국어"), ("สวัสดี", "สว")):
        assert word in words_of(text)


def test_scripts_may_stand_next_to_each_other() -> None:
    assert words_of("用Python写") == ["用", "python", "写"]


def test_a_chinese_date_keeps_its_number_and_its_unit_together() -> None:
    assert words_of("2026年3月8日") == ["2026年", "3月", "8日"]


def test_words_without_a_meaning_of_their_own_are_left_out() -> None:
    assert words_of("What is the name of her dog?") == ["name", "dog"]
    assert words_of("你喜欢什么茶") == ["喜", "欢", "茶", "你喜", "喜欢", "欢什", "么茶"]


def test_a_text_of_nothing_else_keeps_them() -> None:
    assert words_of("Who are you?") == ["who", "are", "you"]


def test_the_month_of_may_is_a_word() -> None:
    assert "may" in words_of("What happened in May?")


def test_languages_named_by_a_letter_and_a_sign_differ() -> None:
    assert len({tuple(words_of(name)) for name in ("C", "C#", "C++")}) == 3


def test_vowel_signs_stay_in_their_word() -> None:
    assert len(words_of("हिन्दी")) == 1


def test_a_picture_is_a_word() -> None:
    assert "🎉" in words_of("done 🎉🎉")


@pytest.mark.parametrize("text", ["", "  ", "?!…", "___", "\u0301"])
def test_where_there_is_no_word_there_is_none(text: str) -> None:
    assert words_of(text) == []


@given(st.text())
def test_case_never_matters_and_no_text_is_too_odd(text: str) -> None:
    words = words_of(text)
    assert all(words)
    assert set(as_said(text)) == set(words)


@given(st.text(alphabet="abcdefghij é中文字。 "))
def test_upper_case_is_the_same(text: str) -> None:
    assert words_of(text.upper()) == words_of(text)


def test_each_word_is_told_as_it_was_written() -> None:
    assert as_said("Lessons, LESSON and swimming") == {"lesson": "lessons", "swim": "swimming"}


@pytest.mark.parametrize("slip", ["kitchn", "kitchenn", "kithcen", "kitchem"])
def test_one_slip_of_a_key_is_among_the_spellings(slip: str) -> None:
    assert "kitchen" in spellings(slip)


def test_two_slips_or_another_first_letter_are_not() -> None:
    assert "kitchen" not in spellings("kichn")
    assert "kitchen" not in spellings("citchen")


@pytest.mark.parametrize("word", ["cat", "茶叶很好", "привет", "2026", "a" * 25, "a" * 1_000_000])
def test_short_words_endless_ones_and_other_letters_have_no_other_spellings(word: str) -> None:
    assert spellings(word) == []
