"""Audit of an answer: what the agent had been given to read when it said something, as the turn notes it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.memory import Memory
from backstory.projections.context.given import Given, given_digest
from backstory.projections.history.audit import Evidence


class GivenFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact that an answer was given.

    Attributes:
        id: its id.
        live: whether it is in memory now.
        content: its text at that time; None where it was erased since.
        category: its category at that time.
        confidence: its confidence at that time.
    """

    id: str
    live: bool
    content: str | None = None
    category: str | None = None
    confidence: float | None = None


class WhySaid(msgspec.Struct, frozen=True):
    """What an answer had been given.

    Attributes:
        turn: the id of the answer's turn.
        thread: its conversation.
        role: who said it.
        content: what was said.
        at: when.
        noted: whether the turn notes what it was given; without a note all that follows is empty.
        seq: the commit that memory stood at.
        digest: the digest of what was given.
        holds: whether the digest is that of this commit and these ids.
        of_user: whether the agent had no memory of its own and was given its user's.
        facts: the facts, in the order of the block.
        turns: the turns.
    """

    turn: str
    thread: str
    role: str
    content: str
    at: str
    noted: bool = False
    seq: int | None = None
    digest: str | None = None
    holds: bool = False
    of_user: bool = False
    facts: tuple[GivenFact, ...] = ()
    turns: tuple[Evidence, ...] = ()


def said_without_note(turn: Evidence) -> WhySaid:
    """Return what is known of a turn that notes nothing."""
    return WhySaid(turn.turn, turn.thread, turn.role, turn.content, turn.at)


def why_said(turn: Evidence, given: Given, heads: Sequence[Head], then: Memory, now: Memory) -> WhySaid:
    """Explain an answer.

    Args:
        turn: the turn of the answer.
        given: what it notes.
        heads: the head that memory stood at, and the user's where both were read; none where a ledger has no such
            commit.
        then: memory at that moment.
        now: memory now.
    """
    facts = []
    for fact_id in given.facts:
        fact, live = then.facts.get(fact_id), fact_id in now.facts
        if fact is None:
            facts.append(GivenFact(fact_id, live))
        else:
            facts.append(GivenFact(fact_id, live, fact.content, fact.category, fact.confidence))
    return msgspec.structs.replace(
        said_without_note(turn),
        noted=True,
        seq=given.seq,
        digest=given.digest,
        holds=bool(heads) and given_digest(heads, given.facts, given.turns) == given.digest,
        of_user=given.of_user,
        facts=tuple(facts),
    )
