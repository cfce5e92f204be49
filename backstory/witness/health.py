"""Witness check for `doctor`: whether the witness is up to date and separate from the logs. It sends nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.outbox.faults import Faults
from backstory.projections.integrity.remedies import Check, counted
from backstory.witness.destinations import CommandWitness, Destination, FileWitness, destination_of
from backstory.witness.sender import SentHeads


def examine_witness(store: EventStore, home: Path, witness: str, scopes: Iterable[Scope], clock: Clock) -> Check:
    """Count the memories whose newest head the witness does not have, with a reason.

    Args:
        store: Holds the logs.
        home: The home folder.
        witness: The value of the key `witness`, which names a destination.
        scopes: Memories with intact logs.
        clock: Decides which faults have expired.
    """
    destination = destination_of(witness)
    document = lambda scope: home / scope.folder / "memory.json"  # noqa: E731
    sent, faults = SentHeads(document, destination.name), Faults(document, clock)
    behind, why = 0, ""
    for scope in scopes:
        with suppress(BackstoryError):
            head, last = store.head(scope.stream(LEDGER)), sent.of(scope)
            if head.seq and (last is None or last.ledger != head):
                behind += 1
                details = (fault.detail for fault in faults.of(scope) if fault.doing == "witness")
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
