"""Requests for an erasure, and the plan that answers one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import LedgerEvent, Redacted


class ForgetFact(msgspec.Struct, frozen=True):
    """Erase a fact wherever the ledger holds its text; `with_evidence` also the turns that it was learned from."""

    fact_id: str
    with_evidence: bool = False


class ForgetThread(msgspec.Struct, frozen=True):
    """Erase a thread and everything that was learned from it."""

    thread: str


class ForgetMatching(msgspec.Struct, frozen=True):
    """Erase everything that holds a text, in any case and Unicode form."""

    text: str


class ForgetEverything(msgspec.Struct, frozen=True):
    """Erase all content of both streams."""


class ForgetExpired(msgspec.Struct, frozen=True):
    """Erase covered turns that were recorded before a time (ISO 8601, UTC, as in the logs).

    `covered` returns, for a thread and an ordinal, whether that turn is covered; turns that are not covered stay.
    """

    before: str
    covered: Callable[[str, int], bool]


class ForgetShared(msgspec.Struct, frozen=True):
    """Erase the texts of sections that hold what is erased in another memory of the same user.

    Only sections, refused ones and failures that may quote them are searched for `phrases` and `words`. `received` are
    the texts that a user's ledger gives up, as agent, seq and section; `own` those that an agent's does, as seq and
    section.
    """

    phrases: tuple[tuple[str, bool], ...] = ()
    words: frozenset[str] = frozenset()
    received: frozenset[tuple[str, int, str]] = frozenset()
    own: frozenset[tuple[int, str]] = frozenset()


Erasure: TypeAlias = ForgetFact | ForgetThread | ForgetMatching | ForgetEverything | ForgetExpired | ForgetShared
"""Any request for an erasure."""

Only: TypeAlias = Callable[[int, bytes], bool]
"""Whether a line has to be read, given its seq and its bytes. It may ask for too many, never for too few."""


class Walk(Protocol):
    """Starts reading a stream from its first commit at each call."""

    stream: str
    """The name of the stream."""

    def __call__(self, only: Only | None = None) -> Iterable[Commit]:
        """Return the commits in order; those whose lines `only` refuses may be left out."""
        ...


class Sharing(msgspec.Struct, frozen=True):
    """A fact or section that stays although it was learned from the same turns as erased content.

    `kind` is fact or section, and `id` is the fact's id or the section's name. A fact that an erased fact was merged
    into counts too, and so does one that was merged into an erased fact: it has left memory but not the ledger.
    """

    kind: str
    id: str
    content: str


class ErasurePlan(msgspec.Struct, frozen=True):
    """The events of an erasure: one Redacted event for each erased event, then the facts and sections to restate.

    `also` lists what stays although it was learned from the same turns. `elsewhere` is what to erase from the sections
    in the other memories of the user, where these share them.
    """

    redacted: tuple[Redacted, ...]
    restated: tuple[LedgerEvent, ...] = ()
    also: tuple[Sharing, ...] = ()
    elsewhere: ForgetShared = ForgetShared()

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """The events of the redaction's commit, in order."""
        return (*self.redacted, *self.restated)
