"""Whose turn is it: which messages of a delivery are new, by id or by alignment, and what they supersede."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, open_home
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.arrival import _overlap, receive
from ledger.commit import Cause, Commit
from ledger.errors import StoreError, WrongExpectedVersionError
from ledger.events import Redacted, TurnRange, TurnRecorded, TurnSuperseded
from ledger.messages import Kept
from ledger.scope import Scope
from ledger.store.jsonl import JsonlStore
from ledger.transcript import Thread, Transcript
from ledger.writer import Recorded, Writer

AT = "2026-03-01T12:00:00.000000Z"


def says(content: str, turn_id: str | None = None, role: str = "user") -> Kept:
    return Kept(role=role, content=content, id=turn_id)


def chat(*contents: str) -> list[Kept]:
    """Messages without ids, a user and an agent in turn."""
    return [says(content, role=("user", "assistant")[i % 2]) for i, content in enumerate(contents)]


class Conversation:
    """One thread that deliveries lead to, without a disk."""

    def __init__(self) -> None:
        self.transcript = Transcript()

    @property
    def thread(self) -> Thread:
        return self.transcript.threads.get("t", Thread("t"))

    def send(self, *messages: Kept, append: bool = False, at_most: int = 200, crash_after: int | None = None) -> int:
        """Deliver; returns how many turns were recorded. `crash_after` so many commits the rest is lost."""
        arrival = receive(self.thread, messages, AT, append=append)
        done = 0
        for number, (turns, events) in enumerate(arrival.commits(at_most)):
            if number == crash_after:
                break
            seq = self.transcript.head.seq + 1
            self.transcript.apply(
                Commit(seq, AT, Cause(kind="record", thread="t", turns=turns), tuple(events), "", f"{seq}")
            )
            done += turns.last - turns.first + 1
        return done

    def erase(self, *ordinals: int) -> None:
        """Erase turns, as their redaction says."""
        for n in ordinals:
            turn = self.thread.turns[n - 1]
            assert turn is not None
            self.thread.redact(
                Redacted("transcript", 1, 0, "turn", thread="t", n=n, turn=turn.id, size=len(turn.content))
            )

    def withdraw(self, *ordinals: int) -> None:
        """Take turns back."""
        seq, events = self.transcript.head.seq + 1, tuple(map(TurnSuperseded, ordinals))
        self.transcript.apply(Commit(seq, AT, Cause(kind="withdrawal", thread="t"), events, "", f"{seq}"))

    @property
    def standing(self) -> list[str]:
        return [turn.content for turn in self.thread.standing()]

    @property
    def everything(self) -> list[str]:
        return [turn.content for turn in self.thread.turns if turn is not None]


def after(*deliveries: Sequence[Kept]) -> Conversation:
    conversation = Conversation()
    for delivery in deliveries:
        conversation.send(*delivery)
    return conversation


# Without ids: the whole conversation each time, or only what is new


@pytest.mark.parametrize(
    ("deliveries", "standing"),
    [
        pytest.param(["ab", "ab"], "ab", id="the same again"),
        pytest.param(["ab", "abcd", "abcdef"], "abcdef", id="growing"),
        pytest.param(["a", "ab"], "ab", id="an answer comes"),
        pytest.param(["ab", "cd", "ef"], "abcdef", id="only what is new"),
        pytest.param(["abcd", "cdef", "efgh"], "abcdefgh", id="a window that slides"),
        pytest.param(["abcd", "def", "f"], "abcdef", id="a window that slides by one"),
        pytest.param(["abcdef", "abc"], "abcdef", id="shorter"),
        pytest.param(["abcdef", "ab"], "abcdef", id="shorter by far"),
        pytest.param(["abcdef", "a"], "abcdefa", id="one alone is said again"),
        pytest.param(["abcdef", "def"], "abcdef", id="its end alone"),
        pytest.param(["ab", "", "abc"], "abc", id="nothing"),
        pytest.param(["oxo", "oxoo"], "oxoo", id="a second ok"),
        pytest.param(["oo", "ooo", "oooo"], "oooo", id="nothing but ok"),
        pytest.param(["oxoxo", "oxoxoy"], "oxoxoy", id="a border"),
        pytest.param(["abab", "abc"], "ababc", id="a window that might be an edit"),
        pytest.param(["abcd", "abxd"], "abxd", id="an edit"),
        pytest.param(["abcd", "abx"], "abx", id="an edit that ends there"),
        pytest.param(["abcd", "abcx"], "abcx", id="another last answer"),
        pytest.param(["abcd", "abcx", "abcd"], "abcd", id="back and forth"),
        pytest.param(["abcd", "axcd", "axcde"], "axcde", id="an edit, then growing"),
        pytest.param(["abcd", "axyz", "yzuv"], "axyzuv", id="an edit, then a window"),
        pytest.param(["abcd", "axyz", "ax"], "axyz", id="an edit, then shorter"),
    ],
)
def test_without_ids_a_delivery_is_aligned_with_what_is_recorded(deliveries, standing):
    conversation = after(*[[says(letter) for letter in delivery] for delivery in deliveries])
    assert "".join(conversation.standing) == standing


def test_the_same_words_of_another_speaker_are_another_turn():
    conversation = after([says("ok")], [says("ok", role="assistant")])
    assert [(turn.role, turn.content) for turn in conversation.thread.standing()] == [
        ("user", "ok"),
        ("assistant", "ok"),
    ]


def test_an_edit_supersedes_what_diverges_and_nothing_before():
    conversation = after(chat("a", "b", "c", "d"), chat("a", "b", "x"))
    assert conversation.everything == ["a", "b", "c", "d", "x"]
    assert conversation.thread.superseded == {3, 4}
    assert [turn.n for turn in conversation.thread.standing()] == [1, 2, 5]


def test_append_takes_everything_as_new():
    conversation = Conversation()
    assert conversation.send(*chat("ok", "sure"), append=True) == 2
    assert conversation.send(*chat("ok", "sure"), append=True) == 2
    assert conversation.send(*chat("ok"), append=True) == 1
    assert conversation.standing == ["ok", "sure", "ok", "sure", "ok"]


def test_append_still_knows_an_id():
    conversation = Conversation()
    conversation.send(says("a", "1"), says("b"), append=True)
    assert conversation.send(says("a", "1"), says("b"), append=True) == 1
    assert conversation.standing == ["a", "b", "b"]


few = st.sampled_from("ab")
talk = st.lists(few, max_size=8)
distinct = st.lists(st.integers(0, 99).map(str), max_size=12, unique=True)


def unnamed(contents: Sequence[str]) -> list[Kept]:
    return [says(content) for content in contents]


@given(talk)
def test_sending_the_whole_again_adds_nothing(contents):
    conversation = after(unnamed(contents))
    assert conversation.send(*unnamed(contents)) == 0
    assert conversation.everything == contents


@given(talk, st.lists(st.integers(1, 4)))
@example(["a", "a", "a", "a"], [1, 1, 1])
def test_a_conversation_that_grows_is_recorded_once_whatever_it_says(contents, steps):
    conversation, said = Conversation(), 0
    for step in [*steps, len(contents)]:
        said = min(len(contents), said + step)
        conversation.send(*unnamed(contents[:said]))
        assert conversation.everything == contents[:said]
    assert conversation.thread.superseded == set()


@given(talk, st.data())
def test_the_beginning_of_what_is_recorded_changes_nothing(contents, data):
    conversation = after(unnamed(contents))
    length = data.draw(st.integers(0, len(contents)).filter(lambda n: n != 1))
    assert conversation.send(*unnamed(contents[:length])) == 0
    assert conversation.everything == contents
    assert conversation.thread.superseded == set()


@given(distinct, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3))))
def test_a_window_that_slides_over_a_conversation_loses_and_doubles_nothing(contents, slides):
    conversation, end = Conversation(), 0
    for back, ahead in [*slides, (0, len(contents))]:
        start, end = max(0, end - back), min(len(contents), end + ahead)
        conversation.send(*unnamed(contents[start:end]))
    assert conversation.everything == contents
    assert conversation.thread.superseded == set()


@given(distinct.filter(lambda contents: len(contents) > 1), st.data())
def test_an_edit_leaves_standing_exactly_what_was_sent(contents, data):
    conversation = after(unnamed(contents))
    for edit in range(3):
        standing = conversation.standing
        shared = data.draw(st.integers(1, len(standing)))
        told = [*standing[:shared], *(f"{edit}-{i}" for i in range(data.draw(st.integers(1, 3))))]
        conversation.send(*unnamed(told))
        assert conversation.standing == told


@given(st.lists(st.tuples(talk, st.booleans()), max_size=6))
def test_ordinals_count_on_and_what_is_recorded_never_changes(deliveries):
    conversation = Conversation()
    for contents, append in deliveries:
        before = list(conversation.thread.turns)
        gone = set(conversation.thread.superseded)
        conversation.send(*unnamed(contents), append=append)
        turns = conversation.thread.turns
        assert turns[: len(before)] == before
        assert conversation.thread.superseded >= gone
        assert [turn.n for turn in turns if turn is not None] == list(range(1, len(turns) + 1))


@given(talk, talk)
def test_the_overlap_is_the_longest_one(old, new):
    longest = max(size for size in range(len(new) + 1) if size <= len(old) and old[len(old) - size :] == new[:size])
    assert _overlap(old, new) == longest


@given(st.lists(few, max_size=40), st.lists(few, min_size=1, max_size=12))
def test_the_overlap_of_long_texts_is_the_longest_one(old, tail):
    new = [*tail, *old[:5]]
    whole = [*old, *tail]
    longest = max(
        size for size in range(len(new) + 1) if size <= len(whole) and whole[len(whole) - size :] == new[:size]
    )
    assert _overlap(whole, new) == longest


def test_alignment_takes_no_square_of_the_time():
    # A worst case for naive matching: 20,000 x 20,000 comparisons would take minutes.
    old = ["a"] * 20_000
    assert _overlap(old, [*["a"] * 19_999, "b", "a"]) == 19_999
    assert _overlap([*old, "b"], [*["a"] * 20_000, "b", "b"]) == 20_001


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


def test_a_revision_of_a_turn_that_an_edit_had_superseded_is_recorded():
    conversation = after([says("a", "1"), says("b", "2")], [says("a"), says("x")])
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
        conversation.send(*messages[:said])
        assert conversation.everything == [message.content for message in messages[:said]]
    assert conversation.thread.superseded == set()


def test_a_host_that_stops_sending_ids_is_still_understood():
    conversation = after([says("a", "1"), says("b", "2")], [says("a"), says("b"), says("c")])
    assert conversation.everything == ["a", "b", "c"]


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
    conversation = after(chat("a", "b", "c"))
    commits = list(receive(conversation.thread, chat("a", "x", "y", "z"), AT).commits(2))
    assert [turns for turns, _ in commits] == [TurnRange(4, 5), TurnRange(6, 6)]
    assert [type(event) for event in commits[0][1]] == [TurnSuperseded, TurnSuperseded, TurnRecorded, TurnRecorded]
    assert [type(event) for event in commits[1][1]] == [TurnRecorded]


@given(talk, talk, st.integers(1, 3), st.integers(0, 5), st.booleans())
def test_a_crash_in_the_middle_of_a_delivery_and_the_same_again_is_as_if_there_had_been_none(
    contents, more, at_most, crash_after, edit
):
    told = [*contents[: len(contents) // 2], *more] if edit else [*contents, *more]
    smooth, broken = after(unnamed(contents)), after(unnamed(contents))
    smooth.send(*unnamed(told))
    broken.send(*unnamed(told), at_most=at_most, crash_after=crash_after)
    broken.send(*unnamed(told), at_most=at_most)
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

    def append_all(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        for number, line in enumerate(lines):
            self._countdown -= 1
            if self._countdown == 0:
                raise self._error
            super().append_all(stream, [line], expected + number)


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
    assert again.record("t", messages) == Recorded(450 - done, done)
    assert contents_of(again) == NUMBERS
    # The writer that saw the failure goes on as well.
    assert broken.record("t", messages) == Recorded(0, 450)
    assert contents_of(broken) == NUMBERS


def test_a_long_delivery_takes_several_commits_and_comes_back_whole(tmp_path):
    first = writer(JsonlStore(tmp_path))
    assert first.record("t", unnamed(NUMBERS)) == Recorded(450, 0)
    with first.state() as state:
        assert state.transcript.head.seq == 3
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS


@pytest.mark.parametrize("append", [False, True])
def test_another_process_that_records_first_costs_nothing(tmp_path, append):
    one, other = writer(JsonlStore(tmp_path)), writer(JsonlStore(tmp_path))
    one.record("t", unnamed(["a", "b"]))
    other.record("elsewhere", unnamed(["x"]))
    assert one.record("t", unnamed(["c"] if append else ["a", "b", "c"]), append=append).turns == 1
    other.record("elsewhere", unnamed(["x", "y"]))
    assert contents_of(one) == ["a", "b", "c"]
    assert contents_of(other, "elsewhere") == ["x", "y"]


@pytest.mark.parametrize("append", [False, True])
def test_another_process_in_the_middle_of_a_long_delivery_costs_nothing(tmp_path, append):
    one = writer(Tripping(tmp_path, 3, WrongExpectedVersionError("somebody else was quicker", actual=3)))
    one.record("t", unnamed(["a", "b"]))
    assert one.record("t", unnamed(NUMBERS if append else ["a", "b", *NUMBERS]), append=append).turns == 450
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
    assert one.record("t", unnamed(["ok"])) == Recorded(1, 0)
    assert contents_of(one) == ["ok", "fine", "ok"]


def test_new_words_without_ids_are_recorded_whole_or_not_at_all_so_sending_them_again_doubles_none(tmp_path):
    one = writer(Tripping(tmp_path, 2, StoreError("the power went")))
    one.record("other", unnamed(["a"]))
    with pytest.raises(StoreError):
        one.record("t", unnamed(NUMBERS), append=True)
    assert one.record("t", unnamed(NUMBERS), append=True) == Recorded(450, 0)
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS
    with one.state() as state:
        assert state.transcript.head.seq == 2


# Turns that were erased


@pytest.mark.parametrize(
    ("said", "erased", "again", "standing"),
    [
        pytest.param(["aa", "bbb"], [1, 2], ["aa", "bbb"], [], id="the whole conversation"),
        pytest.param(["aa", "bbb"], [1, 2], ["aa", "bbb", "c", "d"], ["c", "d"], id="and what came after"),
        pytest.param(["aa", "bbb", "c"], [2], ["aa", "bbb", "c", "d"], ["aa", "c", "d"], id="one in the middle"),
        pytest.param(["aa", "bbb", "c"], [3], ["bbb", "c", "d"], ["aa", "bbb", "d"], id="the end, from the tail"),
        pytest.param(["aa", "bbb", "c"], [1], ["aa"], ["bbb", "c"], id="the first alone"),
        pytest.param(["aa", "bbb"], [2], ["bbb"], ["aa"], id="the last alone"),
        pytest.param(["aa", "bbb"], [1, 2], ["cccc", "ddddd"], ["cccc", "ddddd"], id="only what is new"),
        pytest.param(["aa", "bbb", "c"], [1], ["aa", "bbb", "x"], ["bbb", "x"], id="an edit behind it"),
    ],
)
@pytest.mark.parametrize("with_ids", [False, True])
def test_an_erased_turn_stays_out_when_it_is_sent_again(
    said: list[str], erased: list[int], again: list[str], standing: list[str], with_ids: bool
) -> None:
    known: dict[str, str] = {}

    def named(texts: list[str]) -> list[Kept]:
        return [
            Kept(role="user", content=text, id=known.setdefault(text, f"m{len(known)}") if with_ids else None)
            for text in texts
        ]

    conversation = after(named(said))
    conversation.erase(*erased)
    conversation.send(*named(again))
    wanted = ["bbb", "c", "x"] if with_ids and again == ["aa", "bbb", "x"] else standing
    assert conversation.standing == wanted
    conversation.send(*named(again))
    assert conversation.standing == wanted


def test_what_is_said_to_be_new_is_new_even_after_an_erasure() -> None:
    conversation = after([Kept(role="user", content="aa")])
    conversation.erase(1)
    assert conversation.send(Kept(role="user", content="bb"), append=True) == 1
    assert conversation.standing == ["bb"]


@given(st.lists(st.sampled_from(["", "a", "bb", "ccc"]), max_size=6), st.data())
def test_no_erased_turn_comes_back_with_its_whole_conversation(texts: list[str], data: st.DataObject) -> None:
    said = [Kept(role="user", content=f"{text}!") for text in texts]
    conversation = after(said)
    ordinals = data.draw(st.sets(st.sampled_from(range(1, len(texts) + 1)))) if texts else set()
    left = [turn.content for n, turn in enumerate(said, 1) if n not in ordinals]
    if len(texts) == 1 and not ordinals:
        return  # one alone is said again
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
    conversation, said = Conversation(), []
    withdrawn: set[int] = set()
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
    conversation, said, sent = Conversation(), 0, []
    withdrawn: set[str] = set()
    for step in steps:
        if step == "say":
            said += 1
            sent.append(str(said))
        elif said:
            n, told = step
            conversation.withdraw(n % said + 1)
            withdrawn.add(str(n % said + 1))
            sent = [text for text in sent if not (told and text == str(n % said + 1))]
        conversation.send(*[says(text) for text in sent])
        assert conversation.standing == [str(n) for n in range(1, said + 1) if str(n) not in withdrawn]
    assert len(conversation.thread.turns) == said


def test_another_text_in_the_place_of_what_was_taken_back_replaces_nothing() -> None:
    conversation = after([says("a", "m1"), says("b", "m2")])
    conversation.withdraw(2)
    assert receive(conversation.thread, [says("better", "m2")], AT).superseded == ()
    assert receive(conversation.thread, [says("better", "m1")], AT).superseded == (1,)


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
        one.record("t", named, append=True)
    assert one.record("t", named, append=True) == Recorded(50, 400)
    assert contents_of(writer(JsonlStore(tmp_path))) == NUMBERS
