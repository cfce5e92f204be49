from __future__ import annotations

import pytest
from doubles.cost import assert_no_square
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.text.acknowledgements import is_acknowledgement

QUIET = [
    "ok",
    "OK!",
    "okay thanks",
    "thank you so much",
    "got it",
    "great, thanks 👍",
    "sure",
    "yes",
    "👍",
    "谢谢",
    "好的",
    "好的，谢谢！",
    "嗯嗯",
    "明白了",
    "收到",
    "hmm",
    "",
    "...",
    "ＯＫ",
    "okkkk",
    "yesss",
    "thanksss",
    "hmmmm",
    "that's great",
    "That’s perfect, thank you very much!",
    "ok cool",
    "all good thanks",
    "sounds good 👍🏽",
    "好的ok",
    "嗯嗯好的谢谢啦",
    "THX",
    "soooo good",
    "coool",
    "no problem",
    "ahhh ok",
    "yess",
    "好的呀",
    "great",
    "thank you for your help",
    "You're welcome!",
    "ok 🎉🎉",
    "对的",
    "没问题，谢谢大家",
    "好的。明白了。",
    "哈哈哈",
    "  ok  \n",
    " ",
    "？？",
    "了解，辛苦了",
    "yes please",
    "it works, thanks a lot",
    "that makes sense",
    "yep yep yep",
    "谢谢你的帮助！",
    "okay okay",
    "fine",
    "ok…",
    "THANK YOU",
]

SAYING = [
    "ok, but I moved to Bergen",
    "yes, in Oslo",
    "no",
    "not really",
    "thanks, my name is Ada",
    "nope",
    "👎",
    "ok 2",
    "that",
    "so",
    "again",
    "really",
    "for me",
    "my friend",
    "谢谢，我叫李雷",
    "不",
    "不是",
    "不好",
    "我很好",
    "好的，我搬到上海了",
    "对我很好",
    "1",
    "never mind",
    "my",
    "I",
    "you",
    "it",
    "a lot",
    "oh my god",
    "ok no",
    "no thanks",
    "my man",
    "all",
    "it is",
    "了",
    "吧",
    "你",
    "I agree with Ada",
    "yes, it is red",
    "ok let's use Postgres",
    "thanks for the bike",
    "sure, tomorrow",
    "right, the left one",
    "good morning",
    "hello",
    "great, I got the job",
    "yes no",
    "好的，用中文",
    "是北京",
    "对，我是医生",
    "谢谢妈妈",
    "嗯，我喜欢茶",
    "はい",
    "ok 5pm",
    "great-grandmother",
    "I see you moved",
    "oh no",
    "👍 but no",
    "thanks 🚫",
    "so so",
    "k9",
    "cool cat",
]


@pytest.mark.parametrize("text", QUIET)
def test_a_bare_acknowledgement_is_known(text):
    assert is_acknowledgement(text)


@pytest.mark.parametrize("text", SAYING)
def test_a_message_that_says_something_is_none(text):
    assert not is_acknowledgement(text)


def test_a_denial_answers_a_question():
    for text in ("no", "No.", "nope", "not really", "不", "不是", "👎", "ok 👎", "no no no"):
        assert not is_acknowledgement(text)


def test_an_acknowledgement_with_a_fact_behind_it_is_a_fact():
    for text in ("ok, but I moved to Bergen", "yes, in Oslo", "thanks, my name is Ada", "好的，我搬到上海了"):
        assert not is_acknowledgement(text)


def test_what_leads_or_rounds_off_is_none_alone():
    for text in ("that's", "so much", "a lot", "again", "really", "for your help", "ok so", "吧", "so much thanks"):
        assert not is_acknowledgement(text)


def test_a_long_text_is_never_one():
    assert is_acknowledgement("ok " * 20)
    assert is_acknowledgement("!" * 80)
    assert not is_acknowledgement("ok " * 30)
    assert not is_acknowledgement("!" * 81)


@given(
    st.lists(st.sampled_from([text for text in QUIET if len(text) < 15]), max_size=4),
    st.sampled_from([" ", ", ", "! ", "\n", " 👍 "]),
)
def test_a_row_of_acknowledgements_is_one(texts, between):
    assert is_acknowledgement(between.join(texts)[:1000]) == (len(between.join(texts).strip()) <= 80)


@given(st.sampled_from(QUIET), st.sampled_from(["Bergen", "42", "Ada", "上海", "не", "no", "不"]), st.booleans())
def test_one_more_word_makes_it_a_message(text, word, first):
    assert not is_acknowledgement(f"{word} {text}" if first else f"{text} {word}")


@given(st.sampled_from([*QUIET, *SAYING]))
def test_case_width_and_punctuation_do_not_matter(text):
    verdict = is_acknowledgement(text)
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and c not in "'`" else c for c in text)
    assert is_acknowledgement(text.upper()) == verdict
    assert is_acknowledgement(wide) == verdict
    assert is_acknowledgement(f"  “{text}”!! 🎉 ") == verdict


@given(st.sampled_from(["ok", "yes", "thanks", "sure", "hm", "cool", "great"]), st.integers(1, 60))
def test_a_drawn_out_letter_counts_once(text, times):
    assert is_acknowledgement(text + text[-1] * times)


@given(st.text())
def test_any_text_gets_a_verdict(text):
    assert is_acknowledgement(text) in {True, False}


@pytest.mark.parametrize("unit", ["ok ", "o", "!", "👍", " ", "好", "ﷺ", "so ", "thank you so much ", "'", "\n"])
def test_hostile_texts_are_read_in_one_go(unit):
    assert_no_square(is_acknowledgement, unit, 50_000)
    # What is longer is none, and not read.
    assert_no_square(lambda text: is_acknowledgement(text[:80]), unit, 80)
