"""Scope: the user and the agent that a memory belongs to, either of which may be absent, and its two streams.

A user id is encoded as a folder name that is unique even on a file system that ignores case: lower-case letters, digits
and `-` stay, every other UTF-8 byte becomes `_xx`. An encoded name of more than 120 characters is cut and ends in `__`
and the sha256 of the id; no other encoded name contains `__`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from backstory.ledger.core.errors import ScopeError

LEDGER = "ledger"
TRANSCRIPT = "transcript"

Name: TypeAlias = str | int | UUID
"""A user id or an agent name as a host gives it; numbers and UUIDs are read as their text."""

MemoryScope = Literal["user", "global"]
"""Whether a memory belongs to a user, or to all users."""

_AGENT = re.compile(r"[A-Za-z0-9-]{1,64}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_FOLDER = 120
_KEPT = 40
_CUT = "__"
_MAX_USER = 1_000


def name_text(what: str, value: object) -> str | None:
    """Return a user id or an agent name as a string; None for none.

    A whole number and a UUID count as their text, so `5` and `"5"` name the same memory.

    Args:
        what: The name of the value, for the error.
        value: The value.

    Raises:
        ScopeError: It is no text, whole number or UUID.
    """
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        try:
            return str(value)
        except ValueError as error:
            raise ScopeError(f"the {what} is a number of more than 4,300 digits: give a shorter one") from error
    raise ScopeError(f"the {what} must be a string, a whole number or a UUID, got {type(value).__name__}")


def _encoded(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in text.encode(errors="surrogatepass"))


def _folder(user: str) -> str:
    encoded = _encoded(user)
    if len(encoded) <= _MAX_FOLDER:
        return encoded
    return f"{encoded[:_KEPT]}{_CUT}{hashlib.sha256(user.encode()).hexdigest()}"


def folder_beginnings(prefix: str) -> tuple[str, ...]:
    """Return what the names of users' folders begin with whose ids begin so.

    Where the prefix is longer than what a cut name keeps of an id, such a name begins so for other ids, too.
    """
    encoded = _encoded(prefix)
    return (encoded,) if len(encoded) <= _KEPT else (encoded, f"{encoded[:_KEPT]}{_CUT}")


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user and an agent; both None is the global scope. `Scope.of` checks the names."""

    user: str | None = None
    agent: str | None = None

    @classmethod
    def of(cls, user: Name | None = None, agent: Name | None = None) -> Scope:
        """Check the names and return the scope.

        Args:
            user: 1 to 1,000 characters, or None. A whole number and a UUID count as their text.
            agent: 1 to 64 letters, digits or hyphens, or None.

        Raises:
            ScopeError: A name is not valid.
        """
        user, agent = name_text("user id", user), name_text("agent name", agent)
        if user is not None:
            if not user:
                raise ScopeError("the user id is empty: give one, or ask for the global memory, which has none")
            if len(user) > _MAX_USER:
                raise ScopeError(f"the user id must have at most {_MAX_USER} characters, got {len(user)}")
            try:
                user.encode()
            except UnicodeEncodeError as error:
                raise ScopeError(
                    f"the user id must be valid Unicode text, got {user!r}, which has a lone surrogate"
                ) from error
        if agent is not None and not _AGENT.fullmatch(agent):
            raise ScopeError(f"the agent name must be 1 to 64 letters, digits or hyphens, got {agent[:80]!r}")
        return cls(user, agent)

    @property
    def folder(self) -> str:
        """The scope's folder, relative to the home; `""` for the global scope."""
        parts = []
        if self.user is not None:
            parts += ["users", _folder(self.user)]
        if self.agent is not None:
            parts += ["agents", self.agent]
        return "/".join(parts)

    @classmethod
    def in_folder(cls, folder: str) -> Scope | None:
        """Return the scope of a folder, decoded from its name; None if the name was cut or is not a scope's."""
        parts = folder.split("/") if folder else []
        named = dict(zip(parts[::2], parts[1::2], strict=False))
        user, agent = named.get("users"), named.get("agents")
        if user is not None:
            decoded = re.sub(rb"_([0-9a-f]{2})", lambda byte: bytes.fromhex(byte[1].decode()), user.encode())
            user = decoded.decode(errors="replace")
        scope = cls(user, agent)
        return scope if scope.folder == folder else None

    def stream(self, kind: str) -> str:
        """Return the name of one of the scope's two streams, LEDGER or TRANSCRIPT."""
        return f"{self.folder}/{kind}" if self.folder else kind

    def __str__(self) -> str:
        named = [f"user {self.user}"] if self.user is not None else []
        named += [f"agent {self.agent}"] if self.agent is not None else []
        return ", ".join(named) or "global"
