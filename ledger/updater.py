"""One update: a run of turns is put to a model, and what it answers, or that it failed, becomes one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec

from ledger.clock import Clock, SystemClock, parse_moment
from ledger.commands import Extract, FailUpdate
from ledger.commit import Cause, Commit
from ledger.errors import ModelError, ModelRejectedError, ModelUnavailableError, ReplyError
from ledger.events import TurnRange
from ledger.extraction.model import Answer, Model, Prompt
from ledger.extraction.recorded import RecordedReply
from ledger.sanitize import MAX_NAME, clip
from ledger.writer import Writer

__all__ = ["Job", "Outcome", "Updater"]

_BACKOFF_SECONDS = (1.0, 60.0)
_PATIENCE_SECONDS = 300.0
_MAX_TOKENS = 2**63 - 1


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


_INTERRUPTED = Outcome(None, covered=False, failed=False)


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


def _tokens(count: int | None) -> int | None:
    return count if isinstance(count, int) and 0 <= count <= _MAX_TOKENS else None


class Updater:
    """Runs jobs; safe for threads.

    A failure that may pass is tried again, at most `max_attempts` times in all, with a pause that doubles from one
    second to a minute or as the server asks (five minutes at most); calls are `min_gap` seconds apart. After `stop`
    nobody is asked any more, and whatever is under way ends without a commit: its turns stay pending.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_attempts: int = 5,
        min_gap: float = 0.5,
        prompts: Path | None = None,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._max_attempts = max_attempts
        self._min_gap = timedelta(seconds=min_gap)
        self._prompts = prompts
        self._pause = pause or self._clock.sleep
        self._next_call = self._asked = self._clock.now()
        self._mutex = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let nothing be committed any more."""
        self._stopped.set()

    def run(self, writer: Writer, job: Job, model: Model) -> Outcome:
        """Ask the model and commit what it answers; a failure is committed too, and parks the turns.

        Where none of the turns stands any more there is nothing to ask about, and nothing is.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: as the store; the turns stay pending.
            ConfigError: a prompt template cannot be read.
        """
        from ledger.extraction.prompt import build_prompt
        from ledger.extraction.reply import read_reply

        with writer.state() as state:
            memory, pin = state.memory, state.transcript.head
            turns = state.transcript.threads[job.thread].standing(job.turns.first, job.turns.last)
        if not turns:
            return _INTERRUPTED
        prompt = build_prompt(memory, job.thread, turns, folder=self._prompts)
        cause = Cause(kind="extraction", thread=job.thread, transcript=pin, model=clip(str(model.name), MAX_NAME))
        at = parse_moment(turns[-1].at) if job.dated else None
        tries = 0

        def ask() -> Answer:
            nonlocal tries
            if not isinstance(model, RecordedReply):
                self._take_turn()
            if self._stopped.is_set():
                raise ModelRejectedError("the program is shutting down")
            tries += 1
            return _answer(model, prompt)

        def fail(reason: str, error: ModelError, answer: Answer | None) -> Outcome:
            told = self._told(cause, prompt, answer)
            failure = FailUpdate(
                at="", reason=reason, detail=clip(str(error), 2_000), attempts=job.attempts + tries, turns=job.turns
            )
            return Outcome(writer.commit(failure, told, at=at), covered=False, failed=True)

        try:
            answer = self._persist(ask)
        except ModelError as error:
            if self._stopped.is_set():
                return _INTERRUPTED
            return fail("unavailable" if isinstance(error, ModelUnavailableError) else "rejected", error, None)
        if self._stopped.is_set():
            return _INTERRUPTED
        try:
            proposal = read_reply(answer.text, turns, prompted=answer.prompted)
        except ReplyError as error:
            return fail("reply", error, answer)
        told = msgspec.structs.replace(self._told(cause, prompt, answer), turns=job.turns)
        command = Extract(at="", thread=job.thread, proposal=proposal, basis=memory.seq)
        commit = writer.commit(command, told, at=at)
        return Outcome(commit, covered=commit.cause.turns is not None, failed=False)

    def _told(self, cause: Cause, prompt: Prompt, answer: Answer | None) -> Cause:
        usage = answer.usage if answer is not None else None
        return msgspec.structs.replace(
            cause,
            prompt=prompt.digest if answer is None or answer.prompted else None,
            model=cause.model if answer is None else clip(answer.model, MAX_NAME),
            tokens_in=_tokens(usage.input) if usage else None,
            tokens_out=_tokens(usage.output) if usage else None,
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
