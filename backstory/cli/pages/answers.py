"""Results that only the command line has: those of several scopes, and configured values with their origin."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.projections.integrity.stream_check import Problem
from backstory.projections.integrity.verify import Verification
from backstory.projections.search.vectors.background_embedding import Embedded
from backstory.results import Extracted

__all__ = ["ConfigValue", "Drawn", "EmbeddedIn", "ExtractedIn", "NewKey", "VerifiedIn"]


class EmbeddedIn(msgspec.Struct, frozen=True):
    """The result of `embed` in one scope."""

    user: str | None
    agent: str | None
    model: str
    embedded: int
    total: int
    new: int

    @classmethod
    def of(cls, scope: Scope, result: Embedded) -> EmbeddedIn:
        """Add the scope to a result."""
        return cls(scope.user, scope.agent, result.model, result.embedded, result.total, result.new)


class ExtractedIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of `extract` in one scope."""

    user: str | None
    agent: str | None
    updates: int
    failed: int
    commits: tuple[int, ...]
    summaries: tuple[int, ...] = ()
    summaries_failed: int = 0

    @classmethod
    def of(cls, scope: Scope, result: Extracted) -> ExtractedIn:
        """Add the scope to a result."""
        counts = (result.updates, result.failed, result.commits, result.summaries, result.summaries_failed)
        return cls(scope.user, scope.agent, *counts)


class VerifiedIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of `verify` in one scope."""

    user: str | None
    agent: str | None
    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, scope: Scope, result: Verification) -> VerifiedIn:
        """Add the scope to a result."""
        return cls(scope.user, scope.agent, result.ok, result.commits, result.turns, result.problems, result.notes)


class NewKey(msgspec.Struct, frozen=True):
    """A public key, and the file with the private one."""

    key: str
    file: str


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A configured value and its origin: default, file, environment or argument."""

    value: object
    origin: str


class Drawn(msgspec.Struct, frozen=True):
    """The file of a picture, and how many items it shows and leaves out, by kind."""

    written: str
    format: str
    shown: dict[str, int]
    left_out: dict[str, int]
