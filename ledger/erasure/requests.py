"""What can be asked to be erased, and what a plan answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import LedgerEvent, Redacted

__all__ = [
    "Erasure",
    "ForgetEverything",
    "ForgetExpired",
    "ForgetFact",
    "ForgetMatching",
    "ForgetThread",
    "Plan",
    "Sharing",
    "Walk",
]


class ForgetFact(msgspec.Struct, frozen=True):
    """Erase a fact wherever its words stand in the ledger; `with_evidence` also the turns it was learned from."""

    fact_id: str
    with_evidence: bool = False


class ForgetThread(msgspec.Struct, frozen=True):
    """Erase a conversation and what was learned from it."""

    thread: str


class ForgetMatching(msgspec.Struct, frozen=True):
    """Erase whatever holds a text, in any case and Unicode form."""

    text: str


class ForgetEverything(msgspec.Struct, frozen=True):
    """Erase all content of both streams."""


class ForgetExpired(msgspec.Struct, frozen=True):
    """Erase turns recorded before a time, spelled as the logs spell it.

    `covered` tells by thread and ordinal of which turns nothing is to be learned any more; the others stay.
    """

    before: str
    covered: Callable[[str, int], bool]


Erasure: TypeAlias = ForgetFact | ForgetThread | ForgetMatching | ForgetEverything | ForgetExpired
"""What is asked to be erased."""

Walk: TypeAlias = Callable[[], Iterable[Commit]]
"""Begins anew at a stream's first commit each time it is called."""


class Sharing(msgspec.Struct, frozen=True):
    """What stays although it was learned from the same turns: `kind` is fact or section, `id` the section's name.

    A fact that what goes was merged into is one of them, and so is one that was merged into what goes: it is out of
    memory, but not out of the ledger.
    """

    kind: str
    id: str
    content: str


class Plan(msgspec.Struct, frozen=True):
    """What an erasure writes: a Redacted event for each content that goes, then what is said again of what stays."""

    redacted: tuple[Redacted, ...]
    restated: tuple[LedgerEvent, ...] = ()
    also: tuple[Sharing, ...] = ()

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """The events of the redaction's commit, in order."""
        return (*self.redacted, *self.restated)

    @property
    def slots(self) -> set[tuple[str, int, int]]:
        """What is to be overwritten: stream, seq, index."""
        return {(event.stream, event.seq, event.index) for event in self.redacted}
