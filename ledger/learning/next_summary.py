"""Summary planner: chooses the turns or summaries of a thread to summarise next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backstory.ledger.core.events import Section, Turn, TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey, live_summaries
from backstory.ledger.text.tokens import estimate_tokens
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread

_TOGETHER = 10
"""The number of summaries of one level that become one summary of the next."""


class SummaryLimits(msgspec.Struct, frozen=True):
    """Limits of summaries.

    Attributes:
        min_turns: this many turns make a group to summarise; 0 turns summaries off.
        min_tokens: turns with this many tokens make a group, too.
        max_chars: the most characters of a summary.
    """

    min_turns: int = 10
    min_tokens: int = 4_000
    max_chars: int = 1_200


class SummaryGroup(msgspec.Struct, frozen=True):
    """The sources of one summary: turns, or summaries by the names of their sections, in the order of the turns."""

    level: int
    turns: TurnRange
    sources: tuple[Turn, ...] = ()
    parts: dict[str, Section] = {}


def next_group(
    memory: Memory, coverage: Coverage, thread: Thread, limits: SummaryLimits, *, anyway: bool = False
) -> SummaryGroup | None:
    """Return the group to summarise next, or None where no group is large enough.

    Summaries come before turns, so that no level has many more than ten. Turns are summarised once, even where their
    summary was reverted, cleared or erased. After a failure there is no group until the turns after the failed ones
    make up another; with `anyway`, for a person's request, the failed group is returned again.
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
    # The new summary also covers those of lower levels between them, which a revert has brought back.
    within = {
        summed.section: section
        for summed, section in live
        if turns.first <= summed.turns.first and summed.turns.last <= turns.last
    }
    return SummaryGroup(level, turns, parts=within)


def _enough(turns: Sequence[Turn], limits: SummaryLimits) -> int | None:
    """Return how many turns, from the first on, make up a group, or None where they are too few."""
    tokens = 0
    for count, turn in enumerate(turns, 1):
        tokens += estimate_tokens(turn.content)
        if count >= limits.min_turns or tokens >= limits.min_tokens:
            return count
    return None
