"""Recorded conversations: which there are, what stands in them, and what can be restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.summaries import ThreadSummaryText, thread_summaries
from backstory.ledger.erasure.digest import Seal, sealing
from backstory.ledger.log.backlog import count_turns
from backstory.ledger.log.commits import read_durable_commits
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.continuing import continued, holds
from backstory.ledger.threads.told import SKIPPED, Place
from backstory.ledger.threads.transcript import Thread, Threads
from backstory.operations.services import Operations, must_know
from backstory.projections.turns import TurnView
from backstory.projections.turns.superseded import SupersededTurn, superseded_turns
from backstory.results import Restored, SkippedText, ThreadSummary

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

_NEWEST = 100
"""How many threads are looked at for one that a conversation continues."""


def places(
    writer: Writer, messages: Sequence[Kept], *, first: Iterable[str] = (), only: str | None = None
) -> list[tuple[str, Place]]:
    """Return the threads that a conversation may continue, the likeliest first, each with its place there.

    Args:
        writer: The writer of the scope.
        messages: The whole conversation up to now.
        first: Threads that are looked at before the newest ones.
        only: The only thread to look at.
    """

    def seal() -> Seal | None:
        key = writer.store.key(writer.transcript_stream)
        return None if key is None else sealing(key)

    now = spell_moment(writer.clock.now())
    with writer.reader.state() as state:
        threads = state.transcript.threads
        named = [threads[name] for name in ([only] if only is not None else first) if name in threads]
        found = continued(named, messages, seal, now)
        # What a process has just heard need not be looked for.
        if only is not None or (found and found[0][1].is_sure):
            return found
        return continued([*named, *_newest(threads, named)], messages, seal, now)


def _newest(threads: Threads, named: Sequence[Thread] = ()) -> Iterator[Thread]:
    known = {thread.name for thread in named}
    return (threads[name] for name in islice(reversed(list(threads)), _NEWEST) if name not in known)


def _named(candidates: Sequence[SupersededTurn], turns: Sequence[str | int]) -> list[SupersededTurn]:
    by_id = {turn.id: turn for turn in candidates}
    by_ordinal = {turn.n: turn for turn in candidates}
    found = [by_ordinal.get(name) if isinstance(name, int) else by_id.get(name) for name in turns]
    missing = [str(name) for name, turn in zip(turns, found, strict=True) if turn is None]
    if missing:
        raise NotFoundError(
            f"{', '.join(missing)}: not among the superseded turns that can be restored; nothing was restored. "
            "See `turns THREAD --superseded`"
        )
    return [turn for turn in dict.fromkeys(found) if turn is not None]


class Conversations(Operations):
    """What reads and restores conversations; see `MemoryHandle`."""

    # Recorded conversations.

    def threads(self) -> tuple[ThreadSummary, ...]:
        """Return the recorded conversations.

        Returns:
            One summary per thread, in the order of their first turns.
        """
        with self._services.writer.reader.state() as state:
            return tuple(
                ThreadSummary(
                    name,
                    len(thread.standing()),
                    thread.recorded_at[-1] if thread.recorded_at else "",
                    count_turns(thread, state.coverage.pending(thread)),
                )
                for name, thread in state.transcript.threads.items()
            )

    def find_threads(self, messages: Iterable[object] = (), *, turn_id: str | None = None) -> tuple[str, ...]:
        """Return the threads that a conversation may continue, for a host that does not name its conversations.

        Only the newest 100 threads are looked at. A first question continues no thread, unless one holds this question
        alone and no answer to it.

        Args:
            messages: The whole conversation up to now, with the question at its end.
            turn_id: The id of one of the last turns of the thread; `messages` are not looked at then.

        Returns:
            The names of the threads, the likeliest first.

        Raises:
            InputError: `messages` is no list, or one cannot be read.
        """
        writer = self._services.writer
        if turn_id is None:
            kept = checks.kept_of(checks.messages_in(messages))
            return tuple(name for name, _ in places(writer, kept))
        checks.text("turn_id", turn_id)
        with writer.reader.state() as state:
            return tuple(thread.name for thread in _newest(state.transcript.threads) if holds(thread, turn_id))

    def transcript(self, thread: str) -> tuple[TurnView, ...]:
        """Return the turns of a thread that stand, in order.

        Args:
            thread: The conversation's id.

        Returns:
            The turns, oldest first.

        Raises:
            NotFoundError: There is no such thread.
        """
        writer = self._services.writer
        must_know(writer, thread)
        with writer.reader.state() as state:
            turns = state.transcript.threads[thread].standing()
        return tuple(
            TurnView(t.id, t.role, t.content, t.at, t.n, t.name, t.cause_by, t.sent_from, t.send_to, t.metadata, thread)
            for t in turns
        )

    def summaries(self, thread: str) -> tuple[ThreadSummaryText, ...]:
        """Return the summaries of a long thread.

        Args:
            thread: The conversation's id.

        Returns:
            The summaries without overlap, oldest turns first; none covers the newest turns yet.

        Raises:
            NotFoundError: There is no such thread.
        """
        writer = self._services.writer
        must_know(writer, thread)
        return thread_summaries(writer.memory(), thread)

    def superseded(self, thread: str) -> tuple[SupersededTurn, ...]:
        """Return the turns of a thread that no longer stand and can be restored.

        Args:
            thread: The conversation's id.

        Returns:
            The turns, oldest first.

        Raises:
            NotFoundError: There is no such thread.
        """
        writer = self._services.writer
        must_know(writer, thread)
        return superseded_turns(read_durable_commits(writer.store, writer.transcript_stream), thread)

    def skipped(self, thread: str) -> tuple[SkippedText, ...]:
        """Return what a harness had put before the words of a thread, and what the proxy has not recorded.

        Args:
            thread: The conversation's id.

        Returns:
            Each text by the turn that it came with, the oldest first. The text itself is not kept.

        Raises:
            NotFoundError: There is no such thread.
        """
        noted = ((turn, turn.metadata.get(SKIPPED)) for turn in self.transcript(thread))
        return tuple(
            SkippedText(thread, turn.id, turn.at, wrapper, size)
            for turn, sizes in noted
            if isinstance(sizes, Mapping)
            for wrapper, size in sizes.items()
        )

    def restore(self, thread: str, turns: Sequence[str | int] | None = None) -> Restored:
        """Restore superseded turns: they stand again, in their place, and are pending.

        Args:
            thread: The conversation's id.
            turns: Ids or ordinals, as `superseded` shows them; of several turns with one id the last. None: the turns
                that a delivery superseded without proof that it was the whole conversation.

        Returns:
            The turns that stand again.

        Raises:
            NotFoundError: There is no such thread; or a named turn is not superseded, is erased, or a later text stands
                under its id. Nothing is restored then.
        """
        services = self._services
        writer, producer = services.writer, services.home.producer
        candidates = self.superseded(thread)
        chosen = [turn for turn in candidates if not turn.proven] if turns is None else _named(candidates, turns)
        done = set(writer.restore(thread, [turn.n for turn in chosen], actor=services.actor))
        if done and producer is not None:
            producer.notice(writer, thread)
        return Restored(thread, tuple(turn for turn in chosen if turn.n in done))

    athreads = in_thread(threads)
    afind_threads = in_thread(find_threads)
    atranscript = in_thread(transcript)
    asummaries = in_thread(summaries)
    asuperseded = in_thread(superseded)
    askipped = in_thread(skipped)
    arestore = in_thread(restore)
