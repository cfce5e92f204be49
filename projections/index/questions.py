"""Questions about a scope, each answered by an index at the heads of the logs and by the lines that it points at."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from itertools import chain, islice

import msgspec

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import CandidateRejected, Fact, FactRemoved, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.log.folded.snapshot import Place, RecordedLine, RecordedLines, SnapshotOrigin
from backstory.ledger.threads.turn_columns import Trace
from backstory.projections.derived_files import DamagedError
from backstory.projections.history.moment import Moment
from backstory.projections.history.refusals import RefusalBlock, RefusedEvent, resembling
from backstory.projections.index.builder import BORN
from backstory.projections.index.index_file import IndexSnapshot
from backstory.projections.index.kv import LAST, beginning, name_in, name_of, named, number, number_in
from backstory.projections.index.periods import EndedPeriod, ended_by, ranges_of
from backstory.projections.index.schema import FOR_GOOD, REVERTS, Checkpoint, SaidLine, Table

MOST_NAMED = 100
_checkpoint = msgspec.msgpack.Decoder(Checkpoint)
_said = msgspec.msgpack.Decoder(SaidLine)
_trace = msgspec.msgpack.Decoder(Trace)
_fact = msgspec.msgpack.Decoder(Fact)
_refusals = msgspec.msgpack.Decoder(RefusalBlock)
_period = msgspec.msgpack.Decoder(EndedPeriod)


class Around(msgspec.Struct, frozen=True):
    """A commit, and the memory before and after it; without a commit both are empty."""

    before: Memory
    after: Memory
    commit: Commit | None


def origin(at: IndexSnapshot) -> SnapshotOrigin | None:
    """Return where a writer goes on from; None while named content is still to be erased."""
    tip = at.tip
    if not tip.settled:
        return None
    return SnapshotOrigin(
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


def under(at: IndexSnapshot, space: Table, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table whose keys begin so, all of them or those from a key on."""
    for key, value in at.kv.ascending(space, start or prefix):
        if not key.startswith(prefix):
            return
        yield key, value


def names(at: IndexSnapshot, space: Table, origin: SnapshotOrigin) -> list[str]:
    """Return the names of a table of threads, of those that an origin knows."""
    found = []
    for key, name in at.kv.ascending(space):
        if number_in(key) > origin.transcript.seq:
            break
        found.append(name.decode())
    return found


def learned(at: IndexSnapshot, thread: str) -> list[Place]:
    """Return the places of the commits that were learned from a thread."""
    return [Place(number_in(key), int.from_bytes(byte, "big")) for key, byte in under(at, Table.LEARNED, named(thread))]


def said_in(at: IndexSnapshot, thread: str, first: int = 1) -> Iterator[tuple[bytes, SaidLine]]:
    """The lines that recorded a thread's turns, from that of an ordinal on."""
    prefix = named(thread)
    start = prefix
    if first > 1:
        key, _ = next(at.kv.descending(Table.SAID, prefix + number(first) + LAST), (b"", b""))
        start = max(start, key)
    for key, value in under(at, Table.SAID, prefix, start):
        yield key, _said.decode(value)


def said(at: IndexSnapshot, thread: str) -> list[Place]:
    """Return the places of the lines that recorded a thread's turns."""
    return [Place(number_in(key), line.byte) for key, line in said_in(at, thread)]


def places_of(
    at: IndexSnapshot, threads: Collection[str], origin: SnapshotOrigin
) -> dict[str, tuple[list[Place], list[Place]]]:
    """Return the lines about many threads, found by reading all places there are."""
    wanted = {named(thread): thread for thread in threads}
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


def turns(at: IndexSnapshot, thread: str, within: TurnRange | None) -> Iterator[Turn]:
    """Yield the turns of a thread that were not erased, all or those of some ordinals."""
    wanted = TurnRange(1, at.thread(thread).turns) if within is None else within
    for key, said in said_in(at, thread, wanted.first):
        first = number_in(key[:-8])
        if first > wanted.last:
            return
        commit = at.line(TRANSCRIPT, number_in(key), said.byte)
        events = commit.events[len(commit.events) - (said.count - said.lost) :]
        for n, event in enumerate(events, first + said.lost):
            if isinstance(event, TurnRecorded) and wanted.first <= n <= wanted.last:
                yield event.turn


def recorded(at: IndexSnapshot, thread: str, turns: TurnRange, until: int, *, redacted: bool) -> RecordedLines:
    """Return the lines that record turns of a thread, up to a commit of the transcript."""
    lines = []
    for key, said in said_in(at, thread, turns.first):
        first, seq = number_in(key[:-8]), number_in(key)
        if first > turns.last or seq > until:
            break
        if said.count:
            lines.append(RecordedLine(Place(seq, said.byte), first, first + said.count - 1))
    traces: dict[int, Trace | None] = {}
    begin, end = min([turns.first, *(line.first for line in lines)]), max([turns.last, *(line.last for line in lines)])
    prefix = named(thread)
    for key, value in under(at, Table.REDACTED, prefix, prefix + number(begin)) if redacted else ():
        if number_in(key) > end:
            break
        traces[number_in(key)] = _trace.decode(value) if value else None
    return RecordedLines(lines, traces)


def recorded_by(at: IndexSnapshot, thread: str, seq: int) -> int:
    """Search by halves: each line is found by an ordinal that belongs to it, and the later has the higher seq."""
    low, high = 0, at.thread(thread).turns
    while low < high:
        middle = (low + high + 1) // 2
        key, said = next(said_in(at, thread, middle), (b"", SaidLine(0, 0)))
        first = number_in(key[:-8])
        if not first <= middle < first + said.count:
            raise DamagedError("the place of a turn is missing")
        if number_in(key) <= seq:
            low = first + said.count - 1
        else:
            high = first - 1
    return low


def facts_beginning(at: IndexSnapshot, prefix: str) -> list[str]:
    """The ids that begin so, the oldest first; a few more than `MOST_NAMED` are never looked at."""
    born: dict[bytes, tuple[int, str]] = {}
    for exact in (named(prefix), beginning(prefix) if prefix else named(prefix)):
        for key, value in under(at, Table.FACTS, exact):
            name = name_of(key)
            if value == BORN and name not in born:
                born[name] = (number_in(key), name_in(name)[0])
                if len(born) > MOST_NAMED:
                    break
    return [text for _, text in sorted(born.values())]


def _fold_from(at: IndexSnapshot, seq: int) -> tuple[Fold, Iterator[Commit]]:
    """A fold of the memory at the last checkpoint at or before a commit, and the commits behind that."""
    found = next(at.kv.descending(Table.CHECKPOINTS, number(seq)), None)
    if found is None:
        return Fold(Memory()), at.read(LEDGER, EMPTY, 0)
    checkpoint = _checkpoint.decode(found[1])
    head = Head(number_in(found[0]), checkpoint.hash)
    return Fold(checkpoint.memory), at.read(LEDGER, head, checkpoint.end)


def memory_at(at: IndexSnapshot, moment: Moment) -> Memory:
    """Rebuild the memory after a commit, or as it was at a time."""
    seq = _seq_of(at, moment)
    return at.memory() if seq == at.tip.ledger.head.seq else _fold_at(at, seq)[0].memory()


def ended(at: IndexSnapshot, moment: Moment | None, first: str, behind: str) -> Iterator[Fact]:
    """Yield the facts that had ended at a moment; see `ScopeIndex.ended`."""
    seq = _seq_of(at, moment)
    standing = in_force(at, seq)
    periods, returned = at.kv.cursor(Table.ENDED), at.kv.cursor(Table.RETURNED)
    for start, stop in ranges_of(first, behind):
        for key, value in periods.between(start, stop):
            if not is_within(ended := ended_by(key), standing):
                continue
            period = _period.decode(value)
            if period.end <= first or (period.begin > first and period.begin >= behind):
                continue
            fact = _fact.decode(period.fact)
            # A later commit that adds the fact brings it back, or takes back that it was ever true.
            name = named(fact.id)
            later = returned.between(name + number(ended + 1), name + number(seq + 1))
            if not any(how == FOR_GOOD or is_within(number_in(key[len(name) :]), standing) for key, how in later):
                yield fact


def in_force(at: IndexSnapshot, seq: int) -> list[range]:
    """Return the seqs of the commits up to one that were in force then, the newest first.

    A clear or a replacing import sets aside what was before it, and a rollback what was after the commit that it goes
    back to. One that was reverted by then has set nothing aside: neither it nor its revert is in force.
    """
    found: list[range] = []
    reverted: set[int] = set()
    last = seq
    for key, value in at.kv.descending(Table.JUMPS, number(seq)):
        jump, target = number_in(key), number_in(value[1:])
        if jump > last:
            continue
        found.append(range(jump + 1, last + 1))
        last = jump - 1
        if jump in reverted:
            continue
        if value.startswith(REVERTS):
            reverted.add(target)
        else:
            last = target
            # What was reverted after the commit that it goes back to was not reverted then.
            reverted.clear()
    return [*found, range(1, last + 1)]


def is_within(seq: int, standing: Iterable[range]) -> bool:
    """Whether a commit is one of those in force."""
    return any(seq in some for some in standing)


def around(at: IndexSnapshot, moment: Moment | None) -> Around:
    """Rebuild the memory before and after a commit; see `ScopeIndex.around`."""
    seq = _seq_of(at, moment)
    if seq == 0:
        return Around(Memory(), Memory(), None)
    fold, commits = _fold_at(at, seq - 1)
    before, commit = fold.memory(), next(commits, None)
    if commit is None:
        raise DamagedError(f"commit {seq} is not where it should be")
    fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return Around(before, fold.memory(), commit)


def _fold_at(at: IndexSnapshot, seq: int) -> tuple[Fold, Iterator[Commit]]:
    """A fold of the memory after a commit, and the commits behind that."""
    fold, commits = _fold_from(at, seq)
    for commit in islice(commits, seq - fold.seq):
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold, commits


def _seq_of(at: IndexSnapshot, moment: Moment | None) -> int:
    """The seq of the commit at which memory stood at a moment; None: the ledger's last."""
    if isinstance(moment, str):
        return _seq_at(at, moment)
    last = at.tip.ledger.head.seq
    if moment is not None and moment > last:
        raise NotFoundError(f"there is no commit {moment}: the ledger of {at.tip.scope} ends at {last}")
    return last if moment is None else moment


def _seq_at(at: IndexSnapshot, time: str) -> int:
    """The seq of the commit at which memory stood at a time: the one before the first later one."""
    if time >= at.tip.ledger.latest:
        return at.tip.ledger.head.seq
    # No commit before this mark is later than the time.
    found = next(at.kv.descending(Table.TIMES, named(time) + LAST), None)
    if found is None:
        raise DamagedError("a time is missing")
    start, mark = at.mark_before(number_in(found[0]))
    commits = at.read(LEDGER, Head(start - 1, mark.prev), mark.byte)
    return next(commit.seq for commit in commits if commit.at > time) - 1


def commits_from(at: IndexSnapshot, time: str) -> tuple[Fold, Iterator[Commit]]:
    """A memory before the first commit of a time or a later one, not long before, and the commits from there on."""
    found = next(at.kv.descending(Table.TIMES, named(time)), None)
    fold, commits = _fold_from(at, 0 if found is None else number_in(found[0]) - 1)
    # The first is read at once: if it is not where it should be this raises, and the file is held open for more.
    return fold, chain(list(islice(commits, 1)), commits)


def block(at: IndexSnapshot, first: int, last: int) -> list[Commit]:
    """The commits between two seqs, both included, read from the mark before them."""
    start, mark = at.mark_before(first)
    commits = list(islice(at.read(LEDGER, Head(start - 1, mark.prev), mark.byte), last - start + 1))
    if len(commits) != last - start + 1:
        raise DamagedError(f"commit {last} is not where it should be")
    return commits[first - start :]


def refused(at: IndexSnapshot, text: str, live: Container[str]) -> Iterator[tuple[float, Commit, RefusedEvent]]:
    """Yield the refused candidates and removed facts that resemble a text, each with its score and its commit."""
    blocks = [_refusals.decode(value) for _, value in at.kv.ascending(Table.REFUSED)]
    commits: dict[int, Commit] = {}
    for score, seq, index in resembling(blocks, text):
        if seq not in commits:
            commits[seq] = at.commit(seq)
        event = commits[seq].events[index]
        if isinstance(event, CandidateRejected) or (isinstance(event, FactRemoved) and event.fact.id not in live):
            yield score, commits[seq], event
