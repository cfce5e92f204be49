"""Changes on PostgreSQL: which streams have other lines than at a position.

A position is the number of the oldest transaction that was open, so a commit that commits late comes after it. It is
never beyond the newest commit, because after a crash the server gives the numbers of later transactions again.

It names the newest commit as well. Where that one is gone, numbers tell nothing: a standby that did not have it may
have taken over, or an older copy of the database was put back. Then every stream counts as changed. So it does where
that commit itself was erased from or removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backstory.ledger.engines.postgres.connections import Connection, Connections

__all__ = ["changed_since", "is_from_another_server", "leave_the_other_server"]


class _Position(msgspec.Struct, frozen=True, array_like=True):
    xid: int
    stream: int = 0
    seq: int = 0
    newest: int = 0
    """The transaction of the newest commit."""
    hash: str = ""


# What is below the position has ended, and is in the snapshot of the very query that returns it.
# The upper bound excludes nothing: in a range the planner expects few rows even where it has no statistics yet, and so
# it starts no parallel workers.
_CHANGED = """
SELECT p.xid, p.stream, p.seq, p.newest, p.hash, p.is_there, s.name
FROM (
    SELECT least((pg_snapshot_xmin(pg_current_snapshot())::text)::bigint, coalesce(n.xid, 0) + 1) AS xid,
           coalesce(n.stream, 0) AS stream, coalesce(n.seq, 0) AS seq, coalesce(n.xid, 0) AS newest,
           coalesce(n.hash, '') AS hash,
           %(newest)s = 0 OR EXISTS (
               SELECT FROM backstory.commits c
               WHERE c.stream = %(stream)s AND c.seq = %(seq)s AND c.xid = %(newest)s AND c.hash = %(hash)s
           ) AS is_there
    FROM (VALUES (1)) AS one (row)
    LEFT JOIN (SELECT stream, seq, xid, hash FROM backstory.commits ORDER BY xid DESC LIMIT 1) n ON true
) p
LEFT JOIN (
    SELECT DISTINCT stream FROM backstory.commits WHERE xid BETWEEN %(xid)s::bigint AND 9223372036854775807
) changed ON true
LEFT JOIN backstory.streams s ON s.id = changed.stream
"""
_NOW = _Position(0)


def changed_since(connections: Connections, since: str | None) -> tuple[Sequence[str] | None, str]:
    """Return the streams that have changed since a position, None where all count as changed, and the position now.

    Args:
        connections: The connections of the store.
        since: A position that was returned before; None to begin with the position now, which names no stream.

    Raises:
        StoreError: It could not be read.
    """
    before = _NOW if since is None else msgspec.json.decode(since, type=_Position)
    asked: dict[str, object] = {**msgspec.structs.asdict(before), "xid": None if since is None else before.xid}
    rows = connections.rows("read what has changed", _CHANGED, asked)
    *stated, is_there, _ = rows[0]
    now = _Position(*stated)
    position = msgspec.json.encode(now).decode()
    if not is_there or now.xid < before.xid:
        return None, position
    return [row[-1] for row in rows if row[-1] is not None], position


_AHEAD = """
SELECT EXISTS (SELECT FROM backstory.commits WHERE xid >= (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint)
"""
_PUT_BACK = "UPDATE backstory.commits SET xid = 0 WHERE xid >= (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint"


def is_from_another_server(connection: Connection) -> bool:
    """Whether commits have the numbers of another server's transactions, as after a dump was restored.

    Each look for changes then reads them all, until this server has come as far.
    """
    return connection.execute(_AHEAD).fetchone() == (True,)


def leave_the_other_server(connection: Connection) -> None:
    """Give such commits a number that lies before every position."""
    connection.execute(_PUT_BACK)
