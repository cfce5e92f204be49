"""Extraction here and now: pending and parked updates run, or are given up; background work is flushed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.commands import FailUpdate
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.learning.flushed import Flushed
from backstory.ledger.learning.summarizer import SummaryOutcome
from backstory.ledger.learning.updater import Job, Outcome
from backstory.ledger.log.reader import WaitingThread
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.coverage import Parked
from backstory.ledger.threads.due import Timing, telling_runs
from backstory.results import Extracted
from backstory.services.named import must_know
from backstory.services.services import (
    NO_MODEL_HERE,
    HomeServices,
    Operations,
    Progress,
    ScopeServices,
    some_model,
)

if TYPE_CHECKING:
    from backstory.ledger.extraction.models.recorded import RecordedReply


Recorded: TypeAlias = "RecordedReply | Mapping[str, object]"
"""A recorded answer, or the same as `{"thread_id": …, "reply": …}`."""


def not_learned(home: HomeServices, writers: Iterable[Writer]) -> Flushed:
    """Say why a home without workers leaves turns pending; done where none is worth an update."""
    waiting = [waiting for writer in writers for waiting in _backlog(writer, home.timing) if waiting.due is not None]
    if not waiting:
        return Flushed(done=True)
    pending = sum(one.turns for one in waiting)
    return Flushed(done=False, reason=f"{why_not_in_background(home)}; pending turns: {pending}")


def why_not_in_background(home: HomeServices) -> str:
    """Say why a home without workers has none, and what to do."""
    if home.model is None:
        return NO_MODEL_HERE
    if home.enabled:
        return "this home extracts nothing in the background (`background=False`, or `mode: tool`): call `extract`"
    return "`enabled` is off, so nothing is extracted: call `extract`"


def _backlog(writer: Writer, timing: Timing) -> list[WaitingThread]:
    with writer.reader.backlog() as backlog:
        return backlog.waiting(timing)


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
    if services.home.retention is not None:
        services.home.retention.apply(services.writer)


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
        home.usage.flush(services.reading())
        shown = home.projector.flush(services.writer)
        if services.users is not None:
            # What was learned of this agent may have written the user's sections.
            shown = home.projector.flush(services.users) and shown
        if home.witness is not None:
            home.witness.sender.flush(max(0.0, end - time.monotonic()))
        behind = f"{home.document(services.scope)} could not be written, see the log: it follows with the next commit"
        return learned if shown else Flushed.unless(learned.reason, behind, unfinished=learned.unfinished)

    aextract = in_thread(extract)
    aretry = in_thread(retry)
    adiscard = in_thread(discard)
    aflush = in_thread(flush)
