"""Whoever goes on from an index, or from what they read before, knows what a replay from the first commit says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply

from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import CorruptLogError, ModelRejectedError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.folded.state import FoldedState
from backstory.memory import MemoryHandle
from backstory.projections.index.index import ScopeIndex

ADA = Scope("ada")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path, *script: object) -> MemoryHandle:
    return open_home(home, ScriptedModel(*script), clock=FakeClock()).memory("ada")  # type: ignore[arg-type]


def index(home: Path) -> None:
    """Give a home an index that stands on what is there now."""
    ScopeIndex(JsonlStore(home), ADA, home / ADA.folder / "index.sqlite", small=1).follow()


def told(memory: MemoryHandle) -> tuple[object, ...]:
    status = memory.status()
    return status.seq, status.hash, status.turns, status.pending, status.parked, memory.threads(), memory.facts()


def replayed(home: Path) -> tuple[object, ...]:
    """What somebody says who has nothing but the logs."""
    copy = home.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("index.*", "memory.json", ".memory.json*"))
    return told(opened(copy))


@pytest.mark.parametrize("indexed", [False, True])
def test_a_process_that_meets_an_erasure_knows_what_is_left_and_no_more(home: Path, indexed: bool) -> None:
    one = opened(home, ModelRejectedError("no xylophone"), reply("Likes tea"))
    one.record("t", exchange("tea"))
    one.extract()
    one.record("u", exchange("coffee"))
    one.extract()
    if indexed:
        index(home)
    other = opened(home)
    assert told(other) == replayed(home)
    assert [item.thread for item in other.status().parked] == ["t"]
    one.forget(matching="xylophone")
    assert told(other) == told(one) == replayed(home)
    # What parked the turns is gone, so they are pending again.
    assert other.status().parked == ()


@pytest.mark.parametrize("indexed", [False, True])
def test_what_comes_after_an_index_weighs_more_than_what_is_loaded_from_before_it(home: Path, indexed: bool) -> None:
    one = opened(home, ModelRejectedError("once"), ModelRejectedError("twice"))
    one.record("t", exchange("tea"))
    one.extract()
    if indexed:
        index(home)
    other = opened(home)
    assert other.facts() == ()
    one.retry()
    assert [item.attempts for item in other.status().parked] == [2]
    assert told(other) == replayed(home)


@pytest.mark.parametrize("indexed", [False, True])
def test_two_processes_that_take_turns_know_the_same(home: Path, indexed: bool) -> None:
    one, other = opened(home), opened(home)
    for number in range(3):
        one.add_fact(f"walks {number}")
        one.record("t", exchange("tea", number))
    if indexed:
        index(home)
        one, other = opened(home), opened(home)
    for number in range(3, 9):
        for memory in (one, other):
            memory.add_fact(f"walks {number} {memory is one}")
            memory.record(f"t{number % 2}", exchange("tea", number), mode="append")
        assert told(one) == told(other) == replayed(home)


@pytest.mark.parametrize("named", [False, True])
def test_an_erased_turn_stays_out_where_its_thread_is_loaded_through_an_index(home: Path, named: bool) -> None:
    one = opened(home)
    words = [{"role": "user", "content": "I play the xylophone."}, {"role": "assistant", "content": "How nice."}]
    words = [{**word, "id": f"m{n}"} for n, word in enumerate(words)] if named else words
    one.record("t", words)
    one.record("u", exchange("tea"))
    one.forget(matching="xylophone")
    index(home)
    other = opened(home)
    assert other.record("t", words).turns == 0
    assert [turn.content for turn in other.transcript("t")] == ["How nice."]


def test_a_thread_is_never_loaded_around_a_damaged_line(home: Path) -> None:
    one = opened(home)
    for number in range(3):
        one.record("t", exchange(f"tea {number}", number), mode="append")
    index(home)
    path = home / ADA.folder / "transcript.jsonl"
    inode = path.stat().st_ino
    with path.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"tea 1"))
        file.write(b"mud")
    assert path.stat().st_ino == inode
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="line 2 at byte"):
            opened(home).transcript("t")


@pytest.mark.parametrize("known", [True, False])
def test_a_damaged_line_leaves_what_is_covered_as_it_was_before(home: Path, known: bool) -> None:
    one = opened(home, reply("Likes tea"))
    one.record("t", exchange("tea"))
    one.add_fact("walks")
    view = FoldedState(JsonlStore(home), ADA)
    view.refresh_transcript()
    if known:
        view.refresh_ledger()
    thread = view.transcript.threads["t"]
    before = view.head, view.memory, view.coverage.pending(thread)
    one.extract()
    one.add_fact("swims")
    one.add_fact("runs")
    path = home / ADA.folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b"swims", b"sinks"))
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            view.refresh_ledger()
        assert (view.head, view.memory, view.coverage.pending(thread)) == before
    path.write_bytes(path.read_bytes().replace(b"sinks", b"swims"))
    view.refresh_ledger()
    assert (view.head.seq, view.coverage.pending(thread)) == (5, [])


@pytest.mark.parametrize("left", [0, 1])
def test_words_said_after_a_transcript_was_cut_short_are_learned_from(home: Path, left: int) -> None:
    one = opened(home, reply("Likes tea"), reply("Likes milk"))
    for topic in ("tea", "milk"):
        one.record("t", exchange(topic), mode="append")
        one.extract()
    path = home / ADA.folder / "transcript.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    other = opened(home, reply("Likes juice"))
    other.record("t", exchange("juice"), mode="append")
    assert [(item.thread, item.turns) for item in other.status().pending] == [("t", 2)]
    assert other.extract().updates == 1
    assert [fact.content for fact in other.facts()] == ["Likes tea", "Likes milk", "Likes juice"]
    assert "missing" in {problem.kind for problem in other.verify().problems}
    assert told(other) == replayed(home)


class HalfWritten(JsonlStore):
    """Shows a last line of each stream that is there and not yet synced: readers may see it, and it may go again."""

    half_written = False

    def head(self, stream: str) -> Head:
        head = super().head(stream)
        return Head(head.seq + 1, "0" * 64) if self.half_written else head

    def settled_head(self, stream: str) -> Head:
        self.half_written = False
        return super().settled_head(stream)


def test_a_line_that_was_cut_off_before_its_sync_is_no_exchanged_file(home: Path) -> None:
    one = opened(home, reply("Likes tea"))
    one.record("t", exchange("tea"))
    one.extract()
    store = HalfWritten(home)
    view = FoldedState(store, ADA)
    view.refresh_transcript()
    view.refresh_ledger()
    known = view.head, view.transcript.head
    for refresh in (view.refresh_transcript, view.refresh_ledger):
        store.half_written = True
        refresh()
    assert (view.head, view.transcript.head) == known


def test_what_is_written_after_the_head_was_settled_is_not_read_with_it(home: Path) -> None:
    one = opened(home)
    one.record("t", exchange("tea"))

    class Overtaken(JsonlStore):
        def settled_head(self, stream: str) -> Head:
            head = super().settled_head(stream)
            one.record("t", exchange("coffee"))
            return head

    view = FoldedState(Overtaken(home), ADA)
    view.refresh_transcript()
    assert view.transcript.head.seq == 1
    view.refresh_transcript()
    assert view.transcript.head.seq == 2
