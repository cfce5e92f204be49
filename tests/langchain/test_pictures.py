"""Pictures are hashed once, however often a host sends them again, and a changed one is another one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agents import Scripted, agent, run, said

from backstory import Backstory
from backstory.langchain import conversations
from backstory.langchain.conversations import Pictures, SpokenMessages

PICTURE = "iVBORw0KGgo" + "abcd" * 50_000 + "=="
CHANGED = PICTURE[:100_000] + "X" + PICTURE[100_001:]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every picture that is hashed; nothing is known from before."""
    found: list[str] = []
    hash_of = conversations._hashed

    def counted(picture: str) -> str:
        found.append(picture)
        return hash_of(picture)

    monkeypatch.setattr(conversations, "_hashed", counted)
    monkeypatch.setattr("backstory.langchain.conversations._pictures", Pictures())
    return found


def openai(picture: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}


def anthropic(picture: str) -> dict[str, object]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}


def langchain(picture: str) -> dict[str, object]:
    return {"type": "image", "base64": picture, "mime_type": "image/png"}


def conversation(*blocks: dict[str, object]) -> SpokenMessages:
    # As a checkpointer restores it: no object is the one that was there before.
    plain = json.loads(json.dumps(blocks))
    messages: list[object] = []
    for block in plain:
        messages += [HumanMessage([{"type": "text", "text": "what is it?"}, block]), AIMessage("A cat.")]
    return SpokenMessages(messages)


@pytest.mark.parametrize("shape", [openai, anthropic, langchain])
def test_what_is_sent_again_is_not_hashed_again_although_it_is_another_object(
    hashed: list[str], shape: Callable[[str], dict[str, object]]
) -> None:
    first = conversation(shape(PICTURE))
    assert len(hashed) == 1
    assert conversation(shape(PICTURE)).chain == first.chain
    assert conversation(shape(PICTURE), shape(PICTURE)).chain[:2] == first.chain
    assert len(hashed) == 1


@pytest.mark.parametrize("shape", [openai, anthropic, langchain])
def test_a_changed_picture_of_the_same_length_and_ends_is_seen(
    hashed: list[str], shape: Callable[[str], dict[str, object]]
) -> None:
    first, other = conversation(shape(PICTURE)), conversation(shape(CHANGED))
    assert first.chain[0] != other.chain[0]
    assert (conversation(shape(PICTURE)).chain, conversation(shape(CHANGED)).chain) == (first.chain, other.chain)


def test_a_block_that_is_changed_in_place_is_seen(hashed: list[str]) -> None:
    block = openai(PICTURE)
    message = HumanMessage([block])
    before = SpokenMessages([message]).chain
    message.content[0]["image_url"]["url"] = f"data:image/png;base64,{CHANGED}"
    assert SpokenMessages([message]).chain != before


def test_what_is_kept_is_bounded_and_what_was_dropped_is_hashed_again(hashed: list[str]) -> None:
    known = Pictures(most=3 * len(PICTURE))
    digests = [known.spelled([PICTURE, str(n) * len(PICTURE)]) for n in range(4)]
    assert known._size <= 3 * len(PICTURE)
    assert sum(len(picture) for picture, _ in known._kept.values()) == known._size
    assert hashed.count(PICTURE) == 1
    before = len(hashed)
    assert [known.spelled([PICTURE, str(n) * len(PICTURE)]) for n in range(4)] == digests
    assert len(hashed) > before
    huge = "h" * (4 * len(PICTURE))
    assert known.spelled([huge]) == known.spelled([huge])
    assert known._size <= 3 * len(PICTURE)


def test_words_and_small_blocks_are_told_apart_as_before(hashed: list[str]) -> None:
    content = [{"type": "text", "text": "long words " * 1_000}, {"type": "image", "url": "https://x/y.png"}, "plain"]
    assert Pictures().spelled(content) == repr(content)
    assert not hashed


@pytest.mark.parametrize("saved", [True, False])
def test_an_agents_turns_hash_each_picture_once(hashed: list[str], bs: Backstory, *, saved: bool) -> None:
    mine = agent(bs, Scripted("A cat.", "Yes.", "Grey."), checkpointer=InMemorySaver() if saved else None)
    history: list[dict[str, object]] = []
    for turn, block in enumerate([openai(PICTURE), None, anthropic(CHANGED)]):
        asked = {"role": "user", "content": [{"type": "text", "text": f"question {turn}"}, *([block] if block else [])]}
        history = [asked] if saved else [*history, asked]
        answer = run(mine, copy.deepcopy(history))["messages"][-1]
        history.append({"role": "assistant", "content": answer.text})
        assert len(hashed) == (1, 1, 2)[turn]
    assert [line for line in said(bs) if line.startswith("user")] == [f"user: question {turn}" for turn in range(3)]
