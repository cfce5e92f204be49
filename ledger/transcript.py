"""What was said: the threads of one scope, folded from its transcript, and which messages are new to them.

A host sends either the whole conversation each time or only what is new. A message with an id is known by (thread, id);
messages without one are aligned, as a sequence, with the end of what is recorded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import msgspec

from ledger.commit import EMPTY, Commit
from ledger.events import Event, Turn, TurnRange, TurnRecorded, TurnSuperseded
from ledger.messages import Kept

__all__ = ["Arrival", "Thread", "Transcript", "receive"]


class Thread:
    """One conversation: its turns by ordinal, which of them still stand, and the commit that recorded each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns: list[Turn | None] = []
        """By ordinal, from 1 at index 0; None where the content was erased."""
        self.seqs: list[int] = []
        self.recorded_at: list[str] = []
        self.superseded: set[int] = set()
        self.latest: dict[str, int] = {}
        """The ordinal of the last turn under each id that the host gave."""

    def stands(self, n: int) -> bool:
        """Whether the turn is there and was not replaced by another text."""
        return 1 <= n <= len(self.turns) and self.turns[n - 1] is not None and n not in self.superseded

    def standing(self, first: int = 1, last: int | None = None) -> list[Turn]:
        """The turns that stand, in order, between two ordinals, both included."""
        end = len(self.turns) if last is None else last
        return [turn for turn in self.turns[first - 1 : end] if turn is not None and turn.n not in self.superseded]

    def find(self, turn_id: str, within: TurnRange | None = None) -> Turn | None:
        """The turn of an id: its latest text, or the latest one inside a range; the host's ids come before ours."""
        if within is None and (n := self.latest.get(turn_id)) is not None:
            return self.turns[n - 1]
        inside = self.turns if within is None else self.turns[within.first - 1 : within.last]
        found = [turn for turn in inside if turn is not None and turn.id == turn_id]
        return max(found, key=lambda turn: (not turn.anonymous, turn.n), default=None)


class Transcript:
    """All threads of a scope, by first word; fold commits with `apply`."""

    def __init__(self) -> None:
        self.head = EMPTY
        self.at = ""
        self.threads: dict[str, Thread] = {}

    def apply(self, commit: Commit) -> None:
        """Take one commit in."""
        self.head, self.at = commit.head, commit.at
        name, recorded = commit.cause.thread, commit.cause.turns
        if name is None:
            return
        thread = self.threads.setdefault(name, Thread(name))
        for event in commit.events:
            if isinstance(event, TurnSuperseded):
                thread.superseded.add(event.n)
        # The recorded turns stand last in the commit, so that an erased one keeps its ordinal.
        count = 0 if recorded is None else recorded.last - recorded.first + 1
        for event in commit.events[len(commit.events) - count :]:
            turn = event.turn if isinstance(event, TurnRecorded) else None
            thread.turns.append(turn)
            thread.seqs.append(commit.seq)
            thread.recorded_at.append(commit.at)
            if turn is not None and not turn.anonymous:
                thread.latest[turn.id] = turn.n

    @property
    def turn_count(self) -> int:
        """How many turns were ever recorded."""
        return sum(len(thread.turns) for thread in self.threads.values())


class Arrival(msgspec.Struct, frozen=True):
    """What of a delivery is new: those messages, the ordinals they take, and the ordinals they supersede."""

    fresh: tuple[Kept, ...]
    first: int
    superseded: tuple[int, ...]
    at: str

    def commits(self, at_most: int) -> Iterator[tuple[TurnRange, tuple[Event, ...]]]:
        """Cut the arrival into commits of so many turns.

        What is superseded stands in the same commit as the first of what replaces it, so that no crash can part them.
        """
        events: list[Event] = [TurnSuperseded(n) for n in self.superseded]
        for start in range(0, len(self.fresh), at_most):
            part = self.fresh[start : start + at_most]
            first = self.first + start
            events += [TurnRecorded(_turn(message, n, self.at)) for n, message in enumerate(part, first)]
            yield TurnRange(first, first + len(part) - 1), tuple(events)
            events = []


def receive(thread: Thread, messages: Sequence[Kept], at: str, *, append: bool = False) -> Arrival:
    """Tell what of a delivery is new to a thread, and what it replaces.

    Same id and text: known. Same id, new text: a new revision. Without ids: what the end of the thread and the start of
    the delivery share is known; if instead both begin alike and then part, the thread's part that diverges is
    superseded. With `append` every message without an id is new.
    """
    by_id = _last_of_each_id(messages)
    anonymous = [message for message in messages if message.id is None]
    skip, superseded = (0, []) if append else _align(thread, anonymous, mixed=len(anonymous) != len(messages))
    fresh: list[Kept] = []
    seen_anonymous = 0
    for message in messages:
        if message.id is None:
            seen_anonymous += 1
            if seen_anonymous > skip:
                fresh.append(message)
        elif by_id[message.id] is message:
            n = thread.latest.get(message.id)
            before = thread.turns[n - 1] if n is not None and thread.stands(n) else None
            if before is None:
                fresh.append(message)
            elif (before.role, before.content) != (message.role, message.content):
                fresh.append(message)
                superseded.append(before.n)
    return Arrival(tuple(fresh), len(thread.turns) + 1, tuple(superseded), at)


def _last_of_each_id(messages: Sequence[Kept]) -> dict[str, Kept]:
    return {message.id: message for message in messages if message.id is not None}


def _turn(message: Kept, n: int, at: str) -> Turn:
    return Turn(
        n=n,
        id=message.id or f"t{n}",
        role=message.role,
        content=message.content,
        at=message.at or at,
        anonymous=message.id is None,
        name=message.name,
        cause_by=message.cause_by,
        sent_from=message.sent_from,
        send_to=message.send_to,
        metadata=message.metadata,
    )


def _align(thread: Thread, messages: Sequence[Kept], *, mixed: bool) -> tuple[int, list[int]]:
    """Return how many of the messages are known already, and the ordinals of the turns they supersede."""
    if not messages:
        return 0, []
    recorded = [turn for turn in thread.standing() if turn.anonymous or not mixed]
    old = [(turn.role, turn.content) for turn in recorded]
    new = [(message.role, message.content) for message in messages]
    overlap = _overlap(old, new)
    alike = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if alike == len(new):
        # Several that begin the thread are an old delivery come late; one alone ("ok") is said again.
        return (alike if alike > 1 or overlap else 0), []
    if alike > overlap:
        return alike, [turn.n for turn in recorded[alike:]]
    return overlap, []


def _overlap(old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
    """The length of the longest start of `new` that is an end of `old`, in linear time (Knuth, Morris, Pratt)."""
    border = [0] * len(new)
    matched = 0
    for i in range(1, len(new)):
        while matched and new[i] != new[matched]:
            matched = border[matched - 1]
        matched += new[i] == new[matched]
        border[i] = matched
    matched = 0
    for item in old[-len(new) :] if new else ():
        if matched == len(new):
            matched = border[matched - 1]
        while matched and item != new[matched]:
            matched = border[matched - 1]
        matched += item == new[matched]
    return matched
