"""Sections that agents share, in whatever order things may happen: one text for all, received once, erased for good."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sizes import PATIENT, examples

from backstory import Backstory, MemoryHandle
from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import LockTimeoutError, NotFoundError, RefusedError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, SummariesReceived, SummaryShared
from backstory.ledger.core.memory import Memory
from backstory.ledger.learning import sharing

pytestmark = PATIENT

AGENTS = ("coder", "cook")
OWNERS = st.sampled_from([None, *AGENTS])
THREADS = st.sampled_from(["t1", "t2", "t3"])
NAMES = st.sampled_from(["workContext", "topOfMind"])


class TickClock(Clock):
    """Goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class SharedSections(RuleBasedStateMachine):
    """Two agents and their user; every conversation has a word of its own, and sections repeat those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = TickClock()
        self.words = itertools.count()
        self.said: dict[tuple[str | None, str], list[str]] = {}
        self.forgotten: list[str] = []
        self.locked = False
        self.checked: dict[str | None, tuple[Head, ...]] = {}
        self.hand_over = sharing._hand_over
        sharing._hand_over = self.handed_over
        self.open()

    def open(self) -> None:
        self.bs = Backstory.open(
            self.folder, shared_summaries=True, background=False, clock=self.clock, min_seconds_between_calls=0
        )

    def handed_over(self, *args: object) -> None:
        if self.locked:
            raise LockTimeoutError("another process holds the lock")
        self.hand_over(*args)  # type: ignore[arg-type]

    def teardown(self) -> None:
        sharing._hand_over = self.hand_over
        self.bs.close()
        shutil.rmtree(self.folder)

    def memory(self, agent: str | None) -> MemoryHandle:
        return self.bs.memory("ada", agent)

    def shown(self, agent: str | None) -> Memory:
        return self.memory(agent)._services.memory()

    # What may happen.

    @rule(agent=OWNERS, thread=THREADS, name=NAMES, repeats=st.booleans(), fact=st.booleans())
    def learn(self, agent: str | None, thread: str, name: str, repeats: bool, fact: bool) -> None:
        memory, word = self.memory(agent), f"zq{next(self.words)}xyzzy"
        if self.locked and agent is not None:
            # An update does not begin before the last one was received.
            self.locked = False
            assert self.shown(agent) is not None
            self.locked = True
        before = self.shown(agent).section(f"user.{name}").summary
        text = f"{before} {word}".strip() if repeats else f"About {word}"
        memory.record(thread, [{"role": "user", "content": f"I like {word}"}, {"role": "assistant", "content": "OK"}])
        self.said.setdefault((agent, thread), []).append(word)
        facts = [{"content": f"Likes {word}", "confidence": 0.9}] if fact else []
        reply = {"user": {name: {"summary": text, "shouldUpdate": True}}, "newFacts": facts}
        assert memory.extract([{"thread_id": thread, "reply": reply}]).failed == 0
        if not self.locked:
            assert self.shown(None).section(f"user.{name}").summary == text

    @rule(locked=st.booleans())
    def lock(self, locked: bool) -> None:
        self.locked = locked

    @rule(agent=OWNERS, back=st.integers(0, 6))
    def revert(self, agent: str | None, back: int) -> None:
        memory = self.memory(agent)
        seq = memory.head().seq - back
        if seq > 1 and not self.locked:
            with contextlib.suppress(RefusedError):
                memory.revert(seq, force=True)

    @rule(agent=OWNERS, back=st.integers(0, 6))
    def rollback(self, agent: str | None, back: int) -> None:
        memory = self.memory(agent)
        if memory.head().seq - back >= 1:
            memory.rollback(memory.head().seq - back)

    @rule(agent=OWNERS)
    def clear(self, agent: str | None) -> None:
        before = self.shown(None).sections
        self.memory(agent).clear(all_agents=agent is None)
        after = self.shown(None).sections
        assert after == ({} if agent is None else before)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def forget_thread(self, data: st.DataObject) -> None:
        agent, thread = data.draw(st.sampled_from(sorted(self.said, key=str)))
        self.memory(agent).forget(thread_id=thread)
        self.forgotten += self.said.pop((agent, thread))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def forget_word(self, data: st.DataObject) -> None:
        agent, thread = data.draw(st.sampled_from(sorted(self.said, key=str)))
        word = data.draw(st.sampled_from(self.said[agent, thread]))
        self.memory(agent).forget(matching=word)
        self.said[agent, thread].remove(word)
        self.forgotten.append(word)
        if not self.said[agent, thread]:
            del self.said[agent, thread]

    @rule(agent=st.sampled_from(AGENTS))
    def forget_everything(self, agent: str) -> None:
        try:
            self.memory(agent).forget(everything=True)
        except NotFoundError:
            return
        for key in [key for key in self.said if key[0] == agent]:
            self.forgotten += self.said.pop(key)

    @rule()
    def reopen(self) -> None:
        self.bs.close()
        self.open()
        self.checked.clear()

    # What holds at any time.

    @invariant()
    def agents_show_the_users_sections_and_their_own_facts(self) -> None:
        users = self.shown(None)
        for agent in AGENTS:
            shown = self.shown(agent)
            if not self.locked:
                assert [shown.section(name) for name in DOCUMENT_SECTIONS] == [
                    users.section(name) for name in DOCUMENT_SECTIONS
                ]
            assert shown.facts == self.memory(agent)._services.own.memory().facts

    @invariant()
    def each_commit_is_received_once_and_in_order(self) -> None:
        received: dict[str, list[int]] = {agent: [] for agent in AGENTS}
        for entry in reversed(self.memory(None).log()):
            for event in entry.events:
                if isinstance(event, SummariesReceived):
                    received[event.agent].append(event.seq)
        for agent in AGENTS:
            shared = [
                entry.seq
                for entry in reversed(self.memory(agent).log())
                if any(isinstance(event, SummaryShared) for event in entry.events)
            ]
            assert received[agent] == sorted(set(received[agent]))
            if not self.locked:
                assert set(shared) <= set(received[agent])

    @invariant()
    def all_is_as_the_rules_write_it_and_would_be_decided_again(self) -> None:
        for agent in (None, *AGENTS):
            memory = self.memory(agent)
            heads = memory.heads(turns=True)
            # A log that has not grown since was looked at when it did.
            if memory.head().seq and self.checked.get(agent) != heads:
                self.checked[agent] = heads
                assert memory.flush()
                assert memory.verify().problems == ()
                again = memory.what_if()
                assert (again.added, again.removed, again.revised, again.sections) == ((), (), (), ())

    @invariant()
    def nothing_that_was_forgotten_is_anywhere(self) -> None:
        for file in self.folder.rglob("*") if self.forgotten else ():
            if file.is_file():
                data = file.read_bytes()
                assert [word for word in self.forgotten if word.encode() in data] == [], file


TestSharedSections = SharedSections.TestCase
TestSharedSections.settings = settings(max_examples=examples(1 / 4), suppress_health_check=list(HealthCheck))
