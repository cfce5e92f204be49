"""Commits of a stream: read from the store, each checked against the hash chain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, decode, inspect, unseal
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore, Record

_HASH_FIELD = len('"hash":""}') + len(EMPTY.hash)
"""The bytes at the end of each line that hold its hash."""


def read_commits(store: EventStore, stream: str, after: Head = EMPTY, *, until: Head | None = None) -> Iterator[Commit]:
    """Yield the commits after a head, each checked against the chain, up to the end or to another head.

    Raises:
        CorruptLogError: At the first line that is not what was written.
    """
    for commit, _ in read_commits_and_ends(store, stream, after, None, until):
        yield commit


def read_durable_commits(store: EventStore, stream: str) -> Iterator[Commit]:
    """Yield the commits up to the durable head; see `read_commits`."""
    return read_commits(store, stream, until=store.durable_head(stream))


def seqs_with_hash(store: EventStore, stream: str, beginning: str) -> list[int]:
    """Return the seqs of the durable commits whose hash begins so, two of them at most."""
    mark = f'"hash":"{beginning}'.encode()
    last = store.durable_head(stream).seq
    # Every line ends with its hash, so no line has to be decoded.
    records = enumerate(islice(store.read(stream, 0), last), 1)
    return list(islice((seq for seq, record in records if record.line.startswith(mark, -_HASH_FIELD)), 2))


def read_commits_and_ends(
    store: EventStore, stream: str, after: Head, byte: int | None, until: Head | None = None, *, verified: int = 0
) -> Iterator[tuple[Commit, int]]:
    """Yield the same commits, each with the byte after its line; up to `verified` they were checked just now."""
    head = after
    for record in store.read(stream, after.seq, byte=byte):
        if until is not None and head.seq >= until.seq:
            return
        read = decode_verified if head.seq < verified else unseal
        commit = read(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        yield commit, record.byte + len(record.line) + 1


def decode_verified(line: bytes, after: Head, *, stream: str, byte: int) -> Commit:
    """Decode a line that was verified just now; only its place in the chain, behind a head, is checked.

    Raises:
        CorruptLogError: The line is not a commit, or does not follow `after`.
    """
    try:
        commit = decode(line)
    except UNREADABLE:
        return unseal(line, after, stream=stream, byte=byte)
    in_place = commit.seq == after.seq + 1 and commit.prev == after.hash
    return commit if in_place else unseal(line, after, stream=stream, byte=byte)


def must_belong(stream: str, first: Commit, scope: Scope) -> None:
    """Refuse a stream whose first commit names another scope; one whose cause was erased names none.

    Raises:
        CorruptLogError: It does.
    """
    owner = Scope(first.cause.user, first.cause.agent)
    if owner != scope and first.cause.kind != "erased":
        alike = str(owner).casefold() == str(scope).casefold()
        what = (
            "this file system takes both for one folder, so spell the name as it was first"
            if alike
            else "put it back where it belongs"
        )
        raise CorruptLogError(
            f"{stream} is the log of {owner}, not of {scope}: {what}",
            kind="altered",
            stream=stream,
            line=1,
            byte=0,
        )


def must_not_shrink(stream: str, known: Head, now: Head) -> None:
    """Refuse a stream that ends before what is known of it, or ends there in another commit.

    Raises:
        CorruptLogError: It does.
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


def commit_at(record: Record | None, seq: int) -> Commit | None:
    """Decode a line that an index pointed at; None if it is another commit's, or damaged."""
    try:
        if record is None or not (found := inspect(record.line)).intact or found.seq != seq:
            return None
        return decode(record.line)
    except UNREADABLE:
        return None
