"""What was said: the threads of one scope, folded from its transcript; what of a delivery is new, `arrival` tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ledger.commit import EMPTY, Commit, Head
from ledger.events import Redacted, Turn, TurnRange, TurnRecorded, TurnSuperseded

__all__ = ["Earlier", "Thread", "Threads", "Trace", "Transcript"]


class Trace(msgspec.Struct, frozen=True):
    """What is left of an erased turn."""

    n: int
    id: str
    size: int

    @property
    def anonymous(self) -> bool:
        """Whether its id was ours."""
        return self.id == f"t{self.n}"


class Thread:
    """One conversation: its turns by ordinal, which of them still stand, and the commit that recorded each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns: list[Turn | None] = []
        """By ordinal, from 1 at index 0; None where the content was erased."""
        self.seqs: list[int] = []
        self.recorded_at: list[str] = []
        self.superseded: set[int] = set()
        """The turns that stand no longer: another text was sent in their place, or they were taken back."""
        self.withdrawn: set[int] = set()
        """Those of them that were taken back."""
        self.latest: dict[str, int] = {}
        """The ordinal of the last turn under each id that the host gave."""
        self.traces: dict[int, Trace] = {}
        """What is left of the turns that were erased, by ordinal."""

    def take(self, commit: Commit) -> None:
        """Take in a commit of the transcript that is about this thread."""
        recorded = commit.cause.turns
        for event in commit.events:
            if isinstance(event, TurnSuperseded):
                self.superseded.add(event.n)
                if recorded is None:
                    self.withdrawn.add(event.n)
        # The recorded turns stand last in the commit, so that an erased one keeps its ordinal.
        count = 0 if recorded is None else recorded.last - recorded.first + 1
        if recorded is not None:
            # Where a transcript was cut short, or an older copy put in its place, ordinals are missing.
            lost = recorded.first - 1 - len(self.turns)
            self.turns += [None] * lost
            self.seqs += [commit.seq] * lost
            self.recorded_at += [commit.at] * lost
        for event in commit.events[len(commit.events) - count :]:
            turn = event.turn if isinstance(event, TurnRecorded) else None
            self.turns.append(turn)
            self.seqs.append(commit.seq)
            self.recorded_at.append(commit.at)
            if turn is not None and not turn.anonymous:
                self.latest[turn.id] = turn.n

    def redact(self, event: Redacted) -> None:
        """Keep of an erased turn what its redaction says, and let go of the rest."""
        if event.n is None:
            return
        if event.n <= len(self.turns):
            self.turns[event.n - 1] = None
        if event.turn is not None and event.size is not None:
            self.traces[event.n] = Trace(event.n, event.turn, event.size)
            if self.latest.get(event.turn) == event.n:
                del self.latest[event.turn]

    def stands(self, n: int) -> bool:
        """Whether the turn is there and was not replaced by another text."""
        return 1 <= n <= len(self.turns) and self.turns[n - 1] is not None and n not in self.superseded

    def standing(self, first: int = 1, last: int | None = None) -> list[Turn]:
        """The turns that stand, in order, between two ordinals, both included."""
        end = len(self.turns) if last is None else last
        return [turn for turn in self.turns[first - 1 : end] if turn is not None and turn.n not in self.superseded]

    def find(self, turn_id: str, within: TurnRange | None = None) -> Turn | None:
        """The turn of an id: its latest text, or the latest one inside a range; the host's ids come before ours."""
        if within is None and (n := self.latest.get(turn_id)) is not None:
            return self.turns[n - 1]
        inside = self.turns if within is None else self.turns[within.first - 1 : within.last]
        found = [turn for turn in inside if turn is not None and turn.id == turn_id]
        return max(found, key=lambda turn: (not turn.anonymous, turn.n), default=None)


class Earlier(Protocol):
    """The threads as they were at the moment a transcript goes on from; each is loaded when it is asked for."""

    def load(self, name: str) -> Thread | None:
        """Return a thread as it was then; None where it was not there."""

    def names(self) -> Sequence[str]:
        """Return the names of all threads there were, by first word."""

    def unsettled(self) -> Sequence[str]:
        """Return at least the threads in which a turn was not covered, by first word."""


class Threads(Mapping[str, Thread]):
    """All threads of a scope by name, in the order of their first words; those from before are loaded on demand."""

    def __init__(self, earlier: Earlier | None = None) -> None:
        self._earlier = earlier
        self._loaded: dict[str, Thread] = {}
        self._absent: set[str] = set()

    def __getitem__(self, name: str) -> Thread:
        thread = self._loaded.get(name) or self._load(name)
        if thread is None:
            raise KeyError(name)
        return thread

    def _load(self, name: str) -> Thread | None:
        if self._earlier is None or name in self._absent:
            return None
        thread = self._earlier.load(name)
        if thread is None:
            self._absent.add(name)
        else:
            self._loaded[name] = thread
        return thread

    def __iter__(self) -> Iterator[str]:
        before = () if self._earlier is None else self._earlier.names()
        return iter(dict.fromkeys([*before, *self._loaded]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def opened(self, name: str) -> Thread:
        """Return the thread, a new one where there is none yet."""
        thread = self.get(name)
        if thread is None:
            thread = self._loaded[name] = Thread(name)
        return thread

    def unsettled(self) -> list[str]:
        """Return at least the threads in which a turn is not covered, by first word."""
        if self._earlier is None:
            return list(self._loaded)
        return list(dict.fromkeys([*self._earlier.unsettled(), *self._loaded]))


class Transcript:
    """All threads of a scope; fold commits with `apply`, in order, from `head` on."""

    def __init__(self, head: Head = EMPTY, at: str = "", turns: int = 0, earlier: Earlier | None = None) -> None:
        self.head = head
        self.at = at
        self.turn_count = turns
        """How many turns were ever recorded."""
        self.threads = Threads(earlier)

    def apply(self, commit: Commit) -> None:
        """Take one commit in."""
        name, recorded = commit.cause.thread, commit.cause.turns
        if name is not None:
            self.threads.opened(name).take(commit)
            self.turn_count += 0 if recorded is None else recorded.last - recorded.first + 1
        self.head, self.at = commit.head, commit.at
