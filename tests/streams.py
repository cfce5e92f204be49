"""A transcript and what a ledger says about it, written by hand; and the memory that a ledger comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.events import Event, Turn, TurnRange, TurnRecorded, TurnSuperseded, UpdateFailed
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread, Transcript
from backstory.projections.history.moment import Moment

AT = "2026-03-01T12:00:00.000000Z"


def turn(n: int, role: str = "user", content: str = "words") -> Turn:
    return Turn(n=n, id=f"t{n}", role=role, content=content, at=AT, anonymous=True)


@dataclass
class Streams:
    """A transcript and what a ledger says about it, told by hand."""

    transcript: Transcript = field(default_factory=Transcript)
    coverage: Coverage = field(default_factory=Coverage)
    seq: int = 0

    def thread(self, name: str = "t") -> Thread:
        return self.transcript.threads.get(name, Thread(name))

    def record(self, count: int = 1, *, superseding: tuple[int, ...] = (), name: str = "t") -> None:
        first = len(self.thread(name).turns) + 1
        events: list[Event] = [TurnSuperseded(n) for n in superseding]
        events += [TurnRecorded(turn(n)) for n in range(first, first + count)]
        cause = Cause(kind="record", thread=name, turns=TurnRange(first, first + count - 1))
        seq = self.transcript.head.seq + 1
        self.transcript.apply(Commit(seq, AT, cause, tuple(events), "", str(seq)))

    def commit(self, cause: Cause, *events: Event) -> None:
        self.seq += 1
        self.coverage.apply(Commit(self.seq, AT, cause, events, "", str(self.seq)))

    def cover(self, first: int, last: int, *, name: str = "t", kind: str = "extraction") -> None:
        self.commit(Cause(kind=kind, thread=name, turns=TurnRange(first, last)))

    def park(self, first: int, last: int, *, name: str = "t", reason: str = "reply", attempts: int = 1) -> None:
        failed = UpdateFailed(reason, "why", attempts, TurnRange(first, last))
        self.commit(Cause(kind="extraction", thread=name), failed)

    def clear(self, pin: int | None = None) -> None:
        at = self.transcript.head if pin is None else Head(pin, str(pin))
        self.commit(Cause(kind="clear", transcript=at))

    def pending(self, name: str = "t") -> list[tuple[int, int]]:
        return [(run.first, run.last) for run in self.coverage.pending(self.thread(name))]

    def parked(self, name: str = "t") -> list[tuple[int, int]]:
        return [(item.turns.first, item.turns.last) for item in self.coverage.parked(self.thread(name))]


def recorded(count: int) -> Streams:
    streams = Streams()
    streams.record(count)
    return streams


def memory_at(store: EventStore, scope: Scope, moment: Moment) -> Memory:
    """Rebuild the memory after a commit or at a time, from the first commit on."""
    state = Fold(Memory())
    for commit in read_commits(store, scope.stream(LEDGER)):
        if commit.seq > moment if isinstance(moment, int) else commit.at > moment:
            break
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    assert not isinstance(moment, int) or state.seq == moment, f"there is no commit {moment}"
    return state.memory()
