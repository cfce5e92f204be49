"""The invariants, as properties of deciding: whatever is asked of whatever memory.

The same thirteen are checked once more, over the public API and a real disk, in test_machine.py.
"""

from __future__ import annotations

import msgspec
import pytest
from histories import History, histories, roll, thorough
from hypothesis import given
from hypothesis import strategies as st
from story import extract
from strategies import documents, heats, policies, proposals

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
    candidates_of,
)
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    FactRemoved,
    NewFact,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory, evolve
from backstory.ledger.rules.decide import RULES, decide
from backstory.ledger.rules.undo import plan_revert
from backstory.projections.what_if.counterfactual import decide_again


def said(memory: Memory) -> tuple[object, object]:
    return dict(memory.facts), dict(memory.sections)


@thorough
@given(histories())
def test_1_never_more_than_max_facts(history):
    for memory in history.memories[1:]:
        assert len(memory.facts) <= memory.policy.max_facts


@thorough
@given(histories())
def test_2_no_two_live_facts_share_a_dedup_key(history):
    for memory in history.memories:
        keys = [dedup_key(fact.content, memory.policy.dedup_key) for fact in memory.facts.values()]
        assert len(keys) == len(set(keys))


@thorough
@given(histories())
def test_3_no_fact_from_a_model_lies_under_the_threshold(history):
    for memory in history.memories[1:]:
        for fact in memory.facts.values():
            assert fact.by_hand or fact.confidence >= memory.policy.fact_confidence_threshold


@thorough
@given(histories())
def test_4_replay_equals_the_live_memory(history):
    fold = Fold(Memory())
    one_by_one = Memory()
    for commit in history.commits:
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        for event in commit.events:
            one_by_one = evolve(one_by_one, event)
    assert fold.memory() == history.memory
    assert said(one_by_one) == said(history.memory)


@thorough
@given(histories(steps=("learn", "late", "learn", "add", "edit", "import", "replace", "save", "clear", "rollback")))
def test_5_every_candidate_ends_in_exactly_one_event_which_carries_it_as_it_was_proposed(history):
    for seq, candidates in history.proposed.items():
        commit = history.commits[seq - 1]
        outcomes = [e for e in commit.events if getattr(e, "place", None) or isinstance(e, CandidateRejected)]
        assert len(outcomes) == len(candidates)
        rebuilt = candidates_of(commit.events, stated=commit.cause.kind == "import")
        assert sorted(map(_settled_place, rebuilt)) == sorted(c.place for c in candidates)
        by_place = {candidate.place: candidate for candidate in rebuilt}
        for candidate in candidates:
            assert _as_stated(by_place[candidate.place]) == _as_stated(candidate)
        assert {e.rule for e in commit.events if isinstance(e, CandidateRejected)} <= set(RULES)


def _settled_place(candidate: object) -> str:
    return candidate.place  # type: ignore[attr-defined, no-any-return]


def _as_stated(candidate: object) -> object:
    """A section's time is the commit's where the document stated none."""
    if type(candidate).__name__ == "NewSummary":
        return msgspec.structs.replace(candidate, at=None)  # type: ignore[type-var]
    return candidate


@thorough
@given(histories(), st.data())
def test_6_rollback_under_an_unchanged_policy_gives_the_facts_and_sections_of_then(history, data):
    same = [m.seq for m in history.memories if m.policy == history.memory.policy and m.seq]
    to = data.draw(st.sampled_from(same))
    history.ask(roll(history, to), "rollback", target=to)
    assert said(history.memory) == said(history.memories[to])


@thorough
@given(histories(), st.data())
def test_7_reverting_a_revert_gives_back_what_was_there(history, data):
    if history.memory.seq < 2:
        return
    before = said(history.memory)
    target = data.draw(st.integers(2, history.memory.seq))
    first = Revert(at="", target=target, events=history.log[target - 1], force=data.draw(st.booleans()))
    if history.ask(first, "revert", target=target, force=first.force) is None:
        return
    second = Revert(at=history.now(), target=history.memory.seq, events=history.log[-1])
    assert not plan_revert(history.memory, second).conflicts
    history.ask(second, "revert", target=second.target)
    assert said(history.memory) == before


@thorough
@given(histories())
def test_8_what_if_under_the_policies_that_were_in_force_equals_live(history):
    again = decide_again(history.commits, {})
    assert said(again) == said(history.memory)
    assert (again.policy, again.taken) == (history.memory.policy, history.memory.taken)


@thorough
@given(histories(steps=("learn", "late", "import", "replace", "save", "clear", "add", "edit", "remove"), most=7))
def test_8b_what_if_with_another_cap_is_what_a_ledger_with_that_cap_would_hold(history):
    other = {"max_facts": 2}
    twin = History()
    for commit, waited in zip(history.commits, history.waits, strict=True):
        command = rebuild(history, commit)
        twin.waited = waited
        if twin.ask(command, commit.cause.kind, action=commit.cause.action) is None:
            twin.take((), commit.cause.kind)
            twin.memories.append(twin.memory)
    assert said(decide_again(history.commits, other)) == said(twin.memory)


def rebuild(history: History, commit: Commit) -> Command:
    """The command that was asked then, straight from the story and not from the ledger."""
    heat = commit.cause.heat
    match commit.cause.kind:
        case "genesis":
            policy = msgspec.structs.replace(history.memories[1].policy, max_facts=2)
            return ChangePolicy(at="", policy=policy, source="config")
        case "extraction":
            told = commit.events[0]
            assert isinstance(told, UpdateProposed)
            candidates = history.proposed[commit.seq]
            seen = {name: getattr(told, name) for name in ("shown", "stale", "answered", "cited")}
            return extract(*candidates, basis=told.basis, heat=heat, **seen)
        case "import":
            candidates = history.proposed[commit.seq]
            if commit.cause.action == "save":
                return SaveDocument(at="", candidates=candidates, heat=heat)
            replace, insist = commit.cause.replace, commit.cause.insist
            return ImportDocument(at="", candidates=candidates, replace=replace, insist=insist, heat=heat)
        case "clear":
            return Clear(at="")
        case _ if commit.cause.action == "remove":
            return RemoveFact(at="", fact_id=commit.cause.fact or "", by_model=commit.cause.by_model)
        case _:
            candidate = history.proposed[commit.seq][0]
            if isinstance(candidate, NewFact):
                by_model, thread = commit.cause.by_model, commit.cause.thread
                return AddFact(at="", fact=candidate, heat=heat, by_model=by_model, thread=thread)
            return EditFact(at="", edit=candidate, by_model=commit.cause.by_model)


@thorough
@given(histories(), st.data())
def test_9_replacing_a_fact_at_the_cap_evicts_nobody_else(history, data):
    facts = [fact for fact in history.memory.facts.values() if not fact.by_hand]
    if not facts:
        return
    policy = msgspec.structs.replace(
        data.draw(policies), max_facts=len(history.memory.facts), fact_confidence_threshold=0.7
    )
    history.ask(ChangePolicy(at="", policy=policy), "policy")
    facts = [fact for fact in history.memory.facts.values() if not fact.by_hand]
    if not facts:
        return
    old = data.draw(st.sampled_from(facts))
    others = {i for i in history.memory.facts if i != old.id}
    from story import new, removal

    candidates = (new("something quite new", 0.7), removal(old.id, replacement=0))
    heat = data.draw(heats(history.memory))
    history.ask(extract(*candidates, basis=history.memory.seq, heat=heat), "extraction")
    assert others < set(history.memory.facts)
    assert old.id not in history.memory.facts
    assert len(history.memory.facts) == len(others) + 1


@thorough
@given(histories(steps=("learn", "late", "learn", "add", "edit", "remove", "import")))
def test_10_what_was_entered_by_hand_is_never_changed_by_a_model(history):
    for before, after, commit in zip(history.memories, history.memories[1:], history.commits, strict=False):
        if commit.cause.kind == "extraction" or commit.cause.by_model:
            for fact in before.facts.values():
                if fact.by_hand:
                    assert after.facts.get(fact.id) == fact


@thorough
@given(histories(), st.data())
def test_11_a_cleared_memory_stays_clear_of_an_answer_that_was_under_way(history, data):
    basis = history.memory.seq
    candidates = data.draw(proposals(history.memory))
    history.ask(Clear(at=""), "clear")
    events = history.ask(extract(*candidates, basis=basis), "extraction")
    assert not history.memory.facts
    assert not history.memory.sections
    assert events is not None
    assert {e.rule for e in events if isinstance(e, CandidateRejected)} <= {"basis"}


@thorough
@given(histories(), st.data())
def test_12_the_same_memory_and_command_give_the_same_events(history, data):
    heat = data.draw(heats(history.memory))
    command = extract(*data.draw(proposals(history.memory)), basis=history.memory.seq, heat=heat)
    command = msgspec.structs.replace(command, at=history.now())
    assert decide(history.memory, command) == decide(Fold(history.memory).memory(), command)


@thorough
@given(histories(), st.data())
def test_a_blocked_revert_raises_and_a_forced_one_keeps_every_other_invariant(history, data):
    if history.memory.seq < 2:
        return
    target = data.draw(st.integers(2, history.memory.seq))
    command = Revert(at=history.now(), target=target, events=history.log[target - 1])
    plan = plan_revert(history.memory, command)
    if plan.conflicts:
        with pytest.raises(ConflictError):
            decide(history.memory, command)
    forced = msgspec.structs.replace(command, force=True)
    assert decide(history.memory, forced) == plan.events


@thorough
@given(histories(), st.data())
def test_a_revert_brings_back_and_takes_away_only_what_its_target_touched(history, data):
    if history.memory.seq < 2:
        return
    target = data.draw(st.integers(2, history.memory.seq))
    touched = {e.fact.id for e in history.log[target - 1] if isinstance(e, FactAdded | FactRemoved)}
    touched |= {e.after.id for e in history.log[target - 1] if type(e).__name__ == "FactRevised"}
    touches_policy = any(type(e).__name__ == "PolicyChanged" for e in history.log[target - 1])
    plan = plan_revert(history.memory, Revert(at=history.now(), target=target, events=history.log[target - 1]))
    if plan.conflicts or touches_policy:
        return
    for event in plan.events:
        if isinstance(event, FactAdded | FactRemoved):
            assert event.fact.id in touched


@thorough
@given(histories(steps=("learn", "late", "clear", "revert", "rollback")))
def test_no_update_of_a_model_is_lost_without_a_word(history):
    for seq, candidates in history.proposed.items():
        events = history.commits[seq - 1].events
        settled = sum(bool(getattr(e, "place", None)) or isinstance(e, CandidateRejected) for e in events)
        assert settled == len(candidates) or any(isinstance(e, UpdateFailed) for e in events)


@thorough
@given(policies, policies, st.data(), st.sampled_from(["merge", "replace", "save"]))
def test_a_document_gives_a_fact_the_same_id_under_another_policy(one, other, data, kind):
    few = st.sampled_from(["fact_ab", "fact_ab", "fact_2_1"])
    candidates = tuple(
        msgspec.structs.replace(candidate, id=data.draw(few)) if isinstance(candidate, NewFact) else candidate
        for candidate in data.draw(documents(Memory(seq=1)))
    )
    insist = data.draw(st.booleans())
    ids: dict[str, set[str]] = {}
    for policy in (one, other):
        history = History()
        history.ask(ChangePolicy(at="", policy=policy, source="config"), "genesis")
        if kind == "save":
            history.ask(SaveDocument(at="", candidates=candidates), "import")
        else:
            command = ImportDocument(at="", candidates=candidates, replace=kind == "replace", insist=insist)
            history.ask(command, "import")
        for event in history.log[-1]:
            if isinstance(event, FactAdded):
                ids.setdefault(event.place or "", set()).add(event.fact.id)
    assert all(len(given) == 1 for given in ids.values())
