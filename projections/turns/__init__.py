"""The memory of a conversation: what was said and stands, in the order it was recorded, and quick ways to find it."""

from __future__ import annotations

from backstory.projections.turns.follower import Follower, Followers, Gone, News, Seen
from backstory.projections.turns.log import Lens, Look, TurnLog, TurnLogs
from backstory.projections.turns.rows import Row, TurnView, Words, same_words, words_of
from backstory.projections.turns.turn_index import TO_ALL, Board

__all__ = [
    "TO_ALL",
    "Board",
    "Follower",
    "Followers",
    "Gone",
    "Lens",
    "Look",
    "News",
    "Row",
    "Seen",
    "TurnLog",
    "TurnLogs",
    "TurnView",
    "Words",
    "same_words",
    "words_of",
]
