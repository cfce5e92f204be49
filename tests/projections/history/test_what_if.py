"""What if another policy had been in force: every rule, over every kind of commit, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fakes import FakeClock, exchange, open_home
from histories import History, histories, roll, thorough
from hypothesis import given
from hypothesis import strategies as st
from story import at, extract, merged, new, news, removal, stale, summary
from strategies import policies

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    ImportDocument,
    RemoveFact,
    Revert,
    SaveDocument,
)
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import ConfigError, NotFoundError, UsageError
from backstory.ledger.core.events import Access, Edit, Erased, NewFact, PolicyChanged, UpdateProposed
from backstory.ledger.core.policy import POLICY_KEYS, Policy, PolicyValue
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.document.document import render
from backstory.projections.what_if.counterfactual import Counterfactual, decide_again, overrides_for

WORK = "user.workContext"


def started(**policy: PolicyValue) -> History:
    history = History()
    history.ask(ChangePolicy(at="", policy=Policy(**policy), source="config"), "genesis")  # type: ignore[arg-type]
    return history


def learned(history: History, *candidates: object, **more: object) -> None:
    command = extract(*candidates, basis=history.memory.seq, **more)  # type: ignore[arg-type]
    history.ask(command, "extraction", thread="t1")


def removed(history: History, fact_id: str) -> None:
    history.ask(RemoveFact(at="", fact_id=fact_id), "manual", action="remove", fact=fact_id)


def would_be(history: History, **overrides: PolicyValue) -> list[str]:
    return [fact.content for fact in decide_again(history.commits, overrides).in_order()]


# Properties.


def asked(history: History, twin: History, commit: Commit, overrides: dict[str, PolicyValue]) -> Command:
    """The command that was asked then, from the story and not from the ledger; undos are of the twin's past."""
    cause, proposed = commit.cause, history.proposed.get(commit.seq, ())
    match cause.kind:
        case "genesis" | "policy":
            changed = next(event for event in commit.events if isinstance(event, PolicyChanged))
            policy = msgspec.structs.replace(changed.after, **overrides)
            return ChangePolicy(at="", policy=policy, source=changed.source)
        case "extraction":
            told = commit.events[0]
            assert isinstance(told, UpdateProposed)
            seen = {name: getattr(told, name) for name in ("shown", "stale", "answered", "cited")}
            return extract(*proposed, basis=told.basis, **seen)
        case "import":
            if cause.action == "save":
                return SaveDocument(at="", candidates=proposed)
            return ImportDocument(at="", candidates=proposed, replace=cause.replace, insist=cause.insist)
        case "clear":
            return Clear(at="")
        case "revert":
            target = cause.target or 0
            return Revert(at="", target=target, events=twin.log[target - 1], force=cause.force)
        case "rollback":
            return roll(twin, cause.target or 0)
        case _ if cause.action == "remove":
            return RemoveFact(at="", fact_id=cause.fact or "", by_model=cause.by_model)
        case _:
            (candidate,) = proposed
            if isinstance(candidate, NewFact):
                return AddFact(at="", fact=candidate, by_model=cause.by_model, thread=cause.thread)
            return EditFact(at="", edit=candidate, by_model=cause.by_model)


def run_anew(history: History, overrides: dict[str, PolicyValue]) -> tuple[History, bool]:
    """A ledger that had other policies from the start; and whether anything was refused outright there."""
    twin, refused = History(), False
    for commit, waited in zip(history.commits, history.waits, strict=True):
        command = asked(history, twin, commit, overrides)
        twin.waited = waited
        if twin.ask(msgspec.structs.replace(command, heat=commit.cause.heat), commit.cause.kind) is None:
            refused = True
            twin.take((), commit.cause.kind)
            twin.memories.append(twin.memory)
    return twin, refused


@st.composite
def overridden(draw: st.DrawFn) -> dict[str, PolicyValue]:
    """Other values for any of the keys; the weights come to 1 only together."""
    policy = draw(policies)
    weights = [name for name in POLICY_KEYS if name.endswith("_weight")]
    names = draw(st.sets(st.sampled_from([name for name in POLICY_KEYS if name not in weights])))
    more = dict(zip(weights, (0.2, 0.5, 0.3), strict=True)) if draw(st.booleans()) else {}
    return {name: getattr(policy, name) for name in names} | more


@thorough
@given(histories())
def test_under_the_policies_that_were_in_force_it_is_the_live_memory_byte_for_byte(history: History) -> None:
    again = decide_again(history.commits, {})
    assert again == history.memory
    assert render(again) == render(history.memory)


@thorough
@given(histories(most=12), overridden())
def test_under_others_it_is_what_a_ledger_would_hold_that_had_them_from_the_start(
    history: History, overrides: dict[str, PolicyValue]
) -> None:
    again = decide_again(history.commits, overrides)
    twin, refused = run_anew(history, overrides)
    assert again == twin.memory
    if not refused:
        assert render(again) == render(twin.memory)
    assert all(getattr(again.policy, name) == value for name, value in overrides.items())


@thorough
@given(histories(most=12), overridden())
def test_whatever_the_policy_the_invariants_hold(history: History, overrides: dict[str, PolicyValue]) -> None:
    alternative = Counterfactual(history.commits, overrides)
    for commit in history.commits:
        alternative.advance(commit, alternative.decide(commit))
        memory = alternative.memory
        assert len(memory.facts) <= memory.policy.max_facts
        threshold = memory.policy.fact_confidence_threshold
        assert all(fact.by_hand or fact.confidence >= threshold for fact in memory.facts.values())
    assert alternative.recorded == history.memory


# Each rule, by an example.


def test_the_gate_off_lets_in_what_it_kept_out() -> None:
    history = started()
    learned(history, new("Ada is in a hurry", durability="session"), new("Ada runs", place="newFacts/1"))
    learned(history, removal("fact_2_1"), summary(WORK, "Runs."))
    assert would_be(history) == []
    assert would_be(history, gate_enabled=False) == ["Ada is in a hurry"]


def test_the_gate_on_keeps_out_what_was_let_in_and_what_a_person_made_of_it_finds_nothing() -> None:
    history = started(gate_enabled=False)
    learned(history, new("Ada is in a hurry", durability="session"))
    edit = Edit(place="facts/0", id="fact_2_0", content="Ada was in a hurry")
    history.ask(EditFact(at="", edit=edit), "manual", action="edit", fact="fact_2_0")
    assert would_be(history) == ["Ada was in a hurry"]
    assert would_be(history, gate_enabled=True) == []


@pytest.mark.parametrize(("notion", "texts"), [("normalized", 1), ("casefold", 2), ("exact", 3)])
def test_the_dedup_key_says_which_facts_are_one(notion: str, texts: int) -> None:
    history = started()
    learned(history, *news("Ada runs", "ada runs", "Ada  runs."))
    assert len(would_be(history, dedup_key=notion)) == texts


def test_a_lower_cap_evicts_as_it_went_along_and_a_higher_one_remembers_what_was_refused() -> None:
    history = started(max_facts=2)
    learned(history, *news(("one", 0.9), ("two", 0.8)))
    learned(history, *news(("three", 0.85), ("four", 0.75)))
    assert would_be(history) == ["one", "three"]
    assert would_be(history, max_facts=1) == ["one"]
    assert would_be(history, max_facts=9) == ["one", "two", "three", "four"]


def test_hybrid_eviction_counts_the_uses_that_were_recorded() -> None:
    history = started(max_facts=2, fact_eviction_policy="hybrid")
    learned(history, *news(("used", 0.8), ("unused", 0.9)))
    learned(history, new("newest", 0.9), heat={"fact_2_0": Access(8.0, at(1))})
    assert would_be(history) == ["used", "newest"]
    assert would_be(history, fact_eviction_policy="confidence") == ["unused", "newest"]
    weights = {"eviction_confidence_weight": 1.0, "eviction_confirmation_weight": 0.0, "eviction_access_weight": 0.0}
    assert would_be(history, **weights) == ["unused", "newest"]


def test_a_review_can_be_narrowed_but_a_model_that_was_not_asked_reviewed_nothing() -> None:
    history = started(staleness_min_candidates=1)
    learned(history, new("Ada is new here", expected_valid_days=30), new("Ada lives in Oslo", place="newFacts/1"))
    history.wait(60)
    learned(history, stale("fact_2_0"), stale("fact_2_1", 1), stale=("fact_2_0",))
    assert would_be(history) == ["Ada lives in Oslo"]
    assert would_be(history, staleness_review_enabled=False) == ["Ada is new here", "Ada lives in Oslo"]
    assert would_be(history, staleness_min_candidates=2) == ["Ada is new here", "Ada lives in Oslo"]
    assert would_be(history, staleness_protected_categories=("context",)) == ["Ada is new here", "Ada lives in Oslo"]
    assert would_be(history, staleness_age_days=30) == ["Ada lives in Oslo"]


def test_an_answer_that_nobody_prompted_reviews_whatever_is_due_under_the_other_policy() -> None:
    history = started(staleness_min_candidates=1)
    learned(history, new("Ada lives in Oslo"))
    history.wait(60)
    learned(history, stale("fact_2_0"))
    assert would_be(history) == ["Ada lives in Oslo"]
    assert would_be(history, staleness_age_days=30) == []


def test_without_merging_the_sources_are_still_there_and_with_it_they_are_merged() -> None:
    history = started(consolidation_enabled=True, consolidation_min_facts=2)
    learned(history, *news("Ada runs", "Ada jogs"))
    learned(history, merged(("fact_2_0", "fact_2_1"), "Ada runs and jogs"))
    assert would_be(history) == ["Ada runs and jogs"]
    assert would_be(history, consolidation_enabled=False) == ["Ada runs", "Ada jogs"]
    assert would_be(history, consolidation_min_facts=3) == ["Ada runs", "Ada jogs"]
    unmerged = started()
    learned(unmerged, *news("Ada runs", "Ada jogs"))
    learned(unmerged, merged(("fact_2_0", "fact_2_1"), "Ada runs and jogs"))
    assert would_be(unmerged, consolidation_enabled=True, consolidation_min_facts=2) == ["Ada runs and jogs"]


def test_an_answer_refers_to_what_the_model_was_shown_then_and_to_nothing_else() -> None:
    history = started()
    learned(history, *news("Ada runs", "Ada swims"))
    learned(history, removal("fact_2_0"), removal("fact_2_1", 1), shown=("fact_2_0",))
    assert would_be(history) == would_be(history, max_facts=50) == ["Ada swims"]


# What people did.


def test_a_removal_by_hand_of_what_is_not_there_changes_nothing_and_keeps_its_number() -> None:
    history = started()
    learned(history, new("Ada may run", 0.75), new("Ada runs", 0.95, place="newFacts/1"))
    removed(history, "fact_2_0")
    learned(history, new("Ada swims", 0.95))
    again = decide_again(history.commits, {"fact_confidence_threshold": 0.9})
    assert list(again.facts) == ["fact_2_1", "fact_4_0"]
    assert again.seq == history.memory.seq


def test_an_undo_undoes_what_its_target_did_under_the_other_policy() -> None:
    history = started(fact_confidence_threshold=0.9)
    learned(history, new("Ada may run", 0.75), new("Ada runs", 0.95, place="newFacts/1"))
    history.ask(Revert(at="", target=2, events=history.log[1]), "revert", target=2)
    assert would_be(history, fact_confidence_threshold=0.7) == []
    history.ask(Revert(at="", target=3, events=history.log[2]), "revert", target=3)
    assert would_be(history) == ["Ada runs"]
    assert would_be(history, fact_confidence_threshold=0.7) == ["Ada may run", "Ada runs"]


def test_an_undo_that_was_forced_is_forced_again() -> None:
    history = started()
    learned(history, new("Ada runs"))
    edit = Edit(place="facts/0", id="fact_2_0", content="Ada swims")
    history.ask(EditFact(at="", edit=edit), "manual", action="edit", fact="fact_2_0")
    history.ask(Revert(at="", target=2, events=history.log[1], force=True), "revert", target=2, force=True)
    assert history.texts() == would_be(history) == []


def test_what_a_model_may_not_remove_it_may_not_under_the_other_policy_either() -> None:
    history = started()
    by_hand = NewFact(place="facts/0", content="Ada runs", confidence=0.9)
    history.ask(AddFact(at="", fact=by_hand), "manual", action="add")
    refused = RemoveFact(at="", fact_id="fact_2_0", by_model=True)
    history.ask(refused, "manual", action="remove", fact="fact_2_0", by_model=True)
    assert history.texts() == would_be(history) == ["Ada runs"]


def test_a_rollback_returns_to_what_there_was_under_the_other_policy() -> None:
    history = started(max_facts=1)
    learned(history, *news("Ada runs", "Ada swims"))
    history.ask(Clear(at=""), "clear")
    history.ask(roll(history, 2), "rollback", target=2)
    assert would_be(history) == ["Ada swims"]
    assert would_be(history, max_facts=5) == ["Ada runs", "Ada swims"]


def test_a_policy_too_small_for_what_people_entered_under_the_other_one_is_not_put_in_force() -> None:
    history = started()
    for text in ("Ada runs", "ada RUNS"):
        history.ask(AddFact(at="", fact=new(text, place="facts/0")), "manual", action="add")
    history.ask(ChangePolicy(at="", policy=Policy(max_facts=1)), "policy")
    assert history.memory.policy.max_facts == 1
    assert decide_again(history.commits, {"dedup_key": "exact"}).policy == Policy(dedup_key="exact")


def test_a_key_that_is_overridden_stays_so_whatever_people_set_or_took_back() -> None:
    history = started()
    history.ask(ChangePolicy(at="", policy=Policy(max_facts=50, gate_enabled=False)), "policy")
    history.ask(Revert(at="", target=2, events=history.log[1]), "revert", target=2)
    assert decide_again(history.commits[:2], {"max_facts": 7}).policy == Policy(max_facts=7, gate_enabled=False)
    assert decide_again(history.commits, {"max_facts": 7}).policy == Policy(max_facts=7)


def test_a_key_stays_overridden_where_what_a_policy_put_out_was_erased_and_the_policy_taken_back() -> None:
    history = started()
    learned(history, new("Ada may run", 0.75))
    history.ask(ChangePolicy(at="", policy=Policy(fact_confidence_threshold=0.9)), "policy")
    for index in (1, 2):
        commit = history.commits[index]
        events = tuple(Erased("0" * 64) if getattr(event, "fact", None) else event for event in commit.events)
        assert events != commit.events
        history.commits[index] = msgspec.structs.replace(commit, events=events)
    history.ask(Revert(at="", target=3, events=history.commits[2].events), "revert", target=3)
    assert history.memory.policy == Policy()
    assert decide_again(history.commits, {"max_facts": 7}).policy == Policy(max_facts=7)


# How it is asked.


def test_the_weights_that_are_not_given_are_those_in_force() -> None:
    assert overrides_for({"max_facts": 5}, Policy()) == {"max_facts": 5}
    given_one = {"eviction_confidence_weight": 0.55, "eviction_access_weight": 0.2}
    assert overrides_for(given_one, Policy()) == {**given_one, "eviction_confirmation_weight": 0.25}
    with pytest.raises(ConfigError, match="must add up to 1"):
        overrides_for({"eviction_access_weight": 0.2}, Policy())


def test_the_log_is_walked_and_not_kept_but_for_what_undos_speak_of() -> None:
    history = started()
    learned(history, new("Ada runs"))
    learned(history, new("Ada swims"))
    history.ask(Revert(at="", target=3, events=history.log[2]), "revert", target=3)
    alternative = Counterfactual(history.commits, {})
    for commit in history.commits:
        alternative.advance(commit, alternative.decide(commit))
    assert set(alternative._history._events) == {3}
    assert set(alternative._history._memories) == {0}
    assert decide_again(history.commits, {}) == history.memory


def busy(home: Path) -> None:
    """A home with every kind of commit."""
    texts = json.dumps({"newFacts": [{"content": f"note {n}", "confidence": 0.7 + n / 100} for n in range(20)]})
    with open_home(home) as bs:
        memory = bs.memory(scope="global")
        memory.record("t", exchange("tea", 1))
        memory.extract([RecordedReply("t", texts)])
        added = memory.add_fact("by hand")
        memory.edit_fact(added.fact.id, content="by hand, edited")
        memory.import_document(["imported"])
        memory.revert(2)
        memory.revert("HEAD")
        memory.remove_fact("fact_2_3")
        memory.set_policy(fact_confidence_threshold=0.75)
        memory.clear()
        memory.rollback(8)
        memory.forget("fact_2_5")
        memory.flush()


def test_every_key_can_be_tried_and_nothing_is_written(tmp_path: Path) -> None:
    busy(tmp_path)
    with open_home(tmp_path) as bs:
        bs.memory(scope="global").verify()
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with open_home(tmp_path) as bs:
        memory = bs.memory(scope="global")
        for name in POLICY_KEYS:
            same = memory.what_if(**{name: getattr(memory.policy().policy, name)})
            assert (same.added, same.revised, same.sections) == ((), (), ()), name
        assert memory.what_if().facts == len(memory.facts())
        assert memory.what_if(max_facts=3).facts == 3
        assert memory.what_if(gate_enabled=False, dedup_key="exact", fact_eviction_policy="hybrid").facts > 3
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_what_has_lapsed_is_in_neither_memory_before_a_commit_takes_it_out(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock, fact_confidence_threshold=0.7) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada's door code is 4711", expires_at="2026-03-01T13:00")
        memory.add_fact("Ada is at a fair", valid_until="2026-03-01T13:00")
        memory.record("t", exchange("tea"))
        code = {"content": "The code of the shed is 12", "confidence": 0.6, "expiresAt": "2026-03-01T13:00"}
        memory.extract([RecordedReply("t", json.dumps({"newFacts": [code]}))])
        assert [fact.content for fact in memory.what_if(fact_confidence_threshold=0.5).added] == [code["content"]]
        clock.advance(7200)
        found = memory.what_if(fact_confidence_threshold=0.5)
        assert (found.added, found.facts) == ((), 0)
        memory.record("u", exchange("rye"))
        memory.extract([RecordedReply("u", json.dumps({"newFacts": [{**code, "expiresAt": "2027"}]}))])
        assert [fact.expires_at for fact in memory.what_if(fact_confidence_threshold=0.5).added] == ["2027"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"max_facts": 0}, ConfigError),
        ({"max_facts": 2.5}, ConfigError),
        ({"gate_enabled": "off"}, ConfigError),
        ({"dedup_key": "loose"}, ConfigError),
        ({"fact_eviction_policy": "luck"}, ConfigError),
        ({"eviction_access_weight": 0.9}, ConfigError),
        ({"staleness_protected_categories": ("hobby",)}, ConfigError),
        ({"luck": 1}, ConfigError),
        ({"until": 99}, NotFoundError),
        ({"until": -1}, UsageError),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_told(tmp_path: Path, wrong: dict[str, PolicyValue], error: type[Exception]) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("Ada runs")
        with pytest.raises(error):
            memory.what_if(**wrong)  # type: ignore[arg-type]


def test_of_two_candidates_that_say_the_same_the_one_that_stood_stands_when_it_is_decided_again(tmp_path: Path) -> None:
    """A proposal is rebuilt in the order in which it was read, not in that of its names."""
    with open_home(tmp_path, consolidation_enabled=True, consolidation_min_facts=3) as bs:
        memory = bs.memory("ada")
        facts = [{"content": f"Ada runs {when}", "confidence": 0.9} for when in ("daily", "weekly", "at dawn")]
        both = {
            "newFacts": [{"content": "Ada runs a lot", "confidence": 0.9}],
            "factsToConsolidate": [
                {"sourceIds": ["fact_2_0", "fact_2_1"], "consolidated": {"content": "Ada runs a lot"}}
            ],
        }
        for lists in ({"newFacts": facts}, both):
            memory.record("t", exchange("runs"), mode="append")
            memory.extract([RecordedReply("t", json.dumps(lists))])
        assert "fact_3_0" in {fact.id for fact in memory.facts()}
        found = memory.what_if()
        assert (found.added, found.removed, found.facts) == ((), (), 4)


# What of a document counts as insisted is decided by the threshold in force, so again under another one.


def sure(memory: MemoryHandle) -> dict[str, bool]:
    return {fact.content: fact.by_hand for fact in memory.facts()}


TAKEN_OVER = (
    NewFact(place="facts/0", content="Ada may run", confidence=0.5),
    NewFact(place="facts/1", content="Ada sails", confidence=0.75),
    NewFact(place="facts/2", content="Ada sings", confidence=0.2, by_hand=True, source="manual"),
)


def test_a_take_over_insists_on_other_facts_under_another_threshold(tmp_path: Path) -> None:
    with open_home(tmp_path, fact_confidence_threshold=0.7) as bs:
        memory = bs.memory("ada")
        commit = memory.own.take_over(TAKEN_OVER, "/deer")
        assert commit is not None
        assert commit.cause.insist
        assert sure(memory) == {"Ada may run": True, "Ada sails": False, "Ada sings": True}
        assert memory.what_if().revised == ()
        lower = memory.what_if(fact_confidence_threshold=0.4)
        assert (lower.added, lower.removed) == ((), ())
        assert [(one.after.content, one.after.by_hand) for one in lower.revised] == [("Ada may run", False)]
        higher = memory.what_if(fact_confidence_threshold=0.9)
        assert (higher.added, higher.removed) == ((), ())
        assert [(one.after.content, one.after.by_hand) for one in higher.revised] == [("Ada sails", True)]
        assert memory.verify().ok


def test_a_take_over_of_before_keeps_its_insisted_facts_as_they_were_decided(tmp_path: Path) -> None:
    """Earlier versions decided it before the command, and recorded the facts as a person's."""
    with open_home(tmp_path, fact_confidence_threshold=0.7) as bs:
        memory = bs.memory("ada")
        services = memory.own._services
        old = [msgspec.structs.replace(fact, by_hand=fact.confidence < 0.7) for fact in TAKEN_OVER]
        cause = services.cause("import", action="home", origin="/deer")
        services.writer.commit(ImportDocument(at="", candidates=tuple(old)), cause)
        assert sure(memory) == {"Ada may run": True, "Ada sails": False, "Ada sings": True}
        assert memory.what_if(fact_confidence_threshold=0.4).revised == ()
        assert [fact.content for fact in memory.what_if(fact_confidence_threshold=0.9).removed] == ["Ada sails"]


def test_an_erasure_elsewhere_does_not_make_the_rest_undecidable(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        gated = {
            "user": {"workContext": {"summary": "Deploys.", "shouldUpdate": True}},
            "newFacts": [{"content": "Ada deploys tonight", "confidence": 0.9, "scope": "task"}],
            "history": {"recentMonths": {"summary": "Deployed.", "shouldUpdate": True}},
        }
        for thread, lists in (("a", {"newFacts": [{"content": "a zebra", "confidence": 0.9}]}), ("b", gated)):
            memory.record(thread, exchange(thread))
            memory.extract([RecordedReply(thread, json.dumps(lists))])
        memory.forget(matching="zebra")
        assert [fact.content for fact in memory.what_if(gate_enabled=False).added] == ["Ada deploys tonight"]


def test_facts_that_an_erasure_makes_look_alike_in_the_past_are_not_driven_out_by_it(tmp_path: Path) -> None:
    """What kept them apart was erased: of the first it is not known any more that it said something else by then."""
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        other = memory.add_fact("Ada owns a zebra").fact.id
        memory.remove_fact(other)
        first = memory.add_fact("Ada runs").fact.id
        memory.edit_fact(first, content="Ada owns a zebra")
        memory.add_fact("Ada runs")
        memory.edit_fact(first, content="Ada swims")
        memory.forget(other)
        assert {fact.content for fact in memory.facts()} == {"Ada runs", "Ada swims"}
        found = memory.what_if()
        assert (found.added, found.removed, found.revised, found.facts) == ((), (), (), 2)
