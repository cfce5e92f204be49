"""One update: a run of turns is put to a model, and what it answers, or that it failed, becomes one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ledger.clock import Clock, SystemClock, parse_moment, spell_moment
from ledger.commands import Extract, FailUpdate
from ledger.commit import Cause, Commit
from ledger.coverage import Coverage, is_quiet
from ledger.errors import ModelError, ModelRejectedError, ModelUnavailableError, ReplyError
from ledger.events import Turn, TurnRange
from ledger.extraction.model import Answer, Model, Prompt
from ledger.extraction.recorded import RecordedReply
from ledger.memory import Memory
from ledger.observing import CallStarted, Observer, Observers, provider_of, token_count
from ledger.sanitize import MAX_NAME, clip
from ledger.transcript import Thread
from ledger.writer import Writer

if TYPE_CHECKING:
    from ledger.extraction.prompt import Frame, Question

__all__ = ["Job", "Outcome", "Updater"]

_BACKOFF_SECONDS = (1.0, 60.0)
_PATIENCE_SECONDS = 300.0


class Job(msgspec.Struct, frozen=True):
    """A run of turns to learn from; `attempts` were made before, `dated` asks for the time of its last turn."""

    thread: str
    turns: TurnRange
    attempts: int = 0
    dated: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """What came of a job: its commit, None where it was interrupted before one; `covered`: its turns are done with."""

    commit: Commit | None
    covered: bool
    failed: bool


class _Task(msgspec.Struct, frozen=True):
    """A portion of a job, ready to be asked about: its turns, the commit of the memory it is asked on, its cause.

    `question` is None where the answer was given long ago.
    """

    job: Job
    turns: Sequence[Turn]
    basis: int
    cause: Cause
    question: Question | None

    @property
    def prompt(self) -> Prompt:
        """What to ask."""
        return _NOTHING if self.question is None else self.question.prompt

    @property
    def at(self) -> datetime | None:
        """What a backfill dates the commit by: the last turn that it covers."""
        return parse_moment(self.turns[-1].at) if self.job.dated else None


_INTERRUPTED = Outcome(None, covered=False, failed=False)
_NOTHING = Prompt("", "", "", {})


def _answer(model: Model, prompt: Prompt) -> Answer:
    """Ask, and hold a model to its port: what it raises otherwise, or answers otherwise, would never be parked.

    Raises:
        ModelUnavailableError, ModelRejectedError: as the port.
    """
    try:
        answer: object = model.ask(prompt)
    except ModelError:
        raise
    except Exception as error:
        raise ModelUnavailableError(f"{model.name} failed ({type(error).__name__}): {error}") from error
    if isinstance(answer, Answer) and isinstance(answer.text, str) and isinstance(answer.model, str):
        return answer
    raise ModelRejectedError(f"{model.name} is no model: its ask() returned a {type(answer).__name__}, not an Answer")


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
    from ledger.extraction.size import estimate_tokens

    prompt = task.prompt
    return CallStarted(
        scope=writer.scope,
        thread=task.job.thread,
        turns=task.job.turns,
        provider=provider_of(model),
        model=task.cause.model or "",
        prompt=prompt.digest,
        estimated_tokens=estimate_tokens(prompt.system) + estimate_tokens(prompt.user),
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
        self._max_attempts = max_attempts
        self._min_gap = timedelta(seconds=min_gap)
        self._prompts = prompts
        self._patterns = patterns
        self._prompt_max_tokens = prompt_max_tokens
        self._pause = pause or self._clock.sleep
        self._observers = Observers(observers, clock=self._clock)
        self._next_call = self._asked = self._clock.now()
        self._mutex = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let nothing be committed any more."""
        self._stopped.set()

    def run(self, writer: Writer, job: Job, model: Model) -> tuple[Outcome, ...]:
        """Ask the model and commit what it answers; a failure is committed too, and parks the turns.

        A job that is too long for one prompt is done in portions, in order, each one update on the memory as it is by
        then. One that fails is parked and the next goes on; one that is interrupted, or whose answer came too late to
        be used, ends the job, and so does a rest that is not worth an update by itself: it stays pending. A recorded
        reply answers for the whole job at once. Where none of the turns stands any more there is nothing to ask about,
        and nothing is.

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
            if not turns or (not first and _can_wait(state.coverage, thread, job)):
                return None
        name = clip(str(model.name), MAX_NAME)
        cause = Cause(kind="extraction", thread=job.thread, transcript=pin, model=name)
        if isinstance(model, RecordedReply):
            return _Task(job, turns, memory.seq, self._with_signals(cause, turns), None)
        frame = self._frame(memory, job, turns[0])
        portion = frame.first_of(turns)
        if len(portion) < len(turns):
            job = msgspec.structs.replace(job, turns=TurnRange(job.turns.first, portion[-1].n))
        cause = self._with_signals(cause, portion)
        return _Task(job, portion, memory.seq, cause, frame.question(portion, cause.signals))

    def _with_signals(self, cause: Cause, turns: Sequence[Turn]) -> Cause:
        from ledger.extraction.signals import load_signals

        return msgspec.structs.replace(cause, signals=load_signals(self._patterns).seen_in(turns))

    def _frame(self, memory: Memory, job: Job, first: Turn) -> Frame:
        from ledger.extraction.prompt import Frame

        # Of a backfill no commit is dated before its first turn: what is up for review then is so at the commit, too.
        now = (parse_moment(first.at) if job.dated else None) or self._clock.now()
        at = max(spell_moment(now), memory.at)
        return Frame(memory, job.thread, at=at, folder=self._prompts, max_tokens=self._prompt_max_tokens)

    def _settle(self, writer: Writer, task: _Task, model: Model) -> Outcome:
        """Put a portion to the model and commit what comes of it."""
        from ledger.extraction.reply import read_reply

        job, tries = task.job, 0

        def ask() -> Answer:
            nonlocal tries
            if not isinstance(model, RecordedReply):
                self._take_turn()
            if self._stopped.is_set():
                raise ModelRejectedError("the program is shutting down")
            tries += 1
            if task.question is None:
                return _answer(model, task.prompt)
            call = _call(writer, task, model, job.attempts + tries)
            return self._observers.watch(call, lambda: _answer(model, task.prompt))

        def fail(reason: str, error: ModelError, answer: Answer | None) -> Outcome:
            told = self._told(task, answer)
            failure = FailUpdate(
                at="", reason=reason, detail=clip(str(error), 2_000), attempts=job.attempts + tries, turns=job.turns
            )
            commit = writer.commit(failure, told, at=task.at)
            self._observers.settled(writer.scope, job.turns, job.attempts + tries, commit)
            return Outcome(commit, covered=False, failed=True)

        try:
            answer = self._persist(ask)
        except ModelError as error:
            if self._stopped.is_set():
                return _INTERRUPTED
            return fail("unavailable" if isinstance(error, ModelUnavailableError) else "rejected", error, None)
        if self._stopped.is_set():
            return _INTERRUPTED
        try:
            proposal = read_reply(answer.text, task.turns, prompted=answer.prompted)
        except ReplyError as error:
            return fail("reply", error, answer)
        told = msgspec.structs.replace(self._told(task, answer), turns=job.turns)
        question = task.question if answer.prompted else None
        command = Extract(
            at="",
            thread=job.thread,
            proposal=proposal,
            basis=task.basis,
            shown=None if question is None else question.shown,
            stale=None if question is None else question.stale,
        )
        commit = writer.commit(command, told, at=task.at)
        self._observers.settled(writer.scope, job.turns, job.attempts + tries, commit)
        return Outcome(commit, covered=commit.cause.turns is not None, failed=False)

    def _told(self, task: _Task, answer: Answer | None) -> Cause:
        usage = answer.usage if answer is not None else None
        return msgspec.structs.replace(
            task.cause,
            prompt=task.prompt.digest if answer is None or answer.prompted else None,
            model=task.cause.model if answer is None else clip(answer.model, MAX_NAME),
            tokens_in=token_count(usage.input) if usage else None,
            tokens_out=token_count(usage.output) if usage else None,
        )

    def _take_turn(self) -> None:
        """Keep calls apart: each caller takes the next free moment and waits for it."""
        with self._mutex:
            now = self._clock.now()
            # A clock that was set back moves what was reserved by it along.
            self._next_call -= max(self._asked - now, timedelta())
            self._asked = now
            mine = max(now, self._next_call)
            self._next_call = mine + self._min_gap
        wait = (mine - now).total_seconds()
        if wait > 0:
            self._pause(wait)

    def _persist(self, ask: Callable[[], Answer]) -> Answer:
        from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

        def patience(state: RetryCallState) -> float:
            low, high = _BACKOFF_SECONDS
            wait: float = min(high, low * 2 ** (state.attempt_number - 1))
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, ModelUnavailableError) else None
            return min(max(wait, asked or 0.0), _PATIENCE_SECONDS)

        def enough(state: RetryCallState) -> bool:
            return self._stopped.is_set() or bool(stop_after_attempt(self._max_attempts)(state))

        return Retrying(
            stop=enough,
            wait=patience,
            retry=retry_if_exception_type(ModelUnavailableError),
            sleep=self._pause,
            reraise=True,
        )(ask)
