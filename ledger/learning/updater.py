"""One update: a run of turns is put to a model, and what it answers, or that it failed, becomes one commit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.commands import Command, Extract, FailUpdate, Proposal
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ModelError, ModelUnavailableError, ReplyError
from backstory.ledger.core.events import Turn, TurnRange
from backstory.ledger.core.memory import BARRIERS, Memory
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.extraction.model import Answer, Model, Prompt
from backstory.ledger.extraction.recorded import RecordedReply
from backstory.ledger.learning.model_caller import ModelCaller, answer_of, billed, estimated
from backstory.ledger.learning.observing import CallStarted, Observer, provider_of
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.coverage import Coverage, is_quiet
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.extraction.prompt import PromptBuilder, Question

__all__ = ["Job", "Outcome", "Updater"]


class Job(msgspec.Struct, frozen=True):
    """A run of turns to learn from; `attempts` were made before, `backdate` asks for the time of its last turn.

    `asked_at` is when memory is looked at for it, where that is not now: in UTC, as commits spell it.
    """

    thread: str
    turns: TurnRange
    attempts: int = 0
    backdate: bool = False
    asked_at: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What came of a job: its commit, None where it was interrupted before one; `covered`: its turns are done with."""

    commit: Commit | None
    covered: bool
    failed: bool


class _Task(msgspec.Struct, frozen=True):
    """A portion of a job, ready to be asked about: its turns, the commit of the memory it is asked on, its cause.

    `question` is None where the answer was given long ago; it may cite what stands in the whole `thread`.
    """

    job: Job
    turns: Sequence[Turn]
    basis: int
    cause: Cause
    question: Question | None
    thread: Sequence[Turn] = ()

    @property
    def prompt(self) -> Prompt:
        """What to ask."""
        return _NOTHING if self.question is None else self.question.prompt

    @property
    def at(self) -> datetime | None:
        """What a backfill dates the commit by: the last turn that it covers."""
        return parse_moment(self.turns[-1].at) if self.job.backdate else None


class _Tried:
    """A task under way; `attempts` are the calls so far, those of earlier updates included."""

    def __init__(self, writer: Writer, task: _Task, attempts: int) -> None:
        self.writer = writer
        self.task = task
        self.attempts = attempts

    def is_overtaken(self, *kinds: str) -> bool:
        """Whether a commit of these kinds, else any that an answer does not outlive, came after the memory asked on."""
        with self.writer.state(durable=False) as state:
            barriers = state.memory.barriers
            return any(barriers.get(kind, 0) > self.task.basis for kind in kinds or BARRIERS)


_INTERRUPTED = Outcome(None, covered=False, failed=False)
_NOTHING = Prompt("", "", "", {})
_NO_ANSWER = Proposal((), hashlib.sha256().hexdigest(), 0)


def _can_wait(coverage: Coverage, thread: Thread, job: Job) -> bool:
    """Whether the rest of a job is not to be asked about now.

    Somebody else may have learned from it meanwhile; and words that nobody has answered yet, or an acknowledgement,
    wait for the next update, unless they are parked, when nobody but a person asks for them.
    """
    if coverage.covers(thread, job.turns):
        return True
    # An answer that is parted from its question for its length is no such thing.
    begins = thread.standing(job.turns.first, job.turns.last)[0]
    return job.attempts == 0 and begins.role == "user" and is_quiet(thread, job.turns)


def _call(writer: Writer, task: _Task, model: Model, attempt: int) -> CallStarted:
    return CallStarted(
        scope=writer.scope,
        thread=task.job.thread,
        turns=task.job.turns,
        provider=provider_of(model),
        model=task.cause.model or "",
        prompt=task.prompt.digest,
        estimated_tokens=estimated(task.prompt),
        signals=task.cause.signals,
        attempt=attempt,
    )


class Updater:
    """Runs jobs; safe for threads.

    A failure that may pass is tried again, at most `max_attempts` times in all, with a pause that doubles from one
    second to a minute or as the server asks (five minutes at most); calls are `min_gap` seconds apart. After `stop`
    nobody is asked any more, and whatever is under way ends without a commit: its turns stay pending. `prompts` and
    `patterns` are folders that override packaged templates and signal patterns; no prompt comes to more than
    `prompt_max_tokens`. `observers` are told of each call and of what became of each update.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_attempts: int = 5,
        min_gap: float = 0.5,
        prompts: Path | None = None,
        patterns: Path | None = None,
        prompt_max_tokens: int = 24_000,
        pause: Callable[[float], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._clock = clock or SystemClock()
        self.asking = ModelCaller(
            clock=self._clock, max_attempts=max_attempts, min_gap=min_gap, pause=pause, observers=observers
        )
        self._prompts = prompts
        self._patterns = patterns
        self._prompt_max_tokens = prompt_max_tokens

    def stop(self) -> None:
        """Let nothing be committed any more."""
        self.asking.stop()

    def run(self, writer: Writer, job: Job, model: Model) -> tuple[Outcome, ...]:
        """Ask the model and commit what it answers; a failure is committed too, and parks the turns.

        A job that is too long for one prompt is done in portions, in order, each one update on the memory as it is by
        then. One that fails is parked and the next goes on; one that is interrupted, or whose answer came too late to
        be used, ends the job, and so does a rest that is not worth an update by itself: it stays pending. Where an
        answer would come too late nobody is asked once more. A recorded reply answers for the whole job at once. Where
        none of the turns stands any more there is nothing to ask about, and nothing is.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; the turns that are not done with stay pending.
            ConfigError: a prompt template or a pattern cannot be read, or the templates leave no room.
        """
        outcomes: list[Outcome] = []
        while (task := self._task(writer, job, model, first=not outcomes)) is not None:
            outcome = self._settle(writer, task, model)
            outcomes.append(outcome)
            done = task.job.turns.last
            if done >= job.turns.last or not (outcome.covered or outcome.failed):
                break
            job = msgspec.structs.replace(job, turns=TurnRange(done + 1, job.turns.last))
        return tuple(outcomes)

    def _task(self, writer: Writer, job: Job, model: Model, *, first: bool) -> _Task | None:
        """Take the next portion of a job; None where nothing of it is to be asked about."""
        with writer.state() as state:
            memory, pin = state.memory, state.transcript.head
            thread = state.transcript.threads[job.thread]
            turns = thread.standing(job.turns.first, job.turns.last)
            citable = thread.standing() if isinstance(model, RecordedReply) else ()
            if not turns or (not first and _can_wait(state.coverage, thread, job)):
                return None
        name = clip(str(model.name), MAX_NAME)
        cause = Cause(kind="extraction", thread=job.thread, transcript=pin, model=name)
        if isinstance(model, RecordedReply):
            return _Task(job, turns, memory.seq, self._with_signals(cause, turns), None, citable)
        frame = self._frame(memory, job, turns[0])
        portion = frame.first_of(turns)
        if len(portion) < len(turns):
            job = msgspec.structs.replace(job, turns=TurnRange(job.turns.first, portion[-1].n))
        cause = self._with_signals(cause, portion)
        return _Task(job, portion, memory.seq, cause, frame.question(portion, cause.signals))

    def _with_signals(self, cause: Cause, turns: Sequence[Turn]) -> Cause:
        from backstory.ledger.extraction.signals import load_signals

        return msgspec.structs.replace(cause, signals=load_signals(self._patterns).seen_in(turns))

    def _frame(self, memory: Memory, job: Job, first: Turn) -> PromptBuilder:
        from backstory.ledger.extraction.prompt import PromptBuilder

        # Of a backfill no commit is dated before its first turn: what is up for review then is so at the commit, too.
        now = (parse_moment(first.at) if job.backdate else None) or self._clock.now()
        at = max(job.asked_at or spell_moment(now), memory.at)
        return PromptBuilder(memory, job.thread, at=at, folder=self._prompts, max_tokens=self._prompt_max_tokens)

    def _settle(self, writer: Writer, task: _Task, model: Model) -> Outcome:
        """Put a portion to the model and commit what comes of it."""
        from backstory.ledger.extraction.reply import read_reply

        tried = _Tried(writer, task, task.job.attempts)
        try:
            answer = self._ask(tried, model)
        except ModelError as error:
            if self.asking.stopped:
                return _INTERRUPTED
            return self._fail(tried, "unavailable" if isinstance(error, ModelUnavailableError) else "rejected", error)
        if self.asking.stopped:
            return _INTERRUPTED
        if answer is None:
            return self._conclude(tried, _NO_ANSWER, None)
        try:
            proposal = read_reply(answer.text, task.turns, prompted=answer.prompted, thread=task.thread)
        except ReplyError as error:
            return self._fail(tried, "reply", error, answer)
        return self._conclude(tried, proposal, answer)

    def _ask(self, tried: _Tried, model: Model) -> Answer | None:
        """Ask, again where that may help; None where nobody is asked any more, for the answer would be discarded.

        Raises:
            ModelUnavailableError, ModelRejectedError: as the port, or the program is shutting down.
        """
        task = tried.task

        def call() -> CallStarted:
            tried.attempts += 1
            return _call(tried.writer, task, model, tried.attempts)

        if task.question is None:
            tried.attempts += 1
            return answer_of(model, task.prompt)
        return self.asking.put(model, task.prompt, call=call, overtaken=tried.is_overtaken)

    def _conclude(self, tried: _Tried, proposal: Proposal, answer: Answer | None) -> Outcome:
        """Commit what was answered; whether it came too late is decided there."""
        task = tried.task
        question = task.question if answer is None or answer.prompted else None
        command = Extract(
            at="",
            thread=task.job.thread,
            proposal=proposal,
            basis=task.basis,
            shown=None if question is None else question.shown,
            stale=None if question is None else question.stale,
        )
        cause = billed(task.cause, task.prompt, answer)
        commit = self._commit(tried, command, msgspec.structs.replace(cause, turns=task.job.turns))
        return Outcome(commit, covered=commit.cause.turns is not None, failed=False)

    def _fail(self, tried: _Tried, reason: str, error: ModelError, answer: Answer | None = None) -> Outcome:
        """Commit that nothing came of it."""
        task = tried.task
        if tried.is_overtaken("redaction"):
            # Like any answer that an erasure overtook: its turns are done with, and no word of it is kept.
            return self._conclude(tried, _NO_ANSWER, answer)
        failure = FailUpdate(
            at="",
            reason=reason,
            detail=clip(str(error), 2_000),
            attempts=tried.attempts,
            turns=task.job.turns,
            basis=task.basis,
        )
        cause = billed(task.cause, task.prompt, answer)
        return Outcome(self._commit(tried, failure, cause), covered=False, failed=True)

    def _commit(self, tried: _Tried, command: Command, cause: Cause) -> Commit:
        commit = tried.writer.commit(command, cause, at=tried.task.at)
        self.asking.observers.settled(tried.writer.scope, tried.task.job.turns, tried.attempts, commit)
        return commit
