"""Erasure target: the content that a request erases, as far as the walks over the streams have found it.

With it the evidence of facts: the turns that a fact was learned from, and the facts that it was merged from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import assert_never

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import (
    NO_THREADS,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    Turn,
    TurnRange,
    TurnRecorded,
    UpdateFailed,
)
from backstory.ledger.core.kinds import ErasedKind
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.erasure.content import (
    ErasedWords,
    Phrases,
    all_fact_texts,
    document_section_in,
    fact_of,
    fact_texts,
    fact_texts_in,
    facts_in,
    folded,
    may_name,
    summary_in,
    texts_beside_fact,
    texts_of,
    words_in,
)
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.erasure.requests import (
    Erasure,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetShared,
    ForgetThread,
    Walk,
)

_NO_TURNS: frozenset[int] = frozenset()


class PlacedTurn(msgspec.Struct, frozen=True):
    """A turn, and the commit and index at which it was recorded."""

    seq: int
    index: int
    at: str
    thread: str
    turn: Turn


def turns_of(transcript: Iterable[Commit]) -> Iterator[PlacedTurn]:
    """Yield the turns of a transcript with their positions."""
    for commit in transcript:
        for index, event in enumerate(commit.events):
            if isinstance(event, TurnRecorded):
                yield PlacedTurn(commit.seq, index, commit.at, commit.cause.thread or "", event.turn)


class EvidenceTurns:
    """The turns that erased content was learned from, and those of them that are erased.

    `evidence` holds thread and ordinal, `ids` thread and id of all of them; `redacted` the events of the erased ones by
    seq and index, and `erased` their ordinals by thread.
    """

    def __init__(self, stream: str, seal: ContentSeal | None) -> None:
        self._stream = stream
        self._seal = seal
        self.redacted: dict[tuple[int, int], Redacted] = {}
        self.erased: dict[str, set[int]] = {}
        self.evidence: set[tuple[str, int]] = set()
        self.ids: set[tuple[str, str]] = set()

    def add(self, placed: PlacedTurn) -> None:
        """Add a turn that erased content was learned from."""
        self.evidence.add((placed.thread, placed.turn.n))
        self.ids.add((placed.thread, placed.turn.id))

    def erase(self, placed: PlacedTurn, what: ErasedKind = "turn") -> None:
        """Add a turn to erase; its event keeps its position, id, length and, with a key, its digest."""
        turn = placed.turn
        self.erased.setdefault(placed.thread, set()).add(turn.n)
        self.redacted[placed.seq, placed.index] = Redacted(
            self._stream,
            placed.seq,
            placed.index,
            what,
            thread=placed.thread,
            n=turn.n,
            turn=turn.id,
            size=len(turn.content),
            digest=None if self._seal is None else self._seal(turn.role, turn.content),
        )


class FactSources:
    """The turns that one fact was learned from: those it cites, or all of its updates if it cites none."""

    def __init__(self) -> None:
        self.cited: set[tuple[str, str]] = set()
        """The turns that the fact cites, as thread and id."""
        self.updates: list[tuple[str, TurnRange]] = []
        self._found_cited: list[PlacedTurn] = []
        self._found_in_updates: list[PlacedTurn] = []

    @property
    def names(self) -> Iterator[str]:
        """The ids of the cited turns, and the threads of the updates."""
        yield from (turn_id for _, turn_id in self.cited)
        yield from (thread for thread, _ in self.updates)

    def collect(self, turn: PlacedTurn) -> None:
        """Keep a turn if the fact was learned from it."""
        if (turn.thread, turn.turn.id) in self.cited:
            self._found_cited.append(turn)
        elif not self._found_cited and any(
            turn.thread == thread and turns.first <= turn.turn.n <= turns.last for thread, turns in self.updates
        ):
            self._found_in_updates.append(turn)

    def found(self) -> list[PlacedTurn]:
        """Return the turns that were kept: only cited ones, if there are any."""
        return self._found_cited or self._found_in_updates


class Lineage:
    """The facts that were merged into each fact; the ledger is read once, when the first merged fact is asked for.

    Args:
        ledger: starts reading the ledger from its first commit at each call.
    """

    def __init__(self, ledger: Walk) -> None:
        self._ledger = ledger

    @cached_property
    def _sources(self) -> dict[str, tuple[Fact, str]]:
        """Return each merged fact, by id, with the id of the fact that it was last merged into."""
        return {
            event.fact.id: (event.fact, event.detail or "")
            for commit in self._ledger(lambda _, line: b'"consolidated"' in line)
            for event in commit.events
            if isinstance(event, FactRemoved) and event.reason == "consolidated"
        }

    def ancestors(self, fact: Fact) -> dict[str, Fact | None]:
        """Return all facts that went into a fact, by id, nearest first; None for one whose removal was erased."""
        found: dict[str, Fact | None] = {}
        queue = list(fact.consolidated_from)
        while queue:
            source = queue.pop(0)
            if source in found:
                continue
            known = self._sources.get(source)
            found[source] = None if known is None else known[0]
            if known is not None:
                queue += known[0].consolidated_from
        return found

    def origins(self, fact: Fact) -> Iterator[Fact]:
        """Yield the facts whose evidence says where a fact was learned: itself, or the unmerged facts it comes from.

        A merged fact's own evidence names turns without their threads. So the fact itself is only yielded if it was not
        merged or an ancestor is unknown.
        """
        ancestors = self.ancestors(fact)
        if None in ancestors.values() or not ancestors:
            yield fact
        yield from (known for known in ancestors.values() if known is not None and not known.consolidated_from)

    def merged_into(self, facts: Iterable[str]) -> Iterator[Fact]:
        """Yield the facts that were merged into one of these, through all levels, and are not among them."""
        reached = set(facts)
        while True:
            new = [fact for fact, into in self._sources.values() if into in reached and fact.id not in reached]
            if not new:
                return
            reached.update(fact.id for fact in new)
            yield from new


class ErasureTarget:
    """The content to erase: what was asked for, and what the walks found to follow from it.

    An event is erased if it holds one of the `phrases` or `rare_words`, a fact of `facts`, a text of one of `runs`, or
    a summary made from erased turns or summaries; or if it was learned from the thread.
    """

    def __init__(self, request: Erasure, memory: Memory, lineage: Lineage) -> None:
        self.request = request
        self.memory = memory
        self.lineage = lineage
        self.everything = isinstance(request, ForgetEverything)
        self._named = frozenset(one.name for one in memory.policy.categories)
        """The categories of the policy. They are settings, and no content."""
        self.thread = request.thread if isinstance(request, ForgetThread) else None
        self.matching = isinstance(request, ForgetMatching)
        self.shared = request if isinstance(request, ForgetShared) else None
        self.phrases = Phrases()
        self.words: set[str] = set()
        """All words of the content to erase that may identify something."""
        self.rare_words = ErasedWords(())
        """Those of `words` that occur in nothing that stays."""
        self.facts: set[str] = set()
        """Ids of facts to erase."""
        self.runs: set[tuple[str, int]] = set()
        """Runs of a section's texts to erase, as the section and how often it had been emptied before the run."""
        self.turns: dict[str, set[int]] = {}
        """Ordinals of turns to erase, by thread."""
        self.summaries: dict[str, set[SummaryKey]] = {}
        """Summaries to erase, by thread."""
        self.sources: dict[str, FactSources] = {}
        """The turns that the fact to erase was learned from, by the id of the fact or of a fact merged into it."""

    @property
    def is_narrow(self) -> bool:
        """Whether events are erased by what they hold alone, and not by the thread or the section they belong to."""
        return not self.everything and self.thread is None and self.shared is None

    def seek(self, texts: Iterable[str], *, phrases: bool = True, anywhere: bool = False) -> None:
        """Add texts that must not be found afterwards.

        Args:
            texts: their words are added to `words`.
            phrases: also add each whole text as a phrase.
            anywhere: find the phrases within words, too.
        """
        for text in texts:
            self.words |= words_in(text)
            if phrases:
                self.phrases.add(text, anywhere=anywhere)

    def seek_section(self, event: SummaryUpdated | SummaryShared) -> None:
        """Add the text of a section that an event wrote or shared."""
        text = event.text if isinstance(event, SummaryShared) else event.after.summary
        self.seek(filter(None, (text, event.proposed)))

    def says(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts holds one of the phrases."""
        return self.phrases.occur_in(texts)

    def of_thread(self, commit: Commit) -> bool:
        """Whether a commit was learned from the thread to erase."""
        # What a redaction restates belongs to no thread, whatever thread it erased.
        return self.thread is not None and commit.cause.thread == self.thread and commit.cause.kind != "redaction"

    def is_received(self, commit: Commit, section: str) -> bool:
        """Whether a commit received the text of a section that is erased in the ledger of the agent."""
        return self.shared is not None and any(
            isinstance(event, SummariesReceived) and (event.agent, event.seq, section) in self.shared.received
            for event in commit.events
        )

    def stays(self, fact_id: str) -> bool:
        """Whether a fact is live and is not erased."""
        return fact_id in self.memory.facts and fact_id not in self.facts and not self.everything

    def includes(self, commit: Commit, event: Event, run: tuple[str, int] | None) -> bool:
        """Whether an event that holds content is to be erased; `run` is the run of a section's text."""
        if self.shared is not None:
            return self._includes_shared(self.shared, commit, event, run)
        return (
            self.everything
            or self.of_thread(commit)
            or (run is not None and run in self.runs)
            or not self.facts.isdisjoint(facts_in(event))
            or self.says(fact_texts_in(event))
            or self.says(self._beside_fact(event))
            or self._is_summary_of_target(event)
            # A summary of another thread was made without knowledge of the thread to erase.
            or (
                (self.thread is None or summary_in(event) is None)
                and bool(self.rare_words.used_in(self._beside_fact(event)))
            )
        )

    def _beside_fact(self, event: Event) -> Iterator[str]:
        return (text for text in texts_beside_fact(event) if text not in self._named)

    def texts_of_fact(self, fact: Fact) -> Iterator[str]:
        """Yield the content of a fact, with its category if the policy does not name that."""
        return (text for text in all_fact_texts(fact) if text not in self._named or text == fact.content)

    def _includes_shared(
        self, request: ForgetShared, commit: Commit, event: Event, run: tuple[str, int] | None
    ) -> bool:
        section = document_section_in(event)
        return section is not None and (
            (isinstance(event, SummaryShared) and (commit.seq, event.section) in request.own)
            or self.is_received(commit, section)
            or (run is not None and run in self.runs)
            or self.says(texts_of(event))
            or bool(self.rare_words.used_in(texts_of(event)))
        )

    def _is_summary_of_target(self, event: Event) -> bool:
        """Whether an event holds a thread's summary that was made from erased turns or summaries."""
        key = summary_in(event)
        if key is None:
            return False
        turns = range(key.turns.first, key.turns.last + 1)
        return (
            key.thread == self.thread
            or not self.turns.get(key.thread, _NO_TURNS).isdisjoint(turns)
            or any(erased == key or key.holds(erased) for erased in self.summaries.get(key.thread, ()))
        )

    def may_restate(self, commit: Commit, section: str, text: str) -> bool:
        """Whether a section's text may be written again."""
        return not (
            self.everything
            or self.of_thread(commit)
            or self.is_received(commit, section)
            or self.says((text,))
            or bool(self.rare_words.used_in((text,)))
        )

    def extend(
        self, facts: set[str], runs: set[tuple[str, int]], rare_words: frozenset[str], summaries: set[SummaryKey]
    ) -> bool:
        """Add what a walk found; return whether any of it is new."""
        new = not (facts <= self.facts and runs <= self.runs and rare_words <= self.rare_words.all)
        for key in summaries:
            known = self.summaries.setdefault(key.thread, set())
            new = new or key not in known
            known.add(key)
        self.facts |= facts
        self.runs |= runs
        self.rare_words = ErasedWords(rare_words | self.rare_words.all)
        return new


def _find_fact(target: ErasureTarget, fact_id: str, ledger: Walk) -> None:
    target.facts.add(fact_id)
    naming = list(ledger(lambda _, line: may_name(line, target.facts)))
    for commit in naming:
        for event in commit.events:
            fact = fact_of(event)
            if fact is None or fact.id != fact_id:
                continue
            target.seek(fact_texts_in(event))
            target.sources |= {root.id: FactSources() for root in target.lineage.origins(fact)}
    merged = not target.sources.keys() <= target.facts
    for commit in ledger(lambda _, line: may_name(line, target.sources)) if merged else naming:
        for event in commit.events:
            fact = fact_of(event)
            if fact is None or (sources := target.sources.get(fact.id)) is None:
                continue
            # The fact's thread, not the commit's: another thread may have confirmed, removed or merged the fact.
            sources.cited.update((fact.source, turn_id) for turn_id in fact.evidence)
            turns = commit.cause.turns
            if isinstance(event, FactAdded) and turns is not None and not fact.consolidated_from:
                sources.updates.append((fact.source, turns))


def _find_thread(target: ErasureTarget, thread: str, ledger: Walk) -> None:
    for commit in ledger():
        of_thread = target.of_thread(commit)
        for event in commit.events:
            fact = fact_of(event)
            if fact is not None and (
                fact.id in target.facts
                or (fact.source == thread and thread not in NO_THREADS)
                or (of_thread and _states_text(event))
            ):
                target.facts.add(fact.id)
                target.seek(fact_texts_in(event))
            if summary_in(event) is not None:
                # A thread's summary is found by its name. Its words occur in too many other texts.
                continue
            if of_thread and isinstance(event, SummaryUpdated | SummaryShared):
                target.seek_section(event)
            elif of_thread and not isinstance(event, UpdateFailed):
                target.seek(texts_beside_fact(event), phrases=False)


def _states_text(event: Event) -> bool:
    """Whether an event gives a fact its text, as a tool in a conversation may also do by an edit."""
    if isinstance(event, FactRevised):
        return fact_texts(event.before) != fact_texts(event.after)
    return isinstance(event, FactAdded)


def find_target(request: Erasure, memory: Memory, ledger: Walk) -> ErasureTarget:
    """Return the target of a request, with the content that the request itself names.

    Raises:
        UsageError: The text to match is empty.
    """
    target = ErasureTarget(request, memory, Lineage(ledger))
    match request:
        case ForgetFact(fact_id=fact_id):
            _find_fact(target, fact_id, ledger)
        case ForgetThread(thread=thread):
            _find_thread(target, thread, ledger)
        case ForgetMatching(text=text):
            if not folded(text):
                raise UsageError("the text to forget is empty: give the text to find and erase")
            target.seek((text,), anywhere=True)
        case ForgetShared(phrases=phrases, words=words):
            for phrase, anywhere in phrases:
                target.phrases.add(phrase, anywhere=anywhere)
            target.rare_words = ErasedWords(words)
            return target
        case ForgetEverything() | ForgetExpired():
            pass
        case _:
            assert_never(request)
    target.facts |= {
        fact.id for fact in memory.facts.values() if target.everything or target.says(target.texts_of_fact(fact))
    }
    return target
