"""Whose memory: a user and an agent, either of which may be absent, and the streams that belong to them.

A user id is taken exactly as given and spelled so that it is one safe folder name, one to one, also on a file system
that ignores case: lower-case letters, digits and `-` stand for themselves, every other UTF-8 byte becomes `_xx`. A
spelling over 120 characters is cut and carries its sha256 after `__`, which no short spelling contains.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from backstory.ledger.core.errors import ScopeError

__all__ = ["LEDGER", "TRANSCRIPT", "Scope", "stream_folder"]

LEDGER = "ledger"
TRANSCRIPT = "transcript"

_AGENT = re.compile(r"[A-Za-z0-9-]{1,64}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_SPELLING = 120
_LONGEST_USER = 1_000


def _folder(user: str) -> str:
    spelled = "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in user.encode())
    if len(spelled) <= _LONGEST_SPELLING:
        return spelled
    return f"{spelled[:40]}__{hashlib.sha256(user.encode()).hexdigest()}"


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user and an agent; both None is the global memory. Make one with `Scope.of`."""

    user: str | None = None
    agent: str | None = None

    @classmethod
    def of(cls, user: str | None = None, agent: str | None = None) -> Scope:
        """Check the names and return the scope.

        Raises:
            ScopeError: an empty, overlong or unencodable user id; an agent name outside `[A-Za-z0-9-]{1,64}`.
        """
        if user is not None:
            if not user:
                raise ScopeError("the user id is empty: leave it out for the global memory, or give one")
            if len(user) > _LONGEST_USER:
                raise ScopeError(f"the user id has {len(user)} characters; at most {_LONGEST_USER} are taken")
            try:
                user.encode()
            except UnicodeEncodeError as error:
                raise ScopeError(
                    f"the user id {user!r} holds a lone surrogate: it is no text, so it names no user"
                ) from error
        if agent is not None and not _AGENT.fullmatch(agent):
            raise ScopeError(f"the agent name {agent[:80]!r} is not 1 to 64 letters, digits or hyphens")
        return cls(user, agent)

    @property
    def folder(self) -> str:
        """The scope's place below the home, `""` for the global one."""
        parts = []
        if self.user is not None:
            parts += ["users", _folder(self.user)]
        if self.agent is not None:
            parts += ["agents", self.agent]
        return "/".join(parts)

    @classmethod
    def in_folder(cls, folder: str) -> Scope | None:
        """Return the scope whose place this is, read from the spelling; None where it is cut or no scope's."""
        parts = folder.split("/") if folder else []
        named = dict(zip(parts[::2], parts[1::2], strict=False))
        user, agent = named.get("users"), named.get("agents")
        if user is not None:
            spelled = re.sub(rb"_([0-9a-f]{2})", lambda byte: bytes.fromhex(byte[1].decode()), user.encode())
            user = spelled.decode(errors="replace")
        scope = cls(user, agent)
        return scope if scope.folder == folder else None

    def stream(self, kind: str) -> str:
        """Name one of the scope's two streams: LEDGER or TRANSCRIPT."""
        return f"{self.folder}/{kind}" if self.folder else kind

    def __str__(self) -> str:
        named = [f"user {self.user}"] if self.user is not None else []
        named += [f"agent {self.agent}"] if self.agent is not None else []
        return ", ".join(named) or "global"


def stream_folder(stream: str) -> str:
    """The place below the home that a stream lives in."""
    return stream.rpartition("/")[0]
