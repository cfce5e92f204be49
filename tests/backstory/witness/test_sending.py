"""Heads reach the witness behind the commits' back: batched, in nobody's way, made good after an outage or a kill."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, exchange, open_home
from places import LEDGER, USER, Memo, lines_of

from backstory.home import Backstory
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import EMPTY, Cause, Head
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.outbox.faults import Faults, ScopeFaults
from backstory.witness.sender import HeadSender, SentHeads

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

SCOPE = Scope(USER)
NEVER = 3600.0


class Bench:
    """A scope on disk, its writer, and the sender of its heads, which sends when it is told to."""

    def __init__(self, home: Path, memo: Memo, *, delay: float = NEVER, again: float = NEVER) -> None:
        self.memo, self.store = memo, JsonlStore(home)
        self.opened: set[Scope] = set()
        place = lambda scope: home / scope.folder / "memory.json"  # noqa: E731
        known: dict[Scope, ScopeFaults] = {}
        self.faults = Faults(
            FakeClock(),
            lambda scope: known.setdefault(
                scope, ScopeFaults(self.faults, scope, place(scope).with_name("faults.json"))
            ),
        )
        self.sent = SentHeads(place, memo.name)
        self.sender = HeadSender(
            self.store, memo, self.sent, self.faults, FakeClock(), opened=lambda: self.opened, delay=delay, again=again
        )
        self.writer = self.writer_of(SCOPE)

    def writer_of(self, scope: Scope) -> Writer:
        writer = Writer(self.store, scope, clock=FakeClock(), salts=CountingSalts(), listeners=[self.sender.note])
        self.opened.add(scope)
        self.sender.watch(scope)
        return writer

    def add(self, text: str, writer: Writer | None = None) -> Head:
        fact = NewFact(place="newFacts/0", content=text, confidence=0.9, by_hand=True)
        return (writer or self.writer).commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add")).head

    def say(self, text: str) -> None:
        self.writer.record("t", [Kept("user", text)], mode="append")


@pytest.fixture
def memo() -> Memo:
    return Memo()


@pytest.fixture
def make(tmp_path: Path, memo: Memo) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def one(**more: float) -> Bench:
        made.append(Bench(tmp_path, memo, **more))
        return made[-1]

    yield one
    memo.go_on.set()
    for bench in made:
        bench.sender.close(PATIENCE)


def until(condition: Callable[[], object]) -> None:
    """Wait for another thread; quick where all is well."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.001)


def test_many_commits_are_one_batch_with_the_newest_head(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make()
    heads = [bench.add(f"fact {n}") for n in range(20)]
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[21]]
    line = json.loads(memo.batches[0])
    assert line == {
        "v": 1,
        "user": "ada",
        "agent": None,
        "stream": LEDGER,
        "seq": 21,
        "hash": heads[-1].hash,
        "transcript": None,
        "at": "2026-03-01T12:00:00.000000Z",
    }
    assert bench.sender.flush(PATIENCE)
    assert len(memo.batches) == 1


def test_a_batch_has_a_line_for_each_scope(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make()
    others = [bench.writer_of(Scope(f"user-{n}")) for n in range(3)]
    for writer in others:
        bench.add("runs", writer)
    assert bench.sender.flush(PATIENCE)
    assert [json.loads(line)["user"] for line in memo.batches[0].splitlines()] == ["user-0", "user-1", "user-2"]


def test_it_is_sent_by_itself_after_a_moment(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make(delay=0.001)
    bench.add("runs")
    until(lambda: memo.seqs[-1:] == [[2]])


def test_the_transcript_goes_along_and_alone(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make()
    bench.say("hello")
    assert bench.sender.flush(PATIENCE)
    said = bench.store.head("users/ada/transcript")
    line = json.loads(memo.batches[0])
    assert (line["seq"], line["hash"], line["transcript"]) == (0, EMPTY.hash, {"seq": 1, "hash": said.hash})
    bench.add("runs")
    assert bench.sender.flush(PATIENCE)
    line = json.loads(memo.batches[1])
    assert (line["seq"], line["transcript"]["seq"]) == (2, 1)
    # Nothing notes what is only recorded: it is found when somebody waits for it.
    bench.say("more")
    assert bench.sender.flush(PATIENCE)
    assert json.loads(memo.batches[2])["transcript"]["seq"] == 2


def test_an_empty_scope_is_not_sent_and_leaves_no_trace(tmp_path: Path, memo: Memo) -> None:
    bench = Bench(tmp_path / "home", memo)
    assert bench.sender.close(PATIENCE)
    assert memo.tried == 0
    assert not (tmp_path / "home").exists()


def test_what_is_not_synced_is_not_witnessed(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line whose sync fails is cut off again: a head that was told before would be missing for ever."""
    bench = make()
    bench.add("runs")
    said = threading.Event()
    real = os.fdatasync

    def failing(descriptor: int) -> None:
        if threading.current_thread().name == "speaker":
            said.set()
            started.wait(PATIENCE)
            raise OSError(5, "planted")
        real(descriptor)

    started = threading.Event()
    monkeypatch.setattr("os.fdatasync", failing)

    def speak() -> None:
        with pytest.raises(StoreError):
            bench.say("lost")

    speaker = threading.Thread(target=speak, name="speaker")
    speaker.start()
    said.wait(PATIENCE)
    flusher = threading.Thread(target=bench.sender.flush, args=(PATIENCE,))
    flusher.start()
    # The sender is about to look, or has; the lock on the stream keeps it from what is being written.
    flusher.join(0.05)
    started.set()
    speaker.join()
    flusher.join()
    assert bench.store.head("users/ada/transcript") == EMPTY
    assert [json.loads(batch)["transcript"] for batch in memo.batches] == [None]


# Outages.


def test_a_witness_that_hangs_holds_no_commit_up(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make(delay=0.001)
    memo.go_on.clear()
    bench.add("fact 0")
    assert memo.asked.wait(PATIENCE)
    for n in range(1, 10):
        bench.add(f"fact {n}")
        bench.say(f"word {n}")
    assert bench.writer.head.seq == 11
    assert not bench.sender.flush(0)
    memo.go_on.set()
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs[-1] == [11]


def test_after_an_outage_it_catches_up_with_the_newest_head(
    make: Callable[..., Bench], memo: Memo, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make()
    memo.fails = True
    with caplog.at_level(logging.WARNING):
        for n in range(3):
            bench.add(f"fact {n}")
            assert not bench.sender.flush(PATIENCE)
    assert memo.tried == 3
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "memo is out" in told[0]
    fault = bench.faults.of(SCOPE)[0]
    assert (fault.doing, fault.kind, fault.count) == ("witness", "Planned", 3)
    assert "memo is out" in fault.detail
    memo.fails = False
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[4]]
    memo.fails = True
    bench.add("fact 3")
    with caplog.at_level(logging.WARNING):
        assert not bench.sender.flush(PATIENCE)
    assert len([record for record in caplog.records if "memo is out" in record.getMessage()]) == 2


def test_an_outage_is_made_good_without_a_further_commit(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make(again=0.001)
    memo.fails = True
    bench.add("runs")
    assert not bench.sender.flush(PATIENCE)
    memo.fails = False
    until(lambda: memo.seqs)
    assert memo.seqs == [[2]]


def test_an_outage_is_tried_a_few_times_and_then_left_for_a_while(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.witness.sender._RETRY_SECONDS", (0.001, 0.002))
    bench = make(delay=0.001)
    memo.fails = True
    bench.add("runs")
    until(lambda: bench.sender._ready_at - time.monotonic() > NEVER / 2)
    assert (memo.tried, bench.faults.of(SCOPE)[0].count) == (3, 1)
    bench.add("swims")
    assert memo.tried == 3


def test_an_outage_that_passes_at_a_retry_is_no_fault(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(delay=0.001)
    monkeypatch.setattr("backstory.witness.sender._RETRY_SECONDS", (0.001, 0.002))
    real = memo.append

    def fails_twice(lines: bytes) -> None:
        memo.fails = memo.tried < 2
        real(lines)

    monkeypatch.setattr(memo, "append", fails_twice)
    bench.add("runs")
    until(lambda: memo.seqs)
    assert (memo.tried, memo.seqs) == (3, [[2]])
    assert bench.faults.of(SCOPE) == ()


def test_an_outage_of_many_memories_is_logged_once_and_counted_in_each(
    make: Callable[..., Bench], memo: Memo, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make()
    memo.fails = True
    scopes = [Scope(f"user-{n}") for n in range(3)]
    writers = [bench.writer_of(scope) for scope in scopes]
    for writer in writers:
        bench.add("runs", writer)
    assert not bench.sender.flush(PATIENCE)
    assert [bench.faults.of(scope)[0].count for scope in scopes] == [1, 1, 1]
    assert len(caplog.records) == 1


def test_a_log_that_cannot_be_read_hides_no_outage(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make()
    bench.add("runs")
    with monkeypatch.context() as planted:
        planted.setattr(bench.store, "head", lambda stream: (_ for _ in ()).throw(StoreError(f"no {stream}")))
        assert not bench.sender.flush(PATIENCE)
    assert caplog.records == []
    memo.fails = True
    assert not bench.sender.flush(PATIENCE)
    assert len(caplog.records) == 1
    memo.fails = False
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[2]]


def test_a_fault_that_nobody_foresaw_ends_nothing(make: Callable[..., Bench], memo: Memo, monkeypatch) -> None:
    bench = make()
    with monkeypatch.context() as planted:
        planted.setattr(memo, "append", lambda _: 1 / 0)
        bench.add("runs")
        assert not bench.sender.flush(PATIENCE)
        planted.setattr(bench.store, "head", lambda _: 1 / 0)
        assert not bench.sender.flush(PATIENCE)
    assert bench.faults.of(SCOPE)[0].kind == "ZeroDivisionError"
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[2]]


def test_a_damaged_log_is_not_witnessed(make: Callable[..., Bench], memo: Memo) -> None:
    bench = make()
    bench.add("runs")
    file = bench.store.path(LEDGER)
    file.write_bytes(file.read_bytes().replace(b"runs", b"rots"))
    assert bench.sender.flush(PATIENCE)
    assert memo.tried == 0


# Another process, and the next one.


def test_what_a_killed_process_did_not_send_the_next_one_sends(make: Callable[..., Bench], memo: Memo) -> None:
    killed = make()
    killed.add("runs")
    assert killed.sender.flush(PATIENCE)
    killed.add("swims")
    # It never sends again; what follows is another process as far as the files can tell.
    bench = make()
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[2], [3]]
    again = make()
    assert again.sender.flush(PATIENCE)
    assert memo.seqs == [[2], [3]]


@pytest.mark.slow
def test_a_killed_process_for_real(tmp_path: Path) -> None:
    home, witness = tmp_path / "home", tmp_path / "heads.jsonl"
    script = (
        "import os, signal, sys\n"
        "from backstory import Backstory\n"
        "import backstory.witness.sender as worker\n"
        "worker.HeadSender.__init__.__kwdefaults__['delay'] = 3600\n"
        "bs = Backstory.open(sys.argv[1], witness=sys.argv[2], background=False)\n"
        "bs.memory('ada').add_fact('runs')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(home), str(witness)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert lines_of(witness) == []
    with open_home(home, witness=str(witness)) as bs:
        bs.memory(USER)
    assert [line["seq"] for line in lines_of(witness)] == [2]


@pytest.mark.slow
def test_a_process_that_never_closes_sends_at_its_end(tmp_path: Path) -> None:
    home, witness = tmp_path / "home", tmp_path / "heads.jsonl"
    script = (
        "import sys\n"
        "from backstory import Backstory\n"
        "bs = Backstory.open(sys.argv[1], witness=sys.argv[2], background=False)\n"
        "bs.memory('ada').add_fact('runs')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(home), str(witness)], check=True, timeout=60)
    assert [line["seq"] for line in lines_of(witness)][-1] == 2


def test_a_new_witness_is_given_the_head_at_once(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with open_home(tmp_path / "home", witness=str(tmp_path / name)) as bs:
            if name == "one":
                bs.memory(USER).add_fact("runs")
            else:
                bs.memory(USER)
    assert [line["seq"] for line in lines_of(tmp_path / "other")] == [2]


def test_what_another_process_commits_is_sent_by_whoever_has_the_scope_open(
    make: Callable[..., Bench], memo: Memo
) -> None:
    bench = make()
    other = Writer(JsonlStore(bench.store.home), SCOPE, clock=FakeClock(), salts=CountingSalts())
    bench.add("runs", other)
    assert bench.sender.flush(PATIENCE)
    assert memo.seqs == [[2]]


@pytest.mark.slow
def test_two_processes_append_to_one_file(tmp_path: Path) -> None:
    home, witness = tmp_path / "home", tmp_path / "heads.jsonl"
    script = (
        "import sys\n"
        "from backstory import Backstory\n"
        "import backstory.witness.sender as worker\n"
        "worker.HeadSender.__init__.__kwdefaults__['delay'] = 0\n"
        "with Backstory.open(sys.argv[1], witness=sys.argv[2], background=False) as bs:\n"
        "    for n in range(20):\n"
        "        bs.memory('ada').add_fact(f'fact {sys.argv[3]} {n}')\n"
        "        bs.memory(sys.argv[3]).add_fact(f'fact {n}')\n"
    )
    words = [sys.executable, "-c", script, str(home), str(witness)]
    processes = [subprocess.Popen([*words, name]) for name in ("eve", "bob")]
    assert [process.wait(60) for process in processes] == [0, 0]
    with open_home(home, witness=str(witness)) as bs:
        for user, seq in (("ada", 41), ("eve", 21), ("bob", 21)):
            found = bs.memory(user).verify()
            assert (found.ok, found.notes) == (True, ()), found
            assert max(int(str(line["seq"])) for line in lines_of(witness) if line["user"] == user) == seq


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_sends_its_own_and_not_its_parents(tmp_path: Path) -> None:
    witness = tmp_path / "heads.jsonl"
    with open_home(tmp_path / "home", witness=str(witness)) as bs:
        bs.memory(USER).add_fact("runs")
        bs.memory(USER).flush()
        sender = bs._services.states.witness.sender
        # A thread of the parent that is in the middle of something is not there in the child.
        with sender._changed:
            child = os.fork()
            if child == 0:
                signal.alarm(int(PATIENCE))
                try:
                    bs.memory("bob").add_fact("swims")
                    well = bs.memory("bob").flush(PATIENCE) and lines_of(witness)[-1]["user"] == "bob"
                finally:
                    os._exit(0 if well else 1)
        assert os.waitpid(child, 0)[1] == 0
        bs.memory(USER).add_fact("skis")
    assert [(line["user"], line["seq"]) for line in lines_of(witness) if line["user"] == "ada"] == [
        ("ada", 2),
        ("ada", 3),
    ]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_until_no_file_is_half_written_and_not_for_the_witness(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    register(bench.sender)
    reading, go_on = threading.Event(), threading.Event()
    real = bench.store.head

    def slow(stream: str) -> Head:
        reading.set()
        go_on.wait(PATIENCE)
        return real(stream)

    memo.go_on.clear()
    monkeypatch.setattr("backstory.ledger.concurrency.jobs._FORK_SECONDS", PATIENCE)
    bench.add("runs")
    monkeypatch.setattr(bench.store, "head", slow)
    flusher = threading.Thread(target=bench.sender.flush, args=(PATIENCE,))
    flusher.start()
    assert reading.wait(PATIENCE)
    asleep = threading.Timer(0.05, go_on.set)
    asleep.start()
    child = os.fork()
    if child == 0:
        # What the parent was reading has been read, and the witness, which hangs, was not waited for.
        os._exit(0 if go_on.is_set() and not memo.batches else 1)
    assert os.waitpid(child, 0)[1] == 0
    memo.go_on.set()
    flusher.join()


# The end of a home.


def opened(home: Path, memo: Memo, **settings: object) -> Backstory:
    """A home whose witness is the one given."""
    bs = open_home(home, witness=str(home / "unused"), **settings)
    assert bs._services.states.witness is not None
    bs._services.states.witness.sender._destination = memo
    return bs


def test_closing_with_a_witness_that_hangs_stays_within_the_timeout(
    tmp_path: Path, memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    bs = opened(tmp_path, memo, shutdown_flush_timeout_seconds=1)
    memo.go_on.clear()
    given: list[float] = []
    real = HeadSender.close
    monkeypatch.setattr(HeadSender, "close", lambda mine, timeout: (given.append(timeout), real(mine, timeout)))
    bs.memory(USER).add_fact("runs")
    waited = time.monotonic()
    bs.close()
    assert time.monotonic() - waited < PATIENCE / 2
    assert 0 <= given[0] <= 1
    assert memo.asked.is_set()
    assert memo.batches == []
    memo.go_on.set()


def test_a_flush_waits_no_longer_than_it_is_told(tmp_path: Path, memo: Memo) -> None:
    bs = opened(tmp_path, memo)
    memo.go_on.clear()
    bs.memory(USER).add_fact("runs")
    waited = time.monotonic()
    # The witness is no part of the answer: nothing due is left, and memory.json is exact.
    assert bs.memory(USER).flush(0.1)
    assert bs.flush(0.1)
    assert time.monotonic() - waited < PATIENCE / 2
    memo.go_on.set()
    assert bs.memory(USER).flush()
    assert memo.seqs[-1] == [2]
    bs.close()


def test_one_who_only_reads_does_not_wait_long_for_what_others_left(
    make: Callable[..., Bench], memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().add("runs")
    monkeypatch.setattr("backstory.witness.sender._READERS_SECONDS", 0.05)
    reader = make()
    memo.go_on.clear()
    waited = time.monotonic()
    assert not reader.sender.close(PATIENCE)
    assert time.monotonic() - waited < PATIENCE / 2


def test_a_home_without_references_ends_its_thread(tmp_path: Path) -> None:
    bs = open_home(tmp_path / "home", witness=str(tmp_path / "heads.jsonl"))
    bs.memory(USER).add_fact("runs")
    assert bs._services.states.witness is not None
    sender = bs._services.states.witness.sender
    assert sender._threads
    del bs

    def is_over() -> bool:
        # The thread that writes memory.json refers to the home for a moment longer.
        gc.collect()
        return not sender._threads

    until(is_over)


def test_without_a_witness_nothing_is_sent_and_nothing_is_kept(tmp_path: Path) -> None:
    for off in (None, ""):
        with open_home(tmp_path, witness=off) as bs:
            bs.memory(USER).record("t", exchange("tea"))
            bs.memory(USER).add_fact(f"runs {off}")
            assert bs._services.states.witness is None
    assert not list(tmp_path.rglob("witness.json"))
    assert "backstory-witness" not in {thread.name for thread in threading.enumerate()}
