"""How a fact went, in a word or two."""

from __future__ import annotations

from backstory.projections.graph.model import FactNode
from backstory.projections.graph.words import cut, line

_REASONS = {
    "model": "withdrawn",
    "consolidated": "merged",
    "hand": "by hand",
    "cap": "no room",
    "clear": "cleared",
    "threshold": "below threshold",
}
_WIDEST = 10.0


def reason_in_words(node: FactNode) -> str:
    """Say why a fact is gone; nothing where it is not, or where that is not known."""
    reason = "" if node.gone is None else node.gone.reason
    return _REASONS.get(reason, reason)


def tag(node: FactNode) -> str:
    """Say why a fact is gone, and with which commit."""
    return "" if node.gone is None else cut(line(f"{reason_in_words(node)} #{node.gone.seq}"), _WIDEST)
