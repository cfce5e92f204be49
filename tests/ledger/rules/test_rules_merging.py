"""Rows D9 and D10 through the public surface, and where other memories misfire: each by the name of what went wrong."""

from __future__ import annotations

import json
import threading
import unicodedata
from pathlib import Path

import msgspec
import pytest
from fakes import PATIENCE, Gate, ScriptedModel, exchange, open_home

from backstory.ledger.core.events import DOCUMENT_SECTIONS, CandidateRejected, FactRemoved, SummaryUpdated, UpdateFailed
from backstory.ledger.core.policy import FIRST, PolicyValue
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle


@pytest.fixture
def memory(tmp_path: Path) -> MemoryHandle:
    return open_home(tmp_path).memory("ada")


def learn(memory: MemoryHandle, said: object = None, thread: str = "t1", **lists: object) -> dict[str, str]:
    """Let a memory learn from an answer; returns what was refused, rule by place."""
    memory.record(thread, exchange("tea"), mode="append")
    text = said if isinstance(said, str) else json.dumps({**(said if isinstance(said, dict) else {}), **lists})
    result = memory.extract([RecordedReply(thread, text)])
    assert result.updates == 1
    (commit,) = memory.log(limit=1)
    return {e.candidate.place: e.rule for e in commit.events if isinstance(e, CandidateRejected)}


def facts(*contents: str, **more: object) -> list[dict[str, object]]:
    return [{"content": content, "confidence": 0.9, **more} for content in contents]


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def section(memory: MemoryHandle, name: str) -> str:
    group, _, key = name.partition(".")
    return str(msgspec.to_builtins(memory.document())[group][key]["summary"])


# D9: a reply survives whatever is wrong with it.


def test_the_first_valid_object_is_taken_from_among_thinking_prose_and_fences(memory: MemoryHandle) -> None:
    draft, meant = json.dumps({"newFacts": facts("a draft")}), json.dumps({"newFacts": facts("Likes tea")})
    learn(memory, f"<think>{draft}</think>Of course!\n```json\n{meant}\n```\nAnything else? {draft}")
    assert texts(memory) == ["Likes tea"]


def test_wrong_types_and_unknown_ids_cost_themselves_alone_and_are_recorded(memory: MemoryHandle) -> None:
    said = (
        '{"newFacts": [7, {"content": 3}, {"content": "NaN", "confidence": NaN}, {"content": "Likes tea",'
        ' "confidence": 0.9, "mood": "fine"}], "factsToRemove": ["fact_9_9", {"id": 4}], "more": [1],'
        ' "staleFactsToExtend": {"id": "x"}, "factsToConsolidate": [{"sourceIds": 3}]}'
    )
    assert learn(memory, said) == {
        "newFacts/0": "malformed",
        "newFacts/1": "malformed",
        "newFacts/2": "malformed",
        "factsToRemove/0": "unknown_fact",
        "factsToRemove/1": "malformed",
        "staleFactsToExtend": "malformed",
        "factsToConsolidate/0": "malformed",
    }
    assert texts(memory) == ["Likes tea"]


@pytest.mark.parametrize("broken", ['{"newFacts": [{"content": "Likes tea", "confidence": 0.9}', "{'newFacts': []}"])
def test_a_broken_reply_is_never_repaired_by_guessing(memory: MemoryHandle, broken: str) -> None:
    memory.record("t1", exchange("tea"))
    assert memory.extract([RecordedReply("t1", broken)]).failed == 1
    assert texts(memory) == []
    assert isinstance(memory.log(limit=1)[0].events[0], UpdateFailed)


# D10: merging.


@pytest.mark.parametrize("name", DOCUMENT_SECTIONS)
@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        ({"summary": "New.", "shouldUpdate": True}, "New."),
        ({"summary": "New.", "shouldUpdate": False}, "Old."),
        ({"summary": "", "shouldUpdate": True}, "Old."),
        ({"summary": "  ", "shouldUpdate": True}, "Old."),
        ({"shouldUpdate": True}, "Old."),
    ],
)
def test_a_section_is_rewritten_only_when_it_should_be_and_with_text(
    memory: MemoryHandle, name: str, said: dict[str, object], becomes: str
) -> None:
    group, _, key = name.partition(".")
    learn(memory, {group: {key: {"summary": "Old.", "shouldUpdate": True}}})
    learn(memory, {group: {key: said}})
    assert section(memory, name) == becomes


def test_a_fact_keeps_the_thread_it_came_from_and_what_was_wrong_before(memory: MemoryHandle) -> None:
    learn(memory, newFacts=facts("Use metres", category="correction", sourceError=" used feet "), thread="house 7")
    (fact,) = memory.facts()
    assert (fact.source, fact.source_error, fact.category) == ("house 7", "used feet", "correction")


@pytest.mark.parametrize(("confidence", "taken"), [(0.69, False), (0.7, True), (None, False)])
def test_the_threshold_is_the_least_that_is_taken(memory: MemoryHandle, confidence: float | None, taken: bool) -> None:
    item = {"content": "Likes tea"} | ({} if confidence is None else {"confidence": confidence})
    assert learn(memory, newFacts=[item]) == ({} if taken else {"newFacts/0": "threshold"})


# Misfires: dedup.


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("Likes cafés in Zürich", unicodedata.normalize("NFD", "Likes cafés in Zürich")),
        (unicodedata.normalize("NFD", "Likes cafés"), "LIKES CAFÉS"),
        ("Likes Rust 2024", "Ｌｉｋｅｓ　Ｒｕｓｔ　２０２４"),
        ("喜欢 Rust", "喜欢　Ｒｕｓｔ。"),
        ("Likes green tea", "Likes  green \t tea"),
        ("Likes green tea", "Likes green tea."),
        ("Likes green tea.", "likes green tea!"),
        ("住在柏林", "住在柏林。"),
        ("Straße in Berlin", "STRASSE in Berlin"),
    ],
)
def test_misfire_the_same_fact_in_another_unicode_form_width_case_space_or_with_a_final_stop_is_stored_twice(
    memory: MemoryHandle, first: str, again: str
) -> None:
    learn(memory, newFacts=facts(first))
    assert learn(memory, newFacts=facts(again)) == {"newFacts/0": "duplicate"}
    assert texts(memory) == [first]


@pytest.mark.parametrize(("notion", "kept"), [("normalized", 1), ("casefold", 2), ("exact", 3)])
def test_what_is_the_same_fact_is_the_policys_to_say(memory: MemoryHandle, notion: str, kept: int) -> None:
    more: dict[str, PolicyValue] = {"dedup_key": notion}
    memory.set_policy(**more)
    learn(memory, newFacts=facts("Likes tea", "likes TEA", "Likes tea.", " Likes tea "))
    assert len(texts(memory)) == kept


# Misfires: uploads.


@pytest.mark.parametrize(
    "content",
    [
        "User built a file upload service in Go",
        "User is working on a file upload feature",
        "用户用 Go 写了一个文件上传服务",
        "用户在做文件上传功能",
    ],
)
def test_misfire_a_fact_about_building_uploads_is_taken_for_an_upload(memory: MemoryHandle, content: str) -> None:
    learn(memory, {"user": {"workContext": {"summary": f"{content}.", "shouldUpdate": True}}}, newFacts=facts(content))
    assert texts(memory) == [content]
    assert section(memory, "user.workContext") == f"{content}."


@pytest.mark.parametrize("content", ["用户上传了文件", "用户上传了文件。", "User uploaded a file called report.pdf."])
def test_misfire_an_upload_is_remembered_as_a_fact_when_it_is_told_in_chinese(
    memory: MemoryHandle, content: str
) -> None:
    assert learn(memory, newFacts=facts(content)) == {"newFacts/0": "upload"}
    assert texts(memory) == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("用户喜欢喝茶。用户上传了文件。", "用户喜欢喝茶。"),
        ("Likes tea. User uploaded a file called plan.pdf.", "Likes tea."),
    ],
)
def test_misfire_an_upload_is_remembered_in_a_summary_and_scrubbing_it_leaves_no_trace(
    memory: MemoryHandle, said: str, kept: str
) -> None:
    learn(memory, {"user": {"topOfMind": {"summary": said, "shouldUpdate": True}}})
    assert section(memory, "user.topOfMind") == kept
    (event,) = (e for e in memory.log(limit=1)[0].events if isinstance(e, SummaryUpdated))
    assert (event.after.summary, event.proposed) == (kept, said)
    assert learn(memory, {"user": {"workContext": {"summary": "用户上传了文件。", "shouldUpdate": True}}}) == {
        "user.workContext": "upload"
    }


# Misfires: the cap, and what a person entered.


def test_misfire_at_the_cap_replacing_one_fact_evicts_another(memory: MemoryHandle) -> None:
    memory.set_policy(max_facts=10)
    learn(memory, newFacts=facts(*(f"Fact {n}" for n in range(10))))
    old = memory.facts()[4]
    learn(
        memory,
        newFacts=[{"content": "Fact 4 as it is now", "confidence": 0.7}],
        factsToRemove=[{"id": old.id, "replacementFactIndex": 0}],
    )
    assert texts(memory) == [*(f"Fact {n}" for n in range(10) if n != 4), "Fact 4 as it is now"]
    removed = [e for e in memory.log(limit=1)[0].events if isinstance(e, FactRemoved)]
    assert [(e.fact.id, e.reason) for e in removed] == [(old.id, "model")]


def test_misfire_a_model_takes_away_or_changes_what_a_person_entered(memory: MemoryHandle) -> None:
    policy = {"consolidation_enabled": True, "consolidation_min_facts": 2, "staleness_min_candidates": 1}
    memory.set_policy(max_facts=4, **policy)
    mine = memory.add_fact("Mine", confidence=0.1).fact
    learn(memory, newFacts=facts("a", "b", "c"))
    refused = learn(
        memory,
        newFacts=[{"content": "Theirs instead", "confidence": 1.0}],
        factsToRemove=[{"id": mine.id, "replacementFactIndex": 0}],
        factsToReinforce=[mine.id],
        staleFactsToRemove=[mine.id],
        staleFactsToExtend=[{"id": mine.id, "extendByDays": 90}],
        factsToConsolidate=[{"sourceIds": [mine.id, "fact_3_0"], "consolidated": {"content": "Both"}}],
    )
    assert refused == {
        "factsToRemove/0": "by_hand",
        "factsToReinforce/0": "by_hand",
        "staleFactsToRemove/0": "by_hand",
        "staleFactsToExtend/0": "by_hand",
        "factsToConsolidate/0": "by_hand",
    }
    assert memory.facts()[0] == mine
    assert texts(memory) == ["Mine", "b", "c", "Theirs instead"]


# Misfires: a cleared memory.


def test_misfire_an_extraction_in_flight_brings_a_cleared_memory_back(tmp_path: Path) -> None:
    gate = Gate(
        json.dumps({"newFacts": facts("Likes tea"), "user": {"topOfMind": {"summary": "Tea.", "shouldUpdate": True}}})
    )
    memory = open_home(tmp_path, ScriptedModel(gate)).memory("ada")
    memory.record("t1", exchange("tea"))
    asking = threading.Thread(target=memory.extract)
    asking.start()
    assert gate.entered.wait(PATIENCE)
    memory.clear()
    gate.opened.set()
    asking.join(PATIENCE)
    assert texts(memory) == []
    assert section(memory, "user.topOfMind") == ""
    (commit,) = memory.log(limit=1)
    assert [e.rule for e in commit.events if isinstance(e, CandidateRejected)] == ["basis", "basis"]
    assert memory.status().pending == ()


# Every refusal is kept.


def test_whatever_a_rule_refuses_is_found_again_by_asking_why_not(memory: MemoryHandle) -> None:
    assert memory.policy().policy == FIRST
    learn(memory, newFacts=facts("Wants this one page in green", scope="task"))
    (refusal, *_) = memory.why_not("wants this page in green")
    assert (refusal.rule, refusal.content) == ("gate", "Wants this one page in green")


@pytest.mark.parametrize("text", ["…", "...", "—", "[ ]", "。。。"])
def test_a_text_without_a_letter_or_a_digit_is_no_fact_and_wipes_no_section_out(
    memory: MemoryHandle, text: str
) -> None:
    learn(memory, user={"workContext": {"summary": "Works at a mill.", "shouldUpdate": True}})
    refused = learn(
        memory,
        user={"workContext": {"summary": text, "shouldUpdate": True}},
        newFacts=facts(text, "Likes tea", "C"),
    )
    assert refused == {"user.workContext": "empty", "newFacts/0": "empty"}
    assert section(memory, "user.workContext") == "Works at a mill."
    assert texts(memory) == ["Likes tea", "C"]


def test_misfire_a_zero_width_character_makes_a_second_fact(memory: MemoryHandle) -> None:
    learn(memory, newFacts=facts("Likes tea"))
    assert learn(memory, newFacts=facts("Likes\u200b tea")) == {"newFacts/0": "duplicate"}
    assert texts(memory) == ["Likes tea"]
