"""Reads of the NATS engine: lines in order, with the stubs of erased ones in their places.

Where a stream stands comes from the leader. Few lines are read from the leader, too; many come in pages from any
replica, and the leader is asked wherever a replica lags behind. A message's own sequence is found by bisection, from
what is known of the stream.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain, takewhile

import msgspec

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.commit import UNREADABLE, head_of
from backstory.ledger.core.errors import BackstoryError, StoreError
from backstory.ledger.disk.locks import polled
from backstory.ledger.engines.nats.jetstream import NAME, JetStream, Stored
from backstory.ledger.engines.nats.messages import (
    Stub,
    Tip,
    byte_of,
    is_commit,
    read_marker,
    read_stubs,
    tip_of,
)
from backstory.ledger.engines.nats.subjects import COMMITS, DELETIONS, STUBS, Subjects, name_of
from backstory.ledger.engines.port import Record

_REMEMBERED = 4096
_FEW = 4
_PAGES = (16, 512)
"""How many messages the first page has, and the most: many readers want a single line."""


class Stubs(msgspec.Struct, frozen=True):
    """All stubs of a stream, by seq: `at` is the sequence of the last message that has some, 0 for none."""

    at: int
    by_seq: dict[int, Stub]
    seqs: Sequence[int]
    shrunk: Sequence[int]
    """How many bytes the stubs up to each take less than the originals; begins with 0."""
    messages: dict[int, tuple[int, ...]]
    """Which stubs each message has, replaced ones included, by sequence."""

    def shrunk_before(self, seq: int) -> int:
        """Return by how many bytes a line lies further to the front than it was appended."""
        return self.shrunk[bisect_left(self.seqs, seq)]


_NO_STUBS = Stubs(0, {}, (), (0,), {})


class SequencePlace(msgspec.Struct, frozen=True):
    """A known sequence: the commits after `seq` come after the message `at`."""

    origin: int
    seq: int
    at: int


class StreamReading:
    """Reads the streams of a store."""

    def __init__(self, wire: JetStream, subjects: Subjects) -> None:
        self._wire = wire
        self._subjects = subjects
        self._stubs: Recent[str, Stubs] = Recent(_REMEMBERED)
        self._newest: Recent[str, Tip] = Recent(_REMEMBERED)
        self._places: Recent[str, SequencePlace] = Recent(_REMEMBERED)

    def tip(self, stream: str) -> Tip:
        """Return where a stream stands; never an older place than was returned before.

        Raises:
            StoreError: The servers go on to return an older one.
        """
        name, commits, _ = self._names(stream)

        def look() -> Tip | None:
            tip = tip_of(stream, self._wire.last(name, commits))
            return tip if self._is_newest(stream, name, tip) else None

        found = polled(look, self._wire.timeout, SystemClock())
        if found is None:
            raise StoreError(
                f"{stream} was read further than the servers show it now: were they restored from an old copy?"
            )
        return found

    def newest(self, stream: str) -> Tip | None:
        """Return where a stream stood last, as far as is remembered."""
        return self._newest.use(stream)

    def note(self, stream: str, tip: Tip) -> None:
        """Remember where a stream stands."""
        self._newest.put(stream, tip)

    def _is_newest(self, stream: str, name: str, tip: Tip) -> bool:
        """Whether a stream stands no further back than before.

        A leader that was deposed, and does not know it yet, may answer with an older head.
        """
        known = self._newest.use(stream)
        if known is None:
            pass
        elif tip.head.seq:
            if (tip.origin, tip.head.seq) < (known.origin, known.head.seq):
                return False
        elif tip.at < known.at and self._wire.last_seq(name) < known.at:
            # It was not removed: the replica that answers does not have it yet, or any more.
            return False
        self._newest.put(stream, tip)
        return True

    def state(self, stream: str) -> tuple[Tip, Stubs]:
        """Return where a stream stands, and its stubs."""
        (state,) = self.states([stream])
        return state

    def states(self, streams: Sequence[str]) -> list[tuple[Tip, Stubs]]:
        """Return where each stream stands, and its stubs; the servers are asked about all at the same time."""
        asked: list[tuple[str, str]] = []
        for name, commits, stubs in map(self._names, streams):
            asked += [(name, commits), (name, stubs)]
        found = self._wire.lasts(asked)
        return [self._state(*each) for each in zip(streams, found[::2], found[1::2], strict=True)]

    def _state(self, stream: str, last: Stored | None, last_stub: Stored | None) -> tuple[Tip, Stubs]:
        name, _, stubs = self._names(stream)
        tip = tip_of(stream, last)
        if not self._is_newest(stream, name, tip):
            tip, last_stub = self.tip(stream), self._wire.last(name, stubs)
        if last_stub is None or not tip.head.seq or last_stub.seq <= tip.origin:
            # Those of an earlier stream of this name may not have been deleted yet.
            return tip, _NO_STUBS
        known = self._stubs.use(stream)
        if known is None or known.at != last_stub.seq:
            # The erasure may have been interrupted; this is where another process sees it first.
            with suppress(BackstoryError):
                self.complete(stream)
            known = self._load_stubs(name, stubs, tip.origin, last_stub.seq)
            self._stubs.put(stream, known)
        return tip, known

    def complete(self, stream: str) -> None:
        """Delete what an erasure that was interrupted has left."""
        name, subject = self._subjects.jetstream_of(stream), self._subjects.of(DELETIONS, stream)
        while (note := self._wire.last(name, subject)) is not None:
            self._wire.delete(name, msgspec.json.decode(note.data, type=list[int]))
            self._wire.delete(name, [note.seq])

    def changed(self, shard: int, after: int, last: int) -> set[str]:
        """Return the streams of a shard with messages after a sequence and up to another, whatever these say."""
        name, pattern = self._subjects.jetstream(shard), self._subjects.everything(shard)
        found: set[str] = set()
        at = after + 1
        while at <= last:
            page = self._page(name, pattern, at, _PAGES[1])
            if not page:
                break
            for message in page:
                at = message.seq + 1
                if self._subjects.kind(message.subject) in (COMMITS, STUBS):
                    found.add(stream_of(self._subjects.rest(message.subject), message))
        return found

    def messages(self, stream: str, seqs: Collection[int]) -> dict[int, Stored]:
        """Return the messages of some commits, by seq, as far as they are there."""
        if not seqs:
            return {}
        tip, _ = self.state(stream)
        last = max(seqs)
        up_to = takewhile(lambda found: found[0] <= last, self._commits(stream, min(seqs) - 1, tip))
        return {number: message for number, message in up_to if number in seqs}

    def every(self, name: str, subject: str, at: int, last: int) -> Iterator[Stored]:
        """Yield the messages on a subject from a sequence on, up to another, each from the leader."""
        while at <= last and (found := self._wire.next(name, subject, at)) is not None and found.seq <= last:
            yield found
            at = found.seq + 1

    def _page(self, name: str, subject: str, at: int, count: int) -> Sequence[Stored]:
        """Return messages from a sequence on: some from any replica, or the first one from the leader."""
        page = self._wire.page(name, subject, at, count) if count > 1 else ()
        return page or tuple(filter(None, [self._wire.next(name, subject, at)]))

    def _load_stubs(self, name: str, subject: str, origin: int, last: int) -> Stubs:
        found: dict[int, Stub] = {}
        messages: dict[int, tuple[int, ...]] = {}
        for message in self.every(name, subject, origin + 1, last):
            stubs = read_stubs(message)
            found.update((stub.seq, stub) for stub in stubs)
            messages[message.seq] = tuple(stub.seq for stub in stubs)
        seqs = sorted(found)
        shrunk = [0]
        for seq in seqs:
            shrunk.append(shrunk[-1] + found[seq].shrunk)
        return Stubs(last, found, seqs, shrunk, messages)

    def read(self, stream: str, after: int) -> Iterator[Record]:
        """Yield the lines after a seq, up to where the stream stands now.

        Messages may be deleted meanwhile, by an erasure or a removal. So where some are missing, the stubs are read
        again; where the stream was removed, no line follows.
        """
        tip, stubs = self.state(stream)
        seq = after
        for number, message in chain(self._commits(stream, after, tip), [(tip.head.seq + 1, None)]):
            if any(missing not in stubs.by_seq for missing in range(seq + 1, number)):
                now, newer = self.state(stream)
                if not now.head.seq or now.origin != tip.origin:
                    return
                stubs = newer
            yield from _stubs_between(stubs, seq, number)
            if message is not None:
                stub = stubs.by_seq.get(number)
                byte = (byte_of(message) if stub is None else stub.byte) - stubs.shrunk_before(number)
                yield Record(message.data if stub is None else stub.line, byte)
            seq = number

    def _commits(self, stream: str, after: int, tip: Tip) -> Iterator[tuple[int, Stored]]:
        """Yield the commits that are still there as messages."""
        if after >= tip.head.seq:
            return
        name, subject, _ = self._names(stream)
        at = self._begin(stream, name, subject, after, tip)
        seq, count = after, 1
        try:
            while at <= tip.at and seq < tip.head.seq:
                page = self._page(name, subject, at, count if tip.head.seq - seq > _FEW else 1)
                count = min(max(count * 8, _PAGES[0]), _PAGES[1])
                if not page:
                    return
                for message in page:
                    if message.seq > tip.at:
                        return
                    at = message.seq + 1
                    if not is_commit(message):
                        continue
                    number = _seq_of(message, seq + 1)
                    if number > seq:
                        seq = number
                        yield number, message
        finally:
            known = self._places.get(stream)
            if known is None or known.origin != tip.origin or known.seq < seq:
                self._places.put(stream, SequencePlace(tip.origin, seq, at - 1))

    def _begin(self, stream: str, name: str, subject: str, after: int, tip: Tip) -> int:
        """Return a sequence at or before that of the first commit after a seq, and after those before it."""
        low, high = tip.origin + 1, tip.at
        known = self._places.get(stream)
        if known is not None and known.origin == tip.origin and known.at <= tip.at:
            if known.seq == after:
                return known.at + 1
            if known.seq < after:
                low = known.at + 1
            else:
                high = known.at
        if after == 0:
            return tip.origin + 1
        while low < high:
            middle = (low + high) // 2
            message = self._wire.next(name, subject, middle)
            if message is None or message.seq > high:
                high = middle
                continue
            number = _seq_of(message, 0) if is_commit(message) else read_marker(message).seq
            if number <= after:
                low = message.seq + 1
            elif number == after + 1 and is_commit(message):
                return message.seq
            else:
                high = middle
        return low

    def _names(self, stream: str) -> tuple[str, str, str]:
        name = self._subjects.jetstream_of(stream)
        return name, self._subjects.of(COMMITS, stream), self._subjects.of(STUBS, stream)


def stream_of(rest: str, message: Stored) -> str:
    """Return the name of the stream whose subject ends so, from a header of a message on it where that is needed."""
    return name_of(rest) or bytes.fromhex(message.header(NAME)).decode("utf-8", "surrogatepass")


def _stubs_between(stubs: Stubs, after: int, before: int) -> Iterator[Record]:
    """Yield the stubs that follow a seq, in the place of messages that are gone."""
    for seq in range(after + 1, before):
        stub = stubs.by_seq.get(seq)
        if stub is None:
            return
        yield Record(stub.line, stub.byte - stubs.shrunk_before(seq))


def _seq_of(message: Stored, otherwise: int) -> int:
    """Return the seq that a commit states, or another one where it is damaged: its reader finds that out."""
    try:
        return head_of(message.data).seq
    except UNREADABLE:
        return otherwise
