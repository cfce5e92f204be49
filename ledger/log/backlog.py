"""Backlog of a scope: what each thread has that is still to be learned from, cached between two looks.

A thread is computed again only if something was added to it. So a look at many threads costs little more than listing
them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.events import TurnRange
from backstory.ledger.log.folded.state import FoldedState
from backstory.ledger.threads.due import Due, Timing, due_of
from backstory.ledger.threads.thread_coverage import Parked
from backstory.ledger.threads.transcript import Thread


class WaitingThread(msgspec.Struct, frozen=True):
    """Pending and parked turns of one thread: their numbers, and when the pending ones are due."""

    thread: str
    turns: int
    due: Due | None
    """As `due_of`, by the times in the transcript alone."""
    parked: tuple[tuple[Parked, int], ...]


class Backlog:
    """The threads of a scope with pending or parked turns. Not safe for threads."""

    def __init__(self, state: FoldedState) -> None:
        self.state = state
        self._timing: Timing | None = None
        self._known: dict[str, WaitingThread] = {}

    def waiting(self, timing: Timing) -> list[WaitingThread]:
        """Return the pending and parked turns of each thread, oldest thread first, as far as the state was read."""
        touched, self.state.touched = self.state.touched, set()
        if touched is None or timing != self._timing:
            self._known = {}
            touched = None
        self._timing = timing
        threads = self.state.transcript.threads
        try:
            names = threads.unsettled() if touched is None else touched
            self.state.prepare(names)
            for name in names:
                # Of a thread that a tool has named, nothing may be recorded yet.
                if (thread := threads.get(name)) is not None:
                    self._known[name] = self._waiting(thread, timing)
        except BaseException:
            # The threads that were not computed have to be computed next time.
            self.state.touched = None
            raise
        return [waiting for waiting in self._known.values() if waiting.turns or waiting.parked]

    def _waiting(self, thread: Thread, timing: Timing) -> WaitingThread:
        coverage = self.state.coverage
        runs = coverage.pending(thread)
        due = due_of(thread, runs, timing)
        parked = tuple((item, count_turns(thread, [item.turns])) for item in coverage.parked(thread))
        return WaitingThread(thread.name, count_turns(thread, runs), due, parked)


def count_turns(thread: Thread, runs: Iterable[TurnRange]) -> int:
    """Return how many turns of some runs stand."""
    return sum(len(thread.standing(run.first, run.last)) for run in runs)
