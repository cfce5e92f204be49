"""`memory.turns`: the turns of a memory as MetaGPT's agents use their Memory, over a transcript that keeps them."""

from __future__ import annotations

from backstory.turns.door import Door
from backstory.turns.twins import Turns
from backstory.turns.writing import DEFAULT_THREAD

__all__ = ["DEFAULT_THREAD", "Door", "Turns"]
