"""In-memory scope of a reextraction: a writer whose commits change a memory and are written nowhere.

A fact with the same text keeps its number (`Alignment`). A fact's number comes from its place in the answer, and later
edits and answers refer to it by that number. A different fact in a new answer must not take that place, or an edit of
the old fact would change the new one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count

import msgspec

from backstory.ledger.core.commands import Command, Extract
from backstory.ledger.core.commit import EMPTY, Cause, Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import Candidate, Consolidation, LedgerEvent, NewFact, Removal, Turn
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.log.marked import Marked
from backstory.ledger.log.reader import State
from backstory.ledger.log.writer import Writer
from backstory.ledger.rules.decide import decide
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread, Transcript

_NEW, _MERGED = "newFacts/", "factsToConsolidate/"
_FIRST_NEW = 1_000_000
_FIRST_MERGED = 20_000
"""No recorded answer reaches these numbers of items, so no ledger has them."""


class Alignment:
    """Assigns places to the candidates of an update's new answers, given the candidates of the recorded answer."""

    def __init__(self, recorded: Iterable[Candidate]) -> None:
        self._known: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for candidate in recorded:
            if isinstance(candidate, NewFact | Consolidation):
                self._known[_identity(candidate)].append(candidate.place)
        self._fresh = {_NEW: count(_FIRST_NEW), _MERGED: count(_FIRST_MERGED)}

    def align(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Return an answer's candidates with their places; a removal's replacement refers to the same candidate."""
        answer = list(candidates)
        places = dict(self._places(answer))
        unused = next(self._fresh[_NEW])
        return tuple(_moved(candidate, places, unused) for candidate in answer)

    def _places(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, str]]:
        for candidate in candidates:
            prefix, slash, index = candidate.place.rpartition("/")
            numbers = self._fresh.get(prefix + slash)
            if numbers is not None and index.isdigit():
                known = self._known[_identity(candidate)] if isinstance(candidate, NewFact | Consolidation) else None
                yield candidate.place, known.popleft() if known else f"{prefix}{slash}{next(numbers)}"


def _identity(candidate: NewFact | Consolidation) -> tuple[str, str]:
    return type(candidate).__name__, dedup_key(candidate.content)


def _moved(candidate: Candidate, places: dict[str, str], unused: int) -> Candidate:
    moved = msgspec.structs.replace(candidate, place=places.get(candidate.place, candidate.place))
    if not isinstance(moved, Removal) or moved.replacement is None:
        return moved
    place = places.get(f"{_NEW}{moved.replacement}")
    index = unused if place is None else int(place.removeprefix(_NEW))
    return msgspec.structs.replace(moved, replacement=index)


class InMemoryScope(Writer):
    """A writer for asking a model again about the turns of one recorded update; writes nothing.

    Every commit has the date of the recorded commit, and is decided on the memory that the commit before it left.
    Together they replace the recorded commit, so the memory's seq stays before it.

    Args:
        writer: the scope's writer, which is only read.
        memory: the memory before the recorded commit.
        recorded: the recorded commit.
        turns: the turns to ask about.
        alignment: keeps the numbers of facts.
        citable: other turns of the thread that may be cited.
        users: the user's memory whose sections the prompt shows; None for those of the scope itself.
    """

    def __init__(
        self,
        writer: Writer,
        memory: Memory,
        recorded: Commit,
        turns: Sequence[Turn],
        alignment: Alignment,
        *,
        citable: Sequence[Turn] = (),
        users: Memory | None = None,
    ) -> None:
        super().__init__(writer.store, writer.scope, clock=writer.clock)
        self._recorded = recorded
        self._alignment = alignment
        self._users = users
        self._fold = Fold(memory)
        self._coverage = Coverage()
        name = recorded.cause.thread or ""
        with writer.reader.state() as state:
            known = state.transcript.threads.get(name) or Thread(name)
            self._transcript = _transcript_of(known, turns, citable)
        self.outcomes: list[tuple[LedgerEvent, ...]] = []
        """The events of each commit."""

    @contextmanager
    def state(self, *, durable: bool = True) -> Iterator[State]:
        """Yield the memory so far, and the turns that stood when the recorded update was made."""
        del durable
        memory = self._fold.memory()
        shown = memory if self._users is None else memory.with_sections_of(self._users)
        yield State(shown, self._coverage, self._transcript)

    def commit(
        self,
        command: Command,
        cause: Cause,
        *,
        at: datetime | None = None,
        log: str | None = None,
        expected: str | None = None,
    ) -> Commit:
        """Decide a command and apply its events; the returned commit belongs to no chain."""
        del at, log, expected
        moment = self._recorded.at
        if isinstance(command, Extract):
            candidates = self._alignment.align(command.proposal.candidates)
            proposal = msgspec.structs.replace(command.proposal, candidates=candidates)
            users = None if self._users is None else self._users.seq
            command = msgspec.structs.replace(command, proposal=proposal, users=users)
            thread = self._transcript.threads[command.thread]
            memory = self._fold.memory()
            command = Marked(memory, self._secret, thread, cause.turns).completed(command)
        command = msgspec.structs.replace(command, at=moment, heat=self._recorded.cause.heat)
        events = decide(self._fold.memory(), command)
        for event in events:
            self._fold.apply(event)
        self.outcomes.append(events)
        commit = Commit(self._recorded.seq, moment, cause, events, EMPTY.hash, EMPTY.hash)
        self._coverage.apply(commit)
        return commit


def _transcript_of(known: Thread, turns: Sequence[Turn], citable: Sequence[Turn]) -> Transcript:
    """Return a transcript of the turns, and of the citable turns outside of their range."""
    inside = range(turns[0].n, turns[-1].n + 1)
    outside = [turn for turn in citable if turn.n not in inside]
    transcript = Transcript()
    thread = transcript.threads.opened(known.name)
    by_number = {turn.n: turn for turn in (*turns, *outside)}
    for n in range(1, max(by_number) + 1):
        thread.turns.append(by_number.get(n))
        thread.seqs.append(known.seqs[n - 1] if n <= len(known.seqs) else 1)
        thread.recorded_at.append(turns[-1].at)
    return transcript
