"""When it is learned from (rows D6 and D7): debounce, longest wait, workers, flush, close; and what outlives it all."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, Gate, ScriptedModel, Step, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.errors import (
    ConfigError,
    CorruptLogError,
    ModelRejectedError,
    ModelUnavailableError,
    StoreError,
)
from backstory.ledger.core.events import Turn, TurnRange
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.model import Answer, Prompt
from backstory.ledger.extraction.signals import Signals, load_signals
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.store.jsonl import JsonlStore
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import keep, read_message
from backstory.ledger.threads.due import Timing, answered
from backstory.memory import MemoryHandle

ACK = [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "Anything else?"}]


class Moody(JsonlStore):
    """A store whose ledger raises what it is told to, at every append, until it is told nothing.

    Of the threads in `elsewhere` it says that another process is at them; `tries` counts who asked for which.
    """

    mood: BaseException | None = None

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.refused = threading.Event()
        self.elsewhere: set[str] = set()
        self.tries: Counter[str] = Counter()

    @contextmanager
    def lease(self, stream: str, name: str) -> Iterator[bool]:
        self.tries[name] += 1
        if name in self.elsewhere:
            yield False
            return
        with super().lease(stream, name) as mine:
            yield mine

    def append_all(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        if self.mood is not None and stream.endswith("ledger"):
            self.refused.set()
            raise self.mood
        super().append_all(stream, lines, expected)


class Shop:
    """A producer over one scope, on a fake clock; without workers unless it is told to start them."""

    def __init__(
        self,
        home: Path,
        *script: Step,
        clock: FakeClock | None = None,
        workers: int = 2,
        signals: Signals | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.store = Moody(home)
        self.writer = Writer(self.store, Scope("ada"), clock=self.clock, salts=CountingSalts())
        self.model = ScriptedModel(*(script or (reply(),)), repeat=True)
        self.updater = Updater(clock=self.clock, min_gap=0, max_attempts=2)
        self.producer = Producer(
            self.updater, self.model, timing=Timing(30, 300), clock=self.clock, workers=workers, signals=signals
        )
        self.producer.watch(self.writer)

    def say(
        self, thread: str = "t", messages: list[dict[str, object]] | None = None, *, immediate: bool = False
    ) -> None:
        read = [read_message(message) for message in messages or exchange("tea")]
        self.writer.record(thread, keep(read), mode="append")
        self.producer.notice(self.writer, thread, immediate=immediate)

    def after(self, seconds: float) -> int:
        """Let time pass and run what is due."""
        self.clock.advance(seconds)
        return self.producer.run_due()

    def pending(self, thread: str = "t") -> int:
        with self.writer.state() as state:
            known = state.transcript.threads[thread]
            runs = state.coverage.pending(known)
        return sum(len(known.standing(run.first, run.last)) for run in runs)

    def parked(self, thread: str = "t") -> list[tuple[str, int]]:
        with self.writer.state() as state:
            return [(item.reason, item.attempts) for item in state.coverage.parked(state.transcript.threads[thread])]

    def asked(self) -> list[str]:
        """The threads that the model was asked about, in order."""
        return [prompt.user.partition('thread="')[2].partition('"')[0] for prompt in self.model.prompts]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


Open = Callable[..., Shop]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Open]:
    """Open shops with workers, and let none outlive its test."""
    shops: list[Shop] = []

    def start(*script: Step, **settings: object) -> Shop:
        shop = Shop(tmp_path, *script, **settings)  # type: ignore[arg-type]
        shop.producer.start()
        shops.append(shop)
        return shop

    yield start
    for shop in shops:
        shop.producer.close(0)
        for worker in shop.producer._workers:
            worker.join(PATIENCE)
            assert not worker.is_alive()


# Debounce


def test_a_thread_is_due_once_it_has_been_quiet_for_the_debounce(shop):
    shop.say()
    assert shop.after(29.9) == 0
    assert shop.after(0.2) == 1
    assert shop.pending() == 0
    assert shop.after(3600) == 0
    assert len(shop.model.prompts) == 1


def test_each_new_word_puts_the_update_off(shop):
    for _ in range(5):
        shop.say()
        assert shop.after(20) == 0
    assert shop.after(10) == 1
    assert len(shop.model.prompts) == 1
    assert shop.pending() == 0


def test_steady_traffic_puts_it_off_no_longer_than_the_longest_wait(shop):
    waited = 0
    while shop.after(0) == 0:
        shop.say()
        shop.clock.advance(20)
        waited += 20
        assert waited <= 320
    assert waited == 300
    assert shop.pending() == 0


def test_after_an_update_the_wait_begins_anew(shop):
    for _ in range(15):
        shop.say()
        shop.clock.advance(20)
    assert shop.after(0) == 1
    shop.say()
    assert shop.after(29) == 0
    assert shop.after(1) == 1


def test_each_thread_has_a_debounce_of_its_own(shop):
    shop.say("busy")
    shop.say("calm")
    for _ in range(2):
        shop.clock.advance(20)
        shop.say("busy")
        shop.producer.run_due()
    assert shop.asked() == ["calm"]


def test_the_longest_overdue_thread_comes_first(shop):
    for thread in ("c", "a", "b"):
        shop.say(thread)
        shop.clock.advance(1)
    assert shop.after(60) == 3
    assert shop.asked() == ["c", "a", "b"]


def test_an_acknowledgement_is_never_due(shop):
    shop.say(messages=ACK)
    assert shop.after(10_000) == 0
    assert shop.pending() == 2


def test_words_that_nobody_has_answered_are_never_due(shop):
    shop.say(messages=exchange("tea")[:1])
    assert shop.after(10_000) == 0
    shop.say(messages=exchange("tea")[1:])
    assert shop.after(30) == 1


def test_an_old_acknowledgement_does_not_cost_new_words_their_debounce(shop):
    shop.say(messages=ACK)
    shop.clock.advance(86_400)
    shop.say()
    assert shop.after(29) == 0
    shop.say()
    assert shop.after(29) == 0
    assert shop.after(1) == 1
    # It goes along all the same.
    assert "Anything else?" in shop.model.prompts[0].user


def test_a_question_that_waited_for_its_answer_counts_from_when_it_was_asked(shop):
    shop.say(messages=exchange("tea")[:1])
    shop.clock.advance(290)
    shop.say(messages=exchange("tea")[1:])
    assert shop.after(9) == 0
    assert shop.after(1) == 1


def test_at_once_skips_the_debounce(shop):
    shop.say(immediate=True)
    assert shop.after(0) == 1
    assert shop.pending() == 0


def test_what_was_due_at_once_stays_so_when_more_is_said(shop):
    shop.say(immediate=True)
    shop.say()
    assert shop.after(0) == 1
    assert shop.pending() == 0


def test_what_is_overdue_is_not_put_off_again(shop):
    shop.say()
    shop.clock.advance(31)
    shop.say()
    assert shop.after(0) == 1


def test_at_once_makes_nothing_of_an_acknowledgement(shop):
    shop.say(messages=ACK, immediate=True)
    assert shop.after(10_000) == 0


def test_the_depth_counts_what_is_due_and_waiting(shop):
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.producer.depth() == 0
    shop.clock.advance(30)
    assert shop.producer.depth() == 3
    shop.say("d", immediate=True)
    assert shop.producer.depth() == 4
    shop.producer.run_due()
    assert shop.producer.depth() == 0


def test_an_edit_that_leaves_nothing_to_learn_is_forgotten(shop):
    shop.say(messages=exchange("tea", 1))
    shop.say(messages=[{**message, "id": exchange("tea", 1)[i]["id"]} for i, message in enumerate(ACK)])
    assert shop.after(10_000) == 0


# Who goes first


def told(topic: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": topic}, {"role": "assistant", "content": "I see."}]


def test_corrections_go_first_then_other_signals_then_the_rest(shop):
    for thread, topic in (
        ("plain", "The rain has stopped."),
        ("goal", "My goal is to run a marathon."),
        ("wrong", "That's wrong, use ruff instead."),
        ("decision", "We decided on Postgres."),
        ("错", "不对，应该是三点。"),
        ("other", "The rain is back."),
    ):
        shop.say(thread, told(topic))
        shop.clock.advance(1)
    assert shop.after(30) == 6
    assert shop.asked() == ["wrong", "错", "goal", "decision", "plain", "other"]
    assert shop.producer._judgements == {}


def test_workers_take_corrections_first_too(started):
    gate = Gate(reply())
    shop = started(gate, reply(), workers=1)
    shop.say("first", immediate=True)
    assert gate.entered.wait(PATIENCE)
    shop.say("plain", told("The rain has stopped."), immediate=True)
    shop.say("wrong", told("No, I meant Bergen."), immediate=True)
    gate.opened.set()
    assert shop.producer.flush(PATIENCE) is True
    assert shop.asked() == ["first", "wrong", "plain"]


def test_what_has_been_due_for_the_longest_wait_is_overtaken_no_more(shop):
    shop.say("plain", told("The rain has stopped."))
    shop.clock.advance(30 + 299)
    shop.say("wrong", told("That's wrong."), immediate=True)
    assert shop.producer._take(()) == (shop.writer.scope, "wrong")
    shop.clock.advance(1)
    shop.say("late", told("That's wrong."), immediate=True)
    assert shop.producer._take(()) == (shop.writer.scope, "plain")


def test_nothing_starves_under_a_stream_of_corrections(tmp_path):
    def think(prompt: Prompt) -> str:
        shop.clock.advance(20)
        if 'thread="plain"' not in prompt.user and len(shop.model.prompts) < 100:
            shop.say(f"wrong {len(shop.model.prompts)}", told("That's wrong."), immediate=True)
        return reply()

    shop = Shop(tmp_path, think)
    shop.say("plain", told("The rain has stopped."), immediate=True)
    shop.say("wrong", told("That's wrong."), immediate=True)
    shop.producer.run_due()
    assert shop.asked().index("plain") == 300 // 20


def test_a_correction_said_while_its_thread_waits_lets_it_go_first(shop):
    for thread in ("a", "b", "c"):
        shop.say(thread, told("The rain has stopped."))
    shop.clock.advance(30)
    # All are looked at before the first is taken.
    assert shop.producer._take(()) == (shop.writer.scope, "a")
    shop.say("c", told("That's wrong."))
    assert shop.producer.run_due() == 2
    assert shop.asked() == ["c", "b"]


def test_a_correction_that_is_learned_from_counts_no_more(shop):
    shop.say("z", told("That's wrong."))
    assert shop.after(30) == 1
    shop.say("a", told("The rain has stopped."))
    shop.clock.advance(1)
    shop.say("z", told("The rain is back."))
    assert shop.after(30) == 2
    assert shop.asked() == ["z", "a", "z"]


def test_a_correction_waits_over_a_restart_and_goes_first(tmp_path):
    first = Shop(tmp_path)
    first.say("plain", told("The rain has stopped."))
    first.clock.advance(1)
    first.say("wrong", told("That's wrong."))
    first.clock.advance(60)
    second = Shop(tmp_path, clock=first.clock)
    assert second.producer.run_due() == 2
    assert second.asked() == ["wrong", "plain"]


class Watched(Signals):
    """The packaged signals, and how often they were looked for."""

    def __init__(self) -> None:
        super().__init__(load_signals()._rules)
        self.looks = 0

    def seen_in(self, turns: Sequence[Turn]) -> tuple[str, ...]:
        self.looks += 1
        return super().seen_in(turns)


def test_signals_cost_nothing_until_several_threads_are_due(tmp_path):
    signals = Watched()
    shop = Shop(tmp_path, signals=signals)
    for thread in ("a", "b", "c"):
        shop.say(thread)
        shop.say(thread)
        shop.clock.advance(10)
    assert [shop.after(seconds) for seconds in (0, 10, 10)] == [1, 1, 1]
    assert signals.looks == 0
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.after(30) == 3
    assert signals.looks == 3


def test_a_thread_that_cannot_be_looked_at_stops_no_other(shop, monkeypatch, caplog):
    def broken(**_: object) -> None:
        raise CorruptLogError("bad", kind="altered", stream="s", line=1, byte=0)

    shop.say("a")
    shop.say("b")
    shop.clock.advance(30)
    monkeypatch.setattr(shop.writer, "state", broken)
    with caplog.at_level(logging.WARNING):
        assert shop.producer.run_due() == 2
    assert caplog.text.count("will be tried again: bad") == 2
    monkeypatch.undo()
    assert shop.after(60) == 2


# Restart


def test_a_restart_forgets_nothing_and_loses_no_time(tmp_path):
    first = Shop(tmp_path)
    first.say("early")
    first.clock.advance(20)
    first.say("late")
    second = Shop(tmp_path, clock=first.clock)
    assert second.after(9) == 0
    assert second.after(1) == 1
    assert second.asked() == ["early"]
    assert second.after(19) == 0
    assert second.after(1) == 1
    assert second.asked() == ["early", "late"]


def test_what_fell_due_while_nobody_was_there_is_run_at_once(tmp_path):
    first = Shop(tmp_path)
    first.say()
    first.clock.advance(3600)
    second = Shop(tmp_path, clock=first.clock)
    assert second.producer.depth() == 1
    assert second.producer.run_due() == 1


def test_what_another_process_has_learned_from_is_not_asked_about_again(tmp_path):
    one = Shop(tmp_path)
    other = Shop(tmp_path, clock=one.clock)
    one.say()
    other.producer.notice(other.writer, "t")
    assert one.after(30) == 1
    assert other.producer.run_due() == 1
    assert other.model.prompts == []


def test_parked_turns_wait_over_a_restart_and_new_ones_do_not(tmp_path):
    first = Shop(tmp_path, ModelRejectedError("no key"))
    first.say()
    assert first.after(30) == 1
    assert first.parked() == [("rejected", 1)]
    second = Shop(tmp_path, clock=first.clock)
    assert second.after(10_000) == 0
    second.say()
    assert second.after(30) == 1
    assert second.parked() == [("rejected", 1)]
    assert second.pending() == 0


# Faults


def test_a_disk_that_refuses_is_tried_again_a_minute_later(shop, caplog):
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    with caplog.at_level(logging.WARNING):
        assert shop.after(30) == 1
    assert "the disk is full" in caplog.text
    assert shop.pending() == 2
    assert shop.after(59) == 0
    shop.store.mood = None
    assert shop.after(1) == 1
    assert shop.pending() == 0


def test_the_minute_counts_from_the_fault_however_long_the_model_took(tmp_path):
    def think(prompt: Prompt) -> str:
        shop.clock.advance(120)
        return reply("Likes tea")

    shop = Shop(tmp_path, think)
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    assert shop.after(30) == 1
    assert shop.after(59) == 0
    assert shop.after(1) == 1


def test_a_fault_nobody_thought_of_leaves_the_turns_pending(shop, caplog):
    shop.say()
    shop.store.mood = ZeroDivisionError("who would have thought")
    with caplog.at_level(logging.ERROR):
        assert shop.after(30) == 1
    assert "who would have thought" in caplog.text
    assert shop.pending() == 2
    shop.store.mood = None
    assert shop.after(60) == 1
    assert shop.pending() == 0


def test_a_model_that_fails_parks_its_turns_and_is_left_alone(tmp_path):
    shop = Shop(tmp_path, ModelRejectedError("no such model"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("rejected", 1)]
    assert shop.after(100_000) == 0
    assert len(shop.model.prompts) == 1


def test_what_an_outage_has_parked_is_learned_from_once_the_model_is_back(tmp_path):
    down = ModelUnavailableError("connection refused")
    shop = Shop(tmp_path, *[down] * 6, reply("Likes tea"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("unavailable", 2)]
    # As many minutes later as it was tried.
    assert shop.after(119) == 0
    assert shop.after(1) == 1
    assert shop.parked() == [("unavailable", 4)]
    assert shop.after(239) == 0
    assert shop.after(1) == 1
    assert shop.parked() == [("unavailable", 6)]
    assert shop.after(360) == 1
    assert shop.parked() == []
    assert shop.pending() == 0
    assert [fact.content for fact in shop.writer.memory().facts.values()] == ["Likes tea"]
    assert shop.after(100_000) == 0
    assert len(shop.model.prompts) == 7


def test_an_hour_without_a_model_loses_no_conversation_and_learns_from_each_once(tmp_path):
    shop = Shop(tmp_path)
    back = shop.clock.now() + timedelta(hours=1)

    def think(prompt: Prompt) -> str:
        if shop.clock.now() < back:
            raise ModelUnavailableError("connection refused")
        return reply(f"Knows {prompt.user.partition('thread=')[2][:4]}")

    shop.model = ScriptedModel(think, repeat=True)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300), clock=shop.clock)
    threads = [f"t{number}" for number in range(6)]
    for thread in threads:
        shop.say(thread)
        shop.after(600)
    for _ in range(120):
        shop.after(60)
    assert [shop.parked(thread) for thread in threads] == [[]] * 6
    assert [shop.pending(thread) for thread in threads] == [0] * 6
    learned = [commit for commit in read_commits(shop.store, shop.writer.ledger) if commit.cause.turns is not None]
    assert sorted(commit.cause.thread or "" for commit in learned) == threads


def test_an_outage_goes_on_over_a_restart(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("connection refused"))
    shop.say()
    shop.after(30)
    again = Shop(tmp_path, reply("Likes tea"), clock=shop.clock)
    assert again.after(119) == 0
    assert again.after(1) == 1
    assert (again.parked(), again.pending()) == ([], 0)


def test_a_flush_does_not_try_again_what_an_outage_has_parked(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("connection refused"))
    shop.say()
    shop.after(30)
    assert shop.producer.flush(0)
    assert len(shop.model.prompts) == 2
    assert shop.after(120) == 1


def test_a_clock_set_back_in_an_outage_puts_nothing_off_for_long(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("busy"), ModelUnavailableError("busy"), reply("Likes tea"))
    shop.say()
    shop.after(30)
    shop.clock.advance(-86_400)
    assert [shop.after(30) for _ in range(8)].count(1) >= 1
    assert shop.parked() == []


def test_words_that_may_still_be_answered_wait_for_their_answer(shop):
    shop.say(messages=exchange("tea"))
    shop.say(messages=[{"role": "user", "content": "I also like rain, by the way"}])
    assert shop.after(30) == 1
    assert shop.pending() == 1
    shop.say(messages=[{"role": "assistant", "content": "So do I!"}])
    assert shop.after(30) == 1
    assert shop.pending() == 0
    assert ["rain" in prompt.user for prompt in shop.model.prompts] == [False, True]


def test_words_before_what_was_learned_already_wait_for_nobody(shop):
    shop.say(messages=[*exchange("tea"), {"role": "user", "content": "And rain"}])
    assert shop.after(30) == 1
    shop.say(messages=[{"role": "user", "content": "And snow"}, {"role": "assistant", "content": "I see."}])
    assert shop.after(30) == 1
    assert shop.pending() == 0


def test_only_the_last_words_of_a_thread_may_still_be_answered(shop):
    user = {"role": "user", "content": "And rain"}
    shop.say(messages=[*exchange("tea"), user, {**user, "content": "And snow"}])
    with shop.writer.state() as state:
        thread = state.transcript.threads["t"]
    assert answered(thread, TurnRange(1, 4)) == TurnRange(1, 2)
    # What comes after it is done with, so nobody answers it any more.
    assert answered(thread, TurnRange(1, 3)) == TurnRange(1, 3)


def test_a_model_that_is_broken_is_asked_ever_more_seldom(tmp_path):
    shop = Shop(tmp_path, ValueError("a bug"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("unavailable", 2)]
    rounds = [shop.after(600) for _ in range(6 * 24 * 7)]
    assert 30 < sum(rounds) < 120
    assert sum(rounds[-6 * 24 :]) < 12


def test_one_bad_thread_does_not_stop_the_others(tmp_path):
    def think(prompt: Prompt) -> str:
        return "half {" if 'thread="bad"' in prompt.user else reply("Likes tea")

    shop = Shop(tmp_path, think)
    for thread in ("bad", "good", "better"):
        shop.say(thread)
    assert shop.after(30) == 3
    assert shop.parked("bad") == [("reply", 1)]
    assert shop.pending("good") == shop.pending("better") == 0


# Flush


def test_a_process_that_ends_spends_no_time_on_gaps_between_calls(tmp_path):
    shop = Shop(tmp_path, reply())
    shop.updater = Updater(clock=shop.clock, min_gap=30)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300), clock=shop.clock)
    for thread in ("a", "b", "c"):
        shop.say(thread)
    begun = shop.clock.now()
    assert shop.producer.drain(0)
    assert shop.clock.now() == begun
    assert len(shop.model.prompts) == 3
    for thread in ("a", "b", "c"):
        shop.say(thread, exchange("rain"))
    assert shop.producer.flush(0)
    assert (shop.clock.now() - begun).total_seconds() >= 60


def test_closing_spends_no_time_on_gaps_either(tmp_path):
    shop = Shop(tmp_path, reply())
    shop.updater = Updater(clock=shop.clock, min_gap=30)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300), clock=shop.clock)
    for thread in ("a", "b", "c"):
        shop.say(thread)
    begun = shop.clock.now()
    assert shop.producer.close(0)
    assert (shop.clock.now() - begun, len(shop.model.prompts)) == (timedelta(), 3)


def test_a_flush_waits_for_no_debounce(shop):
    for thread in ("a", "b"):
        shop.say(thread)
    assert shop.producer.flush(PATIENCE) is True
    assert sorted(shop.asked()) == ["a", "b"]


def test_a_flush_of_nothing_is_done(shop):
    assert shop.producer.flush(0) is True
    shop.say(messages=ACK)
    assert shop.producer.flush(0) is True
    assert shop.pending() == 2


def test_a_flush_says_so_when_something_is_left(shop):
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    assert shop.producer.flush(PATIENCE) is False
    shop.store.mood = None
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0


def test_parked_turns_are_no_longer_due(tmp_path):
    shop = Shop(tmp_path, ModelRejectedError("no key"))
    shop.say()
    assert shop.producer.flush(PATIENCE) is True
    assert shop.parked() == [("rejected", 1)]


# Workers


def test_workers_flush_what_is_pending(started):
    shop = started(reply("Likes tea"))
    for thread in "abcdef":
        shop.say(thread)
    assert shop.producer.flush(PATIENCE) is True
    assert sorted(shop.asked()) == list("abcdef")
    assert sum(map(shop.pending, "abcdef")) == 0


def test_a_flush_does_not_wait_beyond_its_timeout(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say()
    assert shop.producer.flush(0.05) is False
    assert gate.entered.wait(PATIENCE)
    assert shop.producer.flush(0.05) is False
    gate.opened.set()
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0


def test_a_flush_takes_along_what_was_said_during_the_update_under_way(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say(immediate=True)
    assert gate.entered.wait(PATIENCE)
    shop.say()
    gate.opened.set()
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0
    assert len(shop.model.prompts) == 2


def test_a_flush_does_not_wait_for_what_cannot_be_done_now(started):
    shop = started()
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    began = time.monotonic()
    assert shop.producer.close(PATIENCE) is False
    assert time.monotonic() - began < PATIENCE / 2
    assert shop.pending() == 2


def test_a_flush_is_done_though_more_is_said_meanwhile(started):
    def think(prompt: Prompt) -> str:
        if len(shop.model.prompts) == 1:
            shop.say()
        return reply("Likes tea")

    shop = started(think)
    shop.say()
    assert shop.producer.flush(PATIENCE) is True
    # The new words have a debounce of their own.
    assert shop.pending() == 2
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0


def test_two_threads_are_learned_from_side_by_side(started):
    together = threading.Barrier(2)

    def think(prompt: Prompt) -> str:
        together.wait(PATIENCE)
        return reply("Likes tea")

    shop = started(think)
    shop.say("a")
    shop.say("b")
    assert shop.producer.flush(PATIENCE) is True
    assert (shop.parked("a"), shop.parked("b")) == ([], [])


def test_no_thread_is_worked_on_twice_at_once(started):
    busy: Counter[str] = Counter()
    lock = threading.Lock()
    most = 0
    paused = threading.Event()

    def think(prompt: Prompt) -> str:
        nonlocal most
        name = prompt.user.partition('thread="')[2].partition('"')[0]
        with lock:
            busy[name] += 1
            most = max(most, busy[name])
        paused.wait(0.002)
        with lock:
            busy[name] -= 1
        return reply("Likes tea")

    shop = started(think, workers=6)
    for _ in range(6):
        for thread in ("a", "b"):
            shop.say(thread, immediate=True)
    assert shop.producer.flush(PATIENCE) is True
    assert most == 1
    assert shop.pending("a") == shop.pending("b") == 0


def test_a_worker_outlives_every_fault(started, caplog):
    shop = started(ValueError("a bug"), reply("Likes tea"), workers=1)
    for mood in (
        StoreError("the disk is full"),
        ZeroDivisionError("what"),
        CorruptLogError("bad", kind="altered", stream="s", line=1, byte=0),
        asyncio.CancelledError("called off"),
        KeyboardInterrupt("stop"),
        SystemExit(3),
    ):
        shop.store.mood = mood
        shop.store.refused.clear()
        shop.say(immediate=True)
        assert shop.store.refused.wait(PATIENCE)
        with shop.producer.claim(shop.writer, "t"):
            assert shop.pending() > 0
    shop.store.mood = None
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0
    assert shop.producer._workers[0].is_alive()
    assert all(f": {said}" in caplog.text for said in ("the disk is full", "what", "called off", "stop", "3"))


def test_a_model_that_calls_itself_off_takes_no_worker_along(started, caplog):
    shop = started(asyncio.CancelledError("not now"), reply("Likes tea"), workers=1)
    shop.say()
    assert shop.producer.flush(PATIENCE) is False
    assert "not now" in caplog.text
    assert shop.pending() == 2
    assert shop.producer.depth() == 0
    shop.clock.advance(60)
    assert shop.producer.depth() == 1
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0


def test_what_calls_itself_off_in_the_callers_own_thread_is_a_fault_too(tmp_path):
    shop = Shop(tmp_path, asyncio.CancelledError(), reply("Likes tea"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.pending() == 2
    assert shop.after(59) == 0
    assert shop.after(1) == 1
    assert shop.pending() == 0


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("run", [Producer.run_due, lambda producer: producer.flush(0)], ids=["run_due", "flush"])
def test_whoever_ends_the_program_in_its_own_thread_is_heard_and_the_thread_is_let_go(tmp_path, ends, run):
    shop = Shop(tmp_path, ends(), reply("Likes tea"))
    shop.say(immediate=True)
    with pytest.raises(ends):
        run(shop.producer)
    assert shop.pending() == 2
    assert shop.after(59) == 0
    assert shop.after(1) == 1
    assert shop.pending() == 0


def test_a_thread_that_is_claimed_is_left_to_the_claimant(started):
    shop = started(reply("Likes tea"))
    with shop.producer.claim(shop.writer, "t"):
        shop.say(immediate=True)
        shop.say("other", immediate=True)
        shop.producer.flush(0.05)
        assert shop.asked() == ["other"]
    assert shop.producer.flush(PATIENCE) is True
    assert shop.asked() == ["other", "t"]


def test_a_claim_waits_for_the_worker_that_is_at_the_thread(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say(immediate=True)
    assert gate.entered.wait(PATIENCE)
    order: list[str] = []

    def claim() -> None:
        with shop.producer.claim(shop.writer, "t"):
            order.append("claimed")

    claimant = threading.Thread(target=claim)
    claimant.start()
    claimant.join(0.05)
    assert order == []
    gate.opened.set()
    claimant.join(PATIENCE)
    assert order == ["claimed"]
    assert shop.pending() == 0


def test_a_claim_is_given_back_whatever_happens(shop, monkeypatch):
    shop.say()

    def broken(**_: object) -> None:
        raise StoreError("the disk is gone")

    with pytest.raises(StoreError), shop.producer.claim(shop.writer, "t"):
        monkeypatch.setattr(shop.writer, "state", broken)
    monkeypatch.undo()
    free = threading.Event()

    def claim() -> None:
        with shop.producer.claim(shop.writer, "t"):
            free.set()

    claimant = threading.Thread(target=claim, daemon=True)
    claimant.start()
    assert free.wait(PATIENCE)
    claimant.join(PATIENCE)
    assert shop.producer.flush(PATIENCE) is True
    assert shop.pending() == 0


# Close


def test_closing_learns_from_what_is_pending(started):
    shop = started(reply("Likes tea"))
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.producer.close(PATIENCE) is True
    assert sorted(shop.asked()) == ["a", "b", "c"]
    assert not any(worker.is_alive() for worker in shop.producer._workers)


def test_closing_keeps_to_its_time_and_leaves_the_rest_pending(tmp_path, started):
    gate = Gate(reply("never"))
    shop = started(gate, workers=1)
    for thread in ("a", "b"):
        shop.say(thread, immediate=True)
    assert gate.entered.wait(PATIENCE)
    assert shop.producer.close(0.05) is False
    gate.opened.set()
    shop.producer._workers[0].join(PATIENCE)
    assert not shop.producer._workers[0].is_alive()
    assert shop.asked() == ["a"]
    assert shop.writer.memory().seq == 0
    assert (shop.pending("a"), shop.pending("b")) == (2, 2)
    again = Shop(tmp_path, reply("Likes tea"), clock=shop.clock)
    assert again.producer.flush(0) is True
    assert again.pending("a") == again.pending("b") == 0


def test_closing_without_workers_runs_what_is_pending_here(shop):
    shop.say()
    assert shop.producer.close(0) is True
    assert shop.pending() == 0


def test_closing_twice_is_no_harm(started):
    shop = started(reply("Likes tea"))
    shop.say()
    assert shop.producer.close(PATIENCE) is True
    assert shop.producer.close(PATIENCE) is True


@pytest.mark.timeout(PATIENCE)
def test_after_closing_what_is_said_stays_pending_and_nobody_waits_for_it(shop, started):
    for closed in (shop, started(reply("never"))):
        closed.producer.close(PATIENCE)
        closed.say()
        closed.clock.advance(60)
        began = time.monotonic()
        assert closed.producer.flush(PATIENCE) is False
        assert closed.producer.close(PATIENCE) is False
        assert time.monotonic() - began < PATIENCE / 2
        assert closed.producer.run_due() == 0
        assert closed.pending() > 0
        assert closed.model.prompts == []


# Through the public surface


Home = Callable[..., Backstory]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened: list[Backstory] = []

    def start(*script: Step, **settings: object) -> Backstory:
        model = ScriptedModel(*script, repeat=True) if script else None
        more: dict[str, object] = {"background": True, "shutdown_flush_timeout_seconds": 1, **settings}
        opened.append(open_home(tmp_path, model, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for backstory in opened:
        backstory.close()


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def test_what_is_recorded_is_learned_from_by_itself(home):
    memory = home(reply("Likes tea"), debounce_seconds=0).memory("ada")
    learned = threading.Event()
    watcher = home(listeners=(lambda *told: learned.set(),)).memory("ada")
    assert watcher.facts() == ()
    memory.record("t", exchange("tea"))
    assert memory.flush(PATIENCE) is True
    assert texts(memory) == texts(watcher) == ["Likes tea"]


def test_without_a_flush_too(home):
    learned = threading.Event()
    memory = home(reply("Likes tea"), debounce_seconds=0, listeners=(lambda *told: learned.set(),)).memory("ada")
    memory.record("t", exchange("tea"))
    assert learned.wait(PATIENCE)


def test_at_once_overtakes_the_debounce(home):
    learned = threading.Event()
    memory = home(reply("Likes tea"), listeners=(lambda *told: learned.set(),)).memory("ada")
    memory.record("t", exchange("tea"))
    assert [thread.due_in for thread in memory.status().pending] == [30.0]
    memory.record("t", exchange("milk"), immediate=True)
    assert learned.wait(PATIENCE)


def test_leaving_the_context_learns_from_what_is_pending(tmp_path):
    with open_home(tmp_path, ScriptedModel(reply("Likes tea")), background=True) as backstory:
        backstory.memory("ada").record("t", exchange("tea"))
    assert texts(open_home(tmp_path).memory("ada")) == ["Likes tea"]


def test_due_times_outlive_a_restart(home):
    clock = FakeClock()
    first = home(clock=clock).memory("ada")
    first.record("t", exchange("tea"))
    clock.advance(20)
    first.record("u", exchange("milk"))
    second = home(clock=clock).memory("ada")
    for memory in (first, second):
        assert {thread.thread: thread.due_in for thread in memory.status().pending} == {"t": 10.0, "u": 30.0}
    clock.advance(15)
    assert {thread.thread: thread.due_in for thread in second.status().pending} == {"t": 0.0, "u": 15.0}
    learning = home(reply("Likes tea"), clock=clock).memory("ada")
    assert learning.flush(PATIENCE) is True
    assert second.status().pending == ()


def test_without_a_background_a_flush_tells_whether_anything_is_due(home):
    clock = FakeClock()
    memory = home(reply("Likes tea"), background=False, clock=clock).memory("ada")
    memory.record("t", exchange("tea"))
    assert memory.flush(0) is True
    clock.advance(30)
    assert memory.flush(0) is False
    memory.extract()
    assert memory.flush(0) is True


def test_a_recorder_is_told_when_too_much_is_due(home):
    gate = Gate(reply("Likes tea"))
    memory = home(gate, workers=1, queue_max_depth=1, debounce_seconds=0).memory("ada")
    try:
        assert memory.record("a", exchange("tea")).backlog is False
        assert gate.entered.wait(PATIENCE)
        assert memory.record("b", exchange("tea")).backlog is False
        assert memory.record("c", exchange("tea")).backlog is True
        assert [thread.thread for thread in memory.status().pending] == ["a", "b", "c"]
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE) is True
    assert memory.status().pending == ()


def test_back_pressure_sheds_no_correction_and_lets_it_go_first(home):
    gate = Gate(reply())
    memory = home(gate, reply(), workers=1, queue_max_depth=1, debounce_seconds=0).memory("ada")
    try:
        memory.record("a", exchange("tea"))
        assert gate.entered.wait(PATIENCE)
        for thread in ("b", "c", "d"):
            memory.record(thread, told("The rain has stopped."))
        assert memory.record("wrong", told("That's wrong, I live in Bergen.")).backlog is True
        assert [thread.thread for thread in memory.status().pending] == ["a", "b", "c", "d", "wrong"]
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE) is True
    assert memory.status().pending == ()
    learned = [entry.cause.thread for entry in reversed(memory.log()) if entry.cause.thread]
    assert learned == ["a", "wrong", "b", "c", "d"]


def test_a_broken_pattern_file_fails_when_the_home_is_opened(tmp_path):
    (tmp_path / "goal.toml").write_text("mine = ['(']")
    for settings in ({"background": True}, {"background": False}):
        with pytest.raises(ConfigError, match=r"goal\.toml"):
            open_home(tmp_path, ScriptedModel(), patterns_dir=str(tmp_path), **settings)


def test_patterns_of_ones_own_say_who_goes_first(home, tmp_path):
    folder = tmp_path / "patterns"
    folder.mkdir()
    (folder / "correction.toml").write_text("mine = ['\\brain\\b']")
    gate = Gate(reply())
    memory = home(gate, reply(), workers=1, debounce_seconds=0, patterns_dir=str(folder)).memory("ada")
    try:
        memory.record("a", exchange("tea"))
        assert gate.entered.wait(PATIENCE)
        memory.record("b", told("That's wrong."))
        memory.record("c", told("The rain has stopped."))
    finally:
        gate.opened.set()
    assert memory.flush(PATIENCE) is True
    assert [entry.cause.thread for entry in reversed(memory.log()) if entry.cause.thread] == ["a", "c", "b"]


def test_extracting_here_while_workers_are_there_asks_about_nothing_twice(home):
    backstory = home(reply("Likes tea"), debounce_seconds=0, workers=4)
    memory = backstory.memory("ada")
    for number in range(8):
        memory.record(f"t{number % 3}", exchange("tea", number))
        memory.extract()
    assert memory.flush(PATIENCE) is True
    ranges = [(entry.cause.thread, entry.cause.turns) for entry in memory.log() if entry.cause.turns is not None]
    covered = [(thread, n) for thread, turns in ranges for n in range(turns.first, turns.last + 1)]
    assert len(covered) == len(set(covered)) == 16
    refused = [event for entry in memory.log() for event in entry.events if getattr(event, "rule", "") == "covered"]
    assert refused == []


@pytest.mark.parametrize("workers", [1, 3])
def test_two_homes_opened_on_one_folder_cover_no_turn_twice_and_lose_none(home, workers):
    homes = [home(reply("Likes tea"), debounce_seconds=0, workers=workers) for _ in range(2)]
    memories = [backstory.memory("ada") for backstory in homes]
    for number in range(12):
        memories[number % 2].record(f"t{number % 3}", exchange(f"topic {number}", number))
    for _ in range(3):
        for memory in memories:
            assert memory.flush(PATIENCE) is True
    status = memories[0].status()
    assert (status.pending, status.parked) == ((), ())
    entries = memories[0].log()
    covered = [
        (entry.cause.thread, n)
        for entry in entries
        if entry.cause.turns is not None
        for n in range(entry.cause.turns.first, entry.cause.turns.last + 1)
    ]
    assert sorted(covered) == sorted((f"t{t}", n) for t in range(3) for n in range(1, 9))
    assert memories[0].verify().ok
    assert memories[0].document() == memories[1].document()


def test_a_function_that_raises_is_tried_and_parked(tmp_path):
    clock = FakeClock()
    calls: list[float] = []

    def think(messages: list[dict[str, str]]) -> str:
        calls.append(clock.now().timestamp())
        raise ValueError("a bug in the host")

    with open_home(tmp_path, think, clock=clock, background=True, max_attempts=3) as backstory:
        memory = backstory.memory("ada")
        memory.record("t", exchange("tea"))
        assert memory.flush(PATIENCE) is True
        (parked,) = memory.status().parked
        assert (parked.reason, parked.attempts) == ("unavailable", 3)
        assert "a bug in the host" in parked.detail
    assert [later - earlier for earlier, later in itertools.pairwise(calls)] == [1, 2]


def test_calls_of_all_threads_are_kept_apart(tmp_path):
    clock = FakeClock()
    model = ScriptedModel(reply("Likes tea"), repeat=True)
    with open_home(tmp_path, model, clock=clock, min_seconds_between_calls=7) as backstory:
        for user in ("ada", "bob"):
            memory = backstory.memory(user)
            for thread in ("t1", "t2"):
                memory.record(thread, exchange("tea"))
            memory.extract()
    assert clock.slept == [7, 7, 7]


def test_retrying_and_discarding_beside_workers(home):
    backstory = home("half {", reply("Likes tea"), debounce_seconds=0)
    memory = backstory.memory("ada")
    memory.record("t", exchange("tea"))
    assert memory.flush(PATIENCE) is True
    assert [(item.reason, item.attempts) for item in memory.status().parked] == [("reply", 1)]
    assert memory.retry().failed == 0
    assert texts(memory) == ["Likes tea"]
    assert memory.status().parked == ()


def test_a_clear_while_a_worker_waits_for_the_model(home):
    gate = Gate(reply("Likes tea"))
    memory = home(gate, debounce_seconds=0).memory("ada")
    memory.record("t", exchange("tea"))
    assert gate.entered.wait(PATIENCE)
    memory.clear()
    gate.opened.set()
    assert memory.flush(PATIENCE) is True
    assert texts(memory) == []
    assert memory.status().pending == ()
    assert len(memory._services.home.model.prompts) == 1


def test_a_revert_while_a_worker_waits_asks_again_on_the_memory_after_it(home):
    gate = Gate(reply("Likes tea"))
    first_done = iter([reply("Lives in Oslo"), gate, reply("Likes green tea")])

    def think(prompt: Prompt) -> str | Answer:
        step = next(first_done)
        return step(prompt) if isinstance(step, Gate) else step

    memory = home(think, debounce_seconds=0).memory("ada")
    memory.record("t", exchange("fish"))
    assert memory.flush(PATIENCE) is True
    memory.record("t", exchange("tea"))
    assert gate.entered.wait(PATIENCE)
    memory.revert(2)
    gate.opened.set()
    assert memory.flush(PATIENCE) is True
    assert texts(memory) == ["Likes green tea"]
    prompts = memory._services.home.model.prompts
    assert len(prompts) == 3
    assert "Lives in Oslo" in prompts[1].user
    assert "Lives in Oslo" not in prompts[2].user


def test_a_status_tells_of_each_thread_when_it_is_due(home):
    clock = FakeClock()
    memory = home(clock=clock, debounce_seconds=10, max_wait_seconds=25).memory("ada")
    memory.record("quiet", ACK)
    for _ in range(3):
        memory.record("t", exchange("tea"), mode="append")
        clock.advance(8)
    told = {thread.thread: (thread.turns, thread.due_in) for thread in memory.status().pending}
    assert told == {"quiet": (2, None), "t": (6, 1.0)}
    assert clock.now() - FakeClock().now() == timedelta(seconds=24)


# Leases


def test_a_thread_that_another_process_learns_from_is_asked_about_once(tmp_path: Path) -> None:
    gate = Gate(reply("Likes tea"))
    clock = FakeClock()
    one, other = Shop(tmp_path, gate, clock=clock), Shop(tmp_path, clock=clock)
    one.say()
    other.producer.notice(other.writer, "t")
    clock.advance(30)
    working = threading.Thread(target=one.producer.run_due)
    working.start()
    assert gate.entered.wait(PATIENCE)
    assert other.producer.run_due() == 1
    assert not other.producer.flush(0)
    gate.opened.set()
    working.join(PATIENCE)
    assert other.after(1) == 1
    assert other.asked() == []
    assert other.producer.flush(0)
    assert one.pending() == other.pending() == 0
    assert one.asked() == ["t"]


def test_a_thread_whose_learner_died_is_taken_over(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.say()
    lease = shop.store.lease(shop.writer.ledger, "t")
    lease.__enter__()
    assert shop.after(30) == 1
    assert shop.asked() == []
    lease.__exit__(None, None, None)
    assert shop.after(1) == 1
    assert shop.asked() == ["t"]


def test_here_and_now_waits_for_whoever_is_at_it_and_asks_only_about_what_is_left(tmp_path: Path) -> None:
    gate, clock = Gate(reply("Likes tea")), FakeClock()
    one = open_home(tmp_path, ScriptedModel(gate), clock=clock).memory("ada")
    second = ScriptedModel()
    other = open_home(tmp_path, second, clock=clock).memory("ada")
    one.record("t", exchange("tea"))
    working = threading.Thread(target=one.extract)
    working.start()
    assert gate.entered.wait(PATIENCE)
    told: list[int] = []
    waiting = threading.Thread(target=lambda: told.append(other.extract().updates))
    waiting.start()
    while not clock.slept:
        assert waiting.is_alive()
    gate.opened.set()
    for thread in (working, waiting):
        thread.join(PATIENCE)
    assert told == [0]
    assert second.prompts == []
    assert [fact.content for fact in other.facts()] == ["Likes tea"]


class Stream:
    """A model that is told of a new thread each time it is asked, until `enough`; `over` tells that it is."""

    def __init__(self, enough: Callable[[Shop], bool]) -> None:
        self.shop: Shop | None = None
        self.over = threading.Event()
        self._enough = enough

    def __call__(self, prompt: Prompt) -> str:
        assert self.shop is not None
        if self._enough(self.shop):
            self.over.set()
        else:
            self.shop.say(f"other {len(self.shop.asked())}", immediate=True)
        return reply()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_thread_that_another_process_is_at_keeps_no_other_waiting_and_is_not_asked_for_all_the_time(
    started, monkeypatch, workers
):
    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 3600.0)
    stream = Stream(lambda shop: len(shop.asked()) == 20)
    shop = stream.shop = started(stream, workers=workers)
    shop.store.elsewhere.add("held")
    shop.say("held", immediate=True)
    shop.clock.advance(1)
    shop.say("first", immediate=True)
    assert stream.over.wait(PATIENCE)
    assert shop.store.tries["held"] == 1
    assert "held" not in shop.asked()
    assert shop.producer.depth() >= 1


def test_a_worker_with_nothing_else_to_do_waits_before_it_looks_again(started, monkeypatch):
    waits: list[float] = []
    shop = started(workers=1)
    shop.store.elsewhere.add("held")
    wait = shop.producer._changed.wait

    def waiting(seconds: float | None = None) -> bool:
        waits.append(time.monotonic())
        if shop.store.tries["held"] == 3:
            shop.store.elsewhere.clear()
        return wait(seconds)

    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(shop.producer._changed, "wait", waiting)
    began = time.monotonic()
    shop.say("held", immediate=True)
    assert shop.producer.flush(PATIENCE) is True
    assert shop.asked() == ["held"]
    assert shop.store.tries["held"] in (3, 4)
    assert time.monotonic() - began >= 2 * 0.02
    # One of the worker and one of the flush for each try, and a few that woke up early.
    assert len(waits) < 30


def test_a_thread_that_another_process_was_at_has_its_turn_though_others_keep_coming(started, monkeypatch):
    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 0.02)

    def enough(shop: Shop) -> bool:
        if shop.store.tries["held"]:
            shop.store.elsewhere.clear()
        return "held" in shop.asked() or len(shop.asked()) == 500

    stream = Stream(enough)
    shop = stream.shop = started(stream, workers=1)
    shop.store.elsewhere.add("held")
    shop.say("held", immediate=True)
    shop.clock.advance(1)
    shop.say("first", immediate=True)
    assert stream.over.wait(PATIENCE)
    assert shop.asked()[0] == "first"
    assert "held" in shop.asked()


def test_what_was_wanted_at_once_is_due_still_when_another_process_was_at_it(shop):
    shop.store.elsewhere.add("t")
    shop.say(immediate=True)
    assert shop.producer.run_due() == 1
    assert shop.producer.depth() == 1
    assert shop.producer.flush(0) is False
    shop.store.elsewhere.clear()
    assert shop.producer.run_due() == 1
    assert shop.pending() == 0
    assert shop.producer._elsewhere == {}
