"""Answers that only the command line gives: results of several scopes side by side, values with their origin."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.projections.integrity.verify import Problem, Verification
from backstory.projections.search.services import Embedded
from backstory.results import Extracted

__all__ = ["ConfigValue", "Drawn", "EmbeddedIn", "ExtractedIn", "NewKey", "VerifiedIn"]


class EmbeddedIn(msgspec.Struct, frozen=True):
    """How far meaning is known in one scope of several."""

    user: str | None
    agent: str | None
    model: str
    embedded: int
    total: int
    new: int

    @classmethod
    def of(cls, scope: Scope, result: Embedded) -> EmbeddedIn:
        """Say whose a result is."""
        return cls(scope.user, scope.agent, result.model, result.embedded, result.total, result.new)


class ExtractedIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned in one scope of several."""

    user: str | None
    agent: str | None
    updates: int
    failed: int
    commits: tuple[int, ...]
    summaries: tuple[int, ...] = ()
    summaries_failed: int = 0

    @classmethod
    def of(cls, scope: Scope, result: Extracted) -> ExtractedIn:
        """Say whose a result is."""
        told = (result.updates, result.failed, result.commits, result.summaries, result.summaries_failed)
        return cls(scope.user, scope.agent, *told)


class VerifiedIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found in one scope of several."""

    user: str | None
    agent: str | None
    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, scope: Scope, result: Verification) -> VerifiedIn:
        """Say whose a result is."""
        return cls(scope.user, scope.agent, result.ok, result.commits, result.turns, result.problems, result.notes)


class NewKey(msgspec.Struct, frozen=True):
    """A key to verify notes with, and the file that holds the private one."""

    key: str
    file: str


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A configured value, and where it comes from: default, file, environment or argument."""

    value: object
    origin: str


class Drawn(msgspec.Struct, frozen=True):
    """Where a picture was written, how much is in it, and what was left out for the limit."""

    written: str
    format: str
    shown: dict[str, int]
    left_out: dict[str, int]
