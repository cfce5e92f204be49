"""Recording: what is kept of a conversation becomes durable; and the conversations that were recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.checks import Unreadable
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import (
    KeyReusedError,
    LockTimeoutError,
    NotFoundError,
    UsageError,
    WrongExpectedVersionError,
)
from backstory.ledger.core.events import Event, Turn, TurnRecorded, TurnSuperseded
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, safe_text
from backstory.ledger.core.summaries import ThreadSummaryText, thread_summaries
from backstory.ledger.erasure.digest import ContentSeal, sealing
from backstory.ledger.log.commits import read_durable_commits
from backstory.ledger.log.reader import count_turns
from backstory.ledger.log.transcript_writer import TURNS_PER_COMMIT, RecordedDelivery
from backstory.ledger.text.tags import read_tags
from backstory.ledger.threads.delivery.continuing import continued, holds
from backstory.ledger.threads.delivery.told import SKIPPED, ThreadPlace, Told
from backstory.ledger.threads.delivery.turn_dedup import Mode
from backstory.ledger.threads.delivery.turn_match import Said, spoken_in
from backstory.projections.index.keyed_commits import delivered
from backstory.projections.turns import TurnView
from backstory.projections.turns.superseded import SupersededTurn, superseded_turns
from backstory.results import RecordResult, Restored, SkippedText, ThreadSummary
from backstory.services.named import must_know
from backstory.services.services import NO_MODEL_HERE, Operations

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Kept

_log = logging.getLogger(__name__)
_warned: set[Path] = set()
"""The homes whose recorded turns nothing will extract, as far as a warning said so in this process."""


class Intake(Operations):
    """Takes in messages that were read before, for callers that had to wait; get it from `MemoryHandle.intake`."""

    def take_in(
        self,
        thread: str,
        kept: Sequence[Kept],
        *,
        mode: Mode | Told = "conversation",
        immediate: bool = False,
        sent_before: bool = False,
    ) -> RecordResult:
        """Record what is new of it, as `MemoryHandle.record` does once it has read a delivery.

        Args:
            thread: The conversation's id.
            kept: The messages as `backstory.ledger.messages.keep` returns them.
            mode: As for `MemoryHandle.record`; or what a proxy says of a conversation.
            immediate: As for `MemoryHandle.record`.
            sent_before: The messages may have been recorded already: what they share with the thread's end is known.

        Returns:
            What became of the delivery.

        Raises:
            UsageError: The thread has no name, or one that is too long; the mode is none; the home is closed.
        """
        if not isinstance(thread, str) or not thread or len(thread) > MAX_NAME:
            raise UsageError(f"thread must be the conversation's id, a string of 1 to {MAX_NAME} characters")
        if not isinstance(mode, Told) and mode not in get_args(Mode):
            raise UsageError(f"mode must be conversation, branch, append or replace, got {mode!r}")
        home = self._services.home
        home.states.must_be_open()
        if not home.settings.enabled:
            return RecordResult(1, 0, len(kept))
        backlog, cut = False, [message.cut for message in kept if message.cut]
        for more in cut:
            _log.warning(
                "%s: a message of thread %s has %s characters: the first %s are kept, the rest is not recorded",
                self._services.scope,
                thread,
                f"{MAX_CONTENT + more:,}",
                f"{MAX_CONTENT:,}",
            )
        try:
            recorded = self._record(safe_text(thread), kept, mode, sent_before=sent_before)
        except LockTimeoutError:
            # To look for what is pending would wait for the same lock once more.
            raise
        except BaseException:
            # A delivery that failed half-way leaves turns behind that are pending.
            self._notice(thread, immediate=immediate)
            raise
        self._notice(thread, immediate=immediate)
        if recorded.turns and home.extracts and home.model is None:
            _warn_without_model(home.states.folder)
        if home.producer is not None:
            backlog = 0 < home.settings.queue_max_depth < home.producer.depth()
        return RecordResult(1, recorded.turns, recorded.skipped, backlog, recorded.superseded, len(cut))

    def places(
        self, kept: Sequence[Kept], *, first: Iterable[str] = (), only: str | None = None
    ) -> list[tuple[str, ThreadPlace]]:
        """Return the threads that a conversation may continue, the likeliest first, each with its place there.

        Args:
            kept: The whole conversation up to now, as `backstory.ledger.messages.keep` returns it.
            first: Threads that are looked at before the newest ones.
            only: The only thread to look at.
        """
        writer = self._services.writer

        def seal() -> ContentSeal | None:
            key = writer.store.key(writer.transcript_stream)
            return None if key is None else sealing(key)

        now = spell_moment(writer.clock.now())
        with writer.reader.state() as state:
            threads = state.transcript.threads
            named = [threads[name] for name in ([only] if only is not None else first) if name in threads]
            found = continued(named, kept, seal, now)
            # What a process has just heard need not be looked for.
            if only is not None or (found and found[0][1].is_sure):
                return found
            others = (thread for thread in threads.newest() if thread not in named)
            return continued([*named, *others], kept, seal, now)

    def _record(self, thread: str, kept: Sequence[Kept], mode: Mode | Told, *, sent_before: bool) -> RecordedDelivery:
        services, key = self._services, self._services.key
        writer = services.writer
        if key is None:
            services.must_stand()
            return writer.record(thread, kept, mode=mode, sent_before=sent_before)
        logs = services.logs(writer)
        while True:
            with writer.state() as state:
                head = state.transcript.head
            made = delivered(logs, thread, key, writer.clock.now())
            events: list[Event] = [event for commit in made for event in commit.events]
            turns = [event.turn for event in events if isinstance(event, TurnRecorded)]
            _must_be_the_same(thread, kept, turns)
            if not made:
                services.must_stand()
            superseded = sum(isinstance(event, TurnSuperseded) for event in events)
            if made and (mode == "append" or _is_whole(made[0], kept)):
                # By now other turns may follow, among which the same words would count as said again.
                return RecordedDelivery(len(turns), len(kept) - len(turns), superseded)
            try:
                # A crash may have left a part of the delivery, which is completed now.
                more = writer.record(
                    thread, kept, mode=mode, sent_before=sent_before or bool(made), key=key, expected=head
                )
            except WrongExpectedVersionError:
                continue
            total = len(turns) + more.turns
            return RecordedDelivery(total, len(kept) - total, superseded + more.superseded)

    def _notice(self, thread: str, *, immediate: bool) -> None:
        if self._services.home.producer is not None:
            self._services.home.producer.notice(self._services.writer, safe_text(thread), immediate=immediate)

    def wait_until_free(self) -> None:
        """Wait until no other process locks the transcript. Readers of memory do not wait along.

        Raises:
            StoreError: The store cannot be used.
            LockTimeoutError: Another process keeps the lock for too long.
        """
        writer = self._services.writer
        with writer.store.locked(writer.transcript_stream):
            return


def _is_whole(newest: Commit, kept: Sequence[Kept]) -> bool:
    """Whether a commit is certainly the last one of its delivery, which a crash may have cut short."""
    turns = [event.turn for event in newest.events if isinstance(event, TurnRecorded)]
    if len(turns) < TURNS_PER_COMMIT:
        return True
    return bool(kept) and Said.of(kept[-1]).is_in(turns[-1])


def _must_be_the_same(thread: str, kept: Sequence[Kept], turns: Sequence[Turn]) -> None:
    """Refuse a delivery that does not hold what was recorded under its key.

    Raises:
        KeyReusedError: The key was used for another delivery.
    """
    sent = Counter((message.role, message.content) for message in kept)
    # Turns of an older version may hold reasoning.
    recorded = [(turn.role, said) for turn in turns if (said := spoken_in(turn)).strip()]
    if Counter(recorded) - sent:
        raise KeyReusedError(
            f"this key was used for other messages of thread {thread}: take a new key for each delivery"
        )


def consider_warned(home: Path) -> None:
    """Do not warn about a home without a model: its host has done so itself."""
    _warned.add(home)


def _warn_without_model(folder: Path) -> None:
    """Warn once per process and home that what is recorded waits for a model."""
    if folder not in _warned:
        _warned.add(folder)
        _log.warning(
            "%s: what is recorded is kept, but nothing is extracted from it until there is a model: %s",
            folder,
            NO_MODEL_HERE,
        )


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


class Recording(Operations):
    """What records conversations; see `MemoryHandle`."""

    # Recording.

    def record(
        self,
        thread: str,
        messages: Iterable[object],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
        tags: Sequence[str] | None = None,
    ) -> RecordResult:
        """Record what is new of a conversation. It is durable on return and is extracted after the debounce.

        A user's last words wait for their answer, for `answer_wait_seconds` at most; `flush` and `extract` learn from
        them at once. With `enabled: false` nothing is kept, and every message counts as skipped.

        Args:
            thread: The conversation's id, 1 to 512 characters.
            messages: Dicts, LangChain or OpenAI messages: the whole conversation, or what is new of it.
            mode: `conversation` finds out what is new; `branch` does, too, and where messages with ids begin as the
                thread does and go on with another message, the pending turns behind that stand no longer; with
                `append` all messages are new; with `replace` they are the whole conversation as it stands now, and
                turns that they leave out stand no longer.
            immediate: Skip the debounce, for words that the agent is about to lose; a user's last words still wait for
                their answer.
            keep_hidden: Gets the `additional_kwargs` of a message that its host hides; True keeps it.
            on_unreadable: Gets the index in `messages` and the error of a message that cannot be read; the message is
                skipped.
            tags: Up to 20 names that the new turns get, such as the project that they are about. A fact gets the tags
                of the turns that it is learned from. Turns that are recorded already keep the tags that they have.

        Returns:
            How many turns are new, skipped and superseded.

        Raises:
            InputError: `messages` is no list, or one cannot be read and there is no `on_unreadable`. Nothing is
                recorded.
            UsageError: The thread, the mode or a tag cannot be one.
        """
        sent = checks.messages_in(messages)
        kept = checks.kept_of(sent, keep_hidden, on_unreadable, read_tags(tags or ()))
        taken = self.intake.take_in(thread, kept, mode=mode, immediate=immediate)
        return msgspec.structs.replace(taken, skipped=taken.skipped + len(sent) - len(kept))

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
        if turn_id is None:
            kept = checks.kept_of(checks.messages_in(messages))
            return tuple(name for name, _ in self.intake.places(kept))
        checks.text("turn_id", turn_id)
        with self._services.writer.reader.state() as state:
            return tuple(thread.name for thread in state.transcript.threads.newest() if holds(thread, turn_id))

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
        views = (msgspec.convert(turn, TurnView, from_attributes=True) for turn in turns)
        return tuple(msgspec.structs.replace(view, thread=thread) for view in views)

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

    @property
    def intake(self) -> Intake:
        """Takes in messages that were read before, for a host whose delivery had to wait."""
        return Intake(self._services)

    arecord = in_thread(record)
    athreads = in_thread(threads)
    afind_threads = in_thread(find_threads)
    atranscript = in_thread(transcript)
    asummaries = in_thread(summaries)
    asuperseded = in_thread(superseded)
    askipped = in_thread(skipped)
    arestore = in_thread(restore)
