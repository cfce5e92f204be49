"""Drawing memory: how facts, threads and updates hang together, and who sent what to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backstory import checks
from backstory.checks import When
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.operations.scope_base import ScopeBase

if TYPE_CHECKING:
    from backstory.ledger.core.events import Turn
    from backstory.projections.graph import Graph, MessageFlow

__all__ = ["Picturing"]


class Picturing(ScopeBase):
    """The part of a handle that draws, and writes nothing."""

    def graph(
        self,
        *,
        thread: str | None = None,
        fact: str | None = None,
        since: int | When | None = None,
        limit: int = 200,
    ) -> Graph:
        """Return the graph of facts, the updates and threads they came from, and what superseded what; it draws itself.

        `thread` narrows it to what was learned from a conversation and what became of that, `fact` to one fact (a
        unique beginning of its id will do), what it was made of and what took its place, `since` to the updates from a
        commit or a time on. At most `limit` updates are in it, the newest; `left_out` counts the others.

        Raises:
            NotFoundError: there is no such thread or fact.
            UsageError: several facts begin so, `since` is neither a seq nor a time, `limit` is less than one, or one of
                them of another kind.
        """
        from backstory.projections.graph import Choice, graph_of

        most = _some(limit)
        moment = None if since is None else checks.commit_or_time("since", since)
        named = None if fact is None else checks.text("fact", fact)
        writer = self._reading()
        if thread is not None:
            self._said(checks.text("thread", thread))
        wanted = None if named is None else self._known_fact(writer, named)
        return graph_of(self._logs(writer), writer.scope, Choice(thread, wanted, moment, most))

    def letters(self, *, thread: str | None = None, since: When | None = None, limit: int = 200) -> MessageFlow:
        """Return who sent what to whom over the turns that stand: a count for each route; it draws itself.

        `since` is a time; of more routes than `limit` those with the most turns are told, and `left_out` counts the
        others.

        Raises:
            NotFoundError: there is no such thread.
            UsageError: `since` is no time, `limit` is less than one, or one of them of another kind.
        """
        from backstory.projections.graph import message_flow_of

        most = _some(limit)
        moment = None if since is None else checks.commit_or_time("since", since)
        if isinstance(moment, int):
            raise UsageError(f"{since} is a commit's number, and turns are told apart by time: give a time in ISO 8601")
        said = self._said(None if thread is None else checks.text("thread", thread))
        return message_flow_of(said, self._reading().scope, thread=thread, since=moment, limit=most)

    def _said(self, thread: str | None) -> dict[str, list[Turn]]:
        """Return the turns that stand, of one thread or of all."""
        writer = self._reading()
        with writer.reader.state() as state:
            threads = state.transcript.threads
            if thread is not None and thread not in threads:
                raise NotFoundError(f"there is no thread {thread} in the memory of {writer.scope}: see `threads`")
            return {name: threads[name].standing() for name in (threads if thread is None else (thread,))}


def _some(limit: int) -> int:
    return checks.whole("limit", limit, 1, "how many things a picture shows, a whole number")
