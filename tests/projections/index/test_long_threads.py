"""A thread that an index opens: it says what its lines say, and of a long one only what is asked for is read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from heapq import merge
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, ScriptedModel, exchange, open_home, reply, updater_on
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sizes import examples
from streams import recorded

from backstory.ledger.core.commit import EMPTY, Cause, Draft, sealed
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.events import Turn, TurnRange, TurnRecorded
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Record
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.learning.producer import Producer
from backstory.ledger.log.folded.snapshot import RecordedLines, SnapshotOrigin, ThreadSnapshot
from backstory.ledger.log.folded.state import FoldedState
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.due import Timing, due_of, ready_runs, retry_at, telling_runs
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Trace, TurnColumn
from backstory.projections.index.index import ScopeIndex

ADA = Scope("ada")
THREADS = ("t", "u")


def index_of(home: Path, store: JsonlStore | None = None) -> ScopeIndex:
    return ScopeIndex(store or JsonlStore(home), ADA, home / ADA.folder / "index.sqlite", small=1)


def view_of(home: Path, index: ScopeIndex | None = None) -> FoldedState:
    view = FoldedState(JsonlStore(home), ADA, index)
    refresh(view)
    return view


def refresh(view: FoldedState) -> None:
    view.refresh_ledger()
    view.refresh_transcript()


@contextmanager
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.ledger.log.folded.earlier_threads.BLOCK_TURNS", 3)
        patch.setattr("backstory.ledger.log.folded.earlier_threads._MOST_TURNS", 12)
        patch.setattr("backstory.projections.index.kv._LEAF_BYTES", 400)
        yield


# That it says what the lines say.


class Life:
    """Two conversations of ada's in which all sorts of things happen; everything is told by a seed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        self.chance = random.Random(0)  # noqa: S311 the same in every run
        model = ScriptedModel(self._answer, repeat=True)
        self.memory = open_home(home, model, clock=self.clock, summary_min_turns=4, max_attempts=1).memory("ada")
        self.writer = self.memory._services.writer
        self.said = 0

    def _answer(self, prompt: Prompt) -> str:
        fault = self.chance.randrange(4)
        if fault == 0:
            raise ModelRejectedError("no")
        if fault == 1:
            raise ModelUnavailableError("away")
        return '{"summary": "summed up"}' if prompt.schema.get("required") == ["summary"] else reply("Likes tea")

    def step(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)  # noqa: S311 the same in every run
        self.clock.advance(chance.choice([0, 1, 400]))
        thread = chance.choice(THREADS)
        steps: list[Callable[[str], object]] = [
            self._say,
            self._say,
            self._say,
            self._say_by_id,
            self._say_by_id,
            self._say_again,
            self._take_back,
            self._replace,
            self._restore,
            lambda _: self.memory.extract(),
            lambda _: self.memory.extract(),
            self.memory.retry,
            self.memory.discard,
            lambda _: self.memory.forget(matching=f"word{chance.randrange(5)} "),
            lambda name: self.memory.forget(thread_id=name) if chance.randrange(3) == 0 else None,
            lambda _: self.writer.expire(self.clock.now() - timedelta(seconds=600)),
            lambda _: self.memory.clear() if chance.randrange(2) else None,
        ]
        with suppress(BackstoryError):
            chance.choice(steps)(thread)

    def _words(self, number: int) -> dict[str, object]:
        content = self.chance.choice(["ok", f"word{number % 5} is what I say, the {number}th"])
        return {"role": self.chance.choice(["user", "user", "assistant"]), "content": content}

    def _say(self, thread: str) -> None:
        count = self.chance.randint(1, 5)
        self.said += count
        self.memory.record(thread, [self._words(self.said + n) for n in range(count)], mode="append")

    def _say_by_id(self, thread: str) -> None:
        ids = self.chance.sample(["a", "b", "c", "d", "t2", "t3"], 2)
        self.memory.record(thread, [{**self._words(self.chance.randrange(10)), "id": name} for name in ids])

    def _say_again(self, thread: str) -> None:
        said = [{"role": turn.role, "content": turn.content} for turn in self.memory.transcript(thread)]
        self.memory.record(thread, [*said[-self.chance.randint(1, 6) :], self._words(self.said)])

    def _take_back(self, thread: str) -> None:
        count = len(self.memory.transcript(thread))
        self.writer.withdraw(thread, {self.chance.randint(1, count + 1) for _ in range(2)})

    def _replace(self, thread: str) -> None:
        said = [{"role": turn.role, "content": turn.content} for turn in self.memory.transcript(thread)]
        self.memory.record(thread, said[: self.chance.randint(0, 4)], mode="replace")

    def _restore(self, thread: str) -> None:
        gone = [turn.n for turn in self.memory.superseded(thread)]
        self.memory.restore(thread, self.chance.sample(gone, min(len(gone), 2)))


def told(thread: Thread | None, coverage: Coverage, now: FakeClock) -> dict[str, Callable[[], object]]:
    """All that can be asked of a thread."""
    if thread is None:
        return {}
    count = len(thread.turns)
    ordinals = range(count + 3)
    return {
        "count": lambda: count,
        "pending": lambda: coverage.pending(thread),
        "due": lambda: due_of(thread, coverage.pending(thread), Timing()),
        "ready runs": lambda: ready_runs(coverage, thread, Timing(), now.now()),
        "telling runs": lambda: telling_runs(coverage, thread),
        "retry": lambda: retry_at(coverage, thread, now.now()),
        "parked": lambda: coverage.parked(thread),
        "covers": lambda: [coverage.covers(thread, TurnRange(n, n + 1)) for n in ordinals],
        "highest": lambda: coverage.highest(thread.name),
        "summarized": lambda: [coverage.summarized(thread, level) for level in range(4)],
        "not summarized": lambda: coverage.not_summarized(thread),
        "stands": lambda: [thread.stands(n) for n in ordinals],
        "trace": lambda: [thread.traces.get(n) for n in ordinals],
        "traces": lambda: dict(thread.traces),
        "standing": thread.standing,
        "some": lambda: thread.standing(2, count - 1),
        "back": lambda: list(thread.walk(back=True)),
        "turns": lambda: list(thread.turns),
        "slice": lambda: thread.turns[-3:],
        "seqs": lambda: list(thread.seqs),
        "recorded at": lambda: list(thread.recorded_at),
        "recorded by": lambda: [thread.recorded_by(seq) for seq in range(count + 20)],
        "superseded": lambda: thread.superseded,
        "withdrawn": lambda: thread.withdrawn,
        "restored": lambda: thread.restored,
        "may be restored": lambda: [thread.may_be_restored(n) for n in ordinals],
        "remembered": lambda: [thread.remembered(n) for n in range(1, count + 1)],
        "latest": lambda: thread.latest,
        "earliest": lambda: thread.earliest,
        "erased ids": lambda: thread.erased_ids,
        "forgotten": lambda: thread.forgotten,
        "found": lambda: [thread.find(name) for name in ("a", "b", "t1", "t2", "t9", "nobody")],
    }


def assert_alike(lazy: FoldedState, home: Path, clock: FakeClock, *, seed: int = 0) -> None:
    """Ask both the same questions in any order: what was loaded before must not show."""
    whole = view_of(home)
    assert list(lazy.transcript.threads) == list(whole.transcript.threads)
    for name in THREADS:
        one, other = lazy.transcript.threads.get(name), whole.transcript.threads.get(name)
        asked, expected = told(one, lazy.coverage, clock), told(other, whole.coverage, clock)
        assert asked.keys() == expected.keys()
        questions = list(expected)
        random.Random(seed).shuffle(questions)  # noqa: S311 the same in every run
        for question in questions:
            assert (question, asked[question]()) == (question, expected[question]())
    assert lazy.transcript.turn_count == whole.transcript.turn_count


@given(
    before=st.lists(st.integers(0, 1 << 30), min_size=1, max_size=25),
    later=st.lists(st.integers(0, 1 << 30), max_size=6),
    data=st.data(),
)
@settings(max_examples=examples(1 / 2))
def test_a_thread_that_an_index_opens_says_what_its_lines_say(tmp_path_factory, before, later, data):
    home = tmp_path_factory.mktemp("home")
    with small_blocks():
        life = Life(home)
        for seed in before:
            life.step(seed)
        index_of(home).follow()
        begun = view_of(home, index_of(home))
        assert_alike(view_of(home, index_of(home)), home, life.clock)
        looked = data.draw(st.sets(st.sampled_from(THREADS)), label="loaded before the rest happens")
        for name in looked:
            thread = begun.transcript.threads.get(name)
            if thread is not None:
                begun.coverage.pending(thread)
                _ = thread.turns[data.draw(st.integers(-len(thread.turns), len(thread.turns) - 1))]
        for seed in later:
            life.step(seed)
            if data.draw(st.booleans(), label="the index catches up"):
                index_of(home).follow()
        refresh(begun)
        for view in (begun, view_of(home, index_of(home))):
            assert_alike(view, home, life.clock, seed=data.draw(st.integers(0, 99), label="order of the questions"))
        index = index_of(home)
        index.follow()
        assert index.differs() == []


# What of it is read.


class Counted(JsonlStore):
    """Counts the reads, and the lines that are read."""

    reads = 0
    lines = 0

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        self.reads += 1
        for record in super().read(stream, after, byte=byte):
            self.lines += 1
            yield record


def long_thread(home: Path, turns: int, *, a_line: int = 2) -> None:
    """Write a thread of many turns, so many a line, and its index."""
    head, lines, salts, at = EMPTY, [], CountingSalts(), spell_moment(FakeClock().now())
    for first in range(1, turns + 1, a_line):
        events = []
        for n in range(first, first + a_line):
            role = "user" if n % 2 else "assistant"
            events.append(TurnRecorded(Turn(n=n, id=f"t{n}", role=role, content=f"word {n}", at=at, anonymous=True)))
        user = "ada" if head.seq == 0 else None
        cause = Cause(kind="record", user=user, thread="t", turns=TurnRange(first, first + a_line - 1))
        line, commit = sealed(Draft(at, cause, tuple(events)), head, salts)
        lines.append(line)
        head = commit.head
    store = JsonlStore(home)
    store.append(ADA.stream(TRANSCRIPT), lines, 0)
    index_of(home).follow()


def writer_of(home: Path, store: JsonlStore | None = None, clock: FakeClock | None = None) -> Writer:
    store = store or JsonlStore(home)
    return Writer(store, ADA, snapshots=index_of(home, store), clock=clock or FakeClock(), salts=CountingSalts())


def producer_of(clock: FakeClock) -> Producer:
    return Producer(updater_on(clock), ScriptedModel(), workers=0)


def said(*words: str) -> list[Kept]:
    roles = ("user", "assistant")
    return [Kept(role=roles[n % 2], content=text) for n, text in enumerate(words or ("What now?", "Let me see."))]


def lines_to_record(home: Path) -> int:
    """Open a home, record an exchange without ids, and have it noticed; how many lines were read for that."""
    store, clock = Counted(home), FakeClock()
    writer = writer_of(home, store, clock)
    assert writer.record("t", said(), mode="append").turns == 2
    producer = producer_of(clock)
    producer.notice(writer, "t")
    clock.advance(3600)
    assert producer.depth() == 1
    return store.lines


def test_to_record_into_a_long_thread_reads_a_bounded_part_of_it(tmp_path):
    read = []
    for turns in (1000, 4000):
        home = tmp_path / str(turns)
        long_thread(home, turns)
        read.append(lines_to_record(home))
    # A block at either end.
    assert read[0] == read[1] <= 80


def test_lines_that_lie_near_each_other_are_read_together(tmp_path):
    writer = writer_of(tmp_path)
    for n in range(100):
        for thread in THREADS:
            words = "long words " * 10_000 if (n, thread) == (90, "u") else "words"
            writer.record(thread, said(f"{thread} {n} {words}"), mode="append")
    index_of(tmp_path).follow()
    store = Counted(tmp_path)
    state = FoldedState(store, ADA, index_of(tmp_path, store))
    refresh(state)
    before = store.reads
    contents = [turn.content for turn in state.transcript.threads["t"].turns]
    assert contents == [f"t {n} words" for n in range(100)]
    # Two blocks.
    assert store.reads - before <= 4


def test_what_was_cleared_and_learned_from_is_known_without_reading_it(tmp_path):
    long_thread(tmp_path, 2000)
    memory = open_home(tmp_path, ScriptedModel(reply(), repeat=True)).memory("ada")
    memory.clear()
    for number in range(30):
        memory.record("t", exchange(f"tea {number}"), mode="append")
        memory.extract()
    index_of(tmp_path).follow()
    assert lines_to_record(tmp_path) <= 80


def test_where_the_old_part_is_erased_only_the_end_is_read(tmp_path):
    long_thread(tmp_path, 2000)
    clock = FakeClock()
    memory = open_home(tmp_path, clock=clock).memory("ada")
    memory.clear()
    clock.advance(86_400)
    memory.record("t", exchange("tea"), mode="append")
    memory._services.writer.expire(clock.now() - timedelta(seconds=600))
    assert len(memory.transcript("t")) == 2
    index_of(tmp_path).follow()
    store = Counted(tmp_path)
    view = FoldedState(store, ADA, index_of(tmp_path, store))
    refresh(view)
    thread = view.transcript.threads["t"]
    assert next(thread.walk(back=True)).content == "tea it is."
    assert [isinstance(thread.remembered(n), Trace) for n in (2002, 2001, 2000)] == [False, False, True]
    assert [(run.first, run.last) for run in view.coverage.pending(thread)] == [(2001, 2002)]
    assert store.lines <= 80
    assert len(thread.traces) == 2000


def test_a_line_that_is_not_where_the_index_says_is_looked_for_in_all_of_them(tmp_path):
    long_thread(tmp_path, 40)

    class Wrong(ScopeIndex):
        def thread(self, thread: str, origin: SnapshotOrigin, newest: int) -> ThreadSnapshot | None:
            known = super().thread(thread, origin, newest)
            return None if known is None else replace(known, newest=moved(known.newest))

        def lines(self, thread: str, turns: TurnRange, origin: SnapshotOrigin) -> RecordedLines:
            return moved(super().lines(thread, turns, origin))

    def moved(found: RecordedLines) -> RecordedLines:
        lines = [replace(line, place=replace(line.place, seq=line.place.seq + 1)) for line in found.lines]
        return replace(found, lines=lines)

    with small_blocks():
        index = Wrong(JsonlStore(tmp_path), ADA, tmp_path / ADA.folder / "index.sqlite", small=1)
        assert_alike(view_of(tmp_path, index), tmp_path, FakeClock())


def test_turns_that_were_cut_off_since_the_index_looked_are_missed(tmp_path):
    long_thread(tmp_path, 400)
    view = view_of(tmp_path, index_of(tmp_path))
    thread = view.transcript.threads["t"]
    path = JsonlStore(tmp_path).path(ADA.stream(TRANSCRIPT))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:100]))
    with pytest.raises(CorruptLogError, match=r"held 400 turns of thread t .* now it holds 200; restore the file"):
        _ = thread.turns[399]


def test_a_damaged_line_among_those_that_are_loaded_together_is_named(tmp_path):
    long_thread(tmp_path, 20)
    view = view_of(tmp_path, index_of(tmp_path))
    path = JsonlStore(tmp_path).path(ADA.stream(TRANSCRIPT))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b"?" * (len(lines[4]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptLogError, match=r"line 5 at byte \d+ cannot be read"):
        view.prepare(["t"])


def test_a_log_that_was_exchanged_for_one_with_more_turns_is_no_reason_to_fail_before_that_is_noticed(tmp_path):
    home, other = tmp_path / "home", tmp_path / "other"
    long_thread(home, 100)
    long_thread(other, 400, a_line=8)
    view = view_of(home, index_of(home))
    thread = view.transcript.threads["t"]
    path, exchanged = (JsonlStore(one).path(ADA.stream(TRANSCRIPT)) for one in (home, other))
    path.write_bytes(exchanged.read_bytes())
    assert len(thread.standing()) == len(thread.turns) == 100


def test_what_is_erased_between_two_looks_is_known_to_be_erased(tmp_path):
    long_thread(tmp_path, 400)
    view = view_of(tmp_path, index_of(tmp_path))
    thread = view.transcript.threads["t"]
    assert thread.turns[0] is not None
    open_home(tmp_path).memory("ada").forget(matching="word 333")
    assert thread.turns[332] is None
    assert replace(thread.traces[333], digest=None) == Trace(333, "t333", 8)
    assert thread.turns[331] is not None
    refresh(view)
    assert_alike(view, tmp_path, FakeClock())


def test_what_is_erased_since_the_index_was_asked_is_known_to_be_erased(tmp_path):
    long_thread(tmp_path, 400)
    # With what is known of it comes where its end is.
    thread = view_of(tmp_path, index_of(tmp_path)).transcript.threads["t"]
    open_home(tmp_path).memory("ada").forget(matching="word 399")
    assert [turn if turn is None else turn.n for turn in thread.turns[-3:]] == [398, None, 400]
    assert replace(thread.traces[399], digest=None) == Trace(399, "t399", 8)


@pytest.mark.parametrize("left", [0, 1])
def test_a_thread_of_which_ordinals_are_missing_is_opened_as_its_lines_say(tmp_path, left):
    memory = open_home(tmp_path, ScriptedModel(reply(), repeat=True)).memory("ada")
    for topic in ("tea", "milk"):
        memory.record("t", exchange(topic), mode="append")
        memory.extract()
    path = JsonlStore(tmp_path).path(ADA.stream(TRANSCRIPT))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    open_home(tmp_path).memory("ada").record("t", exchange("juice"), mode="append")
    index = index_of(tmp_path)
    index.follow()
    assert [turn.n for turn in index.turns("t")] == [*range(1, 2 * left + 1), 5, 6]
    with small_blocks():
        assert_alike(view_of(tmp_path, index_of(tmp_path)), tmp_path, FakeClock())


# What of it is looked at, once it is there.


@pytest.fixture
def looked(monkeypatch):
    """How often a turn was asked for."""
    count = [0]
    get = TurnColumn.__getitem__

    def counted(column, index):
        count[0] += 1
        return get(column, index)

    monkeypatch.setattr(TurnColumn, "__getitem__", counted)
    return count


@pytest.mark.parametrize(
    "says",
    [
        lambda n: ("user" if n % 2 else "assistant", f"word {n}"),
        lambda n: ("user", f"word {n}"),
        lambda _: ("user", "ok"),
        lambda _: ("assistant", "word"),
        lambda n: ("assistant" if n == 2 else "user", f"word {n}"),
    ],
    ids=["exchanges", "no answers", "acknowledgements", "nothing of the user's", "one answer"],
)
def test_when_a_thread_is_due_is_told_without_looking_through_what_is_pending(tmp_path, looked, says):
    clock, writer = FakeClock(), writer_of(tmp_path)
    writer.record("t", [Kept(role=says(n)[0], content=says(n)[1]) for n in range(1, 3001)], mode="append")
    producer = producer_of(clock)
    producer.notice(writer, "t")
    looked[0] = 0
    for _ in range(3):
        writer.record("t", said(), mode="append")
        producer.notice(writer, "t")
    assert looked[0] < 150


def test_what_is_pending_behind_thousands_of_ranges_is_told_at_once(looked, monkeypatch):
    stands = Thread.stands
    begun = []

    def counted(thread, n):
        looked[0] += 1
        return stands(thread, n)

    monkeypatch.setattr(Thread, "stands", counted)
    monkeypatch.setattr(
        "backstory.ledger.threads.coverage.merge", lambda *ranges: begun.append(ranges) or merge(*ranges)
    )
    streams = recorded(6000)
    # What stood between the ranges was replaced: nothing covers it, and nothing waits there.
    streams.record(1, superseding=tuple(range(3, 6000, 3)))
    for first in range(1, 6000, 3):
        streams.cover(first, first + 1)
    assert streams.pending() == [(6000, 6001)]
    looked[0] = 0
    streams.record(2)
    streams.cover(6000, 6001)
    assert streams.pending() == [(6002, 6003)]
    due = due_of(streams.thread(), streams.coverage.pending(streams.thread()), Timing())
    assert due is not None
    assert due.waits_for == "answer"
    assert looked[0] < 20
    assert len(begun) == 1


def test_a_turn_that_was_restored_before_anything_covered_it_is_learned_from_once(tmp_path):
    memory = open_home(tmp_path, ScriptedModel(reply(), repeat=True)).memory("ada")
    memory.record("t", exchange("tea"))
    writer_of(tmp_path).withdraw("t", {2})
    memory.restore("t", [2])
    memory.extract()
    index_of(tmp_path).follow()
    view = view_of(tmp_path, index_of(tmp_path))
    assert view.coverage.pending(view.transcript.threads["t"]) == []


def test_what_a_host_replaced_is_not_told_apart_as_withdrawn_and_what_was_withdrawn_is(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record(
        "t", [{"id": "q", "role": "user", "content": "Tea?"}, {"id": "a", "role": "assistant", "content": "Yes."}]
    )
    memory.record("t", [{"id": "q", "role": "user", "content": "Coffee?"}])
    writer_of(tmp_path).withdraw("t", {2})
    index_of(tmp_path).follow()
    thread = view_of(tmp_path, index_of(tmp_path)).transcript.threads["t"]
    assert (set(thread.superseded), set(thread.withdrawn)) == ({1, 2}, {2})
