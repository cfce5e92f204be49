"""What another model, or another prompt, would have learned: the recorded words are put to it again, in memory only.

Every recorded update is asked again on the memory that the new answers have led to so far; all other commits are
decided again, as for what-if. What cannot be asked again keeps its recorded answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.events import (
    CandidateRejected,
    Event,
    Turn,
    TurnRange,
    TurnRestored,
    TurnSuperseded,
    UpdateFailed,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.extraction.model import Model
from backstory.ledger.extraction.recorded import RecordedReply
from backstory.ledger.learning.updater import Job, Updater
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.transcript import Thread
from backstory.projections.what_if.alignment import Alignment
from backstory.projections.what_if.call_budget import SpentError
from backstory.projections.what_if.counterfactual import Counterfactual, is_torn
from backstory.projections.what_if.in_memory_scope import InMemoryScope

__all__ = ["Again", "Ledger", "Models", "Past", "Tally", "ask_again"]


class Tally(msgspec.Struct, frozen=True):
    """What updates cost and came to; `facts` are those in memory at the end.

    `refused` counts candidates by rule, `failures` the updates that failed by reason. Tokens count as the server did;
    where it did not say there are none, or for what is asked again an estimate.
    """

    calls: int
    tokens_in: int
    tokens_out: int
    updates: int
    failed: int
    accepted: int
    refused: dict[str, int]
    facts: int
    failures: dict[str, int] = {}


class Past:
    """What stood in a transcript when an update was made, whatever was edited since."""

    def __init__(
        self, turns: Callable[[str, TurnRange], Sequence[Turn]], transcript: Callable[[], Iterable[Commit]]
    ) -> None:
        self._turns = turns
        self._transcript = transcript
        self._changes: dict[tuple[str | None, int], list[tuple[int, bool]]] | None = None
        """By thread and ordinal: in which commits a turn ceased to stand (False), or came back (True)."""

    def turns(self, cause: Cause, turns: TurnRange) -> list[Turn] | None:
        """Return the turns of an update that stood then; None where one of them was erased."""
        thread, pin = cause.thread or "", cause.transcript
        kept = {turn.n: turn for turn in self._turns(thread, turns)}
        found = []
        for n in range(turns.first, turns.last + 1):
            if not self._stood(thread, n, pin):
                continue
            if n not in kept:
                return None
            found.append(kept[n])
        return found

    def citable(self, cause: Cause, kept: Iterable[tuple[Turn, int]]) -> list[Turn]:
        """Return those of a thread's turns, given with the seqs that recorded them, that stood at an update."""
        thread, pin = cause.thread or "", cause.transcript
        return [turn for turn, seq in kept if (pin is None or seq <= pin.seq) and self._stood(thread, turn.n, pin)]

    def _stood(self, thread: str, n: int, pin: Head | None) -> bool:
        """Whether a turn stood at a moment of the transcript, or stands now: it may be superseded, and restored."""
        if self._changes is None:
            self._changes = {}
            for commit in self._transcript():
                for event in commit.events:
                    if isinstance(event, TurnSuperseded | TurnRestored):
                        changes = self._changes.setdefault((commit.cause.thread, event.n), [])
                        changes.append((commit.seq, isinstance(event, TurnRestored)))
        changes = self._changes.get((thread, n), [])
        return next((stands for seq, stands in reversed(changes) if pin is None or seq <= pin.seq), True)


class Again(msgspec.Struct, frozen=True):
    """Both memories as of the last commit that was reached, and what the updates of the threads asked came to in each.

    `erased` and `unanswered` are the updates that keep their recorded answer: words or outcomes of theirs were erased,
    or there was no reply for them; they are in neither tally.
    """

    recorded: Memory
    would_be: Memory
    complete: bool
    then: Tally
    now: Tally
    erased: tuple[int, ...]
    unanswered: tuple[int, ...]
    said: str = ""
    """What the last update that failed here said."""


class Ledger(msgspec.Struct, frozen=True):
    """What was recorded: the commits, which are walked twice, the words, and the scope's writer, which is only read."""

    commits: Iterable[Commit]
    past: Past
    writer: Writer


Models = Callable[[str], Model | None]
"""Says who is asked about an update of a thread; None where nobody is, and the recorded answer stands."""


class _Count:
    """A tally under way."""

    def __init__(self) -> None:
        self.calls = self.tokens_in = self.tokens_out = self.updates = self.failed = self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.said = ""
        """What the last failure said."""

    def add(self, events: Iterable[Event]) -> None:
        """Count what one update came to."""
        self.updates += 1
        for event in events:
            if isinstance(event, CandidateRejected):
                self.refused[event.rule] += 1
            elif isinstance(event, UpdateFailed):
                self.failed += 1
                self.failures[event.reason] += 1
                self.said = event.detail
            elif getattr(event, "place", None) is not None:
                self.accepted += 1

    def tally(self, memory: Memory) -> Tally:
        refused = dict(sorted(self.refused.items()))
        counts = (self.calls, self.tokens_in, self.tokens_out, self.updates, self.failed, self.accepted)
        return Tally(*counts, refused, len(memory.facts), dict(sorted(self.failures.items())))


class _Rerun:
    def __init__(self, ledger: Ledger, updater: Updater, models: Models, thread: str | None) -> None:
        self._ledger = ledger
        self._updater = updater
        self._models = models
        self._thread = thread
        self._history = Counterfactual(ledger.commits, {})
        self._learned: defaultdict[str, set[int]] = defaultdict(set)
        """Turns that were learned from here: where an update failed and was tried again, once is enough."""
        self._attempts: dict[tuple[str, TurnRange], int] = {}
        self._then, self._now = _Count(), _Count()
        self._erased: list[int] = []
        self._unanswered: list[int] = []

    def run(self, progress: Callable[[int], None] | None) -> Again:
        complete = True
        for commit in self._ledger.commits:
            events = self._outcome(commit)
            if events is None:
                complete = False
                break
            self._history.take(commit, events)
            if progress is not None:
                progress(commit.seq)
        recorded, would_be = self._history.recorded, self._history.memory
        then, now = self._then.tally(recorded), self._now.tally(would_be)
        return Again(
            recorded, would_be, complete, then, now, tuple(self._erased), tuple(self._unanswered), self._now.said
        )

    def _outcome(self, commit: Commit) -> Sequence[Event] | None:
        """Return what a commit leads to here; None where it would have to be asked, and no more may be spent."""
        cause = commit.cause
        if cause.kind != "extraction" or self._thread not in (None, cause.thread):
            return self._history.decide(commit)
        failure = next((event for event in commit.events if isinstance(event, UpdateFailed)), None)
        turns = cause.turns if failure is None else failure.turns
        told = None if turns is None or is_torn(commit) else self._ledger.past.turns(cause, turns)
        # What an erasure made of an answer under way stands like any other erasure.
        if told is None and (failure is not None or turns is not None):
            self._erased.append(commit.seq)
            return self._history.decide(commit)
        # An answer that came too late covered nothing; its turns were asked about once more.
        left = [turn for turn in told or () if turn.n not in self._learned[cause.thread or ""]]
        model = self._models(cause.thread or "") if left else None
        if left and model is None:
            self._unanswered.append(commit.seq)
            return self._history.decide(commit)
        try:
            events = self._history.decide(commit) if told is None else self._asked(commit, left, model)
        except SpentError:
            return None
        self._count_recorded(commit, failure)
        return events

    def _asked(self, commit: Commit, turns: Sequence[Turn], model: Model | None) -> Sequence[Event]:
        """Ask about the turns of an update, in portions where they are too many for one prompt.

        Raises:
            SpentError: no more may be spent, or the program is shutting down.
        """
        if model is None:
            return ()
        memory, thread = self._history.memory, commit.cause.thread or ""
        like = Alignment(candidates_of(commit.events))
        beside = self._citable(commit.cause) if isinstance(model, RecordedReply) else ()
        in_memory = InMemoryScope(self._ledger.writer, memory, commit, turns, like, beside=beside)
        # As if tried before: the recorded update found its last turns worth asking about, too.
        job = Job(thread, TurnRange(turns[0].n, turns[-1].n), attempts=1, asked_at=commit.at)
        for outcome in self._updater.run(in_memory, job, model):
            if outcome.commit is None:
                raise SpentError
            if (done := outcome.commit.cause.turns) is not None:
                self._learned[thread].update(range(done.first, done.last + 1))
        for settled in in_memory.settled:
            self._now.add(settled)
        return [event for settled in in_memory.settled for event in settled]

    def _citable(self, cause: Cause) -> Sequence[Turn]:
        """Return what a recorded reply may cite beside the turns that it answers for."""
        with self._ledger.writer.reader.state() as state:
            known = state.transcript.threads.get(cause.thread or "") or Thread(cause.thread or "")
            kept = [(turn, seq) for turn, seq in zip(known.turns, known.seqs, strict=True) if turn is not None]
        return self._ledger.past.citable(cause, kept)

    def _count_recorded(self, commit: Commit, failure: UpdateFailed | None) -> None:
        cause, then = commit.cause, self._then
        then.add(commit.events)
        then.tokens_in += cause.tokens_in or 0
        then.tokens_out += cause.tokens_out or 0
        if cause.prompt is None:
            return  # a recorded reply: nobody was called
        if failure is None or failure.turns is None:
            then.calls += 1
            return
        # Attempts go on counting where parked turns are tried again.
        run = (cause.thread or "", failure.turns)
        then.calls += max(1, failure.attempts - self._attempts.get(run, 0))
        self._attempts[run] = failure.attempts


def ask_again(
    ledger: Ledger,
    updater: Updater,
    models: Models,
    *,
    thread: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Again:
    """Put every recorded update to a model again, those of one thread with `thread`, and decide all else again.

    An update that failed is asked again as well; where it was tried again later, that finds its turns learned from. A
    fact that is told in the same words keeps its id; one that the ledger does not have gets an id that is in no ledger.
    It stops before the commit at which a model raises SpentError; `progress` is told each seq.

    Raises:
        ConfigError: as `Updater.run`.
    """
    return _Rerun(ledger, updater, models, thread).run(progress)
