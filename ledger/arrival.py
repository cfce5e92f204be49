"""Which messages of a delivery are new to a thread, and what they replace.

A host sends either the whole conversation each time or only what is new. A message with an id is known by (thread, id);
messages without one are aligned, as a sequence, with the end of what is recorded. Of a turn that was erased the id and
the length are known, so that it stays out when it is sent again. A turn that was taken back stays out, too, unless it
is said to be new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ledger.events import Event, Turn, TurnRange, TurnRecorded, TurnSuperseded
from ledger.transcript import Thread, Trace

if TYPE_CHECKING:
    from ledger.messages import Kept

__all__ = ["Arrival", "receive"]


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


def receive(thread: Thread, messages: Sequence[Kept], at: str, *, append: bool = False, highest: int = 0) -> Arrival:
    """Tell what of a delivery is new to a thread, and what it replaces; ordinals up to `highest` are taken.

    Same id and text: known. Same id, new text: a new revision. Without ids: what the end of the thread and the start of
    the delivery share is known; if instead both begin alike and then part, the thread's part that diverges is
    superseded. With `append` every message without an id is new. What was taken back is known, too: a host that sends
    it among the rest does not mean to say it again. With `append` it does.
    """
    by_id = _last_of_each_id(messages)
    anonymous = [message for message in messages if message.id is None]
    skip, superseded = (0, []) if append else _align(thread, anonymous, mixed=len(anonymous) != len(messages))
    gone = _gone(thread)
    fresh: list[Kept] = []
    seen_anonymous = 0
    for message in messages:
        if message.id is None:
            seen_anonymous += 1
            if seen_anonymous > skip:
                fresh.append(message)
        elif by_id[message.id] is message and not _was_erased(thread, message, gone.get(message.id, ())):
            n = thread.latest.get(message.id)
            remembered = n is not None and (thread.stands(n) or (n in thread.withdrawn and not append))
            before = thread.turns[n - 1] if n is not None and remembered else None
            if before is None:
                fresh.append(message)
            elif (before.role, before.content) != (message.role, message.content):
                fresh.append(message)
                if thread.stands(before.n):
                    superseded.append(before.n)
    return Arrival(tuple(fresh), max(len(thread.turns), highest) + 1, tuple(superseded), at)


def _gone(thread: Thread) -> dict[str, list[Trace]]:
    """What is left of the erased turns of each id."""
    gone: dict[str, list[Trace]] = {}
    for trace in thread.traces.values():
        gone.setdefault(trace.id, []).append(trace)
    return gone


def _was_erased(thread: Thread, message: Kept, traces: Sequence[Trace]) -> bool:
    """Whether a message is an erased turn come again.

    Its id says so, unless it may have been ours, or a later text under it still stands; then its length does, too.
    """
    known = message.id in thread.latest
    return any(not (trace.anonymous or known) or len(message.content) == trace.size for trace in traces)


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
    recorded = [turn for turn in _remembered(thread) if turn.anonymous or not mixed]
    new = [(message.role, message.content) for message in messages]
    if thread.withdrawn:
        alike, rest, overlap = _align_past(recorded, thread.withdrawn, new)
    else:
        if thread.traces:
            overlap = _overlap_with_traces(recorded, new)
        else:
            overlap = _overlap([_said(turn) for turn in recorded], new)
        pairs = enumerate(zip(recorded, new, strict=False))
        alike = next((i for i, (a, b) in pairs if not _matches(a, b)), min(len(recorded), len(new)))
        rest = recorded[alike:]
    if alike == len(new):
        # Several that begin the thread are an old delivery come late; one alone ("ok") is said again. What was erased
        # is not.
        return (alike if alike > 1 or overlap or isinstance(recorded[0], Trace) else 0), []
    if alike > overlap:
        return alike, [turn.n for turn in rest if isinstance(turn, Turn) and turn.n not in thread.superseded]
    return overlap, []


def _align_past(
    old: Sequence[Turn | Trace], withdrawn: Collection[int], new: Sequence[_Said]
) -> tuple[int, Sequence[Turn | Trace], int]:
    """Align where turns were taken back: a host that knows of it leaves them out, and one that does not sends them.

    Returns how many messages both begin with alike, the turns behind those, and how many messages are the thread's end.
    """
    walk = _Walk(old, withdrawn)
    ways = deque(enumerate(walk.along(1, new)), maxlen=1)
    alike, places = ways[0]
    everywhere = (1 << (len(old) + 1)) - 1
    overlap = max(count for count, ends in enumerate(walk.along(everywhere, new)) if ends >> len(old))
    # Of several ways the one that leaves least behind: nothing is superseded for the sake of what is gone anyhow.
    return alike, old[places.bit_length() - 1 :], overlap


class _Walk:
    """Walks messages along turns of which some may be passed over.

    The turns before which one may stand are the bits of a number, so that all ways are walked at once.
    """

    def __init__(self, old: Sequence[Turn | Trace], passable: Collection[int]) -> None:
        self._said: dict[_Said, list[int]] = {}
        self._sizes: dict[int, list[int]] = {}
        """Where something was erased, by its length: it may have been said by anybody."""
        for place, turn in enumerate(old):
            if isinstance(turn, Turn):
                self._said.setdefault(_said(turn), []).append(place)
            else:
                self._sizes.setdefault(turn.size, []).append(place)
        self._passable = _bits(place for place, turn in enumerate(old) if turn.n in passable)
        self._known: dict[_Said, int] = {}

    def along(self, places: int, new: Sequence[_Said]) -> Iterator[int]:
        """Yield before which turns one may stand after no message, after one, and so on, as long as there are any."""
        places = self._passing(places)
        yield places
        for message in new:
            places = self._passing((places & self._saying(message)) << 1)
            if not places:
                return
            yield places

    def _saying(self, message: _Said) -> int:
        known = self._known.get(message)
        if known is None:
            places = (*self._said.get(message, ()), *self._sizes.get(len(message[1]), ()))
            known = _bits(places)
            if len(places) > 1:
                # Each is as long as the thread, so those that cost next to nothing to make are not kept.
                self._known[message] = known
        return known

    def _passing(self, places: int) -> int:
        # A one that is added to a run of ones turns over all from there to the first behind the run.
        return places | (self._passable ^ (self._passable + (places & self._passable)))


def _bits(places: Iterable[int]) -> int:
    found = bytearray()
    for place in places:
        byte, bit = divmod(place, 8)
        if byte >= len(found):
            found.extend(bytes(byte + 1 - len(found)))
        found[byte] |= 1 << bit
    return int.from_bytes(found, "little")


def _remembered(thread: Thread) -> Sequence[Turn | Trace]:
    """The turns that stand or were taken back, and what is left of those that did when they were erased, in order."""
    if not thread.traces and not thread.withdrawn:
        return thread.standing()
    left = [thread.traces.get(n) if turn is None else turn for n, turn in enumerate(thread.turns, 1)]
    replaced = thread.superseded - thread.withdrawn
    return [turn for turn in left if turn is not None and turn.n not in replaced]


_Said = tuple[str, str]


def _said(turn: Turn | Trace) -> _Said:
    return (turn.role, turn.content) if isinstance(turn, Turn) else ("", "")


def _matches(old: Turn | Trace, new: _Said) -> bool:
    """Whether a message is a turn come again; of an erased one nothing but its length can tell."""
    return len(new[1]) == old.size if isinstance(old, Trace) else _said(old) == new


def _overlap_with_traces(old: Sequence[Turn | Trace], new: Sequence[_Said]) -> int:
    """As `_overlap`; a trace may match many messages, which the linear way cannot know."""
    for length in range(min(len(old), len(new)), 0, -1):
        if all(_matches(a, b) for a, b in zip(old[len(old) - length :], new, strict=False)):
            return length
    return 0


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
