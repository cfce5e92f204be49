"""Import of a document: what is read of it becomes one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from backstory.ledger.core.commands import ImportDocument, SaveDocument
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import Candidate, CandidateRejected, Event, FactAdded, NewFact, NewSummary
from backstory.ledger.log.writer import Writer
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.audit import Removed, last_state
from backstory.results import ImportedDocument, RefusedItem, RenamedFact, ReturnedFact
from backstory.services.services import ScopeServices


def import_document(
    services: ScopeServices, document: object, *, replace: bool, insist: bool = False
) -> ImportedDocument:
    """Take a memory in; see `MemoryHandle.import_document`, and for `insist` the command."""
    from backstory.ledger.importing import read_import, without_empty_sections

    services.must_stand()
    plain = msgspec.to_builtins(document) if isinstance(document, Document) else document
    candidates = read_import(plain, services.scope)
    if not replace:
        candidates = without_empty_sections(candidates)
    return import_candidates(services, candidates, replace=replace, insist=insist)


def import_candidates(
    services: ScopeServices,
    candidates: tuple[Candidate, ...],
    *,
    replace: bool = False,
    insist: bool = False,
    key: str | None = None,
) -> ImportedDocument:
    """Import what was read of a document, in one commit; `key` is the digest of what it was read from."""
    events: list[Event] = []
    if services.users is not None:
        sections = tuple(candidate for candidate in candidates if isinstance(candidate, NewSummary))
        candidates = tuple(candidate for candidate in candidates if not isinstance(candidate, NewSummary))
        events += _import_sections(services, services.users, sections, replace=replace)
    others, removed = _departed(services, candidates)
    command = ImportDocument(at="", candidates=candidates, replace=replace, insist=insist, gone=others)
    commit = services.commit(command, services.cause("import", replace=replace, insist=insist, key=key))
    events += commit.events
    return ImportedDocument.of(
        document_of(services.memory()),
        commit.seq,
        renamed=tuple(
            RenamedFact(str(event.proposed["id"]), event.fact.id, event.detail)
            for event in events
            if isinstance(event, FactAdded) and event.detail is not None
        ),
        refused=tuple(
            RefusedItem(event.candidate.place, event.rule, event.detail)
            for event in events
            if isinstance(event, CandidateRejected) and event.rule != "unchanged"
        ),
        returned=tuple(
            ReturnedFact(event.fact.id, event.fact.content, removed[event.fact.id])
            for event in events
            if isinstance(event, FactAdded) and event.fact.id in removed
        ),
    )


def _departed(services: ScopeServices, candidates: Iterable[Candidate]) -> tuple[tuple[str, ...], dict[str, Removed]]:
    """Return what is known of the stated ids that are not live.

    Returns:
        The ids that other facts had, and the removals of the facts that say the same as their candidates, by id: those
        come back.
    """
    memory = services.writer.memory()
    others: list[str] = []
    removed: dict[str, Removed] = {}
    if memory.seq == 0:
        return (), removed
    logs, mode = services.logs(services.writer), memory.policy.dedup_key
    for candidate in candidates:
        if not isinstance(candidate, NewFact) or not candidate.id or candidate.id in memory.facts:
            continue
        last = last_state(logs, candidate.id, memory.seq)
        if last is None:
            continue
        content, removal = last
        if dedup_key(content, mode) != dedup_key(candidate.content, mode):
            others.append(candidate.id)
        elif removal is not None:
            removed[candidate.id] = removal
    return tuple(others), removed


def _import_sections(
    services: ScopeServices, users: Writer, sections: tuple[NewSummary, ...], *, replace: bool
) -> Sequence[Event]:
    """Import the sections of a document into the memory of the user, who shares them with the agent."""
    if not sections:
        return ()
    if not replace:
        return users.commit(ImportDocument(at="", candidates=sections), services.cause("import")).events
    # To replace the user's memory would remove the user's facts, which the document does not list.
    return users.commit(SaveDocument(at="", candidates=sections), services.cause("import", action="save")).events
