"""Small conversations, told in full and asked about as people ask: the whole of finding by words, end to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import open_home

from backstory.ledger.messages import Message
from backstory.memory import MemoryHandle
from backstory.projections.search.lexical.entry import Entry
from backstory.projections.search.vectors.embedder import passages

GARDEN = [
    ("Ines", "I finally planted the tomatoes on the balcony."),
    ("Omar", "Nice! Do you water them every day?"),
    ("Ines", "Twice, and I sing to them."),
    ("Omar", "My brother Karim has started baking sourdough bread."),
    ("Ines", "Is it any good?"),
    ("Omar", "It was a brick at first. By now it is wonderful."),
    ("Ines", "Then bring a loaf when you visit in autumn."),
]
TRAIN = [
    ("Omar", "The night train to Vienna was late again."),
    ("Ines", "How late?"),
    ("Omar", "Four hours, and no coffee on board."),
    ("Ines", "I would have cried."),
]
CHINESE = [
    ("小林", "我下个月要搬到杭州去。"),
    ("小林", "新家离西湖很近，走路十分钟。"),
    ("阿宁", "那你的猫怎么办？"),
    ("小林", "它跟我坐高铁一起走。"),
    ("阿宁", "我最近在学大提琴，老师很严格。"),
]


def messages(talk: list[tuple[str, str]], prefix: str, at: str) -> list[Message]:
    first = talk[0][0]
    return [
        Message(id=f"{prefix}{n}", role="user" if name == first else "assistant", name=name, content=text, at=at)
        for n, (name, text) in enumerate(talk)
    ]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryHandle]:
    with open_home(tmp_path, embedding_model="none") as home:
        handle = home.memory("ines")
        handle.record("garden", messages(GARDEN, "g", "2026-02-03T09:00:00Z"))
        handle.record("train", messages(TRAIN, "t", "2026-02-20T09:00:00Z"))
        handle.record("moving", messages(CHINESE, "c", "2026-02-27T09:00:00Z"))
        yield handle


@pytest.mark.parametrize(
    ("question", "turn"),
    [
        ("What did she plant?", "g0"),
        ("How often are the tomatoes watered?", "g2"),
        ("What does Karim bake?", "g3"),
        ("Was the bread good?", "g5"),
        ("What should Omar bring with him?", "g6"),
        ("How many hours late was the train?", "t2"),
        ("What did Ines say about the late train?", "t1"),
        ("tomatos on the balcny", "g0"),
        ("他要搬到哪个城市？", "c0"),
        ("西湖", "c1"),
        ("新家走路多久能到湖边", "c1"),
        ("猫坐什么车走", "c3"),
        ("大提琴", "c4"),
        ("谁在学乐器？老师严不严格？", "c4"),
    ],
)
def test_a_question_finds_the_turn_that_answers_it(memory: MemoryHandle, question: str, turn: str) -> None:
    assert turn in [hit.id for hit in memory.search(question, within="turns", top_k=3)]


def test_the_day_it_was_said_on_is_enough_to_find_it(memory: MemoryHandle) -> None:
    assert {hit.thread for hit in memory.search("20 February 2026", within="turns", top_k=4)} == {"train"}


def test_of_facts_that_are_equally_like_it_the_surer_comes_first_as_sure_as_it_is_now(tmp_path: Path) -> None:
    with open_home(tmp_path, embedding_model="none") as home:
        handle = home.memory("ines")
        for text, sure in (("Drinks tea", 0.75), ("Likes tea", 0.9), ("Buys tea", 0.75), ("Tea", 0.7)):
            handle.add_fact(text, confidence=sure)
        assert [hit.content for hit in handle.search("tea")] == ["Tea", "Likes tea", "Buys tea", "Drinks tea"]
        handle.edit_fact("fact_2_0", confidence=1.0)
        assert [hit.content for hit in handle.search("tea", top_k=2)] == ["Tea", "Drinks tea"]
        handle.record("t", [{"role": "user", "content": text} for text in ("More tea", "Some tea")])
        assert handle.search("tea", within="turns", top_k=1)[0].content == "Some tea"


def test_a_passage_says_who_speaks_and_what_is_answered() -> None:
    entries = [
        Entry("a", "Where is Karim?", "Ines", "t", 0),
        Entry("b", "At home.", "Omar", "t", 1),
        Entry("c", "x" * 1000 + " the end", "Ines", "u", 0),
        Entry("d", "I see.", "Omar", "u", 1),
        Entry("e", "likes tea"),
        Entry("f", "likes rain"),
    ]
    texts = {passage.key: passage.text for passage in passages(entries)}
    assert texts["a"] == "Ines: Where is Karim?"
    assert texts["b"] == "Ines: Where is Karim?\nOmar: At home."
    assert texts["c"].startswith("Ines: xxx")
    assert texts["d"].endswith("x the end\nOmar: I see.")
    assert len(texts["d"]) < 330
    assert (texts["e"], texts["f"]) == ("likes tea", "likes rain")


def test_passages_of_one_text_have_one_digest_of_sixteen_bytes() -> None:
    one, same, other = passages([Entry("a", "tea"), Entry("b", "tea"), Entry("c", "rain")])
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 16
