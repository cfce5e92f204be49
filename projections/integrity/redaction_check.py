"""Redaction check: every erasure is named by a redaction, and everything that a redaction names is erased."""

from __future__ import annotations

from contextlib import ExitStack

from backstory.ledger.core.commit import UNREADABLE, Commit, decode, head_of, inspect
from backstory.ledger.core.errors import CorruptLogError, UnavailableError
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.projections.integrity.stream_check import Slot, StreamCheck

_INDEXES = 1 << 24


def _key(seq: int, index: int) -> int:
    # A set of integers takes half the memory of a set of tuples.
    return seq * _INDEXES + index + 1


class RedactionCheck:
    """Compares the ledger's redactions with what is erased in both streams."""

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self._named: dict[str, set[int]] = {self._ledger: set(), scope.stream(TRANSCRIPT): set()}

    def take(self, commit: Commit) -> None:
        """Collect what a commit of the ledger names as erased; it can name only earlier content."""
        for event in commit.events:
            if not isinstance(event, Redacted) or event.stream not in self._named:
                continue
            if -1 <= event.index < _INDEXES - 1 and (event.stream != self._ledger or event.seq < commit.seq):
                self._named[event.stream].add(_key(event.seq, event.index))

    def judge(self, ledger: StreamCheck, transcript: StreamCheck) -> None:
        """Report the erasures that no redaction names, and the named content that still exists."""
        unexplained = {check.stream: self._match(check) for check in (ledger, transcript)}
        if not any(unexplained.values()) and not any(self._named.values()):
            return
        with ExitStack() as held:
            try:
                held.enter_context(self._store.locked(self._ledger, wait=False))
                locked = True
            except UnavailableError:
                locked = False
            for check in (ledger, transcript):
                later = self._named_later(ledger) if unexplained[check.stream] else set()
                for slot in unexplained[check.stream]:
                    if (check.stream, _key(slot.seq, slot.index)) not in later:
                        message = f"{slot} was erased, and no redaction names it"
                        check.found("unexplained_redaction", slot.line, slot.byte, message)
                self._judge_unfinished(check, locked=locked)

    def _match(self, check: StreamCheck) -> list[Slot]:
        """Remove from the named slots those that are erased; return the erased slots that are not named."""
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
        """Return what redactions name that were committed after the ledger was read."""
        later: set[tuple[str, int]] = set()
        try:
            for commit in read_commits(self._store, self._ledger, ledger.head):
                later |= {(e.stream, _key(e.seq, e.index)) for e in commit.events if isinstance(e, Redacted)}
        except CorruptLogError:
            pass  # the damage is reported already
        return later

    def _judge_unfinished(self, check: StreamCheck, *, locked: bool) -> None:
        """Report content that a redaction names and that still exists, once for the stream.

        Without the lock another process may be erasing it right now.
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
            content = f"{first} still exists although a redaction names it"
            more = f", and {count - 1} more" if count > 1 else ""
            done = "was interrupted; opening the memory completes it"
            state = done if locked else "is in progress, or was interrupted: verify again"
            message = f"{content}{more}: the erasure {state}"
            check.found("unexplained_redaction", first.line, first.byte, message)
        if named and not check.damaged:
            message = f"a redaction names commit {min(named)}, which does not exist"
            check.found("missing", check.lines + 1, check.end, message)
