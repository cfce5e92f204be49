"""What the summaries of threads were merged from: where one goes, what of that stays tells the thread again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Section, SummaryUpdated
from backstory.ledger.core.summaries import SummaryKey

__all__ = ["SummarySources"]


class SummarySources:
    """The sections that each merging took out of memory, by the name of the one that it put there."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Section]] = {}

    def take(self, commit: Commit) -> None:
        """Take a commit of the ledger in."""
        cause = commit.cause
        if cause.kind != "summary" or cause.thread is None or cause.summarized is None:
            return
        taken = {
            event.section: event.before
            for event in commit.events
            if isinstance(event, SummaryUpdated) and event.after == Section()
        }
        if taken:
            self._parts[SummaryKey(cause.thread, cause.level, cause.summarized).section] = taken

    def again(self, live: Iterable[str], gone: Collection[str]) -> Iterator[SummaryUpdated]:
        """Yield, of the live sections that go, what they were merged from and does not, be it far down."""
        for name in live:
            if name in gone:
                yield from self._below(name, gone)

    def _below(self, name: str, gone: Collection[str]) -> Iterator[SummaryUpdated]:
        for part, section in self._parts.get(name, {}).items():
            if part in gone:
                yield from self._below(part, gone)
            else:
                yield SummaryUpdated(part, Section(), section)
