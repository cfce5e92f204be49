"""Imports into a memory: of a document, which becomes one commit, and of a file in a format of another tool.

A file is read once to see what it holds, and once more to record or import that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from backstory.ledger.core.commands import ImportDocument, SaveDocument
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import InputError, UsageError
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Event,
    FactAdded,
    FactRemoved,
    NewFact,
    NewSummary,
    Unread,
)
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.importing import read_import, without_empty_sections
from backstory.ledger.importing.document import listed_fact
from backstory.ledger.importing.formats.conversation import ImportedConversation
from backstory.ledger.importing.formats.files import files_in
from backstory.ledger.importing.formats.recognising import MEMORY, Recognised, recognise
from backstory.ledger.importing.formats.tally import Tally
from backstory.ledger.log.writer import Writer
from backstory.ledger.rules.decide import decide
from backstory.ledger.text.tags import joined_tags
from backstory.operations.recording import Intake
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.audit import Removed, last_state
from backstory.projections.index.keyed_commits import digest_of
from backstory.results import ImportedDocument, ReadFile, RefusedItem, RenamedFact, ReturnedFact
from backstory.services.services import ScopeServices


def import_document(
    services: ScopeServices, document: object, *, replace: bool, insist: bool = False
) -> ImportedDocument:
    """Take a memory in; see `MemoryHandle.import_document`, and for `insist` the command."""
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


_IN_ONE_COMMIT = 1_000
_MOST_LISTED = 1_000
_HELD = 12 << 20
"""How many bytes of turns are held, about, before they are let go of."""
_OF_A_TURN = 600
"""How many of them are beside a turn's words."""
_SHOWN = 5
_SHOWN_OF_EACH = 80


@dataclass
class FileImport:
    """The import of one file; see `MemoryHandle.import_file` for what is wanted of it."""

    services: ScopeServices
    path: Path
    format_name: str | None
    of_user: str | None
    replace: bool
    dry_run: bool
    tags: tuple[str, ...]
    progress: Callable[[int, int], None] | None

    def __post_init__(self) -> None:
        self._done = 0

    def run(self) -> ImportedDocument:
        """Import it."""
        self.services.must_stand()
        path = self.path
        try:
            if path.is_dir() and not files_in(path):
                return self._memory()
            found = recognise(path, self.format_name)
            return self._memory() if found.format is MEMORY else self._other(found)
        except InputError as error:
            raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}; name a file or a folder") from error
        except ValueError as error:
            raise InputError(f"cannot read the path {str(path)[:80]!r}: {error}") from error

    def _memory(self) -> ImportedDocument:
        """Import a memory.json or a folder, in one commit."""
        if self.tags:
            raise UsageError("a memory keeps the tags that its facts have: leave --tag out")
        read = ReadFile(MEMORY.name, MEMORY.title)
        if not self.dry_run:
            done = import_document(self.services, self.path, replace=self.replace)
            return msgspec.structs.replace(done, read=read)
        candidates = read_import(self.path, self.services.scope)
        facts = [one.content for one in candidates if isinstance(one, NewFact)]
        refused = Counter(one.detail for one in candidates if isinstance(one, Unread))
        read = msgspec.structs.replace(read, facts=len(facts), refused=dict(refused), first=_first(facts))
        return self._result(read)

    def _other(self, found: Recognised) -> ImportedDocument:
        if found.holds_chats and self.replace:
            raise UsageError(f"{found.format.title} holds conversations, which are recorded: leave --replace out")
        read = self._look(found)
        if self.dry_run:
            return self._result(read)
        return self._record(found, read) if found.holds_chats else self._import(found, read)

    def _step(self, size: int, total: int) -> None:
        self._done += size
        if self.progress is not None:
            self.progress(min(self._done, total), total)

    def _items(self, found: Recognised, tally: Tally) -> Iterator[ImportedConversation | dict[str, object]]:
        # The file is read twice.
        total = 2 * found.size
        return found.read(tally, lambda size: self._step(size, total))

    def _look(self, found: Recognised) -> ReadFile:
        """Read the whole file, so that nothing is kept of a broken one, and count what it holds."""
        tally, counts, first, thread = Tally(self.of_user), Counter[str](), list[str](), None
        for item in self._items(found, tally):
            if isinstance(item, ImportedConversation):
                counts["threads"] += item.thread != thread
                counts["turns"] += len(item.kept)
                thread = item.thread
            else:
                counts["facts"] += 1
            if len(first) < _SHOWN:
                first.append(
                    item.kept[0].content if isinstance(item, ImportedConversation) else str(item.get("content"))
                )
        _must_be_of_one_user(tally, self.of_user)
        if not counts:
            why = "; ".join(f"{reason} ({count:,})" for reason, count in tally.refused.most_common(3))
            raise InputError(f"this is {found.format.title} with nothing to import: {why or 'it is empty'}")
        return ReadFile(
            found.format.name,
            found.format.title,
            **counts,
            refused=dict(tally.refused.most_common()),
            left_out=dict(tally.left_out),
            unread_keys=tuple(tally.unread),
            first=_first(first),
        )

    def _record(self, found: Recognised, read: ReadFile) -> ImportedDocument:
        services, intake = self.services, Intake(self.services)
        new, held, tags = 0, 0, self.tags
        for item in self._items(found, Tally(self.of_user)):
            if isinstance(item, ImportedConversation):
                taken = intake.take_in(item.thread, [msgspec.structs.replace(one, tags=tags) for one in item.kept])
                new, held = new + taken.turns, held + sum(len(one.content) + _OF_A_TURN for one in item.kept)
            if held >= _HELD:
                # The writer holds the turns of this process; with a new index it reads them when they are asked for.
                services.state.index.follow()
                services.writer.start_over()
                held = 0
        return self._result(msgspec.structs.replace(read, new=new, known=read.turns - new))

    def _import(self, found: Recognised, read: ReadFile) -> ImportedDocument:
        items = self._items(found, Tally(self.of_user))
        candidates = (_tagged(listed_fact(index, item), self.tags) for index, item in enumerate(items))
        replace, done, new, known = self.replace, None, 0, 0
        refused, before = Counter(read.refused), len(self.services.writer.memory().facts)
        while batch := tuple(islice(candidates, None if replace else _IN_ONE_COMMIT)):
            unknown, key = batch if replace else self._unknown(batch), _digest(batch)
            if not replace and self._changes_nothing(unknown, key):
                unknown = ()
            known += len(batch) - len(unknown)
            if unknown:
                after = import_candidates(self.services, unknown, replace=replace, key=key)
                refused.update(one.detail if one.rule == "malformed" else one.rule for one in after.refused)
                new += len(unknown) - len(after.refused)
                done = _joined(done, after)
        memory = self.services.writer.memory()
        left_out = dict(read.left_out)
        if not replace and (evicted := before + new - len(memory.facts)) > 0:
            left_out[f"facts that were evicted, since memory holds {memory.policy.max_facts:,} (max_facts)"] = evicted
        read = msgspec.structs.replace(read, new=new, known=known, refused=dict(refused), left_out=left_out)
        return self._result(read, done)

    def _unknown(self, batch: Iterable[NewFact | Unread]) -> tuple[NewFact | Unread, ...]:
        """Leave out the facts that memory holds, so that to import a file again writes nothing."""
        memory = self.services.writer.memory()
        mode = memory.policy.dedup_key
        here = {dedup_key(fact.content, mode) for fact in memory.facts.values()}
        return tuple(one for one in batch if isinstance(one, Unread) or dedup_key(one.content, mode) not in here)

    def _changes_nothing(self, unknown: tuple[NewFact | Unread, ...], key: str) -> bool:
        """Whether these facts were imported before, and memory would not hold more of them now."""
        services = self.services
        now = services.writer.clock.now()
        memory, head = services.writer.memory(), services.on_newest(lambda newest: newest)
        if services.state.keyed.find(head, key, now) is None:
            return False
        events = decide(memory, ImportDocument(at=spell_moment(now), candidates=unknown))
        # Of a list that is longer than memory may be, the facts of one import would else evict those of the other.
        return sum(isinstance(e, FactAdded) - isinstance(e, FactRemoved) for e in events) <= 0

    def _result(self, read: ReadFile, done: ImportedDocument | None = None) -> ImportedDocument:
        if done is None:
            memory = self.services.writer.memory()
            done = ImportedDocument.of(document_of(memory), memory.seq)
        return msgspec.structs.replace(done, read=read)


def _tagged(fact: NewFact | Unread, tags: tuple[str, ...]) -> NewFact | Unread:
    if not tags or isinstance(fact, Unread):
        return fact
    return msgspec.structs.replace(fact, tags=joined_tags(tags, fact.tags))


def _digest(batch: tuple[NewFact | Unread, ...]) -> str:
    return digest_of(msgspec.json.encode(batch).decode())


def _must_be_of_one_user(tally: Tally, of_user: str | None) -> None:
    named = ", ".join(f"{user} ({count:,})" for user, count in tally.users.most_common(10))
    if of_user is None and len(tally.users) > 1:
        raise InputError(f"it names several users, each with a number of items: {named}; take one with --of NAME")
    if of_user is not None and of_user not in tally.users:
        raise InputError(f"it names no user {of_user!r}, but {named or 'none'}")


def _joined(before: ImportedDocument | None, after: ImportedDocument) -> ImportedDocument:
    """Return the result of both imports, with a bounded number of items in each list."""
    if before is None:
        return after
    return msgspec.structs.replace(
        after,
        renamed=(before.renamed + after.renamed)[:_MOST_LISTED],
        refused=(before.refused + after.refused)[:_MOST_LISTED],
        returned=(before.returned + after.returned)[:_MOST_LISTED],
    )


def _first(texts: list[str]) -> tuple[str, ...]:
    return tuple(text[:_SHOWN_OF_EACH] for text in texts[:_SHOWN])
