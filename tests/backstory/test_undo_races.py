"""An undo while another writer, or the clock, changes what it was planned on: its answer says what was written."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from fakes import FakeClock

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.commands import Revert
from backstory.operations import undoing
from backstory.operations.undoing import UndoResult
from backstory.services.services import ScopeServices

SHARED = {
    "user": {"workContext": {"summary": "Writes Go", "shouldUpdate": True}},
    "newFacts": [{"content": "Likes tea", "confidence": 0.9}],
}


class Ticking(FakeClock):
    """A clock on which every look takes a second."""

    step = 0

    def now(self) -> datetime:
        self.advance(self.step)
        return super().now()


def opened(folder: Path, **settings: object) -> Backstory:
    return Backstory.open(folder, background=False, agent_reads="own", min_seconds_between_calls=0, **settings)


def told(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def before_writing(monkeypatch: pytest.MonkeyPatch, agent: str | None, change: object) -> None:
    """Let another writer make a change once, before an undo writes to the memory of an agent."""
    revert, waiting = undoing._revert, [change]

    def overtaken(services: ScopeServices, command: Revert, *, dry_run: bool) -> UndoResult:
        if not dry_run and services.scope.agent == agent and waiting:
            waiting.pop()()
        return revert(services, command, dry_run=dry_run)

    monkeypatch.setattr(undoing, "_revert", overtaken)


def test_a_conflict_that_comes_while_shared_sections_are_undone_leaves_all_as_it_was(tmp_path, monkeypatch):
    with opened(tmp_path, shared_summaries=True) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        coder.record("t", [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}])
        coder.extract([{"thread_id": "t", "reply": SHARED}])
        (fact,) = coder.facts()
        before_writing(monkeypatch, "coder", lambda: coder.edit_fact(fact.id, "Likes green tea"))
        undone = coder.revert("HEAD")
        assert [note.kind for note in undone.conflicts] == ["revised"]
        assert undone.commit is None
        assert undone.users is not None
        assert undone.users.commit is None
        assert user.document().user.work_context.summary == "Writes Go"
        assert told(coder) == ["Likes green tea"]


def test_a_conflict_that_comes_while_the_clears_of_agents_are_undone_leaves_all_as_it_was(tmp_path, monkeypatch):
    with opened(tmp_path) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        coder.add_fact("Writes Go")
        user.add_fact("Likes tea")
        user.clear(all_agents=True)
        before_writing(monkeypatch, None, lambda: user.add_fact("likes TEA"))
        undone = user.revert("HEAD", with_agents=True)
        assert [note.kind for note in undone.conflicts] == ["duplicate"]
        assert undone.commit is None
        (agent,) = undone.agents
        assert agent.undo is not None
        assert agent.undo.commit is None
        assert (told(coder), told(user)) == ([], ["likes TEA"])


def test_what_lapses_between_the_plan_and_the_commit_is_in_both_or_in_neither(tmp_path):
    clock = Ticking()
    with opened(tmp_path, clock=clock) as bs:
        memory = bs.memory("ada")
        fact = memory.add_fact("Stays in Rome", expires_at="2026-03-01T12:00:30Z").fact
        memory.remove_fact(fact.id)
        removal = memory.head().seq
        clock.step = 1
        for _ in range(40):
            undone = memory.revert(removal, force=True)
            returns = any(type(event).__name__ == "FactAdded" for event in undone.events)
            assert returns != any(note.kind == "expired" for note in undone.superseded)
            memory.revert("HEAD", force=True)
