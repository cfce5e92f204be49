"""Changes outside of extraction: facts, policy, whole documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, assert_never

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.commands import EDITABLE, AddFact, ChangePolicy, Clear, Command, EditFact, RemoveFact
from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.errors import (
    CapError,
    DuplicateFactError,
    KeyReusedError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from backstory.ledger.core.events import (
    Attribute,
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
from backstory.ledger.core.moments import stated_time
from backstory.ledger.core.policy import PolicyValue, check_policy, read_category
from backstory.ledger.core.sanitize import MAX_FACT, MAX_NAME, safe_text
from backstory.ledger.text.tags import read_attributes, read_tags
from backstory.operations.importing import FileImport, import_document
from backstory.projections.document.document import Document, document_of
from backstory.results import FactChange, ImportedDocument, PolicyResult
from backstory.services.named import live_fact, read_policy
from backstory.services.services import Operations, ScopeServices

WITH_USER = "all_agents"
"""The action of an agent's clear that was a part of its user's."""


class FactFields(TypedDict, total=False):
    """The keyword arguments of `add_fact` and `edit_fact`, for doors that pass them on."""

    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    tags: Sequence[str] | None
    attributes: Mapping[str, Attribute] | None


def _given_times(**given: str | None) -> dict[str, str]:
    """Return when a fact holds, by field, as facts keep it; without what is not given, empty for what is unknown again.

    Raises:
        UsageError: One is no time.
    """
    texts = {name: checks.text(name, value) for name, value in given.items() if value is not None}
    return {name: text if not text.strip() else _stated(name, text) for name, text in texts.items()}


def _stated(name: str, text: str) -> str:
    found = stated_time(text)
    if found is None:
        raise UsageError(
            f"{name} must be a year, a month, a day or a moment, such as 2026, 2026-03, 2026-03-05 or "
            f"2026-03-05T10:00+01:00, got {text!r}"
        )
    return found


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
    return float(checks.number("the confidence", confidence, 0, 1))


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


def _commit_change(
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


def _changed_fact(commit: Commit, facts: Iterable[Fact]) -> Fact:
    """Return the fact that a commit changed.

    Raises:
        NotFoundError: It was erased since, which only a repeated request finds.
    """
    for fact in facts:
        return fact
    raise NotFoundError(f"what commit {commit.seq} changed was erased since: nothing is changed again")


class Changing(Operations):
    """What changes a memory by hand; see `MemoryHandle`."""

    # Changing by hand.

    def add_fact(
        self,
        content: str,
        category: str = "context",
        confidence: float = 0.9,
        *,
        valid_from: str | None = None,
        valid_until: str | None = None,
        expires_at: str | None = None,
        tags: Sequence[str] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> FactChange:
        """Add a fact by hand. No model changes it from then on. A model's tools use `by`.

        Args:
            content: The fact.
            category: preference, knowledge, context, behavior, goal, correction, or a name of your own.
            confidence: From 0 to 1.
            valid_from: Since when it is true: a year, month, day or moment, such as 2026-03; the offset from UTC may
                stand behind it. None: unknown.
            valid_until: Until when it is true, to the end of that year, month or day.
            expires_at: Until when it is to be remembered, likewise.
            tags: Up to 20 names that reads can be filtered by, such as a project; up to 64 characters each.
            attributes: Up to 20 names with a text, a number or a truth value each, to filter by likewise.

        Returns:
            The commit, the fact, and the facts that the cap evicted for it.

        Raises:
            DuplicateFactError: A live fact says the same; the refusal is recorded.
            CapError: There is no room for it; the refusal is recorded.
            RefusedError: Another rule refuses a model's fact; the refusal is recorded.
            UsageError: The text or the category is empty, the confidence outside 0 to 1, or a time, a tag or an
                attribute is none.
        """
        times = _given_times(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at)
        services = self._services
        text = _text(content)
        fact = NewFact(place="facts/0", content=text, category=_category(category), confidence=_confidence(confidence))
        fact = msgspec.structs.replace(
            fact,
            **{name: stated for name, stated in times.items() if stated},
            tags=read_tags(tags or ()),
            attributes=read_attributes(attributes or {}),
        )
        command = AddFact(at="", fact=fact, by_model=services.by_model, thread=services.conversation)
        cause = services.cause("manual", action="add", by_model=services.by_model)
        commit = _commit_change(services, cause, lambda: command, fact)
        added = _changed_fact(commit, (event.fact for event in commit.events if isinstance(event, FactAdded)))
        evicted = tuple(
            event.fact for event in commit.events if isinstance(event, FactRemoved) and event.reason == "cap"
        )
        return FactChange(commit.seq, added, evicted)

    def edit_fact(
        self,
        fact_id: str,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        *,
        valid_from: str | None = None,
        valid_until: str | None = None,
        expires_at: str | None = None,
        tags: Sequence[str] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> FactChange:
        """Change a fact by hand. No model changes it from then on. A model's tools use `by`.

        Args:
            fact_id: Its id, in full.
            content: The new text.
            category: The new category.
            confidence: The new confidence, from 0 to 1.
            valid_from: Since when it is true, as in `add_fact`; "" where that is not known after all.
            valid_until: Until when it is true, likewise.
            expires_at: Until when it is to be remembered, likewise.
            tags: The tags that it has from now on, all of them; [] for none.
            attributes: The attributes that it has from now on, likewise.

        Returns:
            The commit and the fact as it is now.

        Raises:
            NotFoundError: There is no such live fact.
            DuplicateFactError: Another fact says the same.
            RefusedError: It is so already, or a model may not change it so; the refusal is recorded.
            UsageError: There is nothing to change, or a value cannot be one of its kind.
        """
        times = _given_times(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at)
        services = self._services
        if not times and all(one is None for one in (content, category, confidence, tags, attributes)):
            raise UsageError("nothing to change: give a text, a category, a confidence, a time, tags or attributes")
        edit = Edit(
            place="facts/0",
            id=checks.text("fact_id", fact_id),
            content=None if content is None else _text(content),
            category=None if category is None else _category(category),
            confidence=None if confidence is None else _confidence(confidence),
            **times,
            tags=None if tags is None else read_tags(tags),
            attributes=None if attributes is None else read_attributes(attributes),
        )
        cause = services.cause("manual", action="edit", fact=edit.id, by_model=services.by_model)

        def command() -> EditFact:
            _must_be_live(services, edit.id)
            return EditFact(at="", edit=edit, by_model=services.by_model)

        commit = _commit_change(services, cause, command, edit)
        return FactChange(
            commit.seq,
            _changed_fact(commit, (event.after for event in commit.events if isinstance(event, FactRevised))),
        )

    def remove_fact(self, fact_id: str, *, ended: bool = False, valid_until: str | None = None) -> FactChange:
        """Remove a fact, as wrong or, with `ended`, as true until now or until a time.

        Args:
            fact_id: Its id, in full.
            ended: Whether it was true until then.
            valid_until: Until when an ended fact was true, as in `add_fact`. If that is still to come, the fact says so
                and stays in memory until then.

        Returns:
            The commit and the fact as it was, or as it is until then.

        Raises:
            NotFoundError: There is no such live fact.
            RefusedError: A person entered it, and a model asks, or it would have ended before it began; the refusal is
                recorded.
            UsageError: The time is none, or is given for a fact that has not ended.
        """
        services = self._services
        until = None if valid_until is None else _stated("valid_until", checks.text("valid_until", valid_until))
        if until is not None and not ended:
            raise UsageError("valid_until is about a fact that has ended: say that it has, or leave it out")

        def command() -> RemoveFact:
            _must_be_live(services, fact_id)
            return RemoveFact(at="", fact_id=fact_id, by_model=services.by_model, ended=ended, valid_until=until)

        named = checks.text("fact_id", fact_id)
        cause = services.cause("manual", action="remove", fact=named, by_model=services.by_model)
        commit = _commit_change(services, cause, command)
        return FactChange(commit.seq, _changed_fact(commit, filter(None, map(_gone, commit.events))))

    def clear(self, *, all_agents: bool = False) -> Document:
        """Empty the memory and keep its history. Turns recorded so far are not extracted again.

        Args:
            all_agents: Empty the memories of all the user's agents too, each in a commit of its own.

        Returns:
            The empty document.

        Raises:
            UsageError: `all_agents` is given for an agent's memory.
        """
        services = self._services
        if all_agents and services.scope.agent is not None:
            raise UsageError("all_agents is about all of a user's agents, and this is the memory of one: leave it out")
        services.home.outbox.let_in(services.scope)
        # The own memory first: where its head is not the expected one, nothing is cleared.
        cleared = services.commit(Clear(at=""), services.cause("clear"))
        for writer in services.agents() if all_agents else ():
            services.home.outbox.let_in(writer.scope)
            writer.commit(Clear(at=""), services.cause("clear", action=WITH_USER, target=cleared.seq))
        return document_of(services.memory())

    def import_document(self, document: object, *, replace: bool = False) -> ImportedDocument:
        """Import a memory in one commit. What is refused of it is recorded there, with the reason.

        Facts keep their ids, unless another fact here has or had the same one.

        Args:
            document: A document, a list of texts or facts, or the path of a JSON file or of a DeerFlow home, of which
                this scope's part is taken.
            replace: Put it in place of the memory, not beside it.

        Returns:
            The document as it is then, with the ids that were not kept, what was refused, and the facts that were
            removed here before and are back.

        Raises:
            InputError: It is no memory, or holds nothing of this scope.
        """
        return import_document(self._services, document, replace=replace)

    def import_file(
        self,
        path: str | Path,
        *,
        format_name: str | None = None,
        of_user: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
        tags: Sequence[str] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportedDocument:
        """Import the export of another tool, or a memory, from a file whose format is recognised by its content.

        Conversations are recorded with their own times and threads. Facts are imported in commits of 1,000. What is
        here already is skipped, so an import that was interrupted goes on where it is run again.

        Args:
            path: A file, a zip file, or the folder of a DeerFlow home.
            format_name: The name of the format, where it is not to be recognised.
            of_user: The only user whose part is taken, of a file that names several.
            replace: Put the facts in place of the memory, not beside it.
            dry_run: Only read the file and count.
            tags: Tags that new turns and facts get; not for a memory.json or a folder.
            progress: Gets how many bytes were read, and how many will be; the file is read twice.

        Returns:
            As `import_document` does. `read` says what the file holds and what became of it.

        Raises:
            InputError: The format is not known, or the file is damaged. Nothing is kept of it.
            UsageError: Conversations cannot replace a memory.
        """
        found, tagged = Path(path).expanduser(), read_tags(tags)
        return FileImport(self._services, found, format_name, of_user, replace, dry_run, tagged, progress).run()

    def policy(self) -> PolicyResult:
        """Return the policy.

        Returns:
            The policy in force, and the configured one; before the first commit those that it will record.
        """
        writer = self._services.writer
        memory = writer.memory()
        if memory.seq == 0:
            first = writer.first_policy()
            return PolicyResult(first, first)
        return PolicyResult(memory.policy, memory.configured)

    def set_policy(self, /, **changes: PolicyValue) -> PolicyResult:
        """Change the policy. Facts that it does not allow leave memory in the same commit.

        Ranges are the ledger's, which are wider than those of the configuration.

        Args:
            **changes: Policy keys with their values.

        Returns:
            The policy in force; `commit` is None where it was in force already.

        Raises:
            ConfigError: A key is unknown, or a value is outside its range.
            CapError: More facts were entered by hand than `max_facts` would allow.
        """
        services = self._services
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

    aadd_fact = in_thread(add_fact)
    aedit_fact = in_thread(edit_fact)
    aremove_fact = in_thread(remove_fact)
    aclear = in_thread(clear)
    aimport_document = in_thread(import_document)
    aimport_file = in_thread(import_file)
    apolicy = in_thread(policy)
    aset_policy = in_thread(set_policy)
