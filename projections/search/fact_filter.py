"""Facts by category, source and day, so that a narrow search does not scan all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.core.events import Fact

_DAY = 10
"""Characters of a time that give its day."""


class FactFilter:
    """Facts by category, by source and by day, each by its id; not safe for threads."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._categories: dict[str, dict[str, Fact]] = {}
        self._sources: dict[str, dict[str, Fact]] = {}
        self._days: dict[str, dict[str, Fact]] = {}
        for fact in facts:
            self.put(fact)

    def _places(self, fact: Fact) -> Iterator[tuple[dict[str, dict[str, Fact]], str]]:
        yield self._categories, fact.category
        yield self._sources, fact.source
        yield self._days, fact.created_at[:_DAY]

    def put(self, fact: Fact) -> None:
        """File a fact that is not."""
        for files, name in self._places(fact):
            files.setdefault(name, {})[fact.id] = fact

    def drop(self, fact: Fact) -> None:
        """Take a fact out that was filed as it is."""
        for files, name in self._places(fact):
            del files[name][fact.id]
            if not files[name]:
                del files[name]

    def smallest(
        self, category: str | None, source: str | None, since: str | None, until: str | None
    ) -> list[Mapping[str, Fact]]:
        """Return files that hold all of a category and source, from `since` on and before `until`, and other facts.

        They are those that hold the fewest by one of these alone; None bounds nothing. They are for reading only, and
        go on changing.
        """
        choices: list[list[Mapping[str, Fact]]] = []
        if category is not None:
            choices.append([self._categories.get(category, {})])
        if source is not None:
            choices.append([self._sources.get(source, {})])
        first, last = (since or "")[:_DAY], (until or _LATEST)[:_DAY]
        if since is not None or until is not None or not choices:
            choices.append([ids for day, ids in self._days.items() if first <= day <= last])
        return min(choices, key=lambda files: sum(map(len, files)))


_LATEST = "~"
"""Behind every time that there is."""
