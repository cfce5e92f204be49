"""Seal of a database: one row, which every change reads in its own transaction.

To set it, its table is locked first. That waits for every transaction that has read it, and so for every change that
is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.port import Seal
from backstory.ledger.engines.postgres.connections import Connection, Connections

__all__ = ["DatabaseSeal"]

_T = TypeVar("_T")


class DatabaseSeal:
    """The seal, as one store sees it.

    `ours` is the seal beneath which this store may change streams, because it has set it.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.ours: Seal | None = None

    def read(self) -> Seal | None:
        """See `EventStore.seal`."""
        return self._connections.run("read the seal", self._read)

    def _read(self, connection: Connection) -> Seal | None:
        row = connection.execute("SELECT state, other FROM backstory.seal").fetchone()
        if row is None:
            return None
        state, other = row
        if state not in ("moved", "arriving"):
            raise StoreError(f"the seal of {self._connections.address.label} is {state!r}: use a newer backstory")
        return Seal(state, other)

    def change(self, doing: str, work: Callable[[Connection], _T]) -> _T:
        """Return what a change returns that is made in one transaction; see `Connections.run`.

        Raises:
            SealedError: The database is sealed.
        """

        def changed(connection: Connection) -> _T:
            with connection.transaction():
                self._connections.limit(connection)
                seal = self._read(connection)
                if seal is not None and seal != self.ours:
                    raise seal.refusal(self._connections.address.label)
                return work(connection)

        return self._connections.run(doing, changed)

    def put(self, seal: Seal | None) -> None:
        """See `EventStore.set_seal`."""

        def put(connection: Connection) -> None:
            with connection.transaction():
                self._connections.limit(connection)
                connection.execute("LOCK TABLE backstory.seal IN ACCESS EXCLUSIVE MODE")
                connection.execute("DELETE FROM backstory.seal")
                if seal is not None:
                    connection.execute(
                        "INSERT INTO backstory.seal (state, other) VALUES (%s, %s)", (seal.state, seal.other)
                    )

        self._connections.run("set the seal", put)
        self.ours = seal if seal is not None and seal.state == "arriving" else None
