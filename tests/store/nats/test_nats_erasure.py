"""An erasure leaves nothing of the old bytes in the server's files, and one that was interrupted is completed."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.nats.engine import NatsEngine

from backstory.ledger.core.commit import head_of
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.store.nats.erasing import Erasing
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill, offsets
from benchmarks.private_nats import NatsServer

WORD = "the-word-that-must-go"


def files_with(server: NatsServer, text: str) -> list[Path]:
    """Which of the server's files hold a text."""
    return [path for path in server.folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_nothing_of_what_was_erased_is_left_in_the_files_of_the_server(engine: NatsEngine, server: NatsServer) -> None:
    store = engine.open()
    secret = f"{WORD}-redacted"
    lines = chain(5, text=secret)
    fill(store, STREAM, lines)
    assert files_with(server, secret)
    store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in range(1, 6)})
    assert not files_with(server, secret)
    assert lines_of(engine.open()) == [erase(line, 0) for line in lines]


def test_nothing_of_a_removed_folder_is_left_in_the_files_of_the_server(engine: NatsEngine, server: NatsServer) -> None:
    store = engine.open()
    secret = f"{WORD}-removed"
    fill(store, "users/eve/ledger", chain(3, text=secret))
    key = store.key("users/eve/ledger", create=True)
    assert key is not None
    assert any(key in path.read_bytes() for path in server.folder.rglob("*.blk"))
    assert store.remove("users/eve")
    assert not files_with(server, secret)
    assert not any(key in path.read_bytes() for path in server.folder.rglob("*.blk"))


def test_the_last_commit_can_be_erased_and_its_place_is_not_taken_by_another(engine: NatsEngine) -> None:
    store, other = engine.open(), engine.open()
    lines = chain(4)
    fill(store, STREAM, lines[:2])
    stale = engine.open()
    stale.append(STREAM, lines[2], 2)
    store.redact(STREAM, {3: erase(lines[2], 0)})
    assert store.head(STREAM) == other.head(STREAM) == head_of(lines[2])
    stale.append(STREAM, lines[3], 3)
    wanted = [*lines[:2], erase(lines[2], 0), lines[3]]
    assert lines_of(other) == wanted
    assert [record.byte for record in other.read(STREAM)] == offsets(wanted)[:-1]
    assert other.size(STREAM) == offsets(wanted)[-1]


def test_a_line_can_be_erased_from_again(engine: NatsEngine, server: NatsServer) -> None:
    store = engine.open()
    lines = chain(3, text=f"{WORD}-twice")
    fill(store, STREAM, lines)
    half = {seq: erase(lines[seq - 1], 0) for seq in (1, 2)}
    store.redact(STREAM, half)
    whole = erase(half[2], -1)
    store.redact(STREAM, {2: whole})
    assert lines_of(engine.open()) == lines_of(store) == [half[1], whole, lines[2]]
    assert not files_with(server, half[2].decode()[60:200])


def test_an_erasure_that_was_interrupted_is_completed_by_who_reads_next(
    engine: NatsEngine, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{WORD}-interrupted"
    lines = chain(3, text=secret)
    store = engine.open()
    fill(store, STREAM, lines)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Erasing, "_work_off", dies)
        patched.setattr(Erasing, "complete", lambda *_: None)
        store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in (1, 2, 3)})
    assert files_with(server, secret)
    wanted = [erase(line, 0) for line in lines]
    other = engine.open()
    assert lines_of(other) == wanted
    assert not files_with(server, secret)
    assert [commit.seq for commit in read_commits(other, STREAM)] == [1, 2, 3]
    assert lines_of(engine.open()) == wanted


def test_a_removal_that_was_interrupted_is_completed_by_the_next(
    engine: NatsEngine, server: NatsServer, monkeypatch: pytest.MonkeyPatch
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
    assert files_with(server, secret)
    assert other.remove("users/eve")
    assert not files_with(server, secret)
    assert not other.remove("users/eve")


def test_many_lines_are_erased_at_once(engine: NatsEngine) -> None:
    store = engine.open()
    lines = chain(1500)
    store.append_all(STREAM, lines, 0)
    stubs = {seq: erase(line, 0) for seq, line in enumerate(lines, 1)}
    store.redact(STREAM, stubs)
    assert lines_of(engine.open()) == list(stubs.values())
    assert lines_of(engine.open(), after=1490) == list(stubs.values())[1490:]
