"""Caller of a request: whose memories it may use, and what it may do there."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from backstory.home import Backstory
from backstory.ledger.core.errors import ForbiddenError, NotFoundError
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle

__all__ = ["LOCAL", "Caller", "Right"]


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
