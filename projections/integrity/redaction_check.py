"""Is every erasure explained, and was everything erased that was said to be?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backstory.ledger.core.commit import UNREADABLE, Commit, decode, head_of, inspect
from backstory.ledger.core.errors import CorruptLogError, UnavailableError
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits
from backstory.projections.integrity.stream_check import Slot, StreamCheck

__all__ = ["RedactionCheck"]

_INDEXES = 1 << 24


def _key(seq: int, index: int) -> int:
    """One number for a slot: a set of them takes half of what tuples would."""
    return seq * _INDEXES + index + 1


class RedactionCheck:
    """What the ledger's redactions name, held against what is erased in both streams."""

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self._named: dict[str, set[int]] = {self._ledger: set(), scope.stream(TRANSCRIPT): set()}

    def take(self, commit: Commit) -> None:
        """Take in what a commit of the ledger says was erased; it can name only what was there before it."""
        for event in commit.events:
            if not isinstance(event, Redacted) or event.stream not in self._named:
                continue
            if -1 <= event.index < _INDEXES - 1 and (event.stream != self._ledger or event.seq < commit.seq):
                self._named[event.stream].add(_key(event.seq, event.index))

    def judge(self, ledger: StreamCheck, transcript: StreamCheck) -> None:
        """Note in each stream's check the erasures nobody explains, and the redactions that came to nothing."""
        unexplained = {check.stream: self._settle(check) for check in (ledger, transcript)}
        if not any(unexplained.values()) and not any(self._named.values()):
            return
        with _quiet(self._store, self._ledger) as quiet:
            for check in (ledger, transcript):
                later = self._named_later(ledger) if unexplained[check.stream] else set()
                for slot in unexplained[check.stream]:
                    if (check.stream, _key(slot.seq, slot.index)) not in later:
                        message = f"{_called(slot)} was erased and no redaction says so"
                        check.found("unexplained_redaction", slot.line, slot.byte, message)
                self._judge_unfinished(check, quiet=quiet)

    def _settle(self, check: StreamCheck) -> list[Slot]:
        """Strike out what is named and erased; return what is erased and not named."""
        named = self._named[check.stream]
        unexplained = []
        done = set()
        for slot in check.erased:
            key = _key(slot.seq, slot.index)
            if key in named:
                done.add(key)
            else:
                unexplained.append(slot)
        named -= done
        return unexplained

    def _named_later(self, ledger: StreamCheck) -> set[tuple[str, int]]:
        """Somebody may have erased more since the ledger was read, and said so behind what was read of it."""
        later: set[tuple[str, int]] = set()
        try:
            for commit in read_commits(self._store, self._ledger, ledger.head):
                later |= {(e.stream, _key(e.seq, e.index)) for e in commit.events if isinstance(e, Redacted)}
        except CorruptLogError:
            pass  # it is damaged, which is told already
        return later

    def _judge_unfinished(self, check: StreamCheck, *, quiet: bool) -> None:
        """Tell of contents that still stand although a redaction names them, once for the stream.

        Unless it is `quiet` they may be about to go: another process keeps the log locked.
        """
        named: dict[int, list[int]] = {}
        for key in sorted(self._named[check.stream]):
            named.setdefault(key // _INDEXES, []).append(key % _INDEXES - 1)
        count, first = 0, None
        for number, record in enumerate(self._store.read(check.stream) if named else (), 1):
            try:
                wanted = named.pop(head_of(record.line).seq, None)
                if wanted is None:
                    continue
                erased, events = inspect(record.line).erased, len(decode(record.line).events)
            except UNREADABLE:
                continue
            still = [index for index in wanted if index not in erased and index < events]
            count += len(still)
            if still and first is None:
                first = Slot(head_of(record.line).seq, still[0], number, record.byte)
        if first is not None:
            told = f"{_called(first)} still stands although a redaction names it"
            more = f", and {count - 1} more" if count > 1 else ""
            done = "was interrupted; it is completed when the memory is opened next"
            message = f"{told}{more}: the erasure {done if quiet else 'is under way, or was interrupted: verify again'}"
            check.found("unexplained_redaction", first.line, first.byte, message)
        if named and not check.damaged:
            message = f"a redaction names commit {min(named)}, which is not there"
            check.found("missing", check.lines + 1, check.end, message)


def _called(slot: Slot) -> str:
    return f"{'the cause' if slot.index < 0 else f'event {slot.index}'} of commit {slot.seq}"


@contextmanager
def _quiet(store: EventStore, stream: str) -> Iterator[bool]:
    """Keep erasures from being half-way meanwhile; False where the lock cannot be had at once: look all the same."""
    lock = store.locked(stream, wait=False)
    try:
        lock.__enter__()
    except UnavailableError:
        yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)
