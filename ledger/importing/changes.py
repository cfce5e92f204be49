"""What a host changed in a document: the difference to what it was given, as the candidates of a save."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from backstory.ledger.core.events import Candidate, NewFact, NewSummary, Removal
from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.importing.document import read_document

__all__ = ["changes_since"]


def changes_since(
    before: Sequence[Candidate], document: object, *, removable: Collection[str] | None = None
) -> tuple[Candidate, ...]:
    """Tell what a document says that `before`, another one read into candidates, does not.

    A fact that it leaves out is to be removed; with `removable` only one of these ids. A section that it leaves out
    stays, and so does a fact that it names and states in no readable way. A fact without an id is the one of before
    that says the same.

    Raises:
        InputError: it is no document.
    """
    return tuple(_changes(_Before(before), read_document(document), _named(document), removable))


class _Before:
    """The facts by their ids and the sections by their names."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.facts = {c.id: c for c in candidates if isinstance(c, NewFact) and c.id}
        self.sections = {c.place: c.summary for c in candidates if isinstance(c, NewSummary)}


def _changes(
    before: _Before, after: Sequence[Candidate], named: set[str], removable: Collection[str] | None
) -> Iterator[Candidate]:
    left = {fact.content: fact_id for fact_id, fact in before.facts.items() if fact_id not in named}
    met: set[str] = set()
    for candidate in after:
        match candidate:
            case NewSummary(place=place, summary=summary):
                if summary != before.sections.get(place, ""):
                    yield candidate
            case NewFact():
                fact = candidate
                if fact.id is None and (same := left.pop(fact.content, None)) is not None:
                    fact = msgspec.structs.replace(fact, id=same)
                was = None if fact.id in met else before.facts.get(fact.id or "")
                met.add(fact.id or "")
                if was is None or not _says_the_same(fact, was):
                    yield fact
            case _:
                yield candidate
    gone = [i for i in before.facts if i not in named and i not in met and (removable is None or i in removable)]
    for index, fact_id in enumerate(gone):
        yield Removal(place=f"factsToRemove/{index}", id=fact_id)


def _says_the_same(fact: NewFact, was: NewFact) -> bool:
    """Whether a fact states nothing new; what it does not state at all it leaves as it was."""
    stated = msgspec.structs.replace(
        fact,
        place=was.place,
        category=fact.category if fact.category in CATEGORIES else "context",
        at=fact.at or was.at,
        source=fact.source or was.source,
        by_hand=fact.by_hand or was.by_hand,
        confirmations=max(fact.confirmations, was.confirmations),
        confirmed_at=fact.confirmed_at or was.confirmed_at,
        consolidated_from=fact.consolidated_from or was.consolidated_from,
    )
    return stated == was


def _named(document: object) -> set[str]:
    """The ids that a document names, also of facts that cannot be read."""
    facts = document.get("facts") if isinstance(document, Mapping) else document
    stated = (fact.get("id") for fact in facts if isinstance(fact, Mapping)) if isinstance(facts, list | tuple) else ()
    return {clip(fact_id, MAX_NAME) for fact_id in stated if isinstance(fact_id, str)}
