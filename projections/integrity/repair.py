"""Repair: mends the files of a scope; damaged files are moved aside, never deleted.

Each line names its predecessor by hash, so the lines of a file form a tree. Its longest branch from the first commit is
the stream. Of two copies of a commit the one with more erased content is kept, so that nothing erased is restored.

The intact chain is written to a new file and synced. Then the damaged file gets another name, and the new file takes
its place. A repair that is killed leaves the memory unchanged or mended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, Inspection, decode, inspect
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.disk.files import free_name, sync_folder, translated, write_new
from backstory.ledger.engines.jsonl.heads import move_torn_tail
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore, Record
from backstory.projections.document.document import DocumentFile, read_document, render
from backstory.projections.history.moment import memories_when, replay
from backstory.projections.integrity.remedies import Check, counted, failed_check
from backstory.projections.integrity.verify import INDEX, verify


class LineSpan(msgspec.Struct, frozen=True, gc=False):
    """Adjacent lines: their half-open byte range, the last line break included."""

    begin: int
    end: int


class Salvage(msgspec.Struct, frozen=True):
    """The intact chain of a stream.

    Attributes:
        spans: the byte ranges of its lines, in the order of the chain.
        first: its first commit.
        commits: the number of its commits.
        lost: the intact commits that are not part of it.
        unread: the lines that are not commits.
        whole: whether the file holds this chain, in this order, and nothing else.
    """

    spans: tuple[LineSpan, ...]
    first: Commit | None
    commits: int
    lost: int
    unread: int
    whole: bool


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An intact line; `in_order` if it continues the chain of such lines that the file begins with."""

    seq: int
    prev: str
    hash: str
    span: LineSpan
    erased: int
    in_order: bool


def salvage(store: EventStore, stream: str) -> Salvage:
    """Find the longest intact chain in a stream; takes about 430 bytes of memory per line.

    Raises:
        StoreError: The stream cannot be read, or has a newer format.
    """
    lines: list[_Line] = []
    unread = 0
    last = EMPTY
    for record in store.read(stream):
        found = _inspected(record)
        if found is None:
            unread += 1
            continue
        in_order = (found.seq, found.prev) == (last.seq + 1, last.hash)
        # One text for all lines that are in order, not two.
        prev = last.hash if in_order else found.prev
        if in_order:
            last = Head(found.seq, found.hash)
        span = LineSpan(record.byte, record.byte + len(record.line) + 1)
        lines.append(_Line(found.seq, prev, found.hash, span, len(found.erased), in_order))
    chain = _longest(lines)
    spans = _joined(line.span for line in chain)
    lost = len({line.hash for line in lines}) - len(chain)
    kept = (record.line for record in store.read(stream) if spans and record.byte == spans[0].begin)
    whole = not unread and all(line.in_order for line in lines)
    return Salvage(spans, next(map(decode, kept), None), len(chain), lost, unread, whole)


def _inspected(record: Record) -> Inspection | None:
    """Inspect a line; None where its hash is wrong or it cannot be decoded."""
    try:
        found = inspect(record.line)
        decode(record.line)
    except UNREADABLE:
        return None
    return found if found.intact else None


def _longest(lines: Iterable[_Line]) -> list[_Line]:
    """Return the longest chain; of equal ones that in the order of the file, of copies the one with more erased."""
    joined: dict[str, _Line] = {}
    best: _Line | None = None
    for line in sorted(lines, key=lambda line: (line.seq, not line.in_order)):
        before, known = joined.get(line.prev), joined.get(line.hash)
        follows = line.prev == EMPTY.hash if line.seq == 1 else before is not None and before.seq == line.seq - 1
        if follows and (known is None or line.erased > known.erased):
            joined[line.hash] = line
            if best is None or line.seq > best.seq or best is known:
                best = line
    chain = []
    while best is not None:
        chain.append(best)
        best = joined.get(best.prev)
    return chain[::-1]


def _joined(spans: Iterable[LineSpan]) -> tuple[LineSpan, ...]:
    """Join adjacent spans."""
    joined: list[LineSpan] = []
    for span in spans:
        if joined and joined[-1].end == span.begin:
            joined[-1] = LineSpan(joined[-1].begin, span.end)
        else:
            joined.append(span)
    return tuple(joined)


_CHUNK = 1 << 20


class DerivedIndex(Protocol):
    """The operations of an index that repair needs."""

    def differs(self) -> Sequence[str]:
        """Return the differences from the logs."""

    def purge(self) -> None:
        """Delete the index file."""

    def follow(self) -> object:
        """Bring it up to date with the logs, from an empty file if necessary."""


def repair(
    store: JsonlStore, scope: Scope, *, document: Path, index: DerivedIndex | None = None, dry_run: bool = False
) -> tuple[Check, ...]:
    """Mend what can be mended of a scope, under the locks of both streams.

    Args:
        store: holds the streams.
        scope: the scope to mend.
        document: the path of memory.json.
        index: the scope's index.
        dry_run: report what would be done, and write nothing.

    Returns:
        A check for each stream, for memory.json and for the index, ok where nothing is wrong any more; then one for
        each problem that remains.

    Raises:
        StoreError: A file cannot be read or written, or has a newer format; files mended before stay mended.
        LockTimeoutError: Another process keeps a stream locked.
    """
    streams = [scope.stream(LEDGER), scope.stream(TRANSCRIPT)]
    with ExitStack() as locks:
        for stream in streams:
            if not dry_run and store.path(stream).exists():
                locks.enter_context(store.locked(stream))
        checks = [_Stream(store, scope, stream, dry_run=dry_run).mend() for stream in streams]
        sound = all(check.ok for check in checks)
        if sound:
            checks.append(_mend_document(store, scope, document, dry_run=dry_run))
            if index is not None:
                checks.append(_mend_index(index, _name_beside(document, store, INDEX), dry_run=dry_run))
    found = verify(store, scope).problems if sound or not dry_run else ()
    return (*checks, *(failed_check(problem) for problem in found))


class _Stream:
    """The repair of one stream's file."""

    def __init__(self, store: JsonlStore, scope: Scope, stream: str, *, dry_run: bool) -> None:
        self._store = store
        self._scope = scope
        self._stream = stream
        self._path = store.path(stream)
        self._dry_run = dry_run

    def mend(self) -> Check:
        """Mend the file and report it."""
        if not self._path.exists():
            return Check(self._stream, True, "does not exist: nothing to mend")
        found = salvage(self._store, self._stream)
        foreign = self._foreign(found.first)
        if foreign is not None:
            return Check(self._stream, False, f"{foreign}: repair cannot mend that; put back the right file")
        if not found.whole:
            return self._rewrite(found)
        torn = self._store.torn_tail(self._stream)
        if torn is not None:
            return self._cut(torn.byte, len(torn.line))
        return Check(self._stream, True, f"{counted(found.commits, 'commit', 'commits')}, nothing to mend")

    def _foreign(self, first: Commit | None) -> str | None:
        if first is None or first.cause.kind == "erased":
            return None
        owner = Scope(first.cause.user, first.cause.agent)
        if owner != self._scope:
            return f"the log belongs to {owner}, not to {self._scope}"
        is_a = TRANSCRIPT if first.cause.kind == "record" else LEDGER
        return None if self._stream == self._scope.stream(is_a) else f"the log is a {is_a}"

    def _rewrite(self, found: Salvage) -> Check:
        named = self._path.with_suffix(".damaged")
        # A repair that was killed may have given the file its other name already.
        given = (name for name in named.parent.glob(f"{named.name}-*") if name.samefile(self._path))
        aside = next(given, None) or free_name(named)
        lost = [counted(found.lost, "whole commit", "whole commits")] if found.lost else []
        lost += [counted(found.unread, "line that is no commit", "lines that are no commits")] if found.unread else []
        kept = f"{counted(found.commits, 'commit', 'commits')} in an intact chain"
        dropped = f"no longer in force: {' and '.join(lost)}" if lost else "nothing is lost"
        if self._dry_run:
            plan = f"{kept} would be kept, {dropped}; the present file would be moved to {aside.name}"
            return Check(self._stream, False, f"{plan}; run `repair` without --dry-run")
        with translated(self._path, "mend"):
            # One that a killed repair has left is overwritten.
            fresh = self._path.with_name(f".{self._path.stem}.mending")
            fresh.unlink(missing_ok=True)
            with self._path.open("rb") as damaged:
                write_new(fresh, _pieces(damaged.fileno(), found))
            if not aside.exists():
                _link(self._path, aside)
                sync_folder(aside.parent)
            fresh.replace(self._path)
            sync_folder(aside.parent)
        return Check(self._stream, True, f"{kept} kept, {dropped}; the old file is now {aside.name}")

    def _cut(self, end: int, size: int) -> Check:
        """Move a line cut short by a crash aside, as the next write would."""
        if self._dry_run:
            aside = free_name(self._path.with_suffix(".torn"))
            plan = f"{size} bytes cut short by a crash would be moved to {aside.name}"
            return Check(self._stream, False, f"{plan}; run `repair` without --dry-run")
        with translated(self._path, "mend"):
            descriptor = os.open(self._path, os.O_RDWR)
            try:
                aside = move_torn_tail(self._path, descriptor, end, end + size)
            finally:
                os.close(descriptor)
        return Check(self._stream, True, f"{size} bytes cut short by a crash are now in {aside.name}")


def _pieces(descriptor: int, found: Salvage) -> Iterator[bytes]:
    for span in found.spans:
        for begin in range(span.begin, span.end, _CHUNK):
            yield os.pread(descriptor, min(_CHUNK, span.end - begin), begin)


def _link(path: Path, aside: Path) -> None:
    """Give a file a second name; copy it where the file system has no hard links."""
    with suppress(OSError):
        aside.hardlink_to(path)
        return
    copy = aside.with_name(f".{path.stem}.copying")
    copy.unlink(missing_ok=True)
    with path.open("rb") as file:
        write_new(copy, iter(lambda: file.read(_CHUNK), b""))
    copy.rename(aside)


def _mend_document(store: JsonlStore, scope: Scope, path: Path, *, dry_run: bool) -> Check:
    name = _name_beside(path, store, path.name)
    try:
        memory = replay(store, scope)
        right = render(memory)
        with translated(path, "read"):
            data = read_document(path)
        if data is None or data == right:
            return Check(
                name, True, "nothing to mend" if data is not None else "does not exist; the next commit creates it"
            )
        if memory.seq == 0:
            # A document of no commit would look edited by hand to the first one.
            return Check(name, True, "the ledger is empty; the first commit moves the file aside and writes it anew")
        if dry_run:
            plan = "it differs from the ledger and would be rewritten; a file edited by hand would first be moved aside"
            return Check(name, False, f"{plan}; run `repair` without --dry-run")
        moved = DocumentFile(path, lambda moment: memories_when(store, scope, moment)).write(right)
    except BackstoryError as error:
        return Check(name, False, str(error))
    aside = f"; the edited file is now {moved.name}, and `import` adopts it" if moved is not None else ""
    return Check(name, True, f"rewritten from the ledger{aside}")


def _mend_index(index: DerivedIndex, name: str, *, dry_run: bool) -> Check:
    found = index.differs()
    if not found:
        return Check(name, True, "nothing to mend")
    if dry_run:
        return Check(name, False, f"{found[0]}; it would be rebuilt: run `repair` without --dry-run")
    index.purge()
    index.follow()
    return Check(name, True, "rebuilt from the logs")


def _name_beside(document: Path, store: JsonlStore, name: str) -> str:
    path = document.with_name(name)
    return path.relative_to(store.home).as_posix() if path.is_relative_to(store.home) else str(path)
