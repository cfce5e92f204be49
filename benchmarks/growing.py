"""What grows with a memory: the first time of a process that something is asked or done in a long one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.commit import Cause, Draft
from backstory.ledger.core.events import FactAdded, PolicyChanged
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from benchmarks.rows import Row, ms
from benchmarks.scaling import at_time, fact_of, home_of, write_log

__all__ = ["growing"]

_FACTS = 20_000
_STATUS = 50_000
_COMMITS = 40_000
_QUESTION = "where does Ada take her long walks, and what did she note of the woods"


def _facts_of(count: int) -> Iterator[Draft]:
    """A ledger of so many facts by hand, all of them live."""
    yield Draft(at_time(0), Cause(kind="genesis", user=Scope().user), (PolicyChanged(None, Policy(max_facts=count)),))
    for seq in range(2, count + 2):
        yield Draft(at_time(seq), Cause(kind="manual", action="add"), (FactAdded(fact_of(seq)),))


def _first(folder: Path, work: Callable[[MemoryHandle], object], *, background: bool = False) -> float:
    """Return the seconds of this thread's processor that a work takes in a home that has just been opened."""
    with Backstory.open(folder, background=background, embedding_model="none") as bs:
        bs.warm()
        memory = bs.memory(scope="global")
        memory.facts()
        start = time.thread_time()
        work(memory)
        return time.thread_time() - start


def growing(scale: int) -> Iterator[Row]:
    """Measure logs of 40,000 and 50,000 commits, and a memory of 20,000 facts, or so many parts of them."""
    commits, facts, turns = _COMMITS // scale, _FACTS // scale, _STATUS // scale
    with tempfile.TemporaryDirectory() as place:
        long, wide, old = (Path(place) / name for name in ("long", "wide", "old"))
        home_of(long, commits)
        home_of(old, turns)
        write_log(wide / "ledger.jsonl", _facts_of(facts))
        text = f"Ada keeps note {commits // 2} about the long walks"
        refusal = _first(long, lambda memory: memory.why_not(text))
        status = _first(old, MemoryHandle.status)
        context = _first(wide, lambda memory: memory.context(_QUESTION), background=True)
        whole = _first(wide, lambda memory: memory.context(_QUESTION))
        # The first one also writes the policy that is configured, and plans anew behind it.
        _first(long, lambda memory: memory.add_fact("Ada keeps bees"))
        forgotten = _first(long, lambda memory: memory.forget(memory.facts()[0].id))
    yield Row(f"why-not, {commits:,} commits, nearly as many removals, of a processor", ms(refusal), "≤ 50 ms")
    yield Row(f"forget a fact, {commits:,} commits and as many turns, of a processor", ms(forgotten), "≤ 1 s")
    yield Row(f"the first context of a process, {facts:,} facts, of a processor", ms(context), "≤ 100 ms")
    yield Row("  the same without background work, which compares all facts at once", ms(whole))
    yield Row(f"the first status of a process, {turns:,} commits and turns, of a processor", ms(status), "≤ 1 s")
