"""`memory.turns`: MetaGPT's Memory over the transcript, against a plain list that does the same."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, exchange, open_home, reply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sizes import examples

from backstory import Backstory
from backstory.ledger.core.errors import InputError, NotFoundError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.metagpt.turns import DEFAULT_THREAD, Turns
from backstory.projections.index.index_file import SMALL_BYTES
from backstory.projections.turns import TurnLog, TurnView
from backstory.projections.turns.rows import Series, TurnRow

Message = dict[str, object]


def says(content: str, turn_id: str | None = None, role: str = "user", **more: object) -> Message:
    return {"role": role, "content": content, **({} if turn_id is None else {"id": turn_id}), **more}


def texts(turns: list[TurnView]) -> list[str]:
    return [turn.content for turn in turns]


@pytest.fixture
def home(tmp_path):
    with open_home(tmp_path / "home") as bs:
        yield bs


@pytest.fixture
def memory(home):
    return home.memory("ada")


@pytest.fixture
def turns(memory) -> Turns:
    return memory.turns


PAGE = (Path(__file__).parents[2] / "docs/explanation/turns.md").read_text(encoding="utf-8")


def test_the_pages_example_does_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(PAGE.split("```python\n")[1].split("```")[0], "turns.md", "exec"), names)  # noqa: S102 our own page
    assert [turn.id for turn in names["plan"]] == ["p1"]
    assert texts(names["inbox"]) == ["Plan the trip.", "Day 1: Oslo.", "Looks good."]
    assert names["news"] == []
    with Backstory.open(tmp_path / "turns", background=False) as bs:
        assert texts(bs.memory("ada").turns.get()) == ["Plan the trip.", "Looks good."]


def test_the_page_names_every_operation():
    public = {name for name, member in inspect.getmembers(Turns, inspect.isfunction) if not name.startswith("_")}
    assert {
        name for name in public if not inspect.iscoroutinefunction(getattr(Turns, name)) and f"`{name}(" not in PAGE
    } == set()


# What is asked


def test_what_is_added_is_there_in_order_and_in_the_transcript(memory, turns):
    assert turns.add(says("a", "1"), thread="t1").turns == 1
    result = turns.add_batch([says("b", "2", thread_id="t2"), says("c", "3", "assistant", thread_id="t1")])
    assert (result.threads, result.turns, result.skipped) == (2, 2, 0)
    assert texts(turns.get()) == ["a", "b", "c"] == texts(list(turns))
    assert [(turn.thread, turn.n) for turn in turns.get()] == [("t1", 1), ("t2", 1), ("t1", 2)]
    assert [turn.content for turn in memory.transcript("t1")] == ["a", "c"]
    assert memory.transcript("t1") == tuple(turns.of("t1").get())
    assert (turns.count(), len(turns), bool(turns)) == (3, 3, True)
    assert bool(turns.of("nobody"))


def test_a_message_goes_where_the_caller_says_then_the_view_then_the_message(turns):
    turns.add(says("a", thread_id="own"), thread="said")
    turns.of("view").add(says("b", thread_id="own"))
    turns.of("view").add(says("c"), thread="said")
    turns.add(says("d", thread_id="own"))
    turns.add(says("e"))
    assert [turn.thread for turn in turns.get()] == ["said", "view", "said", "own", DEFAULT_THREAD]


def test_the_newest_come_last_and_zero_is_all(turns):
    turns.add_batch([says(letter) for letter in "abcd"])
    assert texts(turns.get(2)) == ["c", "d"]
    assert texts(turns.get(9)) == texts(turns.get(0)) == list("abcd")
    with pytest.raises(UsageError, match="got -1"):
        turns.get(-1)
    with pytest.raises(UsageError, match="got -2"):
        turns.find_news([], k=-2)


def test_positions_count_from_the_oldest(turns):
    turns.add_batch([says(letter) for letter in "abc"])
    assert [turns.get_by_position(n) and turns.get_by_position(n).content for n in (-1, 0, 2, 3)] == [
        None,
        "a",
        "c",
        None,
    ]


def test_everything_of_a_message_is_kept(turns):
    sent = says(
        "see the plan",
        "7",
        "assistant",
        name="Bob",
        cause_by="WritePlan",
        sent_from="pm",
        send_to={"qa", "dev"},
        instruct_content={"tasks": [1, 2]},
        metadata={"cost": 1.5},
        at="2026-01-02T03:04:05Z",
    )
    turns.add(sent, thread="t")
    assert turns.get() == [
        TurnView(
            "7",
            "assistant",
            "see the plan",
            "2026-01-02T03:04:05.000000Z",
            1,
            "Bob",
            "WritePlan",
            "pm",
            ("dev", "qa"),
            {"cost": 1.5, "instruct_content": {"tasks": [1, 2]}},
            "t",
        )
    ]


def test_turns_are_found_by_role_under_either_name(turns):
    turns.add_batch([says("a"), says("b", role="ai"), says("c", role="human")])
    assert texts(turns.get_by_role("user")) == texts(turns.get_by_role("Human")) == ["a", "c"]
    assert texts(turns.get_by_role("assistant")) == texts(turns.get_by_role("ai")) == ["b"]
    assert turns.get_by_role("system") == []


def test_turns_are_found_by_what_they_contain(turns):
    turns.add_batch([says("I like tea"), says("Tea it is", role="assistant"), says("喜欢喝茶")])
    assert texts(turns.get_by_content("tea")) == texts(turns.try_remember("tea")) == ["I like tea"]
    assert texts(turns.try_remember("喝茶")) == ["喜欢喝茶"]
    assert turns.try_remember("coffee") == []


class WritePlan:
    """An action, as MetaGPT has them."""


def test_turns_are_found_by_action_as_a_name_a_class_or_an_object(turns):
    name = f"{__name__}.WritePlan"
    turns.add_batch([says("a", cause_by=name), says("b", cause_by="Review"), says("c"), says("d", cause_by=name)])
    for action in (name, WritePlan, WritePlan()):
        assert texts(turns.get_by_action(action)) == ["a", "d"]
    assert texts(turns.get_by_actions({"Review", WritePlan})) == ["a", "b", "d"]
    assert texts(turns.get_by_actions(["Review", "Review"])) == ["b"]
    assert texts(turns.get_by_actions("Review")) == ["b"]
    assert turns.get_by_action("Sleep") == turns.get_by_actions([]) == []


def test_turns_are_found_by_whom_they_are_for(turns):
    turns.add_batch(
        [
            says("to bob", send_to=["bob", "bob"]),
            says("to nobody by name"),
            says("to all", send_to="<all>"),
            says("to bob and all", send_to=["bob", "<all>"]),
            says("to eve", send_to=["eve"]),
            says("to none", send_to=["<none>"]),
        ]
    )
    assert texts(turns.addressed_to("bob")) == ["to bob", "to nobody by name", "to all", "to bob and all"]
    assert texts(turns.addressed_to("eve")) == ["to nobody by name", "to all", "to bob and all", "to eve"]
    assert texts(turns.addressed_to("<all>")) == ["to nobody by name", "to all", "to bob and all"]


def test_the_newest_turn_of_an_id_is_found(turns):
    turns.add(says("a", "1"), thread="t1")
    turns.add(says("b", "1"), thread="t2")
    assert turns.get_by_id("1").content == "b"
    assert turns.of("t1").get_by_id("1").content == "a"
    assert turns.get_by_id("2") is None
    turns.add_batch([says("c")], "t3")
    turns.add_batch([says("d")], "t4")
    assert turns.get_by_id("t1").content == "d"
    assert turns.of("t3").get_by_id("t1").content == "c"
    turns.delete(turns.get_by_id("1"))
    assert turns.get_by_id("1").content == "a"


def test_news_is_what_was_not_seen_yet(turns):
    turns.add_batch([says("a", "1"), says("b", "2"), says("c")])
    seen = turns.get()
    fresh = [says("d", "4"), says("a", "9"), says("x", "1"), says("e")]
    known = [says("b", "2"), says("c"), seen[0]]
    assert turns.find_news([*fresh, *known]) == fresh
    assert turns.find_news([says("a", "1"), says("c")], k=1) == [says("a", "1")]
    never_kept = [says("a rule", role="system"), says("<memory>x</memory>")]
    assert turns.find_news(never_kept) == never_kept
    assert (says("b", "2") in turns, says("d") in turns, never_kept[0] in turns) == (True, False, False)
    with pytest.raises(InputError):
        turns.find_news([says("a", role="wizard")])


def test_news_of_one_conversation_may_be_old_in_another(turns):
    turns.add(says("a", "1"), thread="t1")
    assert turns.find_news([says("a", "1")]) == []
    assert turns.find_news([says("a", "1", thread_id="t2"), says("a", thread_id="t2")]) == [
        says("a", "1", thread_id="t2"),
        says("a", thread_id="t2"),
    ]
    assert turns.of("t2").find_news([says("a", "1"), turns.get(1)[0]]) == [says("a", "1"), turns.get(1)[0]]


# What is known already


def test_what_is_known_is_skipped_by_id_and_text(turns):
    turns.add_batch([says("a", "1"), says("b", "2")])
    result = turns.add_batch([says("a", "1"), says("c", "3"), says("no", role="tool")])
    assert (result.turns, result.skipped) == (1, 2)
    assert texts(turns.get()) == ["a", "b", "c"]


def test_another_text_under_an_id_takes_the_place_of_the_first(turns):
    turns.add_batch([says("a", "1"), says("b", "2")])
    turns.add(says("a better", "1"))
    assert texts(turns.get()) == ["b", "a better"]


def test_words_without_an_id_are_said_again(turns):
    turns.add(says("ok"))
    assert turns.add(says("ok")).turns == 1
    assert texts(turns.get()) == ["ok", "ok"]


def test_a_turn_that_was_read_is_known_where_it_stands_and_can_be_copied_elsewhere(home, turns):
    turns.add_batch([says("a", "1"), says("b", cause_by="X")])
    read = turns.get()
    assert (turns.add_batch(read).turns, turns.add_batch(read).skipped) == (0, 2)
    other = home.memory("eve").turns
    assert other.add_batch(read[::-1]).turns == 2
    assert [(turn.id, turn.content, turn.thread, turn.cause_by) for turn in other.get()] == [
        ("t1", "b", DEFAULT_THREAD, "X"),
        ("1", "a", DEFAULT_THREAD, None),
    ]
    assert turns.add_batch(read, thread="copy").turns == 0
    turns.delete(read[1])
    assert turns.add(read[1]).turns == 1


def test_equal_messages_are_one_where_ids_are_ignored(turns):
    view = turns.view(ignore_id=True)
    assert (
        view.add_batch([says("a", "1"), says("a", "2"), says("b"), says("b"), says("a", "1", "assistant")]).turns == 3
    )
    assert view.add(says("b", "7", thread_id="elsewhere")).skipped == 1
    assert view.add(says("c", "1")).turns == 1
    assert texts(view.get()) == texts(turns.get()) == ["a", "b", "a", "c"]
    assert view.find_news([says("b", "9"), says("b", cause_by="X")]) == [says("b", cause_by="X")]
    assert view.add_batch([says("no", role="system"), says("b", metadata={"x": 1})]).skipped == 1


def test_what_others_recorded_twice_shows_once_where_ids_are_ignored(memory, turns):
    memory.record("t", [says("ok", "1"), says("sure", "2", "assistant"), says("ok", "3"), says("fine", "4")])
    view = turns.view(ignore_id=True)
    assert texts(view.get()) == ["ok", "sure", "fine"]
    assert (view.count(), turns.count()) == (3, 4)
    # The first "ok" goes, and the one that stood behind it shows at its own place.
    memory.record("t", [says("okay", "1")])
    assert texts(view.get()) == texts(view.addressed_to("x")) == ["sure", "ok", "fine", "okay"]
    assert texts(view.get_by_role("user")) == ["ok", "fine", "okay"]
    assert view.get_by_id("3").content == "ok"
    memory.record("t", [says("okay", "3")])
    assert texts(view.get()) == ["sure", "fine", "okay"]
    assert view.delete(says("okay")).id == "1"
    assert texts(turns.get()) == ["sure", "fine"]


def test_what_was_not_shown_can_go_and_nothing_changes_where_ids_are_ignored(memory, turns):
    memory.record("t", [says("ok", "1"), says("sure", "2", "assistant"), says("ok", "3"), says("ok", "4")])
    view = turns.view(ignore_id=True)
    assert view.count() == 2
    memory.record("t", [says("fine", "3"), says("good", "4")])
    assert texts(view.get()) == ["ok", "sure", "fine", "good"]
    assert view.get_by_position(3).content == "good"
    memory.record("t", [says("well", "1")])
    assert texts(view.get()) == ["sure", "fine", "good", "well"]


def test_a_bound_shows_the_newest_and_the_transcript_keeps_all(turns):
    turns.add_batch([says(str(n), f"m{n}", cause_by="even" if n % 2 == 0 else None) for n in range(10)])
    view = turns.view(bound=4)
    assert texts(view.get()) == ["6", "7", "8", "9"] == texts(view.get(8))
    assert (view.count(), turns.count()) == (4, 10)
    assert texts(view.get(1)) == ["9"]
    assert texts(view.get_by_action("even")) == ["6", "8"]
    assert texts(view.get_by_role("user")) == texts(view.addressed_to("x")) == ["6", "7", "8", "9"]
    assert (view.get_by_position(0).content, view.get_by_position(4)) == ("6", None)
    assert (view.get_by_id("m5"), view.get_by_id("m6").content) == (None, "6")
    assert texts(view.find_news([turns.get()[0], turns.get()[9]])) == ["0"]
    assert view.delete_newest().content == "9"
    assert texts(view.get()) == ["5", "6", "7", "8"]
    with pytest.raises(NotFoundError):
        view.delete(says("0", "m0"))
    assert view.clear() == 9
    assert turns.count() == 0
    with pytest.raises(UsageError, match="got -1"):
        turns.view(bound=-1)


def test_views_add_up(turns):
    turns.add_batch([says("x", "1"), says("x", "2"), says("y", "3")], thread="t")
    turns.add(says("z"), thread="u")
    view = turns.of("t").view(bound=1).view(ignore_id=True)
    assert texts(view.get()) == ["y"]
    assert texts(view.view(bound=0).get()) == ["x", "y"]
    assert repr(view) == "Turns(thread='t', ignore_id=True, bound=1)"


# What is taken back


def test_a_turn_that_was_taken_back_is_nowhere_but_in_the_log(home, tmp_path, memory, turns):
    turns.add_batch([says("a", "1"), says("my secret", "2", cause_by="X", send_to=["bob"]), says("c", "3")], thread="t")
    assert turns.delete(says("my secret", "2")).n == 2
    for found in (turns.get_by_content("secret"), turns.get_by_action("X"), turns.try_remember("secret")):
        assert found == []
    assert texts(turns.get()) == texts(turns.addressed_to("bob")) == texts(turns.get_by_role("user")) == ["a", "c"]
    assert [turn.content for turn in memory.transcript("t")] == ["a", "c"]
    assert "my secret" in (tmp_path / "home/users/ada/transcript.jsonl").read_text()
    memory.forget(matching="my secret")
    assert "my secret" not in (tmp_path / "home/users/ada/transcript.jsonl").read_text()
    assert texts(turns.get()) == ["a", "c"]
    assert memory.verify().ok


def test_what_is_not_there_cannot_be_taken_back(turns):
    turns.add_batch([says("a", "1"), says("b")])
    for message in (says("z"), says("b", "1"), says("a", "1", role="system")):
        with pytest.raises(NotFoundError, match="no such turn"):
            turns.delete(message)
    gone = turns.delete(turns.get(1)[0])
    with pytest.raises(NotFoundError, match=gone.id):
        turns.delete(gone)
    assert texts(turns.get()) == ["a"]


def test_the_newest_is_taken_back_one_by_one(turns):
    turns.add_batch([says(letter) for letter in "abc"])
    assert [turns.delete_newest() and turns.get(0) is not None for _ in range(3)] == [True] * 3
    assert turns.delete_newest() is None
    assert (turns.count(), turns.get(), turns.get_by_position(0)) == (0, [], None)


def test_of_one_conversation_all_is_taken_back_and_no_other(memory, turns):
    turns.add_batch([says("a"), says("b")], thread="t1")
    turns.add(says("c"), thread="t2")
    assert turns.of("t1").clear() == 2
    assert (turns.of("t1").clear(), turns.of("nobody").clear()) == (0, 0)
    assert texts(turns.get()) == ["c"]
    assert turns.clear() == 1
    assert memory.verify().ok


def test_nothing_is_learned_from_what_was_taken_back(memory, turns):
    memory.record("t", exchange("tea", 1))
    memory.record("t", exchange("rum", 2))
    turns.delete(says("I like rum.", "u2"))
    turns.delete(says("rum it is.", "a2", "assistant"))
    assert [(pending.thread, pending.turns) for pending in memory.status().pending] == [("t", 2)]
    turns.of("t").clear()
    assert memory.status().pending == ()
    assert memory.extract([RecordedReply("t", reply("x"))]).updates == 0


def test_what_was_learned_before_stays_until_it_is_forgotten(memory, turns):
    memory.record("t", exchange("tea", 1))
    memory.extract([RecordedReply("t", reply("likes tea"))])
    turns.clear()
    assert [fact.content for fact in memory.facts()] == ["likes tea"]
    assert memory.why(memory.facts()[0].id).live
    memory.forget(thread_id="t")
    assert memory.facts() == ()
    assert memory.verify().ok


def test_a_withdrawal_says_who_asked_and_nothing_else(tmp_path):
    with open_home(tmp_path, actor="mallory") as bs:
        bs.memory(scope="global").turns.add(says("a"), thread="t")
        bs.memory(scope="global").turns.clear()
    last = (tmp_path / "transcript.jsonl").read_text().splitlines()[-1]
    assert (
        '"cause":{"kind":"withdrawal","thread":"t","actor":"mallory"},"events":[{"type":"TurnSuperseded","n":1}]'
        in last
    )


@pytest.mark.parametrize(
    ("said", "gone", "sent", "standing"),
    [
        pytest.param("abcd", "b", "abcde", "acde", id="the host does not know"),
        pytest.param("abcd", "b", "acde", "acde", id="the host knows"),
        pytest.param("abcd", "b", "acd", "acd", id="the host knows and has nothing new"),
        pytest.param("abcd", "b", "abcd", "acd", id="nothing new"),
        pytest.param("abcd", "bd", "abce", "ace", id="the host knows of one"),
        pytest.param("abcd", "bd", "acde", "ace", id="the host knows of the other"),
        pytest.param("abcd", "abcd", "abcde", "e", id="all"),
        pytest.param("abcd", "abcd", "ef", "ef", id="all, and the host has begun anew"),
        pytest.param("abcd", "abcd", "abcd", "", id="all, and nothing new"),
        pytest.param("abcd", "d", "abcx", "abcx", id="the answer is made anew"),
        pytest.param("abcd", "d", "abcd", "abc", id="the last, and nothing new"),
        pytest.param("abcd", "d", "ef", "abcef", id="only what is new"),
        pytest.param("abcd", "c", "bcde", "abde", id="a window that slides"),
        pytest.param("abcd", "c", "bde", "abde", id="a window of a host that knows"),
        pytest.param("aooo", "o", "aooob", "aoob", id="one of several alike"),
        pytest.param("a", "a", "ab", "b", id="the only one"),
    ],
)
def test_a_conversation_that_is_sent_again_does_not_bring_back_what_was_taken_back(memory, said, gone, sent, standing):
    turns = memory.turns
    memory.record("t", [says(f"{letter} is what I say") for letter in said])
    for letter in gone:
        turns.delete(says(f"{letter} is what I say"))
    for _ in range(2):
        memory.record("t", [says(f"{letter} is what I say") for letter in sent])
        assert "".join(text[0] for text in texts(turns.get())) == standing
    assert memory.verify().ok


def test_a_host_with_ids_does_not_bring_it_back_either_but_another_text_stands(turns, memory):
    said = [says("a", "1"), says("b", "2"), says("c", "3")]
    memory.record("t", said)
    turns.delete(says("b", "2"))
    assert memory.record("t", [*said, says("d", "4")]).turns == 1
    assert texts(turns.get()) == ["a", "c", "d"]
    assert memory.record("t", [says("b, better", "2")]).turns == 1
    assert memory.record("t", [says("b, better", "2")]).turns == 0
    assert texts(turns.get()) == ["a", "c", "d", "b, better"]


def test_a_host_with_some_ids_does_not_bring_it_back_either(turns, memory):
    said = [says("a", "1"), says("ok"), says("c", "3"), says("sure")]
    memory.record("t", said)
    turns.delete(says("ok"))
    assert memory.record("t", [*said, says("new")]).turns == 1
    assert texts(turns.get()) == ["a", "c", "sure", "new"]


def test_what_was_taken_back_can_be_said_again_if_it_is_said_to_be_new(turns, memory):
    turns.add(says("a", "1"), thread="t")
    turns.add(says("b"), thread="t")
    turns.clear()
    assert memory.record("t", [says("a", "1"), says("b")]).turns == 0
    assert turns.add(says("a", "1"), thread="t").turns == 1
    assert memory.record("t", [says("b")], mode="append").turns == 1
    assert texts(turns.get()) == ["a", "b"]
    assert memory.record("t", [says("a", "1")]).turns == 0


def test_what_was_taken_back_and_erased_stays_out_too(turns, memory):
    memory.record("t", [says("aa"), says("bbb"), says("cccc")])
    turns.delete(says("bbb"))
    memory.forget(matching="bbb")
    memory.record("t", [says("aa"), says("bbb"), says("cccc"), says("d")])
    assert texts(turns.get()) == ["aa", "cccc", "d"]
    assert "bbb" not in texts(turns.get())


def test_the_index_knows_what_was_taken_back(tmp_path):
    said = [says("a", "1"), says("b"), says("c", "3")]
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("noise", [says("x" * SMALL_BYTES)])
        memory.record("t", said)
        memory.log()
        memory.turns.delete(says("b"))
        memory.turns.delete(says("c", "3"))
        memory.record("t", [*said, says("d", "4"), says("sure", "5", "assistant")])
        memory.extract([RecordedReply("t", reply("x"))])
        assert memory.why(memory.facts()[0].id).evidence
        assert memory.verify().ok
    assert (tmp_path / "users/ada/index.sqlite").exists()
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert memory.record("t", said).turns == 0
        assert texts(memory.turns.of("t").get()) == ["a", "d", "sure"]
        assert memory.why(memory.facts()[0].id).evidence
        assert [(pending.thread, pending.turns) for pending in memory.status().pending] == [("noise", 1)]
        assert memory.turns.clear() == 4
        assert [(thread.thread, thread.turns) for thread in memory.threads()] == [("noise", 0), ("t", 0)]
        memory.clear()
        memory.record("t", [says("e", "6")])
        assert [(pending.thread, pending.turns) for pending in memory.status().pending] == [("t", 1)]
        assert memory.verify().ok


# Whoever else writes


def test_other_handles_and_homes_turns_are_seen_at_once(tmp_path):
    with open_home(tmp_path) as ours, open_home(tmp_path) as theirs:
        mine, others = ours.memory("ada").turns, theirs.memory("ada").turns
        mine.add(says("a", "1"))
        assert texts(others.get()) == ["a"]
        others.add(says("b", "2"))
        theirs.memory("ada").record("t", exchange("tea", 3))
        assert texts(mine.get()) == ["a", "b", "I like tea.", "tea it is."] == texts(ours.memory("ada").turns.get())
        others.delete(says("a", "1"))
        assert texts(mine.get())[0] == "b"
        theirs.memory("ada").forget(thread_id="t")
        assert texts(mine.get()) == ["b"]
        theirs.memory("ada").forget(everything=True)
        assert mine.get() == []
        mine.add(says("c"))
        assert texts(others.get()) == ["c"]


def test_two_erasures_between_two_looks_are_seen(tmp_path):
    with open_home(tmp_path) as ours, open_home(tmp_path) as theirs:
        mine = ours.memory("ada").turns
        mine.add_batch([says(word) for word in ("secret one", "secret two", "plain")], thread="t")
        assert mine.count() == 3
        for word in ("secret one", "secret two"):
            theirs.memory("ada").forget(matching=word)
        assert texts(mine.get()) == ["plain"]
        assert texts(mine.of("t").view(ignore_id=True).get()) == ["plain"]


def test_views_that_are_open_follow(turns):
    whole, one, once = turns, turns.of("t"), turns.view(ignore_id=True)
    turns.add(says("x"), thread="elsewhere")
    turns.delete_newest()
    assert [view.count() for view in (whole, one, once)] == [0, 0, 0]
    turns.add_batch([says("a"), says("a")], thread="t")
    turns.add(says("a"), thread="u")
    assert [view.count() for view in (whole, one, once)] == [3, 2, 1]


def test_a_scope_has_turns_of_its_own(home):
    home.memory("ada").turns.add(says("a"))
    assert home.memory("eve").turns.get() == []
    assert home.memory("ada", "coder").turns.get() == []


def test_a_host_that_asks_for_the_memory_each_time_does_not_read_it_all_each_time(home, monkeypatch):
    home.memory("ada").turns.add_batch([says(letter, letter) for letter in "abc"])
    assert home.memory("ada").turns.count() == 3
    reads: list[int] = []
    monkeypatch.setattr(
        JsonlStore,
        "read",
        lambda self, stream, after=0, *, byte=None, read=JsonlStore.read: (
            reads.append(after) or read(self, stream, after, byte=byte)
        ),
    )
    for _ in range(3):
        assert home.memory("ada").turns.count() == 3
    assert reads == []


def test_a_closed_home_says_so(tmp_path):
    with open_home(tmp_path) as bs:
        turns = bs.memory(scope="global").turns
    for work in (turns.get, turns.clear, lambda: turns.add(says("a"))):
        with pytest.raises(UsageError, match="was closed"):
            work()


def test_where_memory_is_off_nothing_is_added(tmp_path):
    with open_home(tmp_path, enabled=False) as bs:
        assert bs.memory(scope="global").turns.add(says("a")).skipped == 1
        assert bs.memory(scope="global").turns.get() == []


# Threads, processes, event loops


def test_threads_add_and_take_back_without_losing_a_turn(memory):
    failures: list[BaseException] = []
    taken: list[TurnView] = []

    def add(name: str) -> None:
        try:
            turns = memory.turns
            for n in range(15):
                turns.add(says(f"{name}{n}", f"{name}{n}"), thread=name)
                assert turns.of(name).count() <= n + 1
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def take() -> None:
        try:
            while len(taken) < 10:
                turn = memory.turns.delete_newest()
                if turn is not None:
                    taken.append(turn)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    workers = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    workers += [threading.Thread(target=take) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    everyone = [*(turn.id for turn in taken), *(turn.id for turn in memory.turns.get())]
    assert sorted(everyone) == sorted(f"{name}{n}" for name in "abc" for n in range(15))
    assert memory.verify().ok


def test_equal_content_is_added_once_by_many_threads(memory):
    view = memory.turns.view(ignore_id=True)
    together = threading.Barrier(4)

    def add() -> None:
        for n in range(8):
            together.wait(PATIENCE)
            view.add(says(f"w{n}"))

    workers = [threading.Thread(target=add) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(texts(memory.turns.get())) == sorted(f"w{n}" for n in range(8))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_this_process_reads_although_somebody_was_reading(memory, turns):
    turns.add(says("a"))
    with turns._look():
        child = os.fork()
        if child == 0:
            code = 1
            # Whoever waits for a lock that nobody holds any more waits for good.
            signal.alarm(int(PATIENCE))
            try:
                memory.turns.add(says("b"))
                code = 0 if texts(memory.turns.get()) == ["a", "b"] else 2
            finally:
                os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert texts(turns.get()) == ["a", "b"]


def test_the_async_twins_do_what_their_namesakes_do(turns):
    async def story() -> None:
        await turns.aadd(says("a", "1", cause_by="X"), thread="t")
        await turns.aadd_batch([says("b", "2"), says("c", "3")])
        assert texts(await turns.aget(2)) == ["b", "c"]
        assert (await turns.aget_by_id("1")).content == "a"
        assert len(await turns.aget_by_role("user")) == await turns.acount() == 3
        assert texts(await turns.aget_by_content("a")) == texts(await turns.atry_remember("a")) == ["a"]
        assert texts(await turns.aget_by_action("X")) == texts(await turns.aget_by_actions(["X"])) == ["a"]
        assert (await turns.aget_by_position(1)).content == "b"
        assert len(await turns.aaddressed_to("bob")) == 3
        assert await turns.afind_news([says("a", "1"), says("n")], k=2) == [says("a", "1"), says("n")]
        assert (await turns.adelete(says("b", "2"))).content == "b"
        assert (await turns.adelete_newest()).content == "c"
        assert await turns.aclear() == 1

    asyncio.run(story())
    assert turns.count() == 0


# The rows


def test_dropping_from_either_end_costs_no_more_than_it_has_to():
    """Each look passes over what was dropped before, so without sweeping this would take minutes."""
    for order in (1, -1):
        series = Series()
        rows = [TurnRow(n, TurnView(str(n), "user", "x", "", n)) for n in range(1, 30_001)]
        for row in rows:
            series.append(row)
        for row in rows[::order]:
            assert (series.first() if order == 1 else series.last()) is row
            row.stands = False
            series.drop()
        assert (len(series), series.first(), series.last(), series.at(0), series.since()) == (0, None, None, None, [])


def test_what_was_dropped_at_the_end_is_counted_once():
    series = Series()
    rows = [TurnRow(n, TurnView(str(n), "user", "x", "", n)) for n in range(1, 6)]
    for row in rows:
        series.append(row)
    for row in rows[3:]:
        row.stands = False
        series.drop()
        series.last()
    assert (len(series), series.last(), series.since()) == (3, rows[2], rows[:3])


@given(st.lists(st.tuples(st.sampled_from(["append", "insert", "drop", "look"]), st.integers(0, 30)), max_size=60))
def test_a_series_is_a_sorted_list(steps):
    series, rows = Series(), []
    for step, number in steps:
        serial = 100 * len(rows) + number if step == "append" else number
        if step in ("append", "insert"):
            row = TurnRow(serial if step == "insert" else 10_000 + len(steps) * serial, TurnView("", "user", "", "", 1))
            if (rows and step == "append" and row.serial <= rows[-1].serial) or row.serial in {r.serial for r in rows}:
                continue
            (series.append if step == "append" else series.insert)(row)
            rows = sorted([*rows, row], key=lambda r: r.serial)
        elif step == "drop" and rows:
            gone = rows.pop(number % len(rows))
            gone.stands = False
            series.drop()
        elif step == "look":
            assert series.first() is (rows[0] if rows else None)
            assert series.last() is (rows[-1] if rows else None)
            assert series.newest(number) == (rows[-number:] if number else [])
            assert series.from_end(number + 1) is (rows[-number - 1] if number < len(rows) else None)
            assert series.since(number) == [row for row in rows if row.serial >= number]
    assert (len(series), series.since(), list(series.backwards())) == (len(rows), rows, rows[::-1])
    assert [series.at(place) for place in (-1, 0, len(rows))] == [None, rows[0] if rows else None, None]


# Against a list


WORDS = st.sampled_from(["ok", "tea", "I like tea", "喜欢茶"])
IDS = st.sampled_from(["1", "2", "3", None, None])
THREADS = st.sampled_from(["t", "u"])
ACTIONS = st.sampled_from([None, None, None, "Plan", "Review"])
NAMES = st.sampled_from([(), (), (), ("bob",), ("eve", "bob"), ("<all>",)])


class TurnsMachine(RuleBasedStateMachine):
    """MetaGPT's semantics over a plain list; ids are told apart by conversation, as everywhere here."""

    @initialize()
    def begin(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="backstory-turns-"))
        self.clock = FakeClock()
        self.bs, self.others = self.opened(), self.opened()
        self.ours, self.theirs = self.bs.memory("ada"), self.others.memory("ada")
        self.list: list[tuple[str, str | None, str, str | None, tuple[str, ...]]] = []

    def opened(self):
        return open_home(self.folder, clock=self.clock)

    def teardown(self) -> None:
        self.bs.close()
        self.others.close()
        shutil.rmtree(self.folder)

    def add_to_list(self, thread, turn_id, content, cause_by, send_to) -> None:
        if turn_id is not None:
            same = [entry for entry in self.list if entry[:2] == (thread, turn_id)]
            if same and same[0][2] == content:
                return
            self.list = [entry for entry in self.list if entry[:2] != (thread, turn_id)]
        self.list.append((thread, turn_id, content, cause_by, send_to))

    @rule(
        batch=st.lists(st.tuples(THREADS, IDS, WORDS, ACTIONS, NAMES), min_size=1, max_size=4),
        theirs=st.booleans(),
    )
    def add(self, batch, theirs) -> None:
        turns = (self.theirs if theirs else self.ours).turns
        for thread, turn_id, content, cause_by, send_to in batch:
            turns.add(says(content, turn_id, cause_by=cause_by, send_to=send_to), thread=thread)
            self.add_to_list(thread, turn_id, content, cause_by, send_to)

    @rule(words=st.lists(WORDS, min_size=1, max_size=3, unique=True))
    def add_batch(self, words) -> None:
        self.ours.turns.add_batch([says(word) for word in words], thread="t")
        for word in words:
            self.add_to_list("t", None, word, None, ())

    @rule(content=WORDS)
    def add_ignoring_ids(self, content) -> None:
        self.ours.turns.view(ignore_id=True).add(says(content, "1"), thread="u")
        if not any(entry[2:] == (content, None, ()) for entry in self.list):
            self.list.append(("u", None, content, None, ()))

    @rule(place=st.integers(0, 20), theirs=st.booleans())
    def delete(self, place, theirs) -> None:
        turns = (self.theirs if theirs else self.ours).turns
        if self.list:
            place %= len(self.list)
            assert turns.delete(turns.get()[place]).content == self.list[place][2]
            del self.list[place]

    @rule(theirs=st.booleans())
    def delete_newest(self, theirs) -> None:
        gone = (self.theirs if theirs else self.ours).turns.delete_newest()
        assert (gone and gone.content) == (self.list.pop()[2] if self.list else None)

    @rule(content=WORDS)
    def delete_ignoring_ids(self, content) -> None:
        view = self.ours.turns.view(ignore_id=True)
        alike = [entry for entry in self.list if entry[2:] == (content, None, ())]
        if alike:
            view.delete(says(content, "whatever"))
            self.list = [entry for entry in self.list if entry[2:] != (content, None, ())]
        else:
            with pytest.raises(NotFoundError):
                view.delete(says(content))

    @rule(thread=THREADS | st.none())
    def clear(self, thread) -> None:
        turns = self.ours.turns
        before = len(self.list)
        self.list = [entry for entry in self.list if thread not in (None, entry[0])]
        assert (turns if thread is None else turns.of(thread)).clear() == before - len(self.list)

    @rule(word=WORDS, theirs=st.booleans())
    def forget(self, word, theirs) -> None:
        if any(word in entry[2] for entry in self.list):
            (self.theirs if theirs else self.ours).forget(matching=word)
            self.list = [entry for entry in self.list if word not in entry[2]]
            self.the_view_is_the_list()
            # What was erased stays out, of which other tests tell: a list knows nothing of that.
            self.teardown()
            self.begin_anew()

    @rule()
    def reopen(self) -> None:
        self.bs.close()
        self.bs = self.opened()
        self.ours = self.bs.memory("ada")

    @invariant()
    def the_view_is_the_list(self) -> None:
        for turns in (self.ours.turns, self.theirs.turns):
            assert [told(turn) for turn in turns.get()] == self.list
            self.check_view(turns, self.list)
            self.check_view(turns.view(bound=3), self.list[-3:])
            for thread in ("t", "u"):
                self.check_view(turns.of(thread), [entry for entry in self.list if entry[0] == thread])
            once = list({entry[2:]: entry for entry in reversed(self.list)}.values())[::-1]
            once.sort(key=self.first_place)
            self.check_view(turns.view(ignore_id=True), once)
            self.check_view(turns.view(ignore_id=True, bound=2), once[-2:])
        fresh = TurnLog(JsonlStore(self.folder), Scope("ada"))
        assert fresh.standing(None) == self.ours.turns.get()

    def first_place(self, entry) -> int:
        return next(place for place, other in enumerate(self.list) if other[2:] == entry[2:])

    def check_view(self, turns: Turns, entries) -> None:
        assert [told(turn)[2:] for turn in turns.get()] == [entry[2:] for entry in entries]
        assert turns.count() == len(entries)
        assert texts(turns.get(2)) == [entry[2] for entry in entries[-2:]]
        assert texts(turns.try_remember("tea")) == [entry[2] for entry in entries if "tea" in entry[2]]
        for action in ("Plan", "Review"):
            assert texts(turns.get_by_action(action)) == [entry[2] for entry in entries if entry[3] == action]
        assert texts(turns.get_by_actions({"Plan", "Review"})) == [entry[2] for entry in entries if entry[3]]
        assert texts(turns.get_by_role("user")) == [entry[2] for entry in entries]
        for name in ("bob", "eve", "<all>"):
            found = [entry[2] for entry in entries if not entry[4] or {"<all>", name} & set(entry[4])]
            assert texts(turns.addressed_to(name)) == found
        for place in (0, len(entries) - 1, len(entries)):
            found = turns.get_by_position(place)
            expected = entries[place][2] if 0 <= place < len(entries) else None
            assert (found and found.content) == expected
        for word in ("ok", "tea"):
            known = any(entry[2:] == (word, None, ()) for entry in entries)
            assert turns.find_news([says(word)]) == ([] if known else [says(word)])


def told(turn: TurnView) -> tuple[str, str | None, str, str | None, tuple[str, ...]]:
    own = turn.id == f"t{turn.n}"
    return turn.thread, None if own else turn.id, turn.content, turn.cause_by, turn.send_to


TestTurnsMachine = TurnsMachine.TestCase
TestTurnsMachine.settings = settings(
    max_examples=examples(1 / 4),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
