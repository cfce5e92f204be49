"""Recording what was said, and learning from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, get_args

import msgspec

from backstory.checks import messages_in
from backstory.ledger.core.commands import FailUpdate
from backstory.ledger.core.errors import NoModelError, NotFoundError, UnavailableError, UsageError
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.core.summaries import ThreadSummaryText, thread_summaries
from backstory.ledger.extraction.model import Model
from backstory.ledger.learning.summarizer import SummaryOutcome
from backstory.ledger.learning.updater import Job, Outcome
from backstory.ledger.log.backlog import WaitingThread, count_turns
from backstory.ledger.log.writer import read_commits
from backstory.ledger.threads.coverage import Parked
from backstory.ledger.threads.due import due_runs
from backstory.ledger.threads.turn_dedup import Mode
from backstory.operations.recording import Intake, Unreadable, kept_of
from backstory.operations.scope_base import Progress, ScopeBase
from backstory.projections.turns.superseded import superseded_turns
from backstory.results import (
    Extracted,
    FaultCount,
    ParkedThread,
    PendingThread,
    RecordResult,
    Restored,
    Status,
    SupersededTurn,
    ThreadSummary,
    TurnView,
)

if TYPE_CHECKING:
    from backstory.ledger.extraction.recorded import RecordedReply
    from backstory.ledger.messages import KeepHidden

__all__ = ["Learning", "Mode", "Recorded"]


Recorded: TypeAlias = "RecordedReply | Mapping[str, object]"
"""A recorded answer, or the same as `{"thread_id": …, "reply": …}`."""


class Learning(ScopeBase):
    """The part of a handle that takes conversations in."""

    def record(
        self,
        thread: str,
        messages: Iterable[object],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
    ) -> RecordResult:
        """Keep what of a conversation is new; durable when it returns, learned from after the debounce.

        `messages` are dicts, LangChain or OpenAI messages: the whole conversation or only what is new. With
        `mode="append"` all of them are new; with `mode="replace"` they are the whole conversation as it stands now, and
        what they leave out stands no longer. `immediate` skips the debounce, for words about to be lost to the agent.
        With `enabled: false` nothing is kept, and every message counts as skipped.

        `keep_hidden` is asked with the `additional_kwargs` of a message its host hides: True keeps it, as a person's
        own words. With `on_unreadable`, a message that cannot be read is skipped; the callback gets its index in
        `messages` and the error.

        Raises:
            InputError: no list of messages, or one that cannot be read and no `on_unreadable` to tell; nothing of the
                delivery is recorded.
        """
        if mode not in get_args(Mode):
            raise UsageError(f"mode is {mode!r}; it is conversation, append or replace")
        sent = messages_in(messages)
        kept = kept_of(sent, keep_hidden, on_unreadable)
        taken = self.intake.take_in(thread, kept, mode=mode, immediate=immediate)
        return msgspec.structs.replace(taken, skipped=taken.skipped + len(sent) - len(kept))

    @property
    def intake(self) -> Intake:
        """Where what was read before is taken in, for whoever had to wait with it."""
        return Intake(self._own, self._services)

    def flush(self, timeout: float = 30.0) -> bool:
        """Have what is pending learned from now; True when nothing due is left within `timeout` seconds.

        memory.json is exact then; where it could not be written it is False too, and the log says why. What is left of
        the time is given to the witness; whether it took the heads does not change the result: see `status`.
        """
        producer = self._services.producer
        end = time.monotonic() + timeout
        done = self._nothing_due() if producer is None else producer.flush(timeout)
        self._tidy()
        self._services.heat.flush(self._reading())
        shown = self._services.projector.flush(self._writer)
        if self._services.witness is not None:
            self._services.witness.sender.flush(max(0.0, end - time.monotonic()))
        return shown and done

    def _tidy(self) -> None:
        if self._services.retention is not None:
            self._services.retention.apply(self._writer)

    def _nothing_due(self) -> bool:
        return not any(thread.due_in == 0 for thread in self.status().pending)

    def extract(
        self,
        replies: Sequence[Recorded] | None = None,
        *,
        thread: str | None = None,
        backdate: bool = False,
        on_skipped: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> Extracted:
        """Run every pending update here and now.

        With `replies`, recorded answers take the model's place: a thread's pending turns make one update with its next
        reply; `on_skipped` gets a line for a reply whose thread has nothing pending. `backdate` dates commits by the
        last turn they cover, for a backfill. A model is then asked to sum up what of the threads is long enough, also
        where that has failed before; recorded answers never lead to summaries.

        Raises:
            NoModelError: there is no model and no replies.
            NotFoundError: there is no such thread.
        """
        if thread is not None:
            self._must_know(thread)
        outcomes: list[Outcome] = []
        summed: list[SummaryOutcome] = []
        if replies is not None:
            from backstory.ledger.extraction.recorded import as_reply

            for number, reply in enumerate(map(as_reply, replies), 1):
                if thread in (None, reply.thread):
                    outcomes += self._answer(reply, number, backdate=backdate, on_skipped=on_skipped)
                if progress is not None:
                    progress(number)
            self._tidy()
            return _extracted(outcomes)
        with self._writer.state() as state:
            names = [name for name in state.transcript.threads.unsettled() if thread in (None, name)]
        for number, name in enumerate(names, 1):
            with self._claimed(name):
                for run in self._due(name):
                    job = Job(name, run, backdate=backdate)
                    outcomes += self._services.updater.run(self._writer, job, self._model())
                summed += self._sum_up(name, backdate=backdate)
            if progress is not None:
                progress(number)
        if self._services.model is not None:
            for name in self._services.summarizer.has_work(self._writer, thread):
                if name not in names:
                    with self._claimed(name):
                        summed += self._sum_up(name, backdate=backdate)
        self._tidy()
        return _extracted(outcomes, summed)

    def _sum_up(self, thread: str, *, backdate: bool) -> Sequence[SummaryOutcome]:
        if self._services.model is None:
            return ()
        return self._services.summarizer.run(self._writer, thread, self._services.model, anyway=True, backdate=backdate)

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
        self, reply: RecordedReply, number: int, *, backdate: bool, on_skipped: Callable[[str], None] | None
    ) -> list[Outcome]:
        with self._claimed(reply.thread):
            runs = self._due(reply.thread)
            if runs:
                job = Job(reply.thread, runs[0], backdate=backdate)
                return [*self._services.updater.run(self._writer, job, reply)]
        if on_skipped is not None:
            on_skipped(f"reply {number}: thread {reply.thread} has nothing pending that is worth an update")
        return []

    def _model(self) -> Model:
        if self._services.model is None:
            raise NoModelError(
                "no model is configured: set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own) and, if you "
                "like, model_name; or give recorded replies"
            )
        return self._services.model

    def retry(self, thread: str | None = None, *, replies: Sequence[Recorded] | None = None) -> Extracted:
        """Run parked updates again, with the model or with recorded replies.

        Raises:
            NoModelError: there is no model and no replies.
            NotFoundError: there is no such thread.
        """
        if thread is not None:
            self._must_know(thread)
        from backstory.ledger.extraction.recorded import as_reply

        answers = {reply.thread: reply for reply in map(as_reply, reversed(replies or ()))}
        outcomes: list[Outcome] = []
        for name, parked in self._parked(thread):
            model = answers.get(name) if replies is not None else self._model()
            if model is not None:
                with self._claimed(name):
                    # Somebody else may have tried it again while this one waited.
                    if (name, parked) in self._parked(name):
                        job = Job(name, parked.turns, attempts=parked.attempts)
                        outcomes += self._services.updater.run(self._writer, job, model)
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
        with self._writer.reader.state() as state:
            return tuple(
                ThreadSummary(
                    name,
                    len(thread.standing()),
                    thread.recorded_at[-1] if thread.recorded_at else "",
                    count_turns(thread, state.coverage.pending(thread)),
                )
                for name, thread in state.transcript.threads.items()
            )

    def transcript(self, thread: str) -> tuple[TurnView, ...]:
        """Return the turns of a thread that stand, in order.

        Raises:
            NotFoundError: there is no such thread.
        """
        self._must_know(thread)
        with self._writer.reader.state() as state:
            turns = state.transcript.threads[thread].standing()
        return tuple(
            TurnView(t.id, t.role, t.content, t.at, t.n, t.name, t.cause_by, t.sent_from, t.send_to, t.metadata, thread)
            for t in turns
        )

    def superseded(self, thread: str) -> tuple[SupersededTurn, ...]:
        """Return the turns of a thread that no longer stand and can be restored, in the order they were said.

        Raises:
            NotFoundError: there is no such thread.
        """
        self._must_know(thread)
        store, stream = self._writer.store, self._writer.transcript_stream
        return superseded_turns(read_commits(store, stream, until=store.durable_head(stream)), thread)

    def restore(self, thread: str, turns: Sequence[str | int] | None = None) -> Restored:
        """Bring superseded turns back: they stand again, in their place, and are pending.

        Args:
            thread: the conversation.
            turns: ids or ordinals, as `superseded` shows them; of several turns with one id the last. None: those that
                a delivery superseded without proving that it told the whole conversation.

        Raises:
            NotFoundError: there is no such thread, or a turn that was named is not superseded, is erased, or a later
                text stands under its id; nothing was restored.
        """
        superseded = self.superseded(thread)
        chosen = [turn for turn in superseded if not turn.proven] if turns is None else _named(superseded, turns)
        done = set(self._writer.restore(thread, [turn.n for turn in chosen], actor=self._services.actor))
        if done and self._services.producer is not None:
            self._services.producer.notice(self._writer, thread)
        return Restored(thread, tuple(turn for turn in chosen if turn.n in done))

    def status(self) -> Status:
        """Tell where the scope stands, what waits, and what failed of late."""
        faults = self._services.faults.of(self.scope)
        try:
            return self._status(faults)
        except UnavailableError as error:
            if faults:
                # Whoever asks why memory is silent is told that, too.
                error.args = (f"{error}; {_spelled(faults)}",)
            raise

    def _status(self, faults: tuple[FaultCount, ...]) -> Status:
        store, reader = self._writer.store, self._writer.reader
        with reader.backlog() as backlog:
            view = backlog.view
            waiting = backlog.waiting(self._services.timing)
            memory, head, turns = view.memory, view.head, view.transcript.turn_count
            threads = len(view.transcript.threads)
        return Status(
            seq=head.seq,
            hash=head.hash,
            facts=len(memory.facts),
            pending=tuple(self._pending(waiting)),
            parked=tuple(
                ParkedThread(one.thread, count, item.reason, item.attempts, item.detail)
                for one in waiting
                for item, count in one.parked
            ),
            turns=turns,
            threads=threads,
            ledger_bytes=store.size(self.scope.stream(LEDGER)),
            transcript_bytes=store.size(self.scope.stream(TRANSCRIPT)),
            store=str(store),
            model=self._services.model.name if self._services.model is not None else None,
            user=self.scope.user,
            agent=self.scope.agent,
            faults=faults,
        )

    def _pending(self, waiting: Iterable[WaitingThread]) -> Iterator[PendingThread]:
        now = self._writer.clock.now()
        # A clock that was set back puts nothing off for a year.
        latest = now + timedelta(seconds=self._services.timing.debounce)
        for one in waiting:
            if one.turns:
                due_in = None if one.due is None else max(0.0, round((min(one.due, latest) - now).total_seconds(), 3))
                yield PendingThread(one.thread, one.turns, due_in)


def _extracted(outcomes: Sequence[Outcome], summed: Sequence[SummaryOutcome] = ()) -> Extracted:
    seqs = tuple(outcome.commit.seq for outcome in outcomes if outcome.commit is not None)
    summaries = tuple(summing.commit.seq for summing in summed if not summing.failed)
    failed = sum(outcome.failed for outcome in outcomes)
    return Extracted(len(seqs), failed, seqs, summaries, len(summed) - len(summaries))


def _named(superseded: Sequence[SupersededTurn], turns: Sequence[str | int]) -> list[SupersededTurn]:
    by_id = {turn.id: turn for turn in superseded}
    by_ordinal = {turn.n: turn for turn in superseded}
    found = [by_ordinal.get(name) if isinstance(name, int) else by_id.get(name) for name in turns]
    missing = [str(name) for name, turn in zip(turns, found, strict=True) if turn is None]
    if missing:
        raise NotFoundError(
            f"{', '.join(missing)}: not among the superseded turns that can be restored; nothing was restored. "
            "See `turns THREAD --superseded`"
        )
    return [turn for turn in dict.fromkeys(found) if turn is not None]


def _spelled(faults: Sequence[FaultCount]) -> str:
    counts = ", ".join(f"{fault.count} x {fault.doing} ({fault.kind})" for fault in faults)
    return f"memory failed since {min(fault.first for fault in faults)}: {counts}"
