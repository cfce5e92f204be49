"""`test --from-fact`: a test made of what went wrong replays what went wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from backstory.home import Backstory
from backstory.ledger import extraction
from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.errors import InputError, NotFoundError
from backstory.memory import MemoryHandle
from backstory.memory_tests.incident import Incident, incident_of
from backstory.memory_tests.replay import ScratchClock
from backstory.memory_tests.run import FileResult, run_tests

PACKAGED = Path(extraction.__file__).parent / "prompts"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryHandle]:
    with Backstory.open(tmp_path / "home", background=False) as bs:
        yield bs.memory("ada")


def learn(memory: MemoryHandle, thread: str, words: str, **reply: object) -> int:
    number = len(memory.log())
    memory.record(thread, [{"role": "user", "id": f"{thread}{number}", "content": words}])
    return memory.extract([{"thread_id": thread, "reply": reply}]).commits[0]


def fact(content: str, **more: object) -> dict[str, object]:
    return {"content": content, "confidence": 0.9, **more}


def made(memory: MemoryHandle, what: str, **names: str) -> Incident:
    incident = incident_of(memory, what, None, names)
    incident.must_be_new()
    incident.write()
    return incident


def run(incident: Incident) -> FileResult:
    return run_tests([list(incident.files)[-1]]).files[0]


def expectations(incident: Incident) -> list[dict[str, str]]:
    return yaml.safe_load(list(incident.files.values())[-1])["expect"]


def mistaken(memory: MemoryHandle) -> None:
    """Commit 2 is beside the point, 3 learns the truth, 4 takes it away, 5 undoes that."""
    learn(memory, "other", "I have a cat.", newFacts=[fact("Ada has a cat")])
    learn(memory, "first", "I am Ada, and allergic to nuts.", newFacts=[fact("Ada likes tea"), fact("Ada is allergic")])
    learn(
        memory,
        "second",
        "My sister is not allergic any more.",
        newFacts=[fact("Ada is not allergic")],
        factsToRemove=[{"id": "fact_3_1", "reason": "healed", "replacementFactIndex": 0}],
    )
    memory.revert(4)


def test_an_undone_fact_becomes_a_test_that_fails_as_long_as_the_mistake_is_made(memory: MemoryHandle, files) -> None:
    mistaken(memory)
    incident = made(memory, "fact_4_0")
    assert list(incident.files) == ["fact_4_0.jsonl", "fact_4_0.replies.jsonl", "fact_4_0.test.yaml"]
    assert expectations(incident) == [{"remembers": "Ada is allergic"}, {"never": "Ada is not allergic"}]
    result = run(incident)
    assert (result.updates, [one.ok for one in result.expectations]) == (2, [False, False])
    replies = files.folder / "fact_4_0.replies.jsonl"
    rows = [json.loads(line) for line in replies.read_text().splitlines()]
    assert rows[1]["reply"]["factsToRemove"][0]["id"] == "fact_2_1"
    rows[1]["reply"] = {"newFacts": [fact("Ada's sister is not allergic")]}
    files.rows(replies.name, *rows)
    assert run(incident).ok


def test_the_fact_that_was_lost_and_the_commit_and_its_undo_make_the_same_test(memory: MemoryHandle, files) -> None:
    mistaken(memory)
    tests = [expectations(incident_of(memory, what, None, {})) for what in ("fact_4_0", "fact_3_1", "4", "5", "HEAD")]
    assert tests == tests[:1] * 5


def test_words_that_are_beside_the_point_stay_out(memory: MemoryHandle, files) -> None:
    mistaken(memory)
    incident = made(memory, "fact_4_0")
    assert not any("has a cat" in text or "have a cat" in text for text in (*incident.files.values(), *incident.words))
    assert incident.words[0] == "user: I am Ada, and allergic to nuts."
    assert "reply: healed" in incident.words


def test_names_are_replaced_everywhere(memory: MemoryHandle, files) -> None:
    mistaken(memory)
    incident = made(memory, "fact_4_0", ada="Kim", second=r"the \1")
    assert not any("ada" in text.casefold() for text in (*incident.files.values(), *incident.words))
    assert expectations(incident)[0] == {"remembers": "Kim is allergic"}
    assert r'"thread_id":"the \\1"' in incident.files["fact_4_0.jsonl"]
    assert [one.ok for one in run(incident).expectations] == [False, False]


def test_a_name_within_a_word_stays_and_one_without_spaces_is_replaced(memory: MemoryHandle, files) -> None:
    learn(memory, "t", "Adam, Ada's friend, 叫阿达。", newFacts=[fact("Ada knows Adam")])
    incident = incident_of(memory, "fact_2_0", None, {"Ada": "Kim", "阿达": "小金"})
    assert incident.words[0] == "user: Adam, Kim's friend, 叫小金。"


def test_a_fact_that_lives_is_remembered_and_one_that_was_true_once_is_forgotten(memory: MemoryHandle, files) -> None:
    learn(memory, "t", "I live in Oslo.", newFacts=[fact("Lives in Oslo")])
    learn(memory, "t", "I moved to Rome.", newFacts=[fact("Lives in Rome")], factsToRemove=["fact_2_0"])
    incident = made(memory, "fact_2_0")
    assert expectations(incident) == [{"forgets": "Lives in Oslo"}]
    # Two updates of one thread come in two files, or they would be one.
    assert yaml.safe_load(incident.files["fact_2_0.test.yaml"])["conversations"] == [
        "fact_2_0.jsonl",
        "fact_2_0-2.jsonl",
    ]
    assert (run(incident).ok, run(incident).updates) == (True, 2)
    assert expectations(incident_of(memory, "fact_3_0", None, {})) == [{"remembers": "Lives in Rome"}]


def test_every_kind_of_item_is_replayed_as_it_was(memory: MemoryHandle, files) -> None:
    learn(
        memory,
        "a",
        "Tea, and bread.",
        newFacts=[fact(f"Likes {what}") for what in ("tea", "bread", "rye", "jam", "ham")],
    )
    learn(
        memory,
        "b",
        "All of it.",
        user={"workContext": {"summary": "Bakes.", "shouldUpdate": True, "scope": "user"}},
        newFacts=[
            fact("Bakes", category="goal", expectedValidDays=9, sourceError="was wrong"),
            7,
            fact("Maybe", confidence=0.1),
        ],
        factsToRemove=[{"id": "fact_2_1", "reason": "no", "replacementFactIndex": 0}],
        factsToEnd=[{"id": "fact_2_4", "validUntil": "2026-02-01", "reason": "vegan now"}],
        factsToReinforce=[{"id": "fact_2_0"}],
        staleFactsToExtend=[{"id": "fact_2_0", "extendByDays": 5}],
        factsToConsolidate=[{"sourceIds": ["fact_2_2", "fact_2_3"], "consolidated": {"content": "Likes breakfast"}}],
    )
    incident = made(memory, "3")
    replayed = run(incident)
    assert {one.content for one in replayed.memory} == {one.content for one in memory.facts()}
    rows = [json.loads(line) for line in incident.files["commit_3.replies.jsonl"].splitlines()]
    with Backstory.open(files.folder / "again", background=False) as bs:
        again = bs.memory("ada")
        for thread, words in (("a", "Tea, and bread."), ("b", "All of it.")):
            again.record(thread, [{"role": "user", "id": f"{thread}0", "content": words}])
        again.extract(rows)
        for ours, theirs in zip(again.log(limit=2), memory.log(limit=2), strict=True):
            assert candidates_of(ours.events) == candidates_of(theirs.events)


def test_a_fact_that_expired_meanwhile_counts_for_the_ids(tmp_path: Path, files) -> None:
    clock = ScratchClock()
    with Backstory.open(tmp_path / "home", clock=clock, background=False) as bs:
        memory = bs.memory("ada")
        rome = fact("Is in Rome", validUntil="2026-02-02")
        learn(memory, "a", "In Rome for a day.", newFacts=[rome, fact("Likes tea")])
        clock.move("2026-02-05T00:00:00Z")
        learn(memory, "b", "And jam.", newFacts=[fact("Likes jam")], factsToReinforce=[{"id": "fact_2_1"}])
        clock.move("2026-02-06T00:00:00Z")
        learn(memory, "c", "No jam.", factsToRemove=[{"id": "fact_4_0", "reason": "no jam"}])
        assert [one.cause.kind for one in memory.log()] == [
            "extraction",
            "extraction",
            "expiry",
            "extraction",
            "genesis",
        ]
        memory.revert(5)
        incident = made(memory, "fact_4_0")
    assert expectations(incident) == [{"remembers": "Likes jam"}]
    verdict = run(incident).expectations[0]
    assert (verdict.ok, "no jam" in verdict.why) == (False, True)


def test_a_reply_of_a_model_is_kept_for_its_prompt(tmp_path: Path, files, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(messages: list[dict[str, str]]) -> dict[str, object]:
        return {"newFacts": [fact("Likes tea", evidence=["1"])]}

    with Backstory.open(tmp_path / "home", model=model, background=False) as bs:
        memory = bs.memory("ada")
        memory.record("t", [{"role": "user", "content": "I like tea."}])
        memory.extract()
        incident = made(memory, "fact_2_0")
    assert run(incident).ok
    shutil.copytree(PACKAGED, files.folder / "prompts")
    (files.folder / "prompts" / "system.md").write_text("Be brief.\n")
    monkeypatch.setenv("BACKSTORY_PROMPTS_DIR", str(files.folder / "prompts"))
    with pytest.raises(InputError, match="not recorded for this prompt"):
        run(incident)


def test_what_no_model_learned_or_was_erased_makes_no_test(memory: MemoryHandle, files) -> None:
    by_hand = memory.add_fact("Likes coffee").fact.id
    with pytest.raises(NotFoundError, match="no update of a model led to"):
        incident_of(memory, by_hand, None, {})
    with pytest.raises(NotFoundError):
        incident_of(memory, "fact_99_0", None, {})
    learn(memory, "t", "I like tea.", newFacts=[fact("Likes tea")])
    memory.forget(matching="tea")
    with pytest.raises(NotFoundError, match="erased"):
        incident_of(memory, "3", None, {})


def test_a_fact_by_hand_that_an_update_touched_is_noted(memory: MemoryHandle, files) -> None:
    by_hand = memory.add_fact("Likes coffee").fact.id
    learn(memory, "t", "I like tea.", newFacts=[fact("Likes tea")], factsToReinforce=[{"id": by_hand}])
    incident = incident_of(memory, "HEAD", None, {})
    assert incident.notes == (f"{by_hand} was not learned from a conversation, so the test lacks it",)


def test_nothing_is_overwritten(memory: MemoryHandle, files) -> None:
    mistaken(memory)
    made(memory, "fact_4_0")
    with pytest.raises(InputError, match=r"fact_4_0\.jsonl is there already: name another file"):
        made(memory, "fact_4_0")
