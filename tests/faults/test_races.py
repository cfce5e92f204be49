"""Many threads and processes on one scope at once, and two who would learn from the same thread.

Promised: no lost update, no duplicate, an intact chain; while one process extracts a thread no other pays for the same
model call, and when that process dies the next one may.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes import exchange, open_home
from faults.logs import Scope
from faults.processes import child
from faults.test_kill import check_nothing_lost, verified
from sizes import PATIENT, sized

pytestmark = [pytest.mark.slow, PATIENT]

USER = "ada"
GRACE = 0.5
"""Seconds in which a process that does not know of the other would have asked; that it has not, is the proof."""


def test_processes_and_threads_record_enter_and_learn_at_once(tmp_path: Path) -> None:
    rounds, threads, processes = sized(5, 100), 3, sized(3, 4)
    calls = tmp_path / "calls"
    home = tmp_path / "home"
    with ExitStack() as stack:
        writers = [
            stack.enter_context(child("write", home, f"writer{n}", threads, rounds, calls)) for n in range(processes)
        ]
        for writer in writers:
            writer.hear("ready")
        for writer in writers:
            writer.order()
        for writer in writers:
            writer.end()
            assert writer.told("closed")
    scope = check_nothing_lost(home / "users" / USER, writers)
    facts = [f"writer{w}.{t} fact {n}" for w in range(processes) for t in range(threads) for n in range(1, rounds + 1)]
    assert set(facts) <= set(scope.added())
    assert len(scope.turns()) == 2 * len(facts)
    with child("finish", home, "heir") as heir:
        assert heir.hear("left") == ["left", 0, 0]
        heir.end()
    scope = Scope(home / "users" / USER)
    assert scope.covered() == dict.fromkeys(scope.turns(), 1)
    assert scope.document() == list(scope.added())
    assert verified(home) == []
    # Nobody's answer came too late: each call to a model was worth its price.
    refused = [event for event in scope.ledger.events("CandidateRejected") if event["rule"] == "covered"]
    assert refused == []


def asked(calls: Path) -> list[str]:
    return calls.read_text().split() if calls.exists() else []


def said_once(home: Path) -> None:
    with open_home(home) as backstory:
        backstory.memory(USER).record("t", exchange("tea", 1))


def test_two_processes_that_would_learn_from_one_thread_ask_once(tmp_path: Path) -> None:
    home, calls = tmp_path / "home", tmp_path / "calls"
    said_once(home)
    with child("think", home, "first", "t", calls) as first, child("think", home, "second", "t", calls) as second:
        for one in (first, second):
            one.hear("ready")
        first.order()
        first.hear("asked")
        second.order()
        second.hear("extracting")
        assert not second.heard("asked", patience=GRACE)
        first.order()
        assert first.hear("extracted") == ["extracted", 1]
        second.order()  # an answer for a question that it must never put
        assert second.hear("extracted") == ["extracted", 0]
        first.end()
        second.end()
    assert asked(calls) == ["first"]
    scope = Scope(home / "users" / USER)
    assert list(scope.added()) == ["first learned it"]
    assert set(scope.covered().values()) == {1}
    assert verified(home) == []


def test_two_threads_of_talk_are_learned_from_side_by_side(tmp_path: Path) -> None:
    """The lease is on a conversation, and not on the scope."""
    home, calls = tmp_path / "home", tmp_path / "calls"
    with open_home(home) as backstory:
        for name in ("t1", "t2"):
            backstory.memory(USER).record(name, exchange(name, 1))
    with child("think", home, "first", "t1", calls) as first, child("think", home, "second", "t2", calls) as second:
        for one in (first, second):
            one.hear("ready")
            one.order()
        for one in (first, second):
            one.hear("asked")
        for one in (first, second):
            one.order()
            assert one.hear("extracted") == ["extracted", 1]
            one.end()
    assert sorted(asked(calls)) == ["first", "second"]
    assert sorted(Scope(home / "users" / USER).added()) == ["first learned it", "second learned it"]


def test_what_a_dead_process_was_learning_is_learned_by_workers_of_the_living(tmp_path: Path) -> None:
    """The living one was open all the while, and was told nothing."""
    home, calls = tmp_path / "home", tmp_path / "calls"
    said_once(home)
    with child("think", home, "first", "t", calls) as first:
        first.hear("ready")
        first.order()
        first.hear("asked")
        with child("finish", home, "heir") as heir:
            first.kill()
            assert heir.hear("left") == ["left", 0, 0]
            heir.end()
    assert asked(calls) == ["first"]
    assert list(Scope(home / "users" / USER).added()) == ["heir learned lesson 1"]
    assert verified(home) == []
