"""Recording what was said, and learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from backstory.checks import messages_in
from backstory.intake import Intake, Unreadable, kept_of
from backstory.results import (
    Extracted,
    FaultCount,
    ParkedThread,
    PendingThread,
    RecordResult,
    Status,
    ThreadSummary,
    TurnView,
)
from backstory.scoped import Progress, Scoped
from ledger.commands import FailUpdate
from ledger.coverage import Parked
from ledger.due import due_at, due_runs
from ledger.errors import NoModelError, NotFoundError, UnavailableError, UsageError
from ledger.events import TurnRange
from ledger.extraction.model import Model
from ledger.scope import LEDGER, TRANSCRIPT
from ledger.summaries import ThreadSummaryText, thread_summaries
from ledger.summarizer import Summing
from ledger.transcript import Thread
from ledger.updater import Job, Outcome
from ledger.writer import State

if TYPE_CHECKING:
    from ledger.extraction.recorded import RecordedReply
    from ledger.messages import KeepHidden

__all__ = ["Learning", "Mode", "Recorded"]

Mode = Literal["conversation", "append"]

Recorded: TypeAlias = "RecordedReply | Mapping[str, object]"
"""A recorded answer, or the same as `{"thread_id": …, "reply": …}`."""


class Learning(Scoped):
    """The part of a handle that takes conversations in."""

    def record(
        self,
        thread: str,
        messages: Iterable[object],
        *,
        mode: Mode = "conversation",
        at_once: bool = False,
        keep_hidden: KeepHidden | None = None,
        unreadable: Unreadable | None = None,
    ) -> RecordResult:
        """Keep what of a conversation is new; durable when it returns, learned from after the debounce.

        `messages` are dicts, LangChain or OpenAI messages: the whole conversation or only what is new; with
        `mode="append"` all of them are new. `at_once` skips the debounce, for words about to be lost to the agent.
        With `enabled: false` nothing is kept, and every message counts as skipped.

        `keep_hidden` is asked with the `additional_kwargs` of a message its host hides: True keeps it, as a person's
        own words. With `unreadable` a message nobody can read is left out and told, by its index in `messages` and what
        is wrong with it; it counts as skipped.

        Raises:
            InputError: no list of messages, or one that cannot be read and no `unreadable` to tell; nothing of the
                delivery is recorded.
        """
        if mode not in ("conversation", "append"):
            raise UsageError(f"mode is {mode!r}; it is conversation or append")
        sent = messages_in(messages)
        kept = kept_of(sent, keep_hidden, unreadable)
        taken = self.intake.take_in(thread, kept, append=mode == "append", at_once=at_once)
        return msgspec.structs.replace(taken, skipped=taken.skipped + len(sent) - len(kept))

    @property
    def intake(self) -> Intake:
        """Where what was read before is taken in, for whoever had to wait with it."""
        return Intake(self._own, self._engine)

    def flush(self, timeout: float = 30.0) -> bool:
        """Have what is pending learned from now; True when nothing due is left within `timeout` seconds.

        memory.json is exact then; where it could not be written it is False too, and the log says why.
        """
        producer = self._engine.producer
        done = self._nothing_due() if producer is None else producer.flush(timeout)
        self._tidy()
        self._engine.heat.flush(self._reading())
        return self._engine.keeper.flush(self._writer) and done

    def _tidy(self) -> None:
        if self._engine.retention is not None:
            self._engine.retention.tidy(self._writer)

    def _nothing_due(self) -> bool:
        return not any(thread.due_in == 0 for thread in self.status().pending)

    def extract(
        self,
        replies: Sequence[Recorded] | None = None,
        *,
        thread: str | None = None,
        dated: bool = False,
        skipped: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> Extracted:
        """Run every pending update here and now.

        With `replies`, recorded answers take the model's place: a thread's pending turns make one update with its next
        reply; a reply whose thread has nothing pending is told to `skipped`. `dated` dates commits by the last turn
        they cover, for a backfill. A model is then asked to sum up what of the threads is long enough, also where that
        has failed before; recorded answers never lead to summaries.

        Raises:
            NoModelError: there is no model and no replies.
            NotFoundError: there is no such thread.
        """
        if thread is not None:
            self._must_know(thread)
        outcomes: list[Outcome] = []
        summed: list[Summing] = []
        if replies is not None:
            from ledger.extraction.recorded import as_reply

            for number, reply in enumerate(map(as_reply, replies), 1):
                if thread in (None, reply.thread):
                    outcomes += self._answer(reply, number, dated=dated, skipped=skipped)
                if progress is not None:
                    progress(number)
            self._tidy()
            return _extracted(outcomes)
        with self._writer.state() as state:
            names = [name for name in state.transcript.threads.unsettled() if thread in (None, name)]
        for number, name in enumerate(names, 1):
            with self._claimed(name):
                for run in self._due(name):
                    job = Job(name, run, dated=dated)
                    outcomes += self._engine.updater.run(self._writer, job, self._model())
                summed += self._sum_up(name, dated=dated)
            if progress is not None:
                progress(number)
        if self._engine.model is not None:
            for name in self._engine.summarizer.has_work(self._writer, thread):
                if name not in names:
                    with self._claimed(name):
                        summed += self._sum_up(name, dated=dated)
        self._tidy()
        return _extracted(outcomes, summed)

    def _sum_up(self, thread: str, *, dated: bool) -> Sequence[Summing]:
        if self._engine.model is None:
            return ()
        return self._engine.summarizer.run(self._writer, thread, self._engine.model, anyway=True, dated=dated)

    def summaries(self, thread: str) -> tuple[ThreadSummaryText, ...]:
        """Return what tells a long thread, the oldest turns first and without overlap; the newest are in none yet.

        Raises:
            NotFoundError: there is no such thread.
        """
        self._must_know(thread)
        return thread_summaries(self._writer.memory(), thread)

    def _due(self, thread: str) -> list[TurnRange]:
        with self._writer.state() as state:
            known = state.transcript.threads.get(thread)
            return [] if known is None else due_runs(state.coverage, known)

    def _answer(
        self, reply: RecordedReply, number: int, *, dated: bool, skipped: Callable[[str], None] | None
    ) -> list[Outcome]:
        with self._claimed(reply.thread):
            runs = self._due(reply.thread)
            if runs:
                job = Job(reply.thread, runs[0], dated=dated)
                return [*self._engine.updater.run(self._writer, job, reply)]
        if skipped is not None:
            skipped(f"reply {number}: thread {reply.thread} has nothing pending that is worth an update")
        return []

    def _model(self) -> Model:
        if self._engine.model is None:
            raise NoModelError(
                "no model is configured: set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own) and, if you "
                "like, model_name; or give recorded replies"
            )
        return self._engine.model

    def retry(self, thread: str | None = None, *, replies: Sequence[Recorded] | None = None) -> Extracted:
        """Run parked updates again, with the model or with recorded replies.

        Raises:
            NoModelError: there is no model and no replies.
            NotFoundError: there is no such thread.
        """
        if thread is not None:
            self._must_know(thread)
        from ledger.extraction.recorded import as_reply

        answers = {reply.thread: reply for reply in map(as_reply, reversed(replies or ()))}
        outcomes: list[Outcome] = []
        for name, parked in self._parked(thread):
            model = answers.get(name) if replies is not None else self._model()
            if model is not None:
                with self._claimed(name):
                    # Somebody else may have tried it again while this one waited.
                    if (name, parked) in self._parked(name):
                        job = Job(name, parked.turns, attempts=parked.attempts)
                        outcomes += self._engine.updater.run(self._writer, job, model)
        return _extracted(outcomes)

    def _parked(self, thread: str | None) -> list[tuple[str, Parked]]:
        with self._writer.state() as state:
            threads = state.transcript.threads
            chosen = [threads[name] for name in threads.unsettled() if thread in (None, name)]
            return [(known.name, parked) for known in chosen for parked in state.coverage.parked(known)]

    def discard(self, thread: str) -> Extracted:
        """Give up a thread's parked updates: a commit covers their turns without learning from them.

        Raises:
            NotFoundError: there is no such thread, or nothing of it is parked.
        """
        self._must_know(thread)
        seen = self._writer.memory().seq
        parked = self._parked(thread)
        if not parked:
            raise NotFoundError(f"nothing of thread {thread} is parked: see `status`")
        commits = []
        for _, item in parked:
            # What an erasure takes away meanwhile must not be said again.
            command = FailUpdate(at="", reason="discarded", detail=item.detail, attempts=item.attempts, basis=seen)
            cause = self._cause("manual", action="discard", thread=thread, turns=item.turns)
            commits.append(self._writer.commit(command, cause).seq)
        return Extracted(len(commits), 0, tuple(commits))

    def threads(self) -> tuple[ThreadSummary, ...]:
        """Return the conversations recorded here, by first word."""
        with self._writer.state() as state:
            return tuple(
                ThreadSummary(
                    name,
                    len(thread.standing()),
                    thread.recorded_at[-1] if thread.recorded_at else "",
                    _count(thread, state.coverage.pending(thread)),
                )
                for name, thread in state.transcript.threads.items()
            )

    def transcript(self, thread: str) -> tuple[TurnView, ...]:
        """Return the turns of a thread that stand, in order.

        Raises:
            NotFoundError: there is no such thread.
        """
        self._must_know(thread)
        with self._writer.state() as state:
            turns = state.transcript.threads[thread].standing()
        return tuple(
            TurnView(t.id, t.role, t.content, t.at, t.n, t.name, t.cause_by, t.sent_from, t.send_to, t.metadata, thread)
            for t in turns
        )

    def status(self) -> Status:
        """Tell where the scope stands, what waits, and what failed of late."""
        faults = self._engine.faults.of(self.scope)
        try:
            return self._status(faults)
        except UnavailableError as error:
            if faults:
                # Whoever asks why memory is silent is told that, too.
                error.args = (f"{error}; {_spelled(faults)}",)
            raise

    def _status(self, faults: tuple[FaultCount, ...]) -> Status:
        store = self._writer.store
        with self._writer.state() as state:
            head = self._writer.head
            return Status(
                seq=head.seq,
                hash=head.hash,
                facts=len(state.memory.facts),
                pending=tuple(self._pending(state)),
                parked=tuple(_parked_threads(state)),
                turns=state.transcript.turn_count,
                threads=len(state.transcript.threads),
                ledger_bytes=store.size(self.scope.stream(LEDGER)),
                transcript_bytes=store.size(self.scope.stream(TRANSCRIPT)),
                store=str(store),
                model=self._engine.model.name if self._engine.model is not None else None,
                user=self.scope.user,
                agent=self.scope.agent,
                faults=faults,
            )

    def _pending(self, state: State) -> Iterator[PendingThread]:
        now = self._writer.clock.now()
        threads = state.transcript.threads
        for name in threads.unsettled():
            thread = threads[name]
            runs = state.coverage.pending(thread)
            if runs:
                due = due_at(state.coverage, thread, self._engine.timing, now)
                due_in = None if due is None else max(0.0, round((due - now).total_seconds(), 3))
                yield PendingThread(name, _count(thread, runs), due_in)


def _extracted(outcomes: Sequence[Outcome], summed: Sequence[Summing] = ()) -> Extracted:
    seqs = tuple(outcome.commit.seq for outcome in outcomes if outcome.commit is not None)
    summaries = tuple(summing.commit.seq for summing in summed if not summing.failed)
    failed = sum(outcome.failed for outcome in outcomes)
    return Extracted(len(seqs), failed, seqs, summaries, len(summed) - len(summaries))


def _spelled(faults: Sequence[FaultCount]) -> str:
    counts = ", ".join(f"{fault.count} x {fault.doing} ({fault.kind})" for fault in faults)
    return f"memory failed since {min(fault.first for fault in faults)}: {counts}"


def _count(thread: Thread, runs: Iterable[TurnRange]) -> int:
    return sum(len(thread.standing(run.first, run.last)) for run in runs)


def _parked_threads(state: State) -> Iterator[ParkedThread]:
    threads = state.transcript.threads
    for name in threads.unsettled():
        for item in state.coverage.parked(threads[name]):
            yield ParkedThread(name, _count(threads[name], [item.turns]), item.reason, item.attempts, item.detail)
