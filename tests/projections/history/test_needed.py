"""What it would take: the nearest policy value at which a refused candidate is accepted, found by deciding again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from fakes import exchange, open_home
from histories import History, histories, thorough
from hypothesis import given
from story import extract, new, news, reinforcement, removal

from backstory.ledger.core.commands import ChangePolicy, ImportDocument, candidates_of
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError, RefusedError, UsageError
from backstory.ledger.core.events import CandidateRejected, Spoken, UpdateProposed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy, PolicyValue, check_policy
from backstory.ledger.rules.decide import RULES, decide
from backstory.projections.what_if import needed
from backstory.projections.what_if.counterfactual import command_of
from backstory.projections.what_if.needed import LIFTED_BY, ExplainedRefusal, NeededValue, looser, refusals_of


def started(**policy: PolicyValue) -> History:
    history = History()
    history.ask(ChangePolicy(at="", policy=Policy(**policy), source="config"), "genesis")  # type: ignore[arg-type]
    return history


def learned(history: History, *candidates: object, **more: object) -> tuple[ExplainedRefusal, ...]:
    before = history.memory
    command = extract(*candidates, basis=before.seq, **more)  # type: ignore[arg-type]
    history.ask(command, "extraction", thread="t1")
    return refusals_of(history.commits[-1], before)


def is_accepted(history: History, seq: int, place: str, key: str, value: PolicyValue) -> bool:
    """Decide a commit again with one other value, and look for the candidate among what is refused."""
    before = history.memories[seq - 1]
    policy = check_policy(msgspec.structs.replace(before.policy, **{key: value}))
    command = command_of(history.commits[seq - 1])
    assert command is not None
    try:
        events = decide(msgspec.structs.replace(before, policy=policy), command)
    except RefusedError:
        return False
    return all(event.candidate.place != place for event in events if isinstance(event, CandidateRejected))


def values_of(key: str, before: Memory, commit: Commit) -> Sequence[PolicyValue]:
    proposed = commit.first(UpdateProposed)
    shares = () if proposed is None else tuple(proposed.said_again.values())
    return looser(key, before, candidates_of(commit.events, stated=commit.cause.kind == "import"), shares)


def one_step_short(before: Memory, needs: NeededValue, values: list[PolicyValue]) -> PolicyValue:
    index = values.index(needs.value)
    return values[index - 1] if index else getattr(before.policy, needs.key)  # type: ignore[no-any-return]


# Properties.


@thorough
@given(histories())
def test_with_the_value_it_is_accepted_and_one_step_short_it_is_not(history: History) -> None:
    for commit in history.commits:
        before = history.memories[commit.seq - 1]
        found = refusals_of(commit, before)
        refused = [(i, event) for i, event in enumerate(commit.events) if isinstance(event, CandidateRejected)]
        assert [(one.index, one.rule, one.detail) for one in found] == [(i, e.rule, e.detail) for i, e in refused]
        for one, (_, event) in zip(found, refused, strict=True):
            assert (one.needs is None) == (one.unless is not None)
            if one.needs is None:
                continue
            place, needs = event.candidate.place, one.needs
            assert is_accepted(history, commit.seq, place, needs.key, needs.value)
            if needs.key == "staleness_protected_categories":
                continue  # lists of names have no order
            short = one_step_short(before, needs, list(values_of(needs.key, before, commit)))
            if needs.key == "fact_confidence_threshold":
                assert isinstance(needs.value, float)
                short = math.nextafter(needs.value, 1)
            assert not is_accepted(history, commit.seq, place, needs.key, short)


@thorough
@given(histories())
def test_without_a_value_no_looser_one_of_the_keys_of_its_rule_accepts_it(history: History) -> None:
    # A key of another rule may accept it by way of a neighbour, such as the removal of the fact that it doubles.
    for commit in history.commits:
        before = history.memories[commit.seq - 1]
        for one in refusals_of(commit, before):
            event = commit.events[one.index]
            assert isinstance(event, CandidateRejected)
            for key in LIFTED_BY.get(one.rule, ()) if one.needs is None else ():
                values = values_of(key, before, commit)
                for value in {values[0], values[len(values) // 2], values[-1]} if values else ():
                    assert not is_accepted(history, commit.seq, event.candidate.place, key, value), (one, key, value)


# Each kind of value.


def test_a_candidate_under_the_threshold_needs_its_own_confidence() -> None:
    (one,) = learned(started(), new("Ada rows", 0.5))
    assert one == ExplainedRefusal(
        1,
        "newFact",
        "Ada rows",
        0.5,
        "threshold",
        "confidence 0.5 is under the threshold of 0.7",
        None,
        NeededValue("fact_confidence_threshold", 0.5),
        None,
    )


def test_what_only_an_assistant_said_needs_a_policy_that_takes_anyones_words() -> None:
    said = Spoken("2026-01-01T00:00:00.000000Z", "assistant")
    (one,) = learned(started(evidence="user"), new("Ada rows"), answered=said)
    assert (one.rule, one.needs) == ("assistant_only", NeededValue("evidence", "any"))


def test_each_of_several_candidates_under_the_threshold_needs_its_own() -> None:
    found = learned(started(), *news(("a1", 0.2), ("b1", 0.6), ("c1", 0.4)))
    assert [one.needs and one.needs.value for one in found] == [0.2, 0.6, 0.4]


@pytest.mark.parametrize("many", [3, 30])
def test_a_candidate_beyond_the_cap_needs_room_for_all_that_rank_above_it(many: int) -> None:
    facts = news(*((f"fact {n}", 0.99 - n / 100) for n in range(many)))
    found = learned(started(max_facts=1, fact_confidence_threshold=0.5), *facts)
    assert [one.needs for one in found] == [NeededValue("max_facts", n + 2) for n in range(many - 1)]


def test_what_differs_in_case_alone_needs_a_stricter_key() -> None:
    history = started()
    assert learned(history, new("Ada runs")) == ()
    same, cased, dotted = learned(history, *news("Ada runs", "ADA runs", "Ada runs."))
    assert (same.needs, same.unless, same.fact) == (
        None,
        "no other value of dedup_key accepts it: fact_2_0 already says this",
        "fact_2_0",
    )
    assert (cased.needs, cased.fact) == (NeededValue("dedup_key", "exact"), "fact_2_0")
    assert dotted.needs == NeededValue("dedup_key", "casefold")


def test_what_the_gate_refused_needs_it_off() -> None:
    (one,) = learned(started(), new("Ada is tired", durability="session"))
    assert (one.rule, one.needs) == ("gate", NeededValue("gate_enabled", False))


def test_what_another_rule_refuses_as_well_says_which() -> None:
    history = started(max_facts=1)
    learned(history, new("Ada runs", 0.9))
    (one,) = learned(history, new("Ada rows", 0.5))
    assert one.needs is None
    assert one.unless is not None
    assert one.unless.startswith("with fact_confidence_threshold at 0.5, cap refuses it: memory holds 1 facts at most")


def test_a_removal_needs_what_its_replacement_needs() -> None:
    history = started()
    learned(history, new("Ada lives in Oslo"))
    weak, bound = sorted(
        learned(history, new("Ada lives in Rome", 0.4), removal("fact_2_0", replacement=0)), key=lambda one: one.kind
    )
    assert {one.rule for one in (weak, bound)} == {"threshold", "replacement_refused"}
    assert weak.needs == bound.needs == NeededValue("fact_confidence_threshold", 0.4)
    assert bound.fact == "fact_2_0"


def test_no_policy_lifts_a_reference_to_a_fact_that_is_not_there() -> None:
    (one,) = learned(started(), reinforcement("fact_9_0"))
    assert (one.kind, one.fact, one.needs, one.confidence) == ("reinforcement", "fact_9_0", None, None)
    assert one.unless == "no policy lifts this rule: no live fact has this id"


def test_every_rule_that_a_key_may_lift_is_one() -> None:
    assert LIFTED_BY.keys() <= RULES.keys()


def test_a_commit_that_refused_more_than_can_be_tried_says_so() -> None:
    history = started(max_facts=1)
    facts = tuple(new(f"fact number {n}", 0.9, place=f"facts/{n}") for n in range(700))
    before = history.memory
    history.ask(ImportDocument(at="", candidates=facts), "import")
    found = refusals_of(history.commits[-1], before)
    known = [one for one in found if one.needs is not None]
    assert len(found) == 699
    assert 0 < len(known) < len(found)
    assert {one.unless for one in found if one.needs is None} == {
        "this commit refused too many candidates to find a value for each"
    }


def test_the_more_candidates_a_commit_has_the_fewer_times_it_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    history = started(max_facts=1)
    facts = tuple(new(f"fact number {n}", 0.9, place=f"facts/{n}") for n in range(200))
    before = history.memory
    history.ask(ImportDocument(at="", candidates=facts), "import")
    decided: list[Memory] = []
    known = needed._decided
    monkeypatch.setattr(needed, "_decided", lambda *args: decided.append(args[0]) or known(*args))
    monkeypatch.setattr(needed, "_MOST_CANDIDATES", 2_000)
    refusals_of(history.commits[-1], before)
    # Once more to see that deciding again gives the same.
    assert 1 < len(decided) <= 1 + 2_000 // len(history.commits[-1].events)


# Of a memory.


def test_of_a_memory_by_the_number_of_a_commit(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.extract([{"thread_id": "t", "reply": {"newFacts": [{"content": "Ada rows", "confidence": 0.5}]}}])  # type: ignore[list-item]
        (one,) = memory.refusals(2)
        assert (one.content, one.needs) == ("Ada rows", NeededValue("fact_confidence_threshold", 0.5))
        assert memory.refusals(1) == ()
        memory.set_policy(fact_confidence_threshold=0.5)
        # The policy in force then counts, not today's.
        assert memory.refusals(2) == (one,)
        with pytest.raises(NotFoundError, match="there is no commit 9: the ledger ends at 3"):
            memory.refusals(9)
        for wrong in (0, -1, "two", None, True, 1.5):
            with pytest.raises(UsageError, match="seq must be"):
                memory.refusals(wrong)  # type: ignore[arg-type]


def test_a_person_s_duplicate_names_the_fact_that_says_the_same(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada runs")
        with pytest.raises(RefusedError):
            memory.add_fact("ada RUNS")
        (one,) = memory.refusals(3)
        assert (one.fact, one.needs) == ("fact_2_0", NeededValue("dedup_key", "exact"))


def test_where_content_was_erased_since_it_is_not_decided_again(tmp_path: Path) -> None:
    with open_home(tmp_path / "home", max_facts=10) as bs:
        memory = bs.memory("ada")
        for n in range(10):
            memory.add_fact(f"Ada has {n} cats", confidence=0.95)
        with pytest.raises(RefusedError):
            memory.add_fact("Ada rows", confidence=0.9)
        seq = memory.head().seq
        assert memory.refusals(seq)[0].needs == NeededValue("max_facts", 11)
        memory.forget(matching="3 cats")
        (one,) = memory.refusals(seq)
        assert one.needs is None
        assert one.unless == "some of what this commit was decided on was erased since, so it cannot be decided again"
