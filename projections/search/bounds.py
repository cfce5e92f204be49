"""What a search is narrowed to: a category, a thread, a span of time; all of it before anything is ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ledger.clock import parse_moment, spell_moment
from ledger.errors import UsageError
from ledger.events import Fact
from ledger.policy import CATEGORIES
from projections.search.corpus import Turns

__all__ = ["SPACES", "Bounds"]

SPACES = ("facts", "turns")
"""What there is to search in."""


class Bounds(msgspec.Struct, frozen=True):
    """Only what is of this category, of this thread, from `since` on and before `until`; None bounds nothing.

    Of a fact the thread is its source and the time its creation. Make one with `Bounds.read`.
    """

    category: str | None = None
    thread: str | None = None
    since: str | None = None
    until: str | None = None

    @classmethod
    def read(
        cls, within: str, *, category: str | None, thread: str | None, since: str | None, until: str | None
    ) -> Bounds:
        """Check what a search was asked to keep to.

        Raises:
            UsageError: there is no such place to search in, no such category, or a time is none.
        """
        if within not in SPACES:
            raise UsageError(f"{within!r} cannot be searched; search within {' or '.join(SPACES)}")
        if category is not None and within != "facts":
            raise UsageError("only facts have a category: leave it out, or search within facts")
        if category not in (None, *CATEGORIES):
            raise UsageError(f"{category!r} is no category; they are {', '.join(CATEGORIES)}")
        return cls(category, thread, _moment(since), _moment(until))

    def of_facts(self, facts: Mapping[str, Fact]) -> set[str] | None:
        """Return the ids of the facts that lie within; None where nothing is bounded."""
        if self == _EVERYTHING:
            return None
        # One condition at a time, and only those that were stated: there may be very many facts.
        found: Iterable[Fact] = facts.values()
        if self.category is not None:
            found = [fact for fact in found if fact.category == self.category]
        if self.thread is not None:
            found = [fact for fact in found if fact.source == self.thread]
        if self.since is not None:
            found = [fact for fact in found if fact.created_at >= self.since]
        if self.until is not None:
            found = [fact for fact in found if fact.created_at < self.until]
        return {fact.id for fact in found}

    def of_turns(self, turns: Turns) -> set[str] | None:
        """Return the keys of the turns that lie within; None where nothing is bounded."""
        if self == _EVERYTHING:
            return None
        found = (turns.standing if self.thread is None else turns.of(self.thread)).items()
        first, end = self.since or "", self.until or _LATEST
        return {key for key, said in found if first <= said.at < end}


_EVERYTHING = Bounds()
_LATEST = "~"
"""Behind every time that there is."""


def _moment(text: str | None) -> str | None:
    if text is None:
        return None
    moment = parse_moment(text)
    if moment is None:
        raise UsageError(f"{text!r} is no time in ISO 8601, as 2026-03-12T10:30:00Z")
    return spell_moment(moment)
