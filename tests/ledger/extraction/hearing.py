"""A memory that hears replies one after another and holds the program, after each, to what it promises of any.

A reply is broken, and then it changes nothing but leaves an UpdateFailed, or it gives candidates, each of which ends in
exactly one event. The commit can be sealed and read again, replay equals the live memory, and no rule about what may be
in memory is ever hurt.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from fakes import CountingSalts
from story import Story, given, new, summary

from backstory.ledger.core.commands import AddFact, ChangePolicy, Clear, Command, Extract, FailUpdate, candidates_of
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, sealed, unseal
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import ReplyError
from backstory.ledger.core.events import (
    CandidateRejected,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    Section,
    SummaryUpdated,
    Turn,
    TurnRange,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import CATEGORIES, DEDUP_KEYS, EVICTIONS, Policy
from backstory.ledger.core.sanitize import MAX_FACT, MAX_NAME, clip
from backstory.ledger.extraction.reply import read_reply
from backstory.ledger.rules.decide import RULES

BROKEN = "broken"
READ = "read"

TURNS = tuple(
    Turn(n=n, id=f"t{n}", role=role, content="Ada drinks tea", at="2026-01-01T00:00:00.000000Z")
    for n, role in enumerate(["user", "assistant"] * 2, 1)
)
KNOWN = (
    ("Ada lives in Oslo", "context"),
    ("Ada runs", "behavior"),
    ("Ada likes Oslo", "context"),
    ("艾达喜欢 Rust", "preference"),
    ("Ada said tea, not coffee", "correction"),
)
ALL_RULES = frozenset(RULES)


def any_policy(chance: random.Random) -> Policy:
    """A policy under which every rule has something to bite on: small caps, short lives, merging switched on."""
    return Policy(
        max_facts=chance.choice([2, 3, 6, 12, 100]),
        fact_confidence_threshold=chance.choice([0.0, 0.5, 0.7, 0.85]),
        fact_eviction_policy=chance.choice(EVICTIONS),
        gate_enabled=chance.random() < 0.7,
        dedup_key=chance.choice(DEDUP_KEYS),
        staleness_review_enabled=chance.random() < 0.8,
        staleness_age_days=1,
        staleness_min_candidates=chance.choice([1, 3]),
        staleness_max_removals_per_cycle=chance.choice([1, 10]),
        consolidation_enabled=chance.random() < 0.8,
        consolidation_min_facts=chance.choice([2, 8]),
        consolidation_max_groups_per_cycle=chance.choice([1, 3]),
        consolidation_max_sources=chance.choice([2, 8]),
    )


ALLOWING = Policy(
    fact_confidence_threshold=0.0,
    gate_enabled=False,
    staleness_min_candidates=1,
    consolidation_enabled=True,
    consolidation_min_facts=2,
)
"""A policy under which next to nothing is refused."""


@dataclass
class Listener:
    """A story, the chain its commits are sealed into, and the memory that a replay of that chain has come to."""

    story: Story
    replayed: Memory
    head: Head = EMPTY
    salts: CountingSalts = field(default_factory=CountingSalts)

    @classmethod
    def of(cls, policy: Policy | None = None) -> Listener:
        """A memory of some facts of a model's, two of a person's, and a section."""
        facts = [
            new(text, place=f"newFacts/{i}", category=category, evidence=("t1",))
            for i, (text, category) in enumerate(KNOWN)
        ]
        story = given(policy, *facts)
        story.hand("Ada is a person's own words", 0.2)
        story.hand("Ada lives in Bergen, says Ada")
        story.learn(summary("user.workContext", "Ada writes Rust."))
        return cls(story, story.memory)

    def hears(
        self,
        text: str,
        *,
        late: int = 0,
        shown: tuple[str, ...] | None = None,
        covered: bool = False,
        prompted: bool = True,
    ) -> str:
        """Take one reply in, made `late` commits ago; BROKEN or READ, and everything promised is checked."""
        before = self.story.memory
        try:
            proposal = read_reply(text, TURNS, prompted=prompted)
        except ReplyError as error:
            detail = clip(str(error), 2_000)
            events = self._do(FailUpdate(at="", reason="reply", detail=detail, turns=TurnRange(1, len(TURNS))))
            assert [type(event) for event in events] == [UpdateFailed]
            after = self.story.memory
            assert (after.facts, after.sections, after.policy) == (before.facts, before.sections, before.policy)
            assert after.changed_at == before.changed_at
            return BROKEN
        command = Extract(
            at="", thread="t", proposal=proposal, basis=max(1, before.seq - late), shown=shown, covered=covered
        )
        events = self._do(command)
        self._each_candidate_ends_once(command, events)
        self._each_event_carries_what_it_replaces(before, events)
        self._people_keep_what_they_entered(before)
        return READ

    def goes_on(self, chance: random.Random) -> None:
        """Have something else than a reply happen: everything is cleared, or other rules are put in force."""
        if chance.random() < 0.5:
            self._do(Clear(at=""), "clear")
            self._do(AddFact(at="", fact=new("Ada is a person's own words", 0.2, place="facts/0")), "manual")
        else:
            self._do(ChangePolicy(at="", policy=any_policy(chance)), "policy")

    def _do(self, command: Command, kind: str = "extraction") -> tuple[LedgerEvent, ...]:
        events = self.story.do(command, kind)
        live = self.story.memory
        after = Head(live.seq - 1, self.head.hash)
        line, commit = sealed(Draft(live.at, Cause(kind=kind, thread="t"), events), after, self.salts)
        assert unseal(line, after, stream="ledger", byte=0) == commit
        assert commit.events == events
        fold = Fold(self.replayed)
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        self.replayed, self.head = fold.memory(), commit.head
        assert self.replayed == live
        self._nothing_is_there_that_may_not_be(live)
        return events

    @staticmethod
    def _each_event_carries_what_it_replaces(before: Memory, events: tuple[LedgerEvent, ...]) -> None:
        """Nothing leaves twice, and no prefix of the events holds more than the cap."""
        facts, sections = dict(before.facts), dict(before.sections)
        for event in events:
            match event:
                case FactAdded(fact=fact):
                    assert fact.id not in facts
                    # Merged facts come in after their sources have left.
                    sources = [before.facts[source].confidence for source in fact.consolidated_from]
                    assert not sources or fact.confidence <= max(sources)
                    facts[fact.id] = fact
                case FactRemoved(fact=fact):
                    assert facts.pop(fact.id) == fact
                case FactRevised(before=old, after=new_):
                    assert facts[old.id] == old
                    facts[new_.id] = new_
                case SummaryUpdated(section=name, before=old_text, after=text):
                    assert sections.get(name, Section()) == old_text
                    sections[name] = text
                case _:
                    pass
            assert len(facts) <= before.policy.max_facts

    def _each_candidate_ends_once(self, command: Extract, events: tuple[LedgerEvent, ...]) -> None:
        candidates = command.proposal.candidates
        places = [candidate.place for candidate in candidates]
        assert len(set(places)) == len(places)
        assert isinstance(events[0], UpdateProposed)
        outcomes = [e for e in events if getattr(e, "place", None) or isinstance(e, CandidateRejected)]
        assert len(outcomes) == len(candidates)
        rebuilt = candidates_of(events)
        # In order, too: which of two equal candidates stands depends on it when they are decided again.
        assert rebuilt == candidates
        # What is nobody's outcome follows from one: an eviction, or the end of a fact that was merged.
        merged = {source for event in events if isinstance(event, FactAdded) for source in event.fact.consolidated_from}
        for event in events[1:]:
            if not any(event is outcome for outcome in outcomes):
                assert isinstance(event, FactRemoved)
                assert event.reason == "cap" or (event.reason == "consolidated" and event.fact.id in merged)
        assert {e.rule for e in events if isinstance(e, CandidateRejected)} <= ALL_RULES

    def _people_keep_what_they_entered(self, before: Memory) -> None:
        assert _by_hand(self.story.memory) == _by_hand(before)

    @staticmethod
    def _nothing_is_there_that_may_not_be(memory: Memory) -> None:
        policy, facts = memory.policy, memory.facts
        assert len(facts) <= policy.max_facts
        keys = {dedup_key(fact.content, policy.dedup_key) for fact in facts.values()}
        assert len(keys) == len(facts)
        for name, fact in facts.items():
            assert name == fact.id
            assert len(fact.content) <= MAX_FACT
            assert max(map(len, (name, *fact.evidence))) <= MAX_NAME
            assert fact.content
            assert fact.category in CATEGORIES
            assert fact.by_hand or fact.confidence >= policy.fact_confidence_threshold
            assert 0 <= fact.confidence <= 1


def _by_hand(memory: Memory) -> dict[str, Fact]:
    return {name: fact for name, fact in memory.facts.items() if fact.by_hand}
