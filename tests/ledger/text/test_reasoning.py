"""Reasoning at the beginning of an agent's answer is left out of what is recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.messages import keep, read_message
from backstory.ledger.text.blocks import SpokenText, spoken

ANSWER = "You live in Bergen."
HARMONY = "<|channel|>analysis<|message|>They ask where.<|end|><|start|>assistant<|channel|>final<|message|>"


def said(*messages: tuple[str, object]) -> list[str]:
    """What is kept of messages of a role and a content."""
    return [kept.content for kept in keep(read_message({"role": role, "content": text}) for role, text in messages)]


@pytest.mark.parametrize(
    "text",
    [
        f"<think>They ask where.</think>{ANSWER}",
        f"<think>\nThey ask where.\n</think>\n\n{ANSWER}",
        f"\n <THINK>They ask where.</Think>\n{ANSWER}",
        f"<think></think>\n\n{ANSWER}",
        f"<thinking>They ask </think> where.</thinking>{ANSWER}",
        f"◁think▷They ask where.◁/think▷{ANSWER}",
        f"<think>one</think>\n<thinking>two</thinking>\n{ANSWER}",
        f"{HARMONY}{ANSWER}",
        f"<|start|>assistant{HARMONY}{ANSWER}<|return|>",
        f"<|channel|>analysis<|message|>one<|end|>{HARMONY}{ANSWER}<|end|>",
        f"<|channel|>analysis<|message|>one<|channel|>final<|message|>{ANSWER}",
        f"<think>See:\n```\n</think>\n```\nso, where?</think>{ANSWER}",
        f"<think>See:\n~~~~ xml\n```\n</think>\n~~~\n~~~~\nso, where?</think>{ANSWER}",
        f"<think>A fence without an end:\n```py\nx = 1\n</think>\n{ANSWER}",
    ],
)
def test_leading_reasoning_is_left_out(text: str) -> None:
    assert spoken(text) == SpokenText(ANSWER, is_open=False)
    assert said(("user", "Where?"), ("assistant", text)) == ["Where?", ANSWER]


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        "Use <think>, as in <think>so</think>.",
        "```\n<think>so</think>\n```\nis how it looks",
        "`<think>so</think>` is how it looks",
        "<thinker>so</thinker> hello",
        "<think/>hello",
        "think: so",
        "</think>hello",
        "<|channel|>final<|message|>hello",
        "<|channel|>analysisofall<|message|>hello",
    ],
)
def test_a_tag_anywhere_else_is_speech(text: str) -> None:
    assert spoken(text) == SpokenText(text, is_open=False)
    assert said(("assistant", text)) == [text]


@pytest.mark.parametrize("text", ["<think>They ask where.", "◁think▷They", "<|channel|>analysis<|message|>They"])
def test_reasoning_without_an_end_is_kept_unless_an_answer_follows_it(text: str) -> None:
    assert spoken(text) == SpokenText(text, is_open=True)
    assert said(("user", "Where?"), ("assistant", text)) == ["Where?", text]
    assert said(("user", "Where?"), ("assistant", text), ("user", "Well?"), ("assistant", ANSWER))[1] == text
    assert said(("user", "Where?"), ("assistant", text), ("assistant", ANSWER)) == ["Where?", ANSWER]
    assert said(("user", "Where?"), ("assistant", text), ("tool", "42"), ("assistant", ANSWER)) == ["Where?", ANSWER]


def test_an_answer_in_a_later_part_ends_the_reasoning_of_an_earlier_one() -> None:
    parts = [{"type": "text", "text": "<think>They ask where."}, {"type": "text", "text": ANSWER}]
    assert said(("assistant", parts)) == [ANSWER]
    assert said(("user", parts)) == [f"<think>They ask where. {ANSWER}"]
    assert said(("assistant", parts[:1])) == ["<think>They ask where."]


def test_reasoning_alone_is_no_answer() -> None:
    assert said(("user", "Where?"), ("assistant", "<think>They ask where.</think>\n")) == ["Where?"]


@pytest.mark.parametrize("text", ["<think>I wonder</think> where?", "<think>why"])
def test_a_users_own_tag_stays(text: str) -> None:
    assert said(("user", text), ("assistant", ANSWER)) == [text, ANSWER]


def test_the_chunks_of_a_stream_are_one_text() -> None:
    chunks = ["<thi", "nk>They ask", " where.</th", "ink>", ANSWER]
    read = [read_message({"type": "AIMessageChunk", "id": "a", "content": part}) for part in chunks]
    assert [kept.content for kept in keep(read)] == [ANSWER]


@given(st.lists(st.sampled_from(["<think>", "</think>", "```\n", "◁think▷", "x", " ", "\n", "<|channel|>analysis"])))
def test_what_is_said_is_the_end_of_the_text_and_is_said_again(parts: list[str]) -> None:
    text = "".join(parts)
    said = spoken(text)
    assert text.endswith(said.text)
    assert spoken(said.text) == said


@pytest.mark.parametrize("block", ["<think></think>", "<think>\n```\n</think>", "<think>", "```\n", "<think>```\n"])
def test_a_long_text_of_nothing_but_tags_ends(block: str) -> None:
    text = block * (1_000_000 // len(block))
    assert text.endswith(spoken(text).text)
