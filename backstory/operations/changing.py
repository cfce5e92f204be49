"""Changes outside of extraction: facts, policy, whole documents; and undoing one update or many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, assert_never

import msgspec

from backstory import checks
from backstory.ledger.core.commands import (
    EDITABLE,
    TIMES,
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    ImportDocument,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
)
from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import (
    CapError,
    DuplicateFactError,
    KeyReusedError,
    NotFoundError,
    RefusedError,
    UsageError,
    WrongExpectedVersionError,
)
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Edit,
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    SectionEvent,
    SettingEvent,
    SummariesReceived,
    SummaryShared,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import stated_time
from backstory.ledger.core.policy import PolicyValue, check_policy, read_category
from backstory.ledger.core.sanitize import MAX_FACT, MAX_NAME, safe_text
from backstory.ledger.learning.sharing import deliver
from backstory.ledger.log.writer import Writer
from backstory.operations.services import ScopeServices, live_fact, read_policy
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.audit import Removed, last_state
from backstory.projections.history.preview import (
    ClearedAgent,
    UndoResult,
    preview_revert,
    preview_rollback,
    revert_command,
    rollback_command,
)
from backstory.projections.history.times import At
from backstory.results import FactChange, ImportedDocument, PolicyResult, RefusedItem, RenamedFact, ReturnedFact

_Answer = TypeVar("_Answer")
_Undoing = TypeVar("_Undoing", Revert, RollBack)
_WITH_USER = "all_agents"
"""The action of an agent's clear that was a part of its user's."""


def revert(
    services: ScopeServices, seq: int | str, *, dry_run: bool, force: bool, with_agents: bool = False
) -> UndoResult:
    """Undo one update; see `MemoryHandle.revert`."""
    services.must_stand()
    logs = services.logs(services.writer)
    seen = logs.last()
    commit = logs.commit(_to_undo(services, seq))
    cleared = _cleared_with(services, commit)
    if not with_agents or not cleared:
        undone = _revert_one(services, revert_command(commit, force=force, seen=seen), dry_run=dry_run)
        return msgspec.structs.replace(undone, agents=cleared)

    def undo_all(*, dry_run: bool) -> UndoResult:
        # The agents first: if this is interrupted, it can be repeated.
        agents = tuple(_revert_agent(services, agent, force=force, dry_run=dry_run) for agent in cleared)
        own = _revert_one(services, revert_command(commit, force=force, seen=seen), dry_run=dry_run)
        return msgspec.structs.replace(own, agents=agents)

    plan = undo_all(dry_run=True)
    conflicts = [*plan.conflicts, *(note for agent in plan.agents if agent.undo for note in agent.undo.conflicts)]
    return plan if dry_run or (conflicts and not force) else undo_all(dry_run=False)


def _cleared_with(services: ScopeServices, commit: Commit) -> tuple[ClearedAgent, ...]:
    """Return the agents from whose memories something went with a clear of their user's."""
    if commit.cause.kind != "clear" or services.scope.agent is not None:
        return ()
    found = []
    for writer in services.agents():
        for theirs in services.logs(writer).newest():
            if theirs.at < commit.at:
                break
            cause = theirs.cause
            if (cause.kind, cause.action, cause.target) == ("clear", _WITH_USER, commit.seq):
                facts = sum(isinstance(event, FactRemoved) for event in theirs.events)
                found += [ClearedAgent(writer.scope.agent or "", theirs.seq, facts)] if theirs.events else []
                break
    return tuple(found)


def _revert_agent(services: ScopeServices, cleared: ClearedAgent, *, force: bool, dry_run: bool) -> ClearedAgent:
    writer = next(writer for writer in services.agents() if writer.scope.agent == cleared.agent)
    agent = msgspec.structs.replace(services, own=writer, users=None, expected=None, key=None)
    logs = services.logs(writer)
    command = revert_command(logs.commit(cleared.seq), force=force, seen=logs.last())
    undone = _revert(agent, command, dry_run=True)
    if not dry_run and undone.events:
        undone = _revert(agent, command, dry_run=False)
    return msgspec.structs.replace(cleared, undo=undone)


def _revert_one(services: ScopeServices, command: Revert, *, dry_run: bool) -> UndoResult:
    force = command.force
    if services.users is None or not any(isinstance(event, SummaryShared) for event in command.events):
        return _revert(services, command, dry_run=dry_run)
    users = msgspec.structs.replace(services, own=services.users, users=None, expected=None)
    if not dry_run:
        deliver(services.writer)
    received = _revert_of_sections(users, services.scope.agent, command)
    plan = _revert(services, command, dry_run=True)
    theirs = None if received is None else _revert(users, received, dry_run=True)
    if not dry_run and (force or not plan.conflicts):
        # The user's memory first: if this is interrupted, it can be repeated.
        if received is not None and theirs is not None and theirs.events:
            theirs = _revert(users, received, dry_run=False)
        plan = _revert(services, command, dry_run=False)
    return msgspec.structs.replace(plan, users=theirs)


def _revert_of_sections(users: ScopeServices, agent: str | None, command: Revert) -> Revert | None:
    """Return the revert, in the user's memory, of what it received from the commit to undo; None if it did not yet."""
    logs = users.logs(users.writer)
    seen = logs.last()
    for commit in logs.newest(1):
        for event in commit.events:
            if isinstance(event, SummariesReceived) and event.agent == agent and event.seq <= command.target:
                if event.cut and event.seq == command.target:
                    continue
                known = event.seq == command.target
                return revert_command(commit, force=command.force, seen=seen) if known else None
    return None


def _revert(services: ScopeServices, command: Revert, *, dry_run: bool) -> UndoResult:
    cause = services.cause("revert", target=command.target, force=command.force)
    return _undo(services, command, preview_revert, cause, dry_run=dry_run)


def _undo(
    services: ScopeServices,
    command: _Undoing,
    preview: Callable[[Memory, _Undoing, Iterable[Commit]], UndoResult],
    cause: Cause,
    *,
    dry_run: bool,
) -> UndoResult:
    """Plan an undo on the newest head, and commit it there unless it is a dry run or conflicts."""
    writer = services.writer
    if not dry_run:
        services = services.with_policy_in_force()

    def undo(head: Head) -> UndoResult:
        memory = writer.memory()
        erased = memory.barriers.get("redaction", 0) > (cause.target or 0)
        plan = preview(memory, writer.dated(command), services.commits(writer) if erased else ())
        if dry_run or (plan.conflicts and not cause.force):
            return plan
        commit = writer.commit(command, cause, expected=services.expected or head.hash)
        return msgspec.structs.replace(plan, commit=commit.seq, events=commit.events)

    return _on_newest(services, undo)


def rollback(services: ScopeServices, to: At, *, dry_run: bool) -> UndoResult:
    """Bring back an earlier moment; see `MemoryHandle.rollback`."""
    services.must_stand()
    writer = services.writer
    seen = writer.memory().seq
    if str(to).strip().upper() in ("HEAD", "HEAD~0"):
        raise UsageError(
            "HEAD is the present: name an earlier commit or a time, or undo the last commit with `revert HEAD`"
        )
    then = services.logs(writer).memory_at(services.times(writer).cut("to", to, whole_days=False))
    command = rollback_command(then, then.seq, seen=seen)
    return _undo(services, command, preview_rollback, services.cause("rollback", target=then.seq), dry_run=dry_run)


class GivenTimes(msgspec.Struct, frozen=True):
    """When a fact holds, as it was given: None for what is not, empty for what is to be unknown again."""

    valid_from: str | None = None
    valid_until: str | None = None
    expires_at: str | None = None

    def read(self) -> dict[str, str]:
        """Return the given times as facts keep them, by field.

        Raises:
            UsageError: One is no time.
        """
        given = {name: checks.text(name, value) for name in TIMES if (value := getattr(self, name)) is not None}
        return {name: text if not text.strip() else _stated(name, text) for name, text in given.items()}


def _stated(name: str, text: str) -> str:
    found = stated_time(text)
    if found is None:
        raise UsageError(
            f"{name} must be a year, a month, a day or a moment, such as 2026, 2026-03, 2026-03-05 or "
            f"2026-03-05T10:00+01:00, got {text!r}"
        )
    return found


def add_fact(services: ScopeServices, content: str, category: str, confidence: float, times: GivenTimes) -> FactChange:
    """Enter a fact; see `MemoryHandle.add_fact`."""
    text = _text(content)
    fact = NewFact(place="facts/0", content=text, category=_category(category), confidence=_confidence(confidence))
    fact = msgspec.structs.replace(fact, **{name: stated for name, stated in times.read().items() if stated})
    command = AddFact(at="", fact=fact, by_model=services.by_model, thread=services.conversation)
    cause = services.cause("manual", action="add", by_model=services.by_model)
    commit = _commit(services, cause, lambda: command, fact)
    added = _changed(commit, (event.fact for event in commit.events if isinstance(event, FactAdded)))
    evicted = tuple(event.fact for event in commit.events if isinstance(event, FactRemoved) and event.reason == "cap")
    return FactChange(commit.seq, added, evicted)


def edit_fact(
    services: ScopeServices,
    fact_id: str,
    *,
    content: str | None,
    category: str | None,
    confidence: float | None,
    times: GivenTimes,
) -> FactChange:
    """Change a fact; see `MemoryHandle.edit_fact`."""
    if content is None and category is None and confidence is None and times == GivenTimes():
        raise UsageError("nothing to change: give a text, a category, a confidence or a time")
    edit = Edit(
        place="facts/0",
        id=checks.text("fact_id", fact_id),
        content=None if content is None else _text(content),
        category=None if category is None else _category(category),
        confidence=None if confidence is None else _confidence(confidence),
        **times.read(),
    )
    cause = services.cause("manual", action="edit", fact=edit.id, by_model=services.by_model)

    def command() -> EditFact:
        _must_be_live(services, edit.id)
        return EditFact(at="", edit=edit, by_model=services.by_model)

    commit = _commit(services, cause, command, edit)
    return FactChange(
        commit.seq, _changed(commit, (event.after for event in commit.events if isinstance(event, FactRevised)))
    )


def remove_fact(services: ScopeServices, fact_id: str, *, ended: bool, valid_until: str | None) -> FactChange:
    """Remove a fact; see `MemoryHandle.remove_fact`."""
    until = None if valid_until is None else _stated("valid_until", checks.text("valid_until", valid_until))
    if until is not None and not ended:
        raise UsageError("valid_until is about a fact that has ended: say that it has, or leave it out")

    def command() -> RemoveFact:
        _must_be_live(services, fact_id)
        return RemoveFact(at="", fact_id=fact_id, by_model=services.by_model, ended=ended, valid_until=until)

    named = checks.text("fact_id", fact_id)
    cause = services.cause("manual", action="remove", fact=named, by_model=services.by_model)
    commit = _commit(services, cause, command)
    return FactChange(commit.seq, _changed(commit, filter(None, map(_gone, commit.events))))


def _gone(event: Event) -> Fact | None:
    """Return a fact as it left memory, or as it is until it does."""
    if isinstance(event, FactRemoved):
        return msgspec.structs.replace(event.fact, valid_until=event.valid_until or event.fact.valid_until)
    return event.after if isinstance(event, FactRevised) else None


def _must_be_live(services: ScopeServices, fact_id: str) -> None:
    """Refuse to change a fact that is not live.

    Raises:
        NotFoundError: It is not live.
        WrongExpectedVersionError: Nor is the head the one that the caller expects, on which it may have been live.
    """
    try:
        with services.naming_the_owner(fact_id):
            live_fact(services.writer.memory(durable=False), fact_id)
    except NotFoundError:
        services.must_stand()
        raise


def clear(services: ScopeServices, *, all_agents: bool) -> Document:
    """Empty the memory; see `MemoryHandle.clear`."""
    if all_agents and services.scope.agent is not None:
        raise UsageError("all_agents is about all of a user's agents, and this is the memory of one: leave it out")
    services.home.outbox.let_in(services.scope)
    # The own memory first: where its head is not the expected one, nothing is cleared.
    cleared = services.commit(Clear(at=""), services.cause("clear"))
    for writer in services.agents() if all_agents else ():
        services.home.outbox.let_in(writer.scope)
        writer.commit(Clear(at=""), services.cause("clear", action=_WITH_USER, target=cleared.seq))
    return document_of(services.memory())


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
    events: list[Event] = []
    if services.users is not None:
        sections = tuple(candidate for candidate in candidates if isinstance(candidate, NewSummary))
        candidates = tuple(candidate for candidate in candidates if not isinstance(candidate, NewSummary))
        events += _import_sections(services, services.users, sections, replace=replace)
    others, removed = _departed(services, candidates)
    command = ImportDocument(at="", candidates=candidates, replace=replace, insist=insist, gone=others)
    commit = services.commit(command, services.cause("import", replace=replace, insist=insist))
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


def set_policy(services: ScopeServices, changes: Mapping[str, PolicyValue]) -> PolicyResult:
    """Put other rules in force; see `MemoryHandle.set_policy`."""
    services.must_stand()
    changes = read_policy(changes)
    check_policy(msgspec.structs.replace(services.writer.memory().policy, **changes))
    # The configured policy first: the changes are added to it and do not take it back.
    services = services.with_policy_in_force()
    memory = services.writer.memory()
    policy = check_policy(msgspec.structs.replace(memory.policy, **changes))
    if policy == memory.policy:
        services.must_stand()
        return PolicyResult(memory.policy, memory.configured)
    commit = services.commit(ChangePolicy(at="", policy=policy), services.cause("policy"))
    memory = services.writer.memory()
    return PolicyResult(memory.policy, memory.configured, commit.seq)


def _commit(
    services: ScopeServices, cause: Cause, command: Callable[[], Command], asked: NewFact | Edit | None = None
) -> Commit:
    """Commit a change of one fact, or find the commit that was made under the same key; raise a recorded refusal.

    Args:
        services: The scope, and the key if there is one.
        cause: The cause of the commit.
        command: Returns the command, if it still has to be carried out.
        asked: What the command asks for.
    """
    commit = services.commit(command(), cause) if services.key is None else _once(services, cause, command, asked)
    for event in commit.events:
        if isinstance(event, CandidateRejected):
            way_out = ": remove a fact or raise max_facts" if event.rule == "cap" else ""
            message = f"refused ({event.rule}): {event.detail}{way_out}; recorded as commit {commit.seq}"
            if event.rule == "duplicate":
                raise DuplicateFactError(message, fact_id=event.detail.partition(" ")[0], seq=commit.seq)
            if event.rule == "cap":
                raise CapError(message, seq=commit.seq)
            if event.rule == "unknown_fact":
                raise NotFoundError(message, rule=event.rule)
            raise RefusedError(message, rule=event.rule)
    return commit


def _once(
    services: ScopeServices, cause: Cause, command: Callable[[], Command], asked: NewFact | Edit | None
) -> Commit:
    """Commit under a key, unless that was done before, by any process.

    Raises:
        KeyReusedError: The key was used for another change.
        WrongExpectedVersionError: The caller expects another head.
    """
    writer, key = services.writer, services.key or ""
    cause = msgspec.structs.replace(cause, key=key)

    def find_or_commit(head: Head) -> Commit:
        found = services.state.keyed.find(head, key, writer.clock.now())
        if found is None:
            return writer.commit(command(), cause, expected=services.expected or head.hash)
        if not _is_the_same(found, cause, asked):
            raise KeyReusedError(
                f"this key was used for another change, commit {found.seq}: take a new key for each change"
            )
        return found

    return _on_newest(services, find_or_commit)


def _on_newest(services: ScopeServices, change: Callable[[Head], _Answer]) -> _Answer:
    """Make a change on the newest head, again if another writer moved it; the caller's own expectation is kept."""
    while True:
        with services.writer.state() as state:
            head = state.head
        try:
            return change(head)
        except WrongExpectedVersionError:
            if services.expected is not None:
                raise


def _is_the_same(found: Commit, cause: Cause, asked: NewFact | Edit | None) -> bool:
    """Whether a commit answers the same request; what it changed may be erased since."""
    if (found.cause.action, found.cause.fact) != (cause.action, cause.fact):
        return False
    for event in found.events:
        match event:
            case CandidateRejected(candidate=NewFact() | Edit() as candidate):
                answered: Fact | NewFact | Edit = candidate
            case FactAdded(fact=fact) | FactRevised(after=fact):
                answered = fact
            case FactRemoved() | SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
                continue
            case _:
                assert_never(event)
        wanted = {name: value for name in EDITABLE if (value := getattr(asked, name, None)) is not None}
        # An empty time was to be unknown again.
        return all(getattr(answered, name) == (None if value == "" else value) for name, value in wanted.items())
    return True


def _changed(commit: Commit, facts: Iterable[Fact]) -> Fact:
    """Return the fact that a commit changed.

    Raises:
        NotFoundError: It was erased since, which only a repeated request finds.
    """
    for fact in facts:
        return fact
    raise NotFoundError(f"what commit {commit.seq} changed was erased since: nothing is changed again")


def _to_undo(services: ScopeServices, seq: int | str) -> int:
    target = services.times(services.writer).commit("the commit to undo", seq)
    if target <= 1 and str(seq).strip().casefold().startswith("head"):
        raise NotFoundError(
            "nothing was learned yet, so there is nothing to revert: `record` a conversation and `extract` it first"
        )
    return target


def _text(content: str) -> str:
    text = safe_text(checks.text("content", content).strip())
    if not text:
        raise UsageError("the fact is empty: give it a text")
    if len(text) > MAX_FACT:
        raise UsageError(
            f"the fact has {len(text):,} characters, and a fact has at most {MAX_FACT:,}: shorten it, or enter several"
        )
    return text


def _category(category: str) -> str:
    name = checks.text("category", category)
    if not name.strip() or len(name) > MAX_NAME:
        raise UsageError(f"a category is a name of 1 to {MAX_NAME} characters, such as preference, got {name[:40]!r}")
    return read_category(name)


def _confidence(confidence: float) -> float:
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise UsageError(f"the confidence must be a number from 0 to 1, got {confidence}")
    return float(confidence)
