"""Witness of a home: sends heads, reads them back for `verify`, and is checked by `doctor`."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.outbox.faults import Faults, stored_faults
from backstory.projections.integrity.remedies import Check, counted
from backstory.projections.integrity.witnessed import Heads, Witnessed, WitnessFile
from backstory.witness.destinations import CommandWitness, Destination, FileWitness, destination_of
from backstory.witness.sender import HeadSender, SentHeads


class Witness:
    """The witness of one home. Its thread ends when it is garbage collected.

    Args:
        witness: The value of the key `witness`.
        store: The store of the streams.
        document: Returns the path of a scope's memory.json.
        faults: Counts outages.
        clock: Dates the lines.
        opened: Returns the memories in use.

    Raises:
        ValueError: `witness` names no destination.
    """

    def __init__(
        self,
        witness: str,
        store: EventStore,
        document: Callable[[Scope], Path],
        faults: Faults,
        clock: Clock,
        *,
        opened: Callable[[], Iterable[Scope]],
    ) -> None:
        self.destination: Destination = destination_of(witness)
        self._sent = SentHeads(document, self.destination.name)
        self._file = WitnessFile(self.destination.path) if isinstance(self.destination, FileWitness) else None
        self.sender = HeadSender(store, self.destination, self._sent, faults, clock, opened=opened)
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


def examine_witness(store: EventStore, home: Path, witness: str, scopes: Iterable[Scope], clock: Clock) -> Check:
    """Count the memories whose newest head the witness does not have, with a reason, for `doctor`; it sends nothing.

    Args:
        store: Holds the logs.
        home: The home folder.
        witness: The value of the key `witness`, which names a destination.
        scopes: Memories with intact logs.
        clock: Decides which faults have expired.
    """
    destination = destination_of(witness)
    document = lambda scope: home / scope.folder / "memory.json"  # noqa: E731
    sent = SentHeads(document, destination.name)
    behind, why = 0, ""
    for scope in scopes:
        with suppress(BackstoryError):
            head, last = store.head(scope.stream(LEDGER)), sent.of(scope)
            if head.seq and (last is None or last.ledger != head):
                behind += 1
                faults = stored_faults(home / scope.folder / "faults.json", clock.now())
                details = (fault.detail for fault in faults if fault.doing == "witness")
                why = why or next(details, "")
    if behind:
        memories = counted(behind, "memory", "memories")
        hint = f"{destination.name} does not have the newest head of {memories} yet: the next use of one sends it"
        return Check("witness", False, f"{hint}; {why}" if why else hint)
    remark = _remark(destination, None if store.capabilities().path is None else home)
    return Check("witness", True, f"{destination.name} has the newest heads; {remark}")


def _remark(destination: Destination, logs: Path | None) -> str:
    if isinstance(destination, FileWitness):
        if logs is not None and _are_together(destination.path.parent, logs):
            return "it is on the same disk as the logs, so an attacker who changes the logs may change it, too"
        return "`verify --all` compares the logs with it"
    if isinstance(destination, CommandWitness) and shutil.which(destination.program) is None:
        return f"{destination.program} is not found: install it, or name it by its absolute path"
    return "it was not tried, and `verify` cannot read it"


def _are_together(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one.stat().st_dev == other.stat().st_dev
    return False
