"""Commit of a change of one fact by hand: its refusal is raised, and a key makes it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import (
    EDITABLE,
    Command,
)
from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.errors import (
    CapError,
    DuplicateFactError,
    KeyReusedError,
    NotFoundError,
    RefusedError,
)
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    SectionEvent,
    SettingEvent,
    TurnEvent,
    UpdateEvent,
)
from backstory.services.named import live_fact
from backstory.services.services import ScopeServices


def gone(event: Event) -> Fact | None:
    """Return a fact as it left memory, or as it is until it does."""
    if isinstance(event, FactRemoved):
        return msgspec.structs.replace(event.fact, valid_until=event.valid_until or event.fact.valid_until)
    return event.after if isinstance(event, FactRevised) else None


def must_be_live(services: ScopeServices, fact_id: str) -> None:
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


def commit_change(
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
            way_out = ": remove a fact or raise max_facts (`policy --set max_facts=N`)" if event.rule == "cap" else ""
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

    return services.on_newest(find_or_commit)


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


def changed_fact(commit: Commit, facts: Iterable[Fact]) -> Fact:
    """Return the fact that a commit changed.

    Raises:
        NotFoundError: It was erased since, which only a repeated request finds.
    """
    for fact in facts:
        return fact
    raise NotFoundError(f"what commit {commit.seq} changed was erased since: nothing is changed again")
