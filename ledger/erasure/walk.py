"""One walk over the ledger: which of its events go, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.content import Words, fact_of, fact_texts
from backstory.ledger.core.events import (
    CandidateRejected,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    Section,
    SummaryUpdated,
    TurnRange,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.erasure.requests import Walk
from backstory.ledger.erasure.summary_sources import SummarySources
from backstory.ledger.erasure.target import ErasureTarget, said_of_fact, summary_in

__all__ = ["LedgerWalk", "walk_until_settled"]

_WHAT: dict[type, str] = {
    FactAdded: "fact",
    FactRemoved: "fact",
    FactRevised: "fact",
    SummaryUpdated: "section",
    CandidateRejected: "candidate",
    UpdateFailed: "failure",
    UpdateProposed: "proposal",
}


class _Slot(msgspec.Struct, frozen=True):
    """An event of the ledger that goes."""

    seq: int
    index: int
    what: str
    fact: str | None = None
    section: str | None = None


class _Told(msgspec.Struct, frozen=True):
    """A section's text that may be said again, and the turns it was made from."""

    section: Section
    thread: str | None = None
    turns: TurnRange | None = None


class LedgerWalk:
    """One walk over the ledger, under what is known to go so far."""

    def __init__(self, target: ErasureTarget) -> None:
        self._aim = target
        self._wanted = {root.seq for fact in target.memory.facts.values() for root in target.lineage.origins(fact)}
        self._emptied: dict[str, int] = {}
        self.slots: list[_Slot] = []
        self.facts: set[str] = set()
        self.runs: set[tuple[str, int]] = set()
        self.summaries: set[SummaryKey] = set()
        self.parts = SummarySources()
        self._unused = Words(target.sought)
        self.sections: dict[str, _Told] = {}
        self.merged = False
        """Whether a fact goes that others were merged into."""
        self.births: dict[int, Commit] = {}

    def take(self, commit: Commit) -> None:
        """Judge the events of a commit."""
        if commit.seq in self._wanted:
            self.births[commit.seq] = msgspec.structs.replace(commit, events=())
        self.parts.take(commit)
        proposal: int | None = None
        answered = self._aim.everything or self._aim.of_thread(commit)
        for index, event in enumerate(commit.events):
            if isinstance(event, UpdateProposed):
                proposal = index
            elif isinstance(event, Redacted):
                if event.section is not None:
                    self._empty(event.section)
            elif type(event) in _WHAT and self._take(commit, index, event):
                answered = answered or isinstance(event, CandidateRejected) or getattr(event, "place", None) is not None
        # The digest of the raw answer has no salt: who can guess the rest of it could try what was erased.
        if answered and proposal is not None:
            self.slots.append(_Slot(commit.seq, proposal, "proposal"))

    def _take(self, commit: Commit, index: int, event: Event) -> bool:
        """Judge an event that holds content; True where it goes."""
        section = event.section if isinstance(event, SummaryUpdated) else None
        run = None if section is None else (section, self._emptied.get(section, 0))
        goes = self._aim.condemns(commit, event, run)
        fact = fact_of(event)
        if goes:
            self.slots.append(_Slot(commit.seq, index, _WHAT[type(event)], None if fact is None else fact.id, section))
        if fact is not None:
            self.merged = self.merged or (goes and bool(fact.consolidated_from))
            self._settle(event, fact, goes=goes)
        if isinstance(event, SummaryUpdated) and run is not None:
            self._rewrite(commit, event, run, goes=goes)
        return goes

    def _settle(self, event: Event, fact: Fact, *, goes: bool) -> None:
        target = self._aim
        if not goes:
            self._use(said_of_fact(event))
        elif (isinstance(event, FactRemoved) and not target.stays(fact.id)) or (
            target.matching and target.says(said_of_fact(event))
        ):
            self.facts.add(fact.id)

    def _rewrite(self, commit: Commit, event: SummaryUpdated, run: tuple[str, int], *, goes: bool) -> None:
        summed = summary_in(event)
        if goes and summed is not None:
            self.summaries.add(summed)
        if event.after == Section():
            if goes:
                self.runs.add(run)
            self._empty(event.section)
        elif summed is not None:
            if not goes:
                self.sections[event.section] = _Told(event.after, summed.thread, summed.turns)
        elif self._aim.clean(commit, event.after.summary):
            cause = commit.cause
            before = self.sections.get(event.section)
            if cause.thread is None and before is not None and before.section.summary == event.after.summary:
                self.sections[event.section] = msgspec.structs.replace(before, section=event.after)
            else:
                self.sections[event.section] = _Told(event.after, cause.thread, cause.turns)

    def _empty(self, section: str) -> None:
        self._emptied[section] = self._emptied.get(section, 0) + 1
        self.sections.pop(section, None)

    def _use(self, texts: Iterable[str]) -> None:
        if self._unused and (used := self._unused.used_in(texts)):
            self._unused = Words(self._unused.all - used)

    def unused(self) -> frozenset[str]:
        """Return the words looked for that no fact uses which stays, in the ledger or said again."""
        for fact in self._aim.memory.facts.values():
            if self._aim.stays(fact.id):
                self._use(fact_texts(fact))
        return self._unused.all


def walk_until_settled(target: ErasureTarget, ledger: Walk, used: set[str]) -> LedgerWalk:
    """Walk the ledger until nothing new is found to go; `used` are words that turns use which stay."""
    while True:
        walk = LedgerWalk(target)
        for commit in ledger():
            walk.take(commit)
        if not target.widen(walk.facts, walk.runs, walk.unused() - used, walk.summaries):
            return walk
