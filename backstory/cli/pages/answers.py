"""Results that only the command line has: those of several scopes, and configured values with their origin."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.scope import Scope


def in_scope(scope: Scope, result: msgspec.Struct) -> dict[str, object]:
    """Return a result as a JSON value with its scope."""
    return {"user": scope.user, "agent": scope.agent, **msgspec.to_builtins(result)}


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
