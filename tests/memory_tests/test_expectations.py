"""Expectations: which hold on a replay, and what is said of those that do not."""

from __future__ import annotations

import pytest

HOLD = (
    {"remembers": "lives in Bergen"},
    {"remembers": "LIVES  in bergen"},
    {"remembers": {"like": "living in Bergen"}},
    {"remembers": {"matches": r"^User is \w+ian$"}},
    {"remembers": {"holds": "vegetarian", "category": "preference"}},
    {"remembers": "lives in Oslo", "at": "monday"},
    {"remembers": "lives in Oslo", "at": 2},
    {"remembers": "lives in Oslo", "at": "2026-03-03"},
    {"remembers": "lives in Bergen", "at": "HEAD"},
    {"never": "lives in Rome"},
    {"never": {"category": "goal"}},
    {"never": "Bergen", "at": "monday"},
    {"forgets": "lives in Oslo"},
    {"forgets": "lives in Oslo", "at": "friday"},
    {"count": {"facts": {"max": 20}}},
    {"count": {"facts": 2}},
    {"count": {"min": 1, "max": 1, "category": "preference"}},
    {"context": {"for": "Where do I live?", "holds": "bergen"}},
    {"context": {"for": "Where do I live?", "lacks": "Oslo"}},
    {"context": {"holds": "Oslo", "like": "lives in Oslo"}, "at": "monday"},
    {"context": {"matches": "0.95.*vegetarian"}, "at": 3},
    {"refused": {"rule": "threshold", "like": "sister"}},
    {"refused": {"rule": "threshold"}},
    {"refused": "sister"},
)
FAIL = (
    ({"remembers": "lives in Oslo"}, 'commit 3 of thread friday removed "User lives in Oslo" (model, moved)'),
    (
        {"remembers": "sister"},
        'commit 3 of thread friday refused "User\'s sister may move, too": threshold, confidence',
    ),
    ({"remembers": "likes tea"}, "nothing of the kind was proposed up to commit 3; facts in memory: 2"),
    ({"remembers": "lives in Bergen", "at": "monday"}, "nothing of the kind was proposed up to commit 2"),
    ({"never": {"category": "preference"}}, 'commit 2 of thread monday learned "User is vegetarian"'),
    ({"forgets": "vegetarian"}, 'it is still there: "User is vegetarian"'),
    ({"forgets": "lives in Rome"}, "nothing of the kind was known"),
    ({"forgets": "lives in Oslo", "at": "monday"}, 'it is still there: "User lives in Oslo"'),
    ({"count": {"facts": {"max": 1}}}, 'there are 2: "User is vegetarian"; "User lives in Bergen"'),
    ({"count": {"category": "goal", "min": 1}}, "there are 0"),
    ({"context": {"for": "food", "holds": "Oslo"}}, 'removed "User lives in Oslo"'),
    ({"context": {"for": "food", "holds": "tea"}}, "no fact has it; 2 of 2 facts are in the block"),
    ({"context": {"for": "food", "lacks": "Bergen"}}, 'the block has "Bergen"'),
    ({"refused": {"rule": "gate", "like": "sister"}}, "another rule refused it: commit 3"),
    ({"refused": "vegetarian"}, 'commit 2 of thread monday accepted "User is vegetarian"'),
    ({"refused": {"rule": "cap"}}, "nothing of the kind was refused"),
)


def test_what_holds(files) -> None:
    result = files.run(*HOLD)
    assert [(one.expect, one.why) for one in result.expectations if not one.ok] == []
    assert result.ok


def test_what_fails_says_why(files) -> None:
    result = files.run(*(expected for expected, _ in FAIL))
    assert not result.ok
    for (expected, why), verdict in zip(FAIL, result.expectations, strict=True):
        assert not verdict.ok, expected
        assert why in verdict.why, expected


def test_a_failure_shows_the_words_the_fact_was_learned_from(files) -> None:
    never = files.verdict({"never": "Oslo"})
    assert never.words == ("I live in Oslo, and I am vegetarian.",)
    assert (never.fact, never.commit, never.thread) == ("fact_2_0", 2, "monday")
    refused = files.verdict({"remembers": "sister"})
    assert (refused.rule, refused.commit) == ("threshold", 3)
    assert refused.words == ("We moved to Bergen! My sister may follow.", "How lovely.")


def test_a_context_that_leaves_a_known_fact_out_names_it(files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MAX_INJECTION_TOKENS", "100")
    facts = [
        {"content": f"User has been to a town with {n} bridges and harbours" * 4, "confidence": 0.9} for n in "abcd"
    ]
    files.rows("replies.jsonl", {"thread_id": "monday", "reply": {"newFacts": facts}}, files.replies[1])
    verdict = files.verdict({"context": {"for": "Bergen?", "holds": "town with d"}})
    assert "the fact is in memory and not in the block" in verdict.why


def test_the_same_twice_gives_the_same(files) -> None:
    assert files.run(*HOLD, *(expected for expected, _ in FAIL)) == files.run(
        *HOLD, *(expected for expected, _ in FAIL)
    )


def test_conversations_without_times_and_ids_replay_the_same(files) -> None:
    files.rows("said.jsonl", *({k: v for k, v in one.items() if k not in {"at", "id"}} for one in files.said))
    first, again = (files.run({"remembers": "Bergen"}, {"forgets": "Oslo"}) for _ in range(2))
    assert first == again
    assert first.ok


def test_lines_of_a_thread_that_are_apart_are_two_updates(files) -> None:
    files.rows("said.jsonl", *files.said, {"thread_id": "monday", "id": "m3", "role": "user", "content": "I love tea."})
    third = {"thread_id": "monday", "reply": {"newFacts": [{"content": "User loves tea", "confidence": 0.9}]}}
    files.rows("replies.jsonl", *files.replies, third)
    result = files.run({"remembers": "loves tea"}, {"remembers": "Oslo", "at": 2})
    assert (result.ok, result.updates) == (True, 3)


def test_words_alone_are_compared_without_an_embedding_model(files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_EMBEDDING_MODEL", "none")
    result = files.run({"remembers": {"like": "living in Bergen"}}, {"remembers": {"like": "eats no meat"}})
    assert [one.ok for one in result.expectations] == [True, False]
    assert result.meaning is None


def test_an_update_that_fails_is_noted_and_changes_nothing(files) -> None:
    files.rows("replies.jsonl", {"thread_id": "monday", "reply": "I would rather not."}, files.replies[1])
    result = files.run({"never": "Oslo"})
    assert (result.ok, result.failed) == (True, 1)
    assert "the update of thread monday failed" in result.notes[0]


def test_a_fact_is_forgotten_when_its_time_is_over(files) -> None:
    reply = {"newFacts": [{"content": "User is in Rome", "confidence": 0.9, "validUntil": "2026-03-03"}]}
    files.rows("replies.jsonl", {"thread_id": "monday", "reply": reply}, files.replies[1])
    result = files.run(
        {"remembers": "in Rome", "at": "monday"},
        {"forgets": "in Rome"},
        {"context": {"lacks": "Rome"}},
        {"remembers": "Rome"},
    )
    assert [one.ok for one in result.expectations] == [True, True, True, False]
    assert result.expectations[3].why == 'commit 3 removed "User is in Rome" (ended)'


def test_a_tag_of_the_conversation_is_expected_of_what_is_learned_from_it(files) -> None:
    monday, *others = files.said
    files.rows("said.jsonl", {**monday, "tags": ["home"]}, *others)
    result = files.run(
        {"remembers": {"holds": "vegetarian", "tag": "home"}},
        {"never": {"holds": "Bergen", "tag": "home"}},
        {"count": {"facts": 1, "tag": "home"}},
        {"remembers": {"holds": "Bergen", "tag": "home"}},
    )
    assert [one.ok for one in result.expectations] == [True, True, True, False]
