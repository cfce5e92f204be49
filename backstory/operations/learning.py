"""Extraction here and now: pending and parked updates run, or are given up; background work is flushed.

Reextraction says what memory would be if another model, or other prompts, had answered.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.commands import FailUpdate
from backstory.ledger.core.errors import ConfigError, NotFoundError, UsageError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.flushed import Flushed
from backstory.ledger.learning.summarizer import SummaryOutcome
from backstory.ledger.learning.thread_learner import erase_old_turns
from backstory.ledger.learning.updater import Job, Outcome
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.coverage import Parked
from backstory.ledger.threads.due import telling_runs
from backstory.projections.history.views import diff
from backstory.projections.what_if.reextract import BudgetedModel, RecordedLedger, Rerun, ask_again
from backstory.results import Extracted, Reextracted
from backstory.services.home_services import HomeServices
from backstory.services.named import must_know
from backstory.services.services import NO_MODEL_HERE, Operations, Progress, ScopeServices, some_model

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.models.recorded import RecordedReply


Recorded: TypeAlias = "RecordedReply | Mapping[str, object]"
"""A recorded answer, or the same as `{"thread_id": …, "reply": …}`."""


def not_learned(home: HomeServices, writers: Iterable[Writer]) -> Flushed:
    """Say why a home without workers leaves turns pending; done where none is worth an update."""
    pending: list[int] = []
    for writer in writers:
        with writer.reader.backlog() as backlog:
            pending += [one.turns for one in backlog.waiting(home.timing) if one.due is not None]
    if not pending:
        return Flushed(done=True)
    return Flushed(done=False, reason=f"{why_not_in_background(home)}; pending turns: {sum(pending)}")


def why_not_in_background(home: HomeServices) -> str:
    """Say why a home without workers has none, and what to do."""
    if home.model is None:
        return NO_MODEL_HERE
    if home.settings.enabled:
        return "this home extracts nothing in the background (`background=False`, or `mode: tool`): call `extract`"
    return "`enabled` is off, so nothing is extracted: call `extract`"


def _answer(
    services: ScopeServices,
    replies: Sequence[Recorded],
    *,
    thread: str | None,
    backdate: bool,
    on_skipped: Callable[[str], None] | None,
    progress: Progress | None,
) -> Extracted:
    """Run pending updates with recorded answers in the model's place; see `MemoryHandle.extract`."""
    from backstory.ledger.extraction.models.recorded import as_reply

    writer = services.writer
    if thread is not None:
        must_know(writer, thread)
    outcomes: list[Outcome] = []
    for number, reply in enumerate(map(as_reply, replies), 1):
        if thread in (None, reply.thread):
            with services.claimed(reply.thread):
                runs = _due(writer, reply.thread)
                if runs:
                    job = Job(reply.thread, runs[0], backdate=backdate, unanswered=True, actor=services.requester)
                    outcomes += services.home.updater.run(writer, job, reply)
            if not runs and on_skipped is not None:
                on_skipped(f"reply {number}: thread {reply.thread} has nothing pending that is worth an update")
        if progress is not None:
            progress(number)
    _settle_faults(services, outcomes)
    _tidy(services)
    return _extracted(outcomes)


def _settle_faults(services: ScopeServices, done: Sequence[object]) -> None:
    """Clear the failures of the model that recorded replies or a discard made good: nothing of them is left."""
    if done and not _parked(services.writer, None):
        services.home.faults.made_good(services.scope, "extract")


def _tidy(services: ScopeServices) -> None:
    erase_old_turns(services.writer, services.home.settings.transcript_retention_days)


def _due(writer: Writer, thread: str) -> list[TurnRange]:
    with writer.state() as state:
        known = state.transcript.threads.get(thread)
        return [] if known is None else telling_runs(state.coverage, known)


def _parked(writer: Writer, thread: str | None) -> list[tuple[str, Parked]]:
    with writer.state() as state:
        threads = state.transcript.threads
        chosen = [threads[name] for name in threads.unsettled() if thread in (None, name)]
        return [(known.name, parked) for known in chosen for parked in state.coverage.parked(known)]


def _extracted(outcomes: Sequence[Outcome], summed: Sequence[SummaryOutcome] = ()) -> Extracted:
    seqs = tuple(outcome.commit.seq for outcome in outcomes if outcome.commit is not None)
    summaries = tuple(summing.commit.seq for summing in summed if not summing.failed)
    failed = sum(outcome.failed for outcome in outcomes)
    return Extracted(len(seqs), failed, seqs, summaries, len(summed) - len(summaries))


class Learning(Operations):
    """What learns here and now; see `MemoryHandle`."""

    # Extracting.

    def extract(
        self,
        replies: Sequence[Recorded] | None = None,
        *,
        thread: str | None = None,
        backdate: bool = False,
        on_skipped: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> Extracted:
        """Run every pending update now, then summarise threads that are long enough.

        It learns also from a user's last words, which have no answer yet. A bare acknowledgement alone waits for the
        next update.

        Args:
            replies: Recorded answers that take the model's place: a thread's pending turns make one update with its
                next reply. Recorded answers never lead to summaries.
            thread: Only this conversation.
            backdate: Date commits by the last turn they cover, for a backfill.
            on_skipped: Gets a line for each reply whose thread has nothing pending.
            progress: Gets the number of threads, or replies, that are done.

        Returns:
            The updates made, how many of them failed, and their commits.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
        """
        if replies is not None:
            return _answer(
                self._services, replies, thread=thread, backdate=backdate, on_skipped=on_skipped, progress=progress
            )
        services = self._services
        writer, home = services.writer, services.home
        if thread is not None:
            must_know(writer, thread)
        outcomes: list[Outcome] = []
        summed: list[SummaryOutcome] = []

        def summarise(name: str) -> None:
            if home.model is not None:
                summed.extend(home.summarizer.run(writer, name, home.model, anyway=True, backdate=backdate))

        with writer.state() as state:
            names = [name for name in state.transcript.threads.unsettled() if thread in (None, name)]
        for number, name in enumerate(names, 1):
            with services.claimed(name):
                for run in _due(writer, name):
                    job = Job(name, run, backdate=backdate, unanswered=True, actor=services.requester)
                    outcomes += home.updater.run(writer, job, some_model(home.model))
                summarise(name)
            if progress is not None:
                progress(number)
        if home.model is not None:
            for name in home.summarizer.has_work(writer, thread):
                if name not in names:
                    with services.claimed(name):
                        summarise(name)
        _tidy(services)
        return _extracted(outcomes, summed)

    def retry(self, thread: str | None = None, *, replies: Sequence[Recorded] | None = None) -> Extracted:
        """Run parked updates again.

        Args:
            thread: Only this conversation.
            replies: Recorded answers that take the model's place.

        Returns:
            The updates made, how many of them failed, and their commits.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
        """
        from backstory.ledger.extraction.models.recorded import as_reply

        services = self._services
        writer, home = services.writer, services.home
        if thread is not None:
            must_know(writer, thread)
        answers = {reply.thread: reply for reply in map(as_reply, reversed(replies or ()))}
        outcomes: list[Outcome] = []
        for name, parked in _parked(writer, thread):
            model = answers.get(name) if replies is not None else some_model(home.model)
            if model is not None:
                with services.claimed(name):
                    # Another process may have tried it again while this one waited.
                    if (name, parked) in _parked(writer, name):
                        job = Job(name, parked.turns, attempts=parked.attempts, actor=services.requester)
                        outcomes += home.updater.run(writer, job, model)
        _settle_faults(services, outcomes)
        return _extracted(outcomes)

    def discard(self, thread: str) -> Extracted:
        """Give up a thread's parked updates: a commit covers their turns without learning from them.

        Args:
            thread: The conversation's id.

        Returns:
            The commits.

        Raises:
            NotFoundError: There is no such thread, or nothing of it is parked.
        """
        services = self._services
        writer = services.writer
        must_know(writer, thread)
        with writer.state() as state:
            seen, log = state.memory.seq, state.log
        parked = _parked(writer, thread)
        if not parked:
            raise NotFoundError(f"nothing of thread {thread} is parked: see `status`")
        commits = []
        for _, item in parked:
            # What is erased meanwhile must not be written again: the basis makes the commit fail then.
            command = FailUpdate(at="", reason="discarded", detail=item.detail, attempts=item.attempts, basis=seen)
            cause = services.cause("manual", action="discard", thread=thread, turns=item.turns)
            commits.append(writer.commit(command, cause, log=log).seq)
        _settle_faults(services, commits)
        return Extracted(len(commits), 0, tuple(commits))

    def flush(self, timeout: float = 30.0) -> Flushed:
        """Run everything pending now and bring memory.json up to date.

        It learns also from a user's last words, which have no answer yet. A bare acknowledgement alone waits for the
        next update. What an earlier failure has parked is left to `retry`.

        What is left of the time is given to the witness; whether it took the heads does not change the result: see
        `status`.

        Args:
            timeout: In seconds.

        Returns:
            True when everything is done and memory.json is exact. Otherwise a false result with its `reason`: there is
            no model, the time was over, an update failed, another process works on it, or memory.json cannot be
            written.
        """
        timeout = checks.number("timeout", timeout, 0, math.inf)
        services = self._services
        home = services.home
        end = time.monotonic() + timeout
        learned = not_learned(home, [services.writer]) if home.producer is None else home.producer.flush(timeout)
        _tidy(services)
        home.states(services.reading().scope).use.flush()
        shown = services.state.document.flush()
        if services.users is not None:
            # What was learned of this agent may have written the user's sections.
            shown = home.states(services.users.scope).document.flush() and shown
        if home.states.witness is not None:
            home.states.witness.sender.flush(max(0.0, end - time.monotonic()))
        behind = (
            f"{home.states.document(services.scope)} could not be written, see the log: it follows with the next commit"
        )
        return learned if shown else Flushed.unless(learned.reason, behind, unfinished=learned.unfinished)

    aextract = in_thread(extract)
    aretry = in_thread(retry)
    adiscard = in_thread(discard)
    aflush = in_thread(flush)


_MOST_NAMED = 10


@contextmanager
def _asked(services: ScopeServices, given: ModelLike | None) -> Iterator[Model]:
    """Choose the model to ask; what was opened for it is closed again."""
    from backstory.config.loading import chosen_model

    home = services.home
    chosen = some_model(home.model if given is None else chosen_model(given, home.loaded))
    try:
        yield chosen
    finally:
        close = getattr(chosen, "close", None)
        if isinstance(given, str) and callable(close):
            close()


def _result(found: Rerun, *, unused: int = 0) -> Reextracted:
    difference = diff(found.recorded, found.would_be)
    notes = []
    if found.erased:
        notes.append(f"words were erased, so the recorded answer stands: {_named(found.erased)}")
    if found.unanswered:
        notes.append(f"there was no reply, so the recorded answer stands: {_named(found.unanswered)}")
    if found.last_error:
        notes.append(f"the last call that failed said: {found.last_error}")
    if unused:
        notes.append(f"{unused} {'reply was' if unused == 1 else 'replies were'} not used: no update was left for them")
    return Reextracted(
        difference.added,
        difference.removed,
        difference.revised,
        difference.sections,
        len(found.would_be.facts),
        found.recorded.seq,
        found.complete,
        found.then,
        found.now,
        tuple(notes),
    )


def _named(seqs: Sequence[int]) -> str:
    more = len(seqs) - _MOST_NAMED
    named = ", ".join(map(str, seqs[:_MOST_NAMED]))
    return f"{'commit' if len(seqs) == 1 else 'commits'} {named}" + (f" and {more} more" if more > 0 else "")


class Reextracting(Operations):
    """What asks a model again; see `MemoryHandle`."""

    def reextract(
        self,
        model: ModelLike | None = None,
        prompts: str | Path | None = None,
        *,
        thread: str | None = None,
        replies: Sequence[RecordedReply] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> Reextracted:
        """Ask a model again over the recorded transcript, and compare. Nothing is written.

        Each recorded update is asked again on the memory that the new answers have led to so far, failed ones included;
        everything else is decided again, as for `what_if`. Pending turns are left out. Where the words are erased the
        recorded answer stands, and `notes` lists those commits.

        Args:
            model: What `Backstory.open` takes; the home's own unless given.
            prompts: A folder of templates in place of those configured.
            thread: Ask again about this conversation only.
            replies: Recorded answers that take the model's place: a thread's next update gets its next reply, and the
                recorded answer stands where none is left.
            max_calls: Stop after this number of calls, failed ones included.
            max_tokens: Stop before a call that would exceed this number of tokens.
            progress: Gets the number of commits that are done.

        Returns:
            Memory against what it would be, both as of the last commit reached, and what both cost.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
            UsageError: A cap is below 0, or a model and replies are both given.
            ConfigError: The folder of templates is missing, or one of them cannot be read.
        """
        services = self._services
        for name, cap in (("max_calls", max_calls), ("max_tokens", max_tokens)):
            if cap is not None and cap < 0:
                raise UsageError(f"{name} must be at least 0, got {cap}")
        if model is not None and replies is not None:
            raise UsageError("a model and recorded replies were given: leave one of them out")
        writer = services.reading()
        if thread is not None:
            must_know(writer, thread)
        if prompts is not None and not Path(prompts).is_dir():
            raise ConfigError(f"the folder of prompt templates {prompts} is not there: name one that is")
        updater = services.home.updater_with(None if prompts is None else Path(prompts))
        ledger = RecordedLedger(writer, services.logs(writer).turns)
        if replies is not None:
            left: defaultdict[str, deque[RecordedReply]] = defaultdict(deque)
            for reply in replies:
                left[reply.thread].append(reply)

            def next_of(name: str) -> Model | None:
                return left[name].popleft() if left[name] else None

            found = ask_again(ledger, updater, next_of, thread=thread, progress=progress)
            return _result(found, unused=sum(len(rest) for name, rest in left.items() if thread in (None, name)))
        with _asked(services, model) as chosen:
            meter = BudgetedModel(chosen, max_calls=max_calls, max_tokens=max_tokens)
            found = ask_again(ledger, updater, lambda _: meter, thread=thread, progress=progress)
        cost = {"calls": meter.calls, "tokens_in": meter.tokens_in, "tokens_out": meter.tokens_out}
        now = msgspec.structs.replace(found.now, **cost)
        # An update that the budget cut short has left no failure behind.
        last_error = found.last_error or ("" if found.complete or now.updates else meter.last_error)
        return _result(msgspec.structs.replace(found, now=now, last_error=last_error))

    areextract = in_thread(reextract)
