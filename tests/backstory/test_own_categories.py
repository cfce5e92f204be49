"""Categories and instructions that an operator states, as policy: in prompts, in rules, in the block, in what-if."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, open_home

from backstory.cli.inputs import policy_changes
from backstory.http.bodies import PolicyChanges
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import CandidateRejected, PolicyChanged, Unread, UpdateProposed
from backstory.ledger.core.policy import Category, PolicyValue
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.services.named import read_policy

DIET = Category("Diet", "what she eats and drinks", lifetime=10, guaranteed=True)
ONLY_DIET = "Remember only what concerns her diet. Never keep anything about health."
ILLNESS = "Has a rare illness"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memory(tmp_path: Path, clock: FakeClock) -> MemoryHandle:
    return open_home(tmp_path, clock=clock).memory("ada")


def learn(memory: MemoryHandle, *facts: dict[str, object], thread: str = "t", **more: object) -> list[object]:
    """Learn from an answer; returns the events."""
    memory.record(thread, [{"role": "user", "content": "I say so."}], mode="append")
    news = [{"confidence": 0.9, **fact} for fact in facts]
    memory.extract([RecordedReply(thread, json.dumps({"newFacts": news, **more}))])
    return list(memory.log(limit=1)[0].events)


def kinds(memory: MemoryHandle) -> dict[str, str]:
    return {fact.content: fact.category for fact in memory.facts()}


# As policy.


@pytest.mark.parametrize(
    "stated",
    [
        (DIET,),
        [{"name": "Diet", "description": "what she eats and drinks", "lifetime": 10, "guaranteed": True}],
        '[{"name": "Diet", "description": "what she eats and drinks", "lifetime": 10, "guaranteed": true}]',
    ],
    ids=("category", "object", "JSON"),
)
def test_they_are_put_in_force_by_a_commit_in_whatever_form_they_are_stated(
    memory: MemoryHandle, stated: PolicyValue
) -> None:
    result = memory.set_policy(categories=stated, instructions=ONLY_DIET)
    assert (result.policy.categories, result.policy.instructions) == ((DIET,), ONLY_DIET)
    (event,) = memory.log(limit=1)[0].events
    assert isinstance(event, PolicyChanged)
    assert event.after.categories == (DIET,)
    assert memory.reload() == memory.document()
    assert memory.verify().ok


def test_the_command_line_and_a_request_state_them_too() -> None:
    stated = '[{"name": "Diet", "description": "what she eats and drinks", "lifetime": 10, "guaranteed": true}]'
    assert policy_changes([f"categories={stated}", "instructions=Only diet, never health."]) == {
        "categories": (DIET,),
        "instructions": "Only diet, never health.",
    }
    assert policy_changes(["categories=diet, travel"]) == {"categories": (Category("diet"), Category("travel"))}
    assert policy_changes(["categories="]) == {"categories": ()}
    body = PolicyChanges.model_validate({"categories": [*json.loads(stated), "travel"], "max_facts": 20})
    assert read_policy(body.root) == {"categories": (DIET, Category("travel")), "max_facts": 20}


def test_configuration_states_them_for_each_memory_of_a_home(tmp_path: Path) -> None:
    place = tmp_path / "backstory.yaml"
    place.write_text(f"memory:\n  categories: [travel, {{name: Diet, lifetime: 10}}]\n  instructions: {ONLY_DIET}\n")
    with open_home(tmp_path / "home", config=str(place)) as bs:
        for user in ("ada", "bo"):
            bs.memory(user).add_fact("Runs")
            policy = bs.memory(user).policy().policy
            assert policy.categories == (Category("travel"), Category("Diet", lifetime=10))
            assert policy.instructions == ONLY_DIET
        # One user's, or one agent's, is set by hand and stays until the configured value changes.
        bs.memory("bo", "cook").set_policy(instructions="")
        assert bs.memory("bo", "cook").policy().policy.instructions == ""
        assert bs.memory("bo").policy().policy.instructions == ONLY_DIET


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"categories": [{"name": " "}]}, "one line of 1 to"),
        ({"categories": ["diet", "Diet"]}, "twice"),
        ({"categories": [{"name": "diet", "colour": "red"}]}, "colour"),
        ({"categories": [{"name": "diet", "lifetime": 0}]}, "1 to 36500 days"),
        ({"categories": 7}, "list of names"),
        ({"categories": "[{"}, "JSON"),
        ({"instructions": "x" * 4_001}, "4,000 characters"),
        ({"instructions": 7}, "4,000 characters"),
    ],
    ids=str,
)
def test_what_is_wrong_with_them_is_told(memory: MemoryHandle, wrong: dict[str, PolicyValue], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        memory.set_policy(**wrong)
    with pytest.raises(ConfigError, match=told):
        memory.what_if(**wrong)


# In the prompt.


def asked(home: Path, **policy: PolicyValue) -> tuple[str, str, dict[str, object]]:
    """The system message of an update, the digest of its prompt, and its schema."""
    model = ScriptedModel('{"newFacts": []}')
    memory = open_home(home, model).memory("ada")
    if policy:
        memory.set_policy(**policy)
    memory.record("t", [{"role": "user", "content": "I eat no meat."}, {"role": "assistant", "content": "Noted."}])
    memory.extract()
    assert memory.log(limit=1)[0].cause.prompt == model.prompts[0].digest
    return model.prompts[0].system, model.prompts[0].digest, model.prompts[0].schema


def test_a_prompt_says_them_and_its_digest_differs(tmp_path: Path) -> None:
    plain, digest, schema = asked(tmp_path / "plain")
    told, other, labelled = asked(tmp_path / "told", categories=(DIET,), instructions=ONLY_DIET)
    assert told.startswith(plain)
    assert "- Diet: what she eats and drinks" in told
    assert ONLY_DIET in told
    assert '"topic"' in told
    assert "topic" not in plain
    assert ("topic" in json.dumps(schema), "topic" in json.dumps(labelled)) == (False, True)
    digests = {digest, other, asked(tmp_path / "third", instructions="Only travel.")[1]}
    assert len(digests) == 3
    assert asked(tmp_path / "again")[1] == digest


# In rules and in the block.


def test_a_category_is_spelled_as_the_policy_spells_it_also_without_free_ones(memory: MemoryHandle) -> None:
    memory.set_policy(categories=(DIET,), free_categories=False)
    learn(memory, {"content": "Eats no meat", "category": "diet"}, {"content": "Runs", "category": "sports"})
    memory.add_fact("Drinks tea", category="DIET")
    assert kinds(memory) == {"Eats no meat": "Diet", "Runs": "context", "Drinks tea": "Diet"}


def test_a_lifetime_and_a_protection_hold_for_its_facts_alone(memory: MemoryHandle, clock: FakeClock) -> None:
    pets = Category("pets", lifetime=10, protected=True)
    memory.set_policy(categories=(DIET, pets, Category("goal", lifetime=10)), staleness_min_candidates=1)
    learn(
        memory,
        {"content": "Eats no meat", "category": "diet"},
        {"content": "Eats fish", "category": "diet", "expectedValidDays": 90},
        {"content": "Has a cat", "category": "pets"},
        {"content": "Wants to run", "category": "goal"},
        {"content": "Lives in Oslo", "category": "context"},
    )
    clock.advance(20 * 86_400)
    events = learn(memory, staleFactsToRemove=[fact.id for fact in memory.facts()], thread="later")
    assert list(kinds(memory)) == ["Eats fish", "Has a cat", "Lives in Oslo"]
    refused = {event.candidate.place: event.rule for event in events if isinstance(event, CandidateRejected)}
    assert set(refused.values()) == {"not_due"}


def test_its_facts_have_a_place_in_the_block(memory: MemoryHandle) -> None:
    for number in range(80):
        memory.add_fact(f"Knows the {number}th of many things that are worth a word or two", confidence=0.95)
    memory.add_fact("Eats no meat", category="diet", confidence=0.5)
    assert "Eats no meat" not in memory.context("What of the many things?", max_tokens=400).standing
    memory.set_policy(categories=(DIET,))
    assert "Eats no meat" in memory.context("What of the many things?", max_tokens=400).standing


# Topics.


def test_what_a_model_labels_as_outside_is_refused_with_its_text(memory: MemoryHandle) -> None:
    memory.set_policy(instructions=ONLY_DIET)
    events = learn(
        memory,
        {"content": "Eats no meat", "topic": "inside"},
        {"content": "Likes trains", "topic": " Outside "},
        {"content": "Runs"},
        user={"workContext": {"summary": "Drives trains.", "shouldUpdate": True, "topic": "outside"}},
    )
    assert list(kinds(memory)) == ["Eats no meat", "Runs"]
    refused = {event.candidate.place: event.rule for event in events if isinstance(event, CandidateRejected)}
    assert refused == {"newFacts/1": "topic", "user.workContext": "topic"}
    (found,) = memory.why_not("trains likes")[:1]
    assert (found.rule, found.content) == ("topic", "Likes trains")
    (refusal, *_) = [one for one in memory.refusals("HEAD") if one.content == "Likes trains"]
    assert refusal.needs is not None
    assert (refusal.needs.key, refusal.needs.value) == ("instructions", "")
    assert [fact.content for fact in memory.what_if(instructions="").added] == ["Likes trains"]
    assert memory.what_if().added == ()


def test_of_what_must_never_be_kept_no_text_is_kept_anywhere(memory: MemoryHandle, tmp_path: Path) -> None:
    memory.set_policy(instructions=ONLY_DIET)
    events = learn(
        memory,
        {"content": ILLNESS, "topic": "never", "category": "rare ailments"},
        {"content": "Eats no meat"},
        user={"workContext": {"summary": ILLNESS, "shouldUpdate": True, "topic": "never"}},
    )
    refused = [event for event in events if isinstance(event, CandidateRejected)]
    assert {(event.candidate.place, event.rule) for event in refused} == {
        ("newFacts/0", "topic"),
        ("user.workContext", "topic"),
    }
    assert all(isinstance(event.candidate, Unread) and not event.candidate.text for event in refused)
    (proposed,) = [event for event in events if isinstance(event, UpdateProposed)]
    assert proposed.digest == ""
    memory.flush()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"rare" not in path.read_bytes(), path
    assert memory.what_if(instructions="").added == ()
    assert memory.what_if().removed == ()
    assert memory.verify().ok


def test_an_answer_that_comes_too_late_keeps_none_of_it_either(memory: MemoryHandle, tmp_path: Path) -> None:
    memory.set_policy(instructions=ONLY_DIET)
    memory.record("t", [{"role": "user", "content": "I say so."}])

    def clear_meanwhile(prompt: object) -> str:
        memory.clear()
        return json.dumps({"newFacts": [{"content": ILLNESS, "confidence": 0.9, "topic": "never"}]})

    with open_home(tmp_path, ScriptedModel(clear_meanwhile)) as bs:
        bs.memory("ada").extract()
    assert {event.rule for event in memory.log(limit=1)[0].events if isinstance(event, CandidateRejected)} == {"basis"}
    assert b"rare" not in (tmp_path / "users/ada/ledger.jsonl").read_bytes()


def test_without_instructions_the_label_means_nothing(memory: MemoryHandle) -> None:
    learn(memory, {"content": "Likes trains", "topic": "outside"}, {"content": ILLNESS, "topic": "never"})
    assert list(kinds(memory)) == ["Likes trains", ILLNESS]


def test_forgetting_a_word_does_not_take_the_facts_of_a_category_that_the_policy_names(memory: MemoryHandle) -> None:
    memory.set_policy(categories=(DIET,))
    memory.add_fact("Eats no meat", category="diet")
    memory.add_fact("Keeps to a strict diet", category="diet")
    memory.forget(matching="diet")
    assert list(kinds(memory)) == ["Eats no meat"]
    assert memory.verify().ok
