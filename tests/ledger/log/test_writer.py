"""What the writer completes a command with, and what it refuses to go on from."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock
from one_thread import chat
from streams import memory_at

from backstory.ledger.core.commands import Clear, Summarize
from backstory.ledger.core.commit import EMPTY, Cause, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import TurnRange, UpdateFailed
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.commits import must_not_shrink, read_commits_and_ends
from backstory.ledger.log.pipeline import GroupCommit
from backstory.ledger.log.writer import Writer

ADA = Scope("ada")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def writer(tmp_path: Path, clock: FakeClock) -> Writer:
    return Writer(JsonlStore(tmp_path), ADA, clock=clock, salts=CountingSalts())


def test_a_preview_is_dated_no_earlier_than_the_last_commit(writer: Writer, clock: FakeClock) -> None:
    commit = writer.commit(Clear(at=""), Cause(kind="clear"))
    clock.advance(-3_600)
    assert writer.dated(Clear(at="")).at == commit.at


@pytest.mark.parametrize(("shown", "lost"), [((1, 2), False), ((1, 3), True)])
def test_a_summary_of_turns_that_are_gone_from_the_log_is_refused(
    writer: Writer, shown: tuple[int, ...], lost: bool
) -> None:
    writer.record("t", chat("I run.", "I see."))
    basis = writer.commit(Clear(at=""), Cause(kind="clear")).seq
    summary = Summarize(at="", thread="t", level=1, turns=TurnRange(1, 2), basis=basis, text="Runs.", shown=shown)
    commit = writer.commit(summary, Cause(kind="summary", thread="t"))
    reasons = [event.reason for event in commit.events if isinstance(event, UpdateFailed)]
    assert reasons == (["basis"] if lost else ["covered"])


@pytest.mark.parametrize(("now", "kind"), [(Head(2, "a"), "missing"), (Head(3, "b"), "broken_prev")])
def test_a_log_that_ends_earlier_or_in_another_commit_is_damaged(now: Head, kind: str) -> None:
    with pytest.raises(CorruptLogError) as damage:
        must_not_shrink("users/ada/ledger", Head(3, "a"), now)
    assert damage.value.kind == kind
    must_not_shrink("users/ada/ledger", Head(3, "a"), Head(4, "b"))
    must_not_shrink("users/ada/ledger", Head(0, ""), Head(0, ""))


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (0, 2), (0, 0, 1)])
def test_a_line_out_of_its_place_is_damage_even_where_lines_are_not_hashed_again(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    for _ in range(3):
        last = writer.commit(Clear(at=""), Cause(kind="clear")).seq
    stream = ADA.stream(LEDGER)
    lines = list(writer.store.read(stream, 0))
    whole = read_commits_and_ends(writer.store, stream, EMPTY, None, verified=last)
    assert [commit.seq for commit, _ in whole] == list(range(1, last + 1))
    monkeypatch.setattr(writer.store, "read", lambda *_, **__: iter([lines[place] for place in order]))
    with pytest.raises(CorruptLogError):
        list(read_commits_and_ends(writer.store, stream, EMPTY, None, verified=last))


def test_memory_at_a_time_holds_the_commit_of_that_time(writer: Writer, clock: FakeClock) -> None:
    ends = []
    for _ in range(2):
        ends.append(writer.commit(Clear(at=""), Cause(kind="clear")))
        clock.advance(60)
    assert writer.store.head(ADA.stream(LEDGER)).seq == ends[-1].seq
    for commit in ends:
        assert memory_at(writer.store, ADA, commit.at).seq == commit.seq


def queue_one(writer: Writer) -> None:
    """Commit once, and decide a second commit whose line nobody has written yet."""
    writer.commit(Clear(at=""), Cause(kind="clear"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupCommit, "settle", lambda *_: None)
        writer.commit(Clear(at=""), Cause(kind="clear"))


def test_a_state_is_durable_unless_another_one_is_asked_for(writer: Writer) -> None:
    queue_one(writer)
    with writer.state(durable=False) as state:
        assert state.head.seq == writer.store.head(writer.ledger).seq + 1
    with writer.state() as state:
        assert state.head == writer.store.head(writer.ledger)


def test_a_memory_is_durable_unless_another_one_is_asked_for(writer: Writer) -> None:
    queue_one(writer)
    on_disk = writer.store.head(writer.ledger).seq
    assert (writer.memory().seq, writer.memory(durable=False).seq) == (on_disk, on_disk + 1)
