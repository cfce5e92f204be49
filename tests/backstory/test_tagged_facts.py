"""Tags and attributes, from a recorded conversation to what a read is filtered by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, open_home
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.errors import RefusedError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.memory_tests.steps import message_of
from backstory.outbox.fail_safe import FailSafeMemory


@pytest.fixture
def memory(tmp_path: Path) -> MemoryHandle:
    return open_home(tmp_path, clock=FakeClock()).memory("ada")


def say(memory: MemoryHandle, *ids: str, tags: list[str] | None = None, thread: str = "t") -> None:
    said = [{"role": "user", "id": one, "content": f"I say {one}."} for one in ids]
    memory.record(thread, said, mode="append", tags=tags)


def learn(memory: MemoryHandle, *facts: dict[str, object], thread: str = "t") -> None:
    news = [{"confidence": 0.9, **fact} for fact in facts]
    memory.extract([RecordedReply(thread, json.dumps({"newFacts": news}))])


def tagged(facts: tuple[Fact, ...]) -> dict[str, tuple[str, ...]]:
    return {fact.content: fact.tags for fact in facts}


# From turns to facts.


def test_a_fact_gets_the_tags_of_the_turns_that_it_cites_and_those_that_it_states(memory: MemoryHandle) -> None:
    say(memory, "a", tags=["heron"])
    say(memory, "b", tags=["gull", "wren"])
    say(memory, "c")
    learn(
        memory,
        {"content": "Cites one", "evidence": ["a"]},
        {"content": "Cites two", "evidence": ["b", "a"], "tags": ["own", "a,b", 3]},
        {"content": "Cites an untagged one", "evidence": ["c"]},
        {"content": "Cites none"},
    )
    assert tagged(memory.facts()) == {
        "Cites one": ("heron",),
        "Cites two": ("gull", "wren", "heron", "own"),
        "Cites an untagged one": (),
        "Cites none": ("heron", "gull", "wren"),
    }


def test_what_is_recorded_already_keeps_its_tags(memory: MemoryHandle) -> None:
    said = [{"role": "user", "id": "a", "content": "I say a."}]
    memory.record("t", said, tags=["heron"])
    assert memory.record("t", said, tags=["gull"]).turns == 0
    learn(memory, {"content": "Says a"})
    assert tagged(memory.facts()) == {"Says a": ("heron",)}


def test_a_message_may_have_tags_of_its_own(memory: MemoryHandle) -> None:
    own, other = (
        {"role": "user", "content": "I say a.", "tags": ["gull", 3, "a=b"]},
        {"role": "user", "content": "And b."},
    )
    memory.record("t", [own, other], tags=["heron"])
    memory.record("u", [own, other])
    assert [turn.tags for turn in memory.transcript("t")] == [("heron", "gull"), ("heron",)]
    assert [turn.tags for turn in memory.transcript("u")] == [("gull",), ()]


def test_tags_of_a_delivery_have_bounds(memory: MemoryHandle) -> None:
    for broken in (["a=b"], ["x" * 65], [f"t{n}" for n in range(21)], "heron"):
        with pytest.raises(UsageError):
            memory.record("t", [{"role": "user", "content": "Hello there"}], tags=broken)
    assert memory.threads() == ()


def test_a_host_that_must_not_fail_records_with_the_tags_that_can_be_kept(tmp_path: Path) -> None:
    bs = open_home(tmp_path, clock=FakeClock())
    memory, safe = bs.memory("ada"), FailSafeMemory(bs)
    safe.record(memory, "t", [{"role": "user", "content": "Hello there"}], tags=["heron", "a=b"])
    safe.record(memory, "u", [{"role": "user", "content": "Hello again"}], tags=["gull"], sent_before=True)
    learn(memory, {"content": "Greets"})
    learn(memory, {"content": "Greets twice"}, thread="u")
    assert tagged(memory.facts()) == {"Greets": ("heron",), "Greets twice": ("gull",)}
    assert [fault.kind for fault in memory.status().faults] == ["UsageError"]


def test_turns_show_their_tags_and_are_found_by_them(memory: MemoryHandle) -> None:
    say(memory, "a", tags=["heron", "wren"])
    say(memory, "b", tags=["heron"])
    say(memory, "c")
    turns = memory.transcript("t")
    assert [turn.tags for turn in turns] == [("heron", "wren"), ("heron",), ()]
    assert [message_of(turn).get("tags") for turn in turns] == [("heron", "wren"), ("heron",), None]
    for thread in ("t", None):
        found = memory.search("I say", within="turns", tags=["heron"], thread=thread)
        assert sorted(hit.id for hit in found) == ["a", "b"]
        assert [hit.id for hit in memory.search("I say", within="turns", tags=["heron", "wren"], thread=thread)] == [
            "a"
        ]


# By hand.


def test_a_person_states_tags_and_attributes_and_changes_them(memory: MemoryHandle) -> None:
    fact = memory.add_fact("Likes tea", tags=["heron", "heron"], attributes={"team": "red", "rank": 2}).fact
    assert (fact.tags, fact.attributes) == (("heron",), {"team": "red", "rank": 2})
    fact = memory.edit_fact(fact.id, "Likes green tea").fact
    assert (fact.tags, fact.attributes) == (("heron",), {"team": "red", "rank": 2})
    fact = memory.edit_fact(fact.id, tags=["gull"]).fact
    assert (fact.tags, fact.attributes) == (("gull",), {"team": "red", "rank": 2})
    fact = memory.edit_fact(fact.id, tags=[], attributes={}).fact
    assert (fact.tags, fact.attributes) == ((), {})
    with pytest.raises(RefusedError, match="unchanged"):
        memory.edit_fact(fact.id, tags=[])
    assert memory.verify().ok
    said = [entry.detail for entry in memory.why(fact.id).history]
    assert said[2] == "edited: tags gull"
    assert said[3] == "edited: tags none; attributes none"


def test_a_document_takes_them_along_and_a_host_that_knows_none_takes_none_away(
    tmp_path: Path, memory: MemoryHandle
) -> None:
    memory.add_fact("Likes tea", tags=["heron"], attributes={"rank": 2})
    document = json.loads((tmp_path / "users/ada/memory.json").read_bytes()) if memory.reload() else {}
    (fact,) = document["facts"]
    assert (fact["tags"], fact["attributes"]) == (["heron"], {"rank": 2})
    other = open_home(tmp_path / "other", clock=FakeClock()).memory("bo")
    other.import_document(document)
    (copied,) = other.facts()
    assert (copied.tags, copied.attributes) == (("heron",), {"rank": 2})
    del fact["tags"], fact["attributes"]
    fact["content"] = "Likes green tea"
    memory.import_document(document, replace=True)
    (kept,) = memory.facts()
    assert (kept.content, kept.tags, kept.attributes) == ("Likes green tea", ("heron",), {"rank": 2})


# Filters.


@pytest.fixture
def projects(memory: MemoryHandle) -> MemoryHandle:
    """One memory of two projects, and of the user in general."""
    memory.add_fact("Deploys the heron on Fridays", tags=["heron"], attributes={"team": "red"})
    memory.add_fact("Deploys the gull on Mondays", tags=["gull"])
    memory.add_fact("Deploys both from one repository", tags=["gull", "heron"])
    memory.add_fact("Is allergic to peanuts")
    return memory


def test_a_read_keeps_to_the_facts_with_all_tags_and_attributes(projects: MemoryHandle) -> None:
    def contents(*tags: str) -> list[str]:
        return [fact.content for fact in projects.facts(tags=tags)]

    both = "Deploys both from one repository"
    assert contents("heron") == ["Deploys the heron on Fridays", both]
    assert contents("heron", "gull") == [both]
    assert contents("team=red") == ["Deploys the heron on Fridays"]
    assert contents("team=blue") == contents("Heron") == []
    assert [fact.content for fact in projects.facts(3, tags=["heron"])] == ["Deploys the heron on Fridays"]
    window = projects.moment(tags=["gull"])
    assert [fact.content for fact in window.facts.items] == ["Deploys the gull on Mondays", both]
    assert (window.tags, window.count) == ({"gull": 2, "heron": 2}, 4)


def test_a_search_keeps_to_them(projects: MemoryHandle) -> None:
    found = projects.search("deploys", tags=["gull"])
    assert sorted(hit.content for hit in found) == ["Deploys both from one repository", "Deploys the gull on Mondays"]
    assert {hit.tags for hit in found} == {("gull",), ("gull", "heron")}
    assert [hit.attributes for hit in projects.search("deploys", tags=["team=red"])] == [{"team": "red"}]
    past = projects.search("deploys", tags=["gull", "heron"], include_past=True)
    assert [hit.content for hit in past] == ["Deploys both from one repository"]
    with pytest.raises(UsageError, match="a list of names"):
        projects.search("deploys", tags="gull")


def test_a_block_leaves_out_other_projects_and_keeps_what_is_about_no_project(projects: MemoryHandle) -> None:
    text = projects.context("when do I deploy?", tags=["heron"]).text
    assert "heron on Fridays" in text
    assert "both from one" in text
    assert "peanuts" in text
    assert "gull on Mondays" not in text
    assert projects.context(tags=["heron"]).text == projects.context(tags=["heron"]).text
    assert "gull on Mondays" in projects.context().text


def test_an_agent_reads_its_users_facts_by_tags_too(tmp_path: Path) -> None:
    bs = open_home(tmp_path, clock=FakeClock())
    bs.memory("ada").add_fact("Deploys the heron on Fridays", tags=["heron"])
    bs.memory("ada").add_fact("Deploys the gull on Mondays", tags=["gull"])
    agent = bs.memory("ada", "cook")
    agent.add_fact("Cooks for the heron", tags=["heron"])
    wanted = {"Deploys the heron on Fridays", "Cooks for the heron"}
    assert {fact.content for fact in agent.facts(tags=["heron"])} == wanted
    assert {hit.content for hit in agent.search("heron gull", tags=["heron"])} == wanted
    assert "gull" not in agent.context("heron gull", tags=["heron"]).text


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> MemoryHandle:
    """Facts with every set of three tags, each with other attributes."""
    memory = open_home(tmp_path_factory.mktemp("many"), clock=FakeClock()).memory("ada")
    attributes: tuple[dict[str, str | int], ...] = ({}, {"n": 1}, {"n": "x", "m": True})
    for number in range(8):
        named = [tag for place, tag in enumerate("abc") if number >> place & 1]
        memory.add_fact(f"Fact number {number}", tags=named, attributes=attributes[number % 3])
    return memory


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "n=1", "n=x", "m=true"]), max_size=3))
def test_every_filter_is_a_plain_one_over_facts(many: MemoryHandle, wanted: list[str]) -> None:
    plain = {fact.content for fact in many.facts() if {*fact.tags, *fact.spelled_attributes} >= set(wanted)}
    assert {fact.content for fact in many.facts(tags=wanted)} == plain
    assert {fact.content for fact in many.moment(tags=wanted).facts.items} == plain
    assert {hit.content for hit in many.search("fact number", top_k=9, tags=wanted)} == plain


# Erasure and replay.


def test_an_erased_turn_takes_its_tags_along(tmp_path: Path, memory: MemoryHandle) -> None:
    say(memory, "a", tags=["secret-project"])
    learn(memory, {"content": "Says a"})
    memory.forget(matching="secret-project")
    assert memory.facts() == ()
    assert b"secret-project" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert memory.verify().ok


def test_another_process_reads_the_same_tags(tmp_path: Path, memory: MemoryHandle) -> None:
    say(memory, "a", tags=["heron"])
    learn(memory, {"content": "Says a"})
    say(memory, "b", tags=["gull"])
    learn(memory, {"content": "Says a"})
    other = open_home(tmp_path, clock=FakeClock()).memory("ada")
    assert tagged(other.facts()) == tagged(memory.facts()) == {"Says a": ("heron", "gull")}
    assert other.verify().ok
    memory.revert("HEAD")
    assert tagged(other.facts()) == {"Says a": ("heron",)}
    assert tagged(other.facts(3)) == {"Says a": ("heron", "gull")}
