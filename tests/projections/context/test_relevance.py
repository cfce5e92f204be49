"""What the talk is about: the user's last words and what was answered."""

from __future__ import annotations

import tracemalloc

import pytest

from backstory.ledger.core.errors import InputError
from backstory.projections.context import last_words


def user(text: object, **more: object) -> dict[str, object]:
    return {"role": "user", "content": text, **more}


def assistant(text: str, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": text, **more}


TALK = [user("one"), assistant("1"), user("two"), assistant("2"), user("three"), assistant("3"), user("four")]


def test_the_last_messages_of_the_user_with_their_answers() -> None:
    assert last_words(TALK, 1) == "four"
    assert last_words(TALK, 2) == "three\n3\nfour"
    assert last_words(TALK, 3) == "two\n2\nthree\n3\nfour"
    assert last_words(TALK, 20) == "one\n1\ntwo\n2\nthree\n3\nfour"
    assert last_words(iter(TALK), 1) == "four"


def test_nothing_said_is_nothing() -> None:
    assert last_words(None, 3) == last_words([], 3) == last_words("", 3) == ""
    assert last_words([assistant("hello")], 3) == "hello"


def test_what_is_not_said_by_anybody_does_not_count() -> None:
    talk = [
        user("the question"),
        assistant("", tool_calls=[{"id": "1"}]),
        {"role": "tool", "content": "a result"},
        assistant("the answer"),
        {"role": "system", "content": "be brief"},
        user("a hidden one", hidden=True),
        user("a file", metadata={"hidden": True}),
        user("<uploaded_files>\nx.txt\n</uploaded_files>"),
        user("and then?"),
    ]
    assert last_words(talk, 1) == "and then?"
    assert last_words(talk, 2) == "the question\nthe answer\nand then?"


def test_our_own_block_is_never_taken_for_words() -> None:
    block = "<memory>\nFacts:\n- [goal | 0.90] secret\n</memory>"
    talk = [user("the question"), user(block), user(f"<system-reminder>\n{block}\n</system-reminder>")]
    assert last_words(talk, 1) == "the question"
    assert last_words([*TALK, user(f"{block}\n\nfive")], 1) == "five"
    assert last_words([user("<b>")], 1) == "<b>"
    assert last_words(f"{block}what now?", 1) == "what now?"


def test_blocks_of_content_and_other_programs_messages_are_read() -> None:
    class Said:
        def model_dump(self) -> dict[str, object]:
            return {"type": "human", "content": [{"type": "text", "text": "what now?"}, {"type": "image"}]}

    assert last_words([Said()], 1) == "what now?"


def test_of_a_long_message_its_head_and_its_tail_are_taken() -> None:
    long = "head " + "x" * 100_000 + " tail"
    for words in (last_words(long, 1), last_words([user(long)], 1)):
        assert words.startswith("head")
        assert words.endswith("tail")
        assert len(words) < 1000
    assert last_words("y" * 900, 1) == "y" * 900


def test_only_the_last_messages_are_read_at_all() -> None:
    assert last_words([object(), user("old"), *TALK], 3).startswith("two")
    with pytest.raises(InputError, match="a message must be a dict"):
        last_words([*TALK, object()], 3)


def test_a_text_of_broken_characters_is_made_safe() -> None:
    last_words("a\ud800b", 1).encode()
    last_words([user("a\ud800b")], 1).encode()


def test_the_end_of_a_talk_is_read_as_it_would_be_kept() -> None:
    upload = user("<uploaded_files>\nx.txt\n</uploaded_files>")
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "…"}
    assert last_words([user("a"), upload, assistant("a file"), user("b")], 2) == "a\nb"
    assert last_words([user("a"), assistant("let me see"), call, result, assistant("it is so")], 1) == "a\nit is so"
    pieces = [{"type": "AIMessageChunk", "content": text, "id": "1"} for text in ("it ", "is so")]
    assert last_words([user("a"), *pieces], 1) == "a\nit is so"


def test_one_message_nobody_can_read_is_told_and_passed_over() -> None:
    told: list[int] = []
    talk = [user("a"), object(), assistant("b"), 5]
    assert last_words(talk, 1, on_unreadable=lambda index, error: told.append(index)) == "a\nb"
    assert told == [3, 1]


def test_a_host_says_which_hidden_messages_are_a_person_s() -> None:
    talk = [user("a"), user("b", additional_kwargs={"hide_from_ui": True})]
    assert last_words(talk, 2) == "a"
    assert last_words(talk, 2, keep_hidden=lambda extra: True) == "a\nb"


def test_blocks_are_found_at_either_end_of_a_long_message_and_from_one_to_the_other() -> None:
    block, long = "<memory>\n- secret\n</memory>", "x" * 200_000
    for text in (f"{block}head {long} tail", f"head {long} tail{block}"):
        for words in (last_words(text, 1), last_words([user(text)], 1)):
            assert words.startswith("head")
            assert words.endswith("tail")
    assert last_words([user(f"head<memory>{long}</memory>tail")], 1) == "headtail"


def test_of_very_many_blocks_those_at_the_ends_are_looked_at() -> None:
    blocks = [{"type": "text", "text": str(n)} for n in range(5_000)]
    words = last_words([user(blocks)], 1)
    assert words.startswith("0 1 2 ")
    assert words.endswith(" 4998 4999")
    assert last_words([user(blocks[:300])], 1).startswith("0 1 2 ")


def test_of_a_huge_message_only_its_ends_are_worked_on() -> None:
    huge = "茶" * 10_000_000
    for messages in (huge, [user(huge)], [user([{"type": "text", "text": huge}])]):
        tracemalloc.start()
        try:
            assert len(last_words(messages, 1)) < 1_000
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3_000_000
