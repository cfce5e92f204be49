"""All invariants at once, over the public Python API and a real disk, in whatever order things may happen.

1 cap · 2 dedup · 3 threshold · 4 replay = live = memory.json · 5 each candidate one event · 6 rollback · 7 undo of undo
8 what-if = live · 9 replacing evicts nobody (test_invariants.py) · 10 by hand · 11 clear · 12 same input, same events
13 no turn covered twice, none lost · 14 every message stands
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sizes import examples
from streams import memory_at

from backstory.home import Backstory
from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import CapError, DuplicateFactError, RefusedError
from backstory.ledger.core.events import CandidateRejected, Event, UpdateFailed, UpdateProposed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import DEDUP_KEYS, EVICTIONS, PolicyValue
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import thread_summaries
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.producer import Producer
from backstory.ledger.log.commits import read_commits
from backstory.ledger.rules.review import fragmented
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay
from backstory.projections.what_if.counterfactual import decide_again
from backstory.results import Extracted

pytestmark = pytest.mark.timeout(400)
"""Thousands of synced writes: on a busy machine they take longer than any other test may."""

TEXTS = st.sampled_from(
    ["Ada runs", "ada runs.", "Ada lives in Oslo", "Ada lives in Bergen", "喜欢 Rust", "a", "b", "c"]
)
THREADS = st.sampled_from(["t1", "t2"])


class TickClock(Clock):
    """Goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class Meddler:
    """A model during whose thinking something else happens."""

    name = "meddler"

    def __init__(self, meddle: Callable[[], object], text: str) -> None:
        self.meddle, self.text = meddle, text

    def ask(self, prompt: Prompt) -> Answer:
        self.meddle()
        return Answer(self.text, self.name)


LABELS = (
    st.just({})
    | st.just({})
    | st.fixed_dictionaries(
        {},
        optional={
            "scope": st.sampled_from(["user", "USER ", "task"]),
            "durability": st.sampled_from(["durable", "session"]),
            "authority": st.sampled_from(["descriptive", "prescriptive"]),
        },
    )
)
KINDS = st.sampled_from(["preference", "preference", "context", "correction"])


def reply(texts: list[tuple[str, float]], remove: list[str], section: str | None, **more: object) -> str:
    """Spell an answer; `more` are further lists of it."""
    said: dict[str, object] = {
        "newFacts": [{"content": text, "confidence": confidence} for text, confidence in texts],
        "factsToRemove": remove,
        **more,
    }
    if section is not None:
        said["user"] = {"topOfMind": {"summary": section, "shouldUpdate": True}}
    return orjson.dumps(said).decode()


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="backstory-machine-"))
        self.clock = TickClock()
        self.count = itertools.count()
        self.ids = itertools.count(1)
        self.cap = 10
        self.said: list[tuple[str, str]] = []
        self.open()

    def open(self) -> None:
        self.backstory = Backstory.open(
            self.home,
            clock=self.clock,
            salts=lambda: f"{next(self.count):032x}",
            background=False,
            max_facts=self.cap,
            fact_eviction_policy="hybrid",
            staleness_min_candidates=1,
            consolidation_enabled=True,
            consolidation_min_facts=3,
            summary_min_turns=4,
            min_seconds_between_calls=0,
            max_attempts=1,
        )
        self.memory = self.backstory.memory("ada")
        self.scope = Scope("ada")

    def teardown(self) -> None:
        try:
            found = self.memory.verify()
            assert found.ok, found.problems
            self.every_candidate_has_one_outcome()
            self.no_turn_is_covered_twice_and_none_lost()
            commits = self.commits()
            if commits:
                again = decide_again(commits, {})
                live = replay(self.backstory.store, self.scope)
                assert (again.facts, again.sections) == (live.facts, live.sections)
        finally:
            self.backstory.close()
            shutil.rmtree(self.home)

    def commits(self) -> list[Commit]:
        return list(read_commits(self.backstory.store, self.scope.stream("ledger")))

    def live(self) -> Memory:
        return replay(self.backstory.store, self.scope)

    def key(self) -> Callable[[str], str]:
        return partial(dedup_key, mode=self.live().policy.dedup_key)

    def waiting(self) -> set[str]:
        """The threads in which something is worth an update."""
        return {thread.thread for thread in self.memory.status().pending if thread.due_in is not None}

    def every_candidate_has_one_outcome(self) -> None:
        for commit in self.commits():
            places = [place for event in commit.events if (place := place_of(event)) is not None]
            assert len(places) == len(set(places))
            proposed = any(isinstance(event, UpdateProposed) for event in commit.events)
            failed = any(isinstance(event, UpdateFailed) for event in commit.events)
            assert commit.cause.kind != "extraction" or proposed != failed

    def no_turn_is_covered_twice_and_none_lost(self) -> None:
        status = self.memory.status()
        recorded = [(t.thread, turn.id) for t in self.memory.threads() for turn in self.memory.transcript(t.thread)]
        assert sorted(recorded) == sorted(self.said)
        covered: dict[str, list[range]] = {}
        for commit in self.commits():
            turns = commit.cause.turns
            if turns is not None:
                mine = range(turns.first, turns.last + 1)
                for other in covered.setdefault(commit.cause.thread or "", []):
                    assert not set(mine) & set(other)
                covered[commit.cause.thread or ""].append(mine)
        waiting = sum(t.turns for t in status.pending) + sum(t.turns for t in status.parked)
        assert waiting <= len(recorded)

    # What may happen.

    @initialize()
    def begin(self) -> None:
        self.say("t1", "hello")

    @rule(thread=THREADS, text=TEXTS)
    def say(self, thread: str, text: str) -> None:
        n = next(self.ids)
        pair = [
            {"role": "user", "content": f"{text} {n}", "id": f"u{n}"},
            {"role": "assistant", "content": "Noted.", "id": f"a{n}"},
        ]
        assert self.memory.record(thread, pair).turns == 2
        assert self.memory.record(thread, pair).turns == 0
        self.said += [(thread, f"u{n}"), (thread, f"a{n}")]

    @rule(thread=THREADS, text=TEXTS, role=st.sampled_from(["user", "assistant"]))
    def say_half(self, thread: str, text: str, role: str) -> None:
        """Words without an answer, or an answer that comes by itself, perhaps after its question was learned from."""
        n = next(self.ids)
        half = [{"role": role, "content": f"{text} {n}", "id": f"h{n}"}]
        assert self.memory.record(thread, half).turns == 1
        assert self.memory.record(thread, half).turns == 0
        self.said.append((thread, f"h{n}"))
        assert role == "assistant" or thread in self.waiting()

    @rule(seconds=st.sampled_from([0, 40, 2000]), text=TEXTS)
    def learn_in_the_background(self, seconds: int, text: str) -> None:
        before = self.memory.status().pending
        services = self.memory._services
        model = Meddler(lambda: None, reply([(text, 0.9)], [], None))
        producer = Producer(services.home.updater, model)
        producer.watch(services.writer)
        self.clock.sleep(seconds)
        producer.run_due()
        after = {thread.thread: thread.turns for thread in self.memory.status().pending}
        for thread in before:
            if thread.waiting_for == "answer" and (thread.due_in or 0) > seconds + 60:
                assert after[thread.thread] == thread.turns
        assert seconds < 2000 or not self.waiting()

    @rule(
        thread=THREADS,
        facts=st.lists(st.tuples(TEXTS, st.sampled_from([0.5, 0.7, 0.9])), max_size=4),
        data=st.data(),
        section=st.none() | TEXTS,
    )
    def learn(self, thread: str, facts: list[tuple[str, float]], data: st.DataObject, section: str | None) -> None:
        by_hand = {fact.id: fact for fact in self.memory.facts() if fact.by_hand}
        ids = st.sampled_from([*(fact.id for fact in self.memory.facts()), *by_hand, "fact_0_0"])
        remove = data.draw(st.lists(ids, max_size=3))
        if thread not in self.waiting():
            self.say(thread, "something to learn from")
        result = self.memory.extract([RecordedReply(thread, reply(facts, remove, section))])
        assert (result.updates, result.failed) == (1, 0)
        outcomes = [place for event in self.commits()[-1].events if (place := place_of(event)) is not None]
        assert len(outcomes) == len(facts) + len(remove) + (section is not None)
        assert thread not in self.waiting()
        now = {fact.id: fact for fact in self.memory.facts()}
        assert all(now.get(fact_id) == fact for fact_id, fact in by_hand.items())

    @rule(
        thread=THREADS,
        data=st.data(),
        facts=st.lists(st.tuples(TEXTS, KINDS, LABELS), max_size=3),
        days=st.sampled_from([0, 100]),
    )
    def learn_by_every_list(
        self, thread: str, data: st.DataObject, facts: list[tuple[str, str, dict[str, str]]], days: int
    ) -> None:
        """Labels, reviews, confirmations and mergings, whether they were asked for or not."""
        self.clock.sleep(days * 86_400)
        by_hand = {fact.id: fact for fact in self.memory.facts() if fact.by_hand}
        ids = st.sampled_from([*(fact.id for fact in self.memory.facts())] * 4 + ["fact_0_0"])
        alike = [[fact.id for fact in facts] for facts in fragmented(self.live()).values()]
        fitting = [st.permutations(group).map(lambda some: some[:3]) for group in alike]

        def listed(most: int, **fields: st.SearchStrategy[object]) -> list[dict[str, object]]:
            item = st.tuples(st.fixed_dictionaries(fields), LABELS).map(lambda pair: {**pair[0], **pair[1]})
            return data.draw(st.lists(item, max_size=most))

        lists: dict[str, list[dict[str, object]]] = {
            "newFacts": [
                {"content": text, "confidence": 0.9, "category": kind, **labels} for text, kind, labels in facts
            ],
            "factsToRemove": listed(2, id=ids, replacementFactIndex=st.integers(0, 3)),
            "factsToReinforce": listed(2, id=ids),
            "staleFactsToRemove": listed(2, id=ids, reason=st.just("over")),
            "staleFactsToExtend": listed(2, id=ids, extendByDays=st.integers(1, 5000)),
            "factsToConsolidate": listed(
                2,
                sourceIds=st.one_of(*fitting, *fitting, st.lists(ids, max_size=4)),
                consolidated=st.fixed_dictionaries(
                    {"content": TEXTS}, optional={"confidence": st.sampled_from([0.4, 0.8, 1.0])}
                ),
            ),
        }
        if thread not in self.waiting():
            self.say(thread, "something to learn from")
        result = self.memory.extract([RecordedReply(thread, reply([], [], None, **lists))])
        assert (result.updates, result.failed) == (1, 0)
        outcomes = [place for event in self.commits()[-1].events if (place := place_of(event)) is not None]
        assert sorted(outcomes) == sorted(f"{name}/{n}" for name, items in lists.items() for n in range(len(items)))
        now = {fact.id: fact for fact in self.memory.facts()}
        assert all(now.get(fact_id) == fact for fact_id, fact in by_hand.items())

    @rule(days=st.sampled_from([1, 40, 100, 400]))
    def time_goes_by(self, days: int) -> None:
        self.clock.sleep(days * 86_400)

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        facts = self.memory.facts()
        if facts:
            fact = data.draw(st.sampled_from(facts))
            assert self.memory.touch(fact.id) == 1

    @rule(thread=THREADS, text=st.sampled_from(["no JSON", '{"newFacts": [', "{}", '{"other": 1}']))
    def learn_nothing_from_a_broken_answer(self, thread: str, text: str) -> None:
        before = self.live()
        result = self.memory.extract([RecordedReply(thread, text)])
        assert result.failed == result.updates
        assert (self.live().facts, self.live().sections) == (before.facts, before.sections)

    @rule(text=TEXTS)
    def retry(self, text: str) -> None:
        parked = {t.thread for t in self.memory.status().parked}
        replies = [RecordedReply(thread, reply([(text, 0.9)], [], None)) for thread in sorted(parked)]
        result = self.memory.retry(replies=replies)
        assert result.failed == 0
        assert not self.memory.status().parked

    @rule(thread=THREADS)
    def discard(self, thread: str) -> None:
        if thread in {t.thread for t in self.memory.status().parked}:
            self.memory.discard(thread)
            assert thread not in {t.thread for t in self.memory.status().parked}

    @rule(thread=THREADS, what=st.sampled_from(["clear", "rollback", "say"]))
    def learn_while_something_happens(self, thread: str, what: str) -> None:
        if thread not in self.waiting():
            self.say(thread, "something to learn from")
        meddle = {
            "clear": self.memory.clear,
            "rollback": lambda: self.memory.rollback(self.memory.head().seq),
            "say": lambda: self.say(thread, "meanwhile"),
        }[what]
        # Where the thread is long by now, it is asked once more, and the same happens again.
        answer = reply([("learnt meanwhile", 0.95)], [], None, summary="Much was said.")
        result = self.ask(Meddler(meddle, answer), thread)
        assert (result.updates, result.failed) == (1, 0)
        texts = {fact.content for fact in self.memory.facts()}
        waits = thread in self.waiting()
        if what == "clear":
            assert not texts
        elif what == "say":
            # Where a rollback took it away before, a model may not add it again.
            marked = any(refusal.rule == "removed_by_hand" for refusal in self.memory.why_not("learnt meanwhile"))
            assert "learnt meanwhile" in texts or marked or len(texts) == self.memory.policy().policy.max_facts
        assert waits == (what in ("rollback", "say"))

    def ask(self, model: Meddler, thread: str) -> Extracted:
        services = self.memory._services
        home = copy(services.home)
        home.model = model
        self.memory._services = msgspec.structs.replace(services, home=home)
        try:
            return self.memory.extract(thread=thread)
        finally:
            self.memory._services = services

    @rule(text=TEXTS, confidence=st.sampled_from([0.1, 0.9]))
    def add(self, text: str, confidence: float) -> None:
        key = self.key()
        alike = [f.id for f in self.memory.facts() if key(f.content) == key(text)]
        try:
            change = self.memory.add_fact(text, confidence=confidence)
        except DuplicateFactError:
            assert alike
        except CapError:
            assert all(fact.by_hand for fact in self.memory.facts())
        else:
            assert not alike
            assert change.fact.by_hand

    @rule(data=st.data(), text=TEXTS)
    def edit(self, data: st.DataObject, text: str) -> None:
        facts = self.memory.facts()
        if facts:
            fact = data.draw(st.sampled_from(facts))
            try:
                change = self.memory.edit_fact(fact.id, content=text)
            except RefusedError:
                key = self.key()
                assert any(key(f.content) == key(text) for f in facts)
            else:
                assert (change.fact.id, change.fact.content, change.fact.by_hand) == (fact.id, text, True)

    @rule(
        data=st.data(),
        text=TEXTS,
        confidence=st.sampled_from([0.1, 0.9]),
        thread=THREADS | st.sampled_from([None, "not recorded yet"]),
    )
    def use_a_tool(self, data: st.DataObject, text: str, confidence: float, thread: str | None) -> None:
        """A model changes single facts: its facts compete, and a person's stay as they are."""
        tool = self.memory.by("agent:lead", thread, by_model=True)
        by_hand = {fact.id: fact for fact in self.memory.facts() if fact.by_hand}
        ids = [fact.id for fact in self.memory.facts()]
        act = data.draw(st.sampled_from(["add", "edit", "remove"] if ids else ["add"]))
        with contextlib.suppress(RefusedError):
            if act == "add":
                assert not tool.add_fact(text, confidence=confidence).fact.by_hand
            elif act == "edit":
                assert not tool.edit_fact(data.draw(st.sampled_from(ids)), text, confidence=confidence).fact.by_hand
            else:
                assert not tool.remove_fact(data.draw(st.sampled_from(ids))).fact.by_hand
        now = {fact.id: fact for fact in self.memory.facts()}
        assert all(now.get(fact_id) == fact for fact_id, fact in by_hand.items())

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        facts = self.memory.facts()
        if facts:
            fact = data.draw(st.sampled_from(facts))
            assert self.memory.remove_fact(fact.id).fact == fact
            why = self.memory.why(fact.id)
            assert (why.live, why.removed is not None) == (False, True)

    @rule(data=st.data(), force=st.booleans())
    @precondition(lambda self: self.memory.head().seq > 1)
    def revert_and_back(self, data: st.DataObject, force: bool) -> None:
        self.memory._services.writer.put_policy_in_force()
        before = self.live()
        seq = data.draw(st.integers(2, self.memory.head().seq))
        plan = self.memory.revert(seq, dry_run=True, force=force)
        assert self.live() == before
        done = self.memory.revert(seq, force=force)
        assert (done.commit is None) == (bool(plan.conflicts) and not force)
        assert done.events == plan.events
        if done.commit is not None and data.draw(st.booleans()):
            assert not self.memory.revert("HEAD").conflicts
            now = self.live()
            assert (now.facts, now.sections) == (before.facts, before.sections)

    @rule(data=st.data())
    @precondition(lambda self: self.memory.head().seq > 0)
    def roll_back(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.memory.head().seq))
        then = memory_at(self.backstory.store, self.scope, seq)
        result = self.memory.rollback(seq)
        now = self.live()
        if then.policy == now.policy:
            assert not result.superseded
            assert (now.facts, now.sections) == (then.facts, then.sections)

    @rule()
    def clear(self) -> None:
        self.memory.clear()
        assert not self.memory.facts()
        assert not self.memory.status().pending

    @rule(data=st.data(), replace=st.booleans())
    @precondition(lambda self: self.memory.head().seq > 1)
    def import_an_earlier_document(self, data: st.DataObject, replace: bool) -> None:
        seq = data.draw(st.integers(1, self.memory.head().seq))
        document = self.memory.document(at=seq)
        hands = {fact.id for fact in self.memory.facts() if fact.by_hand}
        self.memory.import_document(orjson.loads(msgspec.json.encode(document)), replace=replace)
        if not replace:
            assert hands <= {fact.id for fact in self.memory.facts()}

    @rule(
        cap=st.sampled_from([3, 10, 12, 500]),
        threshold=st.sampled_from([0.5, 0.7, 0.9]),
        more=st.fixed_dictionaries(
            {},
            optional={
                "fact_eviction_policy": st.sampled_from(EVICTIONS),
                "gate_enabled": st.booleans(),
                "dedup_key": st.sampled_from(DEDUP_KEYS),
                "staleness_review_enabled": st.booleans(),
                "staleness_min_candidates": st.sampled_from([1, 3]),
                "consolidation_enabled": st.booleans(),
                "consolidation_min_facts": st.sampled_from([2, 8]),
            },
        ),
    )
    def change_policy(self, cap: int, threshold: float, more: dict[str, PolicyValue]) -> None:
        try:
            result = self.memory.set_policy(max_facts=cap, fact_confidence_threshold=threshold, **more)
        except CapError:
            assert sum(fact.by_hand for fact in self.memory.facts()) > cap
        else:
            assert result.policy.max_facts == cap

    @rule(cap=st.sampled_from([10, 11]))
    def reopen(self, cap: int) -> None:
        before = self.live()
        self.backstory.close()
        self.cap = cap
        self.open()
        assert self.live() == before

    @rule(damage=st.sampled_from([b"", b"torn", b'{"v":1,"seq":']))
    def crash_in_the_middle_of_a_write(self, damage: bytes) -> None:
        before = self.live()
        path = self.home / self.scope.folder / "ledger.jsonl"
        if path.exists():
            with path.open("ab") as file:
                file.write(damage)
        self.open()
        assert self.live() == before

    # What always holds.

    @invariant()
    def memory_is_within_its_rules(self) -> None:
        memory = self.live()
        assert len(memory.facts) <= memory.policy.max_facts
        keys = list(map(self.key(), (fact.content for fact in memory.facts.values())))
        assert len(keys) == len(set(keys))
        for fact in memory.facts.values():
            assert fact.by_hand or fact.confidence >= memory.policy.fact_confidence_threshold

    @invariant()
    def summaries_never_overlap(self) -> None:
        memory = self.live()
        for thread in ("t1", "t2"):
            told = thread_summaries(memory, thread)
            assert all(a.last < b.first for a, b in itertools.pairwise(told))

    @invariant()
    def the_file_is_what_the_log_says(self) -> None:
        memory = self.live()
        assert self.memory.facts() == tuple(memory.in_order())
        path = self.home / self.scope.folder / "memory.json"
        self.memory.flush()
        if memory.seq:
            assert path.read_bytes() == render(memory)


def place_of(event: Event) -> str | None:
    if isinstance(event, CandidateRejected):
        return event.candidate.place
    return getattr(event, "place", None)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=examples(),
    suppress_health_check=list(HealthCheck),
)
