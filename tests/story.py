"""The language the tests of deciding are written in: given(events).when(command).then(events)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from backstory.ledger.core.commands import AddFact, ChangePolicy, Command, Extract, Proposal
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    LedgerEvent,
    NewFact,
    NewSummary,
    PolicyChanged,
    Reinforcement,
    Removal,
    SummaryUpdated,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.decide import decide

T0 = "2026-01-01T00:00:00.000000Z"
_START = datetime(2026, 1, 1)  # noqa: DTZ001 spelled by hand below


def at(n: float) -> str:
    """The moment so many hours on."""
    return f"{(_START + timedelta(hours=n)).isoformat(timespec='microseconds')}Z"


def day(n: float) -> str:
    """The moment so many days on."""
    return at(24 * n)


@dataclass
class Story:
    """A memory that commits have led to, one an hour, and longer apart where somebody waits."""

    memory: Memory = field(default_factory=Memory)
    log: list[tuple[LedgerEvent, ...]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    waited: float = 0.0

    def now(self) -> str:
        return at(self.memory.seq + self.waited)

    def wait(self, days: float) -> None:
        self.waited += 24 * days

    def do(self, command: Command, kind: str) -> tuple[LedgerEvent, ...]:
        """Decide a command now and take in what it leads to; returns the events."""
        events = decide(self.memory, msgspec.structs.replace(command, at=self.now()))
        self.take(events, kind)
        return events

    def take(self, events: Sequence[LedgerEvent], kind: str) -> None:
        fold = Fold(self.memory)
        fold.advance(self.memory.seq + 1, self.now(), kind, events)
        self.memory = fold.memory()
        self.log.append(tuple(events))
        self.kinds.append(kind)

    def learn(self, *candidates: Candidate, basis: int | None = None, **more: object) -> tuple[LedgerEvent, ...]:
        return self.do(extract(*candidates, basis=self.memory.seq if basis is None else basis, **more), "extraction")

    def hand(self, content: str, confidence: float = 0.9) -> Fact:
        events = self.do(AddFact(at="", fact=new(content, confidence, place="facts/0")), "manual")
        return next(e.fact for e in events if isinstance(e, FactAdded))

    def texts(self) -> list[str]:
        return [fact.content for fact in self.memory.in_order()]


def given(policy: Policy | None = None, *facts: NewFact) -> Story:
    """A ledger with a policy and, in one update, some facts."""
    story = Story()
    story.do(ChangePolicy(at="", policy=policy or Policy(), source="config"), "genesis")
    if facts:
        story.learn(*facts)
    return story


def new(content: str, confidence: float = 0.9, *, place: str = "newFacts/0", **more: object) -> NewFact:
    return NewFact(place=place, content=content, confidence=confidence, **more)  # type: ignore[arg-type]


def news(*contents: str | tuple[str, float]) -> list[NewFact]:
    return [
        new(*(content if isinstance(content, tuple) else (content,)), place=f"newFacts/{i}")
        for i, content in enumerate(contents)
    ]


def removal(fact_id: str, index: int = 0, replacement: int | None = None) -> Removal:
    return Removal(place=f"factsToRemove/{index}", id=fact_id, replacement=replacement)


def reinforcement(fact_id: str, index: int = 0) -> Reinforcement:
    return Reinforcement(place=f"factsToReinforce/{index}", id=fact_id)


def stale(fact_id: str, index: int = 0, **more: object) -> Removal:
    """A review's removal."""
    return Removal(place=f"staleFactsToRemove/{index}", id=fact_id, **more)  # type: ignore[arg-type]


def longer(fact_id: str, days: int, index: int = 0, **more: object) -> Extension:
    return Extension(place=f"staleFactsToExtend/{index}", id=fact_id, days=days, **more)  # type: ignore[arg-type]


def merged(sources: Sequence[str], content: str, index: int = 0, **more: object) -> Consolidation:
    return Consolidation(
        place=f"factsToConsolidate/{index}",
        sources=tuple(sources),
        content=content,
        **more,  # type: ignore[arg-type]
    )


def summary(section: str, text: str) -> NewSummary:
    return NewSummary(place=section, summary=text)


def extract(*candidates: Candidate, basis: int = 0, thread: str = "t1", **more: object) -> Extract:
    proposal = Proposal(tuple(candidates), "0" * 64, 1)
    return Extract(at="", thread=thread, proposal=proposal, basis=basis, **more)  # type: ignore[arg-type]


def refusals(events: Sequence[LedgerEvent]) -> dict[str, str]:
    """Place to rule."""
    return {e.candidate.place: e.rule for e in events if isinstance(e, CandidateRejected)}


def added(events: Sequence[LedgerEvent]) -> list[str]:
    return [e.fact.content for e in events if isinstance(e, FactAdded)]


def removed(events: Sequence[LedgerEvent]) -> dict[str, str]:
    """Content to reason."""
    return {e.fact.content: e.reason for e in events if isinstance(e, FactRemoved)}


def rewritten(events: Sequence[LedgerEvent]) -> dict[str, str]:
    return {e.section: e.after.summary for e in events if isinstance(e, SummaryUpdated)}


def policies(events: Sequence[LedgerEvent]) -> list[Policy]:
    return [e.after for e in events if isinstance(e, PolicyChanged)]
