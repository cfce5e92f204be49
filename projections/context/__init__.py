"""The block of memory that is put before a model: what fits a budget of tokens, by how much it bears on the talk."""

from __future__ import annotations

from backstory.projections.context.block import Context, Shares
from backstory.projections.context.blocks import Blocks
from backstory.projections.context.relevance import last_words
from backstory.projections.context.vocabulary import tokens_for

__all__ = ["Blocks", "Context", "Shares", "last_words", "tokens_for"]
