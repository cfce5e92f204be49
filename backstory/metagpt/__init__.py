"""`memory.turns`: the turns of a memory as MetaGPT's agents use their Memory, over a transcript that keeps them."""

from __future__ import annotations

from backstory.metagpt.access import TurnAccess
from backstory.metagpt.changes import DEFAULT_THREAD
from backstory.metagpt.twins import Turns

__all__ = ["DEFAULT_THREAD", "TurnAccess", "Turns"]
