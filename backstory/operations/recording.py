"""Recording: what is kept of a conversation becomes durable, and the producer learns that there is more to extract."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backstory.descriptors import translate_verbs
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import KeyReusedError, LockTimeoutError, UsageError, WrongExpectedVersionError
from backstory.ledger.core.events import Event, Turn, TurnRecorded, TurnSuperseded
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, safe_text
from backstory.ledger.log.writer import TURNS_PER_COMMIT, Recorded
from backstory.ledger.threads.turn_dedup import Mode
from backstory.ledger.threads.turn_match import Said, spoken_in
from backstory.operations.services import NO_MODEL_HERE, ScopeServices
from backstory.projections.index.keyed_commits import delivered
from backstory.results import RecordResult

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

_log = logging.getLogger(__name__)
_warned: set[Path] = set()
"""The homes whose recorded turns nothing will extract, as far as a warning said so in this process."""


@translate_verbs
class Intake:
    """Takes in messages that were read before, for callers that had to wait; get it from `MemoryHandle.intake`."""

    def __init__(self, services: ScopeServices) -> None:
        self._services = services

    def take_in(
        self,
        thread: str,
        kept: Sequence[Kept],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        sent_before: bool = False,
    ) -> RecordResult:
        """Record what is new of it, as `MemoryHandle.record` does once it has read a delivery.

        Args:
            thread: The conversation's id.
            kept: The messages as `backstory.ledger.messages.keep` returns them.
            mode: As for `MemoryHandle.record`.
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

    def _record(self, thread: str, kept: Sequence[Kept], mode: Mode, *, sent_before: bool) -> Recorded:
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
