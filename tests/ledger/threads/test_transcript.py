"""Whose turn is it: which messages of a delivery are new, by id or by alignment, and what they supersede."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, open_home
from hypothesis import example, given
from hypothesis import strategies as st
from one_thread import AT, Conversation, after, chat, says, unnamed

from backstory.ledger.core.errors import StoreError, WrongExpectedVersionError
from backstory.ledger.core.events import TurnRange, TurnRecorded, TurnSuperseded
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.transcript_writer import RecordedDelivery
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.told import Told
from backstory.ledger.threads.delivery.turn_dedup import Mode, align

OPENED = ["I live in Oslo with my sister", "Oslo is a fine place to live"]
OPENING = chat(*OPENED)
"""What makes a conversation one that can be recognised, however little the rest of it says."""


# Without ids: the whole conversation each time, or only what is new


def test_append_still_knows_an_id():
    conversation = Conversation()
    conversation.send(says("a", "1"), says("b"), mode="append")
    assert conversation.send(says("a", "1"), says("b"), mode="append") == 1
    assert conversation.standing == ["a", "b", "b"]


few = st.sampled_from("ab")
talk = st.lists(few, max_size=8)
distinct = st.lists(st.integers(0, 99).map(str), max_size=12, unique=True)


@given(talk, st.lists(st.integers(1, 4)))
@example(["a", "a", "a", "a"], [1, 1, 1])
def test_a_conversation_that_grows_is_recorded_once_whatever_it_says(contents, steps):
    conversation, said = Conversation(), 0
    for step in [*steps, len(contents)]:
        said = min(len(contents), said + step)
        conversation.send(*OPENING, *unnamed(contents[:said]))
        assert conversation.everything == [*OPENED, *contents[:said]]
    assert conversation.thread.superseded == set()


@given(st.lists(st.tuples(talk, st.booleans()), max_size=6))
def test_ordinals_count_on_and_what_is_recorded_never_changes(deliveries):
    conversation = Conversation()
    for contents, append in deliveries:
        before = list(conversation.thread.turns)
        gone = set(conversation.thread.superseded)
        conversation.send(*unnamed(contents), mode="append" if append else "conversation")
        turns = conversation.thread.turns
        assert turns[: len(before)] == before
        assert conversation.thread.superseded >= gone
        assert [turn.n for turn in turns if turn is not None] == list(range(1, len(turns) + 1))


# With ids


def test_a_known_id_with_the_same_text_is_skipped():
    conversation = after([says("a", "1"), says("b", "2")])
    assert conversation.send(says("b", "2"), says("a", "1")) == 0


def test_a_known_id_with_a_new_text_is_a_new_revision():
    conversation = after([says("a", "1"), says("b", "2")])
    assert conversation.send(says("A", "1")) == 1
    assert conversation.everything == ["a", "b", "A"]
    assert conversation.standing == ["b", "A"]
    assert conversation.thread.find("1").n == 3


def test_a_text_that_comes_back_is_a_third_revision():
    conversation = after([says("a", "1")], [says("b", "1")], [says("a", "1")])
    assert conversation.everything == ["a", "b", "a"]
    assert [turn.n for turn in conversation.thread.standing()] == [3]


def test_a_known_id_of_another_role_is_a_new_revision():
    conversation = after([says("a", "1")], [says("a", "1", role="assistant")])
    assert [(turn.role, turn.n) for turn in conversation.thread.standing()] == [("assistant", 2)]


def test_an_id_twice_in_one_delivery_counts_once_as_it_was_last():
    conversation = after([says("a", "1"), says("b", "2"), says("A", "1")])
    assert conversation.everything == ["b", "A"]
    assert conversation.send(says("a", "1"), says("b", "2"), says("A", "1")) == 0


def test_the_same_text_under_another_id_is_another_turn():
    assert after([says("ok", "1"), says("ok", "2")]).everything == ["ok", "ok"]


@pytest.mark.parametrize(("highest", "first"), [(0, 3), (2, 3), (7, 8)])
def test_a_new_turn_takes_no_ordinal_that_a_turn_had_which_is_lost(highest: int, first: int) -> None:
    conversation = after([says("a", "1"), says("b", "2")])
    assert align(conversation.thread, [says("c", "3")], AT, highest=highest).first == first


def test_a_revision_of_a_turn_that_an_edit_had_superseded_is_recorded():
    conversation = after([says("a", "1"), says("b", "2")])
    conversation.send(says("a"), says("x"), mode="replace")
    assert conversation.standing == ["a", "x"]
    conversation.send(says("b", "2"))
    assert conversation.standing == ["a", "x", "b"]
    assert conversation.send(says("b", "2")) == 0


deliveries_with_ids = st.lists(
    st.lists(st.tuples(st.sampled_from(["1", "2", "t1", "t2", "t3"]), few), max_size=5), max_size=6
)


@given(deliveries_with_ids)
def test_each_id_stands_once_with_what_was_last_said_under_it(deliveries):
    conversation = Conversation()
    said: dict[str, str] = {}
    for delivery in deliveries:
        last = dict(delivery)
        new = sum(said.get(turn_id) != content for turn_id, content in last.items())
        assert conversation.send(*[says(content, turn_id) for turn_id, content in delivery]) == new
        said |= last
        standing = conversation.thread.standing()
        assert {turn.id: turn.content for turn in standing} == said
        assert len(standing) == len(said)


# Both


def test_a_name_we_gave_is_not_taken_for_an_id_of_the_host():
    conversation = after([says("no id"), says("none either")])
    assert conversation.send(says("the host's own", "t1")) == 1
    assert conversation.standing == ["no id", "none either", "the host's own"]
    assert conversation.send(says("the host's own", "t1")) == 0


@pytest.mark.parametrize("turn_id", [None, "m7"])
def test_what_was_forgotten_in_another_thread_stays_out_where_it_counts(turn_id: str | None) -> None:
    other = after(unnamed(["my sister lives in Lisbon", "that is far away"]))
    other.erase(1)
    sent, new = [says("my sister lives in Lisbon", turn_id), says("and I in Bergen", turn_id and "m8")], Conversation()
    elsewhere = other.thread.forgotten
    assert elsewhere
    kept = align(new.thread, sent, AT, mode=Told(adopts=True), seal=other.seal, elsewhere=elsewhere).fresh
    assert [message.content for message in kept] == ["and I in Bergen"]
    assert len(align(new.thread, sent, AT, mode=Told(adopts=True), seal=other.seal).fresh) == 2


def test_an_id_of_the_host_is_not_forgotten_over_a_name_we_gave():
    conversation = after([says("the host's own", "t2"), says("no id")])
    assert conversation.send(says("the host's own", "t2"), says("no id")) == 0
    assert conversation.standing == ["the host's own", "no id"]
    for within in (None, TurnRange(1, 2)):
        assert conversation.thread.find("t2", within).content == "the host's own"


def test_a_turn_without_an_id_is_found_by_the_name_we_gave():
    conversation = after([says("a"), says("b", "id")])
    assert conversation.thread.find("t1").content == "a"
    assert conversation.thread.find("t2") is None
    assert conversation.thread.find("t1", TurnRange(1, 2)).content == "a"
    assert conversation.thread.find("t1", TurnRange(2, 2)) is None


mixed_talk = st.lists(st.tuples(few, st.booleans()), max_size=8).map(
    lambda items: [says(content, f"t{i}" if named else None) for i, (content, named) in enumerate(items)]
)


@given(mixed_talk, st.lists(st.integers(1, 4)))
def test_a_conversation_with_some_ids_grows_and_is_recorded_once(messages, steps):
    conversation, said = Conversation(), 0
    for step in [*steps, len(messages), 0]:
        said = min(len(messages), said + step)
        conversation.send(*OPENING, *messages[:said])
        assert conversation.everything == [*OPENED, *(message.content for message in messages[:said])]
    assert conversation.thread.superseded == set()


# One delivery in several commits


@given(distinct, distinct, st.integers(1, 5))
def test_a_delivery_cut_into_commits_says_the_same(contents, edited, at_most):
    shared = contents[:1]
    whole = after(unnamed(contents), unnamed([*shared, *edited]))
    cut = Conversation()
    for delivery in (contents, [*shared, *edited]):
        cut.send(*unnamed(delivery), at_most=at_most)
    assert cut.everything == whole.everything
    assert cut.standing == whole.standing


def test_what_is_superseded_goes_in_the_commit_of_what_replaces_it():
    conversation = after([*OPENING, *chat("a", "b")])
    commits = list(align(conversation.thread, [*OPENING, *chat("a", "x", "y", "z")], AT).commits(2))
    assert [turns for turns, _ in commits] == [TurnRange(5, 6), TurnRange(7, 7)]
    assert [type(event) for event in commits[0][1]] == [TurnSuperseded, TurnRecorded, TurnRecorded]
    assert [type(event) for event in commits[1][1]] == [TurnRecorded]


@given(talk, talk, st.integers(1, 3), st.integers(0, 5), st.booleans())
def test_a_crash_in_the_middle_of_a_delivery_and_the_same_again_is_as_if_there_had_been_none(
    contents, more, at_most, crash_after, edit
):
    told = [*contents[: len(contents) // 2], *more] if edit else [*contents, *more]
    before, sent = [*OPENING, *unnamed(contents)], [*OPENING, *unnamed(told)]
    mode: Mode = "replace" if edit else "conversation"
    smooth, broken = after(before), after(before)
    smooth.send(*sent, mode=mode)
    broken.send(*sent, at_most=at_most, crash_after=crash_after, mode=mode)
    broken.send(*sent, at_most=at_most, mode=mode)
    assert broken.standing == smooth.standing
    assert broken.everything == smooth.everything


@given(deliveries_with_ids, st.integers(1, 3), st.integers(0, 5))
def test_a_crash_in_the_middle_of_a_delivery_with_ids_loses_and_doubles_nothing(deliveries, at_most, crash_after):
    smooth, broken = Conversation(), Conversation()
    for delivery in deliveries:
        messages = [says(content, turn_id) for turn_id, content in delivery]
        smooth.send(*messages)
        broken.send(*messages, at_most=at_most, crash_after=crash_after)
        broken.send(*messages, at_most=at_most)
    assert {turn.id: turn.content for turn in broken.thread.standing()} == {
        turn.id: turn.content for turn in smooth.thread.standing()
    }
    assert len(broken.thread.standing()) == len(smooth.thread.standing())


class Tripping(JsonlStore):
    """A store that appends one line after the other and fails at the nth, once."""

    def __init__(self, home: Path, fail_at: int, error: Exception) -> None:
        super().__init__(home)
        self._countdown = fail_at
        self._error = error

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        for number, line in enumerate(lines):
            self._countdown -= 1
            if self._countdown == 0:
                raise self._error
            super().append(stream, [line], expected + number)


def writer(store: JsonlStore, scope: Scope | None = None) -> Writer:
    return Writer(store, scope or Scope("ada"), clock=FakeClock(), salts=CountingSalts())


def contents_of(writer: Writer, thread: str = "t") -> list[str]:
    with writer.state() as state:
        return [turn.content for turn in state.transcript.threads[thread].standing()]


NUMBERS = [str(n) for n in range(450)]


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_a_disk_that_fails_within_a_delivery_costs_nothing_when_it_is_sent_again(tmp_path, fail_at, with_ids):
    messages = [says(number, number if with_ids else None) for number in NUMBERS]
    broken = writer(Tripping(tmp_path, fail_at, StoreError("full")))
    with pytest.raises(StoreError):
        broken.record("t", messages)
    again = writer(JsonlStore(tmp_path))
    done = 200 * (fail_at - 1)
    assert again.record("t", messages) == RecordedDelivery(450 - done, done)
    assert contents_of(again) == NUMBERS
    # The writer that saw the failure goes on as well.
    assert broken.record("t", messages) == RecordedDelivery(0, 450)
    assert contents_of(broken) == NUMBERS


def test_a_long_delivery_takes_several_commits_and_comes_back_whole(tmp_path):
    first = writer(JsonlStore(tmp_path))
    assert first.record("t", unnamed(NUMBERS)) == RecordedDelivery(450, 0)
    with first.state() as state:
        assert state.transcript.head.seq == 3
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS


@pytest.mark.parametrize("append", [False, True])
def test_another_process_that_records_first_costs_nothing(tmp_path, append):
    one, other = writer(JsonlStore(tmp_path)), writer(JsonlStore(tmp_path))
    one.record("t", unnamed(["a", "b"]))
    other.record("elsewhere", unnamed(["x"]))
    assert (
        one.record(
            "t", unnamed(["c"] if append else ["a", "b", "c"]), mode="append" if append else "conversation"
        ).turns
        == 1
    )
    other.record("elsewhere", unnamed(["x", "y"]))
    assert contents_of(one) == ["a", "b", "c"]
    assert contents_of(other, "elsewhere") == ["x", "y"]


@pytest.mark.parametrize("append", [False, True])
def test_another_process_in_the_middle_of_a_long_delivery_costs_nothing(tmp_path, append):
    one = writer(Tripping(tmp_path, 3, WrongExpectedVersionError("somebody else was quicker", actual=3)))
    one.record("t", unnamed(["a", "b"]))
    assert (
        one.record(
            "t", unnamed(NUMBERS if append else ["a", "b", *NUMBERS]), mode="append" if append else "conversation"
        ).turns
        == 450
    )
    assert contents_of(one) == ["a", "b", *NUMBERS]


# Through the public surface


def test_recording_says_what_was_new_and_what_was_skipped(tmp_path):
    with open_home(tmp_path) as backstory:
        memory = backstory.memory("ada")
        conversation = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ]
        first = memory.record("t", conversation)
        assert (first.threads, first.turns, first.skipped) == (1, 2, 1)
        conversation += [{"role": "user", "content": "ok"}, {"role": "tool", "content": "42"}]
        second = memory.record("t", conversation)
        assert (second.turns, second.skipped) == (1, 4)
        assert memory.record("t", [{"role": "user", "content": "ok"}], mode="append").turns == 1
        assert [turn.content for turn in memory.transcript("t")] == ["hi", "hello", "ok", "ok"]


def test_one_id_in_two_threads_is_two_turns(tmp_path):
    with open_home(tmp_path) as backstory:
        memory = backstory.memory("ada")
        for thread in ("t1", "t2"):
            assert memory.record(thread, [{"role": "user", "content": "hi", "id": 1}]).turns == 1


def test_a_new_text_under_an_old_id_is_pending_again(tmp_path):
    with open_home(tmp_path, model=lambda messages: '{"newFacts":[]}') as backstory:
        memory = backstory.memory("ada")
        memory.record("t", [{"role": "user", "content": "I like tee", "id": 1}, {"role": "ai", "content": "I see"}])
        assert memory.extract().updates == 1
        assert memory.status().pending == ()
        memory.record("t", [{"role": "user", "content": "I like tea", "id": 1}])
        assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 1)]


def test_a_second_ok_alone_is_a_new_turn_also_where_the_thread_began_with_one(tmp_path):
    one = writer(JsonlStore(tmp_path))
    one.record("t", unnamed(["ok", "fine"]))
    assert one.record("t", unnamed(["ok"])) == RecordedDelivery(1, 0)
    assert contents_of(one) == ["ok", "fine", "ok"]


def test_new_words_without_ids_are_recorded_whole_or_not_at_all_so_sending_them_again_doubles_none(tmp_path):
    one = writer(Tripping(tmp_path, 2, StoreError("the power went")))
    one.record("other", unnamed(["a"]))
    with pytest.raises(StoreError):
        one.record("t", unnamed(NUMBERS), mode="append")
    assert one.record("t", unnamed(NUMBERS), mode="append") == RecordedDelivery(450, 0)
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS
    with one.state() as state:
        assert state.transcript.head.seq == 2


# Turns that were erased


def test_what_is_said_to_be_new_is_new_even_after_an_erasure() -> None:
    conversation = after([Kept(role="user", content="aa")])
    conversation.erase(1)
    assert conversation.send(Kept(role="user", content="bb"), mode="append") == 1
    assert conversation.standing == ["bb"]


@given(st.lists(st.sampled_from(["", "a", "bb", "ccc"]), max_size=6), st.data())
def test_no_erased_turn_comes_back_with_its_whole_conversation(texts: list[str], data: st.DataObject) -> None:
    said = [*OPENING, *(Kept(role="user", content=f"{text}!") for text in texts)]
    conversation = after(said)
    ordinals = data.draw(st.sets(st.sampled_from(range(1, len(said) + 1))))
    left = [turn.content for n, turn in enumerate(said, 1) if n not in ordinals]
    conversation.erase(*ordinals)
    new = data.draw(st.lists(st.sampled_from(["longer words", "even longer words"]), max_size=3))
    conversation.send(*said, *(Kept(role="user", content=text) for text in new))
    assert conversation.standing == left + new


# Turns that were taken back


@given(
    st.lists(st.sampled_from("ab") | st.integers(0, 40), max_size=25),
    st.booleans(),
)
def test_a_host_that_does_not_know_never_brings_a_turn_back(steps: list[str | int], with_ids: bool) -> None:
    """A letter is said, a number takes a turn back; the host sends the whole conversation each time."""
    said = [says(text, f"o{n}" if with_ids else None) for n, text in enumerate(OPENED)]
    conversation, withdrawn = after(said), set[int]()
    for step in steps:
        if isinstance(step, str):
            said.append(says(step, f"m{len(said)}" if with_ids else None))
        elif said:
            conversation.withdraw(step % len(said) + 1)
            withdrawn.add(step % len(said) + 1)
        conversation.send(*said)
        assert conversation.standing == [m.content for n, m in enumerate(said, 1) if n not in withdrawn]
    assert len(conversation.thread.turns) == len(said)


@given(st.lists(st.just("say") | st.tuples(st.integers(0, 40), st.booleans()), max_size=25))
def test_a_host_that_knows_of_some_neither_brings_them_back_nor_says_anything_twice(
    steps: list[str | tuple[int, bool]],
) -> None:
    """Of each turn that is taken back the host may be told, and then it sends it no more."""
    said, sent = 2, ["1, as I was going to tell", "2, as I was going to tell"]
    conversation, withdrawn = after(unnamed(sent)), set[str]()
    for step in steps:
        if step == "say":
            said += 1
            sent.append(f"{said}, as I was going to tell")
        else:
            n, told = step
            text = f"{n % said + 1}, as I was going to tell"
            conversation.withdraw(n % said + 1)
            withdrawn.add(text)
            sent = [other for other in sent if not (told and other == text)]
        if len(sent) > 1 or step == "say":  # one alone is said again
            conversation.send(*unnamed(sent))
        everything = [f"{n}, as I was going to tell" for n in range(1, said + 1)]
        assert conversation.standing == [text for text in everything if text not in withdrawn]
    assert len(conversation.thread.turns) == said


def test_another_text_in_the_place_of_what_was_taken_back_replaces_nothing() -> None:
    conversation = after([says("a", "m1"), says("b", "m2")])
    conversation.withdraw(2)
    assert align(conversation.thread, [says("better", "m2")], AT).superseded == ()
    assert align(conversation.thread, [says("better", "m1")], AT).superseded == (1,)


def test_taking_back_a_long_conversation_of_the_same_words_is_over_soon() -> None:
    conversation = after([says(str(n)) for n in range(5_000)])
    conversation.withdraw(*range(1, 5_001))
    assert conversation.send(*[says(str(n)) for n in range(5_001)]) == 1
    assert conversation.standing == ["5000"]


def test_what_does_not_stand_is_not_taken_back_and_then_nothing_is_written(tmp_path: Path) -> None:
    one = writer(JsonlStore(tmp_path))
    assert one.withdraw("t", [1]) == ()
    one.record("t", [says("a", "1"), says("b", "2")])
    assert one.withdraw("t", [2, 2, 3, 0, -1]) == (2,)
    assert one.withdraw("t", [2]) == one.withdraw("u", [1]) == one.withdraw("t", []) == ()
    with one.state() as state:
        assert state.transcript.head.seq == 2
        assert (state.transcript.threads["t"].withdrawn, state.transcript.threads["t"].superseded) == ({2}, {2})
    assert contents_of(writer(JsonlStore(tmp_path))) == ["a"]


def test_a_withdrawal_on_a_disk_that_fails_takes_nothing_back(tmp_path: Path) -> None:
    one = writer(Tripping(tmp_path, 2, StoreError("full")))
    one.record("t", unnamed(["a", "b"]))
    with pytest.raises(StoreError):
        one.withdraw("t", [1])
    assert contents_of(one) == ["a", "b"]
    assert one.withdraw("t", [1]) == (1,)
    assert contents_of(writer(JsonlStore(tmp_path))) == ["b"]


def test_a_withdrawal_that_another_process_overtakes_is_made_again(tmp_path: Path) -> None:
    one = writer(Tripping(tmp_path, 2, WrongExpectedVersionError("somebody else was quicker", actual=2)))
    one.record("t", unnamed(["a", "b"]))
    assert one.withdraw("t", [2]) == (2,)
    assert contents_of(one) == contents_of(writer(JsonlStore(tmp_path))) == ["a"]


def test_messages_with_ids_need_not_be_recorded_whole(tmp_path: Path) -> None:
    one = writer(Tripping(tmp_path, 3, StoreError("the power went")))
    named = [says(number, number) for number in NUMBERS]
    with pytest.raises(StoreError):
        one.record("t", named, mode="append")
    assert one.record("t", named, mode="append") == RecordedDelivery(50, 400)
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS
