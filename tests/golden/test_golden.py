"""What was written once is read forever: every old format has its golden files, and they lead where they always led."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from golden.make_v1 import (
    DOCUMENT,
    ERASED_EVENT,
    ERASED_TURN,
    LEDGER,
    PIN,
    STREAMS,
    THREAD,
    TRANSCRIPT,
    build,
    ledger,
    transcript,
)
from store.event_strategies import names_of

from ledger.commit import FORMAT, Commit, head_of
from ledger.events import Candidate, CandidateRejected, Erased, Event
from ledger.memory import Fold, Memory
from ledger.scope import Scope
from ledger.store.jsonl import JsonlStore
from ledger.transcript import Transcript
from ledger.writer import read_commits
from projections.document import render
from projections.replay import memory_at
from projections.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    for name, golden in (("ledger", LEDGER), ("transcript", TRANSCRIPT)):
        place = tmp_path / f"{STREAMS[name]}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(golden, place)
    shutil.copy(DOCUMENT, tmp_path / "users/ada/memory.json")
    return JsonlStore(tmp_path)


@pytest.fixture
def commits(store: JsonlStore) -> list[Commit]:
    return list(read_commits(store, STREAMS["ledger"]))


def test_it_replays_to_the_document_it_always_did(commits: list[Commit]) -> None:
    fold = Fold(Memory())
    for commit in commits:
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    assert render(fold.memory()) == DOCUMENT.read_bytes()


def test_it_verifies(store: JsonlStore) -> None:
    found = verify(store, Scope("ada"), document=store.home / "users/ada/memory.json")
    assert (found.ok, found.commits, found.turns, found.problems) == (True, 13, 3, ())


def test_it_can_be_read_at_any_moment(store: JsonlStore) -> None:
    live = {
        seq: {fact.content for fact in memory_at(store, Scope("ada"), seq).facts.values()} for seq in (1, 2, 3, 7, 13)
    }
    assert live == {
        1: set(),
        2: {"Drinks tea: 茶"},
        3: {"Drinks coffee"},
        7: {"Drinks coffee", "Has two cats"},
        13: {"Drinks coffee", "Has two cats", "Has a dog"},
    }


def test_its_turns_are_what_was_said(store: JsonlStore) -> None:
    said = Transcript()
    for commit in read_commits(store, STREAMS["transcript"]):
        said.apply(commit)
    thread = said.threads[THREAD]
    assert thread.turns[0] is not None
    assert thread.turns[0].content == "I drink tea: 茶, “Tee” \\ \t 👍🏽"
    assert thread.turns[0].send_to == ("Planner", "Coder")
    assert thread.turns[0].metadata == {"lang": "de", "tags": ["a", 1, 2.5, True, None], "deep": {"é": {}}}
    assert thread.turns[2] is None
    assert [turn.content for turn in thread.standing()] == ["Noted."]
    assert [turn.content for turn in said.threads["other"].standing()] == ["Hello\nthere"]


def test_what_was_erased_from_it_is_gone(commits: list[Commit], store: JsonlStore) -> None:
    seq, index = ERASED_EVENT
    assert isinstance(commits[seq - 1].events[index], Erased)
    turns = list(read_commits(store, STREAMS["transcript"]))
    assert isinstance(turns[ERASED_TURN[0] - 1].events[ERASED_TURN[1]], Erased)
    for file in (LEDGER, TRANSCRIPT, DOCUMENT):
        assert b"PIN is" not in file.read_bytes()
    assert "PIN is" in PIN.content


def test_it_says_what_was_meant(commits: list[Commit], store: JsonlStore) -> None:
    turns = list(read_commits(store, STREAMS["transcript"]))
    for read, meant in zip((turns, commits), (transcript(), ledger(turns[-1].head)), strict=True):
        assert [commit.at for commit in read] == [draft.at for draft in meant]
        assert [commit.cause for commit in read] == [draft.cause for draft in meant]
        for commit, draft in zip(read, meant, strict=True):
            for told, event in zip(commit.events, draft.events, strict=True):
                assert told == event or isinstance(told, Erased)


def test_it_holds_every_event_and_every_candidate(commits: list[Commit], store: JsonlStore) -> None:
    events = [event for commit in [*commits, *read_commits(store, STREAMS["transcript"])] for event in commit.events]
    assert {type(event) for event in events} == names_of(msgspec.inspect.type_info(Event))
    candidates = {type(event.candidate) for event in events if isinstance(event, CandidateRejected)}
    assert candidates == names_of(msgspec.inspect.type_info(Candidate))


@pytest.mark.skipif(FORMAT != 1, reason="only the newest format is written")
def test_it_is_written_again_to_the_byte() -> None:
    for path, data in build().items():
        assert path.read_bytes() == data, path


def test_its_heads_have_not_moved() -> None:
    """So that nobody writes the files anew without noticing."""
    heads = {path.name: head_of(path.read_bytes().splitlines()[-1]) for path in (LEDGER, TRANSCRIPT)}
    assert {name: (head.seq, head.hash[:16]) for name, head in heads.items()} == {
        "v1.jsonl": (13, "9d381919e4e9e038"),
        "v1.transcript.jsonl": (3, "87cf86ba1cadd56a"),
    }
