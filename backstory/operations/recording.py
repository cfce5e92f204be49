"""Recording: what is kept of a conversation becomes durable, and the producer learns that there is more to extract."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.checks import Unreadable
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import KeyReusedError, LockTimeoutError, UsageError, WrongExpectedVersionError
from backstory.ledger.core.events import Event, Turn, TurnRecorded, TurnSuperseded
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, safe_text
from backstory.ledger.log.writer import TURNS_PER_COMMIT, Recorded
from backstory.ledger.threads.told import Place, Told
from backstory.ledger.threads.turn_dedup import Mode
from backstory.ledger.threads.turn_match import Said, spoken_in
from backstory.operations import conversations
from backstory.operations.services import NO_MODEL_HERE, Operations
from backstory.projections.index.keyed_commits import delivered
from backstory.results import RecordResult

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
            UsageError: The thread has no name, or one that is too long; the home is closed.
        """
        if not isinstance(thread, str) or not thread or len(thread) > MAX_NAME:
            raise UsageError(f"thread must be the conversation's id, a string of 1 to {MAX_NAME} characters")
        home = self._services.home
        home.must_be_open()
        if not home.enabled:
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
            _warn_without_model(home.folder)
        if home.producer is not None:
            backlog = 0 < home.queue_max_depth < home.producer.depth()
        return RecordResult(1, recorded.turns, recorded.skipped, backlog, recorded.superseded, len(cut))

    def places(
        self, kept: Sequence[Kept], *, first: Iterable[str] = (), only: str | None = None
    ) -> list[tuple[str, Place]]:
        """Return the threads that a conversation may continue, the likeliest first, each with its place there.

        Args:
            kept: The whole conversation up to now, as `backstory.ledger.messages.keep` returns it.
            first: Threads that are looked at before the newest ones.
            only: The only thread to look at.
        """
        return conversations.places(self._services.writer, kept, first=first, only=only)

    def _record(self, thread: str, kept: Sequence[Kept], mode: Mode | Told, *, sent_before: bool) -> Recorded:
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
                return Recorded(len(turns), len(kept) - len(turns), superseded)
            try:
                # A crash may have left a part of the delivery, which is completed now.
                more = writer.record(
                    thread, kept, mode=mode, sent_before=sent_before or bool(made), key=key, expected=head
                )
            except WrongExpectedVersionError:
                continue
            total = len(turns) + more.turns
            return Recorded(total, len(kept) - total, superseded + more.superseded)

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

        Returns:
            How many turns are new, skipped and superseded.

        Raises:
            InputError: `messages` is no list, or one cannot be read and there is no `on_unreadable`. Nothing is
                recorded.
            UsageError: The thread or the mode cannot be one.
        """
        if mode not in get_args(Mode):
            raise UsageError(f"mode must be conversation, branch, append or replace, got {mode!r}")
        sent = checks.messages_in(messages)
        kept = checks.kept_of(sent, keep_hidden, on_unreadable)
        taken = self.intake.take_in(thread, kept, mode=mode, immediate=immediate)
        return msgspec.structs.replace(taken, skipped=taken.skipped + len(sent) - len(kept))

    @property
    def intake(self) -> Intake:
        """Takes in messages that were read before, for a host whose delivery had to wait."""
        return Intake(self._services)

    arecord = in_thread(record)
