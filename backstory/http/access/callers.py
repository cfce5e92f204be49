"""Caller of a request: whose memories it may use, and what it may do there."""

from __future__ import annotations

from enum import IntEnum

import msgspec
from starlette.requests import Request

from backstory.home import Backstory
from backstory.ledger.core.errors import ForbiddenError, NotFoundError, ScopeError
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle

__all__ = ["AGENT_HEADER", "LOCAL", "USER_HEADER", "Caller", "Right", "name_in"]

USER_HEADER = "X-Backstory-User"
AGENT_HEADER = "X-Backstory-Agent"


class Right(IntEnum):
    """What a caller may do. Each right includes those before it."""

    READ = 1
    WRITE = 2
    ERASE = 3

    def __str__(self) -> str:
        return self.name.lower()


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request: the name that commits record, a right, and the users whose memories it covers.

    `users` is None for all users; only such a caller sees the memories without a user, and what concerns the whole
    home. `default` is the user of requests that name none.
    """

    name: str
    right: Right
    users: frozenset[str] | None = None
    default: str | None = None

    @property
    def own_user(self) -> str | None:
        """The user of requests that name none: the default, or the only user that the caller may see."""
        if self.users is not None and len(self.users) == 1:
            (only,) = self.users
            return only
        return self.default if self.sees(self.default) else None

    def sees(self, user: str | None) -> bool:
        """Whether the memories of this user, or without a user the shared ones, are visible."""
        return self.users is None or user in self.users

    def scope(self, user: str | None, agent: str | None) -> Scope:
        """Return the scope that a request is about; without a user, that of the caller's own.

        Args:
            user: The user that the request names; None where it names none.
            agent: The agent that it names, if any.

        Raises:
            ScopeError: A name is invalid.
            NotFoundError: The caller may not see it. A memory that does not exist gives the same answer.
        """
        scope = Scope.of(self.own_user if user is None else user, agent)
        if not self.sees(scope.user):
            raise NotFoundError(f"there is no memory of {scope} here: name a user that this token covers")
        return scope

    def memory(self, home: Backstory, user: str | None, agent: str | None, right: Right) -> MemoryHandle:
        """Return a memory that acts for this caller: commits record its name as their actor.

        Args:
            home: The home of the memory.
            user: The user that the request names; None where it names none.
            agent: The agent that it names, if any.
            right: The right that the request needs.

        Raises:
            ScopeError: A name is invalid.
            NotFoundError: The caller may not see this memory.
            ForbiddenError: The caller sees it and lacks the right.
        """
        scope = self.scope(user, agent)
        self.must_have(right)
        return home.memory_of(scope).by(self.name)

    def must_have(self, right: Right) -> None:
        """Refuse what needs a higher right.

        Raises:
            ForbiddenError: The caller lacks the right.
        """
        if self.right < right:
            raise ForbiddenError(f"this needs a token with the right to {right}, and {self.name} may only {self.right}")


LOCAL = Caller("http", Right.ERASE)
"""The caller of a server without tokens, which answers on this machine alone."""


def name_in(request: Request, header: str) -> str | None:
    """Return the name in a header; None where there is no such header.

    Raises:
        ScopeError: The header is there twice, or its value is not UTF-8.
    """
    values = request.headers.getlist(header)
    if len(values) > 1:
        raise ScopeError(f"{header} is sent {len(values)} times: send it once")
    try:
        # Headers arrive as Latin-1; what clients send is UTF-8.
        return values[0].encode("latin-1").decode() if values else None
    except UnicodeDecodeError as error:
        raise ScopeError(f"{header} is not UTF-8: encode the name so") from error
