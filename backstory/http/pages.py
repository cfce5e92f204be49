"""Pages of long lists, and other answers under `/v1` that the Python API has no type for."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import PolicyKey, PolicyValue
from backstory.projections.history.refusals import Refusal
from backstory.projections.history.views import LogEntry
from backstory.projections.turns import TurnView
from backstory.projections.what_if.needed import ExplainedRefusal
from backstory.results import ParkedThread, ScopeSummary, ThreadSummary

__all__ = [
    "CallerShown",
    "CommitRefusals",
    "FactPage",
    "Health",
    "LogPage",
    "ParkedThreads",
    "PolicyKeyShown",
    "PolicyKeys",
    "Refusals",
    "ScopePage",
    "ThreadPage",
    "TurnPage",
    "UnreadableScope",
    "offset_of",
]


class FactPage(msgspec.Struct, frozen=True):
    """Facts of one moment, oldest first; all pages of a list are of commit `seq`."""

    items: tuple[Fact, ...]
    seq: int
    next: str | None = None


class LogPage(msgspec.Struct, frozen=True):
    """Commits, newest first."""

    items: tuple[LogEntry, ...]
    next: str | None = None


class ThreadPage(msgspec.Struct, frozen=True):
    """Conversations, in the order of their first turns."""

    items: tuple[ThreadSummary, ...]
    next: str | None = None


class TurnPage(msgspec.Struct, frozen=True):
    """Turns of a conversation that stand, oldest first; `previous` is the cursor of the page before."""

    items: tuple[TurnView, ...]
    next: str | None = None
    previous: str | None = None


class UnreadableScope(msgspec.Struct, frozen=True):
    """A scope whose log cannot be read now, and why."""

    user: str | None
    agent: str | None
    detail: str


class ScopePage(msgspec.Struct, frozen=True):
    """Users and agents that have a memory, in the order of their folders; those that cannot be read are apart.

    `total` counts the users on all pages; each may have agents with memories of their own.
    """

    items: tuple[ScopeSummary, ...]
    next: str | None = None
    unreadable: tuple[UnreadableScope, ...] = ()
    total: int = 0


class ParkedThreads(msgspec.Struct, frozen=True):
    """Turns whose update failed."""

    items: tuple[ParkedThread, ...]


class Refusals(msgspec.Struct, frozen=True):
    """Refused candidates and removed facts that are like a text, and the facts in memory that are like it."""

    refusals: tuple[Refusal, ...]
    remembered: tuple[Fact, ...]


class CommitRefusals(msgspec.Struct, frozen=True):
    """What a commit refused, each with the policy value that would have accepted it, or the reason why none would."""

    items: tuple[ExplainedRefusal, ...]


class PolicyKeyShown(PolicyKey, frozen=True):
    """What a policy key takes, and its value in force.

    Numbers lie between `minimum` and `maximum`, both included; of a choice, and of each item of a list, the value is
    one of `choices`.
    """

    value: PolicyValue


class PolicyKeys(msgspec.Struct, frozen=True):
    """Every policy key. The three weights of the ranking `hybrid` add up to 1."""

    items: tuple[PolicyKeyShown, ...]


class CallerShown(msgspec.Struct, frozen=True):
    """Who sends a request: the name that commits record as their actor, and what the token covers.

    `right` is read, write or erase. `users` is null for all users. `user` is the user of requests that name none, null
    for the memory that all users share. `version` is the server's.
    """

    name: str
    right: str
    users: tuple[str, ...] | None
    user: str | None
    version: str


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server works; if not, `detail` says why."""

    ok: bool
    detail: str = ""


def offset_of(cursor: str | None) -> int:
    """Return the number in a cursor; 0 without one.

    Raises:
        UsageError: It is no cursor of this list.
    """
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > _MOST_DIGITS:
        raise UsageError(f"cursor must be the `next` of an earlier page, got {cursor[:40]!r}")
    return int(cursor)


_MOST_DIGITS = 18
