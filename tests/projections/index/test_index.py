"""The derived index: whatever becomes of its file, it says what the logs say."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import shutil
import sqlite3
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from fakes import CountingSalts, FakeClock, exchange, open_home, reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import PATIENT, examples, sized
from streams import memory_at

from backstory.ledger.core.commit import EMPTY, Cause, Draft, erase, hash_of, seal
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, LockTimeoutError, NotFoundError, UsageError
from backstory.ledger.core.events import FactAdded, FactRevised, Redacted, TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.folded.snapshot import Place
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Transcript
from backstory.ledger.threads.turn_columns import Trace
from backstory.projections.derived_files import DamagedError
from backstory.projections.history.moment import memories_when
from backstory.projections.history.refusals import RefusalBlock
from backstory.projections.history.views import concerns
from backstory.projections.index.builder import IndexBuilder
from backstory.projections.index.index import Around, ScopeIndex
from backstory.projections.index.index_file import IndexFile
from backstory.projections.index.kv import ChecksummedKV, beginning, name_of, named
from backstory.projections.index.periods import EndedPeriod
from backstory.projections.index.schema import (
    VERSION,
    Checkpoint,
    IndexPosition,
    ReadingMark,
    SaidLine,
    Table,
    ThreadState,
)
from backstory.projections.index.timeline import (
    CommitTime,
    DayUsage,
    ModelUsage,
    Timeline,
    TimelineBlock,
    TimelineBucket,
    UsageCount,
)

ADA = Scope("ada")


@contextmanager
def tiny_pages():
    """Small logs get a file with many leaves, marks and checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.projections.index.index_file._AT_ONCE_BYTES", 6_000)
        patch.setattr("backstory.projections.index.builder._MARK_BYTES", 700)
        patch.setattr("backstory.projections.index.builder._CHECKPOINT_BYTES", 2_500)
        patch.setattr("backstory.projections.index.builder._FLUSH_BYTES", 3_000)
        patch.setattr("backstory.projections.index.builder.BLOCK", 5)
        patch.setattr("backstory.projections.index.kv._LEAF_BYTES", 400)
        patch.setattr("backstory.projections.index.index._AT_ONCE", 3)
        yield


@pytest.fixture
def tiny():
    with tiny_pages():
        yield


def index_of(home, store=None):
    store = store or JsonlStore(home)
    return ScopeIndex(store, ADA, file_of(home), small=1)


def file_of(home):
    return Path(home) / ADA.folder / "index.sqlite"


def follow(source, home):
    """Bring a home's logs up to those of another, as if the same had been written to them."""
    for kind in (LEDGER, TRANSCRIPT):
        if not log_of(source, kind).exists():
            continue
        log_of(home, kind).parent.mkdir(parents=True, exist_ok=True)
        with log_of(source, kind).open("rb") as lines, log_of(home, kind).open("ab") as log:
            lines.seek(log.tell())
            shutil.copyfileobj(lines, log)


def log_of(home, kind=LEDGER):
    return Path(home) / f"{ADA.stream(kind)}.jsonl"


class Life:
    """A memory that something happens to; two doors to the same home take turns."""

    def __init__(self, home, *, doors=2, clock=None):
        self.home = Path(home)
        self.clock = clock or FakeClock()
        self.doors = [open_home(self.home, clock=self.clock, max_facts=10) for _ in range(doors)]
        self.said = 0

    def memory(self, door=0):
        return self.doors[door % len(self.doors)].memory("ada")

    def learn(self, topic, *, door=0, thread="t", remove=(), confidence=0.9):
        self.said += 1
        memory = self.memory(door)
        memory.record(thread, exchange(topic, self.said))
        memory.extract([RecordedReply(thread, reply(f"Ada likes {topic}", remove=remove, confidence=confidence))])

    def live(self, steps, seed=0):
        chance = random.Random(seed)  # noqa: S311 the same in every run
        for _ in range(steps):
            self.step(chance.randrange(1 << 30))
        return self

    def step(self, seed):
        """Do one thing; what is refused is refused."""
        chance = random.Random(seed)  # noqa: S311 the same in every run
        memory = self.memory(chance.randrange(2))
        facts = [fact.id for fact in memory.facts()] or ["fact_9_9"]
        thread = f"t{chance.randrange(4)}"
        self.clock.advance(chance.choice([0, 0, 1, 60]))
        match chance.randrange(12):
            case 0 | 1 | 2:
                self.learn(f"tea {seed % 50}", door=chance.randrange(2), thread=thread, remove=chance.sample(facts, 1))
            case 3:
                self.said += 1
                memory.record(thread, exchange("rain", self.said))
            case 4:
                memory.record("quiet", [{"role": "user", "content": "ok", "id": str(seed)}])
            case 5:
                self.learn("nothing much", thread=thread, confidence=0.1)
            case 6 | 7:
                with suppress(BackstoryError):
                    memory.add_fact(f"Ada owns {seed}")
            case 8:
                with suppress(BackstoryError):
                    memory.edit_fact(chance.choice(facts), content=f"Ada sold {seed}")
            case 9:
                with suppress(BackstoryError):
                    memory.remove_fact(chance.choice(facts))
            case 10:
                with suppress(BackstoryError):
                    memory.revert(chance.randint(2, 30), force=True)
            case _:
                with suppress(BackstoryError):
                    memory.clear() if chance.randrange(3) == 0 else memory.rollback(chance.randint(0, 20))


def places_of(commits, store, kind):
    bytes_of = {n: record.byte for n, record in enumerate(store.read(ADA.stream(kind)), 1)}
    found = {}
    for commit in commits:
        told = {event.thread for event in commit.events if isinstance(event, Redacted)}
        for thread in {commit.cause.thread, *told} - {None}:
            found.setdefault(thread, []).append(Place(commit.seq, bytes_of[commit.seq]))
    return found


def truth(home):
    """All that an index can be asked, by walking the logs from the first line to the last."""
    store = JsonlStore(home)
    ledger = list(read_commits(store, ADA.stream(LEDGER)))
    said = list(read_commits(store, ADA.stream(TRANSCRIPT)))
    transcript, coverage = Transcript(), Coverage()
    for commit in said:
        transcript.apply(commit)
    for commit in ledger:
        coverage.apply(commit)
    ids = {e.fact.id for c in ledger for e in c.events if isinstance(e, FactAdded)}
    learned, recorded = places_of(ledger, store, LEDGER), places_of(said, store, TRANSCRIPT)
    names = list(transcript.threads)
    return {
        "memory": memory_at(store, ADA, len(ledger)),
        "at": {seq: memory_at(store, ADA, seq) for seq in range(len(ledger) + 1)},
        "times": {at: memory_at(store, ADA, at) for at in moments(ledger)},
        "when": {at: list(memories_when(store, ADA, at)) for at in moments(ledger)},
        "around": {moment: around(store, ledger, moment) for moment in [*range(len(ledger) + 1), *moments(ledger)]},
        "timelines": {asked: counted(ledger, *asked) for asked in ranges(ledger)},
        "usage": used(ledger),
        "since": {at: next((c.seq for c in ledger if c.at >= at), len(ledger) + 1) for at in moments(ledger)},
        "commits": ledger,
        "newest": ledger[::-1],
        "about": {fact: [c for c in ledger if concerns(c, fact)] for fact in ids},
        "of": {name: [c for c in ledger if c.cause.thread == name] for name in names},
        "found": {prefix: named_by(ids, prefix) for prefix in prefixes(ids)},
        "places": {name: (learned.get(name, []), recorded.get(name, [])) for name in names},
        "turns": {name: tuple(filter(None, transcript.threads[name].turns)) for name in names},
        "some": {name: tuple(filter(None, transcript.threads[name].turns[1:3])) for name in names},
        "threads": names,
        "open": [n for n in names if coverage.pending(transcript.threads[n]) or coverage.parked(transcript.threads[n])],
        "heads": (store.head(ADA.stream(LEDGER)), store.head(ADA.stream(TRANSCRIPT))),
        "ends": (store.state(ADA.stream(LEDGER)).size, store.state(ADA.stream(TRANSCRIPT)).size),
        "turn count": transcript.turn_count,
        "said at": transcript.at,
    }


def around(store, ledger, moment):
    """The memory before and after the commit of a moment, and that commit."""
    after = memory_at(store, ADA, moment)
    if not after.seq:
        return Memory(), Memory(), None
    return memory_at(store, ADA, after.seq - 1), after, ledger[after.seq - 1]


def ranges(ledger):
    """Ranges of a timeline and numbers of buckets: bounds inside and outside of the log, as numbers and as times."""
    last = len(ledger)
    inner = [None, 0, 1, last // 2, last, last + 9, ledger[last // 3].at, "2000-01-01T00:00:00.000000Z"]
    outer = [None, 0, last // 2, last, ledger[last // 2].at, ledger[-1].at, "2099-01-01T00:00:00.000000Z"]
    return [(since, until, 1 + (n + m) % 9) for n, since in enumerate(inner) for m, until in enumerate(outer)]


def counted(ledger, since, until, buckets):
    """A timeline, by looking at each commit."""
    found = [c for c in ledger if not is_before(c, since) and not is_behind(c, until)]
    times = {c.seq: parse_moment(c.at) for c in found}
    start = parse_moment(since) if isinstance(since, str) else min(times.values(), default=None)
    end = parse_moment(until) if isinstance(until, str) else max(times.values(), default=None)
    kinds = lambda some: dict(Counter(c.cause.kind for c in some))  # noqa: E731
    stretches = {}
    if found:
        span = (end - start) // timedelta(microseconds=1)
        edges = [start + timedelta(microseconds=n * span // buckets) for n in range(buckets)]
        for c in found:
            stretches.setdefault(max(n for n, edge in enumerate(edges) if edge <= times[c.seq]), []).append(c)
    return Timeline(
        len(found),
        CommitTime(found[0].seq, found[0].at) if found else None,
        CommitTime(found[-1].seq, found[-1].at) if found else None,
        None if start is None else spell_moment(start),
        None if end is None else spell_moment(end),
        kinds(found),
        tuple(
            TimelineBucket(
                spell_moment(edges[n]), within[0].seq, len(within), dict(Counter(c.cause.kind for c in within))
            )
            for n, within in sorted(stretches.items())
        ),
    )


def is_before(commit, since):
    return since is not None and (commit.at if isinstance(since, str) else commit.seq) < since


def is_behind(commit, until):
    return until is not None and (commit.at if isinstance(until, str) else commit.seq) > until


def used(ledger):
    """What models did by day, by looking at each commit."""
    found = {}
    for cause, day in ((c.cause, c.at[:10]) for c in ledger):
        if cause.model is not None:
            found.setdefault((day, cause.model), []).append((1, cause.tokens_in or 0, cause.tokens_out or 0))
    return ModelUsage(
        tuple(DayUsage(*key, *map(sum, zip(*counts, strict=True))) for key, counts in sorted(found.items()))
    )


def answers(index, known):
    """The same, from an index; `known` names what to ask about."""
    origin = index.origin()
    assert origin is not None
    opened = list(index.unsettled(origin))
    assert set(opened) >= set(known["open"])
    return {
        "memory": index.memory(),
        "at": {seq: index.memory_at(seq) for seq in known["at"]},
        "times": {at: index.memory_at(at) for at in known["times"]},
        "when": {at: list(index.memories_when(at)) for at in known["when"]},
        "around": {moment: msgspec.structs.astuple(index.around(moment)) for moment in known["around"]},
        "timelines": {asked: index.timeline(*asked) for asked in known["timelines"]},
        "usage": index.usage(None, None),
        "since": {at: index.first_since(at) for at in known["since"]},
        "commits": [index.commit(seq) for seq in range(1, index.last() + 1)],
        "newest": list(index.newest()),
        "about": {fact: list(index.commits_about(fact)) for fact in known["about"]},
        "of": {
            name: [c for c in reversed(list(index.commits_of(name, newest_first=True))) if c.cause.thread == name]
            for name in known["of"]
        },
        "found": {prefix: asked(index, prefix) for prefix in known["found"]},
        "places": {name: tuple(map(list, index.places(name, origin))) for name in known["places"]},
        "turns": {name: index.turns(name) for name in known["turns"]},
        "some": {name: index.turns(name, TurnRange(2, 3)) for name in known["some"]},
        "threads": list(index.threads(origin)),
        "open": [name for name in opened if name in known["open"]],
        "heads": (origin.ledger, origin.transcript),
        "ends": (origin.ledger_end, origin.transcript_end),
        "turn count": origin.turns,
        "said at": origin.transcript_at,
    }


def moments(ledger):
    times = sorted({commit.at for commit in ledger})
    return [*times, *(at.replace(".", ".5") for at in times), "2000", "9"]


def prefixes(ids):
    return sorted({*ids, *(fact[:-1] for fact in ids), "", "fact", "nothing"})


def named_by(ids, prefix):
    if prefix in ids:
        return prefix
    found = [fact for fact in ids if prefix and fact.startswith(prefix)]
    return found[0] if len(found) == 1 else (UsageError if found else NotFoundError)


def asked(index, prefix):
    try:
        return index.find_fact(prefix)
    except (UsageError, NotFoundError) as error:
        return type(error)


def assert_right(index, home, known=None):
    known = truth(home) if known is None else known
    told = answers(index, known)
    for question in known:
        assert told[question] == known[question], question
    assert told.keys() == known.keys()


# What it says.


@pytest.mark.slow
@given(seeds=st.lists(st.integers(0, 1 << 30), min_size=1, max_size=25), data=st.data())
@settings(max_examples=examples(1 / 4))
def test_whatever_happened_the_index_says_what_the_logs_say(tmp_path_factory, seeds, data):
    home = tmp_path_factory.mktemp("home")
    with tiny_pages():
        life = Life(home)
        life.memory().add_fact("Ada runs")
        life.learn("tea")
        indexes = [index_of(home, door.store) for door in life.doors]
        for seed in seeds:
            life.step(seed)
            match data.draw(st.integers(0, 7)):
                case 0 | 1:
                    indexes[seed % 2].follow()
                case 2:
                    file_of(home).unlink(missing_ok=True)
                case 3:
                    assert_right(indexes[seed % 2], home)
                case 4:
                    flip(file_of(home), data.draw(st.integers(0, 1 << 20)), data.draw(st.integers(1, 255)))
                case 5:
                    indexes[seed % 2] = index_of(home)
                case _:
                    pass
        for index in (*indexes, index_of(home)):
            assert_right(index, home)
            assert index.differs() == []
        for door in life.doors:
            door.close()


def test_an_index_that_caught_up_by_and_by_is_the_one_that_is_built_at_once(tmp_path, tiny):
    life, index = Life(tmp_path / "source"), index_of(tmp_path)
    for seed in range(60):
        life.step(seed)
        follow(life.home, tmp_path)
        index.follow()
    by_and_by = contents(file_of(tmp_path))
    file_of(tmp_path).unlink()
    index.follow()
    assert contents(file_of(tmp_path)) == by_and_by


def test_checkpoints_lie_no_nearer_to_each_other_than_is_stated(tmp_path, tiny):
    Life(tmp_path).live(60)
    index_of(tmp_path).follow()
    kept = [value for _, value in contents(file_of(tmp_path))[Table.CHECKPOINTS]]
    ends = [0, *(msgspec.msgpack.decode(value, type=Checkpoint).end for value in kept)]
    assert len(ends) > 3
    assert all(later - earlier >= 2_500 for earlier, later in pairwise(ends))


def contents(path):
    kv = ChecksummedKV(path)
    return {space: list(kv.ascending(space)) for space in Table}


def test_what_is_far_behind_catches_up_beside_the_file_and_takes_its_place_whole(tmp_path, tiny, monkeypatch):
    life = Life(tmp_path / "source").live(20)
    follow(life.home, tmp_path)
    index = index_of(tmp_path)
    index.follow()
    life.live(80, seed=7)
    follow(life.home, tmp_path)
    saved = []
    save = ChecksummedKV.save
    monkeypatch.setattr(ChecksummedKV, "save", lambda kv, path: saved.append(path) or save(kv, path))
    assert_right(index, tmp_path)
    assert [path.name for path in saved] == ["index.sqlite.new"]
    assert index.differs() == []


def test_the_beginning_of_an_id_that_many_facts_share_is_told_without_reading_all(tmp_path, tiny):
    life, index = Life(tmp_path), index_of(tmp_path)
    for n in range(9):
        life.memory().add_fact(f"note {n}")
    with pytest.raises(UsageError, match="begins the ids of 9 facts, fact_2_0 and fact_3_0 among them"):
        index.find_fact("fact_")


def test_a_fact_whose_id_begins_anothers_is_found_by_its_whole_id(tmp_path, tiny):
    life = Life(tmp_path)
    for n in range(5):
        life.memory().add_fact(f"note {n}")
    index = index_of(tmp_path)
    assert index.find_fact("fact_2_0") == "fact_2_0"
    fact = next(event.fact for event in index.commit(2).events if isinstance(event, FactAdded))
    append(tmp_path, Cause(kind="import"), FactAdded(msgspec.structs.replace(fact, id="fact_2_0c")))
    assert index.find_fact("fact_2_0") == "fact_2_0"
    assert index.find_fact("fact_2_0c") == "fact_2_0c"
    with pytest.raises(UsageError, match="2 facts, fact_2_0 and fact_2_0c"):
        index.find_fact("fact_2_")


@given(st.lists(st.text(alphabet="a\0b\xff\U0010ffff", max_size=4), unique=True, max_size=12))
def test_names_are_spelled_apart_and_found_by_their_beginnings(names):
    keys = {named(name) + b"\0" * 8: name for name in names}
    assert len(keys) == len(names)
    for key, name in keys.items():
        assert name_of(key) == named(name)
        for other in names:
            assert key.startswith(named(other)) == (name == other)
            assert key.startswith(beginning(other)) == (named(name).startswith(beginning(other)))
            assert not name.startswith(other) or key.startswith(beginning(other))


# Commits by time, and what models did.


def test_commits_that_go_back_in_time_are_counted_where_they_belong(tmp_path, tiny):
    Life(tmp_path).memory().add_fact("Ada runs")
    for n in range(23):
        at = f"2026-02-{1 + n * 7 % 28:02}T00:00:0{n % 3}.000000Z"
        append(tmp_path, Cause(kind=("manual", "clear")[n % 5 == 0]), at=at)
    assert_right(index_of(tmp_path), tmp_path)
    whole = index_of(tmp_path).timeline(None, None, 7)
    assert sum(bucket.commits for bucket in whole.buckets) == whole.commits == 25
    assert (whole.first.seq, whole.last.seq) == (1, 25)
    assert whole.since == "2026-02-01T00:00:00.000000Z"


def test_a_time_that_is_none_and_a_kind_of_a_later_version_are_counted(tmp_path):
    Life(tmp_path).memory().add_fact("Ada runs")
    append(tmp_path, Cause(kind="of a later version"), at="soon")
    found = index_of(tmp_path).timeline(None, None, 3)
    assert found.kinds == {"genesis": 1, "manual": 1, "of a later version": 1}
    assert found.since == "1970-01-01T00:00:00.000000Z"


def test_tokens_are_counted_by_day_and_model(tmp_path, tiny):
    Life(tmp_path).memory().add_fact("Ada runs")
    calls = [("2026-03-02", "b"), ("2026-03-01", "a"), ("2026-03-02", "a"), ("2026-03-02", "b"), ("2026-03-03", None)]
    index = index_of(tmp_path)
    for day, model in calls:
        cause = Cause(kind="extraction", model=model, tokens_in=100, tokens_out=None if model == "a" else 7)
        append(tmp_path, cause, at=f"{day}T23:59:59.000000Z")
        index.follow()
    days = [
        DayUsage("2026-03-01", "a", 1, 100, 0),
        DayUsage("2026-03-02", "a", 1, 100, 0),
        DayUsage("2026-03-02", "b", 2, 200, 14),
        DayUsage("2026-03-03", None, 1, 100, 7),
    ]
    assert index.usage(None, None).days == tuple(days)
    assert index.usage("2026-03-02", "2026-03-02").days == tuple(days[1:3])
    assert index.usage("2026-03-04", None).days == index.usage(None, "2026-02-28").days == ()
    assert index.differs() == []


# What it costs.


class Counted(JsonlStore):
    """Counts the lines that are read."""

    lines = 0

    def read(self, stream, after=0, *, byte=None):
        for record in super().read(stream, after, byte=byte):
            self.lines += 1
            yield record


def test_a_warm_index_is_opened_without_reading_a_line(tmp_path, tiny):
    Life(tmp_path).live(60)
    index_of(tmp_path).follow()
    store = Counted(tmp_path)
    index = index_of(tmp_path, store)
    assert index.origin().memory == memory_at(JsonlStore(tmp_path), ADA, index.last())
    assert store.lines == 0


def test_an_index_tells_of_which_logs_it_is(tmp_path, tiny):
    life = Life(tmp_path)
    store = JsonlStore(tmp_path)

    def firsts():
        return tuple(
            next((hash_of(record.line) for record in store.read(ADA.stream(kind))), "") for kind in (LEDGER, TRANSCRIPT)
        )

    life.memory().record("t", exchange("rain", 1))
    assert index_of(tmp_path).origin().firsts == firsts()
    assert firsts()[0] == "" != firsts()[1]
    for seed in range(3):
        life.live(20, seed=seed)
        assert index_of(tmp_path).origin().firsts == firsts()
    assert "" not in firsts()


def test_a_thread_is_looked_up_in_an_index_that_is_behind(tmp_path, tiny, monkeypatch):
    life = Life(tmp_path).live(60)
    index = index_of(tmp_path)
    origin = index.origin()
    before = {name: index.places(name, origin) for name in ("t0", "t1", "quiet")}
    life.live(40, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(IndexFile, "_renewed", lambda _: pytest.fail("where lines were said to be was known already"))
        assert {name: index.places(name, origin) for name in before} == before
        assert index.places("never", origin) == ([], [])
    later = index.origin()
    assert later.transcript.seq > origin.transcript.seq
    assert index.places("t0", later) != before["t0"]
    assert index.places("t0", origin) == before["t0"]


def test_an_index_that_does_not_reach_a_moment_is_brought_there(tmp_path, tiny):
    life = Life(tmp_path).live(60)
    behind = tmp_path / "behind"
    shutil.copytree(tmp_path / ADA.folder, behind / ADA.folder)
    index_of(behind).follow()
    life.live(40, seed=1)
    follow(tmp_path, behind)
    ahead = index_of(tmp_path)
    origin = ahead.origin()
    assert ahead.places("t0", origin)[1]
    assert index_of(behind).places("t0", origin) == ahead.places("t0", origin)


def test_refusals_are_kept_in_the_same_order_by_every_process():
    block = RefusalBlock()
    block.add(2, 0, "Ada plays chess with her brother on Sunday evenings in Bergen")
    words = [word for word in block.words if not word.startswith("=")]
    assert words == sorted(words)


def test_an_index_of_what_was_only_said_differs_in_nothing(tmp_path, tiny):
    memory = Life(tmp_path).memory()
    for n in range(4):
        memory.record("t", exchange("rain", n))
        index_of(tmp_path).follow()
        assert index_of(tmp_path).differs() == []


def test_what_is_said_behind_a_clear_that_came_between_the_two_looks_is_not_cleared(tmp_path, tiny, monkeypatch):
    memory = Life(tmp_path).memory()
    memory.record("t", exchange("rain"))
    index_of(tmp_path).follow()
    memory.record("t", exchange("wind"), mode="append")
    between = []

    class Between(JsonlStore):
        """A clear and a new conversation come as soon as the end of the ledger is known."""

        def durable_head(self, stream):
            head = super().durable_head(stream)
            if between and stream == ADA.stream(LEDGER):
                between.clear()
                memory.clear()
                memory.record("t", exchange("snow"), mode="append")
            return head

    run = IndexBuilder.run
    with monkeypatch.context() as patch:
        patch.setattr(IndexBuilder, "run", lambda *args: between.append(True) or run(*args))
        index_of(tmp_path, Between(tmp_path)).follow()
    assert (between, memory.status().seq) == ([], 2)
    index = index_of(tmp_path)
    index.follow()
    assert index.differs() == []
    by_and_by = contents(file_of(tmp_path))
    file_of(tmp_path).unlink()
    index.follow()
    assert contents(file_of(tmp_path)) == by_and_by


def test_a_narrow_question_reads_few_lines(tmp_path, tiny):
    life = Life(tmp_path)
    for n in range(150):
        life.learn(f"tea {n}")
    index_of(tmp_path).follow()
    store = Counted(tmp_path)
    index = index_of(tmp_path, store)
    questions = [
        lambda: index.memory_at(70),
        lambda: index.around(70),
        lambda: index.around(index.commit(70).at),
        lambda: index.commit(70),
        lambda: list(index.commits_about("fact_70_0")),
        lambda: next(index.newest()),
        lambda: index.turns("t", TurnRange(71, 72)),
        lambda: index.first_since(index.commit(70).at),
    ]
    read = []
    for question in questions:
        store.lines = 0
        question()
        read.append(store.lines)
    # Where a checkpoint happens to stand on the very moment asked for, nothing needs to be read.
    assert max(read) < 25
    assert min(read[1:]) > 0


def test_progress_is_told_up_to_the_whole(tmp_path, tiny):
    Life(tmp_path).live(40)
    told = []
    told_to = lambda *step: told.append(step)  # noqa: E731
    ScopeIndex(JsonlStore(tmp_path), ADA, file_of(tmp_path), progress=told_to, small=1).follow()
    done, totals = [step[0] for step in told], {step[1] for step in told}
    assert done == sorted(done)
    assert len(done) > 3
    assert totals == {log_of(tmp_path).stat().st_size + log_of(tmp_path, TRANSCRIPT).stat().st_size}
    assert done[-1] in totals


# Small ones, and places that cannot be written.


def test_a_small_scope_has_no_file_and_is_answered_all_the_same(tmp_path):
    life, index = Life(tmp_path).live(20), ScopeIndex(JsonlStore(tmp_path), ADA, file_of(tmp_path))
    assert index.origin() is None
    assert index.memory_at(3) == memory_at(JsonlStore(tmp_path), ADA, 3)
    life.memory(1).add_fact("Ada swims")
    assert index.memory() == memory_at(JsonlStore(tmp_path), ADA, index.last())
    index.follow()
    assert not list(file_of(tmp_path).parent.glob("index*"))


def test_an_empty_scope_says_that_nothing_was(tmp_path):
    index = index_of(tmp_path)
    assert (index.memory(), index.memory_at("2026-01-01"), index.last()) == (Memory(), Memory(), 0)
    assert index.timeline(None, None, 9) == index.timeline(1, 5, 9) == Timeline(0, None, None, None, None, {}, ())
    assert index.usage(None, "2099-01-01") == ModelUsage(())
    assert [index.around(moment) for moment in (None, 0, "2026")] == 3 * [Around(Memory(), Memory(), None)]
    assert (list(index.newest()), index.first_since("2026"), index.turns("t")) == ([], 1, ())
    for question in (index.memory_at, index.around):
        with pytest.raises(NotFoundError, match="ends at 0"):
            question(1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN])
def test_where_the_file_cannot_be_written_a_process_indexes_for_itself(tmp_path, tiny, monkeypatch, caplog, code):
    life = Life(tmp_path).live(30)

    def refuse(*_):
        error = sqlite3.OperationalError("the disk says no")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(ChecksummedKV, "save", refuse)
    index = index_of(tmp_path)
    assert index.memory_at(3) == memory_at(JsonlStore(tmp_path), ADA, 3)
    assert index.origin() is None
    life.memory().add_fact("Ada swims")
    assert list(index.newest()) == list(read_commits(JsonlStore(tmp_path), ADA.stream(LEDGER)))[::-1]
    assert caplog.text.count("the disk says no") == 1
    assert [path.name for path in file_of(tmp_path).parent.glob("index*")] == ["index.lock"]


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path, tiny, monkeypatch, caplog):
    Life(tmp_path).live(30)
    real = os.open

    def refuse(path, flags, *more, **others):
        if str(path).endswith("index.lock") and flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return real(path, flags, *more, **others)

    monkeypatch.setattr("backstory.projections.derived_files.os.open", refuse)
    index = index_of(tmp_path)
    assert index.memory_at(3) == memory_at(JsonlStore(tmp_path), ADA, 3)
    assert "Read-only file system" in caplog.text
    monkeypatch.setattr("backstory.projections.derived_files.os.open", real)
    index_of(tmp_path).follow()
    monkeypatch.setattr("backstory.projections.derived_files.os.open", refuse)
    assert index_of(tmp_path).origin() is not None


# Damage to the file.


def flip(path, place, change=0xFF):
    if path.exists():
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= change
        # In place: those that have it open see it.
        with path.open("r+b") as file:
            file.write(data)


@pytest.mark.slow
@PATIENT
def test_no_flipped_byte_in_the_file_makes_it_say_what_is_not_so(tmp_path, tiny):
    flips = sized(8, 250)
    life = Life(tmp_path).live(45)
    life.learn("tea")
    index_of(tmp_path).follow()
    sound, known = file_of(tmp_path).read_bytes(), truth(tmp_path)
    chance = random.Random(3)  # noqa: S311 the same in every run
    told = 0
    for _ in range(flips):
        file_of(tmp_path).write_bytes(sound)
        flip(file_of(tmp_path), chance.randrange(len(sound)), chance.randrange(1, 256))
        told += bool(index_of(tmp_path).differs())
        assert answers(index_of(tmp_path), known) == known
    assert told > flips / 3


@pytest.mark.parametrize("what", ["LEARNED", "FACTS", "CHECKPOINTS", "THREADS", "SAID", "TIMES"])
def test_verify_finds_an_entry_that_is_not_what_the_log_says(tmp_path, tiny, what):

    life = Life(tmp_path).live(40)
    life.learn("tea")
    index = index_of(tmp_path)
    index.follow()
    assert index.differs() == []
    before = file_of(tmp_path).read_bytes()
    kv = ChecksummedKV(file_of(tmp_path))
    key, _ = next(kv.ascending(Table[what]))
    kv.write({Table[what]: {key: None}})
    kv.close()
    changed = file_of(tmp_path).read_bytes()
    (told,) = index.differs()
    assert "differ from the log" in told
    assert before != changed == file_of(tmp_path).read_bytes()


def test_verify_finds_a_flipped_byte_in_a_leaf_and_mends_nothing(tmp_path, tiny):
    Life(tmp_path).live(40)
    index_of(tmp_path).follow()
    data = file_of(tmp_path).read_bytes()
    with sqlite3.connect(file_of(tmp_path)) as db:
        leaves = [row[0] for row in db.execute("SELECT data FROM leaf WHERE length(data) > 40")]
    db.close()
    # SQLite leaves bytes behind where it has moved a row within a page: what is there twice may be one of those.
    found = [data.find(leaf[:30]) for leaf in leaves if data.count(leaf[:30]) == 1]
    for place in [place for place in found if place >= 0][::4]:
        file_of(tmp_path).write_bytes(data)
        flip(file_of(tmp_path), place + 10)
        broken = file_of(tmp_path).read_bytes()
        assert index_of(tmp_path).differs() == ["a checksum does not match"]
        assert file_of(tmp_path).read_bytes() == broken


def test_verify_says_nothing_of_a_missing_index_or_one_of_another_version(tmp_path, tiny):
    Life(tmp_path).live(10)
    assert index_of(tmp_path).differs() == []
    index_of(tmp_path).follow()
    rewrite_tip(file_of(tmp_path), version=VERSION + 1)
    assert index_of(tmp_path).differs() == []


def rewrite_tip(path, **changes):
    from backstory.projections.index.index_file import tip_of
    from backstory.projections.index.kv import pack

    kv = ChecksummedKV(path)
    kv.write({Table.TIP: {b"": pack(msgspec.structs.replace(tip_of(kv), **changes))}})
    kv.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b""), marks=pytest.mark.torture),
        pytest.param(lambda path: path.write_bytes(b"no database" * 1000), marks=pytest.mark.torture),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.unlink(),
        lambda path: rewrite_tip(path, version=VERSION + 1),
        lambda path: rewrite_tip(path, scope=Scope("bob")),
        pytest.param(
            lambda path: sqlite3.connect(path).executescript("DROP TABLE leaf").close(), marks=pytest.mark.torture
        ),
        lambda path: sqlite3.connect(path).executescript("DELETE FROM leaf WHERE space = 6").close(),
        lambda path: sqlite3.connect(path).executescript("UPDATE leaf SET lo = x'61' WHERE space = 0").close(),
    ],
    ids=["empty", "text", "cut", "gone", "version", "another's", "no table", "no leaves", "bounds"],
)
def test_a_file_that_is_damaged_or_gone_is_built_anew(tmp_path, tiny, caplog, damage):
    life = Life(tmp_path).live(40)
    life.learn("tea")
    index, fresh = index_of(tmp_path), index_of(tmp_path)
    index.follow()
    gone, known = damage(file_of(tmp_path)) is None and not file_of(tmp_path).exists(), truth(tmp_path)
    assert_right(fresh, tmp_path, known)
    assert ("is built anew" in caplog.text) != gone
    assert_right(index, tmp_path, known)
    assert index.differs() == []


def test_a_line_that_is_not_the_one_meant_is_never_told(tmp_path, tiny, caplog):
    from backstory.projections.index.kv import pack
    from backstory.projections.index.schema import ReadingMark, Table

    Life(tmp_path).live(60)
    index = index_of(tmp_path)
    index.follow()
    kv = ChecksummedKV(file_of(tmp_path))
    marks = list(kv.ascending(Table.LEDGER_MARKS))
    kv.write({Table.LEDGER_MARKS: {marks[2][0]: pack(ReadingMark(0, EMPTY.hash))}})
    kv.close()
    assert_right(index, tmp_path)
    assert "not where it should be" in caplog.text


def test_damage_to_the_log_behind_the_index_is_the_logs(tmp_path, tiny):
    life = Life(tmp_path).live(40)
    life.memory().add_fact("Ada swims")
    index = index_of(tmp_path)
    index.follow()
    whole = log_of(tmp_path).read_bytes()
    place = whole.index(b"Ada ", len(whole) // 2)
    seq = whole.count(b"\n", 0, place) + 1
    flip(log_of(tmp_path), place, 1)
    with pytest.raises(CorruptLogError, match=f"line {seq} at byte"):
        index.commit(seq)
    assert index.differs() == []


# Logs that are others than they were.


def test_a_log_that_was_stored_anew_is_read_anew(tmp_path, tiny, caplog):
    Life(tmp_path).live(40)
    index = index_of(tmp_path)
    index.follow()
    shutil.copy(log_of(tmp_path), tmp_path / "copy")
    (tmp_path / "copy").replace(log_of(tmp_path))
    assert_right(index, tmp_path)
    assert "was stored anew" in caplog.text


def test_a_log_whose_tail_was_cut_off_is_read_anew_and_that_is_said(tmp_path, tiny, caplog):
    Life(tmp_path).live(40)
    index = index_of(tmp_path)
    index.follow()
    lines = log_of(tmp_path).read_bytes().splitlines(keepends=True)
    log_of(tmp_path).write_bytes(b"".join(lines[:-3]))
    assert index_of(tmp_path).last() == len(lines) - 3
    assert "was its tail cut off?" in caplog.text


def test_a_log_that_goes_on_from_another_past_is_read_anew(tmp_path, tiny, caplog):
    life = Life(tmp_path / "a").live(20)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    index = index_of(tmp_path / "a")
    index.follow()
    for n in range(3):
        life.memory().add_fact(f"here {n}")
    index.follow()
    other = Life(tmp_path / "b", clock=life.clock)
    for n in range(5):
        other.memory().add_fact(f"there {n}")
    # With the note of what is durable: `life` may hold the lock just now, and then only the note tells.
    for name in ("ledger.lock", "ledger.jsonl"):
        (tmp_path / "a" / ADA.folder / name).write_bytes((tmp_path / "b" / ADA.folder / name).read_bytes())
    fresh = index_of(tmp_path / "a")
    assert_right(fresh, tmp_path / "a")
    assert "is another one after commit" in caplog.text


def test_a_scope_that_was_moved_into_anothers_place_is_not_believed(tmp_path, tiny):
    Life(tmp_path).live(20)
    index_of(tmp_path).follow()
    (tmp_path / ADA.folder).rename(tmp_path / Scope("bob").folder)
    bob = ScopeIndex(JsonlStore(tmp_path), Scope("bob"), tmp_path / Scope("bob").folder / "index.sqlite")
    with pytest.raises(CorruptLogError, match="is the log of user ada, not of user bob"):
        bob.origin()


def test_a_redacted_log_is_read_anew_and_nothing_is_kept_before_the_erasure_is_complete(tmp_path, tiny):
    life = Life(tmp_path / "source")
    for n in range(25):
        life.learn(f"tea {n}")
    life.memory().add_fact("a secret word")
    for n in range(25):
        life.learn(f"rain {n}")
    follow(life.home, tmp_path)
    index, other = index_of(tmp_path), index_of(tmp_path)
    index.follow()
    slots = [
        (c.seq, n) for c in index.commits_about("fact_27_0") for n, e in enumerate(c.events) if "secret" in repr(e)
    ]
    redact(tmp_path, *(Redacted(ADA.stream(LEDGER), *slot, "fact", fact="fact_27_0") for slot in slots))
    assert "fact_27_0" not in index.memory().facts
    assert index.origin() is None
    assert other.memory_at("9").seq == index.last()
    assert not file_of(tmp_path).exists()
    append(tmp_path, Cause(kind="manual", actor="ada"))
    assert index.last() == other.last() == 54
    assert not file_of(tmp_path).exists()
    complete(tmp_path, slots)
    for one in (index, other):
        assert_right(one, tmp_path)
        assert one.origin() is not None
    assert b"secret" not in file_of(tmp_path).read_bytes()
    assert not any("secret" in repr(one.memory_at(n)) for one in (index, other) for n in range(index.last()))
    assert index.find_fact("fact_27") == "fact_27_0"


def test_a_redaction_of_what_is_not_there_keeps_no_index_out_of_its_file(tmp_path, tiny):
    Life(tmp_path).live(20)
    index = index_of(tmp_path)
    index.follow()
    redact(
        tmp_path,
        Redacted("another/ledger", 1, 0, "fact"),
        Redacted(ADA.stream(LEDGER), 2, 99, "fact"),
        Redacted(ADA.stream(TRANSCRIPT), 10_000, 0, "turn"),
    )
    assert index.origin() is not None
    assert index.differs() == []


def redact(home, *events):
    append(home, Cause(kind="redaction", actor="ada"), *events)


def append(home, cause, *events, at="2026-03-02T12:00:00.000000Z"):
    store = JsonlStore(home)
    head = store.head(ADA.stream(LEDGER))
    line = seal(Draft(at, cause, events), head, CountingSalts())
    store.append(ADA.stream(LEDGER), [line], head.seq)


def complete(home, slots):
    store = JsonlStore(home)
    lines = {seq: next(store.read(ADA.stream(LEDGER), seq - 1)).line for seq, _ in slots}
    erased = {seq: erase(line, {index for at, index in slots if at == seq}) for seq, line in lines.items()}
    with store.locked(ADA.stream(LEDGER)):
        store.redact(ADA.stream(LEDGER), erased)


# Taking it away, and others who have it in use.


def test_deleting_takes_away_the_file_and_all_that_was_left_beside_it(tmp_path, tiny):
    Life(tmp_path).live(20)
    index, other = index_of(tmp_path), index_of(tmp_path)
    for one in (index, other):
        one.follow()
    for left in ("-journal", ".new", ".new-journal"):
        file_of(tmp_path).with_name(f"index.sqlite{left}").write_bytes(b"secret")
    index.purge()
    assert [path.name for path in file_of(tmp_path).parent.glob("index*")] == ["index.lock"]
    assert_right(other, tmp_path)
    index.purge()
    index.follow()
    assert_right(other, tmp_path)
    assert other._file.inode == file_of(tmp_path).stat().st_ino
    index.purge()
    index_of(tmp_path / "nowhere").purge()
    assert not (tmp_path / "nowhere").exists()


def test_deleting_waits_for_those_who_have_it_in_use(tmp_path, tiny):
    Life(tmp_path).live(20)
    index_of(tmp_path).follow()
    held = os.open(file_of(tmp_path).with_name("index.lock"), os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_SH)
    clock = FakeClock()
    file = IndexFile(JsonlStore(tmp_path), ADA, file_of(tmp_path), lock_timeout=5, clock=clock)
    with pytest.raises(LockTimeoutError, match=r"index\.lock is held by another process after 5 s"):
        file.purge()
    assert sum(clock.slept) >= 5
    assert file.ask(lambda at: at.tip.ledger.head.seq) > 0
    assert file_of(tmp_path).exists()
    os.close(held)
    file.purge()
    assert not file_of(tmp_path).exists()


def test_the_file_is_for_its_owner_only(tmp_path, tiny):
    Life(tmp_path).live(20)
    index_of(tmp_path).follow()
    modes = {path.name: path.stat().st_mode & 0o777 for path in file_of(tmp_path).parent.glob("index*")}
    assert modes == {"index.sqlite": 0o600, "index.lock": 0o600}


def ask_and_write(home, number):
    with tiny_pages():
        life = Life(home, doors=1, clock=FakeClock())
        index = index_of(home)
        for n in range(12):
            life.memory().record(f"t{number}", exchange(f"tea {number} {n}"))
            with suppress(BackstoryError):
                life.memory().add_fact(f"Ada owns {number} {n}", confidence=0.9 + n / 1000)
            if n % 5 == number:
                file_of(home).unlink(missing_ok=True)
            last = index.last()
            assert index.memory_at(last) == memory_at(JsonlStore(home), ADA, last)
            assert index.commit(last).seq == last


@pytest.mark.slow
def test_several_processes_write_ask_and_delete_at_once(tmp_path, tiny):
    Life(tmp_path).live(10)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ask_and_write, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    index = index_of(tmp_path)
    assert_right(index, tmp_path)
    assert index.differs() == []


def test_a_forked_process_lets_the_parents_connection_alone(tmp_path, tiny):
    life = Life(tmp_path).live(20)
    index = index_of(tmp_path)
    index.follow()
    last, opened = index.last(), index._file

    def child():
        index.renew()
        life.memory().add_fact("from the child")
        index.follow()
        os._exit(0 if index.last() == last + 1 and index._file is not opened else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert_right(index, tmp_path)


@pytest.mark.slow
def test_a_writer_killed_while_it_builds_leaves_nothing_believed(tmp_path, tiny):
    Life(tmp_path).live(40)

    def child():
        save = sqlite3.connect

        def dying(name, **more):
            if ".new?" in name:
                file_of(tmp_path).with_name("index.sqlite.new").write_bytes(b"half")
                os._exit(9)
            return save(name, **more)

        sqlite3.connect = dying
        index_of(tmp_path).follow()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 9
    assert_right(index_of(tmp_path), tmp_path)
    assert not list(file_of(tmp_path).parent.glob("*.new"))


# Leaves.


@given(
    st.lists(st.dictionaries(st.binary(max_size=3), st.none() | st.binary(max_size=60), max_size=30), max_size=6),
    st.binary(max_size=3),
)
def test_a_shelf_holds_what_a_dictionary_would(changes, key):
    with tiny_pages():
        kv, kept = ChecksummedKV.new([1, 2]), {}
        for change in changes:
            kv.write({1: change})
            kept |= change
        kept = {key: value for key, value in sorted(kept.items()) if value is not None}
        assert list(kv.ascending(1)) == list(kept.items())
        assert list(kv.ascending(1, key)) == [(k, v) for k, v in kept.items() if k >= key]
        assert list(kv.descending(1, key)) == [(k, v) for k, v in reversed(kept.items()) if k <= key]
        assert kv.get(1, key) == kept.get(key)
        assert list(kv.ascending(2)) == []
        kv.close()


def test_a_write_that_fails_leaves_what_was_there(tmp_path, tiny):
    kv = ChecksummedKV.new([1])
    kv.write({1: {b"a": b"1"}})
    with pytest.raises(DamagedError):
        kv.write({1: {b"a": b"2"}, 7: {b"a": b"2"}})
    assert kv.get(1, b"a") == b"1"


def undescribed(schema: object) -> object:
    """A schema without its docstrings, which change nothing on disk."""
    if isinstance(schema, dict):
        return {key: undescribed(value) for key, value in schema.items() if key != "description"}
    return [undescribed(value) for value in schema] if isinstance(schema, list) else schema


def test_what_a_checkpoint_holds_has_not_changed_without_the_version():
    kept = [
        *(Checkpoint, IndexPosition, ReadingMark, EndedPeriod, RefusalBlock),
        *(SaidLine, ThreadState, TimelineBlock, Trace, UsageCount),
    ]
    schema = msgspec.json.encode(undescribed(msgspec.json.schema_components(kept)[1]))
    assert (VERSION, zlib.crc32(schema)) == (18, 3591708375), (
        "raise VERSION in projections/index/schema.py, then note the new sum here"
    )


def test_facts_revised_and_refused_are_told_with_the_commits_about_them(tmp_path, tiny):
    life = Life(tmp_path)
    life.learn("tea")
    life.memory().edit_fact("fact_2_0", content="Ada loves tea")
    life.learn("rain", remove=("fact_2_0",))
    commits = list(index_of(tmp_path).commits_about("fact_2_0"))
    assert [commit.seq for commit in commits] == [2, 3, 4]
    assert isinstance(concerns(commits[1], "fact_2_0")[0], FactRevised)
