"""Whatever happens, erasures included: what-if under the policies of the time is the live memory, and verify is silent.

In `make torture` many more histories, and longer ones; `SEED=n` begins with another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sizes import PATIENT, sized
from wandering import Wanderer

from backstory.ledger.core.events import PolicyChanged
from backstory.ledger.core.policy import POLICY_KEYS
from backstory.ledger.core.scope import LEDGER
from backstory.ledger.log.commits import read_commits
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay
from backstory.projections.what_if.counterfactual import decide_again

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

FIRST = int(os.environ.get("SEED") or 0)
"""Read once, as the tests are collected: the environment that a test sees is emptied of settings."""
EACH = sized(10, 400)


@PATIENT
@pytest.mark.parametrize("first", range(FIRST, FIRST + 8 * EACH, EACH))
def test_verify_is_silent_and_what_if_changes_nothing(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + EACH):
        wanderer = Wanderer(tmp_path / str(seed), seed)
        with wanderer.backstory:
            wanderer.wander(sized(30, 80))
            try:
                must_hold(wanderer, seed)
            except AssertionError as error:
                error.add_note(f"seed {seed}, by commits: {', '.join(wanderer.steps)}")
                raise


def must_hold(wanderer: Wanderer, seed: int) -> None:
    memory = wanderer.memory
    memory.flush()  # the document is written in the background
    found = memory.verify()
    assert found.ok, found.problems
    live = replay(wanderer.backstory.store, memory.scope)
    commits = list(read_commits(wanderer.backstory.store, memory.scope.stream(LEDGER)))
    again = decide_again(commits, {})
    assert again == live
    assert render(again) == render(live)
    policies = [event.after for commit in commits for event in commit.events if isinstance(event, PolicyChanged)]
    always = {
        key: getattr(live.policy, key) for key in POLICY_KEYS if len({getattr(policy, key) for policy in policies}) == 1
    }
    for known in (memory.what_if(), memory.what_if(**always), memory.what_if(until=seed % (len(commits) + 1))):
        assert (known.added, known.removed, known.revised, known.sections) == ((), (), (), ())
