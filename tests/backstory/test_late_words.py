"""Conversations that are learned from in another order than they took place in, through the public surface."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes import FakeClock, open_home, reply

from backstory.ledger.core.events import CandidateRejected, UpdateProposed
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.commits import read_commits
from backstory.memory import MemoryHandle
from backstory.projections.what_if.counterfactual import decide_again

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def learn(memory: MemoryHandle, thread: str, days_ago: float, answer: str, said: str = "Hello") -> dict[str, str]:
    """Record a conversation of some days ago and learn from it; return what was refused, rule by place."""
    when = NOW - timedelta(days=days_ago)
    turns = [
        {"role": "user", "content": said, "id": f"{thread}-u", "at": when.isoformat()},
        {"role": "assistant", "content": "I see.", "id": f"{thread}-a", "at": when.isoformat()},
    ]
    memory.record(thread, turns)
    memory.extract([RecordedReply(thread, answer)], backdate=True)
    return {e.candidate.place: e.rule for e in memory.log()[0].events if isinstance(e, CandidateRejected)}


def contents(memory: MemoryHandle) -> set[str]:
    return {fact.content for fact in memory.facts()}


def agrees_with_what_if(memory: MemoryHandle) -> bool:
    writer = memory._services.writer
    again, live = decide_again(list(read_commits(writer.store, writer.ledger)), {}), writer.memory()
    return (again.facts, again.taken) == (live.facts, live.taken)


def test_words_of_2023_do_not_take_a_fact_of_2026_away(tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        learn(memory, "new", 1, reply("Lives in Bergen"))
        (fact,) = memory.facts()
        old = {
            "newFacts": [{"content": "Lives in Oslo", "confidence": 0.9}],
            "factsToRemove": [{"id": fact.id, "replacementFactIndex": 0}],
        }
        assert learn(memory, "old", 1000, json.dumps(old)) == {
            "newFacts/0": "removal_refused",
            "factsToRemove/0": "older_evidence",
        }
        assert contents(memory) == {"Lives in Bergen"}
        assert agrees_with_what_if(memory)
        (refusal,) = memory.why_not(f"remove {fact.id}")
        assert refusal.rule == "older_evidence"
        assert refusal.detail.startswith("the fact rests on words of 2026-02-28T12:00:00")
    with open_home(tmp_path) as home:
        assert home.memory("ada").verify().ok


def test_the_commit_keeps_the_times_and_the_speakers_of_the_turns(tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        cites = {"content": "Lives in Oslo", "confidence": 0.9, "evidence": ["t-a", "t-u", "nowhere"]}
        learn(memory, "t", 2, json.dumps({"newFacts": [cites]}))
        (proposed,) = (event for event in memory.log()[0].events if isinstance(event, UpdateProposed))
        assert proposed.answered is not None
        assert proposed.answered.role == "user"
        assert {turn: said.role for turn, said in proposed.cited.items()} == {"t-a": "assistant", "t-u": "user"}
        assert {said.at for said in proposed.cited.values()} == {"2026-02-27T12:00:00.000000Z"}
        assert memory.facts()[0].said == proposed.answered


# When each conversation took place, what its reply adds, and what it removes if it is there.
TALKS = (
    (90, ["Lives in Oslo", "Drinks tea"], []),
    (60, ["Lives in Bergen"], ["Lives in Oslo"]),
    (30, ["Drinks tea"], ["Lives in Oslo"]),
    (10, ["Plays chess"], ["Drinks tea"]),
)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1), (2, 0, 3, 1)], ids=str)
def test_in_whatever_order_conversations_are_backfilled_the_same_facts_stay(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Orders in which each removal finds what it removes."""
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        for n in order:
            days_ago, adds, removes = TALKS[n]
            gone = tuple(fact.id for fact in memory.facts() if fact.content in removes)
            learn(memory, f"talk {n}", days_ago, reply(*adds, remove=gone))
        assert contents(memory) == {"Lives in Bergen", "Plays chess"}
        assert agrees_with_what_if(memory)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_the_newest_of_facts_that_replace_each_other_stays(tmp_path: Path, order: tuple[int, ...]) -> None:
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        for n in order:
            town = ("Oslo", "Bergen", "Oslo")[n]
            gone = [fact.id for fact in memory.facts() if town not in fact.content]
            answer = {
                "newFacts": [{"content": f"Lives in {town}", "confidence": 0.9}],
                "factsToRemove": [{"id": one, "replacementFactIndex": 0} for one in gone],
            }
            learn(memory, f"talk {n}", 90 - 30 * n, json.dumps(answer))
        assert contents(memory) == {"Lives in Oslo"}


def test_old_words_that_are_imported_do_not_bring_back_what_a_person_took_away(tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        learn(memory, "new", 1, reply("Lives in Oslo"), "I live in Oslo")
        memory.remove_fact(memory.facts()[0].id)
        assert learn(memory, "old", 1000, reply("Lives in Oslo"), "I live in Oslo") == {"newFacts/0": "removed_by_hand"}
        assert learn(memory, "again", 0, reply("Lives in Oslo"), "I live in Oslo") == {}


def test_an_answer_that_is_asked_for_again_knows_the_same_times(tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(NOW)) as home:
        memory = home.memory("ada")
        learn(memory, "new", 1, reply("Lives in Bergen"))
        learn(memory, "old", 1000, reply("Drinks tea"))
        answer = RecordedReply("old", reply("Plays chess", remove=(memory.facts()[0].id,)))
        again = memory.reextract(thread="old", replies=[answer])
        assert [fact.content for fact in again.added] == ["Plays chess"]
        assert [fact.content for fact in again.removed] == ["Drinks tea"]
