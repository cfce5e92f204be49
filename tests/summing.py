"""A conversation that grows long, and a model that is asked to sum it up: what the tests of summaries share."""

from __future__ import annotations

import json
import re
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
from fakes import FakeClock, ScriptedModel, Step, open_home, reply

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.ledger.learning.summarizer import SummaryOutcome
from backstory.ledger.log.commits import read_commits

if TYPE_CHECKING:
    from backstory.projections.turns import TurnView
    from backstory.results import Extracted


class Talk:
    """One thread, `t`, whose turns are a second apart; word7 is said in turn 7.

    The model learns what `updates` says. Asked for a summary of turns it says which, or does what `summaries` says;
    asked for one of summaries it says how many, or does what `mergings` says.
    """

    def __init__(
        self,
        home: Path,
        *,
        turns: int = 0,
        updates: Step | None = None,
        summaries: Step | None = None,
        mergings: Step | None = None,
        **settings: object,
    ) -> None:
        self.home = home
        self.clock = FakeClock()
        self.updates, self.summaries, self.mergings = updates or reply(), summaries, mergings
        self.asked: list[Prompt] = []
        self.model = ScriptedModel(self._answer, repeat=True)
        self.open(**settings)
        for _ in range(turns):
            self.say()

    def open(self, **settings: object) -> None:
        self.bs = open_home(self.home, self.model, clock=self.clock, **settings)
        self.memory = self.bs.memory("ada")

    def reopened(self, **settings: object) -> Self:
        """The same home, opened as another process would, with a model that does as it is asked."""
        self.bs.close()
        again = type(self)(self.home, **settings)  # type: ignore[arg-type]
        again.clock.advance((self.clock.now() - again.clock.now()).total_seconds())
        return again

    def _answer(self, prompt: Prompt) -> str | Answer:
        step: Step | None = self.updates
        if prompt.schema.get("required") == ["summary"]:
            self.asked.append(prompt)
            step = self.mergings if "<notes " in prompt.user else self.summaries
        if step is None:
            return json.dumps({"summary": told(prompt)})
        if isinstance(step, BaseException):
            raise step
        said = step(prompt) if callable(step) else step
        return json.dumps(said) if isinstance(said, dict) else said

    def say(self, text: str | None = None, *, thread: str = "t", **more: object) -> None:
        self.clock.advance(1)
        with self.memory._services.writer.state(durable=False) as state:
            known = state.transcript.threads.get(thread)
            n = 1 + (0 if known is None else len(known.turns))
        said = {"role": "user" if n % 2 else "assistant", "content": text or f"word{n}", **more}
        assert self.memory.record(thread, [said], mode="append").turns == 1

    def extract(self, thread: str | None = None) -> Extracted:
        return self.memory.extract(thread=thread)

    def learn(self) -> None:
        """Learn from what is pending, and sum nothing up."""
        services = self.memory._services
        from backstory.ledger.learning.summarizer import Summarizer, SummaryLimits

        off = Summarizer(services.home.updater, SummaryLimits(min_turns=0))
        home = copy(services.home)
        home.summarizer = off
        self.memory._services = msgspec.structs.replace(services, home=home)
        self.memory.extract()
        self.memory._services = services

    def sum_up(self, *, anyway: bool = False) -> tuple[SummaryOutcome, ...]:
        """What a worker does once it has learned; `anyway` as a person's extract."""
        return self.memory._services.home.summarizer.run(self.memory._services.writer, "t", self.model, anyway=anyway)

    @property
    def live(self) -> Memory:
        return self.memory._services.writer.memory()

    @property
    def commits(self) -> list[Commit]:
        return list(read_commits(self.bs.store, self.memory._services.writer.ledger))

    @property
    def turns(self) -> tuple[TurnView, ...]:
        return self.memory.transcript("t")

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Level, first and last turn of each summary of the thread."""
        return [(s.level, s.first, s.last) for s in self.memory.summaries("t")]

    def bytes(self) -> bytes:
        """All that the home's files hold."""
        return b"".join(path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file())


def told(prompt: Prompt) -> str:
    """What the model says by itself of what it is shown."""
    notes = prompt.user.count("\n- ")
    if notes:
        return f"Merged {notes}."
    shown = re.findall(r"^\[(\d+)\]", prompt.user, re.MULTILINE)
    return f"Told {shown[0]} to {shown[-1]}."
