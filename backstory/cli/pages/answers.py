"""Results that only the command line has: those of several scopes, and configured values with their origin."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.results import RecordResult


def in_scope(scope: Scope, result: msgspec.Struct) -> dict[str, object]:
    """Return a result as a JSON value with its scope."""
    return {"user": scope.user, "agent": scope.agent, **msgspec.to_builtins(result)}


class RecordedScope(msgspec.Struct, frozen=True):
    """What `record` recorded in one scope."""

    user: str | None
    agent: str | None
    threads: int = 0
    turns: int = 0
    skipped: int = 0
    superseded: int = 0
    cut: int = 0

    def and_also(self, result: RecordResult) -> RecordedScope:
        """Return the sum with the result of one more delivery."""
        return RecordedScope(
            self.user,
            self.agent,
            self.threads + result.threads,
            self.turns + result.turns,
            self.skipped + result.skipped,
            self.superseded + result.superseded,
            self.cut + result.cut,
        )


class RecordAnswer(msgspec.Struct, frozen=True):
    """What `record` recorded in all scopes, and in each."""

    threads: int
    turns: int
    skipped: int
    backlog: bool
    superseded: int
    cut: int
    scopes: tuple[RecordedScope, ...]

    @classmethod
    def of(cls, scopes: Iterable[RecordedScope], *, backlog: bool) -> RecordAnswer:
        """Sum up the scopes."""
        listed = tuple(scopes)
        return cls(
            threads=sum(scope.threads for scope in listed),
            turns=sum(scope.turns for scope in listed),
            skipped=sum(scope.skipped for scope in listed),
            backlog=backlog,
            superseded=sum(scope.superseded for scope in listed),
            cut=sum(scope.cut for scope in listed),
            scopes=listed,
        )


class NewKey(msgspec.Struct, frozen=True):
    """A public key, and the file with the private one."""

    key: str
    file: str


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A configured value and its origin: default, file, environment or argument."""

    value: object
    origin: str


class Drawn(msgspec.Struct, frozen=True):
    """The file of a graph, and how many items it shows and leaves out, by kind."""

    written: str
    format: str
    shown: dict[str, int]
    left_out: dict[str, int]


class WrittenTest(msgspec.Struct, frozen=True):
    """A memory test that `test --from-fact` wrote: its file, all files, the words in them and what they lack."""

    test: str
    files: tuple[str, ...]
    words: tuple[str, ...]
    notes: tuple[str, ...]
