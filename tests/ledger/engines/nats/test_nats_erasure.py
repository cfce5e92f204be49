"""An erasure leaves nothing of the old bytes in the server's files, and one that was interrupted is completed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from doubles.nats_engine import NatsEngine

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.nats.erasing import Erasing
from backstory.ledger.engines.nats.holding import NatsHolds, StreamHold
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing
from backstory.ledger.engines.nats.reading import StreamReading
from backstory.ledger.log.commits import read_commits
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill, offsets

WORD = "the-word-that-must-go"


def test_nothing_of_what_was_erased_is_left_in_the_files_of_the_server(engine: NatsEngine) -> None:
    store = engine.open()
    secret = f"{WORD}-redacted"
    lines = chain(5, text=secret)
    fill(store, STREAM, lines)
    assert engine.files_with(secret.encode())
    store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in range(1, 6)})
    assert not engine.files_with(secret.encode())
    assert lines_of(engine.open()) == [erase(line, 0) for line in lines]


def test_nothing_of_a_removed_folder_is_left_in_the_files_of_the_server(engine: NatsEngine) -> None:
    store = engine.open()
    secret = f"{WORD}-removed"
    fill(store, "users/eve/ledger", chain(3, text=secret))
    key = store.key("users/eve/ledger", create=True)
    assert key is not None
    assert engine.files_with(key)
    assert store.remove("users/eve")
    assert not engine.files_with(secret.encode())
    assert not engine.files_with(key)


def test_the_last_commit_can_be_erased_and_its_place_is_not_taken_by_another(engine: NatsEngine) -> None:
    store, other = engine.open(), engine.open()
    lines = chain(4)
    fill(store, STREAM, lines[:2])
    stale = engine.open()
    stale.append(STREAM, [lines[2]], 2)
    store.redact(STREAM, {3: erase(lines[2], 0)})
    assert store.head(STREAM) == other.head(STREAM) == head_of(lines[2])
    stale.append(STREAM, [lines[3]], 3)
    wanted = [*lines[:2], erase(lines[2], 0), lines[3]]
    assert lines_of(other) == wanted
    assert [record.byte for record in other.read(STREAM)] == offsets(wanted)[:-1]
    assert other.state(STREAM).size == offsets(wanted)[-1]


def test_a_line_can_be_erased_from_again(engine: NatsEngine) -> None:
    store = engine.open()
    lines = chain(3, text=f"{WORD}-twice")
    fill(store, STREAM, lines)
    half = {seq: erase(lines[seq - 1], 0) for seq in (1, 2)}
    store.redact(STREAM, half)
    whole = erase(half[2], -1)
    store.redact(STREAM, {2: whole})
    assert lines_of(engine.open()) == lines_of(store) == [half[1], whole, lines[2]]
    assert not engine.files_with((half[2].decode()[60:200]).encode())


def test_an_erasure_that_was_interrupted_is_completed_by_who_reads_next(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{WORD}-interrupted"
    lines = chain(3, text=secret)
    store = engine.open()
    fill(store, STREAM, lines)

    with monkeypatch.context() as patched:
        patched.setattr(StreamReading, "complete", lambda *_: None)
        store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in (1, 2, 3)})
    assert engine.files_with(secret.encode())
    wanted = [erase(line, 0) for line in lines]
    other = engine.open()
    assert lines_of(other) == wanted
    assert not engine.files_with(secret.encode())
    assert [commit.seq for commit in read_commits(other, STREAM)] == [1, 2, 3]
    assert lines_of(engine.open()) == wanted


def test_a_removal_locks_a_transcript_before_its_ledger_as_an_erasure_does(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engine.open()
    for stream in ("users/eve/ledger", "users/eve/transcript", "users/eve/agents/a/ledger"):
        fill(store, stream, chain(1))
    locked: list[str] = []
    inner = NatsHolds.locked

    def noted(self: NatsHolds, stream: str, *, wait: bool = True) -> AbstractContextManager[StreamHold]:
        locked.append(stream)
        return inner(self, stream, wait=wait)

    monkeypatch.setattr(NatsHolds, "locked", noted)
    assert store.remove("users/eve")
    assert locked == ["users/eve/agents/a/ledger", "users/eve/transcript", "users/eve/ledger"]


def test_a_removal_that_was_interrupted_is_completed_by_the_next(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{WORD}-half-removed"
    store = engine.open()
    for stream in ("users/eve/ledger", "users/eve/transcript"):
        fill(store, stream, chain(2, text=secret))

    def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Erasing, "_sweep", dies)
        with pytest.raises(KeyboardInterrupt):
            store.remove("users/eve")
    other = engine.open()
    assert list(other.streams()) == []
    assert other.head("users/eve/ledger").seq == 0
    assert lines_of(other, "users/eve/ledger") == []
    assert engine.files_with(secret.encode())
    assert other.remove("users/eve")
    assert not engine.files_with(secret.encode())
    assert not other.remove("users/eve")


def test_many_lines_are_erased_at_once(engine: NatsEngine) -> None:
    store = engine.open()
    lines = chain(1010)  # more than a server takes in one batch
    store.append(STREAM, lines, 0)
    stubs = {seq: erase(line, 0) for seq, line in enumerate(lines, 1)}
    store.redact(STREAM, stubs)
    assert lines_of(engine.open()) == list(stubs.values())
    assert lines_of(engine.open(), after=1000) == list(stubs.values())[1000:]


def seqs_of(lines: Sequence[bytes]) -> list[int]:
    return [head_of(line).seq for line in lines]


def test_who_reads_meanwhile_misses_no_line_that_is_erased(engine: NatsEngine) -> None:
    store = engine.open()
    lines = chain(100)
    store.append(STREAM, lines, 0)
    reading = engine.open().read(STREAM)
    seen = [next(reading).line]
    store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in (50, 99, 100)})
    seen += [record.line for record in reading]
    assert seqs_of(seen) == list(range(1, 101))


def test_who_reads_meanwhile_sees_no_gap_in_what_is_removed(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages are deleted many at a time, so that some in the middle go before others."""
    store = engine.open()
    store.append("users/eve/ledger", chain(20), 0)
    reading = engine.open().read("users/eve/ledger")
    seen = [next(reading).line]
    monkeypatch.setattr(Erasing, "_sweep", lambda *_: True)
    store.remove("users/eve")
    store._connection.delete(f"{store.address.prefix}-0", range(2, 12))
    seen += [record.line for record in reading]
    assert seqs_of(seen) == list(range(1, len(seen) + 1))


def in_the_middle(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Have something done between the two parts of a removal."""
    really = Erasing._sweep

    def sweep(self: Erasing, shard: int) -> bool:
        work()
        return really(self, shard)

    monkeypatch.setattr(Erasing, "_sweep", sweep)


def test_a_removal_spares_what_is_written_anew_before_it_ends(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = engine.open(), engine.open()
    stream, new = "users/eve/transcript", chain(1, text="new")
    fill(store, stream, chain(2))
    store.key("users/eve/ledger", create=True)
    old = store.key(stream, create=True)
    keys: list[bytes | None] = []

    def begin_anew() -> None:
        keys.append(other.key(stream))
        keys.append(other.key(stream, create=True))
        fill(other, stream, new)

    in_the_middle(monkeypatch, begin_anew)
    assert store.remove("users/eve")
    assert lines_of(engine.open(), stream) == new
    assert keys == [None, engine.open().key(stream)]
    assert None is not keys[1] != old
    assert list(engine.open().streams()) == [stream]


def test_what_was_erased_from_a_removed_stream_does_not_show_in_a_new_one(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal was interrupted."""
    store, other = engine.open(), engine.open()
    stream, old, new = "users/eve/transcript", chain(3), chain(3, text="new")
    fill(store, stream, old)
    store.redact(stream, {2: erase(old[1], 0)})
    monkeypatch.setattr(Erasing, "_sweep", lambda *_: True)
    store.remove("users/eve")
    fill(other, stream, new)
    assert lines_of(engine.open(), stream) == lines_of(store, stream) == new


@pytest.mark.parametrize("last", [2, 3])
def test_an_erasure_that_was_stopped_for_long_does_not_undo_another(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    engine.url += "&lease_seconds=1"
    store, other = engine.open(), engine.open()
    lines = chain(last)
    fill(store, STREAM, lines)
    half = erase(lines[1], 0)
    whole = erase(half, -1)
    really = JetStream.publish

    def publish(self: JetStream, messages: Sequence[Outgoing]) -> int | None:
        if self is store._connection and len(messages) > 1:
            store._holds.end()
            deadline = time.monotonic() + 30
            while other._holds.is_held(STREAM, other._reading.tip(STREAM)):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            other.redact(STREAM, {2: whole})
        return really(self, messages)

    monkeypatch.setattr(JetStream, "publish", publish)
    with pytest.raises(StoreError, match="lock was lost"):
        store.redact(STREAM, {2: half})
    monkeypatch.undo()
    assert lines_of(engine.open())[1] == whole


def test_an_erasure_that_was_interrupted_is_completed_by_who_has_read_before_too(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{WORD}-seen-before"
    lines = chain(3, text=secret)
    store, reader = engine.open(), engine.open()
    fill(store, STREAM, lines)
    store.redact(STREAM, {1: erase(lines[0], 0)})
    assert len(lines_of(reader)) == 3
    with monkeypatch.context() as patched:
        patched.setattr(StreamReading, "complete", lambda *_: None)
        store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in (2, 3)})
    assert engine.files_with(secret.encode())
    assert lines_of(reader) == [erase(line, 0) for line in lines]
    assert not engine.files_with(secret.encode())
