"""Store of streams in PostgreSQL; `docs/how-to/postgres.md` says how to set it up.

What is read is durable: a server shows a transaction to others once it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import LiteralString

from psycopg.abc import Params
from psycopg.rows import TupleRow

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.forks import Renews, register
from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.port import Capabilities, Record, RemovedLog, Seal, StreamLook, StreamState
from backstory.ledger.engines.postgres.address import PostgresAddress
from backstory.ledger.engines.postgres.appending import Appends
from backstory.ledger.engines.postgres.awake import KeptAwake
from backstory.ledger.engines.postgres.changes import changed_since, is_from_another_server
from backstory.ledger.engines.postgres.connections import Connection, Connections
from backstory.ledger.engines.postgres.erasing import Erasures
from backstory.ledger.engines.postgres.holds import Holds
from backstory.ledger.engines.postgres.leases import Leases
from backstory.ledger.engines.postgres.migrating import must_be_migrated
from backstory.ledger.engines.postgres.sealing import DatabaseSeal
from backstory.ledger.engines.promises import followed

__all__ = ["PostgresStore"]

_log = logging.getLogger(__name__)

_KEY_BYTES = 32
_NOTHING = StreamLook(EMPTY, EMPTY, StreamState("", 0))
_FOLLOW_POLL_SECONDS = 0.1
_FIRST_LINES = 4
"""Lines of the first page: most readers want the newest line or two, or only the first one."""

_PAGE_LINES = 1000
_PAGE_BYTES = 1 << 20
_NAMES = 10_000
_OF_USERS = "users"

_FIRST_PAGE = """
SELECT c.seq, c.line, c.byte, s.id, s.seq
FROM backstory.streams s
JOIN backstory.commits c ON c.stream = s.id AND c.seq > %(after)s AND c.seq <= LEAST(s.seq, %(after)s + %(lines)s)
WHERE s.name = %(name)s ORDER BY c.seq
"""
_PAGE = """
SELECT seq, line, byte FROM backstory.commits
WHERE stream = %(stream)s AND seq > %(after)s AND seq <= %(upto)s AND byte < %(size)s + (
    SELECT byte FROM backstory.commits WHERE stream = %(stream)s AND seq = %(after)s + 1
)
ORDER BY seq LIMIT %(lines)s
"""


class PostgresStore:
    """Keeps streams in a database; safe for threads, forks and any number of processes and machines.

    `url` is as `postgresql://user:password@host:port/database`. `lock_timeout` is how many seconds to wait for another
    holder's lock, and for a server that does not answer.

    Raises:
        ConfigError: The address is no valid one.
        StoreError: The server cannot be reached, or the database was not migrated.
    """

    def __init__(self, url: str, *, lock_timeout: float = 10.0, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._address = PostgresAddress(url)
        self._connections = Connections(self._address, lock_timeout, self._clock)
        self._awake = KeptAwake()
        self._holds = Holds(self._connections, self._awake, self._clock)
        self._leases = Leases(self._connections, self._awake)
        self._seal = DatabaseSeal(self._connections)
        self._appends = Appends(self._connections, self._seal, self._clock)
        self._erasures = Erasures(self._connections, self._seal, self._clock)
        register(self)
        self._connections.run("open the store", self._check)

    def parts(self) -> Iterable[Renews]:
        """Return what begins anew in a forked child: all that is open is the parent's."""
        return (self._connections, self._awake, self._holds, self._leases, self._appends)

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.label!r})"

    def __str__(self) -> str:
        return self._address.label

    def _check(self, connection: Connection) -> None:
        must_be_migrated(connection, self._address.label)
        if is_from_another_server(connection):
            _log.warning(
                "%s was restored from a dump of another server, so each look for changes reads it all: run "
                "`backstory migrate` once",
                self._address.label,
            )
        (level,) = connection.execute("SELECT current_setting('default_transaction_isolation')").fetchone() or ("",)
        if level != "read committed":
            # A write that waits for the seal would not see it.
            raise StoreError(
                f"{self._address.label} has default_transaction_isolation = {level}: "
                "ALTER ROLE … SET default_transaction_isolation = 'read committed'"
            )
        settings = ("synchronous_commit", "fsync", "full_page_writes")
        stated = connection.execute("SELECT current_setting(name) FROM unnest(%s::text[]) AS name", (list(settings),))
        for setting, (value,) in zip(settings, stated, strict=True):
            if value == "off":
                _log.warning(
                    "%s has %s = off: %s", self._address.label, setting,
                    "appends are made with it on, other writes are not" if setting == "synchronous_commit"
                    else "a power cut of the server can destroy what was written; switch it on",
                )  # fmt: skip

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        """Append lines in one transaction; see `EventStore.append`.

        Raises:
            UnknownOutcomeError: The connection was lost, and the server did not say within the lock timeout whether
                they are there.
        """
        self._appends.append(stream, lines, expected, self._holds.token(stream))

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        """Yield the lines after a seq; see `EventStore.read`. No connection is kept between two of them."""
        del byte  # Lines are found by their seq.
        doing = f"read {stream}"
        asked: dict[str, object] = {"name": stream, "after": after, "lines": _FIRST_LINES}
        rows = self._connections.rows(doing, _FIRST_PAGE, asked, binary=True)
        # Of a stream that is removed meanwhile, and begins anew, nothing is read.
        number, upto = rows[0][3:] if rows else (0, 0)
        asked = {"stream": number, "upto": upto, "size": _PAGE_BYTES, "lines": _PAGE_LINES}
        while rows:
            for seq, line, offset, *_ in rows:
                after = seq
                yield Record(line, offset)
            rows = self._connections.rows(doing, _PAGE, {**asked, "after": after}, binary=True) if after < upto else []

    def head(self, stream: str) -> Head:
        """Return where the stream stands; see `EventStore.head`."""
        row = self._connections.row(
            f"read {stream}", "SELECT seq, hash FROM backstory.streams WHERE name = %s", (stream,)
        )
        return EMPTY if row is None else Head(row[0], row[1])

    def looks(self, streams: Sequence[str]) -> Sequence[StreamLook]:
        """Return the head, edition and size of each stream; see `Capabilities.looks`."""
        rows = self._connections.rows(
            f"read {' and '.join(streams)}",
            "SELECT name, seq, hash, id, edition, bytes FROM backstory.streams WHERE name = ANY(%s)",
            (list(streams),),
        )
        found = {
            name: StreamLook(Head(seq, digest), Head(seq, digest), StreamState(f"{number}.{edition}", size))
            for name, seq, digest, number, edition, size in rows
        }
        return [found.get(stream, _NOTHING) for stream in streams]

    def durable_head(self, stream: str) -> Head:
        """Return the head, which is durable as soon as it is seen; see `EventStore.durable_head`."""
        return self.head(stream)

    def settled_head(self, stream: str) -> Head:
        """Return the head, which is durable as soon as it is seen; see `EventStore.settled_head`."""
        return self.head(stream)

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""
        for (name,) in self._paged("list the streams", _STREAMS, {"prefix": prefix, "end": _end_of(prefix)}):
            yield name

    def _paged(self, doing: str, query: LiteralString, asked: Mapping[str, object]) -> Iterator[TupleRow]:
        """Yield the rows of a query in the order of their first column, page by page."""
        last = ""
        while True:
            rows = self._connections.rows(doing, query, {**asked, "last": last, "most": _NAMES})
            yield from rows
            if len(rows) < _NAMES:
                return
            last = rows[-1][0]

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names right below a folder; see `EventStore.folders`.

        Each is found by one look at the index. Of users there are many with a few streams each, so these are all read,
        page by page: one statement over millions of them would say nothing for longer than a connection waits.
        """
        prefix = f"{folder}/" if folder else ""
        if folder == _OF_USERS:
            names = (name.removeprefix(prefix) for name in self.streams(prefix))
            return sorted({name.partition("/")[0] for name in names if "/" in name})
        rows = self._connections.rows(f"list {folder or 'the folders'}", _FOLDERS, {"prefix": prefix})
        return [name for (name,) in rows]

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then those that are appended; see `EventStore.follow`.

        None is passed over: an append holds the stream's row until it commits, so that the lines of a stream become
        visible in the order of their seq.
        """
        return followed(
            self,
            stream,
            after,
            wait=lambda _: self._clock.sleep(_FOLLOW_POLL_SECONDS),
            if_lost=f"commits were lost in {self._address.label}; restore the database from a copy",
        )

    def changed(self, since: str | None) -> tuple[Sequence[str], str]:
        """Return the streams that have changed since a position; see `Capabilities.changed`."""
        names, position = changed_since(self._connections, since)
        return list(self.streams()) if names is None else names, position

    def key(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream; see `EventStore.key`."""
        doing, query = f"read the key of {stream}", "SELECT key FROM backstory.keys WHERE name = %s"
        while not (found := self._connections.rows(doing, query, (stream,), binary=True)) and create:
            self._change(
                doing,
                "INSERT INTO backstory.keys (name, key) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
                (stream, os.urandom(_KEY_BYTES)),
            )
        return bytes(found[0][0]) if found else None

    def set_key(self, stream: str, key: bytes | None) -> None:
        """Set the secret of a stream, or destroy it; see `EventStore.set_key`."""
        if key is None:
            self._erasures.destroy_key(stream)
            return
        self._change(
            f"set the key of {stream}",
            "INSERT INTO backstory.keys (name, key) VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET key = excluded.key",
            (stream, key),
        )

    def _change(self, doing: str, query: LiteralString, params: Params) -> None:
        self._seal.change(doing, lambda connection: connection.execute(query, params))

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Put stubs in the place of what was erased, and rewrite the table; see `EventStore.redact`."""
        with self.locked(stream):
            self._erasures.redact(stream, lines)

    def remove(self, folder: str) -> bool:
        """Remove the streams below a folder; see `EventStore.remove`."""
        return self._erasures.remove(folder, lambda stream: self._holds.token(stream) is not None)

    def is_removed(self, first: str) -> bool:
        """See `EventStore.is_removed`."""
        row = self._connections.row(
            "read what was removed", "SELECT EXISTS (SELECT FROM backstory.removed WHERE first = %s)", (first,)
        )
        return row == (True,)

    def removed_logs(self) -> Iterator[RemovedLog]:
        """Yield the marks of all removed logs; see `EventStore.removed_logs`."""
        for first, at, kind, seq, digest in self._paged("read what was removed", _REMOVED, {}):
            yield RemovedLog(first, at, kind, Head(seq, digest))

    def restore_removed(self, log: RemovedLog) -> None:
        """Put the mark of a log that was removed from another engine; see `EventStore.restore_removed`."""
        self._change(
            "mark what was removed",
            "INSERT INTO backstory.removed (first, at, kind, seq, hash) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT (first) DO UPDATE SET at = excluded.at, kind = excluded.kind, "
            "seq = excluded.seq, hash = excluded.hash",
            (log.first, log.at, log.kind, log.head.seq, log.head.hash),
        )

    def seal(self) -> Seal | None:
        """See `EventStore.seal`."""
        return self._seal.read()

    def set_seal(self, seal: Seal | None) -> None:
        """See `EventStore.set_seal`."""
        self._seal.put(seal)

    def state(self, stream: str) -> StreamState:
        """Return the stream's number and how often something was erased from it, and its bytes."""
        return self.looks([stream])[0].state

    def torn_tail(self, stream: str) -> Record | None:
        """Return None: a transaction is there as a whole or not at all."""
        del stream
        return None

    def locked(self, stream: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the stream's lock; see `EventStore.locked`."""
        return self._holds.held(stream, wait=wait)

    def lease(self, stream: str, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one at work on something; see `EventStore.lease`."""
        return self._leases.lease(stream, name)

    def capabilities(self) -> Capabilities:
        """See `EventStore.capabilities`."""
        return Capabilities(looks=self.looks, changed=self.changed, must_erase=self._erasures.must_be_allowed)

    def close(self) -> None:
        """Close the connections; the store can be used again."""
        self._awake.end()
        self._connections.close()


_STREAMS = """
SELECT name FROM backstory.streams
WHERE name >= %(prefix)s AND name > %(last)s AND starts_with(name, %(prefix)s)
  AND (%(end)s::text IS NULL OR name < %(end)s)
ORDER BY name LIMIT %(most)s
"""

_REMOVED = """
SELECT first, at, kind, seq, hash FROM backstory.removed WHERE first > %(last)s ORDER BY first LIMIT %(most)s
"""

_FOLDERS = """
WITH RECURSIVE found AS (
    (
        SELECT name FROM backstory.streams
        WHERE name >= %(prefix)s AND starts_with(name, %(prefix)s)
          AND position('/' IN substr(name, length(%(prefix)s) + 1)) > 0
        ORDER BY name LIMIT 1
    )
    UNION ALL
    SELECT next.name FROM found CROSS JOIN LATERAL (
        -- The character after the slash: the first name that is not in the folder that was found.
        SELECT s.name FROM backstory.streams s
        WHERE s.name >= %(prefix)s || split_part(substr(found.name, length(%(prefix)s) + 1), '/', 1) || '0'
          AND starts_with(s.name, %(prefix)s)
          AND position('/' IN substr(s.name, length(%(prefix)s) + 1)) > 0
        ORDER BY s.name LIMIT 1
    ) next
)
SELECT DISTINCT split_part(substr(name, length(%(prefix)s) + 1), '/', 1) COLLATE "C" AS folder FROM found ORDER BY 1
"""


def _end_of(prefix: str) -> str | None:
    """Return the least text above all that begin with a prefix; None where there is none."""
    while prefix:
        if ord(prefix[-1]) < _LAST:
            following = ord(prefix[-1]) + 1
            return prefix[:-1] + chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following)
        prefix = prefix[:-1]
    return None


_LAST = 0x10FFFF
_FIRST_SURROGATE = 0xD800
_AFTER_SURROGATES = 0xE000
