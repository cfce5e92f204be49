"""Index builder: takes the lines of a scope's two streams into its index, each verified against the chain.

What is kept depends on the lines alone, not on when they were taken in: an index that caught up a hundred times is the
one that was built at once. So an index is compared with the logs by building it again (`differences`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from backstory.ledger.core.commit import Commit, Head, decode, prev_of, unseal
from backstory.ledger.core.events import (
    Erased,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    TurnRestored,
    TurnSuperseded,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.moments import begins, ends
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import must_belong
from backstory.ledger.threads import ranges
from backstory.ledger.threads.turn_columns import Trace
from backstory.projections.derived_files import DamagedError
from backstory.projections.history.refusals import BLOCK as REFUSALS
from backstory.projections.history.refusals import RefusalBlock, statement_of
from backstory.projections.history.views import facts_of
from backstory.projections.index.kv import LAST, ChecksummedKV, named, number, number_in, pack
from backstory.projections.index.periods import EndedPeriod, keys_of
from backstory.projections.index.schema import (
    BACK_TO,
    FOR_GOOD,
    NOTHING,
    REVERTS,
    Checkpoint,
    IndexPosition,
    ReadingMark,
    SaidLine,
    StreamPosition,
    Table,
    ThreadState,
    saying,
)
from backstory.projections.index.timeline import BLOCK, TimelineBlock, UsageCount, usage_key

IndexProgress = Callable[[int, int], None]
"""Called with the bytes taken in and their total."""

BORN = b"\x01"
"""What a fact's place holds where the commit added the fact, or states its erasure."""

_ADDS_NEW = frozenset({"extraction", "manual"})
"""The kinds of commit that add no fact that was there before."""

_MARK_BYTES = 16 * 1024
_CHECKPOINT_BYTES = 256 * 1024
_FLUSH_BYTES = 32 * 1024 * 1024
"""Bytes of log between two writes: each rewrites every thread's leaf, so fewer are faster."""

_thread_state = msgspec.msgpack.Decoder(ThreadState)
_said = msgspec.msgpack.Decoder(SaidLine)
_block = msgspec.msgpack.Decoder(TimelineBlock)
_count = msgspec.msgpack.Decoder(UsageCount)
_refusals = msgspec.msgpack.Decoder(RefusalBlock)


class StaleError(Exception):
    """The index cannot go on from where it stands; it says why."""


class IndexBuilder:
    """One pass over what is new in both streams, gathered for a `ChecksummedKV`.

    `streams` has their names by kind. What is gathered is written by `finish`; where `by_parts`, some of it earlier, so
    that a long log needs little room.
    """

    def __init__(
        self,
        store: EventStore,
        streams: Mapping[str, str],
        kv: ChecksummedKV,
        tip: IndexPosition,
        memory: Memory,
        *,
        by_parts: bool,
    ) -> None:
        self._store = store
        self._streams = streams
        self._kv = kv
        self._tip = tip
        self._fold = Fold(memory)
        self._by_parts = by_parts
        self._anew = tip.ledger.head.seq == 0
        self._changes: dict[int, dict[bytes, bytes | None]] = {space: {} for space in Table}
        self._threads: dict[str, ThreadState] = {}
        self._block: TimelineBlock | None = None
        self._refused: tuple[int, RefusalBlock] | None = None
        self._cleared = tip.cleared
        self._turns = tip.turns
        self._checkpoint = tip.checkpoint
        self._named: set[tuple[str, int, int]] = set()
        self._erased: set[tuple[str, int, int]] = set()
        self._gathered = 0
        self._done = 0

    def run(
        self, scope: Scope, progress: IndexProgress | None = None, until: IndexPosition | None = None
    ) -> IndexPosition:
        """Take in both streams, as far as they are durable or to where another tip stands; returns the new tip.

        It is not written yet.

        Raises:
            StaleError: The index stands on something else, or a redaction has come.
            CorruptLogError: A line is not what was written.
        """
        streams = (self._streams[LEDGER], self._streams[TRANSCRIPT])
        # The edition first: what is read after it may be newer, never older, and then the next look finds it.
        states = [self._store.state(stream) for stream in streams]
        begun = self._tip.ledger.end + self._tip.transcript.end
        total = max(0, sum(state.size for state in states) - begun)

        def report(done: int) -> None:
            if progress is not None:
                progress(min(done, total), total)

        # In this order, too: what the ledger says of the transcript was durable before the ledger said it.
        ends = (
            tuple(self._store.durable_head(stream).seq for stream in streams)
            if until is None
            else (until.ledger.head.seq, until.transcript.head.seq)
        )
        report(0)
        # The ledger first: the transcript is never older than what the ledger says of it.
        ledger = self._stream(scope, LEDGER, self._tip.ledger, ends[0], report)
        transcript = self._stream(scope, TRANSCRIPT, self._tip.transcript, ends[1], report)
        report(total)
        return msgspec.structs.replace(
            self._tip,
            scope=scope,
            ledger=msgspec.structs.replace(ledger, edition=states[0].edition),
            transcript=msgspec.structs.replace(transcript, edition=states[1].edition),
            cleared=self._cleared,
            turns=self._turns,
            checkpoint=self._checkpoint,
            settled=self._tip.settled and not self._left(streams),
        )

    def _left(self, streams: Collection[str]) -> bool:
        """Whether anything that a redaction names still stands; it may name what never was, as in a copied home."""
        left: dict[str, dict[int, set[int]]] = {stream: {} for stream in streams}
        for stream, seq, index in self._named - self._erased:
            if stream in left:
                left[stream].setdefault(seq, set()).add(index)
        return any(
            0 <= index < len(decode(record.line).events)
            for stream, wanted in left.items()
            if wanted
            for seq, record in enumerate(self._store.read(stream), 1)
            for index in wanted.get(seq, ())
        )

    def finish(self, tip: IndexPosition) -> Memory:
        """Write what was gathered, and where the index stands now; returns the memory there."""
        memory = self._fold.memory()
        self._changes[Table.TIP][b""] = pack(tip)
        self._changes[Table.MEMORY][b""] = pack(memory)
        self._flush()
        return memory

    def _flush(self) -> None:
        self._keep_block(self._fold.seq)
        self._keep_refused()
        for name, state in self._threads.items():
            state.simplify()
            self._changes[Table.THREADS][named(name)] = pack(state)
            if state.first:
                place = number(state.first)
                self._changes[Table.UNSETTLED][place] = None if state.settled else name.encode()
        self._kv.write({space: changes for space, changes in self._changes.items() if changes})
        for changes in self._changes.values():
            changes.clear()
        self._threads.clear()
        self._gathered = 0

    def _stream(
        self, scope: Scope, kind: str, stand: StreamPosition, until: int, report: Callable[[int], None]
    ) -> StreamPosition:
        """Take in a stream from where it was left, up to a seq."""
        stream, marks = self._streams[kind], Table.LEDGER_MARKS if kind == LEDGER else Table.TRANSCRIPT_MARKS
        head, end, at, latest, mark, first = (
            stand.head, stand.end, stand.at, stand.latest, stand.mark, stand.first
        )  # fmt: skip
        for record in self._store.read(stream, head.seq, byte=end):
            if head.seq >= until:
                break
            line = record.line
            if head == stand.head and head.seq:
                _must_continue(line, head, stream)
            begin, end = end, end + len(line) + 1
            if head.seq == 0 or begin - mark >= _MARK_BYTES:
                self._changes[marks][number(head.seq + 1)] = pack(ReadingMark(begin, head.hash))
                if kind == LEDGER:
                    self._changes[Table.TIMES][named(latest) + number(head.seq + 1)] = b""
                mark = begin
            commit = unseal(line, head, stream=stream, byte=begin)
            if commit.seq == 1:
                must_belong(stream, commit, scope)
                first = commit.hash
            head, at, latest = commit.head, commit.at, max(latest, commit.at)
            if kind == LEDGER:
                self._learn(stream, commit, begin, end)
            else:
                self._hear(stream, commit, begin)
            self._gathered += end - begin
            self._done += end - begin
            if self._gathered >= _FLUSH_BYTES and self._by_parts:
                self._flush()
                report(self._done)
        return StreamPosition(head, end, at, latest, mark, first=first)

    def _learn(self, stream: str, commit: Commit, begin: int, end: int) -> None:
        """Take in a commit of the ledger."""
        self._fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        self._date(commit)
        self._count_usage(commit)
        if end - self._checkpoint >= _CHECKPOINT_BYTES:
            checkpoint = Checkpoint(commit.hash, end, self._fold.memory())
            self._changes[Table.CHECKPOINTS][number(commit.seq)] = pack(checkpoint)
            self._checkpoint = end
        facts = self._changes[Table.FACTS]
        threads = set()
        for index, event in enumerate(commit.events):
            born = isinstance(event, FactAdded | Redacted)
            for fact in facts_of(event):
                place = named(fact) + number(commit.seq)
                facts[place] = BORN if born else facts.get(place) or b""
                if born and commit.cause.kind not in _ADDS_NEW:
                    self._changes[Table.RETURNED][place] = b"" if isinstance(event, FactAdded) else FOR_GOOD
            if isinstance(event, FactAdded | FactRevised):
                stated = event.fact if isinstance(event, FactAdded) else event.after
                self._changes[Table.SAYINGS][saying(stated.content) + stated.id.encode()] = b""
            elif isinstance(event, FactRemoved) and event.reason == "ended":
                self._end(commit, event)
            if (statement := statement_of(event)) is not None:
                self._refuse(commit.seq, index, statement)
            if isinstance(event, Redacted):
                self._redacted(event)
                threads.add(event.thread)
            elif isinstance(event, Erased):
                self._erased.add((stream, commit.seq, index))
        for thread in {commit.cause.thread, *threads} - {None}:
            self._changes[Table.LEARNED][named(str(thread)) + number(commit.seq)] = number(begin)
            self._thread(str(thread)).learned = commit.seq
        self._cover(commit)
        self._note_jump(commit)

    def _note_jump(self, commit: Commit) -> None:
        """Note a clear, a replacing import or a rollback, and what reverts one."""
        jumps, own, target = self._changes[Table.JUMPS], number(commit.seq), number(commit.cause.target or 0)
        match commit.cause.kind:
            case "clear":
                jumps[own] = BACK_TO + number(0)
            case "import" if commit.cause.replace:
                jumps[own] = BACK_TO + number(0)
            case "rollback" if commit.cause.target is not None:
                jumps[own] = BACK_TO + target
            case "revert" if target in jumps or self._kv.get(Table.JUMPS, target) is not None:
                jumps[own] = REVERTS + target

    def _end(self, commit: Commit, event: FactRemoved) -> None:
        """Keep a fact that ended, with the time at which it did; what states none ended with the commit."""
        until = event.valid_until or event.fact.valid_until or commit.at
        fact = msgspec.structs.replace(event.fact, valid_until=until)
        begin = "" if fact.valid_from is None else begins(fact.valid_from)
        period = EndedPeriod(begin, ends(until), msgspec.Raw(pack(fact)))
        for key in keys_of(period, commit.seq, fact.id):
            self._changes[Table.ENDED][key] = pack(period)

    def _date(self, commit: Commit) -> None:
        """Note a commit's time and kind in its block."""
        before = commit.seq - 1
        if before % BLOCK == 0 or self._block is None:
            kept = self._kv.get(Table.TIMELINE, number(before // BLOCK)) if before % BLOCK else None
            self._block = TimelineBlock(b"", b"", (), ()) if kept is None else _block.decode(kept)
        if len(self._block.kinds) != before % BLOCK:
            raise DamagedError("the time of a commit is missing")
        self._block.add(commit)
        if len(self._block.kinds) == BLOCK:
            self._keep_block(commit.seq)

    def _keep_block(self, seq: int) -> None:
        if self._block is not None:
            self._changes[Table.TIMELINE][number((seq - 1) // BLOCK)] = pack(self._block)

    def _refuse(self, seq: int, index: int, statement: str) -> None:
        """Note the words of what an event refuses or takes out of memory."""
        if self._refused is None:
            key, kept = next(self._kv.descending(Table.REFUSED, LAST), (number(0), b""))
            self._refused = (number_in(key), _refusals.decode(kept) if kept else RefusalBlock())
        if len(self._refused[1].places) == REFUSALS:
            self._keep_refused()
            self._refused = (self._refused[0] + 1, RefusalBlock())
        self._refused[1].add(seq, index, statement)

    def _keep_refused(self) -> None:
        if self._refused is not None:
            place, block = self._refused
            self._changes[Table.REFUSED][number(place)] = pack(block)

    def _count_usage(self, commit: Commit) -> None:
        """Count a commit that a model was asked for under its day and model."""
        key = usage_key(commit)
        if key is not None:
            kept = self._changes[Table.USAGE].get(key) or self._kv.get(Table.USAGE, key)
            count = UsageCount() if kept is None else _count.decode(kept)
            self._changes[Table.USAGE][key] = pack(count.plus(commit.cause))

    def _redacted(self, event: Redacted) -> None:
        if not self._anew:
            raise StaleError("content was erased")
        self._named.add((event.stream, event.seq, event.index))
        if event.thread is not None and event.n is not None:
            place = named(event.thread) + number(event.n)
            trace = Trace.of(event)
            self._changes[Table.REDACTED][place] = b"" if trace is None else pack(trace)
            self._thread(event.thread).redacted = True

    def _cover(self, commit: Commit) -> None:
        """Note which turns a commit covers."""
        cause = commit.cause
        if cause.kind == "clear" and cause.transcript is not None and cause.transcript.seq > self._cleared:
            self._cleared = cause.transcript.seq
            self._clear()
        if cause.thread is not None:
            self._thread(cause.thread).coverage.apply(commit)

    def _clear(self) -> None:
        """Cover what was said before, in every thread where that is not so already."""
        unsettled = {name.decode() for _, name in self._kv.ascending(Table.UNSETTLED)}
        for name in unsettled | {name for name, state in self._threads.items() if not state.settled}:
            prefix = named(name)
            # The transcript follows the ledger, so all that is known of it is in the file.
            for key, value in self._kv.descending(Table.SAID, prefix + LAST):
                if not key.startswith(prefix):
                    break
                if number_in(key) <= self._cleared:
                    self._thread(name).cleared = number_in(key[:-8]) + _said.decode(value).count - 1
                    break

    def _hear(self, stream: str, commit: Commit, begin: int) -> None:
        """Take in a commit of the transcript."""
        for index, event in enumerate(commit.events):
            if isinstance(event, Erased):
                self._erased.add((stream, commit.seq, index))
        name, recorded = commit.cause.thread, commit.cause.turns
        if name is None:
            return
        state = self._thread(name)
        if not state.first:
            state.first = commit.seq
            self._changes[Table.ORDER][number(commit.seq)] = name.encode()
        for event in commit.events:
            if isinstance(event, TurnSuperseded):
                ranges.add(state.superseded, event.n, event.n)
                if commit.cause.kind == "withdrawal":
                    ranges.add(state.withdrawn, event.n, event.n)
            elif isinstance(event, TurnRestored):
                ranges.remove(state.superseded, event.n, event.n)
                ranges.remove(state.withdrawn, event.n, event.n)
                if event.again:
                    state.restored[event.n] = commit.seq
        count = 0 if recorded is None else recorded.last - recorded.first + 1
        lost = 0 if recorded is None else max(0, recorded.first - 1 - state.turns)
        said = SaidLine(begin, lost + count, lost)
        self._changes[Table.SAID][named(name) + number(state.turns + 1) + number(commit.seq)] = pack(said)
        state.said = commit.seq
        state.turns += lost + count
        self._turns += count
        if commit.seq <= self._cleared:
            state.cleared = state.turns

    def _thread(self, name: str) -> ThreadState:
        state = self._threads.get(name)
        if state is None:
            kept = self._kv.get(Table.THREADS, named(name))
            state = self._threads[name] = ThreadState() if kept is None else _thread_state.decode(kept)
        return state


def _must_continue(line: bytes, head: Head, stream: str) -> None:
    """An index that stands on another line than the one before this is stale; nothing is wrong with the log."""
    try:
        prev = prev_of(line)
    except (msgspec.MsgspecError, RecursionError):
        return
    if prev != head.hash:
        raise StaleError(f"{stream} is another one after commit {head.seq}")


_CALLED = {
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
    Table.REFUSED: "words of what was refused or removed",
    Table.JUMPS: "clears, replacing imports and rollbacks",
    Table.USAGE: "tokens by day and model",
}


def differences(store: EventStore, scope: Scope, kv: ChecksummedKV, tip: IndexPosition) -> list[str]:
    """Return what of an index differs from the logs, up to where it stands; of another version nothing is compared."""
    if tip.version != IndexPosition().version:
        return []
    if tip.scope != scope:
        return [f"it is that of {tip.scope}"]
    expected = ChecksummedKV.new(Table)
    streams = {kind: scope.stream(kind) for kind in (LEDGER, TRANSCRIPT)}
    intake = IndexBuilder(store, streams, expected, IndexPosition(), NOTHING, by_parts=True)
    should = intake.run(scope, until=tip)
    for stand, is_at in ((should.ledger, tip.ledger), (should.transcript, tip.transcript)):
        if stand.head != is_at.head:
            return [f"it stands on a commit {is_at.head.seq} that is not in the log"]
    intake.finish(should)
    names = [space for space in Table if space is not Table.TIP]
    found = [f"{_CALLED[space]} differ from the log" for space in names if not _same(kv, expected, space)]
    here = msgspec.structs.replace(
        should,
        ledger=msgspec.structs.replace(should.ledger, edition=tip.ledger.edition),
        transcript=msgspec.structs.replace(should.transcript, edition=tip.transcript.edition),
    )
    return found if here == tip else [*found, "where it says that it stands differs from the log"]


def _same(a: ChecksummedKV, b: ChecksummedKV, space: Table) -> bool:
    ours, theirs = a.ascending(space), b.ascending(space)
    return all(entry == next(theirs, None) for entry in ours) and next(theirs, None) is None
