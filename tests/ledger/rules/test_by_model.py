"""What a model does to single facts with its tools: it competes for room, and a person's facts stay as they are."""

from __future__ import annotations

import pytest
from fakes import open_home
from story import Story, new

from backstory import Backstory
from backstory.ledger.core.commands import AddFact, ChangePolicy, EditFact, RemoveFact
from backstory.ledger.core.errors import CapError, DuplicateFactError, NotFoundError, RefusedError
from backstory.ledger.core.events import CandidateRejected, Edit, FactAdded, FactRemoved, FactRevised, Removal
from backstory.ledger.core.policy import Policy
from backstory.memory import MemoryHandle

POLICY = Policy(max_facts=3)


@pytest.fixture
def story() -> Story:
    story = Story()
    story.do(ChangePolicy(at="", policy=POLICY, source="config"), "genesis")
    return story


def tool_adds(story: Story, content: str, confidence: float = 0.9, thread: str | None = None):
    command = AddFact(at="", fact=new(content, confidence, place="facts/0"), by_model=True, thread=thread)
    return story.do(command, "manual")


def edits(story: Story, fact_id: str, **changed: object):
    return story.do(EditFact(at="", edit=Edit(place="facts/0", id=fact_id, **changed), by_model=True), "manual")


def live(story: Story) -> list[str]:
    return [fact.content for fact in story.memory.in_order()]


def refusal(events) -> CandidateRejected:
    (event,) = events
    assert isinstance(event, CandidateRejected)
    return event


def test_a_tools_fact_is_the_models_and_comes_from_its_thread(story: Story) -> None:
    (added,) = tool_adds(story, "Likes tea", thread="t1")
    assert isinstance(added, FactAdded)
    assert (added.fact.by_hand, added.fact.source) == (False, "t1")
    (without,) = tool_adds(story, "Runs")
    assert without.fact.source == "tool"


def test_a_tool_neither_adds_nor_edits_in_an_erased_text_and_the_refusal_does_not_hold_it(story: Story) -> None:
    (added,) = tool_adds(story, "Likes tea")
    text = "Lives in Lisbon"
    asked = (
        AddFact(at="", fact=new(text, place="facts/0"), by_model=True, erased=True),
        EditFact(at="", edit=Edit(place="facts/0", id=added.fact.id, content=text), by_model=True, erased=True),
    )
    for command in asked:
        refused = refusal(story.do(command, "manual"))
        assert refused.rule == "erased"
        assert text not in repr(refused)
    assert live(story) == ["Likes tea"]


def test_a_person_may_write_an_erased_text_again(story: Story) -> None:
    (added,) = story.do(AddFact(at="", fact=new("Lives in Lisbon", place="facts/0"), erased=True), "manual")
    assert isinstance(added, FactAdded)


def test_a_time_that_cannot_be_is_refused_when_a_fact_is_added_and_when_it_is_edited(story: Story) -> None:
    (added,) = tool_adds(story, "Likes tea")
    backwards = {"valid_from": "2026-05-02", "valid_until": "2026-05-01"}
    command = AddFact(at="", fact=new("Runs", place="facts/0", **backwards), by_model=True)
    assert refusal(story.do(command, "manual")).rule == "malformed"
    assert refusal(edits(story, added.fact.id, **backwards)).rule == "malformed"
    assert live(story) == ["Likes tea"]


def test_a_models_fact_makes_room_for_the_newer_of_its_rank(story: Story) -> None:
    for name in ("a", "b", "c", "d", "e"):
        tool_adds(story, f"fact {name}")
    assert live(story) == ["fact c", "fact d", "fact e"]


def test_a_fact_of_a_lower_rank_is_refused_by_the_cap(story: Story) -> None:
    for name in ("a", "b", "c"):
        tool_adds(story, f"fact {name}")
    refused = refusal(tool_adds(story, "unsure", 0.7))
    assert (refused.rule, "the others rank above it" in refused.detail) == ("cap", True)


def test_a_persons_facts_give_no_room_and_the_refusal_says_so(story: Story) -> None:
    for name in ("a", "b", "c"):
        story.hand(f"fact {name}")
    refused = refusal(tool_adds(story, "one more", 1.0))
    assert refused.rule == "cap"
    assert refused.detail == "memory holds 3 facts at most, and all of them were entered by hand"
    byhand = refusal(story.do(AddFact(at="", fact=new("and more", 1.0, place="facts/0")), "manual"))
    assert (byhand.rule, byhand.detail) == (refused.rule, refused.detail)


@pytest.mark.parametrize(
    ("content", "confidence", "rule"),
    [("Likes tea", 0.6, "threshold"), ("...", 0.9, "empty"), ("The user uploaded a file", 0.9, "upload")],
)
def test_a_tools_fact_is_screened_as_every_fact_of_a_model(story, content, confidence, rule) -> None:
    assert refusal(tool_adds(story, content, confidence)).rule == rule
    person = story.do(AddFact(at="", fact=new(content, confidence, place="facts/0")), "manual")
    assert isinstance(person[0], FactAdded)


def test_a_tool_changes_and_removes_what_models_learned(story: Story) -> None:
    story.learn(new("Lives in Oslo"))
    fact_id = story.memory.in_order()[0].id
    (revised,) = edits(story, fact_id, content="Lives in Bergen")
    assert isinstance(revised, FactRevised)
    assert not revised.after.by_hand
    (removed,) = story.do(RemoveFact(at="", fact_id=fact_id, by_model=True), "manual")
    assert isinstance(removed, FactRemoved)
    assert removed.reason == "model"


def test_a_tool_neither_changes_nor_removes_what_a_person_entered(story: Story) -> None:
    fact = story.hand("Lives in Oslo")
    refused = refusal(edits(story, fact.id, content="Lives in Bergen"))
    assert (refused.rule, refused.candidate.id) == ("by_hand", fact.id)
    refused = refusal(story.do(RemoveFact(at="", fact_id=fact.id, by_model=True), "manual"))
    assert (refused.rule, type(refused.candidate)) == ("by_hand", Removal)
    assert live(story) == ["Lives in Oslo"]


def test_a_tools_edit_is_screened_too(story: Story) -> None:
    (added,) = tool_adds(story, "Lives in Oslo")
    assert refusal(edits(story, added.fact.id, confidence=0.2)).rule == "threshold"
    assert refusal(edits(story, added.fact.id, content="...")).rule == "empty"
    assert refusal(edits(story, added.fact.id, content="Lives in Oslo")).rule == "unchanged"


# Through the handle, on disk.


@pytest.fixture
def bs(tmp_path) -> Backstory:
    return open_home(tmp_path / "home", max_facts=10)


@pytest.fixture
def tool(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada").by("agent:lead", "t1", by_model=True)


def contents(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def test_twelve_adds_of_a_tool_leave_the_ten_newest(bs: Backstory, tool: MemoryHandle) -> None:
    for number in range(12):
        tool.add_fact(f"fact {number}")
    memory = bs.memory("ada")
    assert contents(memory) == [f"fact {number}" for number in range(2, 12)]
    assert not any(fact.by_hand for fact in memory.facts())
    assert {fact.source for fact in memory.facts()} == {"t1"}
    assert memory.verify().ok


def test_a_refusal_says_the_way_out(bs: Backstory, tool: MemoryHandle) -> None:
    memory = bs.memory("ada")
    facts = [memory.add_fact(f"fact {number}").fact.id for number in range(10)]
    for handle in (memory, tool):
        with pytest.raises(CapError, match="all of them were entered by hand: remove a fact or raise max_facts"):
            handle.add_fact("one more")
    with pytest.raises(RefusedError, match=r"\(by_hand\): a person entered this fact") as refused:
        tool.remove_fact(facts[0])
    assert refused.value.rule == "by_hand"
    with pytest.raises(RefusedError, match="by_hand"):
        tool.edit_fact(facts[0], "changed")
    with pytest.raises(RefusedError, match="under the threshold"):
        tool.add_fact("unsure", confidence=0.1)
    with pytest.raises(DuplicateFactError):
        tool.add_fact("fact 3")
    with pytest.raises(NotFoundError):
        tool.remove_fact("fact_99_0")
    assert len(contents(memory)) == 10
    assert memory.verify().ok


def test_a_handle_is_a_persons_unless_it_says_otherwise(bs: Backstory) -> None:
    memory = bs.memory("ada")
    assert memory.by("agent:lead").add_fact("Likes tea").fact.by_hand
    assert not memory.by("agent:lead", by_model=True).add_fact("Runs").fact.by_hand


def test_a_person_makes_a_models_fact_their_own(bs: Backstory, tool: MemoryHandle) -> None:
    fact = tool.add_fact("Lives in Oslo").fact.id
    assert bs.memory("ada").edit_fact(fact, confidence=1.0).fact.by_hand
    with pytest.raises(RefusedError, match="by_hand"):
        tool.edit_fact(fact, "Lives in Bergen")


def test_what_if_decides_a_tools_changes_again(bs: Backstory, tool: MemoryHandle) -> None:
    memory = bs.memory("ada")
    for number in range(12):
        tool.add_fact(f"fact {number}", confidence=0.8)
    tool.edit_fact(memory.facts()[0].id, "edited")
    tool.remove_fact(memory.facts()[1].id)
    assert not memory.what_if(max_facts=10).removed
    assert len(memory.what_if(max_facts=12).added) == 2
    assert len(memory.what_if(fact_confidence_threshold=0.9).removed) == len(memory.facts())


def test_an_undo_of_a_tools_change_gives_back_what_it_evicted(bs: Backstory, tool: MemoryHandle) -> None:
    for number in range(11):
        tool.add_fact(f"fact {number}")
    memory = bs.memory("ada")
    assert "fact 0" not in contents(memory)
    memory.revert("HEAD")
    assert "fact 0" in contents(memory)
    assert memory.verify().ok


def test_forgetting_the_thread_forgets_what_a_tool_stored_in_it(bs: Backstory, tool: MemoryHandle) -> None:
    memory = bs.memory("ada")
    memory.record("t1", [{"role": "user", "content": "I like tea"}, {"role": "assistant", "content": "Noted"}])
    tool.add_fact("Likes tea")
    memory.by("agent:lead", by_model=True).add_fact("Runs")
    memory.forget(thread_id="t1")
    assert contents(memory) == ["Runs"]


def test_a_tool_of_a_conversation_that_is_not_recorded_yet_hinders_no_look_at_memory(bs: Backstory) -> None:
    memory = bs.memory("ada")
    memory.record("t1", [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "Noted."}])
    assert [thread.thread for thread in memory.status().pending] == ["t1"]
    tool = memory.by("agent:lead", "t2", by_model=True)
    tool.remove_fact(tool.add_fact("Likes tea").fact.id)
    assert [thread.thread for thread in memory.status().pending] == ["t1"]
    assert [thread.thread for thread in memory.threads()] == ["t1"]
    memory.record("t2", [{"role": "user", "content": "I like tea."}])
    assert [thread.thread for thread in memory.status().pending] == ["t1", "t2"]
