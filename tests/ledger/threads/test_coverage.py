"""What is covered, parked and pending: a turn that stands is in exactly one of the three, and is learned from once."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples
from streams import AT, Streams, recorded, turn

from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.errors import ModelRejectedError, NoModelError, NotFoundError
from backstory.ledger.core.events import (
    Event,
    Redacted,
    TurnRange,
    TurnRecorded,
    TurnRestored,
    TurnSuperseded,
    UpdateFailed,
)
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.threads.coverage import Parked, is_quiet, last_answer, opening
from backstory.ledger.threads.due import retry_at
from backstory.ledger.threads.transcript import Thread
from backstory.memory import MemoryHandle
from backstory.operations import learning

BROKEN = "I would rather not."


# Ranges


def test_what_nothing_covers_is_pending_as_one_run():
    assert recorded(5).pending() == [(1, 5)]
    assert Streams().pending() == []


@pytest.mark.parametrize(
    ("covered", "pending"),
    [
        ([(1, 5)], []),
        ([(1, 2)], [(3, 5)]),
        ([(4, 5)], [(1, 3)]),
        ([(3, 3)], [(1, 2), (4, 5)]),
        ([(4, 5), (1, 2)], [(3, 3)]),
        ([(1, 3), (2, 4)], [(5, 5)]),
        ([(2, 4), (3, 3)], [(1, 1), (5, 5)]),
        ([(1, 1), (3, 3), (5, 5)], [(2, 2), (4, 4)]),
        ([(1, 99)], []),
    ],
)
def test_what_a_commit_covers_is_not_pending(covered, pending):
    streams = recorded(5)
    for first, last in covered:
        streams.cover(first, last)
    assert streams.pending() == pending


def test_a_thread_s_commits_cover_nothing_of_another():
    streams = recorded(2)
    streams.record(2, name="other")
    streams.cover(1, 2, name="other")
    streams.park(1, 2, name="other")
    assert streams.pending() == [(1, 2)]
    assert not streams.coverage.covers(streams.thread(), TurnRange(1, 2))


def test_an_update_without_turns_covers_nothing():
    streams = recorded(2)
    streams.commit(Cause(kind="extraction", thread="t"))
    streams.commit(Cause(kind="extraction", thread="t"), UpdateFailed("unavailable", "why"))
    assert streams.pending() == [(1, 2)]


def test_superseded_turns_wait_for_nothing():
    streams = recorded(3)
    streams.record(1, superseding=(1, 3))
    assert streams.pending() == [(2, 4)]
    streams.cover(2, 2)
    assert streams.pending() == [(4, 4)]


# Clear


def test_a_clear_covers_what_was_recorded_before_it_and_nothing_after():
    streams = recorded(3)
    streams.clear()
    assert streams.pending() == []
    streams.record(2)
    assert streams.pending() == [(4, 5)]
    assert streams.coverage.covers(streams.thread(), TurnRange(3, 5))
    assert not streams.coverage.covers(streams.thread(), TurnRange(4, 5))


def test_a_clear_covers_every_thread_up_to_its_own_moment():
    streams = recorded(2)
    streams.record(1, name="other")
    streams.record(1)
    streams.clear(pin=2)
    assert (streams.pending(), streams.pending("other")) == ([(3, 3)], [])


def test_an_older_clear_takes_nothing_back():
    streams = recorded(2)
    streams.record(2)
    streams.clear()
    streams.clear(pin=1)
    assert streams.pending() == []


def test_a_clear_covers_what_was_parked():
    streams = recorded(2)
    streams.park(1, 2)
    streams.clear()
    assert (streams.parked(), streams.pending()) == ([], [])


# Parked


def test_a_failed_update_parks_its_turns():
    streams = recorded(4)
    streams.park(1, 2, reason="unavailable", attempts=5)
    parked = Parked(TurnRange(1, 2), "unavailable", "why", 5, "2026-03-01T12:00:00.000000Z")
    assert streams.coverage.parked(streams.thread()) == [parked]
    assert streams.pending() == [(3, 4)]


def test_covering_ends_parking():
    streams = recorded(4)
    streams.park(1, 4)
    streams.cover(1, 4, kind="manual")
    assert (streams.parked(), streams.pending()) == ([], [])


def test_covering_a_part_leaves_the_rest_parked():
    streams = recorded(5)
    streams.park(1, 5)
    streams.cover(2, 3)
    assert (streams.parked(), streams.pending()) == ([(1, 1), (4, 5)], [])


def test_a_failure_parks_nothing_that_another_update_covered_meanwhile():
    # Two processes at one thread: what is parked with a covered turn in it could never be retried.
    streams = recorded(4)
    streams.cover(1, 2)
    streams.park(1, 4)
    assert streams.parked() == [(3, 4)]
    assert not streams.coverage.covers(streams.thread(), streams.coverage.parked(streams.thread())[0].turns)


def test_a_second_failure_takes_the_place_of_the_first_where_they_meet():
    streams = recorded(4)
    streams.park(1, 3, reason="reply")
    streams.park(3, 4, reason="unavailable")
    assert [(item.turns.first, item.turns.last, item.reason) for item in streams.coverage.parked(streams.thread())] == [
        (1, 2, "reply"),
        (3, 4, "unavailable"),
    ]


def test_a_parked_turn_that_no_longer_stands_waits_for_nobody():
    streams = recorded(2)
    streams.park(1, 2)
    streams.record(2, superseding=(1, 2))
    assert (streams.parked(), streams.pending()) == ([], [(3, 4)])


spans = st.tuples(st.integers(1, 12), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))
steps = st.one_of(
    st.tuples(st.just("record"), st.integers(1, 4), st.lists(st.integers(1, 12), max_size=3)),
    st.tuples(st.just("cover"), spans),
    st.tuples(st.just("park"), spans),
    st.tuples(st.just("clear"), st.integers(0, 6)),
)


@settings(max_examples=examples(2))
@given(st.lists(steps, max_size=14))
def test_every_standing_turn_is_covered_parked_or_pending_and_only_one_of_them(story):
    streams = Streams()
    covered: set[int] = set()
    parked: dict[int, str] = {}
    gone: set[int] = set()
    recorded_by: dict[int, int] = {}
    for number, step in enumerate(story):
        count = len(streams.thread().turns)
        if step[0] == "record":
            superseding = tuple(n for n in step[2] if n <= count)
            streams.record(step[1], superseding=superseding)
            gone |= set(superseding)
            recorded_by |= dict.fromkeys(range(count + 1, count + step[1] + 1), streams.transcript.head.seq)
        elif step[0] == "clear":
            pin = min(step[1], streams.transcript.head.seq)
            streams.clear(pin)
            covered |= {n for n, seq in recorded_by.items() if seq <= pin}
        else:
            first, last = step[1][0], min(step[1][1], count)
            if first > last:
                continue
            turns = set(range(first, last + 1))
            if step[0] == "cover":
                streams.cover(first, last)
                covered |= turns
            else:
                streams.park(first, last, reason=str(number))
                parked |= dict.fromkeys(turns - covered, str(number))
        thread = streams.thread()
        standing = {n for n in range(1, len(thread.turns) + 1) if n not in gone}
        runs = streams.coverage.pending(thread)
        pending = [n for run in runs for n in range(run.first, run.last + 1) if n in standing]
        items = streams.coverage.parked(thread)
        waiting = {
            n: item.reason for item in items for n in range(item.turns.first, item.turns.last + 1) if n in standing
        }
        assert pending == sorted(standing - covered - set(parked))
        assert waiting == {n: reason for n, reason in parked.items() if n in standing and n not in covered}
        assert sum(len(standing & set(range(i.turns.first, i.turns.last + 1))) for i in items) == len(waiting)
        for run in [*runs, *(item.turns for item in items)]:
            assert {run.first, run.last} <= standing
            assert not streams.coverage.covers(thread, run)
        for n in range(1, len(thread.turns) + 1):
            assert streams.coverage.covers(thread, TurnRange(n, n)) == (n in covered)


@pytest.mark.parametrize(("seen", "pending"), [(1, [(2, 2)]), (2, [(2, 2)]), (3, []), (4, [])])
def test_a_restored_turn_is_covered_by_an_update_that_saw_it_restored_and_by_no_earlier_one(seen, pending):
    streams = recorded(2)
    streams.cover(1, 2)
    streams.transcript.apply(Commit(2, AT, Cause(kind="withdrawal", thread="t"), (TurnSuperseded(2),), "", "2"))
    streams.transcript.apply(Commit(3, AT, Cause(kind="restore", thread="t"), (TurnRestored(2, again=True),), "", "3"))
    assert streams.pending() == [(2, 2)]
    pin = Head(seen, str(seen))
    streams.commit(Cause(kind="extraction", thread="t", turns=TurnRange(2, 2), transcript=pin))
    assert streams.pending() == pending


# Outages


@pytest.mark.parametrize(("attempts", "minutes"), [(1, 1), (5, 5), (360, 360), (361, 360), (100_000, 360)])
def test_an_outage_is_tried_again_after_as_many_minutes_as_attempts_and_six_hours_at_most(attempts, minutes):
    streams = recorded(2)
    streams.park(1, 2, reason="unavailable", attempts=attempts)
    failed = datetime.fromisoformat(AT)
    assert retry_at(streams.coverage, streams.thread(), failed) == failed + timedelta(minutes=minutes)


# Quiet


def spoken(*lines: str) -> Thread:
    """A thread of lines such as `u: hello` and `a: hi`."""
    thread = Thread("t")
    for n, line in enumerate(lines, 1):
        role, _, content = line.partition(": ")
        thread.turns.append(turn(n, {"u": "user", "a": "assistant"}[role], content))
        thread.seqs.append(n)
        thread.recorded_at.append(AT)
    return thread


@pytest.mark.parametrize(
    ("lines", "quiet"),
    [
        (["u: I live in Oslo", "a: Nice"], False),
        (["u: I live in Oslo"], True),
        (["a: Welcome!"], True),
        (["a: Where do you live?", "u: In Oslo"], True),
        (["a: Where do you live?", "u: In Oslo", "a: Nice"], False),
        (["u: ok", "a: Anything else?"], True),
        (["u: 谢谢", "a: 不客气"], True),
        (["u: ok", "u: I live in Oslo", "a: Nice"], False),
        (["u: ok", "a: Where?", "u: thanks", "a: sure"], True),
        (["u: I live in Oslo", "u: thanks", "a: Nice"], False),
        (["u: one", "u: two", "u: three"], True),
        ([], True),
    ],
)
def test_words_are_due_alone_only_with_an_answer_and_beyond_an_acknowledgement(lines, quiet):
    thread = spoken(*lines)
    assert is_quiet(thread, TurnRange(1, len(lines))) is quiet


def test_superseded_words_make_nothing_due():
    thread = spoken("u: I live in Oslo", "u: ok", "a: Nice")
    thread.superseded = {1}
    assert is_quiet(thread, TurnRange(1, 3))


# Through the public surface


def pending_of(memory: MemoryHandle) -> dict[str, int]:
    return {thread.thread: thread.turns for thread in memory.status().pending}


def parked_of(memory: MemoryHandle) -> list[tuple[str, int, str, int]]:
    return [(p.thread, p.turns, p.reason, p.attempts) for p in memory.status().parked]


def covered_turns(memory: MemoryHandle) -> list[tuple[str, int]]:
    """Every turn that a commit covers, as often as it is covered."""
    return [
        (str(entry.cause.thread), n)
        for entry in memory.log()
        if entry.cause.turns is not None
        for n in range(entry.cause.turns.first, entry.cause.turns.last + 1)
    ]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_an_acknowledgement_waits_and_goes_along_with_the_next_update(tmp_path):
    model = ScriptedModel(reply("Likes tea"), reply("Likes milk"))
    memory = open_home(tmp_path, model).memory("ada")
    memory.record("t", exchange("tea"))
    assert memory.extract().updates == 1
    memory.record("t", [{"role": "user", "content": "ok, thanks"}, {"role": "ai", "content": "You are welcome"}])
    assert memory.extract().updates == 0
    assert pending_of(memory) == {"t": 2}
    assert [thread.due_in for thread in memory.status().pending] == [None]
    memory.record("t", exchange("milk"))
    assert memory.extract().updates == 1
    assert "ok, thanks" in model.prompts[1].user
    assert pending_of(memory) == {}
    assert sorted(covered_turns(memory)) == [("t", n) for n in range(1, 7)]


def test_a_question_is_learned_from_on_request_and_its_answer_goes_along_with_the_next_update(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(reply("Likes tea"), reply("Likes milk"))).memory("ada")
    asked, answered = exchange("tea")
    memory.record("t", [asked])
    assert memory.extract().updates == 1
    memory.record("t", [asked, answered])
    assert memory.extract().updates == 0
    assert pending_of(memory) == {"t": 1}
    memory.record("t", exchange("milk"))
    assert memory.extract().updates == 1
    assert sorted(covered_turns(memory)) == [("t", n) for n in range(1, 5)]


def test_a_recorded_reply_answers_for_a_question_too(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record("t", exchange("tea")[:1])
    memory.record("u", [{"role": "user", "content": "ok"}])
    skipped: list[str] = []
    replies = [RecordedReply(thread, reply("Likes tea")) for thread in ("t", "t", "u")]
    assert memory.extract(replies, on_skipped=skipped.append).updates == 1
    assert covered_turns(memory) == [("t", 1)]
    assert len(skipped) == 2


def test_a_parked_question_is_learned_from_by_a_retry(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(BROKEN, reply("Likes tea"))).memory("ada")
    memory.record("t", exchange("tea")[:1])
    assert memory.extract().failed == 1
    assert memory.retry().failed == 0
    assert covered_turns(memory) == [("t", 1)]


def test_a_broken_reply_parks_and_a_retry_learns(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(BROKEN, BROKEN, reply("Likes tea"))).memory("ada")
    memory.record("t", exchange("tea"))
    result = memory.extract()
    assert (result.updates, result.failed) == (1, 1)
    assert parked_of(memory) == [("t", 2, "reply", 1)]
    assert pending_of(memory) == {}
    # Parked turns wait for a person.
    assert memory.extract().updates == 0
    assert memory.retry().failed == 1
    assert parked_of(memory) == [("t", 2, "reply", 2)]
    again = memory.retry("t")
    assert (again.updates, again.failed) == (1, 0)
    assert parked_of(memory) == []
    assert [fact.content for fact in memory.facts()] == ["Likes tea"]
    assert covered_turns(memory) == [("t", 1), ("t", 2)]
    assert memory.retry().updates == 0


def test_new_turns_are_learned_from_beside_parked_ones(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(BROKEN, reply("Likes milk"), reply("Likes tea"))).memory("ada")
    memory.record("t", exchange("tea"))
    memory.extract()
    memory.record("t", exchange("milk"))
    assert memory.extract().failed == 0
    assert parked_of(memory) == [("t", 2, "reply", 1)]
    assert [fact.content for fact in memory.facts()] == ["Likes milk"]
    assert memory.retry().failed == 0
    assert sorted(covered_turns(memory)) == [("t", n) for n in (1, 2, 3, 4)]


def test_a_retry_touches_only_its_thread_and_takes_recorded_replies(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(BROKEN, BROKEN)).memory("ada")
    memory.record("t1", exchange("tea"))
    memory.record("t2", exchange("milk"))
    assert memory.extract().failed == 2
    assert memory.retry("t1", replies=[RecordedReply("t2", reply("x")), RecordedReply("t1", reply("y"))]).updates == 1
    assert [fact.content for fact in memory.facts()] == ["y"]
    assert parked_of(memory) == [("t2", 2, "reply", 1)]
    assert memory.retry(replies=[RecordedReply("t2", reply("x"))]).failed == 0
    assert parked_of(memory) == []


def test_a_discard_covers_what_was_parked_and_nothing_else(tmp_path):
    model = ScriptedModel(BROKEN, reply("Likes milk"))
    memory = open_home(tmp_path, model).memory("ada")
    memory.record("t", exchange("tea"))
    memory.extract()
    memory.record("t", exchange("milk"))
    done = memory.discard("t")
    assert (done.updates, done.failed) == (1, 0)
    assert parked_of(memory) == []
    assert pending_of(memory) == {"t": 2}
    (last,) = memory.log(limit=1)
    assert (last.cause.kind, last.cause.action) == ("manual", "discard")
    memory.extract()
    assert "tea" not in model.prompts[1].user
    assert sorted(covered_turns(memory)) == [("t", n) for n in (1, 2, 3, 4)]


def test_what_was_learned_from_while_it_was_being_given_up_is_not_covered_twice(tmp_path, monkeypatch):
    memory = open_home(tmp_path).memory(scope="global")
    memory.record("t", exchange("tea", 1))
    memory.extract([RecordedReply("t", "no JSON")])
    parked = learning._parked(memory._services.writer, "t")
    memory.retry(replies=[RecordedReply("t", reply("Ada likes tea"))])
    monkeypatch.setattr(learning, "_parked", lambda *_: parked)
    memory.discard("t")
    assert [entry.cause.turns is not None for entry in memory.log()] == [False, True, False, False]
    assert memory.verify().problems == ()


def test_there_has_to_be_something_to_discard_or_retry(tmp_path):
    memory = open_home(tmp_path, ScriptedModel()).memory("ada")
    memory.record("t", exchange("tea"))
    with pytest.raises(NotFoundError, match="parked"):
        memory.discard("t")
    for verb in (memory.discard, memory.retry):
        with pytest.raises(NotFoundError, match="nobody"):
            verb("nobody")
    assert memory.retry("t").updates == 0
    assert memory.status().seq == 0


def test_without_a_model_nothing_is_tried_and_nothing_is_lost(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record("t", exchange("tea"))
    with pytest.raises(NoModelError):
        memory.extract()
    assert pending_of(memory) == {"t": 2}
    assert memory.status().seq == 0
    assert memory.extract([RecordedReply("t", reply("Likes tea"))]).updates == 1
    assert pending_of(memory) == {}


def test_a_clear_leaves_nothing_to_learn_of_what_was_said_before(tmp_path):
    model = ScriptedModel(BROKEN, reply("Likes milk"))
    memory = open_home(tmp_path, model).memory("ada")
    memory.record("t1", exchange("tea"))
    memory.extract()
    memory.record("t2", exchange("coffee"))
    memory.clear()
    assert (pending_of(memory), parked_of(memory)) == ({}, [])
    assert memory.extract().updates == memory.retry().updates == 0
    memory.record("t1", exchange("milk"))
    assert memory.extract().updates == 1
    assert "tea" not in model.prompts[1].user
    assert [fact.content for fact in memory.facts()] == ["Likes milk"]


def test_an_edit_of_parked_words_is_learned_from_in_their_place(tmp_path):
    model = ScriptedModel(BROKEN, reply("Likes milk"))
    memory = open_home(tmp_path, model).memory("ada")
    memory.record("t", exchange("tea", 1))
    memory.extract()
    memory.record("t", exchange("milk", 1))
    assert parked_of(memory) == []
    assert pending_of(memory) == {"t": 2}
    assert memory.retry().updates == 0
    assert memory.extract().updates == 1
    assert "tea" not in model.prompts[1].user


def test_a_recorded_reply_answers_all_that_is_pending_in_its_thread(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    for topic in ("tea", "milk"):
        memory.record("t", exchange(topic))
    skipped: list[str] = []
    replies = [RecordedReply("t", reply("a")), RecordedReply("t", reply("b")), RecordedReply("nowhere", reply("c"))]
    assert memory.extract(replies, on_skipped=skipped.append).updates == 1
    assert covered_turns(memory) == [("t", n) for n in (1, 2, 3, 4)]
    assert len(skipped) == 2
    assert "nowhere" in skipped[1]


@pytest.mark.parametrize("error", [ModelRejectedError("bad key"), None])
def test_what_is_pending_survives_a_restart(tmp_path, clock, error):
    with open_home(tmp_path, ScriptedModel(error or BROKEN, reply("Likes tea")), clock=clock) as backstory:
        memory = backstory.memory("ada")
        memory.record("t1", exchange("tea"))
        memory.extract()
        memory.record("t2", exchange("milk"))
        before = memory.status()
    with open_home(tmp_path, ScriptedModel(), clock=clock) as backstory:
        status = backstory.memory("ada").status()
        assert (status.pending, status.parked) == (before.pending, before.parked)
        assert [thread.thread for thread in status.pending] == ["t2"]
        assert [thread.thread for thread in status.parked] == ["t1"]


def test_counts_of_threads_and_status_agree(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(reply("x"), repeat=True)).memory("ada")
    for number, thread in itertools.product(range(3), ("t1", "t2")):
        memory.record(thread, exchange(f"topic {number}", number))
    assert {summary.thread: summary.pending for summary in memory.threads()} == pending_of(memory) == {"t1": 6, "t2": 6}
    memory.extract(thread="t1")
    assert {summary.thread: summary.pending for summary in memory.threads()} == {"t1": 0, "t2": 6}
    assert pending_of(memory) == {"t2": 6}


# Over any history


STEP = st.one_of(
    st.tuples(st.just("record"), st.integers(1, 4), st.sets(st.integers(1, 12), max_size=3)),
    st.tuples(st.sampled_from(["cover", "park"]), st.integers(1, 14), st.integers(0, 4)),
    st.tuples(st.just("clear"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("erase"), st.integers(1, 14), st.just(0)),
)


@given(st.lists(STEP, max_size=25))
def test_what_is_told_after_each_step_is_what_a_first_look_tells(steps):
    """Coverage remembers what it has passed over; here each turn is looked at anew, one by one."""
    streams = Streams()
    covered: set[int] = set()
    parked: set[int] = set()
    for kind, first, more in steps:
        count = len(streams.thread().turns)
        some = set(range(first, first + more + 1)) if isinstance(more, int) else set()
        if kind == "record":
            streams.record(first, superseding=tuple(n for n in more if n <= count))
        elif kind == "cover":
            streams.cover(min(some), max(some))
            covered |= some
            parked -= some
        elif kind == "park":
            streams.park(min(some), max(some))
            parked |= some - covered
        elif kind == "clear":
            pin = max(0, streams.transcript.head.seq - first)
            streams.clear(pin)
            covered |= {n for n, seq in enumerate(streams.thread().seqs, 1) if seq <= pin}
        else:
            streams.thread().redact(Redacted("transcript", 1, 0, "turn", thread="t", n=first, turn=f"t{first}", size=5))
        thread = streams.thread()
        standing = {turn.n for turn in thread.standing()}
        assert spread(streams.pending()) & standing == standing - covered - parked
        assert spread(streams.parked()) & standing == standing & parked - covered
        assert all({a, b} <= standing for a, b in [*streams.pending(), *streams.parked()])
        assert not spread(streams.pending()) & (covered | parked)
        for n in range(1, len(thread.turns) + 1):
            assert streams.coverage.covers(thread, TurnRange(n, n)) == (n in covered)
        assert streams.coverage.highest("t") <= max(covered | parked, default=0)


def spread(runs: list[tuple[int, int]]) -> set[int]:
    return {n for first, last in runs for n in range(first, last + 1)}


SAID = st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from(["ok", "I like tea."]))


@given(st.lists(st.tuples(st.lists(SAID, max_size=4), st.sets(st.integers(1, 20), max_size=2)), max_size=8), st.data())
def test_what_opens_a_run_is_told_alike_however_often_it_is_asked(steps, data):
    streams = Streams()
    for words, superseded in steps:
        first = len(streams.thread().turns) + 1
        events: list[Event] = [TurnSuperseded(n) for n in superseded if n < first]
        events += [TurnRecorded(turn(n, *said)) for n, said in enumerate(words, first)]
        cause = Cause(kind="record", thread="t", turns=TurnRange(first, first + len(words) - 1))
        seq = streams.transcript.head.seq + 1
        streams.transcript.apply(Commit(seq, AT, cause, tuple(events), "", str(seq)))
        thread = streams.thread()
        begin = data.draw(st.integers(1, 6))
        run = TurnRange(begin, begin + data.draw(st.integers(0, len(thread.turns) + 3)))
        there = thread.standing(run.first, run.last)
        says = [t.n for t in there if t.role == "user" and t.content != "ok"]
        answers = [t.n for t in there if t.role != "user" and says and t.n > says[0]]
        assert opening(thread, run) == (says[0] if says else None)
        assert last_answer(thread, run) == max((t.n for t in there if t.role != "user"), default=None)
        assert is_quiet(thread, run) == (not answers)
