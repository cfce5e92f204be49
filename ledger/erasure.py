"""Forgetting for good: which contents of both streams have to go, and what is said again of what stays.

Planning is pure and reads the streams from the first line to the last, several times and never holding more than what
goes. The ledger is walked until a walk finds nothing new: each event that goes may take along a fact (one whose removal
is erased would come back to life in a replay), and with it the last retained use of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

import msgspec

from ledger.commit import Commit
from ledger.content import Phrases, Words, about, asides, fact_texts, folded, texts_of, turn_texts, words_in
from ledger.errors import NotFoundError, UsageError
from ledger.events import (
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    Redacted,
    Removal,
    Section,
    SummaryUpdated,
    Turn,
    TurnRange,
    TurnRecorded,
    UpdateFailed,
    UpdateProposed,
)
from ledger.lineage import Lineage
from ledger.memory import Memory, birth

__all__ = [
    "Erasure",
    "ForgetEverything",
    "ForgetExpired",
    "ForgetFact",
    "ForgetMatching",
    "ForgetThread",
    "Plan",
    "Sharing",
    "plan_erasure",
]


class ForgetFact(msgspec.Struct, frozen=True):
    """Erase a fact wherever its words stand in the ledger; `with_evidence` also the turns it was learned from."""

    fact_id: str
    with_evidence: bool = False


class ForgetThread(msgspec.Struct, frozen=True):
    """Erase a conversation and what was learned from it."""

    thread: str


class ForgetMatching(msgspec.Struct, frozen=True):
    """Erase whatever holds a text, in any case and Unicode form."""

    text: str


class ForgetEverything(msgspec.Struct, frozen=True):
    """Erase all content of both streams."""


class ForgetExpired(msgspec.Struct, frozen=True):
    """Erase turns recorded before a time, spelled as the logs spell it.

    `covered` tells by thread and ordinal of which turns nothing is to be learned any more; the others stay.
    """

    before: str
    covered: Callable[[str, int], bool]


Erasure: TypeAlias = ForgetFact | ForgetThread | ForgetMatching | ForgetEverything | ForgetExpired
"""What is asked to be erased."""

Walk: TypeAlias = Callable[[], Iterable[Commit]]
"""Begins anew at a stream's first commit each time it is called."""


class Sharing(msgspec.Struct, frozen=True):
    """What stays although it was learned from the same turns: `kind` is fact or section, `id` the section's name.

    A fact that what goes was merged into is one of them, and so is one that was merged into what goes: it is out of
    memory, but not out of the ledger.
    """

    kind: str
    id: str
    content: str


class Plan(msgspec.Struct, frozen=True):
    """What an erasure writes: a Redacted event for each content that goes, then what is said again of what stays."""

    redacted: tuple[Redacted, ...]
    restated: tuple[LedgerEvent, ...] = ()
    also: tuple[Sharing, ...] = ()

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """The events of the redaction's commit, in order."""
        return (*self.redacted, *self.restated)

    @property
    def slots(self) -> set[tuple[str, int, int]]:
        """What is to be overwritten: stream, seq, index."""
        return {(event.stream, event.seq, event.index) for event in self.redacted}


_OURS = ("manual", "import")

_WHAT: dict[type, str] = {
    FactAdded: "fact",
    FactRemoved: "fact",
    FactRevised: "fact",
    SummaryUpdated: "section",
    CandidateRejected: "candidate",
    UpdateFailed: "failure",
    UpdateProposed: "proposal",
}


class _Sources:
    """Turns that one fact was learned from: by id, or whole updates where none was cited."""

    def __init__(self) -> None:
        self.cited: set[tuple[str, str]] = set()
        self.updates: list[tuple[str, TurnRange]] = []
        self._named: list[_Turn] = []
        self._shown: list[_Turn] = []

    def cite(self, thread: str, ids: Iterable[str]) -> None:
        self.cited |= {(thread, turn_id) for turn_id in ids}

    def look_at(self, turn: _Turn) -> None:
        """Keep a turn where it is one of them."""
        if (turn.thread, turn.turn.id) in self.cited:
            self._named.append(turn)
        elif not self._named and any(
            turn.thread == thread and turns.first <= turn.turn.n <= turns.last for thread, turns in self.updates
        ):
            self._shown.append(turn)

    def found(self) -> list[_Turn]:
        """Return those that were kept; where some were cited, no others."""
        return self._named or self._shown


class _Aim:
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
        self.sources: dict[str, _Sources] = {}
        """By the id of the fact, or of what it was merged from."""

    def seek(self, texts: Iterable[str], *, phrases: bool = True, anywhere: bool = False) -> None:
        """Take texts in that must not be found afterwards, word for word or as single rare words."""
        for text in texts:
            self.sought |= words_in(text)
            if phrases:
                self.phrases.add(text, anywhere=anywhere)

    def says(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts says what must not be found."""
        return self.phrases.stand_in(texts)

    def of_thread(self, commit: Commit) -> bool:
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
            or bool(self.traced.used_in(asides(event)))
        )

    def clean(self, commit: Commit, text: str) -> bool:
        """Whether a section's text may be said again."""
        return not (
            self.everything or self.of_thread(commit) or self.says((text,)) or bool(self.traced.used_in((text,)))
        )

    def widen(self, facts: set[str], runs: set[tuple[str, int]], traced: frozenset[str]) -> bool:
        """Take in what a walk found; False where that is nothing new."""
        new = not (facts <= self.facts and runs <= self.runs and traced <= self.traced.all)
        self.facts |= facts
        self.runs |= runs
        self.traced = Words(traced | self.traced.all)
        return new


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
            fact = about(event)
            return () if fact is None else (fact.id,)


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


class _LedgerWalk:
    """One walk over the ledger, under what is known to go so far."""

    def __init__(self, aim: _Aim) -> None:
        self._aim = aim
        self._wanted = {root.seq for fact in aim.memory.facts.values() for root in aim.lineage.learned(fact)}
        self._emptied: dict[str, int] = {}
        self.slots: list[_Slot] = []
        self.facts: set[str] = set()
        self.runs: set[tuple[str, int]] = set()
        self._unused = Words(aim.sought)
        self.sections: dict[str, _Told] = {}
        self.merged = False
        """Whether a fact goes that others were merged into."""
        self.births: dict[int, Commit] = {}

    def take(self, commit: Commit) -> None:
        if commit.seq in self._wanted:
            self.births[commit.seq] = msgspec.structs.replace(commit, events=())
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
        fact = about(event)
        if goes:
            self.slots.append(_Slot(commit.seq, index, _WHAT[type(event)], None if fact is None else fact.id, section))
        if fact is not None:
            self.merged = self.merged or (goes and bool(fact.consolidated_from))
            self._settle(event, fact, goes=goes)
        if isinstance(event, SummaryUpdated) and run is not None:
            self._rewrite(commit, event, run, goes=goes)
        return goes

    def _settle(self, event: Event, fact: Fact, *, goes: bool) -> None:
        aim = self._aim
        if not goes:
            self._use(_said_of_fact(event))
        elif (isinstance(event, FactRemoved) and not aim.stays(fact.id)) or (
            aim.matching and aim.says(_said_of_fact(event))
        ):
            self.facts.add(fact.id)

    def _rewrite(self, commit: Commit, event: SummaryUpdated, run: tuple[str, int], *, goes: bool) -> None:
        if event.after == Section():
            if goes:
                self.runs.add(run)
            self._empty(event.section)
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


def _said_of_fact(event: Event) -> tuple[str, ...]:
    match event:
        case FactRevised(before=before, after=after):
            return (*fact_texts(before), *fact_texts(after))
        case _:
            fact = about(event)
            return () if fact is None else fact_texts(fact)


class _Said:
    """What of the transcript goes, and the turns that were the evidence, gone or not."""

    def __init__(self) -> None:
        self.redacted: dict[tuple[int, int], Redacted] = {}
        self.evidence: set[tuple[str, int]] = set()
        self.ids: set[tuple[str, str]] = set()

    def take(self, stream: str, said: _Turn, *, goes: bool) -> None:
        self.evidence.add((said.thread, said.turn.n))
        self.ids.add((said.thread, said.turn.id))
        if goes:
            self.redacted[said.seq, said.index] = _turn_redacted(stream, said, "turn")


class _Turn(msgspec.Struct, frozen=True):
    """A turn, and where it was recorded."""

    seq: int
    index: int
    at: str
    thread: str
    turn: Turn


def _turns(transcript: Walk) -> Iterator[_Turn]:
    for commit in transcript():
        for index, event in enumerate(commit.events):
            if isinstance(event, TurnRecorded):
                yield _Turn(commit.seq, index, commit.at, commit.cause.thread or "", event.turn)


def _turn_redacted(stream: str, said: _Turn, what: str) -> Redacted:
    turn = said.turn
    return Redacted(
        stream, said.seq, said.index, what, thread=said.thread, n=turn.n, turn=turn.id, size=len(turn.content)
    )


def _read_transcript(aim: _Aim, transcript: Walk, stream: str) -> _Said:
    """Find the turns that go, and what they say; nothing is asked of the ledger any more."""
    said = _Said()
    if isinstance(aim.request, ForgetFact):
        for turn in _turns(transcript):
            for sources in aim.sources.values():
                sources.look_at(turn)
        for turn in chain.from_iterable(sources.found() for sources in aim.sources.values()):
            said.take(stream, turn, goes=aim.request.with_evidence)
            if aim.request.with_evidence:
                aim.seek(turn_texts(turn.turn), phrases=False)
        return said
    for turn in _turns(transcript):
        if aim.everything or turn.thread == aim.thread or aim.says(turn_texts(turn.turn)):
            said.take(stream, turn, goes=True)
            if aim.thread is not None:
                aim.seek(turn_texts(turn.turn), phrases=False)
    return said


def _used_in_turns(aim: _Aim, transcript: Walk, said: _Said) -> set[str]:
    """The words looked for that a turn uses which stays."""
    used: set[str] = set()
    words = Words(aim.sought)
    for turn in _turns(transcript) if words else ():
        if (turn.seq, turn.index) not in said.redacted and (new := words.used_in(turn_texts(turn.turn))):
            used |= new
            words = Words(words.all - new)
    return used


def _aim_at_fact(aim: _Aim, fact_id: str, ledger: Walk) -> None:
    aim.facts.add(fact_id)
    for commit in ledger():
        for event in commit.events:
            fact = about(event)
            if fact is None or fact.id != fact_id:
                continue
            aim.seek(_said_of_fact(event))
            aim.sources |= {root.id: _Sources() for root in aim.lineage.learned(fact)}
    for commit in ledger():
        for event in commit.events:
            fact = about(event)
            if fact is None or (sources := aim.sources.get(fact.id)) is None:
                continue
            # Not the commit's thread: another conversation may have confirmed, removed or merged the fact.
            sources.cite(fact.source, fact.evidence)
            turns = commit.cause.turns
            if isinstance(event, FactAdded) and turns is not None and not fact.consolidated_from:
                sources.updates.append((fact.source, turns))


def _aim_at_thread(aim: _Aim, thread: str, ledger: Walk) -> None:
    for commit in ledger():
        ours = aim.of_thread(commit)
        for event in commit.events:
            fact = about(event)
            if fact is not None and (
                fact.id in aim.facts
                or (fact.source == thread and thread not in _OURS)
                or (ours and isinstance(event, FactAdded))
            ):
                aim.facts.add(fact.id)
                aim.seek(_said_of_fact(event))
            if ours and isinstance(event, SummaryUpdated):
                aim.seek(filter(None, (event.after.summary, event.proposed)))
            elif ours and not isinstance(event, UpdateFailed):
                aim.seek(asides(event), phrases=False)


def _aim(request: Erasure, memory: Memory, ledger: Walk) -> _Aim:
    """Take the request's own words in.

    Raises:
        UsageError: a text with nothing in it.
    """
    aim = _Aim(request, memory, Lineage(ledger))
    match request:
        case ForgetFact(fact_id=fact_id):
            _aim_at_fact(aim, fact_id, ledger)
        case ForgetThread(thread=thread):
            _aim_at_thread(aim, thread, ledger)
        case ForgetMatching(text=text):
            if not folded(text):
                raise UsageError("the text to forget is empty: say what is to be found and erased")
            aim.seek((text,), anywhere=True)
        case _:
            pass
    aim.facts |= {fact.id for fact in memory.facts.values() if aim.everything or aim.says(fact_texts(fact))}
    return aim


def _walk_until_settled(aim: _Aim, ledger: Walk, used: set[str]) -> _LedgerWalk:
    while True:
        walk = _LedgerWalk(aim)
        for commit in ledger():
            walk.take(commit)
        if not aim.widen(walk.facts, walk.runs, walk.unused() - used):
            return walk


def _restated(walk: _LedgerWalk, aim: _Aim) -> tuple[LedgerEvent, ...]:
    """Say again what is named by an erased event and stays."""
    facts = {slot.fact for slot in walk.slots}
    sections = {slot.section for slot in walk.slots}
    staying = [fact for fact in aim.memory.facts.values() if fact.id in facts and aim.stays(fact.id)]
    return (
        *(FactAdded(fact) for fact in sorted(staying, key=birth)),
        *(
            SummaryUpdated(name, Section(), told.section)
            for name, told in sorted(walk.sections.items())
            if name in sections
        ),
    )


def _sharing(walk: _LedgerWalk, aim: _Aim, said: _Said) -> Iterator[Sharing]:
    def seen(thread: str | None, turns: TurnRange | None) -> bool:
        return turns is not None and any(
            thread == other and turns.first <= n <= turns.last for other, n in said.evidence
        )

    def shares(fact: Fact) -> bool:
        cause = walk.births[fact.seq].cause if fact.seq in walk.births else None
        return any((fact.source, turn_id) in said.ids for turn_id in fact.evidence) or (
            not fact.evidence and cause is not None and fact.source == cause.thread and seen(cause.thread, cause.turns)
        )

    lineage = aim.lineage
    staying = [fact for fact in aim.memory.in_order() if aim.stays(fact.id)]
    for fact in staying:
        if not aim.facts.isdisjoint(lineage.ancestors(fact)) or any(map(shares, lineage.learned(fact))):
            yield Sharing("fact", fact.id, fact.content)
    gone = {slot.fact for slot in walk.slots}
    named = gone.union(fact.id for fact in staying)
    for fact in lineage.merged_into(aim.facts) if walk.merged else ():
        if fact.id not in named:
            yield Sharing("fact", fact.id, fact.content)
    for name, told in sorted(walk.sections.items()):
        if seen(told.thread, told.turns):
            yield Sharing("section", name, told.section.summary)


def _not_there(request: Erasure) -> NotFoundError:
    match request:
        case ForgetFact(fact_id=fact_id):
            what = f"of fact {fact_id}: there never was one, or it is erased already"
        case ForgetThread(thread=thread):
            what = f"of thread {thread}: there never was one, or it is erased already"
        case ForgetMatching():
            what = "that holds this text"
        case _:
            what = "at all"
    return NotFoundError(f"there is nothing {what}; see `log` and `threads`")


def plan_erasure(
    request: Erasure, memory: Memory, *, ledger: Walk, transcript: Walk, ledger_stream: str, transcript_stream: str
) -> Plan:
    """Plan what an erasure takes away from both streams, and what it says again.

    `ledger` and `transcript` begin the streams anew each time they are called, `memory` is today's. What is erased
    already is passed over. Of expired turns there may be none: then the plan is empty.

    Raises:
        UsageError: a text to match that is empty.
        NotFoundError: there is nothing to erase.
    """
    if isinstance(request, ForgetExpired):
        return Plan(
            tuple(
                _turn_redacted(transcript_stream, turn, "expired")
                for turn in _turns(transcript)
                if turn.at < request.before and request.covered(turn.thread, turn.turn.n)
            )
        )
    aim = _aim(request, memory, ledger)
    said = _read_transcript(aim, transcript, transcript_stream)
    walk = _walk_until_settled(aim, ledger, _used_in_turns(aim, transcript, said))
    if not walk.slots and not said.redacted:
        raise _not_there(request)
    redacted = (
        Redacted(ledger_stream, slot.seq, slot.index, slot.what, fact=slot.fact, section=slot.section)
        for slot in sorted(walk.slots, key=lambda slot: (slot.seq, slot.index))
    )
    return Plan((*redacted, *said.redacted.values()), _restated(walk, aim), tuple(_sharing(walk, aim, said)))
