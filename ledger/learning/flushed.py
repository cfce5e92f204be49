"""Result of a flush: whether everything was done, and if not, why."""

from __future__ import annotations

import msgspec


class Flushed(msgspec.Struct, frozen=True):
    """The result of `flush`: true where `done`; otherwise `reason` says what is left, why, and what to do.

    `unfinished` is true where some of it is still under way or is tried again: more time may finish it. It is false
    where nothing extracts, and where an update failed, which parks its turns for `retry`.
    """

    done: bool
    reason: str | None = None
    unfinished: bool = False

    def __bool__(self) -> bool:
        """Whether everything was done."""
        return self.done

    @classmethod
    def unless(cls, *reasons: str | None, unfinished: bool = False) -> Flushed:
        """Combine what may have gone wrong; done where nothing has."""
        found = [reason for reason in reasons if reason is not None]
        return cls(not found, "; ".join(found) or None, unfinished)
