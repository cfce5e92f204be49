"""Status of one scope: its head, what is pending or parked, and what failed lately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Literal

from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.events import FactRemoved
from backstory.ledger.core.memory import Memory, lapses
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.log.backlog import WaitingThread
from backstory.ledger.threads.due import Due
from backstory.operations.services import HomeServices, ScopeServices
from backstory.results import RECENT_COMMITS, EndingFact, Eviction, FaultCount, ParkedThread, PendingThread, Status

_SOON = timedelta(days=7)


def status(services: ScopeServices) -> Status:
    """Return where a scope stands; see `MemoryHandle.status`."""
    faults = services.home.faults.of(services.scope)
    try:
        return _status(services, faults)
    except UnavailableError as error:
        if faults:
            # The faults help to explain why memory cannot be read.
            error.args = (f"{error}; {_spelled(faults)}",)
        raise


def _status(services: ScopeServices, faults: tuple[FaultCount, ...]) -> Status:
    scope, writer, home = services.scope, services.writer, services.home
    with writer.reader.backlog() as backlog:
        view = backlog.state
        waiting = backlog.waiting(home.timing)
        memory, head, turns = view.memory, view.head, view.transcript.turn_count
        threads = len(view.transcript.threads)
    now = writer.clock.now()
    memory = memory.standing_at(spell_moment(now))
    max_facts = (memory.policy if memory.seq else writer.first_policy()).max_facts
    return Status(
        seq=head.seq,
        hash=head.hash,
        facts=len(memory.facts),
        pending=tuple(_pending(services, waiting)),
        parked=tuple(
            ParkedThread(one.thread, count, item.reason, item.attempts, item.detail)
            for one in waiting
            for item, count in one.parked
        ),
        turns=turns,
        threads=threads,
        ledger_bytes=writer.store.size(scope.stream(LEDGER)),
        transcript_bytes=writer.store.size(scope.stream(TRANSCRIPT)),
        store=str(writer.store),
        model=home.model_named,
        user=scope.user,
        agent=scope.agent,
        faults=faults,
        max_facts=max_facts,
        evicted=tuple(_evicted(services)) if len(memory.facts) >= max_facts else (),
        ending=tuple(_ending(memory, spell_moment(now + _SOON))),
    )


def _ending(memory: Memory, until: str) -> list[EndingFact]:
    """Return the facts that lapse up to a moment, the first of them first."""
    found = [
        EndingFact(fact.id, fact.content, at)
        for fact in memory.in_order()
        if (at := lapses(fact)) is not None and at <= until
    ]
    return sorted(found, key=lambda one: one.at)


def _evicted(services: ScopeServices) -> Iterator[Eviction]:
    """Yield what the cap evicted in the newest commits; a status reads no more of the log."""
    for commit in islice(services.logs(services.writer).newest(), RECENT_COMMITS):
        removed = (event for event in commit.events if isinstance(event, FactRemoved))
        if facts := tuple(event.fact.id for event in removed if event.reason == "cap"):
            yield Eviction(commit.seq, commit.at, facts)


def _pending(services: ScopeServices, waiting: Iterable[WaitingThread]) -> Iterator[PendingThread]:
    home, now = services.home, services.writer.clock.now()
    for one in waiting:
        if one.due is not None:
            # A clock that was set back delays no update beyond the debounce, or the wait for an answer.
            due = one.due.no_later(home.timing, now)
            due_in = max(0.0, round((due.at - now).total_seconds(), 3))
            yield PendingThread(one.thread, one.turns, due_in, _waiting_for(home, due, due_in))
        elif one.turns:
            yield PendingThread(one.thread, one.turns, None)


def _waiting_for(home: HomeServices, due: Due, due_in: float) -> Literal["answer", "debounce", "model"] | None:
    if due.for_answer and due_in > 0:
        return "answer"
    if home.model is None:
        return "model"
    return "debounce" if due_in > 0 else None


def _spelled(faults: Sequence[FaultCount]) -> str:
    counts = ", ".join(f"{fault.count} x {fault.doing} ({fault.kind})" for fault in faults)
    return f"memory failed since {min(fault.first for fault in faults)}: {counts}"
