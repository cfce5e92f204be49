"""Requests: those that are repeated, that hold only on a head that was seen, and who made them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fakes import FakeClock, open_home

from backstory import (
    Backstory,
    DuplicateFactError,
    KeyReusedError,
    MemoryHandle,
    NotFoundError,
    UndoResult,
    WrongExpectedVersionError,
)
from backstory.ledger.core.scope import TRANSCRIPT
from backstory.operations import undoing

HI = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# Once.


def test_a_change_under_a_key_is_made_once_and_answers_the_same_each_time(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        added = memory.once("a").add_fact("likes tea")
        edited = memory.once("e").edit_fact(added.fact.id, "likes green tea")
        removed = memory.once("r").remove_fact(added.fact.id)
        seq = memory.head().seq
    with open_home(home) as bs:  # after a restart
        memory = bs.memory("ada")
        assert memory.once("a").add_fact("likes tea") == added
        assert memory.once("e").edit_fact(added.fact.id, "likes green tea") == edited
        assert memory.once("r").remove_fact(added.fact.id) == removed
        assert memory.head().seq == seq


def test_a_refusal_under_a_key_is_recorded_once_and_raised_again(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        known = memory.add_fact("likes tea").fact.id
        for _ in range(2):
            with pytest.raises(DuplicateFactError) as refused:
                memory.once("k").add_fact("Likes tea.")
            assert (refused.value.fact_id, refused.value.seq) == (known, 3)
        assert memory.head().seq == 3


@pytest.mark.parametrize(
    "other",
    [
        lambda memory, _: memory.add_fact("likes coffee"),
        lambda memory, _: memory.add_fact("likes tea", category="goal"),
        lambda memory, _: memory.add_fact("likes tea", confidence=0.5),
        lambda memory, fact: memory.edit_fact(fact, "likes tea"),
        lambda memory, fact: memory.remove_fact(fact),
    ],
)
def test_a_key_is_not_used_for_two_changes(home: Path, other: Callable[[MemoryHandle, str], object]) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        added = memory.once("k").add_fact("likes tea")
        with pytest.raises(KeyReusedError, match="commit 2"):
            other(memory.once("k"), added.fact.id)
        assert memory.head().seq == 2


def test_a_key_counts_in_one_memory_and_two_keys_are_two_changes(home: Path) -> None:
    with open_home(home) as bs:
        assert bs.memory("ada").once("k").add_fact("likes tea").commit == 2
        assert bs.memory("bob").once("k").add_fact("likes coffee").commit == 2
        assert bs.memory("ada").once("other").add_fact("likes milk").commit == 3


def test_what_was_erased_since_is_not_made_again(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        added = memory.once("k").add_fact("likes tea")
        memory.forget(added.fact.id)
        with pytest.raises(NotFoundError, match="erased since"):
            memory.once("k").add_fact("likes tea")
        assert memory.facts() == ()


def test_a_key_is_recognised_for_a_day_and_after_the_memory_was_removed_it_is_new(home: Path) -> None:
    clock = FakeClock()
    with open_home(home, clock=clock) as bs:
        bs.memory("ada").once("k").add_fact("likes tea")
        clock.advance(23 * 3600)
        assert bs.memory("ada").once("k").add_fact("likes tea").commit == 2
        bs.forget_user("ada")
        for fact in ("likes rum", "likes gin"):
            bs.memory("ada").add_fact(fact)
        assert bs.memory("ada").once("k").add_fact("likes tea").commit == 4


def test_the_log_holds_no_key(home: Path) -> None:
    with open_home(home) as bs:
        bs.memory("ada").once("a secret key").add_fact("likes tea")
        bs.memory("ada").once("a secret key").record("t", HI)
    assert [path for path in home.rglob("*") if path.is_file() and b"secret key" in path.read_bytes()] == []


@pytest.mark.parametrize("mode", ["conversation", "append", "replace"])
def test_a_delivery_under_a_key_is_recorded_once_and_answers_the_same_each_time(home: Path, mode: str) -> None:
    with open_home(home) as bs:
        first = bs.memory("ada").once("k").record("t", HI, mode=mode)  # type: ignore[arg-type]
        assert (first.turns, first.skipped) == (2, 0)
    with open_home(home) as bs:
        memory = bs.memory("ada")
        assert memory.once("k").record("t", HI, mode=mode) == first  # type: ignore[arg-type]
        assert len(memory.transcript("t")) == 2
        # Without the key, or under another one, the same words are said again.
        assert memory.once("other").record("t", HI, mode="append").turns == 2


def test_a_key_is_not_used_for_two_deliveries(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.once("k").record("t", HI, mode="append")
        with pytest.raises(KeyReusedError, match="other messages of thread t"):
            memory.once("k").record("t", [{"role": "user", "content": "something else"}], mode="append")
        assert len(memory.transcript("t")) == 2


def test_a_long_delivery_that_was_cut_short_is_completed_and_not_doubled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery of several commits whose answer is lost: the part that is there is known by its key."""
    long = [{"role": role, "content": f"{role} {n}"} for n in range(150) for role in ("user", "assistant")]
    with open_home(home) as bs:
        bs.memory("ada").once("k").record("t", long[:200])
    with open_home(home) as bs:
        memory = bs.memory("ada")
        assert memory.once("k").record("t", long).turns == 300
        assert [turn.content for turn in memory.transcript("t")] == [message["content"] for message in long]


def test_many_requests_at_once_with_one_key_make_one_change(home: Path) -> None:
    """Two homes stand for two processes; each request may meet another one between its look and its commit."""
    homes = [open_home(home), open_home(home)]
    made: list[tuple[int, int]] = []

    def ask(bs: Backstory) -> None:
        memory = bs.memory("ada")
        seq = memory.once("k").add_fact("likes tea").commit
        made.append((seq, memory.once("k").record("t", HI, mode="append").turns))

    threads = [threading.Thread(target=ask, args=(bs,)) for bs in homes * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [(2, 2)] * 16
    with open_home(home) as bs:
        assert (bs.memory("ada").head().seq, len(bs.memory("ada").transcript("t"))) == (2, 2)
    for bs in homes:
        bs.close()


# Expecting.

CHANGES: dict[str, Callable[[MemoryHandle], object]] = {
    "add_fact": lambda memory: memory.add_fact("likes coffee"),
    "edit_fact": lambda memory: memory.edit_fact(memory.facts()[0].id, "likes coffee"),
    "remove_fact": lambda memory: memory.remove_fact(memory.facts()[0].id),
    "revert": lambda memory: memory.revert(2),
    "rollback": lambda memory: memory.rollback(2),
    "clear": lambda memory: memory.clear(),
    "import_document": lambda memory: memory.import_document(["likes coffee"]),
    "set_policy": lambda memory: memory.set_policy(max_facts=20),
    "forget a fact": lambda memory: memory.forget(memory.facts()[0].id),
    "forget everything": lambda memory: memory.forget(everything=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_holds_on_the_head_that_was_seen_and_on_no_other(
    home: Path, change: Callable[[MemoryHandle], object]
) -> None:
    with open_home(home) as bs, open_home(home) as other:
        memory = bs.memory("ada")
        memory.add_fact("likes tea")
        seen = memory.head()
        other.memory("ada").add_fact("likes milk")
        before = (home / "users" / "ada" / "ledger.jsonl").read_bytes()
        with pytest.raises(WrongExpectedVersionError, match=r"its head is now commit 3, .*read it again"):
            change(memory.expecting(seen))
        assert (home / "users" / "ada" / "ledger.jsonl").read_bytes() == before
        change(memory.expecting(memory.head().hash))
        assert memory.head().seq > 3


def test_the_first_change_can_expect_an_empty_memory_although_the_policy_is_recorded_before_it(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        assert memory.expecting(memory.head()).set_policy(max_facts=20).commit == 2


def test_of_two_changes_on_the_same_head_one_is_made(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.add_fact("likes tea")
        for round_ in range(20):
            seen, start = memory.head(), threading.Barrier(4)
            outcomes: list[bool] = []

            def ask(n: int, start: threading.Barrier = start, round_: int = round_, seen: object = seen) -> None:
                start.wait()
                try:
                    memory.expecting(seen).add_fact(f"likes number {round_} {n}")  # type: ignore[arg-type]
                except WrongExpectedVersionError:
                    outcomes.append(False)  # noqa: B023 all are joined in this round
                else:
                    outcomes.append(True)  # noqa: B023

            threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == [False, False, False, True]


def test_a_refused_erasure_leaves_the_key_that_recognises_erased_turns(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.record("t", HI)
        memory.forget(matching="hello")
        seen = memory.head()
        memory.add_fact("likes tea")
        with pytest.raises(WrongExpectedVersionError):
            memory.expecting(seen).forget(everything=True)
        assert bs.store.key(memory.scope.stream(TRANSCRIPT)) is not None
        memory.forget(everything=True)
        assert bs.store.key(memory.scope.stream(TRANSCRIPT)) is None


def test_a_delivery_begins_on_the_head_that_was_seen_or_was_made_before(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.add_fact("likes tea")
        for refused in (memory.expecting("another"), memory.expecting("another").once("k")):
            with pytest.raises(WrongExpectedVersionError):
                refused.record("t", HI)
        assert memory.threads() == ()
        made = memory.expecting(memory.head()).once("k").record("t", HI)
        assert memory.expecting("another").once("k").record("t", HI) == made
        assert memory.expecting(memory.head()).record("t", HI, mode="append").turns == 2


@pytest.mark.parametrize("name", ["revert", "rollback"])
def test_an_undo_answers_what_its_commit_did_where_another_writer_gets_in_after_the_plan(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    undo: Callable[[MemoryHandle], UndoResult] = {
        "revert": lambda memory: memory.revert(2),
        "rollback": lambda memory: memory.rollback(1),
    }[name]
    with open_home(home) as bs, open_home(home) as other:
        memory, theirs = bs.memory("ada"), other.memory("ada")
        fact = memory.add_fact("likes tea").fact.id
        plan, calls = undoing.preview_undo, []

        def planned(*args: object) -> UndoResult:
            made: UndoResult = plan(*args)
            calls.append(made)
            if len(calls) == 1:
                theirs.remove_fact(fact)
                theirs.add_fact("likes milk")
            return made

        monkeypatch.setattr(undoing, "preview_undo", planned)
        answer = undo(memory)
        assert len(calls) == 2
        assert answer == msgspec.structs.replace(calls[1], commit=answer.commit, events=answer.events)
        # The plan does not know the transcript's last commit, which a mark names.
        first, second = ([(type(event), event.fact) for event in call.events] for call in calls)
        assert [(type(event), event.fact) for event in answer.events] == second != first


# Who asks.


def test_an_update_that_is_requested_by_name_records_who_asked(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.record("t", HI)
        answer = [{"thread_id": "t", "reply": {"newFacts": []}}]
        memory.by("token:laptop").extract(answer)
        memory.record("u", HI)
        memory.extract([{"thread_id": "u", "reply": {"newFacts": []}}])
        assert [entry.cause.actor for entry in memory.log()] == [None, "token:laptop", None]
