"""Random histories of commands: a story that keeps its commits, and the strategies that draw one."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from sizes import examples
from story import Story, extract
from strategies import documents, edited_tags, heats, many_facts, new_facts, policies, proposals, waits, words

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    ImportDocument,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
)
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import RefusedError
from backstory.ledger.core.events import (
    Candidate,
    Edit,
    LedgerEvent,
    NewFact,
    Removal,
)
from backstory.ledger.core.memory import Memory

thorough = settings(max_examples=examples(), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


class History(Story):
    """A story that keeps the commands' causes and every memory, so that undo, replay and what-if can be asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.memories: list[Memory] = [self.memory]
        self.proposed: dict[int, tuple] = {}
        self.waits: list[float] = []

    def ask(self, command: Command, kind: str, **cause: object) -> tuple[LedgerEvent, ...] | None:
        """Decide and take in; None where it is refused outright."""
        try:
            events = self.do(command, kind)
        except RefusedError:
            return None
        seq = self.memory.seq
        told = Cause(kind=kind, heat=command.heat, **cause)  # type: ignore[arg-type]
        self.commits.append(Commit(seq, self.memory.at, told, events, "", ""))
        self.waits.append(self.waited)
        self.memories.append(self.memory)
        return events

    def gone(self, candidates: Iterable[Candidate]) -> tuple[str, ...]:
        """The ids that a document states and that other facts had which are gone, as an import is told them."""
        last = {fact.id: fact.content for memory in self.memories for fact in memory.facts.values()}
        mode = self.memory.policy.dedup_key
        return tuple(
            one.id
            for one in candidates
            if isinstance(one, NewFact) and one.id in last and one.id not in self.memory.facts
            if dedup_key(last[one.id], mode) != dedup_key(one.content, mode)
        )


actors = st.sampled_from([(False, None), (True, None), (True, "t1")])
"""Who changes a single fact: whether it is a model, and in which thread."""

STEPS = (
    "learn",
    "learn",
    "learn",
    "late",
    "add",
    "edit",
    "remove",
    "import",
    "replace",
    "save",
    "clear",
    "policy",
    "revert",
    "rollback",
)


@st.composite
def histories(draw: st.DrawFn, steps: tuple[str, ...] = STEPS, most: int = 9) -> History:
    history = History()
    history.ask(ChangePolicy(at="", policy=draw(policies), source="config"), "genesis")
    if draw(st.integers(0, 3)):
        candidates = draw(many_facts())
        history.ask(extract(*candidates, basis=1), "extraction", thread="t1")
        history.proposed[2] = candidates
    for step in draw(st.lists(st.sampled_from(steps), max_size=most)):
        take_step(draw, history, step)
    return history


def take_step(draw: st.DrawFn, history: History, step: str) -> tuple[LedgerEvent, ...] | None:
    memory = history.memory
    history.wait(draw(waits))
    heat = draw(heats(memory))
    match step:
        case "learn" | "late":
            candidates = draw(proposals(memory, history.now()))
            basis = memory.seq if step == "learn" else draw(st.integers(1, memory.seq))
            some = st.lists(st.sampled_from([*memory.facts, "fact_0_0"]), unique=True).map(tuple)
            told = st.none() | st.none() | st.just((*memory.facts,)) | some
            more = {"shown": draw(told), "stale": draw(told), "heat": heat, **draw(words)}
            events = history.ask(extract(*candidates, basis=basis, **more), "extraction", thread="t1")
            history.proposed[history.memory.seq] = candidates
            return events
        case "add":
            fact = draw(new_facts("facts/0"))
            by_model, thread = draw(actors)
            command = AddFact(at="", fact=fact, heat=heat, by_model=by_model, thread=thread)
            events = history.ask(command, "manual", action="add", by_model=by_model, thread=thread)
            history.proposed[history.memory.seq] = (fact,)
            return events
        case "edit" if memory.facts:
            fact_id = draw(st.sampled_from(sorted(memory.facts)))
            edit = Edit(
                place="facts/0",
                id=fact_id,
                content=draw(st.sampled_from([None, "Ada runs", "edited", "x"])),
                confidence=draw(st.sampled_from([None, 0.9, 0.2])),
                tags=draw(edited_tags),
            )
            by_model, _ = draw(actors)
            command = EditFact(at="", edit=edit, by_model=by_model)
            events = history.ask(command, "manual", action="edit", fact=fact_id, by_model=by_model)
            history.proposed[history.memory.seq] = (edit,)
            return events
        case "remove" if memory.facts:
            fact_id = draw(st.sampled_from(sorted(memory.facts)))
            by_model, _ = draw(actors)
            command = RemoveFact(at="", fact_id=fact_id, by_model=by_model)
            return history.ask(command, "manual", action="remove", fact=fact_id, by_model=by_model)
        case "import" | "replace":
            candidates, insist = draw(documents(memory)), draw(st.booleans())
            replace = step == "replace"
            gone = history.gone(candidates)
            command = ImportDocument(at="", candidates=candidates, replace=replace, insist=insist, gone=gone, heat=heat)
            events = history.ask(command, "import", replace=replace, insist=insist)
            history.proposed[history.memory.seq] = command.candidates
            return events
        case "save":
            ids = draw(st.lists(st.sampled_from([*memory.facts, "fact_0_0"]), max_size=3))
            gone = [Removal(place=f"factsToRemove/{i}", id=fact_id) for i, fact_id in enumerate(ids)]
            saved = SaveDocument(at="", candidates=(*draw(documents(memory)), *gone), heat=heat)
            events = history.ask(saved, "import", action="save")
            history.proposed[history.memory.seq] = saved.candidates
            return events
        case "clear":
            return history.ask(Clear(at=""), "clear")
        case "policy":
            return history.ask(ChangePolicy(at="", policy=draw(policies), heat=heat), "policy")
        case "revert" if memory.seq > 1:
            target = draw(st.integers(2, memory.seq))
            force = draw(st.booleans())
            command = Revert(at="", target=target, events=history.log[target - 1], force=force, heat=heat)
            return history.ask(command, "revert", target=target, force=force)
        case "rollback":
            to = draw(st.integers(0, memory.seq))
            return history.ask(roll(history, to), "rollback", target=to)
    return None


def roll(history: History, to: int) -> RollBack:
    then = history.memories[to]
    return RollBack(at="", to=to, facts=tuple(then.in_order()), sections=dict(then.sections))
