"""Joined memory: the facts of an agent with those of its user, for reading alone; the ledgers stay apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope

USERS = "user:"
"""Begins the id of a user's fact in a joined memory: the ids of two ledgers may be the same."""


class OwnedFact(Fact, frozen=True, kw_only=True):
    """A fact in memory, with whose it is."""

    owner: Scope

    @property
    def shown_id(self) -> str:
        """The id as people are shown it; see `shown_id`."""
        return shown_id(self.id, self.owner)


class Joined(msgspec.Struct, frozen=True):
    """An agent's memory joined with its user's.

    Attributes:
        own: The agent's memory.
        users: The user's memory.
        memory: The agent's memory with the user's facts, whose ids begin with `USERS`, and with the user's text of each
            section that the agent has not written.
    """

    own: Memory
    users: Memory
    memory: Memory

    def facts(self, agent: Scope) -> list[OwnedFact]:
        """Return the facts with their owners and their own ids, oldest first."""
        user = Scope(agent.user)
        found = [
            _owned(msgspec.structs.replace(fact, id=fact.id.removeprefix(USERS)), user)
            if fact.id.startswith(USERS)
            else _owned(fact, agent)
            for fact in self.memory.facts.values()
        ]
        return sorted(found, key=lambda fact: (fact.created_at, fact.owner is agent, fact.seq, fact.place))


def join(own: Memory, users: Memory, before: Joined | None = None) -> Joined:
    """Join the memories of an agent and its user; of equal facts the agent's stays.

    Args:
        own: The agent's memory.
        users: The user's memory.
        before: An earlier result for the same agent, whose objects are used again where nothing has changed.
    """
    if before is not None and before.own is own and before.users is users:
        return before
    said = {dedup_key(fact.content, own.policy.dedup_key) for fact in own.facts.values()}
    was, known = ({}, {}) if before is None else (before.users.facts, before.memory.facts)
    marked = {
        key: known[key] if fact is was.get(fact.id) and key in known else msgspec.structs.replace(fact, id=key)
        for fact in users.facts.values()
        if dedup_key(fact.content, own.policy.dedup_key) not in said
        for key in (f"{USERS}{fact.id}",)
    }
    sections = own.sections | {
        name: users.sections[name]
        for name in DOCUMENT_SECTIONS
        if name in users.sections and not own.section(name).summary
    }
    return Joined(own, users, msgspec.structs.replace(own, facts=own.facts | marked, sections=sections))


class SaysWhen(Protocol):
    """A text, and when it was true."""

    @property
    def content(self) -> str:
        """The text."""

    @property
    def valid_from(self) -> str | None:
        """From when on, as it was stated."""

    @property
    def valid_until(self) -> str | None:
        """Until when."""


def period_key(fact: SaysWhen) -> tuple[str, str | None, str | None]:
    """Return what facts that say the same of the same time have in common."""
    return dedup_key(fact.content), fact.valid_from, fact.valid_until


def join_periods(own: Sequence[Fact], users: Sequence[Fact], agent: Scope) -> tuple[OwnedFact, ...]:
    """Join facts that were true at some time, those of an agent and of its user; of equal ones the agent's stays."""
    known = set(map(period_key, own))
    theirs = (_owned(fact, Scope(agent.user)) for fact in users if period_key(fact) not in known)
    return tuple(sorted([*(_owned(fact, agent) for fact in own), *theirs], key=lambda fact: fact.created_at))


def _owned(fact: Fact, owner: Scope) -> OwnedFact:
    return OwnedFact(**msgspec.structs.asdict(fact), owner=owner)


def shown_id(fact_id: str, owner: Scope | None) -> str:
    """Return the id of a fact as people and models are shown it: a user's begins with `USERS`.

    An agent that took it for the id of a fact of its own would change another fact.
    """
    return fact_id if owner is None or owner.agent is not None else f"{USERS}{fact_id}"


def parted(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the ids of the agent's facts and those of the user's, of ids in a joined memory."""
    own, users = [], []
    for key in keys:
        if key.startswith(USERS):
            users.append(key.removeprefix(USERS))
        else:
            own.append(key)
    return own, users
