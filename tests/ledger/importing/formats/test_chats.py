"""Exports of chats and session files: people's words and final answers, with their times and threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from exports import chatgpt, claude, claude_code, codex, codex_items, everything, lines, node, open_webui, said, write

from backstory.ledger.importing.formats import conversation
from backstory.ledger.importing.formats.conversation import ImportedConversation
from backstory.ledger.importing.formats.recognising import recognise
from backstory.ledger.importing.formats.tally import Tally

NO_TURNS = "messages of tools and of the system, and answers that were not final"


def nodes_of(chat: dict[str, object]) -> dict[str, Any]:
    return cast("dict[str, Any]", chat["mapping"])


def test_chatgpt_gives_the_branch_that_stands(tmp_path: Path) -> None:
    tally = Tally()
    path = write(tmp_path, [chatgpt()])
    assert recognise(path).format.name == "chatgpt"
    assert said(path, tally) == [
        ("c1", "user", "I moved to Oslo.", "2023-11-14T22:13:20.500000Z"),
        # It states no time: the one before it counts.
        ("c1", "assistant", "Congratulations on the move!", "2023-11-14T22:13:20.500000Z"),
        ("c1", "user", "Look", "2023-11-14T22:13:29.000000Z"),
        ("c1", "assistant", "A fjord.", "2023-11-14T22:13:30.000000Z"),
    ]
    assert tally.left_out["messages of branches that do not stand"] == 2
    assert tally.left_out["images and files"] == 1
    assert tally.left_out[NO_TURNS] == 3
    assert not tally.refused


def test_a_chat_with_an_unknown_end_ends_with_its_last_message(tmp_path: Path) -> None:
    turns = said(write(tmp_path, [chatgpt(current_node=None), chatgpt("c2", current_node="gone")]))
    assert [turn[0] for turn in turns] == ["c1"] * 4 + ["c2"] * 4


@pytest.mark.parametrize("parent", ["b", "q", "nowhere", None, 5, ["q"]])
def test_a_circle_in_a_tree_ends(tmp_path: Path, parent: object) -> None:
    chat = chatgpt()
    nodes_of(chat)["q"]["parent"] = parent
    assert next(words for _, _, words, _ in said(write(tmp_path, [chat]))) == "I moved to Oslo."


def test_what_is_said_aloud_counts(tmp_path: Path) -> None:
    chat = chatgpt()
    nodes_of(chat)["q"] = node("sys", "user")
    spoken = {"content_type": "audio_transcription", "text": "I moved."}
    nodes_of(chat)["q"]["message"]["content"] = {"content_type": "multimodal_text", "parts": [spoken]}
    assert said(write(tmp_path, [chat]))[0][2] == "I moved."


@pytest.mark.parametrize(
    "broken",
    [
        {"mapping": 5},
        {"mapping": {"q": 5}},
        {"mapping": {"q": {"message": 5}}},
        {"mapping": {"q": {"message": {"author": None, "content": None}}}},
        {"mapping": {"q": {"message": {"author": {"role": "user"}, "content": {"parts": 7}, "create_time": "x"}}}},
        {"mapping": {}, "conversation_id": None},
    ],
)
def test_a_broken_chat_costs_no_other(tmp_path: Path, broken: dict[str, object]) -> None:
    assert len(said(write(tmp_path, [{**chatgpt("x"), **broken}, 7, chatgpt()]))) == 4


def test_claude_gives_the_last_branch_and_the_words_behind_the_last_tool(tmp_path: Path) -> None:
    tally = Tally()
    path = write(tmp_path, [claude()])
    assert recognise(path).format.name == "claude"
    assert said(path, tally) == [
        ("k1", "user", "I drink black tea.", "2025-03-05T09:00:00.123456Z"),
        ("k1", "assistant", "Done.", "2025-03-05T09:00:00.123456Z"),
    ]
    assert tally.left_out == {"messages of branches that do not stand": 1}


def test_an_older_claude_export_has_a_text_for_each_message(tmp_path: Path) -> None:
    messages = [{"uuid": "1", "sender": "human", "text": "I row.", "created_at": None}]
    assert said(write(tmp_path, [claude(chat_messages=messages)])) == [
        ("k1", "user", "I row.", "2025-03-05T09:00:00.000000Z")
    ]


def test_open_webui_gives_the_answer_without_its_thoughts(tmp_path: Path) -> None:
    path = write(tmp_path, [open_webui()])
    assert recognise(path).format.name == "open-webui"
    assert [turn[:3] for turn in said(path)] == [("w1", "user", "I ride a bike."), ("w1", "assistant", "Safe!")]


def test_open_webui_of_before_has_a_list(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "I row."}, {"role": "system", "content": "Be nice."}, 5]}
    assert [turn[2] for turn in said(write(tmp_path, [open_webui(chat=chat)]))] == ["I row."]


def test_claude_code_gives_what_the_person_said_and_final_answers(tmp_path: Path) -> None:
    path = write(tmp_path, lines(*claude_code()), "s.jsonl")
    assert recognise(path).format.name == "claude-code"
    assert said(path) == [
        ("s1", "user", "Use pnpm here.", "2026-01-02T03:04:02.000000Z"),
        ("s1", "assistant", "It is pnpm now.", "2026-01-02T03:04:06.000000Z"),
    ]


@pytest.mark.parametrize("rows", [codex(), codex_items()], ids=["events", "items"])
def test_codex_gives_what_the_person_said_and_final_answers(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    tally = Tally()
    path = write(tmp_path, lines(*rows), "rollout.jsonl")
    assert recognise(path).format.name == "codex"
    assert said(path, tally) == [
        ("x1", "user", "Use ruff.", "2026-01-02T03:04:02.000000Z"),
        ("x1", "assistant", "It is ruff now.", "2026-01-02T03:04:06.000000Z"),
    ]
    assert tally.left_out["images and files"] == 1


def test_a_message_that_codex_writes_in_both_of_its_forms_counts_once(tmp_path: Path) -> None:
    items, events = codex_items(), [row for row in codex() if row["type"] == "event_msg"]
    both = [*items[:3], events[0], items[-1], events[3], *items[2:3]]
    assert [turn[2] for turn in said(write(tmp_path, lines(*both), "rollout.jsonl"))] == [
        "Use ruff.",
        "It is ruff now.",
        "Use ruff.",
    ]


@pytest.mark.parametrize("head", [{"source": {"subagent": {"thread_spawn": {}}}}, {"source": {"subagent": "review"}}])
def test_what_codex_asks_an_agent_of_its_own_was_said_by_no_person(tmp_path: Path, head: dict[str, object]) -> None:
    tally = Tally()
    rows = codex_items()
    cast("dict[str, object]", rows[0]["payload"]).update(head)
    assert said(write(tmp_path, lines(*rows), "rollout.jsonl"), tally) == []
    assert tally.left_out == {"sessions of inner agents": 1}


def test_a_session_without_a_head_is_refused(tmp_path: Path) -> None:
    tally = Tally()
    assert said(write(tmp_path, lines(*codex()[1:]), "rollout.jsonl"), tally) == []
    assert tally.refused == {"no line of type session_meta names the session": 1}


@pytest.mark.parametrize("export", [chatgpt, claude, open_webui])
def test_an_id_of_ten_thousand_characters_is_cut_to_its_digest(
    tmp_path: Path, export: Callable[[str], dict[str, object]]
) -> None:
    long = said(write(tmp_path, [export("x" * 10_000)]))
    other = said(write(tmp_path, [export("x" * 9_999)]))
    assert len(long[0][0]) == 512
    assert long[0][0] != other[0][0]


def test_a_long_session_comes_in_parts_that_begin_with_the_persons_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_IN_ONE", 3)
    talk = conversation.Talk(Tally(), "t")
    parts = [
        [turn.content for turn in part.kept]
        for role, words in [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5")]
        for part in talk.say(role, words, None, None)
    ]
    assert parts == [["1", "2", "3", "4"]]
    assert [turn.content for part in talk.end() for turn in part.kept] == ["5"]


def test_messages_that_share_an_id_are_all_kept_under_ids_that_stay_the_same(tmp_path: Path) -> None:
    chat = chatgpt()
    for one in nodes_of(chat).values():
        (one["message"] or {})["id"] = "same"
    found = everything(write(tmp_path, [chat]))
    assert [turn.id for item in found if isinstance(item, ImportedConversation) for turn in item.kept] == [
        "same",
        "same#2",
        "same#3",
        "same#4",
    ]
