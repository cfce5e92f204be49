"""Turns: those of a scope that stand, in the order they were recorded, and fast ways to find them."""

from __future__ import annotations

from backstory.projections.turns.follower import FollowerOrigin, Gone, KnownTurns, NewTurns, Seen, TurnFollower
from backstory.projections.turns.log import TO_ALL, TurnFilter, TurnIndex, TurnLog, TurnQuery
from backstory.projections.turns.rows import MessageWords, TurnRow, TurnView, same_words, words_of

__all__ = [
    "TO_ALL",
    "FollowerOrigin",
    "Gone",
    "KnownTurns",
    "MessageWords",
    "NewTurns",
    "Seen",
    "TurnFilter",
    "TurnFollower",
    "TurnIndex",
    "TurnLog",
    "TurnQuery",
    "TurnRow",
    "TurnView",
    "same_words",
    "words_of",
]
