"""Long texts: kept whole up to the limit, refused by name above it, and never cut, whoever brings them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import exchange, open_home, reply
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import CandidateRejected
from backstory.ledger.core.sanitize import MAX_FACT, MAX_SUMMARY
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.importing import changes_since, read_document
from backstory.memory import MemoryHandle

LONGEST = "f" * MAX_FACT
TOO_LONG = "f" * (MAX_FACT + 1)


@pytest.fixture
def memory(tmp_path: Path) -> MemoryHandle:
    return open_home(tmp_path / "home", actor="ada").memory("ada")


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def refusals(memory: MemoryHandle) -> list[tuple[str, str]]:
    events = memory.log(limit=1)[0].events
    return [(event.rule, event.detail) for event in events if isinstance(event, CandidateRejected)]


def refused_texts(memory: MemoryHandle) -> list[str]:
    events = memory.log(limit=1)[0].events
    found = [event.candidate for event in events if isinstance(event, CandidateRejected)]
    return [getattr(one, "content", None) or getattr(one, "summary", None) or one.reason for one in found]


def test_the_longest_fact_is_kept_whole_by_every_way_in(memory: MemoryHandle) -> None:
    memory.add_fact(LONGEST)
    memory.edit_fact(memory.facts()[0].id, content=LONGEST.upper())
    memory.import_document([LONGEST.replace("f", "g")])
    memory.record("t", exchange("long"))
    memory.extract([RecordedReply("t", reply(LONGEST.replace("f", "h")))])
    assert texts(memory) == [LONGEST.replace("f", letter) for letter in "Fgh"]


def test_a_longer_fact_of_a_person_is_an_error_that_says_the_limit_and_writes_nothing(memory: MemoryHandle) -> None:
    memory.add_fact("Likes tea")
    for act in (lambda: memory.add_fact(TOO_LONG), lambda: memory.edit_fact("fact_2_0", content=TOO_LONG)):
        with pytest.raises(UsageError, match="the fact has 50,001 characters, and a fact has at most 50,000"):
            act()
    assert (texts(memory), memory.status().seq) == (["Likes tea"], 2)


def test_the_command_line_says_it_and_exits_with_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), "fact", "add", TOO_LONG])
    assert (result.exit_code, "50,001 characters" in result.stderr) == (2, True)


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_too_long_in_an_import_is_refused_by_name_and_recorded_whole(
    memory: MemoryHandle, *, replace: bool
) -> None:
    section = "s" * (MAX_SUMMARY + 1)
    memory.import_document(
        {
            "user": {"workContext": {"summary": section, "updatedAt": "2026-01-01T00:00:00Z"}},
            "facts": [
                {"content": TOO_LONG, "confidence": 0.9},
                {"content": "Likes tea", "confidence": 0.9, "category": "correction", "sourceError": TOO_LONG},
                {"content": "Runs", "confidence": 0.9},
            ],
        },
        replace=replace,
    )
    assert texts(memory) == ["Runs"]
    assert sorted(refusals(memory)) == [
        ("too_long", "the fact has 50,001 characters; at most 50,000 are remembered"),
        ("too_long", "the section has 50,001 characters; at most 50,000 are remembered"),
        ("too_long", "the sourceError has 50,001 characters; at most 50,000 are remembered"),
    ]
    assert sorted(refused_texts(memory)) == sorted([section, TOO_LONG, "Likes tea"])
    assert not memory.document().user.work_context.summary


def test_what_is_too_long_in_a_models_answer_is_refused_by_name_and_recorded_whole(memory: MemoryHandle) -> None:
    memory.add_fact("Has a dog")
    memory.record("t", exchange("long"))
    answer = json.loads(reply(TOO_LONG, "Runs"))
    answer["user"] = {"workContext": {"summary": "s" * (MAX_SUMMARY + 1), "shouldUpdate": True}}
    answer["factsToRemove"] = [{"id": "fact_2_0", "reason": TOO_LONG}]
    memory.extract([RecordedReply("t", json.dumps(answer))])
    assert texts(memory) == ["Has a dog", "Runs"]
    assert [rule for rule, _ in refusals(memory)] == ["too_long"] * 3
    assert sorted(map(len, refused_texts(memory))) == [MAX_FACT + 1, MAX_FACT + 1, MAX_SUMMARY + 1]
    assert memory.verify().ok


def test_a_document_that_a_host_saves_loses_nothing_either(memory: MemoryHandle) -> None:
    memory.add_fact("Likes tea")
    before = read_document({"facts": [{"id": "fact_2_0", "content": "Likes tea", "byHand": True, "confidence": 0.9}]})
    after = {
        "user": {"workContext": {"summary": "s" * (MAX_SUMMARY + 1)}},
        "facts": [{"id": "fact_2_0", "content": TOO_LONG, "confidence": 0.9}],
    }
    memory.own.save(changes_since(before, after))
    assert (texts(memory), [rule for rule, _ in refusals(memory)]) == (["Likes tea"], ["too_long", "too_long"])


def test_a_merged_fact_names_all_of_its_sources_or_is_refused(memory: MemoryHandle) -> None:
    sources = [f"fact_{number}_0" for number in range(1_001)]
    memory.import_document(
        {
            "facts": [
                {"content": "Runs", "confidence": 0.9, "consolidatedFrom": sources[:1_000]},
                {"content": "Swims", "confidence": 0.9, "consolidatedFrom": sources},
            ]
        }
    )
    assert [fact.consolidated_from for fact in memory.facts()] == [tuple(sources[:1_000])]
    assert refusals(memory) == [("malformed", "consolidatedFrom: 1,001 ids are too many; at most 1,000 are kept")]


def test_the_name_of_an_actor_is_not_cut(memory: MemoryHandle) -> None:
    with pytest.raises(UsageError, match="the actor has 600 characters"):
        memory.by("a" * 600)
