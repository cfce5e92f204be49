"""Transcript of one scope: its threads and their turns, folded from commits. `turn_dedup` finds what is new."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.events import Redacted, Turn, TurnRange, TurnRestored, TurnSuperseded
from backstory.ledger.threads.turn_columns import EarlierTurns, Trace, TurnColumn, turns_of

_NEWEST = 100
"""How many threads are looked at for what may be in any of them."""

_MOST_SOUGHT = 64
"""A thread remembers for at most this many searches how far they went."""


class Thread:
    """One conversation: its turns by ordinal, which of them still stand, and the commit that recorded each.

    With `earlier` the turns from before are loaded when they are asked for, a block at a time.
    """

    def __init__(self, name: str, earlier: EarlierTurns | None = None) -> None:
        self.name = name
        self._earlier = earlier
        count = 0 if earlier is None else earlier.count
        load = None if earlier is None else self._load
        self.turns: TurnColumn[Turn | None] = TurnColumn(count, load)
        """By ordinal, from 1 at index 0; None where the content was erased."""
        self.seqs: TurnColumn[int] = TurnColumn(count, load)
        self.recorded_at: TurnColumn[str] = TurnColumn(count, load)
        self.superseded: set[int] = set() if earlier is None else set(earlier.superseded)
        """The turns that stand no longer: another text was sent in their place, or they were taken back."""
        self.withdrawn: set[int] = set() if earlier is None else set(earlier.withdrawn)
        """Those of them that were taken back."""
        self.restored: dict[int, int] = {} if earlier is None else dict(earlier.restored)
        """The turns that were restored and are to be learned from again, with the commit that brought them back."""
        self.restorations = 0
        """How many turns were restored since this was folded."""
        self._back: dict[int, int] = {}
        """The turns that were, with the commit that brought them back."""
        self._taken_back: dict[int, int] = {}
        """The turns that were taken back since this was folded, with the commit that did it."""
        self._traces: dict[int, Trace] = {}
        self._latest: dict[str, int] | None = {} if earlier is None else None
        self._earliest: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The ordinal of the last turn under each id, also where an earlier one was restored."""
        self._erased_ids: dict[str, list[Trace]] | None = None
        self._forgotten: set[str] | None = None
        self._sought: dict[tuple[Callable[[Turn], bool], int], int] = {}
        self._sought_back: dict[tuple[Callable[[Turn], bool], int], tuple[int, int]] = {}
        """From where each search went back, and the last turn that it found; the ordinal before its range if none."""

    @property
    def latest(self) -> dict[str, int]:
        """The ordinal of the last turn under each id that the host gave, or of the one that was restored.

        Loads all turns.
        """
        if self._latest is None:
            self._latest = {}
            for turn in self.turns:
                self._name(turn)
        return self._latest

    @property
    def earliest(self) -> dict[str, int]:
        """The ordinal of the first turn under each id that the host gave; loads all turns."""
        return self._earliest if self.latest else {}

    def _name(self, turn: Turn | None) -> None:
        if turn is None or turn.anonymous or self._latest is None:
            return
        self._earliest.setdefault(turn.id, turn.n)
        self._last[turn.id] = max(turn.n, self._last.get(turn.id, 0))
        if self.stands(turn.n) or not self.stands(self._latest.get(turn.id, 0)):
            self._latest[turn.id] = turn.n

    def _unname(self, n: int) -> None:
        """Let an id mean its last turn again, where the one that it meant stands no longer."""
        turn = self.turns[n - 1] if self._latest is not None and n <= len(self.turns) else None
        if turn is not None and self._latest is not None and self._latest.get(turn.id) == n and not turn.anonymous:
            self._latest[turn.id] = self._last[turn.id]

    @property
    def is_redacted(self) -> bool:
        """Whether a turn was erased."""
        return bool(self._traces) or (self._earlier is not None and self._earlier.redacted)

    @property
    def traces(self) -> Mapping[int, Trace]:
        """What is left of the turns that were erased, by ordinal; loads all turns if any was erased."""
        if self._earlier is not None and self._earlier.redacted:
            for _ in self.turns:
                pass
        return self._traces

    @property
    def erased_ids(self) -> dict[str, list[Trace]]:
        """What is left of the turns that were erased, by id; loads all turns if any was erased."""
        if self._erased_ids is None:
            self._erased_ids = {}
            for _, trace in sorted(self.traces.items()):
                self._erased_ids.setdefault(trace.id, []).append(trace)
        return self._erased_ids

    @property
    def forgotten(self) -> set[str]:
        """The digests of turns that were forgotten on request: their words stay out, wherever they are sent again.

        Loads all turns if any was erased.
        """
        if self._forgotten is None:
            left = self.traces.values()
            self._forgotten = {trace.digest for trace in left if trace.digest is not None and not trace.expired}
        return self._forgotten

    def take(self, commit: Commit) -> None:
        """Take in a commit of the transcript that is about this thread."""
        for event in commit.events:
            if isinstance(event, TurnSuperseded):
                self.superseded.add(event.n)
                if commit.cause.kind == "withdrawal":
                    self.withdrawn.add(event.n)
                    self._taken_back[event.n] = commit.seq
                self._unname(event.n)
            elif isinstance(event, TurnRestored):
                self._restore(event, commit.seq)
        for turn in turns_of(commit, len(self.turns)):
            self.turns.append(turn)
            self.seqs.append(commit.seq)
            self.recorded_at.append(commit.at)
            self._name(turn)

    def _restore(self, event: TurnRestored, seq: int) -> None:
        self.superseded.discard(event.n)
        self.withdrawn.discard(event.n)
        if event.again:
            self.restored[event.n] = seq
        self.restorations += 1
        self._back[event.n] = seq
        self._sought.clear()
        self._sought_back.clear()
        if self._latest is not None and event.n <= len(self.turns):
            self._name(self.turns[event.n - 1])

    def redact(self, event: Redacted) -> None:
        """Keep of an erased turn what its redaction says, and let go of the rest.

        A thread with `earlier` turns cannot: after an erasure it is folded anew.
        """
        if event.n is None:
            return
        if event.n <= len(self.turns):
            self.turns.put(event.n - 1, None)
        trace = Trace.of(event)
        if trace is not None:
            self._traces[trace.n] = trace
            self._erased_ids = self._forgotten = None
            if self._latest is not None and self._latest.get(trace.id) == trace.n:
                del self._latest[trace.id]

    def _load(self, n: int) -> None:
        """Load the turns around an ordinal."""
        if self._earlier is None:
            return
        block = self._earlier.block(n)
        start = block.first - 1
        self.turns.fill(start, block.turns)
        self.seqs.fill(start, block.seqs)
        self.recorded_at.fill(start, block.recorded_at)
        self._traces.update(block.traces)

    def recorded_by(self, seq: int) -> int:
        """How many of the turns were recorded up to a commit of the transcript."""
        earlier = self._earlier
        if seq <= 0:
            return 0
        if earlier is not None and seq < earlier.seq:
            return earlier.recorded_by(seq)
        return bisect_right(self.seqs, seq, lo=0 if earlier is None else earlier.count)

    def stands(self, n: int) -> bool:
        """Whether the turn is there and was not replaced by another text."""
        return 1 <= n <= len(self.turns) and n not in self.superseded and self.turns[n - 1] is not None

    def restored_after(self, seq: int, turns: TurnRange) -> bool:
        """Whether a turn of a range was restored after a commit of the transcript, so a reader then missed it."""
        return any(turns.first <= n <= turns.last and back > seq for n, back in self._back.items())

    def withdrawn_after(self, seq: int, turns: TurnRange) -> bool:
        """Whether a turn of a range was taken back after a commit of the transcript, so a reader has seen it then."""
        return any(n in self.withdrawn and self._taken_back.get(n, 0) > seq for n in range(turns.first, turns.last + 1))

    def may_be_restored(self, n: int) -> bool:
        """Whether the turn is there and stands no longer, and no later text stands under its id."""
        turn = self.turns[n - 1] if 1 <= n <= len(self.turns) and n in self.superseded else None
        return turn is not None and (turn.anonymous or not self.stands(self.latest.get(turn.id, 0)))

    def remembered(self, n: int) -> Turn | Trace | None:
        """The turn if it stands or was taken back, or what is left of one that did when it was erased."""
        if n in self.superseded and n not in self.withdrawn:
            return None
        turn = self.turns[n - 1]
        return self._traces.get(n) if turn is None else turn

    def walk(self, first: int = 1, last: int | None = None, *, back: bool = False) -> Iterator[Turn]:
        """Yield the turns that stand between two ordinals, in order or from the last `back` to the first.

        No more are loaded than are asked for.
        """
        indexes = range(first - 1, len(self.turns) if last is None else min(last, len(self.turns)))
        for index in reversed(indexes) if back else indexes:
            if index + 1 not in self.superseded and (turn := self.turns[index]) is not None:
                yield turn

    def standing(self, first: int = 1, last: int | None = None) -> list[Turn]:
        """The turns that stand, in order, between two ordinals, both included."""
        end = len(self.turns) if last is None else last
        return [turn for turn in self.turns[first - 1 : end] if turn is not None and turn.n not in self.superseded]

    def seek(self, test: Callable[[Turn], bool], first: int, last: int) -> int | None:
        """The first turn of a range that stands and passes a test.

        How far a search went in vain is remembered until a turn is restored: turns never change.
        """
        last = min(last, len(self.turns))
        start = max(first, self._sought.get((test, first), first))
        found = next((turn.n for turn in self.walk(start, last) if test(turn)), None)
        if len(self._sought) >= _MOST_SOUGHT:
            self._sought.clear()
        self._sought[test, first] = max(start, last + 1) if found is None else found
        return found

    def seek_back(self, test: Callable[[Turn], bool], last: int, first: int) -> int | None:
        """The last turn of a range that stands and passes a test.

        How far a search went in vain is remembered, as by `seek`, for ranges that begin and end no earlier.
        """
        last = max(min(last, len(self.turns)), first - 1)
        end, known = self._sought_back.get((test, first), (first - 1, first - 1))
        if last < end:
            end = known = first - 1
        found = next((turn.n for turn in self.walk(end + 1, last, back=True) if test(turn)), None)
        if found is None:
            found = next((turn.n for turn in self.walk(first, known, back=True) if test(turn)), None)
        if len(self._sought_back) >= _MOST_SOUGHT:
            self._sought_back.clear()
        self._sought_back[test, first] = last, first - 1 if found is None else found
        return found

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

    def newest(self) -> Iterator[Thread]:
        """Yield the threads that began last, the newest first; of very many only some."""
        return (self[name] for name in islice(reversed(list(self)), _NEWEST))

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
