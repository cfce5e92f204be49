"""Copy of all streams from one engine to another, byte for byte, while the source is in use.

1. The target is sealed as arriving, so that an incomplete copy is not opened as a home.
2. Every stream is copied. The chain of its lines is checked, and what the target took is read back. This is repeated
   for what came meanwhile, so that little is left for step 4.
3. The source is sealed as moved. From here on it takes no changes, so there is never a second home to write to.
4. What has come since is copied: in streams that have another head or edition.
5. Secrets and the marks of removed logs are copied, the heads of both are compared, and the target's seal is taken off.

Each step can be repeated. So a copy that was interrupted goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from backstory.ledger.core.commit import EMPTY, Head, unseal
from backstory.ledger.core.errors import ConflictError, NotFoundError, StoreError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.engines.port import EventStore, Record, Seal
from backstory.ledger.engines.promises import first_hash

__all__ = ["CopiedStreams", "CopyProgress", "cancel_copy", "copy_streams"]

CopyProgress = Callable[[int, int], None]
"""Gets the number of commits that are copied, and of all."""

_BATCH_BYTES = 1 << 20
_BATCH_LINES = 500
_ROUNDS = 4
_FEW_COMMITS = 1000
"""The most that are copied while the source is sealed; with more, another round is made before, four in all."""

_LEASE = "copy"
_ROOTS = (LEDGER, TRANSCRIPT, "agents", "users")
"""What the names of a home's streams begin with. Files that a removal has left behind have other names."""


class CopiedStreams(msgspec.Struct, frozen=True):
    """What a finished copy holds.

    Attributes:
        streams: The number of streams.
        commits: The number of their lines.
        new: How many of these the target did not have before.
    """

    streams: int
    commits: int
    new: int


def copy_streams(
    source: EventStore, target: EventStore, progress: CopyProgress, beside: Callable[[], None] = lambda: None
) -> CopiedStreams:
    """Move all streams to another engine. Afterwards the source takes no changes, and the target does.

    Nothing is lost of what other processes append meanwhile: it is copied, or it is refused at the source.

    Args:
        source: The engine to copy from.
        target: An engine without streams, or with what an earlier copy of this source has left.
        progress: Gets the progress.
        beside: Copies what belongs to the streams and is not in the engines; called while neither takes changes.

    Returns:
        What the target holds.

    Raises:
        ConflictError: The target has streams of its own, or another process is copying to it.
        NotFoundError: The source has no streams.
        SealedError: The source has moved elsewhere, or is an incomplete copy itself.
        CorruptLogError: A stream of the source is damaged.
        StoreError: One of the engines failed, or the target returns other lines than it was given.
    """
    _check_source(source, target)
    with target.lease(LEDGER, _LEASE) as mine:
        if not mine:
            raise ConflictError(f"another process is copying to {target} just now: wait for it")
        copier = _Copier(source, target, progress)
        if not _is_done(source, target):
            _seal_target(source, target)
            for _ in range(_ROUNDS):
                if copier.copy_all() <= _FEW_COMMITS:
                    break
            source.set_seal(Seal("moved", str(target)))
            copier.copy_all(settled=True)
            copier.copy_secrets()
            copier.compare_heads()
            beside()
            target.set_seal(None)
        return copier.counted()


def cancel_copy(source: EventStore, target: EventStore) -> None:
    """Give an incomplete copy up: the source takes changes again, and the target stays sealed.

    Raises:
        ConflictError: The source does not move there, or the copy is complete.
    """
    if source.seal() != Seal("moved", str(target)):
        raise ConflictError(f"{source} takes changes, or has moved elsewhere: there is nothing to cancel")
    with target.lease(LEDGER, _LEASE) as mine:
        if not mine:
            raise ConflictError(f"another process is copying to {target} just now: end it first")
        if target.seal() != Seal("arriving", str(source)):
            raise ConflictError(f"the copy to {target} is complete and may be in use: copy it back instead")
        source.set_seal(None)


def _check_source(source: EventStore, target: EventStore) -> None:
    if next(_streams(source), None) is None:
        raise NotFoundError(f"{source} holds no memories: name the home to copy from")
    seal = source.seal()
    if seal not in (None, Seal("moved", str(target))):
        raise seal.refusal(str(source))


def _seal_target(source: EventStore, target: EventStore) -> None:
    before = target.seal()
    if before is not None and before.other != str(source):
        raise ConflictError(f"{target} belongs to a copy of {before.other}, not of {source}: name another one")
    target.set_seal(Seal("arriving", str(source)))
    # Only now: another process may have begun to write there.
    if before is None and (stream := next(target.streams(), None)) is not None:
        target.set_seal(None)
        raise ConflictError(f"{target} has memories of its own, such as {stream}: name an empty one")


def _is_done(source: EventStore, target: EventStore) -> bool:
    """Whether an earlier copy was completed; a target that was deleted since is copied to again."""
    return source.seal() is not None and target.seal() is None and next(_streams(target), None) is not None


def _streams(store: EventStore) -> Iterator[str]:
    return (stream for stream in store.streams() if stream.partition("/")[0] in _ROOTS)


class _Copier:
    """The work of one copy; it knows which streams it has compared with the target."""

    def __init__(self, source: EventStore, target: EventStore, progress: CopyProgress) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._compared: dict[str, tuple[str, Head]] = {}
        """The edition and the head of the source, by stream, up to which the target has the same lines."""
        self._done = 0
        self._total = 0
        self._new = 0

    def copy_all(self, *, settled: bool = False) -> int:
        """Copy every stream up to its durable head; with `settled` wait until all of it is durable.

        Returns:
            How many lines the target got.
        """
        before = self._new
        head_of = self._source.settled_head if settled else self._source.durable_head
        heads = {stream: head_of(stream) for stream in _streams(self._source)}
        self._drop_removed(heads)
        self._done, self._total = 0, sum(head.seq for head in heads.values())
        self._progress(0, self._total)
        for stream, head in heads.items():
            done = self._done
            self._copy(stream, head)
            self._count(done + head.seq - self._done)
        return self._new - before

    def _count(self, lines: int) -> None:
        self._done += lines
        self._progress(self._done, self._total)

    def _drop_removed(self, heads: dict[str, Head]) -> None:
        """Remove the users whose logs were removed from the source after they were copied."""
        for stream in list(_streams(self._target)):
            if stream in heads and self._compared.get(stream) == (self._source.state(stream).edition, heads[stream]):
                continue
            ours, theirs = first_hash(self._source, stream), first_hash(self._target, stream)
            # It is empty where its user was removed a moment ago, with another stream.
            if theirs in ("", ours):
                continue
            if not self._source.is_removed(theirs):
                raise StoreError(f"{self._target} has another log of {stream} than {self._source}: name an empty one")
            user = "/".join(stream.split("/")[:2])
            self._target.remove(user)
            self._compared = {name: at for name, at in self._compared.items() if not name.startswith(f"{user}/")}

    def _copy(self, stream: str, head: Head) -> None:
        # Asked for before any line is read: an erasure from here on gives another edition.
        edition = self._source.state(stream).edition
        known, there = self._compared.get(stream, ("", EMPTY))
        if (known, there) == (edition, head):
            return
        if known != edition:
            there = self._compare(stream, self._target.head(stream).seq)
        batch: list[Record] = []
        size = 0
        for record in islice(self._source.read(stream, there.seq), head.seq - there.seq):
            batch.append(record)
            size += len(record.line)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_LINES:
                there = self._append(stream, batch, there)
                batch, size = [], 0
        if batch:
            there = self._append(stream, batch, there)
        if there == head:
            self._compared[stream] = (edition, head)

    def _compare(self, stream: str, count: int) -> Head:
        """Compare the lines that the target has, and erase in it what was erased in the source meanwhile."""
        head = EMPTY
        erased: dict[int, bytes] = {}
        both = zip(islice(self._source.read(stream), count), self._target.read(stream), strict=False)
        for ours, theirs in both:
            head = unseal(ours.line, head, stream=stream, byte=ours.byte).head
            if ours.line != theirs.line:
                erased[head.seq] = ours.line
            self._count(1)
        if head.seq != count:
            raise StoreError(f"{self._target} has {count} commits of {stream}, and {self._source} has {head.seq}")
        if erased:
            with self._target.locked(stream):
                self._target.redact(stream, erased)
        return head

    def _append(self, stream: str, batch: Sequence[Record], after: Head) -> Head:
        """Append lines to the target, and read them back."""
        head = after
        for record in batch:
            head = unseal(record.line, head, stream=stream, byte=record.byte).head
        lines = [record.line for record in batch]
        self._target.append(stream, lines, after.seq)
        if [record.line for record in islice(self._target.read(stream, after.seq), len(lines))] != lines:
            raise StoreError(f"{self._target} returns other lines of {stream} after {after.seq} than it was given")
        self._new += len(lines)
        self._count(len(lines))
        return head

    def copy_secrets(self) -> None:
        """Copy the secrets of the streams, and the marks of removed logs."""
        for stream in _streams(self._source):
            key = self._source.key(stream)
            if key is not None:
                self._target.set_key(stream, key)
            elif self._target.key(stream) is not None:
                self._target.set_key(stream, None)
        for log in self._source.removed_logs():
            self._target.restore_removed(log)

    def compare_heads(self) -> None:
        """Compare the heads of all streams.

        Raises:
            StoreError: A stream has another head.
        """
        for stream in _streams(self._source):
            ours, theirs = self._source.head(stream), self._target.head(stream)
            if ours != theirs:
                raise StoreError(
                    f"{stream} ends at {theirs.seq} in {self._target}, and at {ours.seq} in {self._source}: copy again"
                )

    def counted(self) -> CopiedStreams:
        """Count what was copied."""
        heads = [self._source.head(stream) for stream in _streams(self._source)]
        return CopiedStreams(len(heads), sum(head.seq for head in heads), self._new)
