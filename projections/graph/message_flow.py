"""Who sent what to whom over the turns of a memory's conversations: a count for each sender, receiver and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.core.scope import Scope
from backstory.projections.graph.message_flow_drawing import svg_of
from backstory.projections.graph.model import MessageFlowData, Route
from backstory.projections.graph.page import page_of
from backstory.projections.history.replay import Moment

_TO_ALL, _TO_SELF = "<all>", "<self>"
"""How MetaGPT addresses everybody, and the sender itself."""


class MessageFlow(MessageFlowData, frozen=True):
    """Who sent what to whom, with its pictures."""

    def svg(self) -> str:
        """Draw it: an SVG document that needs nothing beside it, for light and dark, every text escaped."""
        return svg_of(self)

    def html(self) -> str:
        """Draw it on a page of its own, on which a name that is pointed at shows its routes."""
        return page_of(self.svg(), "who sent what to whom")


def message_flow_of(
    threads: Mapping[str, Sequence[Turn]],
    scope: Scope,
    *,
    thread: str | None = None,
    since: Moment | None = None,
    limit: int = 200,
) -> MessageFlow:
    """Count the turns of some threads; of more routes than `limit` the busiest are told.

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
    """Name each receiver once; whoever is named beside everybody is among them."""
    named = dict.fromkeys(turn.send_to)
    if not named or _TO_ALL in named:
        yield None
        return
    yield from dict.fromkeys(sender if name == _TO_SELF else name for name in named)
