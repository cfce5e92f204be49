"""Reextraction: asks another model, or with another prompt, about the recorded turns again; writes nothing.

Each recorded update is asked again on the memory that the new answers have produced so far. All other commits are
decided again, as in what-if. An update that cannot be asked again keeps its recorded answer.
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
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, usage_of
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.updater import Job, Updater
from backstory.ledger.log.commits import read_commits, read_durable_commits
from backstory.ledger.log.writer import Writer
from backstory.ledger.text.tokens import estimate_tokens
from backstory.ledger.threads.transcript import Thread
from backstory.projections.what_if.counterfactual import Counterfactual, WhatIfRun, is_torn
from backstory.projections.what_if.in_memory_scope import Alignment, InMemoryScope


class BudgetExceededError(BaseException):
    """The budget is used up; like KeyboardInterrupt it ends the run, because the updater retries model errors."""


class BudgetedModel(Model):
    """A model that counts its calls and tokens, failed calls included, and refuses calls that exceed a limit.

    Tokens are counted by the server, or estimated where it reports none. A failed call counts the tokens of its prompt.
    """

    def __init__(self, model: Model, *, max_calls: int | None = None, max_tokens: int | None = None) -> None:
        self._model = model
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self.calls = self.tokens_in = self.tokens_out = 0
        self.last_error = ""
        """The message of the last failed call."""

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt with one call.

        Raises:
            BudgetExceededError: No calls are left, or the prompt alone exceeds the tokens that are left.
            ModelUnavailableError, ModelRejectedError: As the model.
        """
        size = estimate_tokens(prompt.system) + estimate_tokens(prompt.user)
        if self._max_calls is not None and self.calls >= self._max_calls:
            raise BudgetExceededError
        if self._max_tokens is not None and self.tokens_in + self.tokens_out + size > self._max_tokens:
            raise BudgetExceededError
        self.calls += 1
        self.tokens_in += size
        try:
            answer = self._model.ask(prompt)
        except Exception as error:
            self.last_error = str(error)
            raise
        # The model caller rejects a result of another type.
        if isinstance(answer, Answer) and isinstance(answer.text, str):
            usage = usage_of(answer)
            self.tokens_in += 0 if usage.input is None else usage.input - size
            self.tokens_out += estimate_tokens(answer.text) if usage.output is None else usage.output
        return answer


class UpdateCounts(msgspec.Struct, frozen=True):
    """The cost and the results of a series of updates.

    Attributes:
        calls: the calls of a model.
        tokens_in: tokens of the prompts, as the server reports them; an estimate for new calls without a report.
        tokens_out: tokens of the answers, likewise.
        updates: the updates.
        failed: the updates that failed.
        accepted: the accepted candidates.
        refused: the refused candidates by rule.
        facts: the facts in memory at the end.
        failures: the failed updates by reason.
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


class RecordedLedger:
    """A ledger to ask about again, with its turns as they stood when an update was made, before later edits.

    Args:
        writer: the writer of the scope, which is only read.
        turns: returns a thread's turns that were not erased, of some ordinals.
    """

    def __init__(self, writer: Writer, turns: Callable[[str, TurnRange], Sequence[Turn]]) -> None:
        self.writer = writer
        self.commits = WhatIfRun(writer.store, writer.ledger, writer.memory().seq)
        self._turns = turns
        self._changes: dict[tuple[str | None, int], list[tuple[int, bool]]] | None = None
        """By thread and ordinal: the commits that superseded a turn (False) or restored it (True)."""

    def turns(self, cause: Cause, turns: TurnRange) -> list[Turn] | None:
        """Return the turns of an update that stood when it was made; None where one of them was erased."""
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
        """Return the turns of a thread that stood when an update was made; `kept` pairs each with its commit's seq."""
        thread, pin = cause.thread or "", cause.transcript
        return [turn for turn, seq in kept if (pin is None or seq <= pin.seq) and self._stood(thread, turn.n, pin)]

    def _stood(self, thread: str, n: int, pin: Head | None) -> bool:
        """Whether a turn stood at a head of the transcript, or stands now, where `pin` is None."""
        if self._changes is None:
            self._changes = {}
            for commit in read_commits(self.writer.store, self.writer.transcript_stream):
                for event in commit.events:
                    if isinstance(event, TurnSuperseded | TurnRestored):
                        changes = self._changes.setdefault((commit.cause.thread, event.n), [])
                        changes.append((commit.seq, isinstance(event, TurnRestored)))
        changes = self._changes.get((thread, n), [])
        return next((stands for seq, stands in reversed(changes) if pin is None or seq <= pin.seq), True)


class Rerun(msgspec.Struct, frozen=True):
    """The result of a reextraction.

    Attributes:
        recorded: the recorded memory after the last commit reached.
        would_be: the memory that the new answers lead to.
        complete: whether every commit was reached.
        then: the counts of the recorded updates.
        now: the counts of the new updates.
        erased: the updates that keep their recorded answer because content was erased; in neither count.
        unanswered: the updates that keep their recorded answer because there was no reply; in neither count.
        last_error: the message of the last new update that failed.
    """

    recorded: Memory
    would_be: Memory
    complete: bool
    then: UpdateCounts
    now: UpdateCounts
    erased: tuple[int, ...]
    unanswered: tuple[int, ...]
    last_error: str = ""


Models = Callable[[str], Model | None]
"""Returns the model to ask about an update of a thread, or None to keep the recorded answer."""


class _UsersMemory:
    """The memory of the user whose sections an agent shares, as it was at the agent's updates, in their order."""

    def __init__(self, users: Writer) -> None:
        self._fold = Fold(Memory())
        self._commits = read_durable_commits(users.store, users.ledger)
        self._next = next(self._commits, None)

    def before(self, update: Commit) -> Memory | None:
        """Return the memory whose sections an update was shown; None if it was shown the agent's own.

        Of a failed one it is the memory before its time.
        """
        proposed = update.first(UpdateProposed)
        basis = None if proposed is None else proposed.users
        if proposed is not None and basis is None:
            return None
        while (one := self._next) is not None and (one.at < update.at if basis is None else one.seq <= basis):
            self._fold.advance(one.seq, one.at, one.cause.kind, one.events)
            self._next = next(self._commits, None)
        return self._fold.memory()


class _CountsBuilder:
    """Counts while a reextraction runs."""

    def __init__(self) -> None:
        self.calls = self.tokens_in = self.tokens_out = self.updates = self.failed = self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.last_error = ""

    def add(self, events: Iterable[Event]) -> None:
        """Count the events of one update."""
        self.updates += 1
        for event in events:
            if isinstance(event, CandidateRejected):
                self.refused[event.rule] += 1
            elif isinstance(event, UpdateFailed):
                self.failed += 1
                self.failures[event.reason] += 1
                self.last_error = event.detail
            elif getattr(event, "place", None) is not None:
                self.accepted += 1

    def counts(self, memory: Memory) -> UpdateCounts:
        refused = dict(sorted(self.refused.items()))
        counts = (self.calls, self.tokens_in, self.tokens_out, self.updates, self.failed, self.accepted)
        return UpdateCounts(*counts, refused, len(memory.facts), dict(sorted(self.failures.items())))


class _Run:
    def __init__(self, ledger: RecordedLedger, updater: Updater, models: Models, thread: str | None) -> None:
        self._ledger = ledger
        self._updater = updater
        self._models = models
        self._thread = thread
        self._history = Counterfactual(ledger.commits, {})
        self._learned: defaultdict[str, set[int]] = defaultdict(set)
        """The turns already learned from, by thread; a retry of a failed update does not ask about them again."""
        self._attempts: dict[tuple[str, TurnRange], int] = {}
        self._then, self._now = _CountsBuilder(), _CountsBuilder()
        self._erased: list[int] = []
        self._unanswered: list[int] = []
        self._users = None if ledger.writer.users is None else _UsersMemory(ledger.writer.users)

    def run(self, progress: Callable[[int], None] | None) -> Rerun:
        complete = True
        for commit in self._ledger.commits:
            events = self._outcome(commit)
            if events is None:
                complete = False
                break
            self._history.advance(commit, events)
            if progress is not None:
                progress(commit.seq)
        recorded = self._history.recorded
        would_be = self._history.memory.standing_at(recorded.at)
        then, now = self._then.counts(recorded), self._now.counts(would_be)
        erased, unanswered = tuple(self._erased), tuple(self._unanswered)
        return Rerun(recorded, would_be, complete, then, now, erased, unanswered, self._now.last_error)

    def _outcome(self, commit: Commit) -> Sequence[Event] | None:
        """Return the events of a commit in this history; None where the budget does not allow to ask about it."""
        cause = commit.cause
        if cause.kind != "extraction" or self._thread not in (None, cause.thread):
            return self._history.decide(commit)
        failure = commit.first(UpdateFailed)
        turns = cause.turns if failure is None else failure.turns
        stood = None if turns is None or is_torn(commit) else self._ledger.turns(cause, turns)
        # Without turns and without a failure the answer came too late: that commit is decided again below.
        if stood is None and (failure is not None or turns is not None):
            self._erased.append(commit.seq)
            return self._history.decide(commit)
        # An answer that came too late covered nothing, and a later update asked about its turns again.
        left = [turn for turn in stood or () if turn.n not in self._learned[cause.thread or ""]]
        model = self._models(cause.thread or "") if left else None
        if left and model is None:
            self._unanswered.append(commit.seq)
            return self._history.decide(commit)
        try:
            events = self._history.decide(commit) if stood is None else self._ask(commit, left, model)
        except BudgetExceededError:
            return None
        self._count_recorded(commit, failure)
        return events

    def _ask(self, commit: Commit, turns: Sequence[Turn], model: Model | None) -> Sequence[Event]:
        """Ask about the turns of an update, in portions where they are too many for one prompt.

        Raises:
            BudgetExceededError: The budget is used up, or the program is shutting down.
        """
        if model is None:
            return ()
        memory, thread = self._history.memory, commit.cause.thread or ""
        alignment = Alignment(candidates_of(commit.events))
        citable = self._citable(commit.cause) if isinstance(model, RecordedReply) else ()
        users = None if self._users is None else self._users.before(commit)
        in_memory = InMemoryScope(self._ledger.writer, memory, commit, turns, alignment, citable=citable, users=users)
        # `attempts=1`: the updater must not leave the last turns for a later update.
        job = Job(thread, TurnRange(turns[0].n, turns[-1].n), attempts=1, asked_at=commit.at)
        for outcome in self._updater.run(in_memory, job, model):
            if outcome.commit is None:
                raise BudgetExceededError
            if (done := outcome.commit.cause.turns) is not None:
                self._learned[thread].update(range(done.first, done.last + 1))
        for events in in_memory.outcomes:
            self._now.add(events)
        return [event for events in in_memory.outcomes for event in events]

    def _citable(self, cause: Cause) -> Sequence[Turn]:
        """Return the turns that a recorded reply may cite besides its own."""
        with self._ledger.writer.reader.state() as state:
            known = state.transcript.threads.get(cause.thread or "") or Thread(cause.thread or "")
            kept = [(turn, seq) for turn, seq in zip(known.turns, known.seqs, strict=True) if turn is not None]
        return self._ledger.citable(cause, kept)

    def _count_recorded(self, commit: Commit, failure: UpdateFailed | None) -> None:
        cause, then = commit.cause, self._then
        then.add(commit.events)
        then.tokens_in += cause.tokens_in or 0
        then.tokens_out += cause.tokens_out or 0
        if cause.prompt is None:
            return  # a recorded reply, without a call
        if failure is None or failure.turns is None:
            then.calls += 1
            return
        # `attempts` goes on counting where parked turns are retried.
        run = (cause.thread or "", failure.turns)
        then.calls += max(1, failure.attempts - self._attempts.get(run, 0))
        self._attempts[run] = failure.attempts


def ask_again(
    ledger: RecordedLedger,
    updater: Updater,
    models: Models,
    *,
    thread: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Rerun:
    """Ask a model about every recorded update again, and decide all other commits again.

    A failed update is asked again as well; its recorded retry then finds the turns learned from. A fact with the same
    text keeps its id; a new fact gets an id that is in no ledger.

    Args:
        ledger: the recorded history.
        updater: asks the model.
        models: the model for each thread.
        thread: ask only about the updates of this thread.
        progress: called with each seq.

    Returns:
        The result up to the commit at which a model raises BudgetExceededError.

    Raises:
        ConfigError: As `Updater.run`.
    """
    return _Run(ledger, updater, models, thread).run(progress)
