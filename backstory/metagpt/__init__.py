"""MetaGPT's Memory over a transcript: `memory.turns`. May import the ledger, projections and `results`."""

from __future__ import annotations

from backstory.metagpt.access import TurnAccess
from backstory.metagpt.turns import DEFAULT_THREAD, Turns

__all__ = ["DEFAULT_THREAD", "TurnAccess", "Turns"]
