"""Changes of memory as a flat list: of a diff, and of an undo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from backstory.ledger.core.events import (
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    SharingEvent,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.policy import POLICY_KEYS
from backstory.mcp.budget import cut, name_of, quoted
from backstory.mcp.tools.results import Change
from backstory.projections.history.views import Diff, policy_in_words, revision_in_words

_SIGNS = {"added": "+", "removed": "-"}


def of_diff(diff: Diff) -> list[Change]:
    """Return the differences between two memories."""
    return [
        *(Change(change="added", id=fact.id, after=fact.content) for fact in diff.added),
        *(Change(change="removed", id=fact.id, before=fact.content) for fact in diff.removed),
        *(_revised(one.before, one.after) for one in diff.revised),
        *(Change(change="section", id=one.section, before=one.before, after=one.after) for one in diff.sections),
    ]


def of_events(events: Iterable[Event]) -> Iterator[Change]:
    """Yield what the events of an undo do to memory."""
    for event in events:
        match event:
            case FactAdded(fact=fact):
                yield Change(change="added", id=fact.id, after=fact.content)
            case FactRemoved(fact=fact):
                yield Change(change="removed", id=fact.id, before=fact.content)
            case FactRevised(before=before, after=after):
                yield _revised(before, after)
            case SummaryUpdated(section=section, before=was, after=becomes):
                yield Change(change="section", id=section, before=was.summary, after=becomes.summary)
            case PolicyChanged():
                yield Change(change="policy", detail=policy_in_words(event, len(POLICY_KEYS)))
            case SharingEvent() | UpdateEvent() | IdsReserved() | ErasureEvent() | TurnEvent():
                yield Change(change="other", detail=type(event).__name__)
            case _:
                assert_never(event)


def _revised(before: Fact, after: Fact) -> Change:
    said = before.content != after.content
    return Change(
        change="changed",
        id=after.id,
        before=before.content,
        after=after.content if said else None,
        detail=None if said else revision_in_words(before, after),
    )


def shortened(changes: Sequence[Change], length: int) -> list[Change]:
    """Return changes with texts of at most `length` characters."""
    return [
        change.model_copy(
            update={
                name: cut(text, length)
                for name in ("before", "after", "detail")
                if (text := getattr(change, name)) is not None
            }
        )
        for change in changes
    ]


def line_of(change: Change) -> str:
    """Return a change as one line; remembered words are in quotes."""
    texts = [quoted(text) for text in (change.before, change.after) if text is not None]
    said = " -> ".join(texts)
    detail = (
        f" {change.detail}" if change.detail and not texts else f" ({quoted(change.detail)})" if change.detail else ""
    )
    return f"{_SIGNS.get(change.change, '~')} {name_of(change.id or change.change)}: {said}".rstrip(": ") + detail
