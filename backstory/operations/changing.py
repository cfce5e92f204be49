"""Changing memory by hand, and taking changes back."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.commands import AddFact, ChangePolicy, Clear, Command, EditFact, ImportDocument, RemoveFact
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import CapError, DuplicateFactError, NotFoundError, RefusedError, UsageError
from backstory.ledger.core.events import CandidateRejected, Edit, Fact, FactAdded, FactRemoved, FactRevised, NewFact
from backstory.ledger.core.policy import CATEGORIES, PolicyValue, check_policy
from backstory.ledger.core.sanitize import MAX_FACT, clip
from backstory.operations.document_access import DocumentAccess
from backstory.operations.scope_base import ScopeBase, known_policy, live_fact
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.preview import (
    UndoResult,
    preview_revert,
    preview_rollback,
    revert_command,
    rollback_command,
)
from backstory.projections.history.replay import read_moment
from backstory.results import FactChange, PolicyResult

__all__ = ["Changing"]


class Changing(ScopeBase):
    """The part of a handle that a person's hand moves."""

    @property
    def own(self) -> DocumentAccess:
        """This memory by itself, for a host that keeps whole documents or takes over another program's memory."""
        return DocumentAccess(self._own, self._services)

    def revert(self, seq: int | str = "HEAD", *, dry_run: bool = False, force: bool = False) -> UndoResult:
        """Undo what of one update is still in force; what it superseded lives again.

        Where later work conflicts nothing is written, the result's `commit` is None and its `conflicts` say why.

        Raises:
            NotFoundError: there is no such commit.
            UsageError: it is the genesis, or no number.
        """
        logs = self._logs(self._writer)
        seen = logs.last()
        command = revert_command(logs.commit(_target(seq, seen)), force=force, seen=seen)
        if not dry_run:
            self._writer.put_policy_in_force()
        memory = self._writer.memory()
        erased = memory.barriers.get("redaction", 0) > command.target
        plan = preview_revert(memory, self._writer.dated(command), self._commits(self._writer) if erased else ())
        if dry_run or (plan.conflicts and not force):
            return plan
        commit = self._writer.commit(command, self._cause("revert", target=command.target, force=force))
        return msgspec.structs.replace(plan, commit=commit.seq, events=commit.events)

    def rollback(self, to: int | str, *, dry_run: bool = False) -> UndoResult:
        """Bring back the facts and sections of an earlier moment, under today's policy.

        Raises:
            NotFoundError: the ledger has no such commit.
            UsageError: `to` is neither a seq nor a time.
        """
        seen = self._writer.memory().seq
        then = self._logs(self._writer).memory_at(read_moment(to))
        command = rollback_command(then, then.seq, seen=seen)
        if not dry_run:
            self._writer.put_policy_in_force()
        memory = self._writer.memory()
        erased = memory.barriers.get("redaction", 0) > then.seq
        plan = preview_rollback(memory, self._writer.dated(command), self._commits(self._writer) if erased else ())
        if dry_run:
            return plan
        commit = self._writer.commit(command, self._cause("rollback", target=then.seq))
        return msgspec.structs.replace(plan, commit=commit.seq, events=commit.events)

    def add_fact(self, content: str, category: str = "context", confidence: float = 0.9) -> FactChange:
        """Enter a fact; from then on no model changes it.

        Raises:
            DuplicateFactError: a live fact says the same. CapError: there is no room. Both refusals are recorded.
            UsageError: an empty text, an unknown category, a confidence outside 0 to 1.
        """
        text = _text(content)
        fact = NewFact(place="facts/0", content=text, category=_category(category), confidence=_confidence(confidence))
        commit = self._commit(AddFact(at="", fact=fact), self._cause("manual", action="add"))
        return FactChange(commit.seq, _changed(commit))

    def edit_fact(
        self, fact_id: str, content: str | None = None, category: str | None = None, confidence: float | None = None
    ) -> FactChange:
        """Change a fact; from then on it is the person's, and no model changes it.

        Raises:
            NotFoundError: there is no such fact. DuplicateFactError: another fact says the same.
            UsageError: nothing to change, or a value that cannot be.
        """
        if content is None and category is None and confidence is None:
            raise UsageError("nothing to change: give a text, a category or a confidence")
        edit = Edit(
            place="facts/0",
            id=self._own_fact(fact_id).id,
            content=None if content is None else _text(content),
            category=None if category is None else _category(category),
            confidence=None if confidence is None else _confidence(confidence),
        )
        commit = self._commit(EditFact(at="", edit=edit), self._cause("manual", action="edit", fact=edit.id))
        changed = [event.after for event in commit.events if isinstance(event, FactRevised)]
        return FactChange(commit.seq, changed[0] if changed else self._own_fact(edit.id))

    def remove_fact(self, fact_id: str) -> FactChange:
        """Remove a fact.

        Raises:
            NotFoundError: there is no such fact.
        """
        fact = self._own_fact(fact_id)
        commit = self._writer.commit(
            RemoveFact(at="", fact_id=fact.id), self._cause("manual", action="remove", fact=fact.id)
        )
        removed = [event.fact for event in commit.events if isinstance(event, FactRemoved)]
        return FactChange(commit.seq, removed[0])

    def _own_fact(self, fact_id: str) -> Fact:
        return live_fact(self._writer.memory(durable=False), fact_id)

    def clear(self, *, all_agents: bool = False) -> Document:
        """Empty the memory, keep its history; what was said so far is not learned from again.

        With `all_agents` the memories of all the user's agents are emptied as well, each by a commit of its own.

        Raises:
            UsageError: `all_agents` is asked of one agent.
        """
        if all_agents and self.scope.agent is not None:
            raise UsageError("all_agents is about all of a user's agents, and this is the memory of one: leave it out")
        for writer in (*(self._agents() if all_agents else ()), self._writer):
            self._services.waiting.let_in(writer.scope)
            writer.commit(Clear(at=""), self._cause("clear"))
        return document_of(self._writer.memory())

    def import_document(self, document: object, *, replace: bool = False) -> Document:
        """Take a memory in, beside what is there or, with `replace`, instead of it; one commit either way.

        `document` is a document, a list of texts or facts, or the path of a JSON file or a DeerFlow home, of which this
        scope's part is taken. What of it is refused is recorded in that commit, with the reason.

        Raises:
            InputError: it is no memory, or nothing of this scope is in it.
        """
        from backstory.ledger.importing import read_import

        plain = msgspec.to_builtins(document) if isinstance(document, Document) else document
        command = ImportDocument(at="", candidates=read_import(plain, self.scope), replace=replace)
        self._writer.commit(command, self._cause("import", replace=replace))
        return document_of(self._writer.memory())

    def reload(self) -> Document:
        """Return the document afresh from the log, other processes' commits included.

        memory.json shows it then, or, where somebody else keeps the ledger locked, by the next commit or flush.
        """
        writer = self._reading()
        self._services.projector.flush_if_free(writer)
        return document_of(writer.memory())

    def touch(self, *fact_ids: str) -> int:
        """Note that live facts were used, as by a host that puts them in a prompt; return how many of them are live.

        It keeps them warm: where `fact_eviction_policy` is `hybrid`, what is used stays longer.
        """
        return self._services.heat.touch(self._reading(), fact_ids)

    def set_policy(self, **changes: PolicyValue) -> PolicyResult:
        """Put other rules in force; facts they do not allow leave memory in the same commit.

        Where they are in force already nothing is written, and the result's `commit` is None. Ranges are the ledger's,
        which are wider than configuration's: a host may keep a memory of three facts.

        Raises:
            ConfigError: an unknown key, or a value outside its range.
            CapError: more facts were entered by hand than `max_facts` would allow.
        """
        known_policy(changes)
        check_policy(msgspec.structs.replace(self._writer.memory().policy, **changes))
        # What configuration asks for comes first: the other rules are added to that, and do not take it back.
        self._writer.put_policy_in_force()
        memory = self._writer.memory()
        policy = check_policy(msgspec.structs.replace(memory.policy, **changes))
        if policy == memory.policy:
            return PolicyResult(memory.policy, memory.configured)
        commit = self._writer.commit(ChangePolicy(at="", policy=policy), self._cause("policy"))
        memory = self._writer.memory()
        return PolicyResult(memory.policy, memory.configured, commit.seq)

    def _commit(self, command: Command, cause: Cause) -> Commit:
        """Commit, and turn a recorded refusal into the error a person expects."""
        commit = self._writer.commit(command, cause)
        for event in commit.events:
            if isinstance(event, CandidateRejected):
                told = f"refused ({event.rule}): {event.detail}; recorded as commit {commit.seq}"
                if event.rule == "duplicate":
                    raise DuplicateFactError(told, fact_id=event.detail.partition(" ")[0], seq=commit.seq)
                if event.rule == "cap":
                    raise CapError(told, seq=commit.seq)
                if event.rule == "unknown_fact":
                    raise NotFoundError(told)
                raise RefusedError(told)
        return commit


def _target(seq: int | str, last: int) -> int:
    if isinstance(seq, int):
        return seq
    if seq.strip().upper() == "HEAD":
        if last == 0:
            raise NotFoundError("the ledger is empty: there is nothing to revert")
        return last
    moment = read_moment(seq)
    if isinstance(moment, int):
        return moment
    raise UsageError(f"{seq!r} is a time, and no commit: give its number, or HEAD")


def _changed(commit: Commit) -> Fact:
    return next(event.fact for event in commit.events if isinstance(event, FactAdded))


def _text(content: str) -> str:
    text = clip(content.strip(), MAX_FACT)
    if not text:
        raise UsageError("the fact has no text")
    return text


def _category(category: str) -> str:
    if category not in CATEGORIES:
        raise UsageError(f"{category!r} is no category; they are {', '.join(CATEGORIES)}")
    return category


def _confidence(confidence: float) -> float:
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise UsageError(f"the confidence is {confidence}; it lies from 0 to 1")
    return float(confidence)
