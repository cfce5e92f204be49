"""Replay: the updates of a test, made in a scratch home under today's rules, by the code that makes them elsewhere."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count

from backstory.config.loading import Loaded
from backstory.home import Backstory
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import read_message
from backstory.memory import MemoryHandle
from backstory.memory_tests.kept_replies import KeptReplies
from backstory.memory_tests.steps import Step
from backstory.outbox import faults

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When conversations without times begin. It is fixed, so that two runs are equal."""
_APART = timedelta(minutes=1)

_ALONE: Mapping[str, object] = {
    "enabled": True,
    "event_store": "jsonl:",
    "strict_user_scope": False,
    "witness": "",
    "redis_url": "",
    "embedding_model": "none",
    "embedding_base_url": None,
    "shared_summaries": False,
    "context_turns": False,
    "summary_min_turns": 0,
    "transcript_retention_days": None,
    "min_seconds_between_calls": 0,
}
"""Settings of a scratch home: it reaches nothing outside, and asks a model about nothing but the updates."""


class ScratchClock:
    """A clock that stands where the conversations are; pauses are real, since a model may need them."""

    def __init__(self) -> None:
        self._now = _BEGIN

    def now(self) -> datetime:
        """Return the time that was said last."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""
        time.sleep(seconds)

    def move(self, ends: str) -> None:
        """Move to the end of a step, or by a minute if it has no time; never back."""
        moment = parse_moment(ends)
        if moment is None:
            self._now += _APART
        else:
            self._now = moment if self._now == _BEGIN else max(self._now, moment)


class Replay:
    """What a replay has made so far.

    Attributes:
        memory: The scratch memory.
        commits: Its commits.
        after: The last commit after each update.
        ends: The last commit after the last update of a thread, by thread.
    """

    def __init__(self, memory: MemoryHandle, commits: Sequence[Commit]) -> None:
        self.memory = memory
        self.commits = commits
        self.after: list[int] = []
        self.ends: dict[str, int] = {}

    @property
    def seq(self) -> int:
        """The last commit."""
        return self.commits[-1].seq if self.commits else 0


def settings_of(loaded: Loaded, overrides: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a scratch home: those that are configured, with the policy of a test over them."""
    stated = {key: getattr(loaded.settings, key) for key, origin in loaded.origin.items() if origin != "default"}
    stated.pop("model", None)
    return {**stated, **overrides, **_ALONE}


@contextmanager
def replayed(
    scope: Scope,
    steps: Sequence[Step],
    settings: Mapping[str, object],
    replies: KeptReplies,
) -> Iterator[Replay]:
    """Make the updates in a scratch home, which is there inside the context.

    Args:
        scope: The user and the agent of the memory.
        steps: The updates.
        settings: The settings of the scratch home.
        replies: The model.

    Raises:
        InputError: A message cannot be read, or a reply is missing.
        ConfigError: A setting is out of its range.
    """
    clock, salts = ScratchClock(), count()
    commits: list[Commit] = []
    opening: Callable[..., Backstory] = Backstory.open
    with (
        _without_advice(),
        tempfile.TemporaryDirectory(prefix="backstory-test-", ignore_cleanup_errors=True) as folder,
        opening(
            folder,
            model=replies,
            background=False,
            clock=clock,
            salts=lambda: f"{next(salts):032x}",
            listeners=(lambda _, commit, *__: commits.append(commit),),
            actor="test",
            **settings,
        ) as home,
    ):
        replay = Replay(home.memory_of(scope), commits)
        for step in steps:
            clock.move(step.ends)
            replies.turn_to(step)
            _make(replay, step)
        replies.must_be_complete()
        yield replay


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep back what is logged of failed updates: it says how to mend a memory, and this one is for the test alone."""
    logger = logging.getLogger(faults.__name__)
    keep_back = logging.Filter("backstory.memory_tests")
    logger.addFilter(keep_back)
    try:
        yield
    finally:
        logger.removeFilter(keep_back)


def _make(replay: Replay, step: Step) -> None:
    messages = [read_message({**message, "thread_id": step.thread}) for message in step.messages]
    replay.memory.record(step.thread, messages, mode="append")
    replay.memory.extract(thread=step.thread, backdate=True)
    replay.after.append(replay.seq)
    replay.ends[step.thread] = replay.seq
