"""Model usage: how many updates a model made on each day, and the tokens that they took."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.commit import Cause, Commit
from backstory.projections.index.schema import name_in, named


class DayUsage(msgspec.Struct, frozen=True):
    """What one model did on one day, in UTC; `model` is None where a commit states tokens and no model.

    `updates` are the commits that state the model, failed updates and summaries of long threads included.
    """

    day: str
    model: str | None
    updates: int
    tokens_in: int
    tokens_out: int


class ModelUsage(msgspec.Struct, frozen=True):
    """What models did, by day and model, the earliest day first."""

    days: tuple[DayUsage, ...]


class UsageCount(msgspec.Struct, frozen=True, array_like=True):
    """What a day and a model are kept with."""

    updates: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, cause: Cause) -> UsageCount:
        """Return the count with one more commit."""
        return UsageCount(
            self.updates + 1, self.tokens_in + (cause.tokens_in or 0), self.tokens_out + (cause.tokens_out or 0)
        )

    def at(self, key: bytes) -> DayUsage:
        """Return what is counted under a key."""
        day, end = name_in(key)
        model, _ = name_in(key[end:])
        return DayUsage(day, model or None, self.updates, self.tokens_in, self.tokens_out)


def usage_key(commit: Commit) -> bytes | None:
    """Return the key that a commit counts under; None where no model was asked."""
    cause = commit.cause
    if cause.model is None and cause.tokens_in is None and cause.tokens_out is None:
        return None
    return named(commit.at[: len("2026-03-02")]) + named(cause.model or "")
