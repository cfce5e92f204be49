"""What two threads or two processes may do to each other: nothing acknowledged is lost, doubled or brought back."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home

from backstory.ledger.core.commands import AddFact, RemoveFact
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.errors import BackstoryError, NotFoundError, StoreError
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.erasure.requests import ForgetMatching, ForgetThread
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.projections.history.moment import replay

ADA = Scope("ada")


def writer_on(home: Path, **settings: object) -> Writer:
    return Writer(JsonlStore(home, lock_timeout=PATIENCE), ADA, clock=FakeClock(), **settings)  # type: ignore[arg-type]


def said(*texts: str, ids: Sequence[str] | None = None) -> list[Kept]:
    roles = ("user", "assistant")
    return [Kept(role=roles[n % 2], content=text, id=None if ids is None else ids[n]) for n, text in enumerate(texts)]


def standing(writer: Writer, thread: str) -> list[str]:
    with writer.state() as state:
        return [turn.content for turn in state.transcript.threads[thread].standing()]


def add(writer: Writer, text: str) -> None:
    fact = NewFact(place="newFacts/0", content=text, confidence=0.9)
    writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))


class Disk:
    """Holds up, and then fails, the sync of what one thread appends.

    Not that of what it reads: others may then write before it, and its own words be there already.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.victim: threading.Thread | None = None
        self.entered, self.go = threading.Event(), threading.Event()
        real = os.fdatasync

        def sync(descriptor: int) -> None:
            appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            if appends and threading.current_thread() is self.victim:
                self.entered.set()
                assert self.go.wait(PATIENCE)
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        monkeypatch.setattr(os, "fdatasync", sync)

    def record(self, writer: Writer, thread: str, messages: list[Kept]) -> list[BackstoryError]:
        """Record in a thread of its own whose sync is held up; what that raised is in the list in the end."""
        raised: list[BackstoryError] = []

        def work() -> None:
            try:
                writer.record(thread, messages)
            except BackstoryError as error:
                raised.append(error)

        self.victim = threading.Thread(target=work)
        self.victim.start()
        assert self.entered.wait(PATIENCE)
        return raised


def after(work: threading.Thread | None) -> None:
    assert work is not None
    work.join(PATIENCE)


def test_what_an_erasure_elsewhere_makes_a_process_read_anew_is_not_folded_twice(tmp_path: Path) -> None:
    one, other = writer_on(tmp_path), writer_on(tmp_path)
    one.record("old", said("a secret", "noted"))
    other.memory()
    other.record("x", said("one", "hi"))
    one.forget(ForgetThread("old"))
    other.record("x", said("one", "hi", "two", "hm"))
    assert standing(other, "x") == standing(writer_on(tmp_path), "x") == ["one", "hi", "two", "hm"]
    with writer_on(tmp_path).state() as state:
        assert [turn.n for turn in state.transcript.threads["x"].standing()] == [1, 2, 3, 4]


def test_a_thread_is_not_told_of_another_threads_words_before_they_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, disk = writer_on(tmp_path), Disk(monkeypatch)
    raised = disk.record(writer, "x", said("my name is Zed", "hi"))
    told: list[int] = []

    def record_again() -> None:
        with suppress(StoreError):
            told.append(writer.record("x", said("my name is Zed", "hi")).turns)

    again = threading.Thread(target=record_again)
    again.start()
    disk.go.set()
    after(disk.victim)
    after(again)
    assert [type(error) for error in raised] == [StoreError]
    # Told that it failed, or not told that it was there already.
    assert told in ([2], [])
    assert writer.record("x", said("my name is Zed", "hi")).turns == (0 if told else 2)


def test_a_process_believes_nothing_of_another_that_may_still_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, disk = writer_on(tmp_path), writer_on(tmp_path), Disk(monkeypatch)
    one.record("x", said("one", "hi"))
    other.record("y", said("yo", "hi"))
    words = said("one", "hi", "my name is Zed", "ok")
    raised = disk.record(one, "x", words)
    told: list[int] = []
    waits, locked = threading.Event(), other.store.locked

    def lock(stream: str) -> AbstractContextManager[None]:
        waits.set()
        return locked(stream)

    def record_again() -> None:
        told.append(other.record("x", words).turns)
        waits.set()

    monkeypatch.setattr(other.store, "locked", lock)
    again = threading.Thread(target=record_again)
    again.start()
    assert waits.wait(PATIENCE)
    disk.go.set()
    after(disk.victim)
    after(again)
    assert [type(error) for error in raised] == [StoreError]
    assert told == [2]
    assert other.record("y", said("yo", "hi", "more", "hm")).turns == 2
    assert standing(writer_on(tmp_path), "x") == ["one", "hi", "my name is Zed", "ok"]


def test_ids_that_look_like_ours_do_not_bring_erased_turns_back(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    words = said("my secret", "noted", ids=["t1", "t2"])
    writer.record("x", words)
    writer.forget(ForgetThread("x"))
    assert writer.record("x", words).turns == 0
    assert b"my secret" not in writer.store.path(writer.transcript_stream).read_bytes()  # type: ignore[attr-defined]


def test_a_turn_whose_older_text_was_erased_can_still_be_edited(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    for text in ("an old secretword text", "a harmless text"):
        writer.record("x", said(text, "noted", ids=["u1", "a1"]))
    writer.forget(ForgetMatching("secretword"))
    assert writer.record("x", said("a third and harmless text", "noted", ids=["u1", "a1"])).turns == 1
    assert writer.record("x", said("an old secretword text", "noted", ids=["u1", "a1"])).turns == 0
    assert standing(writer, "x") == ["noted", "a third and harmless text"]


def test_a_command_that_is_refused_leaves_no_line_that_nobody_waits_for(tmp_path: Path) -> None:
    one = writer_on(tmp_path)
    add(one, "a fact")
    other = writer_on(tmp_path, policy={"max_facts": Policy().max_facts + 1})
    with pytest.raises(NotFoundError):
        other.commit(RemoveFact(at="", fact_id="fact_9_9"), Cause(kind="manual", action="remove"))
    add(one, "another fact")
    assert len(other.memory(durable=False).facts) == 2
    assert other.memory() == replay(JsonlStore(tmp_path), ADA)


def test_an_erasure_that_fails_half_way_is_completed_by_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_on(tmp_path)
    writer.record("x", said("a secretword", "noted"))
    add(writer, "Knows a secretword")
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        patch.setattr(writer.store, "redact", full)
        with pytest.raises(StoreError):
            writer.forget(ForgetMatching("secretword"))
    assert writer.memory().facts == {}
    for path in tmp_path.rglob("*.jsonl"):
        assert b"secretword" not in path.read_bytes()


def test_a_read_that_fails_after_an_erasure_leaves_no_half_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = writer_on(tmp_path), writer_on(tmp_path)
    one.record("x", said("a secretword", "noted"))
    for number in range(6):
        add(one, f"fact {number}")
    other.memory()
    one.forget(ForgetThread("x"))
    real = JsonlStore.read

    def failing(store: JsonlStore, stream: str, after: int = 0, *, byte: int | None = None) -> object:
        for number, record in enumerate(real(store, stream, after, byte=byte)):
            if stream.endswith("ledger") and number == 5:
                raise StoreError("Input/output error")
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(JsonlStore, "read", failing)
        with pytest.raises(StoreError):
            other.memory()
    assert other.memory() == replay(JsonlStore(tmp_path), ADA)


def test_retention_writes_nothing_where_nothing_was_learned(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(), clock=FakeClock(), transcript_retention_days=1) as bs:
        bs.memory("ada").add_fact("Likes tea")
        coder = bs.memory("ada", "coder")
        coder.flush()
        assert [fact.content for fact in coder.facts()] == ["Likes tea"]
        coder.record("t", exchange("tea"))
        assert [thread.thread for thread in coder.threads()] == ["t"]
