"""Updater: asks a model about a run of turns, and commits the answer or the failure."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.commands import Command, Extract, FailUpdate, Proposal
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ModelError, NotFoundError
from backstory.ledger.core.events import Turn, TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.extraction.models.model import Answer, Model, Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.model_caller import ModelCaller, ModelRequest, ask_once, reason_of
from backstory.ledger.learning.sharing import deliver, receive_all, try_to_deliver
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.coverage import Coverage, is_quiet, opening
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.extraction.prompt import PromptBuilder, Question
    from backstory.ledger.extraction.signals import Signals


_log = logging.getLogger(__name__)


class Job(msgspec.Struct, frozen=True):
    """A run of turns to learn from.

    Attributes:
        thread: the name of the thread.
        turns: the turns.
        attempts: the calls made for them before.
        backdate: whether to date the commit by the last turn.
        asked_at: the moment of asking, where it is not now; in UTC, as commits spell it.
        unanswered: whether to learn also from words that may still be answered.
        actor: who asked for it; None where it is due by itself.
    """

    thread: str
    turns: TurnRange
    attempts: int = 0
    backdate: bool = False
    asked_at: str | None = None
    unanswered: bool = False
    actor: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a job.

    Attributes:
        commit: its commit, or None where the job was interrupted.
        covered: whether the turns count as learned from.
        failed: whether the commit records a failure.
    """

    commit: Commit | None
    covered: bool
    failed: bool


class _Task(ModelRequest, kw_only=True):
    """A portion of a job with its prepared prompt.

    Attributes:
        said: its turns.
        users: the seq of the user's memory whose sections it shows; None for the sections of the scope itself.
        question: the prompt with what it shows, or None for a recorded reply.
        thread: the turns that a recorded reply may cite.
        tells: whether there is anything to learn from.
    """

    said: Sequence[Turn]
    users: int | None
    question: Question | None
    thread: Sequence[Turn]
    tells: bool

    def is_overtaken(self, *kinds: str) -> bool:
        """Whether the memory was overtaken, or the user's memory was erased in."""
        if super().is_overtaken(*kinds):
            return True
        if self.users is None or self.writer.users is None:
            return False
        # Of the user's memory only an erasure overtakes the whole answer; the sections have barriers of their own.
        return self.writer.users.memory().barriers.get("redaction", 0) > self.users


_INTERRUPTED = Outcome(None, covered=False, failed=False)
_NOTHING = Prompt("", "", "", {})
_NO_ANSWER = Proposal((), hashlib.sha256().hexdigest(), 0)


def _can_wait(coverage: Coverage, thread: Thread, job: Job) -> bool:
    """Whether the rest of a job can wait for the next update.

    It can where another process has covered it, where it is an acknowledgement, and where it is an unanswered question
    that the job does not include. Parked turns do not wait.
    """
    if coverage.covers(thread, job.turns):
        return True
    # A rest that begins with an assistant's turn is a long answer cut off from its question: it does not wait.
    begins = thread.standing(job.turns.first, job.turns.last)[0]
    if job.attempts or begins.role != "user":
        return False
    return opening(thread, job.turns) is None if job.unanswered else is_quiet(thread, job.turns)


class Updater:
    """Runs jobs; safe for threads.

    After `stop` no model is asked, and a job in progress ends without a commit: its turns stay pending.

    Args:
        model_caller: makes the calls; its clock is the time of prompts.
        prompts: a folder that overrides packaged templates.
        patterns: a folder that overrides packaged signal patterns.
        prompt_max_tokens: the limit of each prompt.
    """

    def __init__(
        self,
        model_caller: ModelCaller,
        *,
        prompts: Path | None = None,
        patterns: Path | None = None,
        prompt_max_tokens: int = 24_000,
    ) -> None:
        self.model_caller = model_caller
        self.clock = model_caller.clock
        self.prompts = prompts
        self.prompt_max_tokens = prompt_max_tokens
        self._patterns = patterns

    def signals(self) -> Signals:
        """Load the patterns of signals.

        Raises:
            ConfigError: As `load_signals`.
        """
        from backstory.ledger.extraction.signals import load_signals

        return load_signals(self._patterns)

    def stop(self) -> None:
        """Ask no model and commit nothing from now on."""
        self.model_caller.stop()

    def run(self, writer: Writer, job: Job, model: Model) -> tuple[Outcome, ...]:
        """Ask the model about a job and commit its answer; a failure is committed too, and parks the turns.

        A job that is too long for one prompt is split into portions. Each is one update, on the memory as it is then.
        After a failed portion the next one goes on. The job ends where a portion is interrupted, where an answer came
        too late to be used, and where the rest can wait for the next update: these turns stay pending. A recorded
        reply answers for the whole job at once. Nothing is asked where none of the turns stands any more.

        Returns:
            The outcomes of the portions, in order.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: As the store; the remaining turns stay pending.
            ConfigError: A prompt template or a pattern cannot be read, or the templates leave no room.
        """
        outcomes: list[Outcome] = []
        while (task := self._task(writer, job, model, first=not outcomes)) is not None:
            try:
                outcome = self._settle(task, model)
            except NotFoundError as error:
                _log.warning("%s", error)
                outcome = _INTERRUPTED
            outcomes.append(outcome)
            done = task.turns.last
            if done >= job.turns.last or not (outcome.covered or outcome.failed):
                break
            job = msgspec.structs.replace(job, turns=TurnRange(done + 1, job.turns.last))
        return tuple(outcomes)

    def _task(self, writer: Writer, job: Job, model: Model, *, first: bool) -> _Task | None:
        """Prepare the next portion of a job; None where there is nothing to ask."""
        users = self._users_memory(writer)
        with writer.state() as state:
            memory, pin, log = state.memory, state.transcript.head, state.log
            thread = state.transcript.threads.get(job.thread) or Thread(job.thread)
            turns = thread.standing(job.turns.first, job.turns.last)
            citable = thread.standing() if isinstance(model, RecordedReply) else ()
            if not turns or (not first and _can_wait(state.coverage, thread, job)):
                return None
        if users is not None:
            memory = memory.with_sections_of(users)
        name = clip(str(model.name), MAX_NAME)
        builder = None if isinstance(model, RecordedReply) else self._prompt_builder(writer, memory, job, turns[0])
        portion = turns if builder is None else builder.first_of(turns)
        patterns = self.signals()
        telling = portion if builder is None else patterns.telling(portion)
        signals = patterns.seen_in(telling)
        cause = Cause(
            kind="extraction",
            thread=job.thread,
            transcript=pin,
            model=name if telling else None,
            signals=signals,
            actor=job.actor,
        )
        question = None if builder is None or not telling else builder.question(telling, signals)
        return _Task(
            writer=writer,
            turns=job.turns if len(portion) == len(turns) else TurnRange(job.turns.first, portion[-1].n),
            prompt=_NOTHING if question is None else question.prompt,
            cause=cause,
            basis=memory.seq,
            log=log,
            at=parse_moment(portion[-1].at) if job.backdate else None,
            attempts=job.attempts,
            said=portion,
            users=None if users is None else users.seq,
            question=question,
            thread=citable,
            tells=bool(telling),
        )

    def _users_memory(self, writer: Writer) -> Memory | None:
        """Return the user's memory whose sections an agent's prompt shows, once it has received what was shared."""
        if writer.users is None:
            return None
        deliver(writer)
        receive_all(writer.users)
        return writer.users.memory()

    def _prompt_builder(self, writer: Writer, memory: Memory, job: Job, first: Turn) -> PromptBuilder:
        from backstory.ledger.extraction.prompt import PromptBuilder

        # A backfilled commit is dated no earlier than the job's first turn, so review dates hold at the commit too.
        now = (parse_moment(first.at) if job.backdate else None) or self.clock.now()
        at = max(job.asked_at or spell_moment(now), memory.at)
        return PromptBuilder(
            memory.standing_at(at),
            job.thread,
            at=at,
            folder=self.prompts,
            agent=writer.scope.agent,
            max_tokens=self.prompt_max_tokens,
        )

    def _settle(self, task: _Task, model: Model) -> Outcome:
        """Ask the model about a portion and commit the outcome."""
        from backstory.ledger.extraction.reply import read_reply

        answer, proposal, failure = None, _NO_ANSWER, None
        try:
            answer = self._ask(task, model) if task.tells else None
            if answer is not None:
                proposal = read_reply(answer.text, task.said, prompted=answer.prompted, thread=task.thread)
        except ModelError as error:
            failure = error
        if self.model_caller.stopped:
            return _INTERRUPTED
        return self._conclude(task, proposal, answer) if failure is None else self._fail(task, failure, answer)

    def _ask(self, task: _Task, model: Model) -> Answer | None:
        """Ask the model, with retries; None where the answer would be discarded.

        Raises:
            ModelUnavailableError, ModelRejectedError: As the port, or the program is shutting down.
        """
        if task.question is None:
            task.attempts += 1
            return ask_once(model, task.prompt)
        return self.model_caller.call(model, task)

    def _conclude(self, task: _Task, proposal: Proposal, answer: Answer | None) -> Outcome:
        """Commit an answer; the decision discards one that came too late."""
        question = task.question if answer is None or answer.prompted else None
        command = Extract(
            at="",
            thread=task.cause.thread or "",
            proposal=proposal,
            basis=task.basis,
            shown=None if question is None else question.shown,
            stale=None if question is None else question.stale,
            users=task.users,
        )
        commit = self._commit(task, command, answer, covered=task.turns)
        return Outcome(commit, covered=commit.cause.turns is not None, failed=False)

    def _fail(self, task: _Task, error: ModelError, answer: Answer | None) -> Outcome:
        """Commit a failure."""
        if task.is_overtaken("redaction"):
            # As for any answer that an erasure overtook: the turns are covered, and nothing of the answer is kept.
            return self._conclude(task, _NO_ANSWER, answer)
        failure = FailUpdate(
            at="",
            reason=reason_of(error),
            detail=clip(str(error), 2_000),
            attempts=task.attempts,
            turns=task.turns,
            basis=task.basis,
        )
        return Outcome(self._commit(task, failure, answer), covered=False, failed=True)

    def _commit(
        self, task: _Task, command: Command, answer: Answer | None, *, covered: TurnRange | None = None
    ) -> Commit:
        commit = task.commit(command, answer, covered=covered)
        self.model_caller.observers.settled(task.writer.scope, task.turns, task.attempts, commit)
        if task.users is not None:
            # The update is durable, whatever becomes of its sections now.
            try_to_deliver(task.writer, wait=True, newest=commit)
        return commit
