"""Head sender: sends the newest heads of a home's scopes to the witness in a background thread.

A commit only notes its scope. The thread of the home gathers notes for a moment, so that a burst of commits is one
line, and sends one batch for all noted scopes. A batch that fails stays noted; it is retried twice with growing pauses,
then once a minute, and at exit. Only the newest heads are sent, since each hash covers all commits before it.
Nothing here blocks a commit or makes it fail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, StoreError, WitnessError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.disk.side_file import SideFile
from backstory.ledger.engines.port import EventStore
from backstory.outbox.faults import Faults
from backstory.projections.integrity.witnessed import WitnessLine
from backstory.witness.destinations import Destination

_log = logging.getLogger(__name__)

DELAY_SECONDS = 0.5
"""Time for which commits are gathered into one batch."""
AGAIN_SECONDS = 60.0
"""Pause after a batch whose retries all failed."""

_RETRY_SECONDS = (1.0, 2.0)
"""Pauses before the retries of a batch; an outage is reported after the last of them."""
_MOST_SCOPES = 1_000
_READERS_SECONDS = 2.0
"""Time that a process waits at exit for heads of other processes."""
_DOING = "witness"

Batch = dict[Scope, Head | None]
_Heads = tuple[Head, Head]
"""Of the ledger and of the transcript."""


class Sent(msgspec.Struct, frozen=True):
    """The last sent heads; `to` is the name of the destination."""

    version: int
    to: str
    ledger: Head
    transcript: Head


class SentHeads:
    """The last heads of each scope that the witness has, in `witness.json` beside memory.json.

    With it the next process sends what a killed one did not, and avoids duplicates. The file is not synced: losing it
    only sends one head again. It holds hashes and no content, so an erasure keeps it.

    Args:
        document: Returns the path of a scope's memory.json.
        to: The name of the destination.
    """

    def __init__(self, document: Callable[[Scope], Path], to: str) -> None:
        self._document = document
        self._to = to

    def of(self, scope: Scope) -> Sent | None:
        """Return the last heads sent to this destination; None if there are none or the file cannot be read."""
        try:
            sent = self._file(scope).read()
        except OSError as error:
            _log.debug("heads of %s may be sent once more: %s", scope, error)
            return None
        return sent if sent is not None and sent.to == self._to else None

    def put(self, scope: Scope, ledger: Head, transcript: Head) -> None:
        """Remember sent heads."""
        try:
            self._file(scope).write(Sent(1, self._to, ledger, transcript))
        except StoreError as error:
            _log.debug("heads of %s may be sent once more: %s", scope, error)

    def _file(self, scope: Scope) -> SideFile[Sent]:
        return SideFile(self._document(scope).with_name("witness.json"), Sent, "heads that are sent once more")


class HeadSender(Jobs[Batch]):
    """Sends heads to a destination. Safe for threads and forks.

    Args:
        store: The store of the streams.
        destination: Where heads are sent.
        sent: Remembers sent heads.
        faults: Counts outages.
        clock: Dates the lines.
        opened: Returns the memories in use, also those in which only other processes commit.
        delay: Seconds for which commits are gathered.
        again: Seconds until a failed batch is retried.
    """

    _THREAD = "backstory-witness"

    def __init__(
        self,
        store: EventStore,
        destination: Destination,
        sent: SentHeads,
        faults: Faults,
        clock: Clock,
        *,
        opened: Callable[[], Iterable[Scope]],
        delay: float = DELAY_SECONDS,
        again: float = AGAIN_SECONDS,
    ) -> None:
        self._store = store
        self._destination = destination
        self._sent = sent
        self._faults = faults
        self._clock = clock
        self._delay = delay
        self._again = again
        self._opened = opened
        super().__init__()

    def renew(self) -> None:
        """Start empty, as in a forked child; the parent sends its own notes."""
        super().renew()
        self._noted: Batch = {}
        """Scopes to check, each with the head of a commit of this process, if there is one."""
        self._ready_at = 0.0
        """When to send them, by the machine's monotonic clock."""
        self._begun = 0
        """The number of the last started batch."""
        self._failed = -1
        """The number of the last failed batch."""
        self._wanted = 0
        """The batch that a flush waits for; up to it there are no delays and no retries."""
        self._sending = False
        self._failures = 0
        """How often the destination has failed since it last took a batch, up to the one that is reported."""

    # Noting.

    def watch(self, scope: Scope) -> None:
        """Note an opened scope, since a killed process may not have sent its last head."""
        self._note(scope, None)

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:  # noqa: ARG002 the signature of a Listener
        """Note a commit; a `Listener`."""
        # A scope that is noted already sends this head, too.
        if self._noted.get(scope) is None:
            self._note(scope, commit.head)

    def _note(self, scope: Scope, head: Head | None) -> None:
        with self._changed:
            self._put(scope, head)
            self._wake()

    def _put(self, scope: Scope, head: Head | None) -> None:
        if not self._noted:
            self._ready_at = time.monotonic() + self._delay
        self._noted[scope] = head or self._noted.get(scope)

    def has_sent(self, scope: Scope) -> bool:
        """Whether the destination has the newest heads of a scope, as far as is remembered.

        Raises:
            StoreError, CorruptLogError: The heads cannot be read.
        """
        heads, sent = self._heads(scope)
        return heads == sent

    def _heads(self, scope: Scope) -> tuple[_Heads, _Heads]:
        """Return the heads of both streams, and those that were sent last."""
        heads = self._store.head(scope.stream(LEDGER)), self._store.head(scope.stream(TRANSCRIPT))
        last = self._sent.of(scope)
        return heads, (EMPTY, EMPTY) if last is None else (last.ledger, last.transcript)

    # The thread.

    def _run(self, batch: Batch, /) -> None:
        done = False
        try:
            done = self._deliver(batch)
        finally:
            self._settle(batch, done)

    def _next(self) -> tuple[float, Batch | None] | None:
        if not self._noted or (self.ending and self._failed == self._begun and not self._is_wanted()):
            return None
        left = 0.0 if self.ending or self._is_wanted() else self._ready_at - time.monotonic()
        return left, self._take() if left <= 0 else None

    def _take(self) -> Batch:
        batch = dict(islice(self._noted.items(), _MOST_SCOPES))
        for scope in batch:
            del self._noted[scope]
        self._begun += 1
        self._sending = True
        return batch

    def _is_wanted(self) -> bool:
        return self._begun < self._wanted

    def _settle(self, batch: Batch, done: bool) -> None:
        with self._changed:
            self._sending = False
            pause = self._delay
            if not done:
                self._failed = self._begun
                for scope, head in batch.items():
                    self._put(scope, self._noted.get(scope) or head)
                retried = 0 < self._failures <= len(_RETRY_SECONDS)
                pause = _RETRY_SECONDS[self._failures - 1] if retried else self._again
            self._ready_at = time.monotonic() + pause
            self._changed.notify_all()

    # Flushing.

    def flush(self, timeout: float) -> bool:
        """Send all noted heads now.

        Args:
            timeout: Maximum seconds to wait.

        Returns:
            Whether the destination has the newest heads of all open scopes.
        """
        end = time.monotonic() + timeout
        with self._changed:
            for scope in self._opened():
                self._put(scope, None)
            while self._noted or self._sending:
                wanted = self._wanted = self._begun + 1
                if self._wake():
                    left = end - time.monotonic()
                    self._changed.wait_for(lambda: self._is_idle() or self._failed >= wanted, left)  # noqa: B023
                else:
                    self._run(self._take())
                if self._failed >= wanted or time.monotonic() >= end:
                    break
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._noted and not self._sending

    def close(self, timeout: float) -> bool:
        """Flush and end the thread; wait at most 2 seconds for heads of other processes."""
        with self._changed:
            ours = self._sending or any(self._noted.values())
        done = self.flush(timeout if ours else min(timeout, _READERS_SECONDS))
        self.end()
        return done

    def _finish(self, seconds: float) -> None:
        self.flush(min(seconds, _READERS_SECONDS))

    # Sending.

    def _deliver(self, batch: Batch) -> bool:
        """Send a batch; return whether nothing of it is left."""
        done = True
        heads: dict[Scope, _Heads] = {}
        for scope, head in batch.items():
            try:
                with self._busy:
                    found = self._newest(scope, head)
            except CorruptLogError as error:
                # A damaged log sends nothing. Its users get an error, and `verify` shows the damage.
                _log.debug("the head of %s cannot be sent: %s", scope, error)
                continue
            except (BackstoryError, OSError) as error:
                # A process without a commit of its own need not send one.
                _log.debug("the head of %s cannot be read: %s", scope, error)
                done = done and head is None
                continue
            if found is not None:
                heads[scope] = found
        return (not heads or self._send(heads)) and done

    def _newest(self, scope: Scope, noted: Head | None) -> _Heads | None:
        """Return the durable heads of both streams; None if they were sent already or the streams are empty."""
        heads, sent = self._heads(scope)
        if heads in (sent, (EMPTY, EMPTY)):
            return None
        # A line whose sync fails may be cut off again, so a head must be durable before it is sent.
        durable = {EMPTY, noted, *sent}
        ledger, transcript = (
            head if head in durable else self._store.settled_head(scope.stream(kind))
            for kind, head in zip((LEDGER, TRANSCRIPT), heads, strict=True)
        )
        return ledger, transcript

    def _send(self, heads: Mapping[Scope, _Heads]) -> bool:
        at = spell_moment(self._clock.now())
        lines = b"".join(msgspec.json.encode(WitnessLine.of(scope, *pair, at)) + b"\n" for scope, pair in heads.items())
        try:
            self._destination.append(lines)
        except Exception as error:  # noqa: BLE001 an error of a destination must not end the thread
            last = len(_RETRY_SECONDS) + 1
            known, hurried = self._failures == last, self.ending or self._begun <= self._wanted
            self._failures = last if hurried else min(self._failures + 1, last)
            if self._failures == last:
                with self._busy:
                    self._report(error, heads, log=not known)
            return False
        self._failures = 0
        with self._busy:
            for scope, (ledger, transcript) in heads.items():
                self._sent.put(scope, ledger, transcript)
                self._faults.recovered(scope, _DOING)
        return True

    def _report(self, error: Exception, scopes: Iterable[Scope], *, log: bool) -> None:
        """Count an outage in each scope, and log it once at most."""
        if isinstance(error, WitnessError):
            kind, detail = error.kind, f"{error}; the commits are safe, and their head is sent later"
        else:
            kind, detail = type(error).__name__, "the commits are safe; please report this"
            _log.debug("the witness failed unexpectedly", exc_info=error)
        for scope in scopes:
            self._faults.count(scope, _DOING, kind, detail, log=log)
            log = False
