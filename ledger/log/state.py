"""State of a scope, folded from its two streams: memory, coverage and turns.

The fold starts from the newest snapshot, if there is one, or from the first commit. An erasure changes what earlier
commits say, so a state that meets one starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, decode, inspect, prev_of, unseal
from backstory.ledger.core.errors import CorruptLogError, LockTimeoutError, StoreError
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.log.earlier_turns import BLOCK_TURNS, StoredTurns
from backstory.ledger.log.snapshot import Origin, Place, Snapshots
from backstory.ledger.log.store import EventStore, Record
from backstory.ledger.threads.coverage import COVERING_ALL, Coverage
from backstory.ledger.threads.transcript import Thread, Transcript

__all__ = ["EarlierThreads", "ScopeState", "must_belong", "must_not_shrink", "read_commits"]


def read_commits(
    store: EventStore, stream: str, after: Head = EMPTY, *, byte: int | None = None, until: Head | None = None
) -> Iterator[Commit]:
    """Yield the commits after a head, each checked against the chain, up to the end or to another head.

    `byte` is as for `EventStore.read`.

    Raises:
        CorruptLogError: at the first line that is not what was written.
    """
    for commit, _ in _read(store, stream, after, byte, until):
        yield commit


def _read(
    store: EventStore, stream: str, after: Head, byte: int | None, until: Head | None = None
) -> Iterator[tuple[Commit, int]]:
    """Yield the commits after a head, as far as another if one is given, and the byte behind each."""
    head = after
    for record in store.read(stream, after.seq, byte=byte):
        if until is not None and head.seq >= until.seq:
            return
        commit = unseal(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        yield commit, record.byte + len(record.line) + 1


class _MetErasureError(Exception):
    """A redaction came after the snapshot that a view stands on."""


class ScopeState:
    """What a scope's streams say, as far as they were read; not safe for threads.

    `settled` tells how far a stream may be read, given its name and the head that is known; without it whoever is
    writing is waited for.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None = None,
        *,
        settled: Callable[[str, Head], Head] | None = None,
    ) -> None:
        self._settled = settled or self._once_settled
        self._store = store
        self._scope = scope
        self._snapshots = snapshots
        self.beginnings = 0
        """How often it has started over."""
        self.ledger = scope.stream(LEDGER)
        self.transcript_stream = scope.stream(TRANSCRIPT)
        self._begin(None)

    def start_over(self, *, from_first: bool = False) -> None:
        """Let go of everything; the next refresh reads on from the newest snapshot, or from the first commit."""
        self._begin(None)
        self._begun = from_first

    def _go_on(self) -> None:
        """Go on from the newest snapshot, once: whoever only makes a view need not wait for it."""
        if not self._begun and self._snapshots is not None:
            self._begin(self._snapshots.origin())
        self._begun = True

    def _begin(self, origin: Origin | None) -> None:
        self.beginnings += 1
        self._begun = False
        self._origin = origin
        self.memory = Memory() if origin is None else origin.memory
        self.head = EMPTY if origin is None else origin.ledger
        self._byte = None if origin is None else origin.ledger_end
        self._transcript_byte = None if origin is None else origin.transcript_end
        self.coverage = Coverage(0 if origin is None else origin.cleared)
        self.redacted: list[Redacted] = []
        """Every redaction that was met on the way from the first commit."""
        self.touched: set[str] | None = None
        """The threads that something came to since this was emptied; None: any of them, or nobody has asked yet."""
        self.transcript = Transcript()
        self._earlier = None
        if origin is not None and self._snapshots is not None:
            self._earlier = EarlierThreads(self._store, self, self._snapshots, origin)
            self.transcript = Transcript(origin.transcript, origin.transcript_at, origin.turns, self._earlier)

    def prepare(self, names: Collection[str]) -> None:
        """Have many threads at hand that are asked for next: all at once costs less than one by one."""
        if self._earlier is not None:
            self._earlier.prepare(names)

    # Reading on.

    def refresh_ledger(self) -> None:
        """Take in what was appended to the ledger.

        Raises:
            CorruptLogError: it is damaged, or shorter than it was.
        """
        self._go_on()
        known, now = self.head, self._settled(self.ledger, self.head)
        if now == known:
            return
        must_not_shrink(self.ledger, known, now)
        try:
            self._read_ledger(now)
        except _MetErasureError:
            self.start_over(from_first=True)
            try:
                self.refresh_transcript()
                self._read_ledger(now)
            except BaseException:
                self.start_over()
                raise
        except BaseException:
            if not known.seq:
                # Half of it has been taken in.
                self.start_over()
            raise

    def _read_ledger(self, until: Head) -> None:
        commits: Iterable[tuple[Commit, int]] = _read(self._store, self.ledger, self.head, self._byte, until)
        if self.head.seq:
            # All of it is looked at first: what is known must outlive a log that was damaged or exchanged behind it.
            commits = list(commits)
        fold, head, byte = Fold(self.memory), self.head, self._byte
        for commit, end in commits:
            if commit.seq == 1:
                must_belong(self.ledger, commit, self._scope)
            if commit.cause.kind == "redaction":
                self._meet_erasure(commit)
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            self._cover(commit)
            head, byte = commit.head, end
        # All at once: a head that is ahead of its memory would never be made good.
        self.memory, self.head, self._byte = fold.memory(), head, byte

    def _meet_erasure(self, commit: Commit) -> None:
        if self._origin is not None or self.memory.seq:
            raise _MetErasureError
        redacted = [event for event in commit.events if isinstance(event, Redacted)]
        self.redacted += redacted
        if any(event.thread is not None for event in redacted):
            self.refresh_transcript()
        for event in redacted:
            thread = self.transcript.threads.get(event.thread or "")
            if thread is not None:
                thread.redact(event)

    def _cover(self, commit: Commit) -> None:
        if self._origin is not None and commit.cause.thread is not None:
            # What is known of the thread from before has to be there first.
            self.transcript.threads.get(commit.cause.thread)
        self.coverage.apply(commit)
        self._touch(commit)

    def _touch(self, commit: Commit) -> None:
        if commit.cause.kind in COVERING_ALL:
            self.touched = None
        elif self.touched is not None and commit.cause.thread is not None:
            self.touched.add(commit.cause.thread)

    def refresh_transcript(self) -> None:
        """Take in what was appended to the transcript; see `refresh_ledger`."""
        self._go_on()
        stream, known = self.transcript_stream, self.transcript.head
        now = self._settled(stream, known)
        if now == known:
            return
        must_not_shrink(stream, known, now)
        for commit, end in _read(self._store, stream, known, self._transcript_byte, now):
            if commit.seq == 1:
                must_belong(stream, commit, self._scope)
            self.transcript.apply(commit)
            self._touch(commit)
            self._transcript_byte = end

    def _once_settled(self, stream: str, known: Head) -> Head:
        """Return how far a stream may be read: what others have written may be cut off again if its sync fails."""
        now = self._store.head(stream)
        if now == known:
            return now
        try:
            return self._store.settled_head(stream)
        except (StoreError, LockTimeoutError):
            # A home that cannot be written can be read all the same, and so can one that is being rewritten.
            return now

    # What this process itself decided.

    def take(self, commit: Commit) -> None:
        """Take in a commit of the ledger that follows the head; where it ends in the store, the store knows."""
        fold = Fold(self.memory)
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        self._cover(commit)
        self.memory, self.head, self._byte = fold.memory(), commit.head, None

    def take_said(self, commit: Commit) -> None:
        """Take in a commit of the transcript that follows its head."""
        self.transcript.apply(commit)
        self._transcript_byte = None


def must_belong(stream: str, first: Commit, scope: Scope) -> None:
    """Refuse a stream whose first commit names another scope; one whose cause was erased names none.

    Raises:
        CorruptLogError: it does.
    """
    owner = Scope(first.cause.user, first.cause.agent)
    if owner != scope and first.cause.kind != "erased":
        raise CorruptLogError(
            f"{stream} is the log of {owner}, not of {scope}: put it back where it belongs",
            kind="altered",
            stream=stream,
            line=1,
            byte=0,
        )


def must_not_shrink(stream: str, known: Head, now: Head) -> None:
    """Refuse a stream that ends before what is known of it, or ends there in another commit.

    Raises:
        CorruptLogError: it does.
    """
    if known.seq and now.seq <= known.seq:
        cut = now.seq < known.seq
        what = f"now ends at {now.seq}: its tail was cut off" if cut else "is another now: the file was exchanged"
        raise CorruptLogError(
            f"{stream} ended at {known.seq} and {what}; restore the file from a copy, then open it again",
            kind="missing" if cut else "broken_prev",
            stream=stream,
            line=now.seq + cut,
            byte=0,
        )


class EarlierThreads:
    """The threads up to the moment that a view goes on from; each is opened, and its turns are read, when asked for."""

    def __init__(self, store: EventStore, view: ScopeState, snapshots: Snapshots, origin: Origin) -> None:
        self._store = store
        self._view = view
        self._coverage = view.coverage
        self._snapshots = snapshots
        self._origin = origin
        self._given: set[str] = set()
        self._ready: dict[str, Thread] = {}
        """Threads that were loaded before they were asked for."""

    def names(self) -> Sequence[str]:
        """See `Earlier.names`."""
        return self._snapshots.threads(self._origin)

    def unsettled(self) -> Sequence[str]:
        """See `Earlier.unsettled`."""
        return self._snapshots.unsettled(self._origin)

    def load(self, name: str) -> Thread | None:
        """See `Earlier.load`; what the ledger says of the thread is taken into the coverage."""
        self._given.add(name)
        thread = self._ready.pop(name, None)
        if thread is None:
            known = self._snapshots.thread(name, self._origin, BLOCK_TURNS)
            if known is not None and known.turns:
                self._coverage.adopt(name, known.coverage)
                return Thread(name, StoredTurns(name, known, self._snapshots, self._origin, self))
            thread = self._read(name)
        if any(turn is None and n not in thread.traces for n, turn in enumerate(thread.turns, 1)):
            # Erased since the origin; the view starts over with its next look, and what it does now must know it, too.
            for event in self.redacted_since(name):
                thread.redact(event)
        return thread if thread.turns or thread.superseded else None

    def _read(self, name: str) -> Thread:
        """Fold a thread from all of its lines, where the index tells of another moment than that of the view."""
        learned, said = self._snapshots.places(name, self._origin)
        ledger = self._commits(self._view.ledger, learned, self._origin.ledger)
        transcript = self._commits(self._view.transcript_stream, said, self._origin.transcript)
        thread = Thread(name)
        for commit in transcript:
            if commit.cause.thread == name:
                thread.take(commit)
        for commit in ledger:
            if commit.cause.thread == name:
                self._coverage.apply(commit)
            for event in commit.events:
                if isinstance(event, Redacted) and event.thread == name:
                    thread.redact(event)
        return thread

    def prepare(self, names: Collection[str]) -> None:
        """Have many threads at hand that are asked for next, where to pass each log once costs less than to seek."""
        asked = [name for name in names if name not in self._given]
        places = self._snapshots.places_of(asked, self._origin) if asked else {}
        said = {place.seq: place for _, some in places.values() for place in some}
        learned = {place.seq: place for some, _ in places.values() for place in some}
        threads = {name: Thread(name) for name in places}
        for commit in self._pass(self._view.transcript_stream, said):
            if commit.cause.thread in threads:
                threads[commit.cause.thread].take(commit)
        for commit in self._pass(self._view.ledger, learned):
            if commit.cause.thread in threads:
                self._coverage.apply(commit)
            for event in commit.events:
                if isinstance(event, Redacted) and event.thread in threads:
                    threads[event.thread].redact(event)
        self._ready.update(threads)
        self._given.update(threads)

    def _pass(self, stream: str, places: Mapping[int, Place]) -> Iterator[Commit]:
        """Yield the commits at some places, in one pass over the stream."""
        if not places:
            return
        first, last = places[min(places)], max(places)
        for seq, record in enumerate(self._store.read(stream, first.seq - 1, byte=first.byte), first.seq):
            if seq in places:
                yield unseal(record.line, Head(seq - 1, prev_of(record.line)), stream=stream, byte=record.byte)
            if seq == last:
                return

    def _commits(self, stream: str, places: Sequence[Place], until: Head) -> list[Commit]:
        """Read the lines at some places; if one of them is not there, read everything instead."""
        found = [commit for commit in self._at(stream, places) if commit is not None]
        return found if len(found) == len(places) else self._everything(stream, until)

    def _everything(self, stream: str, until: Head) -> list[Commit]:
        return [commit for commit in read_commits(self._store, stream) if commit.seq <= until.seq]

    def _at(self, stream: str, places: Iterable[Place]) -> Iterator[Commit | None]:
        """Read the lines at some places, those that follow each other in one go; None where one is not there."""
        records: Iterator[Record] = iter(())
        following = None
        for place in places:
            if place.seq != following:
                records = self._store.read(stream, place.seq - 1, byte=place.byte)
            following = place.seq + 1
            yield _commit_of(next(records, None), place.seq)

    # The lines that a thread's turns are read from.

    @property
    def stream(self) -> str:
        """The name of the transcript's stream."""
        return self._view.transcript_stream

    def at(self, places: Iterable[Place]) -> Iterator[Commit | None]:
        """Yield the commits at some places, checked; None where another line is, or one that is damaged."""
        return self._at(self.stream, places)

    def everything(self) -> list[Commit]:
        """Return all commits up to the origin.

        Raises:
            CorruptLogError: at the first line that is not what was written.
        """
        return self._everything(self.stream, self._origin.transcript)

    def redacted_since(self, thread: str) -> Iterator[Redacted]:
        """Yield what was redacted of a thread since the origin."""
        for commit in read_commits(self._store, self._view.ledger, self._origin.ledger):
            for event in commit.events:
                if isinstance(event, Redacted) and event.thread == thread:
                    yield event


def _commit_of(record: Record | None, seq: int) -> Commit | None:
    """Read a line that was found through an index; None where it is not that of the seq, or not what was written."""
    try:
        if record is None or not (found := inspect(record.line)).intact or found.seq != seq:
            return None
        return decode(record.line)
    except UNREADABLE:
        return None
