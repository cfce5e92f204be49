"""Context: the memory block of a prompt, chosen by relevance within a budget of tokens. May import the ledger."""

from __future__ import annotations

from backstory.projections.context.block import Blocks, Context, ScopeBlocks, Shares
from backstory.projections.context.counting import tokens_for
from backstory.projections.context.given import Given, GivenTurn, given_digest
from backstory.projections.context.relevance import last_words

__all__ = [
    "Blocks",
    "Context",
    "Given",
    "GivenTurn",
    "ScopeBlocks",
    "Shares",
    "given_digest",
    "last_words",
    "tokens_for",
]
