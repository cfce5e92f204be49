"""Eraser of a scope: commits a redaction, then replaces the content that it names.

The redaction is appended to the ledger first, so any process can complete an erasure that was interrupted. Lines that
lose content are then replaced by lines with stubs, as `EventStore.redact` requires.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import assert_never

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import (
    EMPTY,
    Cause,
    Commit,
    Draft,
    Head,
    check,
    erase,
    head_before,
    unseal,
)
from backstory.ledger.core.errors import LockTimeoutError, StoreError, UnavailableError
from backstory.ledger.core.events import Erased, Redacted, TurnRange
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.erasure.digest import ContentSeal, sealing
from backstory.ledger.erasure.plan import plan_erasure
from backstory.ledger.erasure.requests import (
    Erasure,
    ErasurePlan,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetShared,
    ForgetThread,
    Only,
)
from backstory.ledger.log.commits import decode_verified
from backstory.ledger.log.pipeline import CommitPipeline, PendingCommit
from backstory.ledger.log.reader import Reader

_log = logging.getLogger(__name__)

Purge = Callable[[Scope], None]
"""Deletes every read model of a scope that may hold content, while both of its streams are locked."""


class Eraser:
    """Erases content of a scope for its writer, which holds the mutex of the pipeline in every call but the last two.

    `queue_due` queues what comes before any other commit.
    """

    def __init__(
        self,
        store: EventStore,
        pipeline: CommitPipeline,
        reader: Reader,
        *,
        clock: Clock,
        purge: Purge | None,
        queue_due: Callable[[], Sequence[PendingCommit]],
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._state, self._ledger, self._transcript = pipeline.state, pipeline.ledger, pipeline.transcript
        self._streams = (self._transcript.stream, self._ledger.stream)
        self._reader = reader
        self._clock = clock
        self._purge = purge
        self._queue_due = queue_due
        self._carried_out = False
        """Whether all that the ledger names is erased: this process has just seen to it."""
        self._verified: dict[str, int] = {}
        """The seq, by stream, up to which the last plan has checked the hashes."""

    def plan(self, request: Erasure) -> ErasurePlan:
        """See `Writer.plan_erasure`."""
        self._pipeline.settle(self._transcript, self._ledger)
        return self._planned(request)

    def forget(self, request: Erasure, actor: str | None, must_stand: Callable[[], None]) -> tuple[Commit, ErasurePlan]:
        """See `Writer.forget`; `must_stand` raises if the ledger has another head than the caller expects."""
        self._must_be_allowed()
        if isinstance(request, ForgetEverything):
            with self._pipeline.alone():
                must_stand()
                # Without the key, no earlier erased turn can be recognised either.
                self._store.set_key(self._transcript.stream, None)
                return self._carry_out(request, self._planned(request), actor)
        self._pipeline.settle(self._transcript, self._ledger)
        # Before the plan: where another erasure has moved the head, there may be nothing left to erase.
        must_stand()
        return self._carry_out(request, self._planned(request, self._seal(request)), actor, must_stand)

    def expire(self, before: datetime) -> Commit | None:
        """See `Writer.expire`."""
        request = ForgetExpired(spell_moment(before), self._is_done_with)
        self._pipeline.settle(self._transcript, self._ledger)
        plan = self._planned(request, self._seal(request))
        # Without expired turns nothing is written, not even the genesis of a scope that has learned nothing.
        if not plan.redacted:
            return None
        self._must_be_allowed()
        return self._carry_out(request, plan, "configuration")[0]

    def _must_be_allowed(self) -> None:
        """Refuse where a redaction could be committed, and not be carried out."""
        able = self._store.capabilities()
        if able.must_erase is not None:
            able.must_erase()
        if able.path is not None:
            for path in map(able.path, self._streams):
                _must_be_no_link(path)
                _must_be_no_link(path.with_suffix(".key"))

    def _seal(self, request: Erasure) -> ContentSeal | None:
        """Return the keyed digest for an erasure that keeps one; the key is made when the first turn goes."""
        if isinstance(request, ForgetEverything):
            return None

        made = cache(lambda: sealing(self._store.key(self._transcript.stream, create=True) or b""))

        def seal(role: str, content: str) -> str:
            return made()(role, content)

        return seal

    def _is_done_with(self, name: str, n: int) -> bool:
        thread = self._state.transcript.threads[name]
        return n in thread.superseded or self._state.coverage.covers(thread, TurnRange(n, n))

    def _planned(self, request: Erasure, seal: ContentSeal | None = None) -> ErasurePlan:
        transcript, ledger = self._streams
        said, learned = Rereading(self._store, transcript), Rereading(self._store, ledger)
        plan = plan_erasure(
            request,
            self._state.memory,
            learned,
            said,
            seal=seal,
            said=self._state.transcript.head.seq,
        )
        self._verified = {transcript: said.verified, ledger: learned.verified}
        return plan

    def _heads(self) -> tuple[Head, Head]:
        return self._state.transcript.head, self._state.head

    def _carry_out(
        self, request: Erasure, plan: ErasurePlan, actor: str | None, must_stand: Callable[[], None] = lambda: None
    ) -> tuple[Commit, ErasurePlan]:
        """Lock both streams and erase; plan again if another process has written meanwhile."""
        heads = self._heads()
        with self._pipeline.alone():
            must_stand()
            # A new policy may remove facts, which writes their content once more: the plan has to include that.
            self._queue_due()
            self._pipeline.settle(self._transcript, self._ledger)
            if self._heads() != heads:
                plan = self._planned(request, self._seal(request))
            if self._purge is not None:
                # An obstacle to purging should fail the request before the redaction is committed.
                self._purge(self._state.scope)
            at = max(spell_moment(self._clock.now()), self._state.memory.at)
            draft = Draft(at, _redaction(request, actor), plan.events)
            pending = self._pipeline.add(self._ledger, self._state.head, draft)
            self._ledger.settle(pending)
            self._pipeline.drop_settled(self._ledger)
            verified: dict[str, int] = {}
            try:
                self._erase(plan.redacted, verified=True)
                verified = self._verified
            finally:
                # If it was interrupted, the next read of the log finds what is left to do.
                self._state.start_over(from_first=True, verified=verified)
                self._pipeline.newest = None
                self._reader.start_over()
            self._carried_out = True
            try:
                self._pipeline.settle(self._transcript, self._ledger)
            finally:
                self._carried_out = False
            # Readers need not read all of it once more, nor wait for the index.
            self._reader.publish(self._state.standing)
            return pending.commit, plan

    def complete_met(self) -> None:
        """Complete the erasures that the state has met and a crash has interrupted."""
        redacted, self._state.redacted = self._state.redacted, []
        if not self._carried_out:
            self.complete(redacted, wait=True)

    def complete(self, redacted: Sequence[Redacted], *, wait: bool, again: bool = False) -> bool:
        """Complete erasures that were interrupted, unless another process does.

        Args:
            redacted: what they erase.
            wait: whether to wait for the locks, as a writer does and no reader.
            again: they are known to be incomplete, so the locks come before the logs are read.

        Returns:
            Whether a lock was held, as by a process that was killed until its lease ends, so that it has to try again.
        """
        transcript, ledger = self._streams
        try:
            if again or not self._is_finished(redacted):
                with self._store.locked(transcript, wait=wait), self._store.locked(ledger, wait=wait):
                    # Another process may have completed it meanwhile.
                    if not self._is_finished(redacted):
                        _log.warning("%s: an erasure was interrupted; it is completed now", self._state.scope)
                        self._erase(redacted)
        except LockTimeoutError as error:
            if not again:
                # Most often it is under way at this moment, by the holder of the lock.
                _log.info("%s: an erasure is not complete yet; the next read looks again: %s", self._state.scope, error)
            return True
        except UnavailableError as error:
            _log.warning("%s: an erasure is not complete, the next open tries again: %s", self._state.scope, error)
        return False

    def _is_finished(self, redacted: Sequence[Redacted]) -> bool:
        return not any(unfinished(self._store, self._streams, redacted).values())

    def _erase(self, redacted: Sequence[Redacted], *, verified: bool = False) -> None:
        """Put stubs in the place of redacted content; both streams are locked, and perhaps verified just now."""
        left = unfinished(self._store, self._streams, redacted, verified=verified)
        if self._purge is not None:
            self._purge(self._state.scope)
        for stream in self._streams:
            self._store.redact(stream, left[stream])


class Rereading:
    """A stream that is read several times, from first to last: verified at first, and later only decoded."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self.stream = stream
        self.verified = 0
        """The seq of the last commit, once all of them were verified."""

    def __call__(self, only: Only | None = None) -> Iterator[Commit]:
        """Start reading; lines that `only` refuses are left out, and are not decoded.

        Raises:
            CorruptLogError: A line is not what was written.
        """
        if self.verified:
            for seq, record in enumerate(islice(self._store.read(self.stream), self.verified), 1):
                if only is None or only(seq, record.line):
                    after = head_before(record.line, seq)
                    yield decode_verified(record.line, after, stream=self.stream, byte=record.byte)
            return
        head: Head = EMPTY
        for record in self._store.read(self.stream):
            if only is not None and not only(head.seq + 1, record.line):
                head = check(record.line, head, stream=self.stream, byte=record.byte)
                continue
            commit = unseal(record.line, head, stream=self.stream, byte=record.byte)
            head = commit.head
            yield commit
        self.verified = head.seq


def unfinished(
    store: EventStore, streams: Iterable[str], redacted: Iterable[Redacted], *, verified: bool = False
) -> dict[str, dict[int, bytes]]:
    """Return, by stream and seq, the lines that hold what was redacted, each with stubs in its place.

    Where the streams were verified just now, only these lines are.

    Raises:
        CorruptLogError: A stream is damaged; nothing in it is replaced before that is mended.
    """
    wanted: dict[str, dict[int, set[int]]] = {stream: defaultdict(set) for stream in streams}
    for event in redacted:
        if event.stream in wanted:
            wanted[event.stream][event.seq].add(event.index)
    return {stream: _stubs(store, stream, places, verified=verified) for stream, places in wanted.items()}


def _stubs(store: EventStore, stream: str, places: dict[int, set[int]], *, verified: bool) -> dict[int, bytes]:
    lines: dict[int, bytes] = {}
    head: Head = EMPTY
    for seq, record in enumerate(store.read(stream), 1) if places else ():
        if verified:
            if seq not in places:
                continue
            head = head_before(record.line, seq)
        commit = unseal(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        named = places.get(commit.seq, ())
        left = [n for n, event in enumerate(commit.events) if n in named and not isinstance(event, Erased)]
        if left:
            lines[commit.seq] = erase(record.line, left)
    return lines


def _must_be_no_link(path: Path) -> None:
    """Refuse to erase in a file that is a link: another file would take the link's place, and this one stay.

    Raises:
        StoreError: It is a link.
    """
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {path.readlink()}, which would keep what is erased, so nothing was erased: move "
            "that file to the place of the link, then run this again"
        )


def _redaction(request: Erasure, actor: str | None) -> Cause:
    """Return the cause of a redaction; the text of a matching request is not recorded."""
    match request:
        case ForgetFact(fact_id=fact_id):
            return Cause(kind="redaction", actor=actor, action="fact", fact=fact_id)
        case ForgetThread(thread=thread):
            return Cause(kind="redaction", actor=actor, action="thread", thread=thread)
        case ForgetMatching():
            return Cause(kind="redaction", actor=actor, action="matching")
        case ForgetShared():
            return Cause(kind="redaction", actor=actor, action="shared")
        case ForgetExpired():
            return Cause(kind="redaction", actor=actor, action="expired")
        case ForgetEverything():
            return Cause(kind="redaction", actor=actor, action="everything")
        case _:
            assert_never(request)
