"""Random histories over the public Python API: a seed says which, so that a difference can be repeated by its number.

Everything that changes a memory may happen, in any order: recording, learning from answers given or asked for, changes
by hand, imports, saves, clears, undos, policies, and every kind of erasure. Words are few, so facts collide.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import orjson
from fakes import FakeClock, open_home

from backstory.ledger.core.errors import NotFoundError, RefusedError
from backstory.ledger.core.events import Candidate, NewFact, NewSummary, Removal
from backstory.ledger.core.policy import DEDUP_KEYS, EVICTIONS, PolicyValue
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply

TEXTS = ("Ada runs", "ada runs.", "Ada lives in Oslo", "Ada lives in Bergen", "喜欢 Rust", "zebra", "b", "c", "d")
THREADS = ("t1", "t2")
KINDS = ("preference", "preference", "context", "correction")
CONFIDENCES = (0.5, 0.7, 0.8, 0.9, 0.9, 1.0)


class Wanderer:
    """A home in which chance decides what happens next; `steps` tells what did."""

    name = "chance"

    def __init__(self, home: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 it is to be repeated
        self.clock = FakeClock()
        self.steps: list[str] = []
        self._said = 0
        settings: dict[str, object] = {
            "fact_eviction_policy": self.chance.choice(EVICTIONS),
            "staleness_min_candidates": 1,
            "consolidation_enabled": True,
            "consolidation_min_facts": 3,
            "summary_min_turns": self.chance.choice([0, 4]),
            "max_attempts": 1,
        }
        self.backstory = open_home(home, self, clock=self.clock, **settings)
        self.memory = self.backstory.memory("ada")
        self._may: list[tuple[int, Callable[[], object]]] = [
            (4, self.say),
            (10, self.learn),
            (3, self.ask_a_model),
            (1, self.learn_from_nothing),
            (1, self.retry_or_discard),
            (3, self.add),
            (3, self.edit),
            (2, self.remove),
            (2, self.import_earlier),
            (2, self.save),
            (1, self.clear),
            (4, self.revert),
            (2, self.roll_back),
            (3, self.change_policy),
            (2, self.use),
            (2, self.wait),
            (5, self.forget),
        ]

    def wander(self, most: int = 25) -> None:
        """Let so many things happen; what is refused happens to nobody."""
        weights = [weight for weight, _ in self._may]
        self.say()
        for _ in range(self.chance.randint(3, most)):
            (_, step) = self.chance.choices(self._may, weights)[0]
            self.clock.advance(1)
            seq = self.memory.head().seq
            with suppress(RefusedError, NotFoundError):
                step()
            self.steps.append(f"{step.__name__} {seq}..{self.memory.head().seq}")

    # What may happen.

    def say(self, thread: str | None = None) -> None:
        self._said += 1
        pair = [
            {"role": "user", "content": f"{self.chance.choice(TEXTS)} {self._said}", "id": f"u{self._said}"},
            {"role": "assistant", "content": "Noted.", "id": f"a{self._said}"},
        ]
        self.memory.record(thread or self.chance.choice(THREADS), pair)

    def learn(self) -> None:
        thread = self.chance.choice(THREADS)
        if thread not in {pending.thread for pending in self.memory.status().pending}:
            self.say(thread)
        self.memory.extract([RecordedReply(thread, self.reply())])

    def ask_a_model(self) -> None:
        """As `learn`, and the threads that are long enough are summed up."""
        thread = self.chance.choice(THREADS)
        self.say(thread)
        self.memory.extract(thread=thread)

    def ask(self, prompt: Prompt) -> Answer:
        """Answer as a model; now and then something else happens meanwhile."""
        if self.chance.random() < 0.3:
            with suppress(RefusedError, NotFoundError):
                self.chance.choice([self.clear, self.revert, self.roll_back, self.forget, self.add])()
        return Answer(self.reply(summary=f"Much was said of {self.chance.choice(TEXTS)}."), self.name)

    def learn_from_nothing(self) -> None:
        self.memory.extract([RecordedReply(self.chance.choice(THREADS), "no JSON")])

    def retry_or_discard(self) -> None:
        for thread in sorted({parked.thread for parked in self.memory.status().parked}):
            if self.chance.random() < 0.5:
                self.memory.discard(thread)
            else:
                self.memory.retry(thread, replies=[RecordedReply(thread, self.reply())])

    def add(self) -> None:
        self.memory.add_fact(self.chance.choice(TEXTS), confidence=self.chance.choice(CONFIDENCES))

    def edit(self) -> None:
        self.memory.edit_fact(self.fact(), content=self.chance.choice(TEXTS))

    def remove(self) -> None:
        self.memory.remove_fact(self.fact())

    def import_earlier(self) -> None:
        seq = self.chance.randint(1, max(1, self.memory.head().seq))
        document = orjson.loads(msgspec.json.encode(self.memory.document(at=seq)))
        for fact in document["facts"]:
            if self.chance.random() < 0.3:
                fact["content"] = self.chance.choice(TEXTS)
            if self.chance.random() < 0.2:
                del fact["id"]
        self.memory.import_document(document, replace=self.chance.random() < 0.4)

    def save(self) -> None:
        candidates: list[Candidate] = [
            NewFact(
                place=f"facts/{n}",
                content=self.chance.choice(TEXTS),
                confidence=self.chance.choice(CONFIDENCES),
                id=self.chance.choice([None, self.fact()]),
                by_hand=self.chance.random() < 0.3,
            )
            for n in range(self.chance.randint(0, 2))
        ]
        candidates += [Removal(place=f"factsToRemove/{n}", id=self.fact()) for n in range(self.chance.randint(0, 2))]
        if self.chance.random() < 0.3:
            candidates.append(NewSummary(place="user.topOfMind", summary=self.chance.choice(TEXTS)))
        self.memory.own.save(candidates)

    def clear(self) -> None:
        self.memory.clear()

    def revert(self) -> None:
        last = max(2, self.memory.head().seq)
        seq = self.chance.choice([last, self.chance.randint(2, last)])
        self.memory.revert(seq, force=self.chance.random() < 0.5)

    def roll_back(self) -> None:
        self.memory.rollback(self.chance.randint(0, self.memory.head().seq))

    def change_policy(self) -> None:
        changes: dict[str, list[PolicyValue]] = {
            "max_facts": [2, 3, 5, 12],
            "fact_confidence_threshold": [0.5, 0.7, 0.85],
            "fact_eviction_policy": [*EVICTIONS],
            "gate_enabled": [True, False],
            "dedup_key": [*DEDUP_KEYS],
            "staleness_review_enabled": [True, False],
            "consolidation_enabled": [True, False],
        }
        names = self.chance.sample(sorted(changes), self.chance.randint(1, 3))
        self.memory.set_policy(**{name: self.chance.choice(changes[name]) for name in names})

    def use(self) -> None:
        self.memory.touch(self.fact())

    def wait(self) -> None:
        self.clock.advance(timedelta(days=self.chance.choice([1, 40, 120])).total_seconds())

    def forget(self) -> None:
        match self.chance.randrange(12):
            case 0:
                self.memory.forget(everything=True)
            case 1 | 2:
                self.memory.forget(thread_id=self.chance.choice(THREADS))
            case 3 | 4 | 5:
                self.memory.forget(matching=self.chance.choice(["zebra", "oslo", "runs", "c"]))
            case 6:
                self.memory._services.writer.expire(self.clock.now() - timedelta(days=30))
            case _:
                self.memory.forget(self.fact(), with_evidence=self.chance.random() < 0.3)

    # What may be said.

    def fact(self) -> str:
        return self.chance.choice([*(fact.id for fact in self.memory.facts()), "fact_2_0"])

    def reply(self, **more: object) -> str:
        chance = self.chance
        some = [self.fact() for _ in range(8)]
        said: dict[str, object] = {
            "newFacts": [
                {
                    "content": chance.choice(TEXTS),
                    "confidence": chance.choice(CONFIDENCES),
                    "category": chance.choice(KINDS),
                    **({"scope": "task"} if chance.random() < 0.1 else {}),
                }
                for _ in range(chance.randint(0, 4))
            ],
            "factsToRemove": [
                {"id": some[n], **({"replacementFactIndex": 0} if chance.random() < 0.4 else {})}
                for n in range(chance.choice([0, 0, 1, 2]))
            ],
            "factsToReinforce": [{"id": some[2 + n]} for n in range(chance.choice([0, 1, 2]))],
            "staleFactsToRemove": [{"id": some[4], "reason": "over"}] if chance.random() < 0.2 else [],
            "staleFactsToExtend": [{"id": some[5], "extendByDays": 50}] if chance.random() < 0.2 else [],
            **more,
        }
        ids = [fact.id for fact in self.memory.facts() if not fact.by_hand]
        if len(ids) > 2 and chance.random() < 0.4:
            merged = {"content": chance.choice(TEXTS)}
            said["factsToConsolidate"] = [{"sourceIds": chance.sample(ids, 2), "consolidated": merged}]
        if chance.random() < 0.4:
            said["user"] = {"topOfMind": {"summary": chance.choice(TEXTS), "shouldUpdate": True}}
        return json.dumps(said)
