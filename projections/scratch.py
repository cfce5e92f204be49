"""A scope for trying things out: what is committed to it goes into a memory, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from ledger.commands import Command, Extract
from ledger.commit import EMPTY, Cause, Commit
from ledger.coverage import Coverage
from ledger.decide import decide
from ledger.events import LedgerEvent, Turn
from ledger.memory import Fold, Memory
from ledger.transcript import Transcript
from ledger.writer import State, Writer
from projections.alignment import Alignment

__all__ = ["Scratch"]


class Scratch(Writer):
    """A writer for whoever asks a model again about the turns of one recorded update; it writes nothing.

    Whatever is committed is dated like the recorded commit and decided on the memory that the one before it led to;
    together they stand in the recorded commit's place, so the memory's seq stays before it.
    """

    def __init__(
        self, beside: Writer, memory: Memory, recorded: Commit, turns: Sequence[Turn], like: Alignment
    ) -> None:
        super().__init__(beside.store, beside.scope, clock=beside.clock)
        self._recorded = recorded
        self._like = like
        self._fold = Fold(memory)
        self._coverage = Coverage()
        self._transcript = _of(recorded.cause.thread or "", turns)
        self.settled: list[tuple[LedgerEvent, ...]] = []
        """What each commit led to."""

    @contextmanager
    def state(self, *, durable: bool = True) -> Iterator[State]:
        """Lend out the memory as it would be, and the turns that stood when the recorded update was made."""
        del durable
        yield State(self._fold.memory(), self._coverage, self._transcript)

    def commit(self, command: Command, cause: Cause, *, at: datetime | None = None) -> Commit:
        """Decide a command and take in what it leads to; the commit that is returned is in no chain."""
        del at
        moment = self._recorded.at
        if isinstance(command, Extract):
            candidates = self._like.settle(command.proposal.candidates)
            proposal = msgspec.structs.replace(command.proposal, candidates=candidates)
            command = msgspec.structs.replace(command, proposal=proposal)
        command = msgspec.structs.replace(command, at=moment, heat=self._recorded.cause.heat)
        events = decide(self._fold.memory(), command)
        for event in events:
            self._fold.apply(event)
        self.settled.append(events)
        commit = Commit(self._recorded.seq, moment, cause, events, EMPTY.hash, EMPTY.hash)
        self._coverage.apply(commit)
        return commit


def _of(name: str, turns: Sequence[Turn]) -> Transcript:
    """Make a transcript in which nothing stands but these turns."""
    transcript = Transcript()
    thread = transcript.threads.opened(name)
    last = turns[-1].n
    thread.turns, thread.seqs = [None] * last, [1] * last
    thread.recorded_at = [turns[-1].at] * last
    for turn in turns:
        thread.turns[turn.n - 1] = turn
    return transcript
