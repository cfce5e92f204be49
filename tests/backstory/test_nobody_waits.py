"""No read waits for a writer, in this process or another: not for a lock, a sync, or another thread's mutex."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, exchange, open_home, reply
from stuck import LOGS, Stuck, held, returned, stuck_writers

from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import Cause, Draft, Head, seal
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.metagpt.turns import Turns
from backstory.witness.signing import new_key

ADA = Scope("ada")
KEY = new_key("auditor").private

READS: dict[str, Callable[[MemoryHandle], object]] = {
    "by": lambda memory: memory.by("somebody").facts(),
    "expecting": lambda memory: memory.expecting(memory.head()).facts(),
    "once": lambda memory: memory.once("key").facts(),
    "context": lambda memory: memory.context("tea", thread="t").text,
    "diff": lambda memory: memory.diff(1, "HEAD"),
    "document": lambda memory: (memory.document(), memory.document(2)),
    "fact": lambda memory: memory.fact(memory.facts()[0].id),
    "fact_id": lambda memory: memory.fact_id(memory.facts()[0].id),
    "facts": lambda memory: memory.facts(),
    "graph": lambda memory: memory.graph(thread="t"),
    "head": lambda memory: memory.head(),
    "find_threads": lambda memory: memory.find_threads(),
    "heads": lambda memory: memory.heads(turns=True),
    "heads_seen": lambda memory: memory.heads_seen(turns=True).heads,
    "message_flow": lambda memory: memory.message_flow(thread="t"),
    "moment": lambda memory: (memory.moment(), memory.moment(2, contains="TEA").facts.items),
    "log": lambda memory: (memory.log(), memory.log(thread="t"), memory.log(since="2026-01-01")),
    "skipped": lambda memory: memory.skipped("t"),
    "own": lambda memory: (memory.own.document(), memory.own.taken_over()),
    "policy": lambda memory: memory.policy(),
    "reextract": lambda memory: memory.reextract(replies=[RecordedReply("t", reply("Likes rye"))]),
    "seq_of": lambda memory: memory.seq_of("HEAD~1"),
    "refusals": lambda memory: memory.refusals(2),
    "reload": lambda memory: memory.reload(),
    "scope": lambda memory: memory.scope,
    "sign_head": lambda memory: memory.sign_head(KEY),
    "search": lambda memory: (
        memory.search("tea").hits,
        memory.search("nothing of that", thread="t").hits,
        memory.search("tea", within="turns").hits,
    ),
    "status": lambda memory: memory.status(),
    "summaries": lambda memory: memory.summaries("t"),
    "superseded": lambda memory: memory.superseded("t"),
    "threads": lambda memory: memory.threads(),
    "timeline": lambda memory: (memory.timeline(), memory.timeline(2, "2030-01-01", buckets=3)),
    "usage": lambda memory: memory.usage(),
    "touch": lambda memory: memory.touch(memory.facts()[0].id),
    "transcript": lambda memory: memory.transcript("t"),
    "turns": lambda memory: memory.turns.get(),
    "verify": lambda memory: (memory.verify().ok, memory.verify().commits),
    "what_if": lambda memory: memory.what_if(max_facts=10),
    "why": lambda memory: memory.why(memory.facts()[0].id),
    "why_said": lambda memory: memory.why_said(memory.transcript("t")[0].id, "t"),
    "why_section": lambda memory: memory.why_section("user.workContext"),
    "why_not": lambda memory: memory.why_not("tea"),
}
"""Every name of a handle that reads, and a call of it."""

WRITES = {
    "add_fact", "clear", "discard", "edit_fact", "embed", "extract", "flush", "forget", "import_document",
    "import_file", "intake", "record", "remove_fact", "restore", "retry", "revert", "rollback", "set_policy",
}  # fmt: skip

TURN_READS: dict[str, Callable[[Turns], object]] = {
    "addressed_to": lambda turns: turns.addressed_to("all"),
    "count": lambda turns: turns.count(),
    "find_news": lambda turns: turns.find_news([{"role": "user", "content": "new"}]),
    "get": lambda turns: turns.get(),
    "get_by_action": lambda turns: turns.get_by_action("x"),
    "get_by_actions": lambda turns: turns.get_by_actions(["x"]),
    "get_by_content": lambda turns: turns.get_by_content("tea"),
    "get_by_id": lambda turns: turns.get_by_id("t1"),
    "get_by_position": lambda turns: turns.get_by_position(0),
    "get_by_role": lambda turns: turns.get_by_role("user"),
    "of": lambda turns: turns.of("t").get(),
    "try_remember": lambda turns: turns.try_remember("tea"),
    "view": lambda turns: turns.view(ignore_id=True).get(),
}
TURN_WRITES = {"add", "add_batch", "clear", "delete", "delete_newest"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def twins(kind: type) -> set[str]:
    return {name for name in public(kind) if inspect.iscoroutinefunction(getattr(kind, name))}


def test_every_public_name_of_a_handle_is_a_read_or_a_write() -> None:
    assert public(MemoryHandle) - twins(MemoryHandle) == {*READS, *WRITES}
    assert public(Turns) - twins(Turns) == {*TURN_READS, *TURN_WRITES}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which ada has facts, a conversation that was learned from, and one that is pending."""
    home = tmp_path_factory.mktemp("written")
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.extract([RecordedReply("t", reply("Likes tea"))])
        memory.add_fact("Lives in Oslo")
        memory.import_document({"user": {"workContext": {"summary": "Bakes bread"}}})
        memory.record("pending", exchange("rye"))
    return home


@pytest.fixture(params=["small", "indexed"])
def home(written: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is read without an index in a file or with one."""
    for file in written.rglob("*"):
        if file.is_file() and not file.name.startswith("index."):
            copy = tmp_path / file.relative_to(written)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    if request.param == "indexed":
        monkeypatch.setattr("backstory.projections.index.index_file.IndexFile._small", lambda _: False)
        with open_home(tmp_path) as bs:
            bs.memory("ada").log()
        assert (tmp_path / ADA.folder / "index.sqlite").exists()
    return tmp_path


def writes(memory: MemoryHandle) -> list[Callable[[], object]]:
    """Writers that come to wait for the ledger's lock and for the transcript's, with no mutex in their hands."""
    memory.flush(0)  # or the document's writer waits for a lock, and these for it
    with memory._services.own.state():
        pass
    return [
        lambda: memory.add_fact("Has a dog"),
        lambda: memory.record("t", exchange("oats")),
    ]


def forgetting(stuck: Stuck, memory: MemoryHandle) -> None:
    """A writer that waits, with the mutex of all writers in its hands."""
    stuck.begin(lambda: memory.forget(matching="rye"))
    mutex = memory._services.own._mutex
    for _ in range(int(PATIENCE / 0.001)):
        if not mutex.acquire(blocking=False):
            return
        mutex.release()
        threading.Event().wait(0.001)
    raise AssertionError("it never took the mutex")


def twin_of(read: Callable[[MemoryHandle], object], name: str) -> Callable[[MemoryHandle], object] | None:
    """The same calls of the asynchronous twin, as far as a read has one."""
    if not hasattr(MemoryHandle, f"a{name}"):
        return None

    def asked(memory: MemoryHandle) -> object:
        class Twin:
            def __getattr__(self, asked: str) -> object:
                if asked != name:
                    return getattr(memory, asked)
                return lambda *args, **more: asyncio.run(getattr(memory, f"a{name}")(*args, **more))

        return read(Twin())  # type: ignore[arg-type]

    return asked


@pytest.mark.parametrize("name", sorted(READS))
def test_no_read_waits_for_a_writer_of_this_process(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [way for way in (READS[name], twin_of(READS[name], name)) if way is not None]
    with open_home(home) as bs, open_home(home) as before:
        memory = bs.memory("ada")
        memory.facts()
        expected = READS[name](before.memory("ada"))
        with stuck_writers(bs, home / ADA.folder, writes(memory), monkeypatch) as stuck:
            forgetting(stuck, memory)
            for way in ways:
                assert returned(lambda way=way: way(memory)) == expected  # type: ignore[misc]
            # One that was never asked before has to read everything first.
            with open_home(home) as fresh:
                fresh.store._locks._clock = stuck.barrier  # type: ignore[attr-defined]
                assert returned(lambda: READS[name](fresh.memory("ada"))) == expected
        assert "Has a dog" in [fact.content for fact in memory.facts()]
        assert memory.verify().ok


@pytest.mark.parametrize("name", sorted(TURN_READS))
def test_no_read_of_turns_waits_for_a_writer(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(home) as bs, open_home(home) as before:
        memory = bs.memory("ada")
        expected = TURN_READS[name](before.memory("ada").turns)
        with stuck_writers(bs, home / ADA.folder, writes(memory), monkeypatch) as stuck:
            forgetting(stuck, memory)
            found = returned(lambda: TURN_READS[name](memory.turns))
        assert found == expected


def test_the_scopes_of_a_home_are_listed_beside_a_stuck_writer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A home that has workers looks for what is pending when a memory is opened.
    with open_home(home) as bs, open_home(home, lambda _: reply(), background=True) as other:
        memory = bs.memory("ada")
        expected = bs.scopes()
        with stuck_writers(bs, home / ADA.folder, writes(memory), monkeypatch) as stuck:
            forgetting(stuck, memory)
            assert returned(bs.scopes) == expected
            other.store._locks._clock = stuck.barrier  # type: ignore[attr-defined]
            assert returned(lambda: other.memory("ada").facts()) == returned(memory.facts)


def test_memory_json_comes_later_where_the_ledger_is_locked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = home / ADA.folder / "memory.json"
    document.unlink()
    with open_home(home) as bs:
        memory = bs.memory("ada")
        stuck = Stuck(bs, monkeypatch)
        with held(home / ADA.folder / "ledger.lock"):
            assert len(returned(memory.reload).facts) == 2  # type: ignore[attr-defined]
            assert returned(memory.verify).ok  # type: ignore[attr-defined]
            assert not document.exists()
        stuck.finish()
    assert b"Likes tea" in document.read_bytes()


READ_ALL = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from fakes import open_home
from test_nobody_waits import READS, TURN_READS

def never(self, seconds):
    raise AssertionError("a read waited for a lock")

with open_home(Path(sys.argv[1])) as bs:
    bs.store._locks._clock = type("Never", (), {"sleep": never})()
    memory = bs.memory("ada")
    print(sorted(fact.content for fact in memory.facts()), flush=True)
    for read in READS.values():
        read(memory)
    for read in TURN_READS.values():
        read(memory.turns)
    bs.scopes()
    print("done", flush=True)
    bs.store._locks._timeout = 0
"""


@pytest.mark.slow
def test_no_read_of_another_process_waits_for_a_writer(home: Path) -> None:
    with held(*(home / ADA.folder / f"{log}.lock" for log in LOGS)):
        command = [sys.executable, "-c", READ_ALL, str(home), *sys.path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=6 * PATIENCE, check=False)
    assert done.stdout.splitlines() == ["['Likes tea', 'Lives in Oslo']", "done"], done.stderr


# What a reader is shown.


def next_line(store: JsonlStore, text: str) -> bytes:
    """The line of one more commit of ada's ledger, as another process would write it."""
    head = store.head(f"{ADA.folder}/ledger")
    fact = NewFact(place="facts/0", content=text, confidence=0.9)
    with open_home(store.home) as bs:
        writer = bs.memory("ada")._services.own
        writer.memory(durable=False)
        cause, at, events = writer._decided(
            AddFact(at="", fact=fact), Cause(kind="manual"), "2026-03-02T12:00:00.000000Z"
        )
    return seal(Draft(at, cause, events), head, CountingSalts()) + b"\n"


def contents(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def test_what_another_process_has_not_synced_yet_is_shown_by_no_read(home: Path) -> None:
    ledger = home / ADA.folder / "ledger.jsonl"
    line = next_line(JsonlStore(home), "Has a dog")
    with open_home(home) as bs, open_home(home) as other:
        memory = bs.memory("ada")
        before = {name: read(other.memory("ada")) for name, read in READS.items() if name not in ("status", "verify")}
        with held(ledger.with_suffix(".lock")):
            with ledger.open("ab") as file:
                file.write(line)
            assert {name: READS[name](memory) for name in before} == before
            assert [(scope.facts, scope.seq) for scope in bs.scopes()] == [(2, before["head"].seq)]  # type: ignore[attr-defined]
            # Its sync fails, and it takes the line back: nobody has seen anything, and nothing is wrong.
            with ledger.open("r+b") as file:
                file.truncate(ledger.stat().st_size - len(line))
        assert {name: READS[name](memory) for name in before} == before
        assert memory.verify().ok


def test_what_a_writer_left_when_it_died_is_shown(home: Path) -> None:
    ledger = home / ADA.folder / "ledger.jsonl"
    line = next_line(JsonlStore(home), "Has a dog")
    with open_home(home) as bs:
        memory = bs.memory("ada")
        assert contents(memory) == ["Likes tea", "Lives in Oslo"]
        with ledger.open("ab") as file:
            file.write(line)
        assert contents(memory) == ["Likes tea", "Lives in Oslo", "Has a dog"]
        memory.add_fact("Has a cat")
        assert contents(memory) == ["Likes tea", "Lives in Oslo", "Has a dog", "Has a cat"]


def test_what_another_process_has_released_is_seen_although_a_third_is_stuck(home: Path) -> None:
    with open_home(home) as mine, open_home(home) as theirs:
        memory = mine.memory("ada")
        assert len(contents(memory)) == 2
        theirs.memory("ada").add_fact("Has a dog")
        theirs.memory("ada").record("t", exchange("oats"))
        with ExitStack() as closed_later, held(*(home / ADA.folder / f"{log}.lock" for log in LOGS)):
            assert contents(memory) == ["Likes tea", "Lives in Oslo", "Has a dog"]
            assert len(memory.transcript("t")) == 4
            fresh = closed_later.enter_context(open_home(home))
            assert contents(fresh.memory("ada")) == contents(memory)


def test_a_log_of_older_versions_is_read_as_it_stands_beside_a_stuck_writer(home: Path) -> None:
    folder = home / ADA.folder
    for log in LOGS:
        (folder / f"{log}.lock").write_bytes(b"")
    with held(*(folder / f"{log}.lock" for log in LOGS)), open_home(home) as bs:
        assert contents(bs.memory("ada")) == ["Likes tea", "Lives in Oslo"]
        assert bs.memory("ada").status().turns == 4


@pytest.mark.parametrize("note", [b"", b"7 abc", b"\xff" * 300, b"999 " + b"0" * 64 + b" 00000000\n"])
def test_a_note_that_is_none_is_not_believed(home: Path, note: bytes) -> None:
    store = JsonlStore(home)
    stream = f"{ADA.folder}/ledger"
    lock = home / ADA.folder / "ledger.lock"
    lock.write_bytes(note)
    assert store.durable_head(stream) == store.head(stream)
    with held(lock):
        assert JsonlStore(home).durable_head(stream) == store.head(stream)


def test_a_head_is_noted_when_it_is_durable_and_not_before(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = f"{ADA.folder}/ledger"
    seen: list[Head] = []
    with open_home(home) as bs:
        memory = bs.memory("ada")
        before = memory.head()
        monkeypatch.setattr(
            "os.fdatasync",
            lambda _: seen.append(JsonlStore(home).durable_head(stream)),  # as another process
        )
        commit = memory.add_fact("Has a dog").commit
        assert set(seen) == {before}
        assert memory.head().seq == JsonlStore(home).durable_head(stream).seq == commit


def test_a_reader_is_told_when_the_tail_it_knows_was_cut_off(home: Path) -> None:
    ledger = home / ADA.folder / "ledger.jsonl"
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.facts()
        lines = ledger.read_bytes().splitlines(keepends=True)
        ledger.write_bytes(b"".join(lines[:-1]))
        with pytest.raises(CorruptLogError, match="its tail was cut off"):
            memory.facts()


def test_a_reader_sees_its_own_writes(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        for number in range(5):
            memory.add_fact(f"Fact {number}")
            assert contents(memory)[-1] == f"Fact {number}"
            memory.record("t", exchange(f"topic {number}"))
            assert memory.transcript("t")[-1].content == f"topic {number} it is."
            assert memory.turns.get(1)[0].content == f"topic {number} it is."
            assert memory.status().turns == 6 + 2 * number


# Side locks.


@pytest.mark.parametrize("lock", ["index.lock", "access.lock", "faults.lock"])
def test_no_read_waits_long_for_who_keeps_a_file_beside_the_logs(home: Path, lock: str) -> None:
    with open_home(home) as bs, open_home(home) as before:
        expected = {name: read(before.memory("ada")) for name, read in READS.items()}
        naps = FakeClock()
        memory = bs.memory("ada")
        bs._services.states(ADA).index._clock = naps
        bs._services.states.usage.locks._clock = naps
        with held(home / ADA.folder / lock):
            for name, read in READS.items():
                naps.slept.clear()
                assert returned(lambda read=read: read(memory)) == expected[name]  # type: ignore[misc]
                # A question waits for the index a moment, and is then answered without it.
                assert sum(naps.slept) < 1


def test_who_waits_to_delete_the_index_keeps_nobody_waiting(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        expected = memory.log()
        stuck = Stuck(bs, monkeypatch)
        index = bs._services.states(ADA).index
        index._clock = naps = _Napping(stuck)
        lock = home / ADA.folder / "index.lock"
        with held(lock):
            stuck.start(index.purge)
            assert returned(memory.log) == expected
        stuck.finish()
        assert not (home / ADA.folder / "index.sqlite").exists()
        assert sum(naps.slept) < 1


class _Napping(FakeClock):
    """A writer's nap is the barrier's; a reader's takes no time."""

    def __init__(self, stuck: Stuck) -> None:
        super().__init__()
        self._barrier = stuck.barrier

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() in self._barrier.writers:
            self._barrier.sleep(seconds)
        else:
            super().sleep(seconds)


# Status.


def test_status_takes_no_lock_that_a_record_needs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While `status` is in the middle of its work a record is made, and another status looks at it."""
    from backstory.ledger.log.reader import Backlog

    with open_home(home) as bs:
        memory = bs.memory("ada")
        waiting = Backlog.waiting
        recorded: list[object] = []

        def slow(backlog: Backlog, *args: object) -> object:
            if not recorded:
                recorded.append(None)
                recorded[0] = returned(lambda: memory.record("new", exchange("oats")))
                returned(lambda: memory.add_fact("Has a dog"))
                assert contents(memory)[-1] == "Has a dog"
            return waiting(backlog, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(Backlog, "waiting", slow)
        assert [item.thread for item in memory.status().pending] == ["pending"]
        assert recorded[0].turns == 2  # type: ignore[attr-defined]
        assert [item.thread for item in memory.status().pending] == ["pending", "new"]


def test_status_works_out_again_only_what_something_came_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from backstory.ledger.log.reader import Backlog

    seen: list[str] = []
    worked_out = Backlog._waiting
    monkeypatch.setattr(
        Backlog,
        "_waiting",
        lambda self, thread, timing: (seen.append(thread.name), worked_out(self, thread, timing))[1],
    )
    with open_home(home) as bs:
        memory = bs.memory("ada")
        for number in range(20):
            memory.record(f"thread {number}", exchange("tea"))
        assert len(memory.status().pending) == 21
        seen.clear()
        assert len(memory.status().pending) == 21
        assert seen == []
        memory.record("thread 7", exchange("rye"))
        assert {item.thread: item.turns for item in memory.status().pending}["thread 7"] == 4
        assert seen == ["thread 7"]
        memory.extract([RecordedReply("thread 7", reply())])
        seen.clear()
        assert "thread 7" not in [item.thread for item in memory.status().pending]
        memory.clear()
        assert memory.status().pending == ()


def test_many_pending_threads_are_loaded_by_passing_each_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        for number in range(60):
            memory.record(f"thread {number}", exchange(f"a topic of {number} words or so " * 20))
        expected = memory.status()
        memory.log()
    opened: list[str] = []
    read = JsonlStore.read
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        monkeypatch.setattr(
            JsonlStore,
            "read",
            lambda self, stream, *a, **more: (opened.append(stream), read(self, stream, *a, **more))[1],
        )
        assert memory.status() == expected
    assert len(opened) < 10
