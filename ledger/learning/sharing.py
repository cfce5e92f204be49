"""Delivery of the sections that an agent's updates write to the ledger of the user, in a home with `shared_summaries`.

The agent's ledger is written first. What a crash or a lock keeps from the user's ledger is delivered before the next
read or update of one of the two. The user's ledger notes each commit it has received, so none is received twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import msgspec

from backstory.ledger.core.commands import MoveSections, ShareSummaries
from backstory.ledger.core.commit import Cause, Commit, Head, head_before, prev_of, unseal
from backstory.ledger.core.errors import BackstoryError, ConflictError, NotFoundError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Event, NewSummary, SummaryShared, UpdateFailed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.erasure.requests import ForgetShared
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)


def is_delivered(own: Memory, users: Memory, agent: str) -> bool:
    """Whether the user's memory has received all that an agent's memory shares, and the agent has no own sections."""
    # What was received of commits that are gone was cut off the agent's ledger by a repair.
    return not _has_own_sections(own) and own.shared <= users.received.get(agent, 0) <= own.seq


def _has_own_sections(own: Memory) -> bool:
    return not own.moved and not own.sections.keys().isdisjoint(DOCUMENT_SECTIONS)


def deliver(agent: Writer, *, wait: bool = True, newest: Commit | None = None) -> None:
    """Deliver what the user's ledger has not received from an agent; sections of its own are moved first, once.

    Args:
        agent: the agent's writer; one that shares nothing is left alone.
        wait: whether to wait for locks that others hold.
        newest: the agent's newest commit, if it is at hand; it need not be read again then.

    Raises:
        StoreError, LockTimeoutError, CorruptLogError: One of the ledgers cannot be used.
    """
    users, name = agent.users, agent.scope.agent
    if users is None or name is None:
        return
    own = agent.memory()
    if is_delivered(own, users.memory(), name):
        users.behind.discard(agent)
        return
    # Until it is delivered, every read of the user's memory tries again.
    users.behind.add(agent)
    # Waited for before the first lock is held, so that no other writer of the agent's ledger waits for the user's.
    for stream in (agent.transcript_stream, agent.ledger, users.transcript_stream, users.ledger):
        with agent.store.locked(stream, wait=wait):
            pass
    _note_cut(agent, users, name)
    if _has_own_sections(own):
        _move_sections(agent, users)
    for commit in _undelivered(agent, users, name, newest):
        _hand_over(agent, users, name, commit)
    users.behind.discard(agent)


def try_to_deliver(agent: Writer, *, wait: bool = False, newest: Commit | None = None) -> None:
    """Deliver as `deliver` does; a failure is logged, and the next use tries again."""
    again = agent.users is not None and agent in agent.users.behind
    try:
        deliver(agent, wait=wait, newest=newest)
    except (BackstoryError, OSError) as error:
        level = logging.DEBUG if again else logging.WARNING
        _log.log(level, "%s: its sections will reach the user's memory with the next use: %s", agent.scope, error)


def receive_all(users: Writer) -> None:
    """Try again to deliver what a user's ledger could not receive in this process."""
    for agent in tuple(users.behind):
        try_to_deliver(agent)


def _note_cut(agent: Writer, users: Writer, name: str) -> None:
    """Note in the user's ledger that the agent's was cut off, or what the agent shares next would count as received."""
    if users.memory().received.get(name, 0) <= agent.memory().seq:
        return
    # No other process can be ahead of what this one knows of the agent's ledger.
    with agent.store.locked(agent.ledger), contextlib.suppress(ConflictError):
        seq = agent.store.head(agent.ledger).seq
        command = ShareSummaries(at="", agent=name, seq=seq, basis=0, summaries=(), cut=True)
        users.commit(command, Cause(kind="share", agent=name, actor="configuration"))


def _move_sections(agent: Writer, users: Writer) -> None:
    own, theirs = agent.memory(), users.memory()
    last = max(theirs.barriers.values(), default=0)
    barrier = next((commit.at for commit in read_commits(users.store, users.ledger) if commit.seq == last), "")
    command = MoveSections(
        at="",
        users={name: theirs.sections[name] for name in DOCUMENT_SECTIONS if name in theirs.sections},
        basis=theirs.seq,
        barred=tuple(name for name in DOCUMENT_SECTIONS if own.section(name).updated_at <= barrier),
    )
    with contextlib.suppress(ConflictError):
        # Refused where another process has done it meanwhile.
        agent.commit(command, Cause(kind="share", actor="configuration", action="move"))


def _undelivered(agent: Writer, users: Writer, name: str, newest: Commit | None) -> Iterator[Commit]:
    own, received = agent.memory(), users.memory().received.get(name, 0)
    if newest is not None and newest.seq == own.shared and own.shared_before <= received:
        # The usual case: nothing else is left, and the ledger need not be searched for it.
        yield newest
        return
    last = agent.store.durable_head(agent.ledger)
    first = next(agent.store.read(agent.ledger, received), None)
    if first is not None:
        after = head_before(first.line, received + 1)
        yield from filter(_shared_by, read_commits(agent.store, agent.ledger, after, until=last))


def _hand_over(agent: Writer, users: Writer, name: str, commit: Commit) -> None:
    if _is_overtaken(users, commit):
        # Given up first: once it counts as received it is not looked for again after a crash.
        _give_up(agent, commit)
        _receive(users, name, msgspec.structs.replace(commit, events=tuple(map(_without_text, commit.events))))
        return
    # An erasure of the agent, or its removal, comes before this or after it, and then finds the text with the user.
    with agent.store.locked(agent.ledger):
        standing = _read_again(agent, commit)
        received = None if standing is None else _receive(users, name, standing)
    if received is not None and any(isinstance(event, UpdateFailed) for event in received.events):
        _give_up(agent, commit)


def _is_overtaken(users: Writer, commit: Commit) -> bool:
    """Whether a commit was made on sections of the user of which something was erased since."""
    barrier = users.memory().barrier_after(_basis(commit))
    return barrier is not None and barrier[1] == "redaction"


def _give_up(agent: Writer, commit: Commit) -> None:
    """Erase the texts that a commit shared: no word of what was made on erased sections may stay with the agent."""
    own = frozenset((commit.seq, event.section) for event in _shared_by(commit))
    with contextlib.suppress(NotFoundError):
        agent.forget(ForgetShared(own=own), actor="configuration")


def _without_text(event: Event) -> Event:
    return SummaryShared(event.section, "", event.basis) if isinstance(event, SummaryShared) else event


def _read_again(agent: Writer, commit: Commit) -> Commit | None:
    """Return a commit as it stands; None if nothing that it shared does. The agent's ledger is locked."""
    if agent.store.head(agent.ledger) == commit.head:
        return commit
    record = next(agent.store.read(agent.ledger, commit.seq - 1), None)
    if record is None or prev_of(record.line) != commit.prev:
        return None
    standing = unseal(record.line, Head(commit.seq - 1, commit.prev), stream=agent.ledger, byte=record.byte)
    return standing if _shared_by(standing) else None


def _shared_by(commit: Commit) -> list[SummaryShared]:
    return [event for event in commit.events if isinstance(event, SummaryShared)]


def _basis(commit: Commit) -> int:
    return min(event.basis for event in _shared_by(commit))


def _receive(users: Writer, name: str, commit: Commit) -> Commit | None:
    """Commit in the user's ledger what a commit of an agent shared; None if another process was first."""
    command = ShareSummaries(
        at="",
        agent=name,
        seq=commit.seq,
        # A repair may have cut the user's ledger off before it.
        basis=min(_basis(commit), users.memory().seq),
        summaries=tuple(
            NewSummary(place=event.section, summary=event.text, at=event.at or commit.at, **event.labels)
            for event in _shared_by(commit)
        ),
        thread=commit.cause.thread,
    )
    # The thread is one of the agent's, and a cause names threads of its own ledger.
    why = Cause(kind="share", agent=name, model=commit.cause.model, actor=commit.cause.actor)
    try:
        # Dated as the agent's commit, so that the agent's past shows them together.
        return users.commit(command, why, at=parse_moment(commit.at))
    except ConflictError:
        return None
