"""Every rule of deciding, by example."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from story import (
    added,
    at,
    extract,
    given,
    new,
    news,
    policies,
    refusals,
    reinforcement,
    removal,
    removed,
    rewritten,
    summary,
)

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    EditFact,
    FailUpdate,
    ImportDocument,
    RemoveFact,
)
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import CapError, ConfigError, NotFoundError
from backstory.ledger.core.events import (
    Consolidation,
    Edit,
    Extension,
    Fact,
    FactAdded,
    FactRevised,
    IdsReserved,
    NewFact,
    NewSummary,
    Removal,
    SummaryUpdated,
    TurnRange,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Memory, evolve
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.admission import newborn
from backstory.ledger.rules.decide import RULES, decide
from backstory.ledger.rules.ranking import Ranking
from backstory.testing.lines import AT

SMALL = Policy(max_facts=3)


# Admission.


def test_a_confident_new_fact_is_added_with_an_id_from_its_commit_and_place():
    story = given()
    events = story.learn(*news("Ada writes Rust", "Ada lives in Oslo"))
    assert added(events) == ["Ada writes Rust", "Ada lives in Oslo"]
    assert list(story.memory.facts) == ["fact_2_0", "fact_2_1"]
    fact = story.memory.facts["fact_2_1"]
    assert (fact.source, fact.created_at, fact.by_hand) == ("t1", at(1), False)


def test_a_fact_under_the_threshold_is_refused_and_one_on_it_is_taken():
    events = given(Policy(fact_confidence_threshold=0.7)).learn(*news(("low", 0.69), ("just", 0.7)))
    assert refusals(events) == {"newFacts/0": "threshold"}
    assert added(events) == ["just"]


@pytest.mark.parametrize(
    "again",
    [
        "Ada lives in Oslo.",
        "  ada LIVES in  oslo ",
        "Ada lives in Oslo!!",
        "Ａｄａ lives in Oslo",
        "Ada lives\tin\nOslo。",
    ],
)
def test_what_a_live_fact_already_says_is_refused_and_the_fact_unchanged(again):
    story = given(None, *news("Ada lives in Oslo"))
    before = story.memory.facts
    events = story.learn(new(again, 0.99))
    assert refusals(events) == {"newFacts/0": "duplicate"}
    assert story.memory.facts == before


def test_composed_and_decomposed_letters_are_the_same_letter():
    story = given(None, *news("Ada likes caf\u00e9s"))
    assert refusals(story.learn(new("Ada likes cafe\u0301s"))) == {"newFacts/0": "duplicate"}


def test_of_several_in_one_batch_that_say_the_same_the_most_confident_is_taken():
    events = given().learn(*news(("Ada runs.", 0.8), ("ada runs", 0.95), ("ADA RUNS!", 0.95)))
    assert added(events) == ["ada runs"]
    assert refusals(events) == {"newFacts/0": "duplicate", "newFacts/2": "duplicate"}


def test_one_under_the_threshold_does_not_shadow_a_confident_twin():
    events = given().learn(*news(("Ada runs", 0.3), ("Ada runs", 0.8)))
    assert refusals(events) == {"newFacts/0": "threshold"}
    assert added(events) == ["Ada runs"]


def test_a_fact_about_an_upload_is_refused_and_one_about_building_uploads_stays():
    events = given().learn(*news("User uploaded a file called report.pdf", "Built a file upload service in Go"))
    assert refusals(events) == {"newFacts/0": "upload"}
    assert added(events) == ["Built a file upload service in Go"]


def test_an_unknown_category_is_stored_as_context_and_the_proposal_keeps_its_word():
    events = given().learn(new("Ada plays chess", category="hobby"))
    event = next(e for e in events if isinstance(e, FactAdded))
    assert event.fact.category == "context"
    assert event.proposed == {"category": "hobby"}


def test_an_unread_item_is_refused_as_malformed_and_one_not_enabled_as_disabled():
    events = given(Policy(staleness_review_enabled=False, consolidation_enabled=False)).learn(
        Unread(place="newFacts/0", text="3", detail="not an object"),
        Consolidation(place="factsToConsolidate/0", sources=("fact_2_0", "fact_2_1"), content="both"),
        Removal(place="staleFactsToRemove/0", id="fact_2_0"),
        Extension(place="staleFactsToExtend/0", id="fact_2_1", days=9),
    )
    assert refusals(events) == {
        "newFacts/0": "malformed",
        "factsToConsolidate/0": "disabled",
        "staleFactsToRemove/0": "disabled",
        "staleFactsToExtend/0": "disabled",
    }


# The cap.


def test_at_the_cap_the_least_confident_gives_way():
    story = given(SMALL, *news(("a", 0.9), ("b", 0.75), ("c", 0.8)))
    events = story.learn(new("d", 0.85))
    assert removed(events) == {"b": "cap"}
    assert story.texts() == ["a", "c", "d"]


def test_among_equals_the_older_gives_way_so_memory_does_not_freeze():
    story = given(SMALL, *news("a", "b", "c"))
    assert removed(story.learn(new("d"))) == {"a": "cap"}


def test_a_candidate_that_would_not_survive_the_cap_is_refused_never_added_and_removed():
    story = given(SMALL, *news("a", "b", "c"))
    events = story.learn(new("weak", 0.7))
    assert refusals(events) == {"newFacts/0": "cap"}
    assert not added(events)
    assert not removed(events)


def test_evictions_stand_before_the_adds_so_no_prefix_exceeds_the_cap():
    story = given(SMALL, *news("a", "b", "c"))
    before = story.memory
    events = story.learn(*news("d", "e"))
    count = len(before.facts)
    for event in events:
        count += {"FactAdded": 1, "FactRemoved": -1}.get(type(event).__name__, 0)
        assert count <= 3


def test_replacing_a_fact_at_the_cap_evicts_nobody_else():
    story = given(SMALL, *news("lives in Oslo", "b", "c"))
    events = story.learn(new("lives in Bergen", 0.71), removal("fact_2_0", replacement=0))
    assert removed(events) == {"lives in Oslo": "model"}
    assert story.texts() == ["b", "c", "lives in Bergen"]


def test_a_fact_by_hand_is_not_evicted_and_where_only_such_are_left_the_newcomer_is_refused():
    story = given(Policy(max_facts=2))
    story.hand("mine", 0.1)
    story.hand("mine too", 0.1)
    events = story.learn(new("model's", 1.0))
    assert refusals(events) == {"newFacts/0": "cap"}
    assert story.texts() == ["mine", "mine too"]


# Removals.


def test_a_removal_and_its_replacement_fall_together():
    story = given(None, *news("lives in Oslo"))
    events = story.learn(new("lives in Bergen", 0.2), removal("fact_2_0", replacement=0))
    assert refusals(events) == {"newFacts/0": "threshold", "factsToRemove/0": "replacement_refused"}
    assert story.texts() == ["lives in Oslo"]


def test_a_removal_whose_replacement_is_not_in_the_reply_is_refused():
    story = given(None, *news("lives in Oslo"))
    assert refusals(story.learn(removal("fact_2_0", replacement=7))) == {"factsToRemove/0": "replacement_refused"}


def test_a_replacement_may_say_what_the_removed_fact_said():
    story = given(None, *news(("lives in Oslo", 0.7)))
    events = story.learn(new("Lives in Oslo.", 0.95), removal("fact_2_0", replacement=0))
    assert added(events) == ["Lives in Oslo."]
    assert removed(events) == {"lives in Oslo": "model"}


def test_a_refused_removal_keeps_its_words_from_another_newcomer():
    story = given(None, *news("lives in Oslo"))
    events = story.learn(
        *news(("lives in Bergen", 0.1), "Lives in Oslo!"),
        removal("fact_2_0", replacement=0),
    )
    assert refusals(events) == {
        "newFacts/0": "threshold",
        "factsToRemove/0": "replacement_refused",
        "newFacts/1": "duplicate",
    }
    assert story.texts() == ["lives in Oslo"]


def test_removals_of_unknown_unseen_repeated_and_manual_facts_are_refused_each_by_its_rule():
    story = given(None, *news("a"))
    mine = story.hand("mine")
    basis = 2
    story.learn(new("came later"))
    events = story.learn(
        removal("fact_99_0", 0),
        removal("fact_4_0", 1),
        removal(mine.id, 2),
        removal("fact_2_0", 3),
        removal("fact_2_0", 4),
        basis=basis,
    )
    assert refusals(events) == {
        "factsToRemove/0": "unknown_fact",
        "factsToRemove/1": "unknown_fact",
        "factsToRemove/2": "unknown_fact",
        "factsToRemove/4": "repeated",
    }
    assert removed(events) == {"a": "model"}


def test_a_model_cannot_remove_or_confirm_what_a_person_entered_or_edited():
    story = given(None, *news("a"))
    mine = story.hand("mine")
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="a, edited")), "manual")
    events = story.learn(removal(mine.id), removal("fact_2_0", 1), reinforcement(mine.id))
    assert set(refusals(events).values()) == {"by_hand"}
    assert story.texts() == ["a, edited", "mine"]


def test_only_the_facts_shown_can_be_removed():
    story = given(None, *news("a", "b"))
    events = story.learn(removal("fact_2_0"), removal("fact_2_1", 1), shown=("fact_2_1",))
    assert refusals(events) == {"factsToRemove/0": "unknown_fact"}


def test_a_reinforcement_confirms_and_changes_nothing_else():
    story = given(None, *news("a"))
    before = story.memory.facts["fact_2_0"]
    events = story.learn(reinforcement("fact_2_0"))
    after = story.memory.facts["fact_2_0"]
    assert [type(e).__name__ for e in events] == ["UpdateProposed", "FactRevised"]
    assert (after.confirmations, after.confirmed_at) == (1, at(2))
    assert msgspec.structs.replace(after, confirmations=0, confirmed_at=None) == before


def test_confirming_what_the_same_update_removes_is_refused():
    story = given(None, *news("a"))
    assert refusals(story.learn(removal("fact_2_0"), reinforcement("fact_2_0"))) == {"factsToReinforce/0": "gone"}


# Sections.


def test_a_section_is_rewritten_and_carries_what_it_replaced():
    story = given()
    story.learn(summary("user.workContext", "Writes Rust."))
    events = story.learn(summary("user.workContext", "Writes Go."))
    event = next(e for e in events if isinstance(e, SummaryUpdated))
    assert (event.before.summary, event.before.updated_at) == ("Writes Rust.", at(1))
    assert (event.after.summary, event.after.updated_at) == ("Writes Go.", at(2))


def test_upload_sentences_are_scrubbed_from_a_section_and_leave_a_trace():
    events = given().learn(summary("user.topOfMind", "Ada plans a trip. User uploaded a file called plan.pdf."))
    event = next(e for e in events if isinstance(e, SummaryUpdated))
    assert event.after.summary == "Ada plans a trip."
    assert event.proposed == "Ada plans a trip. User uploaded a file called plan.pdf."


def test_a_section_that_says_nothing_new_nothing_at_all_or_only_uploads_is_refused():
    story = given()
    story.learn(summary("user.workContext", "Writes Rust."))
    events = story.learn(
        summary("user.workContext", "Writes Rust."),
        summary("user.topOfMind", ""),
        summary("history.recentMonths", "用户上传了文件。"),
    )
    assert refusals(events) == {
        "user.workContext": "unchanged",
        "user.topOfMind": "empty",
        "history.recentMonths": "upload",
    }
    assert not rewritten(events)


# Basis.


@pytest.mark.parametrize("kind", ["clear", "revert", "rollback"])
def test_an_answer_older_than_a_clear_or_undo_is_discarded_each_candidate_recorded(kind):
    story = given(None, *news("a"))
    basis = story.memory.seq
    story.take((), kind)
    events = story.learn(new("late"), summary("user.workContext", "late"), basis=basis)
    assert refusals(events) == {"newFacts/0": "basis", "user.workContext": "basis"}
    assert isinstance(events[0], UpdateProposed)
    assert "late" not in story.texts()


def test_an_answer_older_than_an_erasure_is_discarded_without_keeping_its_words():
    story = given(None, *news("a"))
    basis = story.memory.seq
    story.take((), "redaction")
    events = story.learn(new("secret"), basis=basis)
    assert [type(e) for e in events] == [UpdateFailed]
    assert b"secret" not in msgspec.json.encode(events)


def test_an_answer_older_than_another_update_is_decided_again_on_the_newer_memory():
    story = given(None, *news("a"))
    basis = story.memory.seq
    story.learn(new("b"))
    events = story.learn(*news("B.", "c"), basis=basis)
    assert refusals(events) == {"newFacts/0": "duplicate"}
    assert story.texts() == ["a", "b", "c"]


def test_an_answer_for_turns_covered_meanwhile_is_refused():
    story = given()
    assert refusals(story.learn(new("x"), covered=True)) == {"newFacts/0": "covered"}


def test_an_answer_both_late_and_covered_is_told_late_so_that_erased_words_are_not_kept():
    story = given()
    story.take((), "redaction")
    assert b"secret" not in msgspec.json.encode(story.learn(new("secret"), basis=1, covered=True))


# By hand.


def test_a_duplicate_by_hand_is_recorded_as_refused():
    story = given(None, *news("a"))
    events = story.do(AddFact(at="", fact=new("A.", place="facts/0")), "manual")
    assert refusals(events) == {"facts/0": "duplicate"}


def test_a_fact_by_hand_may_lie_under_the_threshold_and_evicts_a_models():
    story = given(Policy(max_facts=1), *news(("a", 1.0)))
    fact = story.hand("mine", 0.05)
    assert story.texts() == ["mine"]
    assert (fact.source, fact.by_hand) == ("manual", True)


def test_an_edit_takes_the_fact_out_of_the_models_reach_and_keeps_its_thread():
    story = given(None, *news("a"))
    events = story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", confidence=0.5)), "manual")
    event = next(e for e in events if isinstance(e, FactRevised))
    assert (event.change, event.after.by_hand, event.after.source) == ("edited", True, "t1")


def test_an_edit_to_anothers_words_to_the_same_words_or_of_nothing_is_refused():
    story = given(None, *news("a", "b"))

    def edit(fact_id: str, content: str) -> dict[str, str]:
        return refusals(story.do(EditFact(at="", edit=Edit(place="facts/0", id=fact_id, content=content)), "manual"))

    assert edit("fact_2_0", "B!") == {"facts/0": "duplicate"}
    assert edit("fact_9_9", "x") == {"facts/0": "unknown_fact"}
    assert edit("fact_2_0", "c") == {}
    assert edit("fact_2_0", "c") == {"facts/0": "unchanged"}


def test_removing_by_hand_what_is_not_there_is_an_error_and_no_event():
    with pytest.raises(NotFoundError, match="fact_9_9"):
        decide(given().memory, RemoveFact(at=at(9), fact_id="fact_9_9"))


def test_clear_takes_facts_and_sections_and_leaves_the_policy():
    story = given(SMALL, *news("a"), summary("user.workContext", "x"))
    story.hand("mine")
    story.do(Clear(at=""), "clear")
    assert not story.memory.facts
    assert not story.memory.sections
    assert story.memory.policy == SMALL


def test_a_failed_update_is_an_event_and_changes_nothing():
    story = given(None, *news("a"))
    before = story.memory.facts
    events = story.do(FailUpdate(at="", reason="reply", detail="no JSON", turns=TurnRange(1, 2)), "extraction")
    assert events == (UpdateFailed("reply", "no JSON", 1, TurnRange(1, 2)),)
    assert story.memory.facts == before


@pytest.mark.parametrize(("basis", "kept"), [(1, False), (2, False), (3, True), (None, True)])
def test_what_a_model_said_before_an_erasure_is_not_kept_as_the_detail_of_its_failure(basis, kept):
    story = given(None, *news("a"))
    story.take((), "redaction")
    failure = FailUpdate(at="", reason="reply", detail="it said: a secret", basis=basis)
    (event,) = story.do(failure, "extraction")
    assert isinstance(event, UpdateFailed)
    assert ("secret" in event.detail) is kept


# Policy.


def test_a_stricter_policy_evicts_and_drops_in_the_same_commit():
    story = given(
        Policy(max_facts=10, fact_confidence_threshold=0.5), *news(("a", 0.9), ("b", 0.6), ("c", 0.8), ("d", 0.9))
    )
    events = story.do(ChangePolicy(at="", policy=Policy(max_facts=2, fact_confidence_threshold=0.7)), "policy")
    assert removed(events) == {"b": "threshold", "c": "cap"}
    assert policies(events) == [Policy(max_facts=2, fact_confidence_threshold=0.7)]


def test_a_raised_threshold_leaves_what_was_entered_by_hand():
    story = given(Policy(fact_confidence_threshold=0), new("from a model", 0.5))
    story.hand("by hand", 0.5)
    events = story.do(ChangePolicy(at="", policy=Policy(fact_confidence_threshold=0.7)), "policy")
    assert removed(events) == {"from a model": "threshold"}
    assert story.texts() == ["by hand"]


@pytest.mark.parametrize("confidences", [(0.8, 0.9), (0.9, 0.8)])
def test_of_facts_that_another_dedup_key_makes_duplicates_the_highest_ranked_stays(confidences):
    texts = ("Likes tea", "likes tea")
    story = given(Policy(dedup_key="exact"), *news(*zip(texts, confidences, strict=True)))
    events = story.do(ChangePolicy(at="", policy=Policy()), "policy")
    assert removed(events) == {texts[confidences.index(0.8)]: "duplicate"}
    assert story.texts() == [texts[confidences.index(0.9)]]


def test_a_policy_too_small_for_what_was_entered_by_hand_is_refused():
    story = given()
    story.hand("a")
    story.hand("b")
    with pytest.raises(CapError, match="2 facts were entered by hand"):
        story.do(ChangePolicy(at="", policy=Policy(max_facts=1)), "policy")


@pytest.mark.parametrize(
    "policy", [Policy(max_facts=0), Policy(fact_confidence_threshold=1.5), Policy(fact_eviction_policy="luck")]
)
def test_a_policy_outside_its_range_is_refused(policy):
    with pytest.raises(ConfigError):
        given().do(ChangePolicy(at="", policy=policy), "policy")


def test_a_policy_set_by_hand_leaves_what_configuration_asked_for_on_record():
    story = given(SMALL)
    story.do(ChangePolicy(at="", policy=Policy(max_facts=7)), "policy")
    assert (story.memory.policy.max_facts, story.memory.configured.max_facts) == (7, 3)


# Import.


def doc(*facts: NewFact, **sections: str) -> tuple:
    summaries = [NewSummary(place=f"user.{name}", summary=text, at=at(500)) for name, text in sections.items()]
    return (*summaries, *facts)


def imported(content: str, index: int = 0, **more: object) -> NewFact:
    return new(content, place=f"facts/{index}", **more)


def test_a_merge_adds_beside_what_is_there_refuses_doubles_and_keeps_foreign_ids():
    story = given(None, *news("a"))
    command = ImportDocument(at="", candidates=doc(imported("A", 0), imported("b", 1, id="fact_ab12", source="t9")))
    events = story.do(command, "import")
    assert refusals(events) == {"facts/0": "duplicate"}
    fact = story.memory.facts["fact_ab12"]
    assert (fact.content, fact.source, fact.by_hand) == ("b", "t9", False)


def test_an_imported_id_is_kept_unless_it_is_taken_or_reserved_and_the_event_says_why_not():
    story = given(None, *news("a"))
    candidates = doc(
        imported("b", 0, id="fact_2_0"),
        imported("c", 1, id="fact_50_0"),
        imported("d", 2, id="fact_1_9"),
        imported("e", 3, id="fact_50_0"),
        imported("f", 4, id="fact_9_1_2"),
        imported("g", 5, id="x" * 513),
        imported("h", 6, id="gone"),
    )
    events = story.do(ImportDocument(at="", candidates=candidates, gone=("gone",)), "import")
    assert {f.content: f.id for f in story.memory.facts.values()} == {
        "a": "fact_2_0",
        "b": "fact_3_0",
        "c": "fact_50_0",
        "d": "fact_1_9",
        "e": "fact_3_3",
        "f": "fact_3_4",
        "g": "fact_3_5",
        "h": "fact_3_6",
    }
    assert {e.fact.content: e.detail for e in events if isinstance(e, FactAdded) and e.detail} == {
        "b": "its id was not kept: another fact in memory has it",
        "e": "its id was not kept: another fact in memory has it",
        "f": "its id was not kept: a later commit may give it to another fact",
        "g": "its id was not kept: it has 513 characters, and at most 512 are kept",
        "h": "its id was not kept: another fact had it, which is gone",
    }


def test_no_commit_gives_an_id_that_an_import_has_brought():
    story = given()
    ahead = doc(imported("b", 0, id="fact_4_0"), imported("c", 1, id="fact_2_2"), imported("d", 2))
    story.do(ImportDocument(at="", candidates=ahead), "import")
    story.hand("e")
    story.do(RemoveFact(at="", fact_id="fact_4_0"), "manual")
    story.learn(*news("f", "g"))
    story.learn(*news("h"))
    assert {f.content: f.id for f in story.memory.facts.values()} == {
        "c": "fact_2_2",
        "d": "fact_2_2_2",
        "e": "fact_3_0_2",
        "f": "fact_5_0",
        "g": "fact_5_1",
        "h": "fact_6_0",
    }


def test_ids_are_reserved_whatever_becomes_of_the_facts_that_brought_them():
    memory = evolve(Memory(seq=5), IdsReserved(until=6))
    assert newborn(memory, new("a"), "", "t").id == "fact_6_0_2"
    assert newborn(msgspec.structs.replace(memory, seq=6), new("a"), "", "t").id == "fact_7_0"


@pytest.mark.parametrize("huge", ["fact_9999999999999_0", "fact_" + "9" * 500 + "_0"])
def test_an_id_with_a_number_that_no_commit_reaches_is_an_id_like_any_other(huge):
    story = given()
    story.do(ImportDocument(at="", candidates=doc(imported("b", id=huge))), "import")
    story.hand("c")
    assert list(story.memory.facts) == [huge, "fact_3_0"]


def test_a_merge_never_evicts_what_is_there_by_hand_and_takes_manual_facts_as_by_hand():
    story = given(Policy(max_facts=2))
    story.hand("mine", 0.1)
    story.hand("mine too", 0.1)
    events = story.do(ImportDocument(at="", candidates=doc(imported("theirs", by_hand=True))), "import")
    assert refusals(events) == {"facts/0": "cap"}
    assert story.texts() == ["mine", "mine too"]


@pytest.mark.parametrize("replace", [False, True])
def test_an_import_that_insists_makes_what_is_under_the_threshold_a_persons(replace):
    story = given(Policy(fact_confidence_threshold=0.7), *news("a"))
    facts = doc(imported("under", 0, confidence=0.69), imported("at it", 1, confidence=0.7), imported("a", 2))
    refused = decide(story.memory, ImportDocument(at=at(9), candidates=facts, replace=replace))
    assert refusals(refused)["facts/0"] == "threshold"
    story.do(ImportDocument(at="", candidates=facts, replace=replace, insist=True), "import")
    by_hand = {fact.content: fact.by_hand for fact in story.memory.facts.values()}
    assert by_hand == {"a": False, "under": True, "at it": False}
    restated = doc(*(imported(f.content, n, id=f.id, confidence=0.5) for n, f in enumerate(story.memory.in_order())))
    story.do(ImportDocument(at="", candidates=restated, replace=True, insist=True), "import")
    assert all(fact.by_hand for fact in story.memory.facts.values())


def test_a_merge_takes_a_newer_section_refuses_an_older_one_and_takes_nothing_away():
    story = given()
    story.learn(summary("user.workContext", "old"))
    newer = ImportDocument(at="", candidates=(NewSummary(place="user.workContext", summary="new", at=at(400)),))
    older = ImportDocument(at="", candidates=(NewSummary(place="user.workContext", summary="older", at=at(0)),))
    empty = ImportDocument(at="", candidates=(NewSummary(place="user.workContext", summary=""),))
    assert rewritten(story.do(newer, "import")) == {"user.workContext": "new"}
    assert refusals(story.do(older, "import")) == {"user.workContext": "older"}
    assert refusals(story.do(empty, "import")) == {"user.workContext": "empty"}


def test_a_replacement_leads_to_the_document_by_the_fewest_events():
    story = given(None, *news("a", "b", "c"))
    candidates = doc(
        imported("a", 0, id="fact_2_0"),
        imported("b, edited", 1, id="fact_2_1"),
        imported("d", 2),
    )
    events = story.do(ImportDocument(at="", candidates=candidates, replace=True), "import")
    assert story.texts() == ["a", "b, edited", "d"]
    assert removed(events) == {"c": "import"}
    assert refusals(events) == {"facts/0": "unchanged"}
    assert [e.after.id for e in events if isinstance(e, FactRevised)] == ["fact_2_1"]


def test_a_replacement_that_makes_a_fact_a_persons_makes_it_so():
    story = given(None, *news("a", "b"))
    mine = imported("a", 0, id="fact_2_0", by_hand=True, confidence=0.1)
    story.do(ImportDocument(at="", candidates=doc(mine), replace=True), "import")
    (fact,) = story.memory.in_order()
    assert (fact.id, fact.by_hand, fact.confidence) == ("fact_2_0", True, 0.1)
    story.do(ImportDocument(at="", candidates=doc(imported("a", 0, id="fact_2_0")), replace=True), "import")
    assert story.memory.in_order()[0].by_hand


def test_an_import_that_holds_garbage_takes_the_rest():
    story = given()
    command = ImportDocument(
        at="", candidates=(Unread(place="facts/0", text="1", detail="no object"), imported("b", 1), imported("", 2))
    )
    events = story.do(command, "import")
    assert refusals(events) == {"facts/0": "malformed", "facts/2": "empty"}
    assert story.texts() == ["b"]


def test_every_rule_in_the_table_refuses_somewhere():
    import ast
    import inspect
    from itertools import chain

    from backstory.ledger.rules import (
        admission,
        by_hand,
        document,
        marks,
        merge,
        screening,
        shared_sections,
    )

    modules = (admission, by_hand, document, marks, merge, screening, shared_sections)
    nodes = chain(*(ast.walk(ast.parse(inspect.getsource(module))) for module in modules))
    assert set(RULES) <= {node.value for node in nodes if isinstance(node, ast.Constant)}


def test_an_update_tells_what_was_proposed_first_and_what_was_refused_last():
    story = given(None, *news("a"))
    events = story.learn(summary("user.topOfMind", "x"), *news("b", ("c", 0.1)), removal("fact_2_0"))
    assert [type(e).__name__ for e in events] == [
        "UpdateProposed",
        "SummaryUpdated",
        "FactRemoved",
        "FactAdded",
        "CandidateRejected",
    ]


def test_deciding_is_pure():
    story = given(SMALL, *news("a", "b", "c"))
    before = msgspec.json.encode(story.memory)
    command = msgspec.structs.replace(extract(new("d"), removal("fact_2_0"), basis=2), at=at(5))
    assert decide(story.memory, command) == decide(story.memory, command)
    assert msgspec.json.encode(story.memory) == before


@drawn(st.text(st.characters(max_codepoint=127)).filter(lambda text: any(map(str.isalnum, text))))
def test_a_text_in_ascii_has_the_key_that_it_has_in_a_text_that_is_not(text):
    assert dedup_key(text) == dedup_key(f"{text}\u3002")


ranked = st.builds(
    Fact,
    id=st.just("fact"),
    content=st.just("x"),
    category=st.just("context"),
    confidence=st.sampled_from([0.5, 0.9]),
    created_at=st.sampled_from([AT, at(1)]),
    source=st.just("t1"),
    seq=st.integers(1, 3),
    place=st.integers(0, 3),
    by_hand=st.booleans(),
)


@drawn(st.lists(ranked, max_size=12, unique_by=lambda fact: (fact.seq, fact.place)), st.integers(0, 12), st.booleans())
def test_the_lowest_in_rank_give_way_and_people_s_facts_last_if_at_all(facts, cap, by_hand_too):
    ranking = Ranking(Policy(max_facts=cap), at(9), {})
    may_go = sorted(
        (fact for fact in facts if by_hand_too or not fact.by_hand),
        key=lambda fact: (fact.by_hand, fact.confidence, fact.created_at, fact.seq, fact.place),
    )
    assert ranking.overflow(facts, by_hand_too=by_hand_too) == may_go[: max(0, len(facts) - cap)]
