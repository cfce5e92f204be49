"""Graphs of one scope: how facts, threads and updates hang together, and who sent what to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backstory import checks
from backstory.checks import When
from backstory.ledger.core.errors import UsageError
from backstory.ledger.log.writer import Writer
from backstory.operations.services import ScopeServices, must_know

if TYPE_CHECKING:
    from backstory.ledger.core.events import Turn
    from backstory.projections.graph import Graph, MessageFlow

__all__ = ["graph", "message_flow"]


def graph(
    services: ScopeServices, *, thread: str | None, fact: str | None, since: int | When | None, limit: int
) -> Graph:
    """Return the graph of facts, updates and threads; see `MemoryHandle.graph`."""
    from backstory.projections.graph import Choice, graph_of

    most = _some(limit)
    moment = None if since is None else checks.commit_or_time("since", since)
    named = None if fact is None else checks.text("fact", fact)
    writer = services.reading()
    if thread is not None:
        must_know(writer, checks.text("thread", thread))
    wanted = None if named is None else services.fact_id(writer, named)
    return graph_of(services.logs(writer), writer.scope, Choice(thread, wanted, moment, most))


def message_flow(services: ScopeServices, *, thread: str | None, since: When | None, limit: int) -> MessageFlow:
    """Return who sent what to whom; see `MemoryHandle.letters`."""
    from backstory.projections.graph import message_flow_of

    most = _some(limit)
    moment = None if since is None else checks.commit_or_time("since", since)
    if isinstance(moment, int):
        raise UsageError(f"{since} is a commit's number, and turns are told apart by time: give a time in ISO 8601")
    writer = services.reading()
    turns = _standing(writer, None if thread is None else checks.text("thread", thread))
    return message_flow_of(turns, writer.scope, thread=thread, since=moment, limit=most)


def _standing(writer: Writer, thread: str | None) -> dict[str, list[Turn]]:
    """Return the turns that stand, of one thread or of all."""
    if thread is not None:
        must_know(writer, thread)
    with writer.reader.state() as state:
        threads = state.transcript.threads
        return {name: threads[name].standing() for name in (threads if thread is None else (thread,))}


def _some(limit: int) -> int:
    return checks.whole("limit", limit, 1, "a whole number")
