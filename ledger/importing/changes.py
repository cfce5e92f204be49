"""Differences between a document that a host was given and the one it hands back, as the candidates of a save."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec

from backstory.ledger.core.events import (
    Candidate,
    Consolidation,
    Edit,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.sanitize import MAX_CONTENT, clip
from backstory.ledger.importing.document import read_document


def changes_since(
    before: Sequence[Candidate], document: object, *, removable: Collection[str] | None = None
) -> tuple[Candidate, ...]:
    """Return the candidates that lead from one document to another.

    A missing fact becomes a removal. A missing section stays, and so does a fact whose id is there but whose entry
    cannot be read. A fact without an id is matched by its text.

    Args:
        before: the earlier document, read into candidates.
        document: the later document, as `read_document` takes it.
        removable: if given, the ids of the facts that may be removed.

    Raises:
        InputError: `document` is not a document.
    """
    named = _named(document)
    changes: list[Candidate] = []
    facts = {c.id: c for c in before if isinstance(c, NewFact) and c.id}
    sections = {c.place: c.summary for c in before if isinstance(c, NewSummary)}
    unnamed = {fact.content: fact_id for fact_id, fact in facts.items() if fact_id not in named}
    matched: set[str] = set()
    for candidate in read_document(document):
        match candidate:
            case NewSummary(place=place, summary=summary):
                if summary != sections.get(place, ""):
                    changes.append(candidate)
            case NewFact():
                fact = candidate
                if fact.id is None and (same := unnamed.pop(fact.content, None)) is not None:
                    fact = msgspec.structs.replace(fact, id=same)
                was = None if fact.id in matched else facts.get(fact.id or "")
                matched.add(fact.id or "")
                if was is None or not _is_unchanged(fact, was):
                    changes.append(fact)
            case Removal() | Reinforcement() | Extension() | Consolidation() | Edit() | Unread():
                changes.append(candidate)
            case _:
                assert_never(candidate)
    missing = [i for i in facts if i not in named and i not in matched]
    removed = (i for i in missing if removable is None or i in removable)
    changes += (Removal(place=f"factsToRemove/{index}", id=fact_id) for index, fact_id in enumerate(removed))
    return tuple(changes)


def _is_unchanged(fact: NewFact, was: NewFact) -> bool:
    # A field that the later document leaves out keeps its value.
    stated = msgspec.structs.replace(
        fact,
        place=was.place,
        at=fact.at or was.at,
        source=fact.source or was.source,
        by_hand=fact.by_hand or was.by_hand,
        confirmations=max(fact.confirmations, was.confirmations),
        confirmed_at=fact.confirmed_at or was.confirmed_at,
        consolidated_from=fact.consolidated_from or was.consolidated_from,
        valid_from=fact.valid_from or was.valid_from,
        valid_until=fact.valid_until or was.valid_until,
        expires_at=fact.expires_at or was.expires_at,
        tags=fact.tags or was.tags,
        attributes=fact.attributes or was.attributes,
    )
    return stated == was


def _named(document: object) -> set[str]:
    """Return the ids in a document, also those of facts that cannot be read."""
    facts = document.get("facts") if isinstance(document, Mapping) else document
    stated = (fact.get("id") for fact in facts if isinstance(fact, Mapping)) if isinstance(facts, list | tuple) else ()
    return {clip(fact_id, MAX_CONTENT) for fact_id in stated if isinstance(fact_id, str)}
