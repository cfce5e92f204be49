"""Flush: what it waits for, and its result, which says whether everything was done and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

import msgspec

from backstory.ledger.core.scope import Scope

ConversationKey = tuple[Scope, str]
"""A thread of a scope."""


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


class Flush(msgspec.Struct):
    """A flush in progress: the conversations that it waits for, and what went wrong in them.

    `faulty` are those in which nothing was settled.
    """

    wanted: set[ConversationKey]
    troubles: dict[ConversationKey, str] = {}
    faulty: set[ConversationKey] = set()

    def report(self, key: ConversationKey, trouble: str, *, faulty: bool) -> None:
        """Note what went wrong in a conversation, if this flush waits for it."""
        if key in self.wanted:
            self.troubles[key] = f"{key[0]}, thread {key[1]}: {trouble}"
            (self.faulty.add if faulty else self.faulty.discard)(key)

    def outcome(
        self, left: Sequence[ConversationKey], *, elsewhere: Container[ConversationKey], closed: bool
    ) -> Flushed:
        """Return how it ended.

        Args:
            left: The conversations that were not learned from.
            elsewhere: Those that other processes work on.
            closed: Whether the producer ends.
        """
        theirs = [key for key in left if key in elsewhere]
        ours = [key for key in left if key not in elsewhere]
        why = "the home was closed" if closed else "the time was over"
        return Flushed.unless(
            None if not ours else f"{why} before {_named(ours)} was learned from: the turns stay pending",
            None if not theirs else f"another process works on {_named(theirs)}: flush again later",
            *self.troubles.values(),
            unfinished=bool(left or self.faulty),
        )


def _named(keys: Collection[ConversationKey]) -> str:
    scope, thread = min(keys, key=str)
    more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
    return f"thread {thread} of {scope}{more}"
