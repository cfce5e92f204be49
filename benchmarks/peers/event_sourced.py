"""A memory as an aggregate of the package eventsourcing, which finds its classes by their place in a module."""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event

__all__ = ["Memory", "MemoryApplication"]


class Memory(Aggregate):
    """The facts of a user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.facts: list[str] = []

    @staticmethod
    def create_id(user: str) -> UUID:
        """Return the id of a user's memory."""
        return uuid5(NAMESPACE_URL, user)

    @event("FactAdded")
    def add(self, text: str) -> None:
        """Add a fact."""
        self.facts.append(text)


class MemoryApplication(Application[UUID]):
    """Keeps memories."""

    def memory(self, user: str) -> Memory:
        """Return the memory of a user, which may be new."""
        try:
            found: Memory = self.repository.get(Memory.create_id(user))
        except AggregateNotFoundError:
            found = Memory(user)
            self.save(found)
        return found
