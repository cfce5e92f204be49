"""Who sent what to whom over the turns of a memory's conversations: a count for each sender, receiver and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.core.scope import Scope
from backstory.projections.graph.dot import dot_of
from backstory.projections.graph.mermaid import mermaid_of
from backstory.projections.graph.model import MessageFlowData, Route
from backstory.projections.graph.outline import message_outline_of
from backstory.projections.history.moment import Moment

_TO_ALL, _TO_SELF = "<all>", "<self>"
"""How MetaGPT addresses everybody, and the sender itself."""


class MessageFlow(MessageFlowData, frozen=True):
    """Who sent what to whom; `backstory.page.graph_page` draws it."""

    def dot(self) -> str:
        """Return it in the language of Graphviz, every text escaped and long ones cut."""
        return dot_of(message_outline_of(self))

    def mermaid(self) -> str:
        """Return it as a flowchart of Mermaid, every text escaped and long ones cut."""
        return mermaid_of(message_outline_of(self))


def message_flow_of(
    threads: Mapping[str, Sequence[Turn]],
    scope: Scope,
    *,
    thread: str | None = None,
    since: Moment | None = None,
    limit: int = 200,
) -> MessageFlow:
    """Count the turns of some threads; of more routes than `limit` the busiest are named.

    A turn's sender is who sent it, else the name of who said it, else the role.
    """
    moment = "" if since is None else str(since)
    turns = [turn for said in threads.values() for turn in said if turn.at >= moment]
    turns.sort(key=lambda turn: turn.at)
    routes: dict[tuple[str, str | None, str | None], Route] = {}
    for turn in turns:
        sender = turn.sent_from or turn.name or turn.role
        for receiver in _receivers(turn, sender):
            key = (sender, receiver, turn.cause_by)
            before = routes.get(key)
            routes[key] = (
                Route(*key, 1, turn.at, turn.at)
                if before is None
                else msgspec.structs.replace(before, turns=before.turns + 1, last=turn.at)
            )
    found = list(routes.values())
    busiest = sorted(range(len(found)), key=lambda number: (-found[number].turns, number))[:limit]
    told = tuple(found[number] for number in sorted(busiest))
    return MessageFlow(
        scope.user, scope.agent, len(turns), told, len(found) - len(told), thread, None if since is None else moment
    )


def _receivers(turn: Turn, sender: str) -> Iterator[str | None]:
    """Name each receiver once; one that is named beside everybody is among them."""
    named = dict.fromkeys(turn.send_to)
    if not named or _TO_ALL in named:
        yield None
        return
    yield from dict.fromkeys(sender if name == _TO_SELF else name for name in named)
