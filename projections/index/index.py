"""Derived index of a scope: where in its logs each thing is, so that no question reads all of them.

One SQLite file per scope, taken from the logs and nothing else: deleted, damaged, out of date or of another version it
is built anew. It holds places and checkpoints, no answers: those are read from the logs, and every line is
checked. Every question is answered at the heads of the logs as they are now.

`index_file` holds the file and decides when it is trusted, `builder` takes lines in, `schema` says what is kept,
`questions` reads an answer off it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import TypeVar

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import CorruptLogError, NotFoundError, UsageError
from backstory.ledger.core.events import Fact, Turn, TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.log.commits import seqs_with_hash
from backstory.ledger.log.folded.snapshot import Place, RecordedLines, SnapshotOrigin, ThreadSnapshot
from backstory.ledger.threads.ranges import Ranges
from backstory.projections.derived_files import DamagedError
from backstory.projections.history.moment import Moment, changed_at
from backstory.projections.history.refusals import RefusedEvent
from backstory.projections.index import questions
from backstory.projections.index.builder import differences
from backstory.projections.index.index_file import IndexFile, IndexSnapshot
from backstory.projections.index.kv import beginning, named, number, number_in
from backstory.projections.index.questions import Around
from backstory.projections.index.schema import SAYING_BYTES, Table, saying
from backstory.projections.index.timeline import DayUsage, ModelUsage, Timeline, TimelineBlock, UsageCount, timeline

_AT_ONCE = 64
_WIDEST = 64
_READ_THROUGH = 32
"""All places are scanned where there is a thread for each of this many turns; else each thread is looked up."""

P = TypeVar("P")
_NO_END = 2**62

_timeline = msgspec.msgpack.Decoder(TimelineBlock)
_usage = msgspec.msgpack.Decoder(UsageCount)


class ScopeIndex(IndexFile):
    """Answers about one scope's logs without reading all of them; safe for threads and processes.

    Everything here may raise CorruptLogError (a log is damaged) and StoreError (it cannot be read).
    """

    # Where a writer goes on from: `Snapshots`.

    def origin(self) -> SnapshotOrigin | None:
        """Return the memory at the head and where the logs stand; see `Snapshots.origin`."""
        return self.ask(questions.origin) if self.in_file() else None

    def places(self, thread: str, origin: SnapshotOrigin) -> tuple[Sequence[Place], Sequence[Place]]:
        """Return the lines about a thread; see `Snapshots.places`."""

        def places(at: IndexSnapshot) -> tuple[Sequence[Place], Sequence[Place]]:
            learned = [place for place in questions.learned(at, thread) if place.seq <= origin.ledger.seq]
            return learned, [place for place in questions.said(at, thread) if place.seq <= origin.transcript.seq]

        return self.ask(places, until=(origin.ledger, origin.transcript))

    def thread(self, thread: str, origin: SnapshotOrigin, newest: int) -> ThreadSnapshot | None:
        """Return what was known of a thread at an origin; see `Snapshots.thread`."""

        def known(at: IndexSnapshot) -> ThreadSnapshot | None:
            state = at.thread(thread)
            if state.learned > origin.ledger.seq or state.said > origin.transcript.seq:
                return None
            last = TurnRange(max(1, state.turns - newest + 1), _NO_END)
            lines = questions.recorded(at, thread, last, origin.transcript.seq, redacted=state.redacted)
            return ThreadSnapshot(
                state.turns,
                state.superseded,
                state.withdrawn,
                state.restored,
                state.redacted,
                state.coverage,
                lines,
            )

        return self.ask(known, until=(origin.ledger, origin.transcript))

    def lines(self, thread: str, turns: TurnRange, origin: SnapshotOrigin) -> RecordedLines:
        """Return the lines that record turns of a thread; see `Snapshots.lines`."""

        def lines(at: IndexSnapshot) -> RecordedLines:
            return questions.recorded(at, thread, turns, origin.transcript.seq, redacted=at.thread(thread).redacted)

        return self.ask(lines, until=(origin.ledger, origin.transcript))

    def recorded_by(self, thread: str, seq: int, origin: SnapshotOrigin) -> int:
        """Return how many turns were recorded up to a commit; see `Snapshots.recorded_by`."""
        return self.ask(lambda at: questions.recorded_by(at, thread, seq), until=(origin.ledger, origin.transcript))

    def places_of(
        self, threads: Collection[str], origin: SnapshotOrigin
    ) -> Mapping[str, tuple[Sequence[Place], Sequence[Place]]]:
        """Return the lines about many threads; see `Snapshots.places_of`.

        They are found by reading all places there are, so it is not done for a few threads among many turns.
        """
        if len(threads) * _READ_THROUGH < origin.turns:
            return {}
        return self.ask(lambda at: questions.places_of(at, threads, origin), until=(origin.ledger, origin.transcript))

    def threads(self, origin: SnapshotOrigin) -> Sequence[str]:
        """Return all threads by first word; see `Snapshots.threads`."""
        return self.ask(lambda at: questions.names(at, Table.ORDER, origin))

    def unsettled(self, origin: SnapshotOrigin) -> Sequence[str]:
        """Return the threads in which a turn is not covered, and perhaps more; see `Snapshots.unsettled`."""

        def unsettled(at: IndexSnapshot) -> list[str]:
            if at.tip.cleared != origin.cleared:
                return questions.names(at, Table.ORDER, origin)
            # What was learned after the origin may have settled threads that were not settled then.
            later = {commit.cause.thread for commit in at.read(LEDGER, origin.ledger, origin.ledger_end)}
            if not later:
                return questions.names(at, Table.UNSETTLED, origin)
            left = {*questions.names(at, Table.UNSETTLED, origin), *later}
            return [name for name in questions.names(at, Table.ORDER, origin) if name in left]

        return self.ask(unsettled)

    # Memory.

    def memory(self) -> Memory:
        """Return the memory at the ledger's head."""
        return self.ask(IndexSnapshot.memory)

    def memory_at(self, moment: Moment) -> Memory:
        """Rebuild the memory after a commit, or as it was at a time.

        Raises:
            NotFoundError: The ledger has no such commit yet.
        """
        return self.ask(lambda at: questions.memory_at(at, moment))

    def ended(self, moment: Moment | None, first: str, behind: str) -> list[Fact]:
        """Return the facts that had ended, as was known at a moment, and were true in a span of time; see `held`.

        Each states the end that is known of it, the time of the commit at the latest. One that was brought back, or
        that turned out to be wrong, is none of them, and neither is one that had ended before a clear.

        Args:
            moment: a commit or a time; None: the present.
            first: the beginning of the span.
            behind: the first moment behind it; `first` for a single moment.

        Raises:
            NotFoundError: The ledger has no such commit yet.
        """
        return self.ask(lambda at: list(questions.ended(at, moment, first, behind)))

    def in_force(self, seq: int) -> Sequence[range]:
        """Return the seqs of the commits up to one that were in force then; see `Logs.in_force`."""
        return self.ask(lambda at: questions.in_force(at, seq))

    def saying(self, content: str) -> list[str]:
        """Return the ids of all facts, live or gone, that said the same as a text at some time."""
        found = self.ask(lambda at: list(questions.under(at, Table.SAYINGS, saying(content))))
        return [key[SAYING_BYTES:].decode() for key, _ in found]

    def around(self, moment: Moment | None) -> Around:
        """Rebuild the memory before and after a commit, or the last one up to a time; None: the ledger's last.

        Raises:
            NotFoundError: The ledger has no such commit yet.
        """
        return self.ask(lambda at: questions.around(at, moment))

    def memories_when(self, last_updated: str) -> Iterator[Memory]:
        """Rebuild the memories whose documents state this `lastUpdated`: several commits may bear the same time."""
        fold, commits = self.ask(lambda at: questions.commits_from(at, last_updated))
        return changed_at(fold, commits, last_updated)

    # Commits.

    def last(self) -> int:
        """Return the seq of the ledger's last commit, 0 where there is none."""
        return self.ask(lambda at: at.tip.ledger.head.seq)

    def commit(self, seq: int) -> Commit:
        """Return one commit of the ledger.

        Raises:
            NotFoundError: There is no such commit.
        """

        def commit(at: IndexSnapshot) -> Commit:
            last = at.tip.ledger.head.seq
            if not 1 <= seq <= last:
                raise NotFoundError(f"there is no commit {seq}: the ledger ends at {last}")
            return at.commit(seq)

        return self.ask(commit)

    def time_of(self, seq: int) -> str:
        """Return the time of a commit; raises as `commit`."""
        return self.commit(seq).at

    def with_hash(self, beginning: str) -> Sequence[int]:
        """Return the seqs of the ledger's commits whose hash begins so, two of them at most."""
        return seqs_with_hash(self.store, self.scope.stream(LEDGER), beginning)

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
                return questions.block(at, max(since, number_in(marks[-1][0])), end)

            commits = self.ask(block)
            yield from reversed(commits)
            end, width = commits[0].seq - 1, min(2 * width, _WIDEST)

    def first_since(self, moment: Moment) -> int:
        """Return the seq of the first commit of a time or a later one, behind the last where there is none."""
        if isinstance(moment, int):
            return moment

        def first(at: IndexSnapshot) -> int:
            _, commits = questions.commits_from(at, moment)
            return next((commit.seq for commit in commits if commit.at >= moment), at.tip.ledger.head.seq + 1)

        return self.ask(first)

    def timeline(self, since: Moment | None, until: Moment | None, buckets: int) -> Timeline:
        """Count the ledger's commits by time and kind; see `timeline.timeline`."""

        def blocks(at: IndexSnapshot) -> list[TimelineBlock]:
            found = [_timeline.decode(value) for _, value in at.kv.ascending(Table.TIMELINE)]
            if sum(len(block.kinds) for block in found) != at.tip.ledger.head.seq:
                raise DamagedError("the time of a commit is missing")
            return found

        return timeline(self.ask(blocks), since, until, buckets)

    def usage(self, since: str | None, until: str | None) -> ModelUsage:
        """Return what models did from one day to another, both included; days are spelled as 2026-03-02."""

        def days(at: IndexSnapshot) -> list[DayUsage]:
            found = at.kv.ascending(Table.USAGE, b"" if since is None else beginning(since))
            counted = (_usage.decode(value).at(key) for key, value in found)
            return list(takewhile(lambda one: until is None or one.day <= until, counted))

        return ModelUsage(tuple(self.ask(days)))

    def refused(self, text: str, most: int, live: Container[str]) -> list[tuple[float, Commit, RefusedEvent]]:
        """Return the refused candidates and removed facts that resemble a text; see `RefusalLogs.refused`."""
        return self.ask(lambda at: list(islice(questions.refused(at, text, live), most)))

    def find_fact(self, prefix: str) -> str:
        """Return the id of the one fact, live or gone, that an id or its unique beginning names.

        Raises:
            NotFoundError: No fact begins so.
            UsageError: Several do.
        """
        found = self.ask(lambda at: questions.facts_beginning(at, prefix))
        if not found:
            raise NotFoundError(f"there is and was no fact {prefix}: see `fact list` and `log`")
        if len(found) > 1 and prefix not in found:
            count = len(found) if len(found) <= questions.MOST_NAMED else f"more than {questions.MOST_NAMED}"
            raise UsageError(f"{prefix} begins the ids of {count} facts, {found[0]} and {found[1]} among them")
        return prefix if prefix in found else found[0]

    def commits_about(self, fact_id: str, *, newest_first: bool = False) -> Iterator[Commit]:
        """Yield the ledger's commits about a fact, as `concerns` finds them."""
        found = self.ask(lambda at: list(questions.under(at, Table.FACTS, named(fact_id))))
        return self._by_parts([number_in(key) for key, _ in found], IndexSnapshot.commit, newest_first=newest_first)

    def commits_of(self, thread: str, *, newest_first: bool = False) -> Iterator[Commit]:
        """Yield the ledger's commits that a thread is the cause of, or whose turns they erase."""
        places = self.ask(lambda at: questions.learned(at, thread))
        return self._lines(LEDGER, places, newest_first=newest_first)

    def deliveries_of(self, thread: str) -> Iterator[Commit]:
        """Yield the transcript's commits that recorded turns of a thread, the newest first."""
        return self._lines(TRANSCRIPT, self.ask(lambda at: questions.said(at, thread)), newest_first=True)

    def _lines(self, kind: str, places: Sequence[Place], *, newest_first: bool) -> Iterator[Commit]:
        return self._by_parts(places, lambda at, place: at.line(kind, place.seq, place.byte), newest_first=newest_first)

    def _by_parts(
        self, places: Sequence[P], read: Callable[[IndexSnapshot, P], Commit], *, newest_first: bool
    ) -> Iterator[Commit]:
        ordered = places[::-1] if newest_first else places
        for start in range(0, len(ordered), _AT_ONCE):
            part = ordered[start : start + _AT_ONCE]

            def block(at: IndexSnapshot, part: Sequence[P] = part) -> list[Commit]:
                return [read(at, place) for place in part]

            yield from self.ask(block)

    # Words.

    def turns(self, thread: str, within: TurnRange | None = None) -> tuple[Turn, ...]:
        """Return a thread's turns that were not erased, in order, all of them or those of some ordinals."""
        return self.ask(lambda at: tuple(questions.turns(at, thread, within)))

    def superseded(self, thread: str) -> Ranges:
        """Return the ordinals of a thread's turns that stand no longer."""
        return self.ask(lambda at: at.thread(thread).superseded)

    # Whether it is right.

    def differs(self) -> list[str]:
        """Compare the file with what the logs say up to where it stands, and return what differs; nothing is mended.

        A missing one, or one of another version, says nothing wrong; it is built when it is needed. Beside a log that
        is damaged nothing can be compared.
        """
        try:
            found = self.as_it_is(partial(differences, self.store, self.scope))
        except DamagedError as error:
            return [str(error)]
        except CorruptLogError:
            return []
        return found or []
