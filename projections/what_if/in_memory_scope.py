"""A scope for trying things out: what is committed to it goes into a memory, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from backstory.ledger.core.commands import Command, Extract
from backstory.ledger.core.commit import EMPTY, Cause, Commit
from backstory.ledger.core.events import LedgerEvent, Turn
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.log.writer import State, Writer
from backstory.ledger.rules.decide import decide
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Transcript
from backstory.projections.what_if.alignment import Alignment

__all__ = ["InMemoryScope"]


class InMemoryScope(Writer):
    """A writer for whoever asks a model again about the turns of one recorded update; it writes nothing.

    Whatever is committed is dated like the recorded commit and decided on the memory that the one before it led to;
    together they stand in the recorded commit's place, so the memory's seq stays before it. `beside` are turns of the
    thread that are not asked about and may be cited.
    """

    def __init__(
        self,
        writer: Writer,
        memory: Memory,
        recorded: Commit,
        turns: Sequence[Turn],
        like: Alignment,
        *,
        beside: Sequence[Turn] = (),
    ) -> None:
        super().__init__(writer.store, writer.scope, clock=writer.clock)
        self._recorded = recorded
        self._like = like
        self._fold = Fold(memory)
        self._coverage = Coverage()
        self._transcript = _of(recorded.cause.thread or "", turns, beside)
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


def _of(name: str, turns: Sequence[Turn], beside: Sequence[Turn]) -> Transcript:
    """Make a transcript in which nothing stands but these turns, and those beside them, outside of their range."""
    inside = range(turns[0].n, turns[-1].n + 1)
    outside = [turn for turn in beside if turn.n not in inside]
    transcript = Transcript()
    thread = transcript.threads.opened(name)
    there = {turn.n: turn for turn in (*turns, *outside)}
    for n in range(1, max(there) + 1):
        thread.turns.append(there.get(n))
        thread.seqs.append(1)
        thread.recorded_at.append(turns[-1].at)
    return transcript
