"""Sources of merged thread summaries, which return to memory when the summary they were merged into is erased."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Section, SummaryUpdated
from backstory.ledger.core.summaries import SummaryKey

__all__ = ["SummarySources"]


class SummarySources:
    """The sections that each merged summary replaced, by the name of its section."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, Section]] = {}

    def take(self, commit: Commit) -> None:
        """Collect the sources of the summary that a commit holds, if any."""
        cause = commit.cause
        if cause.kind != "summary" or cause.thread is None or cause.summarized is None:
            return
        sources = {
            event.section: event.before
            for event in commit.events
            if isinstance(event, SummaryUpdated) and event.after == Section()
        }
        if sources:
            self._sources[SummaryKey(cause.thread, cause.level, cause.summarized).section] = sources

    def restated(self, live: Iterable[str], erased: Collection[str]) -> Iterator[SummaryUpdated]:
        """Yield the events that bring back the sources, through all levels, of live sections that are erased.

        Args:
            live: the names of the live sections.
            erased: the names of the erased sections; these do not come back.
        """
        for name in live:
            if name in erased:
                yield from self._sources_of(name, erased)

    def _sources_of(self, name: str, erased: Collection[str]) -> Iterator[SummaryUpdated]:
        for source, section in self._sources.get(name, {}).items():
            if source in erased:
                yield from self._sources_of(source, erased)
            else:
                yield SummaryUpdated(source, Section(), section)
