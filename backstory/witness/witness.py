"""Witness of a home: sends heads, and reads them back for `verify`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.outbox.faults import Faults
from backstory.projections.integrity.witnessed import Heads, Witnessed, WitnessFile
from backstory.witness.destinations import Destination, FileWitness, destination_of
from backstory.witness.sender import HeadSender, SentHeads


class Witness:
    """The witness of one home. Its thread ends when it is garbage collected.

    Args:
        witness: The value of the key `witness`.
        store: The store of the streams.
        document: Returns the path of a scope's memory.json.
        faults: Counts outages.
        clock: Dates the lines.

    Raises:
        ValueError: `witness` names no destination.
    """

    def __init__(
        self, witness: str, store: EventStore, document: Callable[[Scope], Path], faults: Faults, clock: Clock
    ) -> None:
        self.destination: Destination = destination_of(witness)
        self._sent = SentHeads(document, self.destination.name)
        self._file = WitnessFile(self.destination.path) if isinstance(self.destination, FileWitness) else None
        self.sender = HeadSender(store, self.destination, self._sent, faults, clock)
        # The thread refers to the sender, so only what holds the sender can be garbage collected.
        weakref.finalize(self, self.sender.end).atexit = False

    def read(self, scope: Scope) -> Witnessed:
        """Return the heads that the witness has of a scope; only a file can be read."""
        # Read this before the file, since a head that is sent in between may be missing in the file.
        sent = self._sent.of(scope)
        if self._file is not None:
            return self._file.read(scope, None if sent is None else sent.ledger)
        name = self.destination.name
        note = f"heads are sent to {name}, which verify cannot read: pass one from there with --expect-head"
        return Witnessed(name, Heads(), Heads(), (), (note,))
