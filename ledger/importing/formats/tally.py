"""Tally of an import: what was left out and refused, by reason; keys that no reader reads; users that a file names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.importing.formats.files import Broken

_MOST_NAMED = 50
_OTHER = "other reasons"


class Tally:
    """What one reading of a file found beside the conversations and facts that it yields.

    Args:
        of: the only user whose items are taken; None for everyone.
    """

    def __init__(self, of: str | None = None) -> None:
        self._of = of
        self.refused: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.users: Counter[str] = Counter()

    def refuse(self, why: str, count: int = 1) -> None:
        """Count items that are refused; there may be any number of reasons, so only the first are kept apart."""
        known = why in self.refused or len(self.refused) < _MOST_NAMED
        self.refused[why if known else _OTHER] += count

    def pass_over(self, what: str, count: int = 1) -> None:
        """Count what a reader leaves out."""
        if count:
            self.left_out[what] += count

    def leave_unread(self, key: str) -> None:
        """Count a key that no reader reads."""
        if key in self.unread or len(self.unread) < _MOST_NAMED:
            self.unread[key[:80]] += 1

    def takes(self, user: object) -> bool:
        """Whether an item of a user is taken."""
        if isinstance(user, str) and user:
            if user in self.users or len(self.users) < _MOST_NAMED:
                self.users[user] += 1
            return self._of in (None, user)
        return self._of is None

    def objects(self, items: Iterable[object]) -> Iterator[Mapping[str, object]]:
        """Yield the objects among parsed items; refuse the others."""
        for item in items:
            if isinstance(item, Mapping):
                yield item
            else:
                self.refuse(item.why if isinstance(item, Broken) else "it is no object")


def fields(value: object) -> Mapping[str, object]:
    """Return an object's fields; none where the value is no object."""
    return value if isinstance(value, Mapping) else {}


def members(value: object) -> list[object]:
    """Return the members of a list; none where the value is no list."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Return a text; "" where the value is none."""
    return value if isinstance(value, str) else ""
