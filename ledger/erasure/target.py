"""What goes, as far as it is known: what was asked for, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.content import (
    Phrases,
    Words,
    fact_of,
    fact_texts,
    folded,
    texts_beside_fact,
    texts_of,
    words_in,
)
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import (
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    FactAdded,
    FactRevised,
    Removal,
    SummaryUpdated,
    UpdateFailed,
)
from backstory.ledger.core.lineage import Lineage
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.erasure.evidence import Sources
from backstory.ledger.erasure.requests import Erasure, ForgetEverything, ForgetFact, ForgetMatching, ForgetThread, Walk

__all__ = ["ErasureTarget", "aim_at", "said_of_fact", "summary_in"]

_OURS = ("manual", "import")
_NO_TURNS: frozenset[int] = frozenset()


class ErasureTarget:
    """What goes, as far as it is known: what was asked for, and what a walk found to follow from it."""

    def __init__(self, request: Erasure, memory: Memory, lineage: Lineage) -> None:
        self.request = request
        self.memory = memory
        self.lineage = lineage
        self.everything = isinstance(request, ForgetEverything)
        self.thread = request.thread if isinstance(request, ForgetThread) else None
        self.matching = isinstance(request, ForgetMatching)
        self.phrases = Phrases()
        self.sought: set[str] = set()
        self.traced = Words(())
        self.facts: set[str] = set()
        self.runs: set[tuple[str, int]] = set()
        """Runs of a section's texts, from one emptying to the next: (section, how many emptyings came before)."""
        self.turns: dict[str, set[int]] = {}
        """Turns that go, by thread and ordinal."""
        self.summaries: dict[str, set[SummaryKey]] = {}
        """Summaries that go, by thread."""
        self.sources: dict[str, Sources] = {}
        """By the id of the fact, or of what it was merged from."""

    def seek(self, texts: Iterable[str], *, phrases: bool = True, anywhere: bool = False) -> None:
        """Take texts in that must not be found afterwards, word for word or as single rare words."""
        for text in texts:
            self.sought |= words_in(text)
            if phrases:
                self.phrases.add(text, anywhere=anywhere)

    def says(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts says what must not be found."""
        return self.phrases.occur_in(texts)

    def of_thread(self, commit: Commit) -> bool:
        """Whether a commit was learned from the conversation that is to be forgotten."""
        # What a redaction says again belongs to no thread, whatever was asked to be forgotten by it.
        return self.thread is not None and commit.cause.thread == self.thread and commit.cause.kind != "redaction"

    def stays(self, fact_id: str) -> bool:
        """Whether a fact is live and remains so."""
        return fact_id in self.memory.facts and fact_id not in self.facts and not self.everything

    def condemns(self, commit: Commit, event: Event, run: tuple[str, int] | None) -> bool:
        """Whether an event that holds content goes; `run` is where a section's text belongs."""
        return (
            self.everything
            or self.of_thread(commit)
            or (run is not None and run in self.runs)
            or not self.facts.isdisjoint(_named(event))
            or self.says(texts_of(event))
            or self._told_from_it(event)
            or (self._may_hint(event) and bool(self.traced.used_in(texts_beside_fact(event))))
        )

    def _told_from_it(self, event: Event) -> bool:
        """Whether an event tells a summary of a thread that was made from what goes, be it through other summaries."""
        summed = summary_in(event)
        if summed is None:
            return False
        turns = range(summed.turns.first, summed.turns.last + 1)
        return (
            summed.thread == self.thread
            or not self.turns.get(summed.thread, _NO_TURNS).isdisjoint(turns)
            or any(gone == summed or summed.holds(gone) for gone in self.summaries.get(summed.thread, ()))
        )

    def _may_hint(self, event: Event) -> bool:
        """Whether single words of an event can give away what goes: other threads were summed up without knowing it."""
        return self.thread is None or summary_in(event) is None

    def clean(self, commit: Commit, text: str) -> bool:
        """Whether a section's text may be said again."""
        return not (
            self.everything or self.of_thread(commit) or self.says((text,)) or bool(self.traced.used_in((text,)))
        )

    def widen(
        self, facts: set[str], runs: set[tuple[str, int]], traced: frozenset[str], summaries: set[SummaryKey]
    ) -> bool:
        """Take in what a walk found; False where that is nothing new."""
        new = not (facts <= self.facts and runs <= self.runs and traced <= self.traced.all)
        for summed in summaries:
            known = self.summaries.setdefault(summed.thread, set())
            new = new or summed not in known
            known.add(summed)
        self.facts |= facts
        self.runs |= runs
        self.traced = Words(traced | self.traced.all)
        return new


def summary_in(event: Event) -> SummaryKey | None:
    """Return the summary of a thread that an event tells; None where it tells none."""
    return SummaryKey.of(event.section) if isinstance(event, SummaryUpdated) else None


def _named(event: Event) -> tuple[str, ...]:
    """The ids of the facts whose content an event holds, be it in a model's words about them."""
    match event:
        case CandidateRejected(candidate=Consolidation(sources=sources)):
            return sources
        case (
            CandidateRejected(candidate=Edit(id=fact_id))
            | CandidateRejected(candidate=Removal(id=fact_id, reason=str()))
            | CandidateRejected(candidate=Extension(id=fact_id, reason=str()))
        ):
            return (fact_id,)
        case _:
            fact = fact_of(event)
            return () if fact is None else (fact.id,)


def said_of_fact(event: Event) -> tuple[str, ...]:
    """Return what an event says of a fact, before it and after it."""
    match event:
        case FactRevised(before=before, after=after):
            return (*fact_texts(before), *fact_texts(after))
        case _:
            fact = fact_of(event)
            return () if fact is None else fact_texts(fact)


def _aim_at_fact(target: ErasureTarget, fact_id: str, ledger: Walk) -> None:
    target.facts.add(fact_id)
    for commit in ledger():
        for event in commit.events:
            fact = fact_of(event)
            if fact is None or fact.id != fact_id:
                continue
            target.seek(said_of_fact(event))
            target.sources |= {root.id: Sources() for root in target.lineage.origins(fact)}
    for commit in ledger():
        for event in commit.events:
            fact = fact_of(event)
            if fact is None or (sources := target.sources.get(fact.id)) is None:
                continue
            # Not the commit's thread: another conversation may have confirmed, removed or merged the fact.
            sources.cite(fact.source, fact.evidence)
            turns = commit.cause.turns
            if isinstance(event, FactAdded) and turns is not None and not fact.consolidated_from:
                sources.updates.append((fact.source, turns))


def _aim_at_thread(target: ErasureTarget, thread: str, ledger: Walk) -> None:
    for commit in ledger():
        ours = target.of_thread(commit)
        for event in commit.events:
            fact = fact_of(event)
            if fact is not None and (
                fact.id in target.facts
                or (fact.source == thread and thread not in _OURS)
                or (ours and isinstance(event, FactAdded))
            ):
                target.facts.add(fact.id)
                target.seek(said_of_fact(event))
            if summary_in(event) is not None:
                # It goes by its name; the words in which a model tells a story stand in many others, too.
                continue
            if ours and isinstance(event, SummaryUpdated):
                target.seek(filter(None, (event.after.summary, event.proposed)))
            elif ours and not isinstance(event, UpdateFailed):
                target.seek(texts_beside_fact(event), phrases=False)


def aim_at(request: Erasure, memory: Memory, ledger: Walk) -> ErasureTarget:
    """Take the request's own words in.

    Raises:
        UsageError: a text with nothing in it.
    """
    target = ErasureTarget(request, memory, Lineage(ledger))
    match request:
        case ForgetFact(fact_id=fact_id):
            _aim_at_fact(target, fact_id, ledger)
        case ForgetThread(thread=thread):
            _aim_at_thread(target, thread, ledger)
        case ForgetMatching(text=text):
            if not folded(text):
                raise UsageError("the text to forget is empty: say what is to be found and erased")
            target.seek((text,), anywhere=True)
        case _:
            pass
    target.facts |= {fact.id for fact in memory.facts.values() if target.everything or target.says(fact_texts(fact))}
    return target
