"""Walks over both streams: which turns go and which words occur in turns that stay; which events of the ledger go.

The walk over the ledger is repeated until it finds nothing new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.events import (
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Fact,
    FactRemoved,
    NewFact,
    Redacted,
    Section,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    TurnRange,
    UpdateProposed,
)
from backstory.ledger.core.kinds import ErasedKind
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.erasure.content import (
    ErasedWords,
    all_fact_texts,
    erased_kind,
    fact_of,
    fact_texts_in,
    folded,
    may_name,
    may_say,
    summary_in,
    turn_texts,
)
from backstory.ledger.erasure.digest import MARKED, ContentSeal
from backstory.ledger.erasure.requests import ForgetFact, Walk
from backstory.ledger.erasure.target import ErasureTarget, EvidenceTurns, PlacedTurn, turns_of
from backstory.ledger.text.acknowledgements import has_substance


def read_transcript(target: ErasureTarget, transcript: Walk, seal: ContentSeal | None) -> EvidenceTurns:
    """Find the turns that belong to a target, and add the erased ones and their words to it."""
    found = EvidenceTurns(transcript.stream, seal)
    target.turns = found.erased
    if target.shared is not None:
        return found
    if isinstance(target.request, ForgetFact):
        cited = _cited(target, transcript)
        for turn in cited:
            found.add(turn)
        if not target.request.with_evidence:
            return found
        erased: Iterable[PlacedTurn] = chain(cited, _told_again(cited, transcript))
    else:
        only = None if target.everything or target.thread is not None else target.phrases.may_occur
        erased = (
            turn
            for turn in turns_of(transcript(only))
            if target.everything or turn.thread == target.thread or target.says(turn_texts(turn.turn))
        )
    for turn in erased:
        found.add(turn)
        found.erase(turn)
        if not target.everything and not target.matching:
            target.seek(turn_texts(turn.turn), phrases=False)
    return found


def _cited(target: ErasureTarget, transcript: Walk) -> list[PlacedTurn]:
    """Return the turns that the fact to erase was learned from."""
    names = set(chain.from_iterable(sources.names for sources in target.sources.values()))
    for turn in turns_of(transcript(lambda _, line: may_name(line, names))):
        for sources in target.sources.values():
            sources.collect(turn)
    return list(chain.from_iterable(sources.found() for sources in target.sources.values()))


def _told_again(cited: Sequence[PlacedTurn], transcript: Walk) -> Iterator[PlacedTurn]:
    """Yield the turns that say what cited ones say in their threads: they would teach the fact once more."""
    words = {_words(turn) for turn in cited if has_substance(turn.turn.content)}
    texts = {folded(turn.turn.content) for turn in cited}
    if words:
        said = turns_of(transcript(lambda _, line: may_say(line, texts)))
        yield from (turn for turn in said if _words(turn) in words)


def _words(turn: PlacedTurn) -> tuple[str, str, str]:
    return turn.thread, turn.turn.role, turn.turn.content


def words_in_staying_turns(target: ErasureTarget, transcript: Walk, turns: EvidenceTurns) -> set[str]:
    """Return the words of the target that occur in a turn that stays."""
    left = ErasedWords(target.words)

    def may_say_more(_: int, line: bytes) -> bool:
        return may_say(line, left.all)

    for turn in turns_of(transcript(may_say_more)) if left else ():
        if (turn.seq, turn.index) not in turns.redacted and (used := left.used_in(turn_texts(turn.turn))):
            left = ErasedWords(left.all - used)
    return target.words - left.all


def words_used(words: frozenset[str], memory: Memory, transcript: Iterable[Commit]) -> frozenset[str]:
    """Return those of some words that occur in a live fact of a memory or in a turn of its transcript."""
    left = ErasedWords(words)
    texts = chain(map(all_fact_texts, memory.facts.values()), (turn_texts(turn.turn) for turn in turns_of(transcript)))
    for each in texts:
        if not left:
            break
        if used := left.used_in(each):
            left = ErasedWords(left.all - used)
    return words - left.all


class _RestatedSection(msgspec.Struct, frozen=True):
    """A section that may be restated, and the turns that it was made from."""

    section: Section
    thread: str | None = None
    turns: TurnRange | None = None


class SummarySources:
    """The sections that each merged summary replaced, by the name of its section."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, Section]] = {}

    def take(self, commit: Commit) -> None:
        """Collect the sources of the summary that a commit holds, if any."""
        cause = commit.cause
        if cause.kind != "summary" or cause.thread is None or cause.summarized is None:
            return
        sources = {
            event.section: event.before
            for event in commit.events
            if isinstance(event, SummaryUpdated) and event.after == Section()
        }
        if sources:
            self._sources[SummaryKey(cause.thread, cause.level, cause.summarized).section] = sources

    def restated(self, live: Iterable[str], erased: Collection[str]) -> Iterator[SummaryUpdated]:
        """Yield the events that bring back the sources, through all levels, of live sections that are erased.

        Args:
            live: the names of the live sections.
            erased: the names of the erased sections; these do not come back.
        """
        for name in live:
            if name in erased:
                yield from self._sources_of(name, erased)

    def _sources_of(self, name: str, erased: Collection[str]) -> Iterator[SummaryUpdated]:
        for source, section in self._sources.get(name, {}).items():
            if source in erased:
                yield from self._sources_of(source, erased)
            else:
                yield SummaryUpdated(source, Section(), section)


class LedgerWalk:
    """One walk over the ledger, whose name is `stream`, with the target as known so far; see `plan_erasure`."""

    def __init__(self, target: ErasureTarget, stream: str, seal: ContentSeal | None, said: int) -> None:
        self._target = target
        self._stream = stream
        self._seal = seal
        self._said = said
        facts = target.memory.facts.values() if seal is not None else ()
        self._staying = {mark_key(fact.content) for fact in facts if target.stays(fact.id)}
        self._birth_seqs = {root.seq for fact in target.memory.facts.values() for root in target.lineage.origins(fact)}
        self._emptied: dict[str, int] = {}
        self._unused = ErasedWords(target.words)
        self._needles = self._sought()
        self.redacted: list[Redacted] = []
        """The events that erase others, one for each event to erase."""
        self.facts: set[str] = set()
        self.runs: set[tuple[str, int]] = set()
        self.summaries: set[SummaryKey] = set()
        self.summary_sources = SummarySources()
        self.sections: dict[str, _RestatedSection] = {}
        self.shared: dict[str, _RestatedSection] = {}
        """The last text of each section of the user that this agent shared and that stays."""
        self.own: set[tuple[int, str]] = set()
        """The erased texts that this agent shared, as seq and section."""
        self.received: set[tuple[str, int, str]] = set()
        """The erased texts that were received, as agent, the agent's seq and section."""
        self.merged = False
        """Whether a fact that others were merged into is erased."""
        self.births: dict[int, Cause] = {}
        """Why the live facts, or the facts they were merged from, were added, by the seq of that commit."""

    def matters(self, seq: int, line: bytes) -> bool:
        """Whether a line has to be read: it may hold what is to be erased, or decide what else is."""
        return (
            seq in self._birth_seqs
            # Each line with an event that concerns a section holds one of these.
            or b"Summar" in line
            or b"Redacted" in line
            or may_name(line, self._target.facts)
            or may_say(line, self._needles)
        )

    def take(self, commit: Commit) -> None:
        """Collect the events of a commit that are to be erased, and what follows from that."""
        if commit.seq in self._birth_seqs:
            self.births[commit.seq] = commit.cause
        self.summary_sources.take(commit)
        proposal: int | None = None
        answer_erased = self._target.everything or self._target.of_thread(commit)
        for index, event in enumerate(commit.events):
            if isinstance(event, UpdateProposed):
                proposal = index
            elif isinstance(event, Redacted):
                if event.section is not None:
                    self._empty(event.section)
            elif (kind := erased_kind(event)) is not None and self._take(commit, index, event, kind):
                outcome = isinstance(event, CandidateRejected) or getattr(event, "place", None) is not None
                answer_erased = answer_erased or outcome
        # The digest of the raw answer has no salt, so it could confirm a guess of the part that was erased.
        if answer_erased and proposal is not None:
            self.redacted.append(Redacted(self._stream, commit.seq, proposal, "proposal"))

    def _take(self, commit: Commit, index: int, event: Event, kind: ErasedKind) -> bool:
        """Collect an event that holds content; return whether it is erased."""
        section = event.section if isinstance(event, SummaryUpdated) else None
        run = None if section is None else (section, self._emptied.get(section, 0))
        erased = self._target.includes(commit, event, run)
        fact = fact_of(event)
        if erased:
            fact_id = None if fact is None else fact.id
            redacted = Redacted(self._stream, commit.seq, index, kind, fact=fact_id, section=section)
            self.redacted.append(self._marked(redacted, event))
        if fact is not None:
            self.merged = self.merged or (erased and bool(fact.consolidated_from))
            self._take_fact(event, fact, erased=erased)
        if isinstance(event, SummaryUpdated) and run is not None:
            self._take_section(commit, event, run, erased=erased)
        if isinstance(event, SummaryShared):
            self._take_shared(commit, event, erased=erased)
        return erased

    def _marked(self, redacted: Redacted, event: Event) -> Redacted:
        """Add the mark that keeps a model from adding the text of an erased fact or candidate again."""
        content = _content(event)
        if self._seal is None or content is None or (key := mark_key(content)) in self._staying:
            return redacted
        return msgspec.structs.replace(redacted, mark=self._seal(MARKED, key), marked_after=self._said)

    def _take_shared(self, commit: Commit, event: SummaryShared, *, erased: bool) -> None:
        if erased:
            self.own.add((commit.seq, event.section))
        else:
            cause = commit.cause
            self.shared[event.section] = _RestatedSection(Section(event.text), cause.thread, cause.turns)

    def _take_fact(self, event: Event, fact: Fact, *, erased: bool) -> None:
        target = self._target
        if not erased:
            self._use(fact_texts_in(event))
        elif (isinstance(event, FactRemoved) and not target.stays(fact.id)) or (
            target.matching and target.says(fact_texts_in(event))
        ):
            self.facts.add(fact.id)

    def _take_section(self, commit: Commit, event: SummaryUpdated, run: tuple[str, int], *, erased: bool) -> None:
        key = summary_in(event)
        if erased and key is not None:
            self.summaries.add(key)
        if event.after == Section():
            if erased:
                self.runs.add(run)
            self._empty(event.section)
        elif key is not None:
            if not erased:
                self.sections[event.section] = _RestatedSection(event.after, key.thread, key.turns)
        elif not self._target.may_restate(commit, event.section, event.after.summary):
            self.received.update(
                (e.agent, e.seq, event.section) for e in commit.events if isinstance(e, SummariesReceived)
            )
        else:
            cause = commit.cause
            before = self.sections.get(event.section)
            if cause.thread is None and before is not None and before.section.summary == event.after.summary:
                self.sections[event.section] = msgspec.structs.replace(before, section=event.after)
            else:
                self.sections[event.section] = _RestatedSection(event.after, cause.thread, cause.turns)

    def _empty(self, section: str) -> None:
        self._emptied[section] = self._emptied.get(section, 0) + 1
        self.sections.pop(section, None)

    def _use(self, texts: Iterable[str]) -> None:
        if self._unused and (used := self._unused.used_in(texts)):
            self._unused = ErasedWords(self._unused.all - used)
            self._needles = self._sought()

    def _sought(self) -> frozenset[str]:
        """Return what a text has to hold to be of any concern."""
        # The rare words are among the unused ones.
        return self._unused.all | self._target.phrases.texts

    def unused(self) -> frozenset[str]:
        """Return the words of the target that occur in no fact that stays."""
        for fact in self._target.memory.facts.values():
            if self._target.stays(fact.id):
                self._use(all_fact_texts(fact))
        return self._unused.all


def _content(event: Event) -> str | None:
    """Return the text that an event gives a fact, or was to give it; None for any other event."""
    if isinstance(event, CandidateRejected) and isinstance(event.candidate, NewFact | Consolidation | Edit):
        return event.candidate.content
    fact = fact_of(event)
    return None if fact is None else fact.content


def walk_until_settled(
    target: ErasureTarget, ledger: Walk, used: set[str], seal: ContentSeal | None, said: int
) -> LedgerWalk:
    """Walk the ledger until a walk finds nothing new, and return that walk.

    Args:
        target: what to erase; it is extended by each walk.
        ledger: starts reading the ledger at each call.
        used: the words of the target that occur in turns that stay.
        seal: as for `plan_erasure`.
        said: as for `plan_erasure`.
    """
    while True:
        walk = LedgerWalk(target, ledger.stream, seal, said)
        for commit in ledger(walk.matters if target.is_narrow else None):
            walk.take(commit)
        if not target.extend(walk.facts, walk.runs, walk.unused() - used, walk.summaries):
            return walk
