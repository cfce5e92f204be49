"""A category that is none of the six keeps its name, and rules treat the fact as `context`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, open_home

from backstory.ledger.core.events import FactAdded, PolicyChanged
from backstory.ledger.core.policy import Policy
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle


@pytest.fixture
def memory(tmp_path: Path) -> MemoryHandle:
    return open_home(tmp_path).memory("ada")


def learn(memory: MemoryHandle, *facts: dict[str, object], thread: str = "t", **more: object) -> None:
    memory.record(thread, [{"role": "user", "content": "I say so."}], mode="append")
    news = [{"confidence": 0.9, **fact} for fact in facts]
    memory.extract([RecordedReply(thread, json.dumps({"newFacts": news, **more}))])


def kinds(memory: MemoryHandle) -> dict[str, str]:
    return {fact.content: fact.category for fact in memory.facts()}


def test_it_is_kept_as_given_wherever_it_comes_from(memory: MemoryHandle) -> None:
    learn(memory, {"content": "Eats no meat", "category": " Diet "})
    memory.add_fact("Runs", category="Sports & Fun")
    memory.by("agent", by_model=True).add_fact("Swims", category="Sports & Fun")
    memory.import_document([{"content": "Cycles", "category": "Sports & Fun"}])
    edited = memory.add_fact("Reads", category=" Goal ").fact
    assert edited.category == "goal"
    assert memory.edit_fact(edited.id, category="books").fact.category == "books"
    assert kinds(memory) == {
        "Eats no meat": "diet",
        "Runs": "Sports & Fun",
        "Swims": "Sports & Fun",
        "Cycles": "Sports & Fun",
        "Reads": "books",
    }
    assert "[Sports &amp; Fun | 0.90] Runs" in memory.context().text
    assert [hit.content for hit in memory.search("runs swims cycles", category="sports & fun")] != []
    assert [hit.content for hit in memory.search("reads", category="goal")] == []
    assert memory.moment(category="SPORTS & FUN").facts.total == 3
    assert memory.verify().ok
    same = memory.what_if()
    assert (same.added, same.removed, same.revised) == ((), (), ())


def test_a_document_that_is_exported_is_imported_the_same(memory: MemoryHandle, tmp_path: Path) -> None:
    memory.add_fact("Runs", category="Sports")
    other = open_home(tmp_path / "other").memory("ada")
    memory.flush()
    other.import_document(str(tmp_path / "users/ada/memory.json"))
    assert kinds(other) == kinds(memory)


def test_rules_treat_it_as_context(memory: MemoryHandle) -> None:
    memory.set_policy(consolidation_enabled=True, consolidation_min_facts=3)
    learn(
        memory,
        {"content": "Drinks tea", "category": "drinks"},
        {"content": "Has a cat", "category": "pets"},
        {"content": "Has a dog", "category": "pets"},
        {"content": "Lives in Oslo", "category": "context"},
    )
    tea, cat, dog, oslo = (fact.id for fact in memory.facts())

    def merge(content: str, *sources: str) -> None:
        learn(memory, factsToConsolidate=[{"sourceIds": sources, "consolidated": {"content": content}}])

    merge("Has a cat and a dog", cat, dog)
    merge("Drinks tea in Oslo", tea, oslo)
    assert kinds(memory) == {"Has a cat and a dog": "pets", "Drinks tea in Oslo": "context"}


def test_one_that_the_policy_protects_as_context_is_not_reviewed(tmp_path: Path) -> None:
    clock = FakeClock()
    memory = open_home(tmp_path, clock=clock).memory("ada")
    memory.set_policy(staleness_min_candidates=1, staleness_protected_categories=("context",))
    learn(memory, {"content": "Drinks tea", "category": "drinks"})
    clock.advance(200 * 86_400)
    (tea,) = memory.facts()
    learn(memory, staleFactsToRemove=[tea.id], thread="later")
    assert kinds(memory) == {"Drinks tea": "drinks"}


def test_without_free_categories_it_becomes_context_and_the_log_keeps_the_name(memory: MemoryHandle) -> None:
    memory.set_policy(free_categories=False)
    learn(memory, {"content": "Eats no meat", "category": "diet"})
    memory.add_fact("Runs", category="sports")
    memory.edit_fact(memory.facts()[1].id, content="Runs far", category="sports")
    assert kinds(memory) == {"Eats no meat": "context", "Runs far": "context"}
    (change,) = memory.what_if(free_categories=True).revised[:1]
    assert (change.before.category, change.after.category) == ("context", "diet")
    assert {pair.after.category for pair in memory.what_if(free_categories=True).revised} == {"diet", "sports"}


def test_a_ledger_from_before_gets_them_with_its_next_commit_and_its_facts_stay(tmp_path: Path) -> None:
    """In the log of an older version the key is missing, which reads as false."""
    assert Policy().free_categories is False
    with open_home(tmp_path, free_categories=False) as bs:
        learn(bs.memory("ada"), {"content": "Eats no meat", "category": "diet"})
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert memory.head().seq == 2
        memory.add_fact("Runs", category="sports")
        changed, added = memory.log(limit=2)[::-1]
        (event,) = [event for event in changed.events if isinstance(event, PolicyChanged)]
        assert (event.before.free_categories if event.before else None, event.after.free_categories) == (False, True)
        assert [event.fact.category for event in added.events if isinstance(event, FactAdded)] == ["sports"]
        assert kinds(memory) == {"Eats no meat": "context", "Runs": "sports"}
        same = memory.what_if()
        assert (same.added, same.removed, same.revised) == ((), (), ())
        assert memory.verify().ok


def test_a_word_in_a_free_category_is_erased_and_other_facts_of_it_stay_otherwise(memory: MemoryHandle) -> None:
    memory.add_fact("Runs", category="friends of Tom")
    memory.add_fact("Swims", category="sports")
    memory.add_fact("Cycles", category="sports")
    memory.forget("fact_3_0")
    assert set(kinds(memory)) == {"Runs", "Cycles"}
    memory.forget(matching="Tom")
    assert set(kinds(memory)) == {"Cycles"}
    assert "Tom" not in json.dumps([repr(entry) for entry in memory.log()])
    assert memory.verify().ok
