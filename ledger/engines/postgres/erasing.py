"""Erasure: lines are replaced or deleted in a transaction, then the tables are rewritten without the old versions.

PostgreSQL keeps the old version of a row until a VACUUM, and its bytes in the page even after that. Only VACUUM FULL
writes a new file. The tables that need it are noted in the transaction that erases, so that an interrupted erasure is
completed by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import LiteralString

import psycopg
from psycopg import sql

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import UNREADABLE
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.disk.locks import polled
from backstory.ledger.engines.postgres.connections import Connection, Connections
from backstory.ledger.engines.postgres.holds import QUEUE_MILLISECONDS, lock_of
from backstory.ledger.engines.postgres.sealing import DatabaseSeal
from backstory.ledger.engines.promises import in_lock_order, must_be_erasure

__all__ = ["Erasures"]

_REWRITE_SECONDS = 3600.0
"""How long the answer of a rewriting is waited for. How long one takes for large tables was not measured."""

_SKIPPED = "55P03"
"""lock_not_available."""

_MAY_REWRITE = """
SELECT pg_has_role(relowner, 'USAGE') OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
FROM pg_class WHERE oid = 'backstory.commits'::regclass
"""
_PARTS = """
INSERT INTO backstory.unclean (relation)
SELECT n.nspname || '.' || r.relname FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid IN (SELECT tableoid FROM backstory.commits WHERE stream = ANY(%s))
ON CONFLICT (relation) DO UPDATE SET since = pg_current_xact_id()
"""
_KEYS = """
INSERT INTO backstory.unclean (relation) VALUES ('backstory.keys')
ON CONFLICT (relation) DO UPDATE SET since = pg_current_xact_id()
"""
_BELOW = "SELECT name, id FROM backstory.streams WHERE name >= %s AND name < %s ORDER BY name"
_SHIFT = """
UPDATE backstory.commits c SET byte = c.byte - d.shorter
FROM (
    SELECT seq AS after, sum(less) OVER (ORDER BY seq) AS shorter,
           coalesce(lead(seq) OVER (ORDER BY seq), %(head)s) AS upto
    FROM unnest(%(seqs)s::bigint[], %(less)s::bigint[]) AS u (seq, less)
) d
WHERE c.stream = %(stream)s AND c.seq > d.after AND c.seq <= d.upto
"""


class Erasures:
    """Erases from the streams of one store."""

    def __init__(self, connections: Connections, seal: DatabaseSeal, clock: Clock) -> None:
        self._connections = connections
        self._seal = seal
        self._clock = clock

    def must_be_allowed(self, doing: str = "erase") -> None:
        """Refuse before anything is changed: what cannot be rewritten would not be gone. See `Capabilities`."""
        if self._connections.row(doing, _MAY_REWRITE) != (True,):
            raise StoreError(
                f"the role of {self._connections.address.label} may append only: erase as a role that owns the tables, "
                "or is a member of the one that does (docs/how-to/postgres.md)"
            )

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Replace lines; the caller holds the stream's lock. See `EventStore.redact`."""
        doing = f"erase from {stream}"
        tries = 0

        def replace(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            row = connection.execute(
                "SELECT id, seq FROM backstory.streams WHERE name = %s FOR UPDATE", (stream,)
            ).fetchone()
            if row is None:
                raise StoreError(f"{stream} is not there: nothing was erased from it")
            _replace(connection, stream, row[0], row[1], lines, again=tries > 1)

        if lines:
            self.must_be_allowed(doing)
            self._seal.change(doing, replace)
        self._rewrite(doing)

    def destroy_key(self, stream: str) -> None:
        """Destroy a stream's secret; see `EventStore.set_key`."""
        doing = f"destroy the key of {stream}"

        def destroy(connection: Connection) -> None:
            if connection.execute("DELETE FROM backstory.keys WHERE name = %s", (stream,)).rowcount:
                connection.execute(_KEYS)

        self._seal.change(doing, destroy)
        self._rewrite(doing)

    def remove(self, folder: str, is_held: Callable[[str], bool]) -> bool:
        """Remove the streams below a folder; see `EventStore.remove`.

        Args:
            folder: Its name.
            is_held: Whether this thread holds a stream's lock already.
        """
        doing = f"remove {folder}"
        found = False

        def remove(connection: Connection) -> None:
            nonlocal found
            below = _below(connection, folder)
            # Not for long at a time: an erasure under one of the locks needs that no transaction is open meanwhile.
            connection.execute(f"SET LOCAL lock_timeout = {QUEUE_MILLISECONDS}")
            for name in sorted(below, key=in_lock_order):
                if not is_held(name):
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_of(name),))
            self._connections.limit(connection)
            # What came while the locks were waited for is removed, too. The rows are locked in the order in which an
            # append to several streams locks them.
            ids = list(_below(connection, folder, _BELOW + " FOR UPDATE").values())
            self._mark(connection, ids)
            connection.execute(_PARTS, (ids,))
            connection.execute("DELETE FROM backstory.commits WHERE stream = ANY(%s)", (ids,))
            connection.execute("DELETE FROM backstory.streams WHERE id = ANY(%s)", (ids,))
            keys = connection.execute(
                "DELETE FROM backstory.keys WHERE name >= %s AND name < %s", _range(f"{folder}/")
            ).rowcount
            if keys:
                connection.execute(_KEYS)
            found = found or bool(ids or keys)

        def attempt() -> bool | None:
            try:
                self._seal.change(doing, remove)
            except LockTimeoutError as error:
                refused.append(error)
                return None
            return True

        refused: list[LockTimeoutError] = []
        self.must_be_allowed(doing)
        if not polled(attempt, self._connections.timeout, self._clock):
            raise refused[-1]
        return self._rewrite(doing) or found

    def _mark(self, connection: Connection, ids: list[int]) -> None:
        connection.execute(
            """
            INSERT INTO backstory.removed (first, at, kind, seq, hash)
            SELECT c.hash, %s, regexp_replace(s.name, '^.*/', ''), s.seq, s.hash
            FROM backstory.streams s JOIN backstory.commits c ON c.stream = s.id AND c.seq = 1
            WHERE s.id = ANY(%s) ON CONFLICT (first) DO NOTHING
            """,
            (spell_moment(self._clock.now()), ids),
        )

    def _rewrite(self, doing: str) -> bool:
        """Rewrite the tables in which something was erased; return whether there was one.

        Raises:
            StoreError: A table cannot be rewritten, or an open transaction still needs old versions of its rows.
        """
        unclean = self._connections.rows(doing, "SELECT relation, since::text FROM backstory.unclean")
        for relation, since in unclean:
            self._rewrite_one(doing, relation, since)
        return bool(unclean)

    def _rewrite_one(self, doing: str, relation: str, since: str) -> None:
        def attempt() -> bool | None:
            return self._is_rewritten(doing, relation) or None

        if not polled(attempt, self._connections.timeout, self._clock):
            raise StoreError(
                f"cannot {doing} in {self._connections.address.label}: it is erased for every reader, but an open "
                f"transaction, such as a backup, still needs the old rows of {relation}; erase again when it has ended"
            )
        # Unless there is more to remove meanwhile.
        self._connections.run(
            doing,
            lambda connection: connection.execute(
                "DELETE FROM backstory.unclean WHERE relation = %s AND since::text = %s", (relation, since)
            ),
        )

    def _is_rewritten(self, doing: str, relation: str) -> bool:
        """Rewrite a table; return whether it could be locked, and no old version had to stay."""
        left: list[int] = []

        def listen(diagnostic: psycopg.errors.Diagnostic) -> None:
            if diagnostic.sqlstate == _SKIPPED:
                left.append(1)
            # DETAIL: 3 dead row versions cannot be removed yet. The number comes first in every language.
            digits = "".join(filter(str.isdigit, (diagnostic.message_detail or "").partition("\n")[0]))
            left.append(int(digits or 0))

        def rewrite(connection: Connection) -> None:
            connection.patience = _REWRITE_SECONDS
            connection.add_notice_handler(listen)
            try:
                # A wait for the table would keep all others off it, behind a backup for hours.
                connection.execute(
                    sql.SQL("VACUUM (FULL, VERBOSE, SKIP_LOCKED) {}").format(sql.Identifier(*relation.split(".", 1)))
                )
            finally:
                connection.remove_notice_handler(listen)

        def rewrite_alone(connection: Connection) -> None:
            with connection.transaction():
                self._connections.limit(connection)
                # Every change reads the seal. Without it appends would leave no gap in which the table is free.
                connection.execute("LOCK TABLE backstory.seal IN ACCESS EXCLUSIVE MODE")
                self._connections.run(doing, rewrite)

        self._connections.run(doing, rewrite_alone)
        # It says nothing of a table that it could not lock, if warnings are switched off.
        return bool(left) and not any(left)


def _replace(
    connection: Connection, stream: str, number: int, head: int, lines: Mapping[int, bytes], *, again: bool
) -> None:
    """Replace lines of the stream with a number and a head; made `again`, it may find them replaced already."""
    seqs = sorted(lines)
    rows = connection.execute(
        "SELECT seq, line FROM backstory.commits WHERE stream = %s AND seq = ANY(%s) ORDER BY seq",
        (number, seqs),
        binary=True,
    )
    old = {int(seq): bytes(line) for seq, line in rows}
    if again and all(old.get(seq) == lines[seq] for seq in seqs):
        return
    for seq in seqs:
        try:
            must_be_erasure(stream, seq, old.get(seq, b""), lines[seq])
        except UNREADABLE as error:
            raise StoreError(f"{stream}: commit {seq} cannot be read, so nothing was erased: run `verify`") from error
    less = [len(old[seq]) - len(lines[seq]) for seq in seqs]
    connection.execute(_PARTS, ([number],))
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE backstory.commits SET line = %b, xid = (pg_current_xact_id()::text)::bigint "
            "WHERE stream = %s AND seq = %s",
            [(lines[seq], number, seq) for seq in seqs],
        )
    connection.execute(_SHIFT, {"seqs": seqs, "less": less, "head": head, "stream": number})
    connection.execute(
        "UPDATE backstory.streams SET edition = edition + 1, bytes = bytes - %s WHERE id = %s", (sum(less), number)
    )


def _below(connection: Connection, folder: str, query: LiteralString = _BELOW) -> dict[str, int]:
    """Return name and id of each stream below a folder."""
    return {str(name): int(number) for name, number in connection.execute(query, _range(f"{folder}/"))}


def _range(prefix: str) -> tuple[str, str]:
    """Return the bounds of the names with a prefix that ends in a slash: those up to the next character."""
    return prefix, f"{prefix[:-1]}0"
