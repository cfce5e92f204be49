"""A forked child has none of its parent's threads: it starts over from disk, and waits for none of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock

from ledger.commands import AddFact
from ledger.commit import Cause, Commit
from ledger.events import Access, NewFact
from ledger.group import Ticket
from ledger.memory import Memory
from ledger.messages import Kept
from ledger.scope import Scope
from ledger.store.jsonl import JsonlStore
from ledger.writer import Writer, read_commits

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ADA = Scope("ada")
_LONGEST_SECONDS = 20


def writer_on(home: Path, **settings: object) -> Writer:
    return Writer(JsonlStore(home), ADA, clock=FakeClock(), salts=CountingSalts(), **settings)  # type: ignore[arg-type]


def add(writer: Writer, text: str) -> Commit:
    fact = NewFact(place="facts/0", content=text, confidence=0.9)
    return writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))


def say(writer: Writer, text: str) -> None:
    writer.record("t", [Kept("user", text)], append=True)


def use(writer: Writer, mark: str) -> None:
    with writer.state() as state:
        assert state.memory.seq
    before = len(writer.memory().facts)
    say(writer, f"word {mark}")
    add(writer, f"fact {mark}")
    assert len(writer.memory().facts) > before
    assert f"fact {mark}" in facts_in(writer)
    assert f"word {mark}" in said_in(writer)


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(_LONGEST_SECONDS)
        try:
            work()
        except BaseException:  # noqa: BLE001 the exit code tells
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def gone_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def facts_in(writer: Writer) -> list[str]:
    return sorted(fact.content for fact in writer.memory().facts.values())


def said_in(writer: Writer) -> list[str]:
    with writer.state() as state:
        thread = state.transcript.threads.get("t")
        return [turn.content for turn in thread.turns if turn is not None] if thread is not None else []


def test_children_forked_while_threads_write_go_on_by_themselves(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    done, told, words = threading.Event(), [[], []], [[], []]  # type: ignore[var-annotated]
    add(writer, "fact 0")

    def busy(which: int) -> None:
        n = 0
        while not done.is_set() and n < 40:
            n += 1
            add(writer, f"fact {which}.{n}")
            told[which].append(f"fact {which}.{n}")
            say(writer, f"word {which}.{n}")
            words[which].append(f"word {which}.{n}")

    threads = [threading.Thread(target=busy, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    children = []
    for k in range(6):
        children.append(forked(lambda k=k: use(writer, f"child {k}")))  # type: ignore[misc]
        time.sleep(0)
    well = [gone_well(child) for child in children]
    done.set()
    for thread in threads:
        thread.join()
    assert all(well)
    facts = sorted(["fact 0", *told[0], *told[1], *(f"fact child {k}" for k in range(6))])
    assert facts_in(writer) == facts_in(writer_on(tmp_path)) == facts
    spoken = sorted([*words[0], *words[1], *(f"word child {k}" for k in range(6))])
    assert sorted(said_in(writer)) == sorted(said_in(writer_on(tmp_path))) == spoken
    for stream in (writer.ledger, writer.transcript_stream):
        seqs = [commit.seq for commit in read_commits(writer.store, stream)]
        assert seqs == list(range(1, len(seqs) + 1))


def test_no_lock_that_a_thread_of_the_parent_holds_stops_a_child(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    add(writer, "fact 0")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        desk = writer._desk
        with desk.mutex, desk.learned.group._mutex, desk.said.group._mutex, desk.announcing:
            desk.learned.group._led = desk.said.group._led = True
            held.set()
            let_go.wait(_LONGEST_SECONDS)
            desk.learned.group._led = desk.said.group._led = False

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(_LONGEST_SECONDS)
    well = gone_well(forked(lambda: use(writer, "child")))
    let_go.set()
    holder.join()
    assert well
    use(writer, "parent")
    assert facts_in(writer) == ["fact 0", "fact child", "fact parent"]


def test_what_is_decided_and_not_written_is_the_parents_to_write(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    add(writer, "fact 0")
    with writer._mutex:
        writer._desk.catch_up(writer._learned)
        command = AddFact(at="", fact=NewFact(place="facts/0", content="fact 1", confidence=0.9))
        head = writer._view.head
        decided = writer._decided(command, Cause(kind="manual", action="add"), writer.memory(durable=False).at)
        ticket: Ticket = writer._append(head, *decided)
        assert gone_well(forked(lambda: _starts_over(writer, ticket)))
    assert not writer._learned.group.is_settled(ticket), "the child was quicker"
    add(writer, "fact 1")
    assert facts_in(writer) == facts_in(writer_on(tmp_path)) == ["fact 0", "fact 1", "fact child"]


def _starts_over(writer: Writer, ticket: Ticket) -> None:
    assert not writer._learned.group.is_settled(ticket)
    assert facts_in(writer) == ["fact 0"]
    add(writer, "fact child")


@pytest.mark.parametrize("first", [True, False])
def test_a_fork_between_deciding_and_writing_lets_the_child_decide_again(tmp_path: Path, *, first: bool) -> None:
    children: list[int] = []

    def heat() -> dict[str, Access]:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(_LONGEST_SECONDS)
        return {}

    writer = writer_on(tmp_path, heat=heat, policy={"fact_eviction_policy": "hybrid", "max_facts": 10})
    if not first:
        writer.put_policy_in_force()
    try:
        for n in range(12):
            # The one that finds memory full asks for heat, and is forked there.
            add(writer, f"fact {os.getpid() if children else 0}.{n}")
    except BaseException:
        if children and children[0] == 0:
            os._exit(1)
        raise
    if children[0] == 0:
        os._exit(0 if len(facts_in(writer)) == 10 else 2)
    assert gone_well(children[0])
    assert facts_in(writer) == facts_in(writer_on(tmp_path))
    seqs = [commit.seq for commit in read_commits(writer.store, writer.ledger)]
    assert seqs == [*range(1, 1 + 1 + 10 + 2 * 2)]


def test_a_listener_may_fork_and_the_child_tells_of_its_own_commits_only(tmp_path: Path) -> None:
    told: list[int] = []
    children: list[int] = []

    def listener(scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        told.append(commit.seq)
        if not children:
            children.append(os.fork())

    writer = writer_on(tmp_path, listeners=[listener])
    try:
        add(writer, "fact 0")
        if children[0] == 0:
            signal.alarm(_LONGEST_SECONDS)
            assert told == [1]
            add(writer, "fact child")
            os._exit(0 if told == [1, 3] else 2)
    except BaseException:
        if children and children[0] == 0:
            os._exit(1)
        raise
    assert gone_well(children[0])
    add(writer, "fact 1")
    assert told == [1, 2, 4]
    assert facts_in(writer) == ["fact 0", "fact 1", "fact child"]
