"""Derived index of a scope: where in its logs each thing is, so that no question reads all of them.

One SQLite file per scope, taken from the logs and nothing else: deleted, damaged, out of date or of another version it
is built anew. It holds places and checkpoints, no answers: those are read from the logs, and every line is
checked. Every question is answered at the heads of the logs as they are now.

`index_file` holds the file and decides when it is trusted, `builder` takes lines in, `schema` says what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.errors import CorruptLogError, NotFoundError, UsageError
from backstory.ledger.core.events import CandidateRejected, Fact, FactRemoved, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.folded.snapshot import Origin, Place, RecordedLine, RecordedLines, ThreadSnapshot
from backstory.ledger.threads.ranges import Ranges
from backstory.ledger.threads.turn_columns import Trace
from backstory.projections.history.refusals import Refused
from backstory.projections.history.replay import Moment
from backstory.projections.index.builder import BORN, IndexBuilder, IndexProgress
from backstory.projections.index.index_file import SMALL_BYTES, IndexFile, IndexSnapshot
from backstory.projections.index.kv import ChecksummedKV
from backstory.projections.index.model_usage import DayUsage, ModelUsage, UsageCount
from backstory.projections.index.periods import Period, ended_by, ranges_of
from backstory.projections.index.refusal_words import RefusalBlock, resembling
from backstory.projections.index.schema import (
    LAST,
    NOTHING,
    SAYING_BYTES,
    Checkpoint,
    IndexPosition,
    Mark,
    Said,
    Table,
    beginning,
    name_in,
    name_of,
    named,
    number,
    number_in,
    saying,
)
from backstory.projections.index.timeline import Timeline, TimelineBlock, timeline
from backstory.projections.read_model import ReadModel
from backstory.projections.sqlite_file import DamagedError

_AT_ONCE = 64
_MOST_NAMED = 100
_WIDEST = 64
_NO_END = 2**62
_READ_THROUGH = 32
"""All places are scanned where there is a thread for each of this many turns; else each thread is looked up."""

P = TypeVar("P")
T = TypeVar("T")

_checkpoint = msgspec.msgpack.Decoder(Checkpoint)
_mark = msgspec.msgpack.Decoder(Mark)
_said = msgspec.msgpack.Decoder(Said)
_trace = msgspec.msgpack.Decoder(Trace)
_timeline = msgspec.msgpack.Decoder(TimelineBlock)
_usage = msgspec.msgpack.Decoder(UsageCount)
_refusals = msgspec.msgpack.Decoder(RefusalBlock)
_fact = msgspec.msgpack.Decoder(Fact)
_period = msgspec.msgpack.Decoder(Period)


class Around(msgspec.Struct, frozen=True):
    """A commit, and the memory before and after it; without a commit both are empty."""

    before: Memory
    after: Memory
    commit: Commit | None


class ScopeIndex(ReadModel):
    """Answers about one scope's logs without reading all of them; safe for threads and processes.

    Everything here may raise CorruptLogError (a log is damaged) and StoreError (it cannot be read).
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        path: Path,
        *,
        progress: IndexProgress | None = None,
        small: int = SMALL_BYTES,
    ) -> None:
        self.store = store
        self.scope = scope
        self._file = IndexFile(store, scope, path, progress=progress, small=small)
        self._ask = self._file.ask

    def follow(self) -> None:
        """Bring the file to the heads of both logs, so that the next question need not; a small scope has none."""
        self._file.catch_up()

    def purge(self) -> None:
        """Take the file away and whatever belongs to it; no process uses it when this returns.

        Raises:
            StoreError: it cannot be taken away. LockTimeoutError: another process keeps it.
        """
        self._file.delete()

    def close(self) -> None:
        """Let go of what is open; the next question opens it again."""
        self._file.close()

    # Where a writer goes on from: `Snapshots`.

    def origin(self) -> Origin | None:
        """Return the memory at the head and where the logs stand; see `Snapshots.origin`."""
        return self._ask(_origin) if self._file.in_file() else None

    def places(self, thread: str, origin: Origin) -> tuple[Sequence[Place], Sequence[Place]]:
        """Return the lines about a thread; see `Snapshots.places`."""

        def places(at: IndexSnapshot) -> tuple[Sequence[Place], Sequence[Place]]:
            learned = [place for place in _learned(at, thread) if place.seq <= origin.ledger.seq]
            said = [Place(number_in(key), value.byte) for key, value in _said_in(at, thread)]
            return learned, [place for place in said if place.seq <= origin.transcript.seq]

        return self._ask(places, until=(origin.ledger, origin.transcript))

    def thread(self, thread: str, origin: Origin, newest: int) -> ThreadSnapshot | None:
        """Return what was known of a thread at an origin; see `Snapshots.thread`."""

        def known(at: IndexSnapshot) -> ThreadSnapshot | None:
            state = at.thread(thread)
            if state.learned > origin.ledger.seq or state.said > origin.transcript.seq:
                return None
            last = TurnRange(max(1, state.turns - newest + 1), _NO_END)
            lines = _recorded(at, thread, last, origin.transcript.seq, redacted=state.redacted)
            return ThreadSnapshot(
                state.turns,
                state.superseded,
                state.withdrawn,
                state.restored,
                state.redacted,
                state.coverage,
                lines,
            )

        return self._ask(known, until=(origin.ledger, origin.transcript))

    def lines(self, thread: str, turns: TurnRange, origin: Origin) -> RecordedLines:
        """Return the lines that record turns of a thread; see `Snapshots.lines`."""

        def lines(at: IndexSnapshot) -> RecordedLines:
            return _recorded(at, thread, turns, origin.transcript.seq, redacted=at.thread(thread).redacted)

        return self._ask(lines, until=(origin.ledger, origin.transcript))

    def recorded_by(self, thread: str, seq: int, origin: Origin) -> int:
        """Return how many turns were recorded up to a commit; see `Snapshots.recorded_by`."""
        return self._ask(lambda at: _recorded_by(at, thread, seq), until=(origin.ledger, origin.transcript))

    def places_of(
        self, threads: Collection[str], origin: Origin
    ) -> Mapping[str, tuple[Sequence[Place], Sequence[Place]]]:
        """Return the lines about many threads; see `Snapshots.places_of`.

        They are found by reading all places there are, so it is not done for a few threads among many turns.
        """
        if len(threads) * _READ_THROUGH < origin.turns:
            return {}
        wanted = {named(thread): thread for thread in threads}

        def places(at: IndexSnapshot) -> dict[str, tuple[list[Place], list[Place]]]:
            found: dict[str, tuple[list[Place], list[Place]]] = {thread: ([], []) for thread in threads}
            for key, value in at.kv.ascending(Table.LEARNED):
                thread = wanted.get(name_of(key))
                if thread is not None and number_in(key) <= origin.ledger.seq:
                    found[thread][0].append(Place(number_in(key), int.from_bytes(value, "big")))
            for key, value in at.kv.ascending(Table.SAID):
                thread = wanted.get(name_of(key))
                if thread is not None and number_in(key) <= origin.transcript.seq:
                    found[thread][1].append(Place(number_in(key), _said.decode(value).byte))
            return found

        return self._ask(places, until=(origin.ledger, origin.transcript))

    def threads(self, origin: Origin) -> Sequence[str]:
        """Return all threads by first word; see `Snapshots.threads`."""
        return self._ask(lambda at: _names(at, Table.ORDER, origin))

    def unsettled(self, origin: Origin) -> Sequence[str]:
        """Return the threads in which a turn is not covered, and perhaps more; see `Snapshots.unsettled`."""

        def unsettled(at: IndexSnapshot) -> list[str]:
            if at.tip.cleared != origin.cleared:
                return _names(at, Table.ORDER, origin)
            # What was learned after the origin may have settled threads that were not settled then.
            later = {commit.cause.thread for commit in at.read(LEDGER, origin.ledger, origin.ledger_end)}
            if not later:
                return _names(at, Table.UNSETTLED, origin)
            left = {*_names(at, Table.UNSETTLED, origin), *later}
            return [name for name in _names(at, Table.ORDER, origin) if name in left]

        return self._ask(unsettled)

    # Memory.

    def memory(self) -> Memory:
        """Return the memory at the ledger's head."""
        return self._ask(IndexSnapshot.memory)

    def memory_at(self, moment: Moment) -> Memory:
        """Rebuild the memory after a commit, or as it was at a time.

        Raises:
            NotFoundError: the ledger has no such commit yet.
        """
        return self._ask(lambda at: _memory_at(at, moment))

    def ended(self, moment: Moment | None, first: str, behind: str) -> list[Fact]:
        """Return the facts that had ended, as was known at a moment, and were true in a span of time; see `held`.

        Each states the end that is known of it, the time of the commit at the latest. One that was brought back, or
        that turned out to be wrong, is none of them.

        Args:
            moment: a commit or a time; None: the present.
            first: the beginning of the span.
            behind: the first moment behind it; `first` for a single moment.

        Raises:
            NotFoundError: the ledger has no such commit yet.
        """
        return self._ask(lambda at: list(_ended(at, moment, first, behind)))

    def saying(self, content: str) -> list[str]:
        """Return the ids of all facts, live or gone, that said the same as a text at some time."""

        def ids(at: IndexSnapshot) -> list[str]:
            prefix = saying(content)
            found = takewhile(lambda pair: pair[0].startswith(prefix), at.kv.ascending(Table.SAYINGS, prefix))
            return [key[SAYING_BYTES:].decode() for key, _ in found]

        return self._ask(ids)

    def around(self, moment: Moment | None) -> Around:
        """Rebuild the memory before and after a commit, or the last one up to a time; None: the ledger's last.

        Raises:
            NotFoundError: the ledger has no such commit yet.
        """
        return self._ask(lambda at: _around(at, moment))

    def memories_when(self, last_updated: str) -> Iterator[Memory]:
        """Rebuild the memories whose documents state this `lastUpdated`: several commits may bear the same time."""
        fold, commits = self._ask(lambda at: _before(at, last_updated))
        for commit in commits:
            if commit.at > last_updated:
                return
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            if fold.changed_at == last_updated:
                yield fold.memory()

    # Commits.

    def last(self) -> int:
        """Return the seq of the ledger's last commit, 0 where there is none."""
        return self._ask(lambda at: at.tip.ledger.head.seq)

    def commit(self, seq: int) -> Commit:
        """Return one commit of the ledger.

        Raises:
            NotFoundError: there is no such commit.
        """

        def commit(at: IndexSnapshot) -> Commit:
            last = at.tip.ledger.head.seq
            if not 1 <= seq <= last:
                raise NotFoundError(f"there is no commit {seq}: the ledger ends at {last}")
            return _one(at, seq)

        return self._ask(commit)

    def newest(self, since: int = 1, before: int | None = None) -> Iterator[Commit]:
        """Yield the ledger's commits back to a seq, the newest first, and read no more of them than are asked for.

        Args:
            since: the last one to yield.
            before: the first one is the one before it; None: the ledger's last.
        """
        # What people may give: 0 is the empty memory.
        since = max(1, since)
        last = self.last()
        end, width = last if before is None else min(last, before - 1), 1
        while end >= since:

            def block(at: IndexSnapshot, end: int = end, width: int = width) -> list[Commit]:
                marks = list(islice(at.kv.descending(Table.LEDGER_MARKS, number(end)), width))
                if not marks:
                    raise DamagedError("a mark is missing")
                return _block(at, max(since, number_in(marks[-1][0])), end)

            commits = self._ask(block)
            yield from reversed(commits)
            end, width = commits[0].seq - 1, min(2 * width, _WIDEST)

    def first_since(self, moment: Moment) -> int:
        """Return the seq of the first commit of a time or a later one, behind the last where there is none."""
        if isinstance(moment, int):
            return moment

        def first(at: IndexSnapshot) -> int:
            _, commits = _before(at, moment)
            return next((commit.seq for commit in commits if commit.at >= moment), at.tip.ledger.head.seq + 1)

        return self._ask(first)

    def timeline(self, since: Moment | None, until: Moment | None, buckets: int) -> Timeline:
        """Count the ledger's commits by time and kind; see `timeline.timeline`."""

        def blocks(at: IndexSnapshot) -> list[TimelineBlock]:
            found = [_timeline.decode(value) for _, value in at.kv.ascending(Table.TIMELINE)]
            if sum(len(block.kinds) for block in found) != at.tip.ledger.head.seq:
                raise DamagedError("the time of a commit is missing")
            return found

        return timeline(self._ask(blocks), since, until, buckets)

    def usage(self, since: str | None, until: str | None) -> ModelUsage:
        """Return what models did from one day to another, both included; days are spelled as 2026-03-02."""

        def days(at: IndexSnapshot) -> list[DayUsage]:
            found = at.kv.ascending(Table.USAGE, b"" if since is None else beginning(since))
            counted = (_usage.decode(value).at(key) for key, value in found)
            return list(takewhile(lambda one: until is None or one.day <= until, counted))

        return ModelUsage(tuple(self._ask(days)))

    def refused(self, text: str, most: int, live: Container[str]) -> list[tuple[float, Commit, Refused]]:
        """Return the refused candidates and removed facts that resemble a text; see `RefusalLogs.refused`."""
        return self._ask(lambda at: list(islice(_refused(at, text, live), most)))

    def find_fact(self, prefix: str) -> str:
        """Return the id of the one fact, live or gone, that an id or its unique beginning names.

        Raises:
            NotFoundError: no fact begins so.
            UsageError: several do.
        """
        found = self._ask(lambda at: _facts(at, prefix))
        if not found:
            raise NotFoundError(f"there is and was no fact {prefix}: see `fact list` and `log`")
        if len(found) > 1 and prefix not in found:
            count = len(found) if len(found) <= _MOST_NAMED else f"more than {_MOST_NAMED}"
            raise UsageError(f"{prefix} begins the ids of {count} facts, {found[0]} and {found[1]} among them")
        return prefix if prefix in found else found[0]

    def commits_about(self, fact_id: str, *, newest_first: bool = False) -> Iterator[Commit]:
        """Yield the ledger's commits about a fact, as `concerns` finds them."""

        def seqs(at: IndexSnapshot) -> list[int]:
            prefix = named(fact_id)
            return [number_in(key) for key, _ in _under(at, Table.FACTS, prefix)]

        return self._by_parts(self._ask(seqs), _one, newest_first=newest_first)

    def commits_of(self, thread: str, *, newest_first: bool = False) -> Iterator[Commit]:
        """Yield the ledger's commits that a thread is the cause of, or whose turns they erase."""

        def read(at: IndexSnapshot, place: Place) -> Commit:
            return at.line(LEDGER, place.seq, place.byte)

        return self._by_parts(self._ask(lambda at: _learned(at, thread)), read, newest_first=newest_first)

    def deliveries_of(self, thread: str) -> Iterator[Commit]:
        """Yield the transcript's commits that recorded turns of a thread, the newest first."""

        def read(at: IndexSnapshot, place: Place) -> Commit:
            return at.line(TRANSCRIPT, place.seq, place.byte)

        def places(at: IndexSnapshot) -> list[Place]:
            return [Place(number_in(key), value.byte) for key, value in _said_in(at, thread)]

        return self._by_parts(self._ask(places), read, newest_first=True)

    def _by_parts(
        self, places: Sequence[P], read: Callable[[IndexSnapshot, P], Commit], *, newest_first: bool
    ) -> Iterator[Commit]:
        ordered = places[::-1] if newest_first else places
        for start in range(0, len(ordered), _AT_ONCE):
            part = ordered[start : start + _AT_ONCE]

            def block(at: IndexSnapshot, part: Sequence[P] = part) -> list[Commit]:
                return [read(at, place) for place in part]

            yield from self._ask(block)

    # Words.

    def turns(self, thread: str, within: TurnRange | None = None) -> tuple[Turn, ...]:
        """Return a thread's turns that were not erased, in order, all of them or those of some ordinals."""
        return self._ask(lambda at: tuple(_turns(at, thread, within)))

    def superseded(self, thread: str) -> Ranges:
        """Return the ordinals of a thread's turns that stand no longer."""
        return self._ask(lambda at: at.thread(thread).superseded)

    # Whether it is right.

    def differs(self) -> list[str]:
        """Compare the file with what the logs say up to where it stands, and return what differs; nothing is mended.

        A missing one, or one of another version, says nothing wrong; it is built when it is needed. Beside a log that
        is damaged nothing can be compared.
        """
        try:
            found = self._file.as_it_is(self._compare)
        except DamagedError as error:
            return [str(error)]
        except CorruptLogError:
            return []
        return found or []

    def _compare(self, kv: ChecksummedKV, tip: IndexPosition) -> list[str]:
        if tip.version != IndexPosition().version:
            return []
        if tip.scope != self.scope:
            return [f"it is that of {tip.scope}"]
        expected = ChecksummedKV.new(Table)
        intake = IndexBuilder(self.store, expected, IndexPosition(), NOTHING, by_parts=True)
        should = intake.run(self.scope, until=tip)
        for stand, is_at in ((should.ledger, tip.ledger), (should.transcript, tip.transcript)):
            if stand.head != is_at.head:
                return [f"it stands on a commit {is_at.head.seq} that is not in the log"]
        intake.finish(should)
        names = [space for space in Table if space is not Table.TIP]
        found = [f"{_TOLD[space]} differ from the log" for space in names if not _same(kv, expected, space)]
        here = msgspec.structs.replace(
            should,
            ledger=msgspec.structs.replace(should.ledger, edition=tip.ledger.edition),
            transcript=msgspec.structs.replace(should.transcript, edition=tip.transcript.edition),
        )
        return found if here == tip else [*found, "where it says that it stands differs from the log"]


_TOLD = {
    Table.MEMORY: "facts and sections at its end",
    Table.LEDGER_MARKS: "places in the ledger",
    Table.TRANSCRIPT_MARKS: "places in the transcript",
    Table.TIMES: "times of commits",
    Table.CHECKPOINTS: "checkpoints of memory",
    Table.FACTS: "places of facts",
    Table.ENDED: "facts that ended",
    Table.SAYINGS: "what facts say",
    Table.RETURNED: "facts that came back",
    Table.THREADS: "states of threads",
    Table.LEARNED: "places of what was learned from threads",
    Table.SAID: "places of what was said",
    Table.ORDER: "places in the threads' order",
    Table.UNSETTLED: "the threads that are not covered",
    Table.REDACTED: "what is left of erased turns",
    Table.TIMELINE: "times and kinds of commits",
    Table.USAGE: "tokens by day and model",
    Table.REFUSED: "words of what was refused or removed",
}


def _origin(at: IndexSnapshot) -> Origin | None:
    tip = at.tip
    if not tip.settled:
        return None
    return Origin(
        memory=at.memory(),
        ledger=tip.ledger.head,
        ledger_end=tip.ledger.end,
        transcript=tip.transcript.head,
        transcript_end=tip.transcript.end,
        transcript_at=tip.transcript.at,
        firsts=(tip.ledger.first, tip.transcript.first),
        cleared=tip.cleared,
        turns=tip.turns,
    )


def _under(at: IndexSnapshot, space: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in at.kv.ascending(space, prefix):
        if not key.startswith(prefix):
            return
        yield key, value


def _names(at: IndexSnapshot, space: Table, origin: Origin) -> list[str]:
    found = []
    for key, name in at.kv.ascending(space):
        if number_in(key) > origin.transcript.seq:
            break
        found.append(name.decode())
    return found


def _learned(at: IndexSnapshot, thread: str) -> list[Place]:
    return [
        Place(number_in(key), int.from_bytes(byte, "big")) for key, byte in _under(at, Table.LEARNED, named(thread))
    ]


def _said_in(at: IndexSnapshot, thread: str, first: int = 1) -> Iterator[tuple[bytes, Said]]:
    """The lines that recorded a thread's turns, from that of an ordinal on."""
    prefix = named(thread)
    start = prefix
    if first > 1:
        key, _ = next(at.kv.descending(Table.SAID, prefix + number(first) + LAST), (b"", b""))
        start = max(start, key)
    for key, value in at.kv.ascending(Table.SAID, start):
        if not key.startswith(prefix):
            return
        yield key, _said.decode(value)


def _turns(at: IndexSnapshot, thread: str, within: TurnRange | None) -> Iterator[Turn]:
    wanted = TurnRange(1, at.thread(thread).turns) if within is None else within
    for key, said in _said_in(at, thread, wanted.first):
        first = number_in(key[:-8])
        if first > wanted.last:
            return
        commit = at.line(TRANSCRIPT, number_in(key), said.byte)
        events = commit.events[len(commit.events) - (said.count - said.lost) :]
        for n, event in enumerate(events, first + said.lost):
            if isinstance(event, TurnRecorded) and wanted.first <= n <= wanted.last:
                yield event.turn


def _recorded(at: IndexSnapshot, thread: str, turns: TurnRange, until: int, *, redacted: bool) -> RecordedLines:
    lines = []
    for key, said in _said_in(at, thread, turns.first):
        first, seq = number_in(key[:-8]), number_in(key)
        if first > turns.last or seq > until:
            break
        if said.count:
            lines.append(RecordedLine(Place(seq, said.byte), first, first + said.count - 1))
    traces: dict[int, Trace | None] = {}
    begin, end = min([turns.first, *(line.first for line in lines)]), max([turns.last, *(line.last for line in lines)])
    prefix = named(thread)
    for key, value in at.kv.ascending(Table.REDACTED, prefix + number(begin)) if redacted else ():
        if not key.startswith(prefix) or number_in(key) > end:
            break
        traces[number_in(key)] = _trace.decode(value) if value else None
    return RecordedLines(lines, traces)


def _recorded_by(at: IndexSnapshot, thread: str, seq: int) -> int:
    """Search by halves: each line is found by an ordinal that belongs to it, and the later has the higher seq."""
    low, high = 0, at.thread(thread).turns
    while low < high:
        middle = (low + high + 1) // 2
        key, said = next(_said_in(at, thread, middle), (b"", Said(0, 0)))
        first = number_in(key[:-8])
        if not first <= middle < first + said.count:
            raise DamagedError("the place of a turn is missing")
        if number_in(key) <= seq:
            low = first + said.count - 1
        else:
            high = first - 1
    return low


def _refused(at: IndexSnapshot, text: str, live: Container[str]) -> Iterator[tuple[float, Commit, Refused]]:
    blocks = [_refusals.decode(value) for _, value in at.kv.ascending(Table.REFUSED)]
    commits: dict[int, Commit] = {}
    for score, seq, index in resembling(blocks, text):
        if seq not in commits:
            commits[seq] = _one(at, seq)
        event = commits[seq].events[index]
        if isinstance(event, CandidateRejected) or (isinstance(event, FactRemoved) and event.fact.id not in live):
            yield score, commits[seq], event


def _facts(at: IndexSnapshot, prefix: str) -> list[str]:
    """The ids that begin so, the oldest first; a few more than `_MOST_NAMED` are never looked at."""
    born: dict[bytes, tuple[int, str]] = {}
    for exact in (named(prefix), beginning(prefix) if prefix else named(prefix)):
        for key, value in _under(at, Table.FACTS, exact):
            name = name_of(key)
            if value == BORN and name not in born:
                born[name] = (number_in(key), name_in(name)[0])
                if len(born) > _MOST_NAMED:
                    break
    return [text for _, text in sorted(born.values())]


def _fold_from(at: IndexSnapshot, seq: int) -> tuple[Fold, Head, int]:
    """The last checkpoint at or before a commit: a fold of its memory, its head, and the byte behind it."""
    found = next(at.kv.descending(Table.CHECKPOINTS, number(seq)), None)
    if found is None:
        return Fold(Memory()), EMPTY, 0
    checkpoint = _checkpoint.decode(found[1])
    return Fold(checkpoint.memory), Head(number_in(found[0]), checkpoint.hash), checkpoint.end


def _memory_at(at: IndexSnapshot, moment: Moment) -> Memory:
    last = at.tip.ledger.head.seq
    if isinstance(moment, int):
        if moment > last:
            raise NotFoundError(f"there is no commit {moment}: the ledger of {at.scope} ends at {last}")
        if moment == last:
            return at.memory()
        fold, head, end = _fold_from(at, moment)
        commits: Iterable[Commit] = at.read(LEDGER, head, end) if head.seq < moment else ()
    elif moment >= at.tip.ledger.latest:
        return at.memory()
    else:
        fold, commits = _from(at, named(moment) + LAST)
    for commit in commits:
        if commit.seq > moment if isinstance(moment, int) else commit.at > moment:
            break
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.memory()


def _ended(at: IndexSnapshot, moment: Moment | None, first: str, behind: str) -> Iterator[Fact]:
    last = at.tip.ledger.head.seq
    seq = last if moment is None else moment if isinstance(moment, int) else _seq_at(at, moment)
    if seq > last:
        raise NotFoundError(f"there is no commit {seq}: the ledger of {at.scope} ends at {last}")
    periods, returned = at.kv.cursor(Table.ENDED), at.kv.cursor(Table.RETURNED)
    for start, stop in ranges_of(first, behind):
        for key, value in periods.between(start, stop):
            if (ended := ended_by(key)) > seq:
                continue
            period = _period.decode(value)
            if period.end <= first or (period.begin > first and period.begin >= behind):
                continue
            fact = _fact.decode(period.fact)
            # A later commit that adds the fact brings it back, or takes back that it was ever true.
            name = named(fact.id)
            if not any(returned.between(name + number(ended + 1), name + number(seq + 1))):
                yield fact


def _around(at: IndexSnapshot, moment: Moment | None) -> Around:
    last = at.tip.ledger.head.seq
    seq = last if moment is None else moment if isinstance(moment, int) else _seq_at(at, moment)
    if seq > last:
        raise NotFoundError(f"there is no commit {seq}: the ledger of {at.scope} ends at {last}")
    if seq == 0:
        return Around(Memory(), Memory(), None)
    fold, head, end = _fold_from(at, seq - 1)
    for commit in at.read(LEDGER, head, end):
        if commit.seq == seq:
            before = fold.memory()
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            return Around(before, fold.memory(), commit)
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    raise DamagedError(f"commit {seq} is not where it should be")


def _seq_at(at: IndexSnapshot, time: str) -> int:
    """The seq of the commit at which memory stood at a time: the one before the first later one."""
    if time >= at.tip.ledger.latest:
        return at.tip.ledger.head.seq
    # No commit before this mark is later than the time.
    found = next(at.kv.descending(Table.TIMES, named(time) + LAST), None)
    if found is None:
        raise DamagedError("a time is missing")
    start, mark = _mark_before(at, number_in(found[0]))
    commits = at.read(LEDGER, Head(start - 1, mark.prev), mark.byte)
    return next(commit.seq for commit in commits if commit.at > time) - 1


def _before(at: IndexSnapshot, time: str) -> tuple[Fold, Iterator[Commit]]:
    """A memory before the first commit of a time or a later one, not long before, and the commits from there on."""
    return _from(at, named(time))


def _from(at: IndexSnapshot, key: bytes) -> tuple[Fold, Iterator[Commit]]:
    found = next(at.kv.descending(Table.TIMES, key), None)
    fold, head, end = _fold_from(at, 0 if found is None else number_in(found[0]) - 1)
    commits = at.read(LEDGER, head, end)
    # The first is read at once: if it is not where it should be this raises, and the file is held open for more.
    return fold, chain(list(islice(commits, 1)), commits)


def _mark_before(at: IndexSnapshot, seq: int) -> tuple[int, Mark]:
    """The last line to start reading at that is not behind a commit: its seq and where it is."""
    found = next(at.kv.descending(Table.LEDGER_MARKS, number(seq)), None)
    if found is None:
        raise DamagedError("a mark is missing")
    return number_in(found[0]), _mark.decode(found[1])


def _one(at: IndexSnapshot, seq: int) -> Commit:
    start, mark = _mark_before(at, seq)
    return at.line(LEDGER, seq, mark.byte, skip=seq - start)


def _block(at: IndexSnapshot, first: int, last: int) -> list[Commit]:
    """The commits between two seqs, both included, read from the mark before them."""
    start, mark = _mark_before(at, first)
    commits = list(islice(at.read(LEDGER, Head(start - 1, mark.prev), mark.byte), last - start + 1))
    if len(commits) != last - start + 1:
        raise DamagedError(f"commit {last} is not where it should be")
    return commits[first - start :]


def _same(a: ChecksummedKV, b: ChecksummedKV, space: Table) -> bool:
    ours, theirs = a.ascending(space), b.ascending(space)
    return all(entry == next(theirs, None) for entry in ours) and next(theirs, None) is None
