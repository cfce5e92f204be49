"""A simulated day: conversations begin as the curve says, exchanges are recorded, and workers learn from them.

A conversation is due as `ledger.threads.due` says, for exchanges that are recorded whole: `debounce` seconds after its
last one, or `max_wait` seconds after the first that is not learned from. It is learned from as soon as a slot is free,
from all that was recorded by then, and never twice at once. What is recorded meanwhile is due anew. Unlike in the
product, corrections have no precedence, and no update fails.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from functools import cache

import msgspec

from backstory.ledger.threads.due import Timing
from benchmarks.planning.assumptions import CURVE, EXCHANGES, Assumptions

__all__ = ["Conversation", "Day", "Simulation", "simulate"]

_DAY = 86_400
_WINDOW = 600
"""Peaks are means over so many seconds: in shorter ones a sample is too small."""

_SAID, _DUE, _LEARNED = range(3)


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, for all users: rates are per second, times in seconds."""

    conversations: int
    exchanges: int
    updates: int
    turns_learned: int
    exchanges_mean: float
    exchanges_peak: float
    updates_mean: float
    updates_peak: float
    busy_mean: float
    busy_peak: float
    """Updates under way at the same time, each with a lease."""
    waiting_most: int
    """Conversations that were due and waited for a worker."""
    wait_p50: float
    wait_p99: float
    wait_most: float


class Conversation:
    """A conversation of which so many exchanges are left."""

    __slots__ = ("busy", "due", "last", "left", "opened", "pending", "queued")

    def __init__(self, left: int) -> None:
        self.left = left
        self.pending = 0
        self.opened = self.last = self.due = 0.0
        self.queued = self.busy = False


def _due_at(opened: float, last: float, timing: Timing) -> float:
    """Return when exchanges are due whose first was recorded at one time, and whose last at another."""
    return min(last + timing.debounce, opened + timing.max_wait)


@cache
def simulate(given: Assumptions, slots: int | None = None) -> Day:
    """Simulate a day with so many updates at a time; None for as many as are due."""
    return Simulation(given, slots).run()


class Simulation:
    """The events of a day, in order."""

    def __init__(self, given: Assumptions, slots: int | None) -> None:
        self._given = given
        self._chance = random.Random(given.seed)
        # The model has a chance of its own, so that another debounce, or another number of slots, meets the same day.
        self._models = random.Random(given.seed + 1)
        self._free = math.inf if slots is None else max(1, round(slots / given.sample))
        self._events: list[tuple[float, int, int, Conversation]] = []
        self._order = itertools.count()
        self._queue: deque[tuple[float, Conversation]] = deque()
        windows = _DAY // _WINDOW
        self._said, self._updates, self._busy = [0] * windows, [0] * windows, [0.0] * windows
        self._turns = self._most = 0
        self._waits: list[float] = []

    def run(self) -> Day:
        count = round(self._given.conversations_a_day / self._given.sample)
        for _ in range(count):
            self._begin()
        self.play()
        return self._result(count)

    def play(self) -> None:
        """Let everything happen."""
        actions = (self._say, self._fall_due, self._end)
        while self._events:
            now, _, kind, conversation = heapq.heappop(self._events)
            actions[kind](now, conversation)

    def _begin(self) -> None:
        """Draw a conversation: when it begins, how long it is, and how long each exchange takes."""
        exchanges = max(1, round(_drawn(EXCHANGES, self._chance.random())))
        self.open(_time_of_day(self._chance.random()), Conversation(exchanges))

    def open(self, at: float, conversation: Conversation) -> None:
        """Have a conversation begin at a time."""
        self._push(at, _SAID, conversation)

    def _say(self, now: float, conversation: Conversation) -> None:
        self._said[_window(now)] += 1
        if conversation.pending == 0:
            conversation.opened = now
        conversation.pending += 1
        conversation.last = now
        conversation.left -= 1
        if conversation.left:
            self._push(now + self.gap(conversation), _SAID, conversation)
        if not conversation.queued:
            was_due = conversation.due
            conversation.due = _due_at(conversation.opened, now, self._given.timing)
            # A reminder that comes too early is renewed.
            if was_due <= now:
                self._push(conversation.due, _DUE, conversation)

    def gap(self, conversation: Conversation) -> float:
        """Return how long the next exchange of a conversation takes."""
        del conversation
        return self._chance.lognormvariate(math.log(self._given.gap_seconds), self._given.gap_sigma)

    def _fall_due(self, now: float, conversation: Conversation) -> None:
        if conversation.queued or conversation.busy or not conversation.pending:
            return
        if conversation.due > now:
            self._push(conversation.due, _DUE, conversation)
            return
        conversation.queued = True
        self._queue.append((now, conversation))
        self._work(now)
        self._most = max(self._most, len(self._queue))

    def _work(self, now: float) -> None:
        while self._queue and self._free > 0:
            self._free -= 1
            since, conversation = self._queue.popleft()
            self._waits.append(now - since)
            self.learn(now, conversation)

    def learn(self, now: float, conversation: Conversation) -> None:
        """Begin an update."""
        self._turns += 2 * conversation.pending
        conversation.pending = 0
        conversation.queued, conversation.busy = False, True
        took = self._models.lognormvariate(math.log(self._given.model_seconds), self._given.model_sigma)
        self._busy[_window(now)] += took
        self._push(now + took, _LEARNED, conversation)

    def _end(self, now: float, conversation: Conversation) -> None:
        self._updates[_window(now)] += 1
        conversation.busy = False
        self._free += 1
        if conversation.pending:
            self._push(max(now, conversation.due), _DUE, conversation)
        self._work(now)

    def _push(self, at: float, kind: int, conversation: Conversation) -> None:
        heapq.heappush(self._events, (at, next(self._order), kind, conversation))

    def _result(self, count: int) -> Day:
        scale = self._given.sample
        waits = sorted(self._waits)
        exchanges, updates = sum(self._said), sum(self._updates)
        return Day(
            conversations=count * scale,
            exchanges=exchanges * scale,
            updates=updates * scale,
            turns_learned=self._turns * scale,
            exchanges_mean=exchanges * scale / _DAY,
            exchanges_peak=max(self._said) * scale / _WINDOW,
            updates_mean=updates * scale / _DAY,
            updates_peak=max(self._updates) * scale / _WINDOW,
            busy_mean=sum(self._busy) * scale / _DAY,
            busy_peak=max(self._busy) * scale / _WINDOW,
            waiting_most=self._most * scale,
            wait_p50=waits[len(waits) // 2],
            wait_p99=waits[int(len(waits) * 0.99)],
            wait_most=waits[-1],
        )


def _window(now: float) -> int:
    """Return the part of the day; what goes on after midnight is counted at the beginning of the day."""
    return int(now % _DAY) // _WINDOW


def _drawn(deciles: Sequence[float], chance: float) -> float:
    """Return a value between deciles."""
    place = chance * (len(deciles) - 1)
    below = min(int(place), len(deciles) - 2)
    return deciles[below] + (place - below) * (deciles[below + 1] - deciles[below])


_HOURS = list(itertools.accumulate(CURVE))


def _time_of_day(chance: float) -> float:
    begun = chance * _HOURS[-1]
    hour = bisect_left(_HOURS, begun)
    return 3600 * (hour + 1 - (_HOURS[hour] - begun) / CURVE[hour])
