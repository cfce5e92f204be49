"""What the talk is about: the user's last words and what was answered."""

from __future__ import annotations

import pytest

from ledger.errors import InputError
from projections.context import last_words


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
    with pytest.raises(InputError, match="a message is a"):
        last_words([*TALK, object()], 3)


def test_a_text_of_broken_characters_is_made_safe() -> None:
    last_words("a\ud800b", 1).encode()
    last_words([user("a\ud800b")], 1).encode()
