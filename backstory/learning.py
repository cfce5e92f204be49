"""Recording what was said, and learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from backstory.checks import messages_in
from backstory.results import (
    Extracted,
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
from ledger.errors import NoModelError, NotFoundError, UsageError
from ledger.events import TurnRange
from ledger.extraction.model import Model
from ledger.sanitize import MAX_NAME, safe_text
from ledger.scope import LEDGER, TRANSCRIPT
from ledger.summaries import ThreadSummaryText, thread_summaries
from ledger.summarizer import Summing
from ledger.transcript import Thread
from ledger.updater import Job, Outcome
from ledger.writer import State

if TYPE_CHECKING:
    from ledger.extraction.recorded import RecordedReply

__all__ = ["Learning", "Mode", "Recorded"]

Mode = Literal["conversation", "append"]

Recorded: TypeAlias = "RecordedReply | Mapping[str, object]"
"""A recorded answer, or the same as `{"thread_id": …, "reply": …}`."""


class Learning(Scoped):
    """The part of a handle that takes conversations in."""

    def record(
        self, thread: str, messages: Iterable[object], *, mode: Mode = "conversation", at_once: bool = False
    ) -> RecordResult:
        """Keep what of a conversation is new; durable when it returns, learned from after the debounce.

        `messages` are dicts, LangChain or OpenAI messages: the whole conversation or only what is new; with
        `mode="append"` all of them are new. `at_once` skips the debounce, for words about to be lost to the agent.
        With `enabled: false` nothing is kept, and every message counts as skipped.

        Raises:
            InputError: no list of messages, or one that cannot be read; nothing of the delivery is recorded.
        """
        from ledger.messages import keep, read_message

        if mode not in ("conversation", "append"):
            raise UsageError(f"mode is {mode!r}; it is conversation or append")
        if not isinstance(thread, str) or not thread or len(thread) > MAX_NAME:
            raise UsageError(f"a thread is named by a text of 1 to {MAX_NAME} characters: give the conversation's id")
        sent = messages_in(messages)
        # One after the other: of many messages only what is kept of each is there at a time.
        kept = keep(map(read_message, sent))
        self._engine.must_be_open()
        if not self._engine.enabled:
            return RecordResult(1, 0, len(sent))
        backlog = False
        try:
            recorded = self._writer.record(safe_text(thread), kept, append=mode == "append")
        finally:
            # A delivery that failed half-way has left turns behind that are to be learned from.
            if self._engine.producer is not None:
                self._engine.producer.notice(self._writer, safe_text(thread), at_once=at_once)
        if self._engine.producer is not None:
            limit = self._engine.queue_max_depth
            backlog = 0 < limit < self._engine.producer.depth()
        return RecordResult(1, recorded.turns, len(sent) - len(kept) + recorded.skipped, backlog)

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
        """Tell where the scope stands and what waits."""
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


def _count(thread: Thread, runs: Iterable[TurnRange]) -> int:
    return sum(len(thread.standing(run.first, run.last)) for run in runs)


def _parked_threads(state: State) -> Iterator[ParkedThread]:
    threads = state.transcript.threads
    for name in threads.unsettled():
        for item in state.coverage.parked(threads[name]):
            yield ParkedThread(name, _count(threads[name], [item.turns]), item.reason, item.attempts, item.detail)
