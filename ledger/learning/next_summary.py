"""What of a thread is to be summed up next, if anything is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backstory.ledger.core.events import Section, Turn, TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey, live_summaries
from backstory.ledger.extraction.size import estimate_tokens
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread

__all__ = ["SummaryGroup", "SummaryLimits", "next_group"]

_TOGETHER = 10
"""So many summaries of one level become one of the next."""


class SummaryLimits(msgspec.Struct, frozen=True):
    """What is worth a summary: so many turns, or so many tokens of them; and its characters at most.

    Without turns (0) nothing is summed up.
    """

    min_turns: int = 10
    min_tokens: int = 4_000
    max_chars: int = 1_200


class SummaryGroup(msgspec.Struct, frozen=True):
    """What becomes one summary of a level: turns, or summaries by their sections' names, in the order of the turns."""

    level: int
    turns: TurnRange
    said: tuple[Turn, ...] = ()
    parts: dict[str, Section] = {}


def next_group(
    memory: Memory, coverage: Coverage, thread: Thread, limits: SummaryLimits, *, anyway: bool = False
) -> SummaryGroup | None:
    """Return what is to be summed up next; None where there is not enough of anything.

    Summaries come before turns, so that no level ever has many more than ten. What was summed up once is done with,
    also where that summary was taken back, cleared or erased. After a failure nothing is asked for until there is
    another group of turns; `anyway` where a person asks.
    """
    if not limits.min_turns:
        return None
    failed = coverage.not_summarized(thread)
    if failed and not anyway and _enough(thread.standing(failed + 1), limits) is None:
        return None
    live = live_summaries(memory, thread.name)
    for level in sorted({summed.level for summed, _ in live}):
        done = coverage.summarized(thread, level + 1)
        alike = [summed for summed, _ in live if summed.level == level and summed.turns.first > done]
        if len(alike) >= _TOGETHER:
            return _merging(level + 1, TurnRange(alike[0].turns.first, alike[_TOGETHER - 1].turns.last), live)
    turns = thread.standing(coverage.summarized(thread, 1) + 1)
    count = _enough(turns, limits)
    if count is None:
        return None
    return SummaryGroup(1, TurnRange(turns[0].n, turns[count - 1].n), tuple(turns[:count]))


def _merging(level: int, turns: TurnRange, live: Sequence[tuple[SummaryKey, Section]]) -> SummaryGroup:
    # Those of lower levels between them, which a revert has brought back, are told by the new one as well.
    within = {
        summed.section: section
        for summed, section in live
        if turns.first <= summed.turns.first and summed.turns.last <= turns.last
    }
    return SummaryGroup(level, turns, parts=within)


def _enough(turns: Sequence[Turn], limits: SummaryLimits) -> int | None:
    """How many of the turns, from the first on, make up a group; None where all of them do not."""
    tokens = 0
    for count, turn in enumerate(turns, 1):
        tokens += estimate_tokens(turn.content)
        if count >= limits.min_turns or tokens >= limits.min_tokens:
            return count
    return None
