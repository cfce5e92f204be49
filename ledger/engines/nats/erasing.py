"""Erasures and removals of the NATS engine.

A message cannot change. So an erasure stores the lines that replace erased ones as stubs on a subject of their own, and
with them, all at once, a note of the messages that are to go; then it deletes these, overwriting their bytes. A reader
puts the stub in the place of the message whether that is still there or not, so the erasure is whole as soon as the
stubs are stored. The next process that finds such a note deletes what is left.

A removal stores, all at once, a mark for each stream, a last message that says it is gone, another in the place of its
secret, and a note with the streams. Then it deletes all messages of the streams up to the note. The next removal
completes one that was interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.engines.nats.holding import NatsHolds, StreamHold, name_header
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing
from backstory.ledger.engines.nats.messages import (
    GONE,
    PIN,
    STUBS_NOTE,
    Marker,
    Stub,
    Tip,
    byte_of,
    write_stubs,
)
from backstory.ledger.engines.nats.reading import StreamReading, Stubs
from backstory.ledger.engines.nats.subjects import (
    COMMITS,
    DELETIONS,
    EMPTY,
    KEYS,
    LEASES,
    REMOVALS,
    REMOVED,
    STUBS,
    Subjects,
    spell,
)
from backstory.ledger.engines.port import RemovedLog
from backstory.ledger.engines.promises import RemovalMark, in_lock_order, must_be_erasure

NO_KEY = b""
"""What stands for the secret of a stream that is being removed."""
_MOST_AT_ONCE = 1000
"""The messages in a batch, unless a server is configured otherwise."""
_ROOM = 2048
"""What the headers of a message may take."""


class Erasing:
    """Erases lines and removes streams."""

    def __init__(
        self, wire: JetStream, subjects: Subjects, reading: StreamReading, holds: NatsHolds, clock: Clock
    ) -> None:
        self._wire = wire
        self._subjects = subjects
        self._reading = reading
        self._holds = holds
        self._clock = clock

    def redact(self, stream: str, lines: Mapping[int, bytes], hold: StreamHold) -> None:
        """Replace lines of a stream whose lock is held; see `EventStore.redact`."""
        self._reading.complete(stream)
        _, stubs = self._reading.state(stream)
        fresh, going = self._replacements(stream, lines, stubs)
        if not fresh:
            return
        subject = self._subjects.of(STUBS, stream)
        batch = [
            # The first one says what these stubs were made from: another process's erasure is not undone.
            Outgoing(subject, data, STUBS_NOTE, None if number else stubs.at, name=name_header(stream))
            for number, data in enumerate(self._packed(fresh))
        ]
        if len(batch) + 2 > _MOST_AT_ONCE:
            raise StoreError(f"{stream}: {len(fresh)} lines are too many to erase at once: erase fewer")
        with hold.publishing:
            tip = hold.tip
            if tip is None:
                raise StoreError(f"{stream}: its lock is not held: lock it, then erase")
            note = Outgoing(self._subjects.of(DELETIONS, stream), msgspec.json.encode(sorted(going)), "deletions")
            pinned = tip.head.seq in lines
            if pinned:
                # Where the last commit goes, this stands for it, so that its place is not taken by another one.
                pin = Marker(PIN, tip.head.seq, tip.head.hash, tip.end, tip.origin, lock=tip.lock)
                batch.insert(0, self._holds.marker(stream, pin, tip.at))
            else:
                # The pin is refused where the lock was lost; without one, the note is.
                note = msgspec.structs.replace(note, expected=tip.at, expected_on=self._subjects.of(COMMITS, stream))
            batch.append(note)
            last = self._wire.publish(batch)
            if last is None:
                # An earlier attempt of this request may have arrived.
                hold.tip, now = self._reading.state(stream)
                if any(now.by_seq.get(seq) != stub for seq, stub in fresh.items()):
                    raise StoreError(f"{stream}: its lock was lost while it was erased from: try again")
            elif pinned:
                at = last - len(batch) + 1
                hold.tip = Tip(at, tip.head, tip.end, tip.origin, tip.lock)
        self._reading.complete(stream)

    def _replacements(self, stream: str, lines: Mapping[int, bytes], stubs: Stubs) -> tuple[dict[int, Stub], set[int]]:
        """Return the stubs to store, and the sequences of the messages that they replace."""
        fresh: dict[int, Stub] = {}
        going: set[int] = set()
        rewritten: set[int] = set()
        messages = self._reading.messages(stream, lines.keys() - stubs.by_seq.keys())
        for seq, line in sorted(lines.items()):
            old = stubs.by_seq.get(seq)
            if old is not None:
                must_be_erasure(stream, seq, old.line, line)
                fresh[seq] = msgspec.structs.replace(old, line=line)
                rewritten |= {at for at, seqs in stubs.messages.items() if seq in seqs}
                continue
            message = messages.get(seq)
            if message is None:
                raise StoreError(f"{stream}: there is no commit {seq} to erase from; nothing was changed")
            must_be_erasure(stream, seq, message.data, line)
            fresh[seq] = Stub(seq, byte_of(message), len(message.data), message.seq, line)
            going.add(message.seq)
        for at in rewritten:
            for seq in stubs.messages[at]:
                fresh.setdefault(seq, stubs.by_seq[seq])
        return fresh, going | rewritten

    def _packed(self, stubs: Mapping[int, Stub]) -> Iterator[bytes]:
        """Spell stubs as few payloads, none larger than a message may be."""
        most, size = self._wire.max_payload() - _ROOM, 0
        pack: list[Stub] = []
        for stub in stubs.values():
            room = len(stub.line) + 80
            if pack and size + room > most:
                yield write_stubs(pack)
                pack, size = [], 0
            pack.append(stub)
            size += room
        if pack:
            yield write_stubs(pack)

    # Removal.

    def remove(self, folder: str, streams: Sequence[str]) -> bool:
        """Remove the streams below a folder; see `EventStore.remove`."""
        removed = False
        for shard in sorted({self._subjects.shard(f"{folder}/"), *map(self._subjects.shard, streams)}):
            mine = sorted((stream for stream in streams if self._subjects.shard(stream) == shard), key=in_lock_order)
            if mine:
                with ExitStack() as held:
                    holds = {stream: held.enter_context(self._holds.locked(stream)) for stream in mine}
                    with ExitStack() as still:
                        for hold in holds.values():
                            still.enter_context(hold.publishing)
                        self._mark(folder, shard, holds)
            removed = self._sweep(shard) or removed or bool(mine)
        return removed

    def _mark(self, folder: str, shard: int, holds: Mapping[str, StreamHold]) -> None:
        """Say of all streams at once that they are gone."""
        keyed = self._keyed(holds)
        batch: list[Outgoing] = []
        for stream, hold in holds.items():
            tip = hold.tip
            if tip is None:
                raise StoreError(f"{stream}: its lock was lost while it was removed: try again")
            batch.append(self._holds.marker(stream, Marker(GONE, 0, "", 0, 0), tip.at))
            first = next(iter(self._reading.read(stream, 0)), None)
            if first is not None:
                mark = RemovalMark(1, spell_moment(self._clock.now()), stream.rpartition("/")[2], tip.head)
                subject = self._subjects.within(REMOVED, shard, head_of(first.line).hash)
                batch.append(Outgoing(subject, msgspec.json.encode(mark), "removed"))
            if stream in keyed:
                batch.append(Outgoing(self._subjects.of(KEYS, stream), NO_KEY, "key", name=name_header(stream)))
        # The last one: all up to it is what goes, and what comes later is another stream's of the same name.
        batch.append(Outgoing(self._removal(shard, folder), msgspec.json.encode(sorted(holds)), "removal"))
        if len(batch) > _MOST_AT_ONCE:
            raise StoreError(f"{folder} holds {len(holds)} streams, too many to remove at once: remove fewer")
        if self._wire.publish(batch) is None:
            raise StoreError(f"a stream below {folder} was written to while it was removed: try again")
        for hold in holds.values():
            hold.tip = None

    def going(self, name: str, subject: str) -> list[str]:
        """Return the streams that a note says are being removed; none if they are gone by now."""
        note = self._wire.last(name, subject)
        return [] if note is None else msgspec.json.decode(note.data, type=list[str])

    def _keyed(self, streams: Collection[str]) -> set[str]:
        """Return the streams that have a secret."""
        named = self._subjects
        found = self._wire.lasts([(named.jetstream_of(stream), named.of(KEYS, stream)) for stream in streams])
        return {stream for stream, key in zip(streams, found, strict=True) if key is not None and key.data}

    def _removal(self, shard: int, folder: str) -> str:
        return self._subjects.within(REMOVALS, shard, spell(folder))

    def _sweep(self, shard: int) -> bool:
        """Delete the messages of all streams in a shard that are said to be gone."""
        name = self._subjects.jetstream(shard)
        swept = False
        for subject in self._wire.subjects(name, self._subjects.removals(shard)):
            while (note := self._wire.last(name, subject)) is not None:
                streams = msgspec.json.decode(note.data, type=list[str])
                for stream in streams:
                    for kind in (STUBS, DELETIONS, KEYS, EMPTY, COMMITS):
                        self._delete_all(name, self._subjects.of(kind, stream), note.seq)
                    pattern = self._subjects.within(LEASES, shard, f"{spell(stream)}.>")
                    for lease in self._wire.subjects(name, pattern):
                        self._delete_all(name, lease, note.seq)
                self._wire.delete(name, [note.seq])
                swept = True
        return swept

    def _delete_all(self, name: str, subject: str, last: int) -> None:
        """Delete all messages on a subject, up to a sequence."""
        sequences = [message.seq for message in self._reading.every(name, subject, 1, last)]
        # The last one says that the stream is gone, so it goes last.
        self._wire.delete(name, sequences[:-1])
        self._wire.delete(name, sequences[-1:])

    def is_removed(self, first: str) -> bool:
        """See `EventStore.is_removed`."""
        return self._marked_in(first) is not None

    def _marked_in(self, first: str) -> int | None:
        """Return the shard that has the mark of a removed stream."""
        named = self._subjects
        asked = [(named.jetstream(shard), named.within(REMOVED, shard, first)) for shard in named.shards]
        return next((shard for shard, mark in enumerate(self._wire.lasts(asked)) if mark is not None), None)

    def removed_logs(self) -> Iterator[RemovedLog]:
        """See `EventStore.removed_logs`."""
        found = []
        for shard in self._subjects.shards:
            name = self._subjects.jetstream(shard)
            for subject in self._wire.subjects(name, self._subjects.within(REMOVED, shard, ">")):
                message = self._wire.last(name, subject)
                if message is not None:
                    mark = msgspec.json.decode(message.data, type=RemovalMark)
                    found.append(RemovedLog(self._subjects.rest(subject), mark.at, mark.kind, mark.head))
        yield from sorted(found, key=lambda log: log.first)

    def restore_removed(self, log: RemovedLog) -> None:
        """See `EventStore.restore_removed`."""
        shard = self._marked_in(log.first) or 0
        mark = msgspec.json.encode(RemovalMark(1, log.at, log.kind, log.head))
        self._wire.publish([Outgoing(self._subjects.within(REMOVED, shard, log.first), mark, "removed", only=True)])
