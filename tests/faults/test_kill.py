"""Kill -9 a writer at random moments, among others who record and learn on the same scope.

Promised: what was acknowledged is there, once and whole; what was pending is learned from by the next process by
itself; each turn is covered once; `verify` finds nothing but a torn tail; memory.json is exact after the next open.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes import open_home
from faults.logs import Scope
from faults.processes import Child, child
from sizes import PATIENT, chance, sized

pytestmark = [pytest.mark.slow, PATIENT]

KILLS_PER_HOME = sized(2, 10)


def acknowledged(children: list[Child], word: str) -> list[str]:
    return [str(text) for one in children for _, *texts in one.told(word) for text in texts]


def verified(home: Path) -> list[str]:
    """What `verify` finds in a home that was opened anew; a torn tail alone leaves the answer yes."""
    with open_home(home) as bs:
        found = bs.memory("ada").verify()
    return [problem.kind for problem in found.problems]


def check_nothing_lost(folder: Path, children: list[Child]) -> Scope:
    """Hold the logs as they are now to what was acknowledged by now; some of the children may be writing still."""
    said_so, entered = acknowledged(children, "turns"), acknowledged(children, "fact")
    scope = Scope(folder)
    turns, added = scope.turns(), scope.added()
    said = list(turns.values())
    assert len(said) == len(set(said)), "a turn was recorded twice"
    assert set(said_so) <= set(said)
    assert set(entered) <= set(added)
    assert max(added.values(), default=1) == 1, "a fact was added twice"
    assert max(scope.covered().values(), default=1) == 1, "a turn was covered twice"
    return scope


@pytest.mark.parametrize("number", range(sized(1, 200 // KILLS_PER_HOME)))
def test_kill_writers_one_after_another(tmp_path: Path, number: int) -> None:
    random = chance(number)
    folder = tmp_path / "users/ada"
    children: list[Child] = []
    with child("write", tmp_path, "bystander", 2, -1) as bystander:
        children.append(bystander)
        bystander.hear("ready")
        for kill in range(KILLS_PER_HOME):
            with child("write", tmp_path, f"victim{kill}", 3, 0) as victim:
                children.append(victim)
                victim.hear("ready")
                bystander.order()
                victim.order()
                victim.hear("fact", random.randrange(1, 12))
                time.sleep(random.uniform(0, 0.01))  # the moment is what is random here
                victim.kill()
            assert victim.told("broken", "closed") == []
            check_nothing_lost(folder, children)
        bystander.end()
    with child("finish", tmp_path, "heir") as heir:
        assert heir.hear("left") == ["left", 0, 0]
        heir.end()
    scope = check_nothing_lost(folder, children)
    turns = scope.turns()
    assert scope.covered() == dict.fromkeys(turns, 1)
    for thread, n in turns:  # a delivery is one line: nobody's words stand without their answer
        if n % 2:
            assert turns[thread, n].replace("the user", "the agent") == turns[thread, n + 1]
    assert set(verified(tmp_path)) <= {"torn_tail"}
    assert scope.document() == list(scope.added())


@pytest.mark.parametrize("number", range(sized(1, 20)))
def test_kill_all_writers_at_once_and_the_next_goes_on_where_they_were(tmp_path: Path, number: int) -> None:
    random = chance(1000 + number)
    with child("write", tmp_path, "left", 3, 0) as left, child("write", tmp_path, "right", 3, 0) as right:
        for victim in (left, right):
            victim.hear("ready")
        for victim in (left, right):
            victim.order()
        left.hear("fact", random.randrange(1, 30))
        time.sleep(random.uniform(0, 0.01))  # the moment is what is random here
        left.kill()
        right.kill()
    assert set(verified(tmp_path)) <= {"torn_tail", "document_differs"}
    check_nothing_lost(tmp_path / "users/ada", [left, right])
    with child("finish", tmp_path, "heir") as heir:
        assert heir.hear("left") == ["left", 0, 0]
        heir.end()
    scope = check_nothing_lost(tmp_path / "users/ada", [left, right])
    assert scope.covered() == dict.fromkeys(scope.turns(), 1)
    assert scope.document() == list(scope.added())
    assert set(verified(tmp_path)) <= {"torn_tail"}
