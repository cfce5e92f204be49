"""Answers that only the command line gives: results of several scopes side by side, values with their origin."""

from __future__ import annotations

import msgspec

from backstory.results import Extracted
from ledger.scope import Scope
from projections.verify import Problem, Verification

__all__ = ["ConfigValue", "ExtractedIn", "VerifiedIn"]


class ExtractedIn(msgspec.Struct, frozen=True):
    """What was learned in one scope of several."""

    user: str | None
    agent: str | None
    updates: int
    failed: int
    commits: tuple[int, ...]

    @classmethod
    def of(cls, scope: Scope, result: Extracted) -> ExtractedIn:
        """Say whose a result is."""
        return cls(scope.user, scope.agent, result.updates, result.failed, result.commits)


class VerifiedIn(msgspec.Struct, frozen=True):
    """What was found in one scope of several."""

    user: str | None
    agent: str | None
    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, scope: Scope, result: Verification) -> VerifiedIn:
        """Say whose a result is."""
        return cls(scope.user, scope.agent, result.ok, result.commits, result.turns, result.problems)


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A configured value, and where it comes from: default, file, environment or argument."""

    value: object
    origin: str
