"""Assumptions of the plan: what users do, what a model and a server cost, and sizes that were measured.

Each field is an option of the command line. Prices are assumptions of November 2026 in US dollars, of no particular
provider: replace them by your own.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backstory.ledger.threads.due import Timing

__all__ = ["CURVE", "EXCHANGES", "Assumptions"]

EXCHANGES = (1, 3, 3, 4, 5, 5, 8, 9, 11, 12, 22)
"""Deciles of the exchanges in a conversation, from the shortest to the longest, of 287 conversations.

They are those of LoCoMo (128) and of MemoryBank in English and Chinese (159). An exchange is two messages.
"""

CURVE = (3, 2, 1, 1, 1, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 8, 9, 9, 7, 5)
"""How many conversations begin in each hour of a day, in proportion: users of one region, who talk in the evening."""


class Assumptions(BaseModel):
    """What the plan assumes; sizes are those of real conversations and updates as this version stores them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: int = Field(10_000_000, ge=1_000, description="users who have a memory")
    active: float = Field(0.1, gt=0, le=1, description="share of them who talk on a day")
    conversations: float = Field(2, gt=0, le=100, description="conversations of an active user on a day")
    gap_seconds: float = Field(45, gt=0, description="median time between two exchanges of a conversation")
    gap_sigma: float = Field(1, ge=0, le=3, description="spread of that time, of its logarithm")
    debounce_seconds: float = Field(Timing().debounce, ge=0, le=300, description="as in the configuration")
    max_wait_seconds: float = Field(Timing().max_wait, ge=1, description="as in the configuration")

    model_seconds: float = Field(5, gt=0, description="median time of a model's answer to an update")
    model_sigma: float = Field(0.5, ge=0, le=3, description="spread of that time, of its logarithm")
    threads: int = Field(16, ge=1, le=32, description="`workers` of the configuration: updates at a time in a process")
    pause_seconds: float = Field(0.5, ge=0, description="`min_seconds_between_calls` of the configuration")
    spare: float = Field(0.25, ge=0, description="workers beyond what the busiest minutes keep busy, in parts of these")

    exchange_bytes: int = Field(950, gt=0, description="line of a transcript with one exchange")
    update_bytes: int = Field(940, gt=0, description="line of an update")
    update_bytes_per_turn: int = Field(290, ge=0, description="and for each turn it learns from")
    prompt_tokens: int = Field(5_400, ge=0, description="prompt of an update of a memory of 100 facts")
    prompt_tokens_per_turn: int = Field(40, ge=0, description="and for each turn")
    reply_tokens: int = Field(40, ge=0, description="answer to it")
    reply_tokens_per_turn: int = Field(23, ge=0, description="and for each turn")

    price_prompt: float = Field(0.40, ge=0, description="dollars for a million tokens of prompt")
    price_reply: float = Field(1.60, ge=0, description="dollars for a million tokens of answer")
    price_disk: float = Field(0.10, ge=0, description="dollars for a gigabyte of disk and month")
    price_server: float = Field(60, ge=0, description="dollars for a server of 2 cores and 8 GB and month")

    sample: int = Field(200, ge=1, description="users that each simulated one stands for")
    seed: int = Field(7, description="of the simulation's chance")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.conversations_a_day < 100 * self.sample:
            raise ValueError("fewer than 100 conversations would be simulated: make sample smaller")
        return self

    @property
    def conversations_a_day(self) -> float:
        return self.users * self.active * self.conversations

    @property
    def timing(self) -> Timing:
        return Timing(self.debounce_seconds, self.max_wait_seconds)
