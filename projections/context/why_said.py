"""Audit of an answer: what the agent had been given to read when it said something, as the turn notes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.memory import Memory
from backstory.projections.context.given import Given, GivenTurn, given_digest
from backstory.projections.history.audit import Evidence, Logs, evidence_in


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


class QuotedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn that an answer was given.

    Attributes:
        turn: its id.
        thread: its conversation.
        role: who said it; None where it was erased since, as all that follows.
        content: what was said, of which the answer was given an excerpt.
        at: when.
        name: the speaker's name.
        withdrawn: whether its words stand no longer: they were edited, replaced or taken back.
    """

    turn: str
    thread: str
    role: str | None = None
    content: str | None = None
    at: str | None = None
    name: str | None = None
    withdrawn: bool = False


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
        turns: the turns, in the order of the block.
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
    turns: tuple[QuotedTurn, ...] = ()


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


def quoted_turns(logs: Logs, turns: Iterable[GivenTurn], until: str) -> tuple[QuotedTurn, ...]:
    """Return the turns that an answer of a time was given, with the words that they had then."""
    return tuple(_quoted(logs, one, until) for one in turns)


def _quoted(logs: Logs, one: GivenTurn, until: str) -> QuotedTurn:
    known = [turn for turn in logs.turns(one.thread) if turn.id == one.id]
    if not known:
        return QuotedTurn(one.id, one.thread)
    # A turn that was sent again under its id has other words since.
    said = next((turn for turn in reversed(known) if turn.at <= until), known[-1])
    (words,) = evidence_in(logs, one.thread, [said])
    return QuotedTurn(one.id, one.thread, words.role, words.content, words.at, words.name, words.withdrawn)
