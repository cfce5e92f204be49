"""Counting by lines is counting the whole, and all counters of one vocabulary agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import FRAGMENTS, texts

from backstory.projections.context.counting import ESTIMATE
from backstory.projections.context.lines import inline

lines = st.tuples(st.sampled_from(["- ", "- [goal | 0.90] ", "- Work: ", "Facts:", "<memory>"]), texts.map(inline)).map(
    "".join
)
blocks = st.lists(st.tuples(lines, st.sampled_from(["\n", "\n", "\n\n"])).map("".join), min_size=1, max_size=8)


@pytest.mark.parametrize("model", ["gpt-5", "gpt-4"])
@given(parts=blocks)
def test_the_tokens_of_lines_add_up_to_those_of_the_whole(packaged, tiktokens, model: str, parts: list[str]) -> None:
    for counter in (packaged[model], tiktokens[model]):
        assert sum(map(counter.count, [*parts, "</memory>"])) == counter.count("".join(parts) + "</memory>")


@given(parts=blocks)
def test_so_do_the_estimated_ones(parts: list[str]) -> None:
    assert sum(map(ESTIMATE.count, [*parts, "</memory>"])) == ESTIMATE.count("".join(parts) + "</memory>")


@pytest.mark.parametrize("model", ["gpt-5", "gpt-4"])
@given(text=texts.map(inline) | st.lists(st.sampled_from(FRAGMENTS[:-10]), max_size=20).map("".join))
def test_the_packaged_vocabulary_counts_as_tiktoken_does(packaged, tiktokens, model: str, text: str) -> None:
    assert packaged[model].count(text) == tiktokens[model].count(text)


def test_a_slash_would_be_drawn_into_the_line_before_it(packaged) -> None:
    """Why no line of a block may begin with one."""
    counter = packaged["gpt-5"]
    assert counter.count(")\n") + counter.count("//") != counter.count(")\n//")


def test_counters_say_what_they_count_with(packaged, tiktokens) -> None:
    assert [counter.name for counter in packaged.values()] == ["bpe-openai:o200k_base", "bpe-openai:cl100k_base"]
    assert [counter.name for counter in tiktokens.values()] == ["tiktoken:o200k_base", "tiktoken:cl100k_base"]
    assert ESTIMATE.name == "estimate"
    assert (ESTIMATE.count(""), packaged["gpt-5"].count(""), tiktokens["gpt-5"].count("")) == (0, 0, 0)


ORDINARY = (
    "User lives in Oslo, works as a nurse at the university hospital and goes running before breakfast.",
    "User prefers short answers, in Norwegian if possible; never begin with 'Certainly!'.",
    "Der Benutzer wohnt seit 2019 in Köln und fährt am liebsten mit der Straßenbahn zur Arbeit.",
    "用户住在奥斯陆，在大学医院当护士，每天早餐前都要跑步，喜欢喝不加糖的黑咖啡。",
    "ユーザーはオスロに住んでいて、夕方にプログラミングするのが好きです。",
    "사용자는 오슬로에 살고 있으며 저녁에 프로그래밍하는 것을 좋아합니다.",
    "Пользователь живёт в Осло и любит программировать по вечерам.",
    "उपयोगकर्ता ओस्लो में रहता है और उसे शाम को प्रोग्रामिंग करना पसंद है।",
    "ผู้ใช้อาศัยอยู่ในออสโลและชอบเขียนโปรแกรมในตอนเย็น",
    "يعيش المستخدم في أوسلو ويحب البرمجة في المساء.",
    "User loved the party 🎉🥳 and the boat trip ⛵ with the dogs 🐕🐕!",
    "The build runs `uv sync --frozen && pytest -x -q tests/unit` with PYTHONPATH=src on python 3.12.4.",
    'def total(items: list[dict[str, float]]) -> float: return sum(i["price"] * i["count"] for i in items)',
    "Meeting on 2026-03-12 at 10:30, room 4.17, phone +47 22 33 44 55.",
)


@pytest.mark.parametrize("text", ORDINARY)
def test_the_estimate_is_rather_too_high(packaged, text: str) -> None:
    for counter in packaged.values():
        assert ESTIMATE.count(text) >= counter.count(text)
    assert ESTIMATE.count(text) <= 4 * packaged["gpt-5"].count(text)
