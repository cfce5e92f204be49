"""What follows a transcript: told of all that changed, by whichever way it is asked, and of nothing that is erased."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, exchange, open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples
from small_home import resealed

from backstory.home import Backstory
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, seal
from backstory.ledger.core.errors import CorruptLogError, NotFoundError, StoreError
from backstory.ledger.core.events import Fact, FactAdded, Redacted, Turn, TurnRecorded
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Record, StreamState
from backstory.memory import MemoryHandle
from backstory.projections.search.corpus import StandingTurns
from backstory.projections.turns import (
    NewTurns,
    Seen,
    TurnFilter,
    TurnFollower,
    TurnIndex,
    TurnLog,
    TurnView,
)

ADA = Scope("ada")
TRANSCRIPT = ADA.stream("transcript")
LEDGER = ADA.stream("ledger")


class Reader:
    """A follower, somebody who only does what the news say, and the two that others ask; all three have to agree."""

    def __init__(self, store: JsonlStore, scope: Scope = ADA) -> None:
        self.store = store
        self.scope = scope
        self.follower = TurnFollower(store, scope)
        self.log = TurnLog(store, scope, self.follower)
        self.turns = StandingTurns(store, scope, self.follower)
        self.held: dict[tuple[str, int], TurnView] = {}
        self.seen: Seen | None = None

    def look(self, until: Head | None = None) -> NewTurns:
        news = self.follower.since(self.seen, until)
        self.seen = news.seen
        if news.anew:
            self.held.clear()
        for gone in news.drop:
            assert self.held.pop((gone.thread, gone.n), None) is not None, f"{gone} was never there"
        for said in news.put:
            assert (said.thread, said.n) not in self.held
            self.held[said.thread, said.n] = said
        stand = list(self.held.values())
        self.turns.follow(until or self.store.head(self.scope.stream("transcript")))
        assert list(self.turns.standing.values()) == stand
        if until is None:
            assert self.log.standing(None) == stand
            for lens in (TurnFilter(), TurnFilter(ignore_id=True), *(TurnFilter(thread) for thread, _ in self.held)):
                with self.log.look(lens) as look:
                    assert lens.ignore_id or look.newest() == [
                        turn for turn in stand if lens.thread in (None, turn.thread)
                    ]
        return news

    def texts(self) -> list[str]:
        self.look()
        return [said.content for said in self.held.values()]

    def tells_of_damage(self, match: str | None = None) -> bool:
        looks: list[Callable[[], object]] = [
            self.look,
            lambda: self.log.standing(None),
            lambda: self.turns.follow(self.store.head(TRANSCRIPT)),
        ]
        for look in looks:
            with pytest.raises(CorruptLogError, match=match):
                look()
        return not self.turns.standing and not self.follower._held._turns


@pytest.fixture
def bs(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path / "home") as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


@pytest.fixture
def reader(bs: Backstory) -> Reader:
    return Reader(JsonlStore(bs.home))


def say(memory: MemoryHandle, *words: str, thread: str = "t1") -> None:
    for word in words:
        memory.record(thread, [{"role": "user", "content": word}], mode="append")


def promise(store: JsonlStore, seq: int, n: int, thread: str = "t1") -> None:
    """Tell of an erasure, and die before it is carried out."""
    event = Redacted(TRANSCRIPT, seq, 0, "turn", thread=thread, n=n, turn=f"t{n}", size=11)
    learn(store, event, kind="redaction")


def learn(store: JsonlStore, event: Redacted | FactAdded, kind: str = "manual") -> None:
    head = store.head(LEDGER)
    cause = Cause(kind=kind) if head.seq else Cause(kind="genesis", user="ada")
    store.append(LEDGER, [seal(Draft("2026-03-01T12:00:00.000000Z", cause, (event,)), head, CountingSalts())], head.seq)


def added(content: str) -> FactAdded:
    return FactAdded(
        Fact(id="fact_1_1", content=content, category="context", confidence=0.9, created_at="", source="manual", seq=1)
    )


# Reading on


def test_whoever_asks_is_told_what_is_new_to_him(memory: MemoryHandle, reader: Reader) -> None:
    assert reader.texts() == []
    say(memory, "a")
    late = reader.look().seen
    say(memory, "b", thread="t2")
    news = reader.look()
    assert ([said.content for said in news.put], list(news.drop), news.anew) == (["b"], [], False)
    say(memory, "c")
    assert [said.content for said in reader.look().put] == ["c"]
    assert [said.content for said in reader.follower.since(late).put] == ["b", "c"]
    news = reader.look()
    assert (list(news.put), list(news.drop), news.anew) == ([], [], False)
    assert reader.follower.since(None).anew


def test_what_came_and_went_between_two_looks_is_no_news(memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a")
    reader.look()
    say(memory, "b")
    memory.turns.delete_newest()
    news = reader.look()
    assert (list(news.put), list(news.drop)) == ([], [])
    memory.turns.delete_newest()
    assert [gone[:2] for gone in reader.look().drop] == [("t1", 1)]
    assert reader.texts() == []


def test_the_words_are_held_once(memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a", "b")
    reader.look()
    ours, theirs = reader.log.standing(None), list(reader.turns.standing.values())
    assert all(one is other for one, other in zip(ours, theirs, strict=True))


def test_a_home_follows_each_transcript_once(bs: Backstory, memory: MemoryHandle) -> None:
    say(memory, "tea")
    assert memory.search("tea", within="turns")
    assert memory.turns.count() == 1
    search = memory._services.state.search
    assert search._follower is memory._services.state.turns._follower


def test_who_has_not_looked_for_long_begins_anew(
    memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.projections.turns.follower._REMEMBERED", 2)
    say(memory, *(f"word {number}" for number in range(12)))
    late = Reader(reader.store)
    late.follower = reader.follower
    late.log, late.turns = reader.log, reader.turns
    for news in (reader.look(), late.look()):
        assert len(news.put) == 12
    for left in range(11, 3, -1):
        memory.turns.delete_newest()
        news = reader.look()
        assert (len(news.drop), news.anew, len(reader.held)) == (1, False, left)
    assert late.look().anew
    assert late.held == reader.held
    assert len(reader.follower._held._gone) <= 5


def test_nothing_is_read_when_nothing_changed_and_only_the_ledger_when_only_that_did(
    bs: Backstory, memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "a")
    memory.add_fact("Has a cat")
    bs.close()
    reader.look()
    read: list[str] = []
    whole = JsonlStore.read

    def noted(store: JsonlStore, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        read.append(f"{stream} {after}")
        return whole(store, stream, after, byte=byte)

    monkeypatch.setattr(JsonlStore, "read", noted)
    monkeypatch.setattr(JsonlStore, "settled_head", lambda store, stream: read.append(f"settled {stream}"))
    reader.look()
    assert read == []
    head = reader.store.head(LEDGER)
    learn(reader.store, added("Has a dog"))
    read.clear()
    reader.look()
    assert read == [f"{LEDGER} {head.seq}"]


def test_a_line_that_is_being_written_is_no_reason_to_read_everything_again(tmp_path, monkeypatch):
    store = JsonlStore(tmp_path)
    with open_home(tmp_path) as bs:
        turns = [{"role": "user", "content": letter, "id": letter} for letter in "abc"]
        bs.memory(scope="global").turns.add_batch(turns)
        log = TurnLog(store, Scope())
        with log.look(TurnFilter()) as look:
            assert look.count() == 3
        reads: list[int] = []
        monkeypatch.setattr(
            JsonlStore,
            "read",
            lambda self, stream, after=0, *, byte=None, read=JsonlStore.read: (
                reads.append(after) or read(self, stream, after, byte=byte)
            ),
        )
        with (tmp_path / "transcript.jsonl").open("ab") as file:
            file.write(b'{"v":1,"seq":2')
        for _ in range(3):
            with log.look(TurnFilter()) as look:
                assert look.count() == 3
        assert reads == [0]
        bs.memory(scope="global").record("t", [{"role": "user", "content": "d"}])
        with log.look(TurnFilter()) as look:
            assert look.count() == 4
        assert reads[-1] == 1


def test_only_what_the_writer_vouched_for_is_read(memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a")
    until = reader.store.head(TRANSCRIPT)
    say(memory, "b")
    for _ in range(2):
        reader.look(until)
        assert [said.content for said in reader.held.values()] == ["a"]
    assert reader.texts() == ["a", "b"]
    # What somebody was told already is not taken back by one who knows of less.
    assert not reader.look(until).anew
    assert [said.content for said in reader.held.values()] == ["a", "b"]


def test_without_a_writer_it_is_read_as_far_as_it_is_durable(
    memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "a")
    durable = reader.store.head(TRANSCRIPT)
    say(memory, "b")
    whole = reader.store.durable_head
    monkeypatch.setattr(reader.store, "durable_head", lambda stream: durable if stream == TRANSCRIPT else whole(stream))
    assert [said.content for said in reader.follower.since(None).put] == ["a"]
    monkeypatch.undo()
    assert reader.texts() == ["a", "b"]


def test_a_home_that_cannot_be_written_is_read_all_the_same(
    memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "a", "b")
    monkeypatch.setattr(reader.store, "settled_head", _refused)
    assert reader.texts() == ["a", "b"]


def _refused(*_: object) -> Head:
    raise StoreError("this home cannot be written")


class WithoutOffsets(JsonlStore):
    """An engine that has no bytes to tell of."""

    def read(self, stream, after=0, *, byte=None):
        return (Record(record.line, 0) for record in super().read(stream, after))

    def state(self, stream):
        return StreamState(super().state(stream).edition, 0)


def test_an_engine_without_offsets_is_followed_too(tmp_path):
    reader = Reader(WithoutOffsets(tmp_path), Scope())
    with open_home(tmp_path) as bs:
        seen = []
        for word in ("plain", "secret", "last"):
            say(bs.memory(scope="global"), word)
            seen.append(reader.texts())
        assert seen == [["plain"], ["plain", "secret"], ["plain", "secret", "last"]]
        bs.memory(scope="global").forget(matching="secret")
        assert reader.texts() == ["plain", "last"]
        bs.memory(scope="global").turns.delete_newest()
        assert reader.texts() == ["plain"]


def test_another_edition_is_read_anew_by_an_engine_without_offsets_too(tmp_path):
    with open_home(tmp_path / "one") as bs:
        say(bs.memory(scope="global"), "plain", "secret")
    reader = Reader(WithoutOffsets(tmp_path / "one"), Scope())
    assert reader.texts() == ["plain", "secret"]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with open_home(tmp_path / "two") as bs:
        bs.memory(scope="global").forget(matching="secret")
    (tmp_path / "two/transcript.jsonl").rename(tmp_path / "one/transcript.jsonl")
    assert reader.texts() == ["plain"]


# What is erased


def test_an_erased_turn_is_gone_and_what_is_left_is_read_anew(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", exchange("tea"))
    memory.record("t2", exchange("coffee"))
    reader.look()
    memory.forget(thread_id="t1")
    assert reader.look().anew
    assert reader.texts() == ["I like coffee.", "coffee it is."]


def test_a_turn_whose_erasure_was_interrupted_is_gone_already(
    bs: Backstory, memory: MemoryHandle, reader: Reader
) -> None:
    memory.record("t1", exchange("tea"))
    memory.add_fact("A commit before it")
    bs.close()
    known = Reader(reader.store)
    assert len(known.texts()) == 2
    promise(reader.store, 1, 1)
    assert reader.texts() == ["tea it is."]
    news = known.look()
    assert (len(news.drop), news.anew) == (1, False)
    assert known.texts() == ["tea it is."]
    assert [said.n for said in known.held.values()] == [2]


def test_nobody_reads_what_an_erasure_could_not_take_out(
    bs: Backstory, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "plain", "secret")
    assert memory.turns.count() == 2
    monkeypatch.setattr(JsonlStore, "redact", _refused)
    with pytest.raises(StoreError):
        memory.forget(matching="secret")
    with open_home(bs.home) as other:
        for turns in (memory.turns, other.memory("ada").turns):
            assert [turn.content for turn in turns.get()] == ["plain"]
            assert turns.get_by_content("secret") == []
            assert turns.of("t1").view(ignore_id=True).count() == 1
    monkeypatch.undo()
    assert [turn.content for turn in memory.turns.get()] == ["plain"]


def test_a_turn_that_was_taken_back_can_be_erased(bs: Backstory, memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a", "b")
    reader.look()
    memory.turns.delete(memory.turns.get()[0])
    bs.close()
    late = reader.look().seen
    promise(reader.store, 1, 1)
    assert not reader.look().drop
    assert reader.texts() == ["b"]
    assert not reader.follower.since(late).drop


def test_a_turn_that_is_erased_before_it_is_read_is_never_shown(
    bs: Backstory, memory: MemoryHandle, reader: Reader
) -> None:
    say(memory, "a")
    until = reader.store.head(TRANSCRIPT)
    say(memory, "secret", "b")
    bs.close()
    promise(reader.store, 2, 2)
    reader.look(until)
    # The ledger is read by now, and the line that holds the words is not.
    news = reader.look()
    assert ([said.content for said in news.put], news.anew) == (["b"], False)
    assert reader.texts() == ["a", "b"]
    assert reader.follower._held._awaited == {}


def test_words_that_only_speak_of_redaction_erase_nothing(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", exchange("tea"))
    memory.add_fact('Says {"type":"Redacted"} and "Redacted" all the time')
    assert len(reader.texts()) == 2


def test_a_redaction_that_was_never_durable_takes_nothing_away(
    bs: Backstory, memory: MemoryHandle, reader: Reader
) -> None:
    memory.add_fact("Has a cat")
    say(memory, "a", "b")
    bs.close()
    path = reader.store.path(LEDGER)
    before = path.read_bytes()
    promise(reader.store, 1, 1)
    assert reader.texts() == ["b"]
    path.write_bytes(before)
    assert reader.texts() == ["a", "b"]
    promise(reader.store, 2, 2)
    assert reader.texts() == ["a"]


@pytest.mark.parametrize("longer", [False, True])
def test_another_ledger_in_its_place_is_read_anew(
    bs: Backstory, memory: MemoryHandle, reader: Reader, tmp_path: Path, *, longer: bool
) -> None:
    memory.add_fact("Has a cat")
    say(memory, "a", "b")
    bs.close()
    promise(reader.store, 1, 1)
    assert reader.texts() == ["b"]
    other = JsonlStore(tmp_path / "other")
    seq = reader.store.head(LEDGER).seq
    for number in range(seq + longer):
        learn(other, added(f"Has {number} cats"))
    shutil.copy(other.path(LEDGER), reader.store.path(LEDGER))
    assert reader.texts() == ["a", "b"]


def test_what_is_erased_of_the_ledger_itself_changes_nothing(memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a", "b")
    promise(reader.store, 1, 1)
    memory.add_fact("Has a cat", "context")
    assert reader.texts() == ["b"]
    memory.forget(memory.facts()[0].id)
    promise(reader.store, 2, 2)
    assert reader.texts() == []


@pytest.mark.parametrize("damage", [(b'"Redacted"', b'"Redactee"'), (b'"n":1', b'"n":9'), (b'{"v":1,"seq":2', b"?")])
def test_where_nobody_can_tell_what_is_erased_nothing_is_shown(
    bs: Backstory, memory: MemoryHandle, reader: Reader, damage: tuple[bytes, bytes]
) -> None:
    say(memory, "a", "b")
    bs.close()
    learn(reader.store, added("Has a cat"))
    promise(reader.store, 1, 1)
    path = reader.store.path(LEDGER)
    assert damage[0] in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(*damage))
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="ledger"):
            reader.look()


def test_a_line_of_the_ledger_that_tells_of_an_erasure_has_to_be_what_was_written(
    bs: Backstory, memory: MemoryHandle, reader: Reader
) -> None:
    say(memory, "a", "b")
    bs.close()
    learn(reader.store, added("Has a cat"))
    promise(reader.store, 1, 1)
    learn(reader.store, added("Has a dog"))
    path = reader.store.path(LEDGER)
    whole = path.read_bytes()
    for damaged in (whole.replace(b'"n":1', b'"n":9'), whole.replace(b'{"v":1,"seq":2', b'?{"v":1,"seq":2')):
        path.write_bytes(damaged)
        with pytest.raises(CorruptLogError, match="ledger"):
            reader.look()
    path.write_bytes(whole)
    assert reader.texts() == ["b"]


# What is not what was read


def test_an_ordinal_that_is_used_twice_is_the_last_one(bs: Backstory, memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a", "b")
    bs.close()
    reader.look()
    head = reader.store.head(TRANSCRIPT)
    turn = Turn(n=1, id="t1", role="user", content="again", at="2026-03-01T12:00:00.000000Z")
    draft = Draft(turn.at, Cause(kind="record", thread="t1"), (TurnRecorded(turn),))
    reader.store.append(TRANSCRIPT, [seal(draft, head, CountingSalts())], head.seq)
    assert reader.texts() == ["b", "again"]
    assert Reader(reader.store).texts() == ["b", "again"]


def test_another_stream_in_its_place_is_read_anew(memory: MemoryHandle, reader: Reader, tmp_path: Path) -> None:
    memory.record("t1", exchange("tea"))
    assert len(reader.texts()) == 2
    with open_home(tmp_path / "other") as other:
        for topic in ("coffee", "milk"):
            other.memory("ada").record("t1", exchange(topic), mode="append")
    reader.store.path(TRANSCRIPT).unlink()
    (tmp_path / "other" / f"{TRANSCRIPT}.jsonl").rename(reader.store.path(TRANSCRIPT))
    assert reader.look().anew
    assert len(reader.texts()) == 4


def test_a_transcript_that_was_cut_short_is_read_anew(memory: MemoryHandle, reader: Reader) -> None:
    for topic in ("tea", "coffee"):
        memory.record("t1", exchange(topic), mode="append")
    assert len(reader.texts()) == 4
    path = reader.store.path(TRANSCRIPT)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert reader.texts() == ["I like tea.", "tea it is."]
    path.unlink()
    assert reader.texts() == []


def test_a_transcript_that_was_exchanged_is_read_anew(tmp_path):
    for name, letters in (("one", "ab"), ("two", "xyz")):
        with open_home(tmp_path / name) as bs:
            for letter in letters:
                bs.memory(scope="global").turns.add({"role": "user", "content": letter})
    reader = Reader(JsonlStore(tmp_path / "one"), Scope())
    assert reader.texts() == ["a", "b"]
    file = tmp_path / "one/transcript.jsonl"
    # The same file, other lines.
    file.write_bytes((tmp_path / "two/transcript.jsonl").read_bytes())
    assert reader.texts() == ["x", "y", "z"]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:1]))
    assert reader.texts() == ["x"]


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_erasure_is_seen_although_the_file_looks_the_same(tmp_path, goes_on):
    """A file system may give the file of a second erasure the number that the file had before the first."""
    with open_home(tmp_path / "one") as bs:
        say(bs.memory(scope="global"), "plain", "secret", "last")
    reader = Reader(JsonlStore(tmp_path / "one"), Scope())
    assert reader.texts() == ["plain", "secret", "last"]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with open_home(tmp_path / "two") as bs:
        bs.memory(scope="global").forget(matching="secret")
        if goes_on:
            say(bs.memory(scope="global"), "more")
    (tmp_path / "one/transcript.jsonl").write_bytes((tmp_path / "two/transcript.jsonl").read_bytes())
    assert reader.texts() == ["plain", "last", "more"][: 2 + goes_on]


def test_damage_is_told(tmp_path):
    with open_home(tmp_path) as bs:
        say(bs.memory("ada"), "a", "b")
    file = tmp_path / f"{TRANSCRIPT}.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"z"', 1))
    reader = Reader(JsonlStore(tmp_path))
    for _ in range(2):
        assert reader.tells_of_damage("transcript")


def test_a_damaged_line_is_told_each_time_and_nothing_is_taken_from_it(memory: MemoryHandle, reader: Reader) -> None:
    memory.record("t1", exchange("tea"))
    memory.record("t1", exchange("coffee"), mode="append")
    reader.look()
    for topic in ("milk", "water"):
        memory.record("t1", exchange(topic), mode="append")
    path = reader.store.path(TRANSCRIPT)
    path.write_bytes(path.read_bytes().replace(b"I like milk.", b"I hate milk."))
    for _ in range(2):
        assert reader.tells_of_damage()


def test_a_line_that_slid_in_before_the_last_is_told(memory: MemoryHandle, reader: Reader) -> None:
    say(memory, "a", "b")
    reader.look()
    path = reader.store.path(TRANSCRIPT)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"?\n" + second)
    assert reader.tells_of_damage()


def test_what_was_read_before_a_damaged_line_is_told_once_that_is_mended(memory: MemoryHandle, reader: Reader) -> None:
    for topic in ("tea", "coffee"):
        memory.record("t1", exchange(topic), mode="append")
    path = reader.store.path(TRANSCRIPT)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"I like coffee.", b"I hate coffee."))
    assert reader.tells_of_damage()
    path.write_bytes(whole)
    assert len(reader.texts()) == 4


def test_a_line_that_breaks_the_chain_is_told(memory: MemoryHandle, reader: Reader) -> None:
    for topic in ("tea", "coffee"):
        memory.record("t1", exchange(topic), mode="append")
    path = reader.store.path(TRANSCRIPT)
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + resealed(second, prev="0" * 64) + b"\n")
    assert reader.tells_of_damage()


def test_the_transcript_of_somebody_else_is_refused(bs: Backstory, reader: Reader) -> None:
    bs.memory("bob").record("t1", exchange("tea"))
    theirs = reader.store.path(Scope("bob").stream("transcript"))
    reader.store.path(TRANSCRIPT).parent.mkdir(parents=True)
    theirs.rename(reader.store.path(TRANSCRIPT))
    assert reader.tells_of_damage("user bob")


# Letting go


def test_whoever_erases_waits_for_nobody_who_reads_and_nothing_is_kept(
    bs: Backstory, memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "a", "b")
    bs.close()
    whole = JsonlStore.read

    def purging(store: JsonlStore, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        for number, record in enumerate(whole(store, stream, after, byte=byte)):
            if number == 1:
                purge = threading.Thread(target=reader.log.start_over)
                purge.start()
                purge.join(PATIENCE)
                assert not purge.is_alive()
            yield record

    monkeypatch.setattr(JsonlStore, "read", purging)
    assert len(reader.log.standing(None)) == 2
    assert reader.follower._held._turns == []
    assert reader.log._indexes.standing(None) == []
    monkeypatch.undo()
    assert reader.texts() == ["a", "b"]


def test_while_words_are_taken_out_nobody_holds_them(
    bs: Backstory, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "plain", "secret")
    log, search = memory._services.state.turns, memory._services.state.search
    assert memory.turns.count() == len(memory.search("secret plain", within="turns")) == 2
    held: list[object] = []
    redact = JsonlStore.redact

    def noted(*given: object) -> None:
        held.extend(
            (*log._follower._held._turns, *log._indexes.standing(None), *search._kept.turns.standing),
        )
        redact(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(JsonlStore, "redact", noted)
    memory.forget(matching="secret")
    assert held == []
    assert memory.turns.count() == 1


def test_an_index_that_was_interrupted_takes_in_the_rest_all_the_same(
    memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        say(memory, f"I like tea {number}")
        memory.add_fact(f"Likes tea {number}")
        if not number:
            assert memory.search("tea")
            assert memory.search("tea", within="turns")
    monkeypatch.setattr("backstory.projections.search.lexical.index.LexicalIndex.put", _interrupted)
    for within in ("facts", "turns"):
        with pytest.raises(KeyboardInterrupt):
            memory.search("tea", within=within)
    monkeypatch.undo()
    for within in ("facts", "turns"):
        assert len(memory.search("tea", within=within)) == 2


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_board_that_was_interrupted_is_made_anew(
    memory: MemoryHandle, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "a")
    reader.look()
    say(memory, "b", "c")
    add = TurnIndex.add
    monkeypatch.setattr(
        TurnIndex, "add", lambda board, row: _interrupted() if row.said.content == "c" else add(board, row)
    )
    with pytest.raises(KeyboardInterrupt):
        reader.log.standing(None)
    monkeypatch.undo()
    assert reader.texts() == ["a", "b", "c"]


def test_a_search_that_is_closed_holds_no_words(bs: Backstory, memory: MemoryHandle) -> None:
    say(memory, "I like tea")
    assert memory.search("tea", within="turns")
    search = memory._services.state.search
    search.close()
    assert not search._follower._held._turns
    assert memory.search("tea", within="turns")


def test_of_each_scope_there_is_one_as_long_as_anybody_looks(bs: Backstory) -> None:
    states = bs._services.states
    together, found = threading.Barrier(4), []

    def ask() -> None:
        together.wait(PATIENCE)
        found.append(states(ADA).turns)

    workers = [threading.Thread(target=ask) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(map(id, found))) == 1
    assert found[0]._follower is states(ADA)._follower is states(ADA).search._follower


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_this_process_follows_although_somebody_was_reading(bs: Backstory, memory: MemoryHandle) -> None:
    say(memory, "a")
    states = bs._services.states
    state = states(ADA)
    with state._follower._mutex, state.turns._mutex, states._mutex, state.making, memory._services.writer._mutex:
        child = os.fork()
        if child == 0:
            code = 1
            # Whoever waits for a lock that nobody holds any more waits for good.
            signal.alarm(int(PATIENCE))
            try:
                said = [turn.content for turn in memory.turns.get()]
                found = [hit.content for hit in memory.search("a", within="turns")]
                code = 0 if said == found == ["a"] and bs.memory("bob").turns.get() == [] else 2
            finally:
                os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [turn.content for turn in memory.turns.get()] == ["a"]


# Any history

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "edit", "append", "withdraw", "forget", "promise", "look", "look before"]),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(max_examples=examples(1 / 4))
@given(steps=STEPS)
def test_following_ends_where_reading_anew_does(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_home(tmp_path_factory.mktemp("home"), clock=FakeClock()) as bs:
        memory, reader = bs.memory("ada"), Reader(JsonlStore(bs.home))
        before = EMPTY
        for number, (step, which) in enumerate(steps):
            thread = f"t{which}"
            match step:
                case "say":
                    before = reader.store.head(TRANSCRIPT)
                    memory.record(thread, exchange(f"tea {number}", number))
                case "edit":
                    memory.record(thread, [{"role": "user", "content": f"Edited {number}", "id": f"u{which}"}])
                case "append":
                    memory.record(thread, exchange("more"), mode="append")
                case "withdraw":
                    memory.turns.delete_newest()
                case "forget":
                    with suppress(NotFoundError):
                        memory.forget(thread_id=thread)
                case "promise" if (told := _interrupted_erasure(memory, which)) is not None:
                    assert told not in Reader(reader.store).texts()
                case "look":
                    reader.look()
                case "look before":
                    reader.look(before)
        reader.look()
        anew = Reader(JsonlStore(bs.home))
        anew.look()
        assert reader.held == anew.held
        assert list(reader.held) == list(anew.held)
        standing = {
            (one.thread, turn.n, turn.content) for one in memory.threads() for turn in memory.transcript(one.thread)
        }
        assert {(said.thread, said.n, said.content) for said in reader.held.values()} == standing


def _interrupted_erasure(memory: MemoryHandle, which: int) -> str | None:
    """Promise to erase a turn, and leave it at that; tells which words it was."""
    turns = memory.turns.get()
    if not turns:
        return None
    turn = turns[which % len(turns)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonlStore, "redact", _refused)
        with suppress(StoreError):
            memory.forget(matching=turn.content)
    return turn.content
