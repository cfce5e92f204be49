"""A full memory in the Python API: what the cap evicts is told where it happens, and by the status."""

from __future__ import annotations

import pytest
from fakes import exchange, open_home, reply

from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.index.index import ScopeIndex


@pytest.fixture
def memory(tmp_path):
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.set_policy(max_facts=3)
        yield memory


def learn(memory, thread, *facts, confidence=0.9):
    memory.record(thread, exchange(thread, 1))
    memory.extract([RecordedReply(thread, reply(*facts, confidence=confidence))])


def test_a_fact_by_hand_tells_which_facts_of_a_model_it_evicted(memory):
    learn(memory, "t", "Ada likes tea", "Ada likes rain", "Ada likes snow")
    before = {fact.id: fact for fact in memory.facts()}
    added = memory.add_fact("Ada has a dog")
    (evicted,) = added.evicted
    assert before[evicted.id] == evicted
    assert evicted.id not in {fact.id for fact in memory.facts()}
    memory.revert(added.commit)
    assert {fact.id: fact for fact in memory.facts()} == before


def test_changes_that_evict_nothing_say_so(memory):
    added = memory.add_fact("Ada has a dog")
    assert added.evicted == ()
    assert memory.edit_fact(added.fact.id, "Ada has two dogs").evicted == ()
    assert memory.remove_fact(added.fact.id).evicted == ()


def test_status_of_a_full_memory_names_what_was_evicted_lately(memory):
    learn(memory, "t", "Ada likes tea", "Ada likes rain")
    status = memory.status()
    assert (status.facts, status.max_facts, status.evicted) == (2, 3, ())
    memory.add_fact("Ada has a dog")
    assert memory.status().evicted == ()
    first = memory.add_fact("Ada has a cat")
    second = memory.add_fact("Ada has a cow")
    told = memory.status().evicted
    assert [(one.seq, one.facts) for one in told] == [
        (second.commit, tuple(fact.id for fact in second.evicted)),
        (first.commit, tuple(fact.id for fact in first.evicted)),
    ]
    memory.remove_fact(first.fact.id)
    assert memory.status().evicted == ()


def test_status_reads_the_newest_commits_only(memory, monkeypatch):
    for n in range(30):
        learn(memory, f"t{n}", f"Ada owns book {n}")
    read = []
    newest = ScopeIndex.newest

    def counted(self, since=1):
        for commit in newest(self, since):
            read.append(commit.seq)
            yield commit

    monkeypatch.setattr(ScopeIndex, "newest", counted)
    assert len(memory.status().evicted) == 20
    assert len(read) == 20
    memory.remove_fact(memory.facts()[0].id)
    read.clear()
    assert memory.status().evicted == ()
    assert read == []
