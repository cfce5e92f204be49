"""Seal of the NATS engine: the servers themselves refuse what a sealed home does not take.

A JetStream stream accepts messages to the subjects that its settings name. A seal takes all of them away but those of
leases and of the seal itself, whose message says why. So a change by any process finds no subject to go to, however
long ago it was begun. An `arriving` seal adds an entrance with a random name, which only the store object that set it
knows; a subject transform of the stream leads from there to the subjects that are meant.
"""

from __future__ import annotations

import os

import msgspec

from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing
from backstory.ledger.engines.nats.subjects import ENTRANCE, LEASES, Subjects
from backstory.ledger.engines.port import Seal


class Sealing:
    """Seals the streams of a store."""

    def __init__(self, wire: JetStream, subjects: Subjects) -> None:
        self._wire = wire
        self._subjects = subjects

    def seal(self) -> Seal | None:
        """Return the seal that is in force; see `EventStore.seal`."""
        return self._wire.run(self._wire.seal(self._subjects.seal(0)))

    def must_take_changes(self) -> None:
        """Refuse a change that needs no new message.

        Raises:
            SealedError: A seal is in force, and this store object has no entrance beneath it.
        """
        seal = None if self._wire.entrance else self.seal()
        if seal is not None:
            raise seal.refusal(str(self._wire.address))

    def set_seal(self, seal: Seal | None) -> None:
        """Seal all streams, or take the seal off; see `EventStore.set_seal`."""
        entrance = os.urandom(16).hex() if seal is not None and seal.state == "arriving" else ""
        for shard in self._subjects.shards:
            self._limit(shard, entrance, sealed=seal is not None)
        self._wire.entrance = entrance
        for shard in self._subjects.shards:
            subject = self._subjects.seal(shard)
            if seal is None:
                while (there := self._wire.last(self._subjects.jetstream(shard), subject)) is not None:
                    self._wire.delete(self._subjects.jetstream(shard), [there.seq], erase=False)
            else:
                # The leader takes messages in order, so what was sent before is stored by the time this is.
                self._wire.publish([Outgoing(subject, msgspec.json.encode(seal), "seal", only=True)])

    def _limit(self, shard: int, entrance: str, *, sealed: bool) -> None:
        """Say which subjects a JetStream stream accepts."""
        name = self._subjects.jetstream(shard)
        settings = self._wire.settings(name)
        if settings is None:
            raise StoreError(f"the JetStream stream {name} has gone: restore it from a copy")
        settings.pop("subject_transform", None)
        accepted = [self._subjects.everything(shard)]
        if sealed:
            accepted = [self._subjects.seal(shard), self._subjects.within(LEASES, shard, ">")]
        if entrance:
            way = self._subjects.within(ENTRANCE, shard, f"{entrance}.>")
            accepted.append(way)
            settings["subject_transform"] = {"src": way, "dest": self._subjects.everything(shard)}
        self._wire.update(name, settings | {"subjects": accepted})
