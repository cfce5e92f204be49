"""Memory handle: the memory of one user and agent, assembled from the parts in `operations`."""

from __future__ import annotations

from functools import partial

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.core.sanitize import MAX_NAME, bounded_name, safe_text
from backstory.ledger.core.scope import Scope
from backstory.metagpt.turns import Turns
from backstory.operations import changing
from backstory.operations.conversations import Conversations
from backstory.operations.document_access import DocumentAccess
from backstory.operations.forgetting import Forgetting
from backstory.operations.history import Explaining
from backstory.operations.learning import Learning
from backstory.operations.reading import Reading
from backstory.operations.recording import Recording
from backstory.operations.reextraction import Reextracting
from backstory.operations.search import Searching
from backstory.operations.verification import Verifying
from backstory.projections.document.document import Document
from backstory.projections.history.preview import UndoResult
from backstory.projections.history.times import At
from backstory.projections.index.keyed_commits import digest_of
from backstory.results import (
    FactChange,
    ImportedDocument,
    PolicyResult,
)


class MemoryHandle(
    Recording, Conversations, Learning, Reading, Searching, Explaining, Reextracting, Forgetting, Verifying
):
    """The memory of one user and agent; get it from `Backstory.memory`.

    Every method reads the newest state, commits of other processes included. Every method raises StoreError,
    LockTimeoutError or CorruptLogError where the store cannot be used, and UsageError once the home is closed. Every
    method that does I/O has an async twin with an `a` before its name.
    """

    def __repr__(self) -> str:
        return f"<MemoryHandle of {self.scope}>"

    # Whose memory it is.

    @property
    def scope(self) -> Scope:
        """The user and the agent whose memory this is."""
        return self._services.scope

    def by(self, actor: str, thread: str | None = None, *, by_model: bool = False) -> MemoryHandle:
        """Return the same memory for another actor: changes made through it are recorded as this actor's.

        With `by_model` they are a model's, made with a tool: a fact that it adds competes for room with the others,
        under the rules for facts of a model, and models may change it again. What a person entered stays as it is: to
        edit or remove it raises RefusedError, and the refusal is recorded.

        Args:
            actor: Who changes the memory, for example `agent:lead`.
            thread: The conversation in which the changes are made; `why` and `log` show it, and forgetting it erases
                them.
            by_model: Whether a model makes the changes, and not a person.

        Returns:
            Another handle on the same memory.

        Raises:
            UsageError: A value is no text, or the actor is empty or has more than 512 characters.
        """
        named = safe_text(checks.text("actor", actor).strip())
        if not named:
            raise UsageError("the actor is empty: say who changes the memory")
        if len(named) > MAX_NAME:
            raise UsageError(f"the actor has {len(named):,} characters: name who changes the memory in {MAX_NAME}")
        conversation = None if thread is None else bounded_name(checks.text("thread", thread)) or None
        services = msgspec.structs.replace(self._services, actor=named, conversation=conversation, by_model=by_model)
        return MemoryHandle(services)

    def expecting(self, head: Head | str) -> MemoryHandle:
        """Return the same memory for changes that hold only on a head that was seen.

        A commit by hand, an undo, an import, a clear, a change of the policy and an erasure raise
        WrongExpectedVersionError where the ledger has another head by then, and write nothing. So does `record` where
        the ledger has another head as it begins. What is extracted does not depend on the head.

        Args:
            head: The head, or its hash; see `head`.

        Returns:
            Another handle on the same memory.

        Raises:
            UsageError: The hash is no text.
        """
        seen = head.hash if isinstance(head, Head) else checks.text("head", head)
        return MemoryHandle(msgspec.structs.replace(self._services, expected=seen))

    def once(self, key: str) -> MemoryHandle:
        """Return the same memory for one delivery, or one change of a fact, that counts once however often it is sent.

        A repeated request returns what the first one did, or raises what it raised, also in another process and after a
        restart. The commit records a digest of the key.

        Args:
            key: Names the request, for example a UUID. It is recognised in this memory for 24 hours at least.

        Returns:
            Another handle on the same memory. Its `record`, `add_fact`, `edit_fact` and `remove_fact` raise
            KeyReusedError where the key was used for another request.

        Raises:
            UsageError: The key is no text, or empty.
        """
        if not checks.text("key", key):
            raise UsageError("the key is empty: give each change a key of its own, such as a UUID")
        return MemoryHandle(msgspec.structs.replace(self._services, key=digest_of(key)))

    # Undoing.

    def revert(
        self, seq: int | str = "HEAD", *, dry_run: bool = False, force: bool = False, with_agents: bool = False
    ) -> UndoResult:
        """Undo what is still in force of one update; what it superseded lives again.

        Args:
            seq: A commit, by its number, `HEAD` for the last, `HEAD~1`, or the beginning of its hash.
            dry_run: Write nothing.
            force: Undo in spite of conflicts with later work.
            with_agents: Of a clear of the user and all agents, undo the agents', too. If one of them conflicts, nothing
                is written.

        Returns:
            The events; of such a clear also the `agents` that were cleared. Where later work conflicts nothing is
            written: `commit` is None, and `conflicts` gives the reasons.

        Raises:
            NotFoundError: There is no such commit.
            UsageError: It is the genesis, or no commit.
        """
        return changing.revert(self._services, seq, dry_run=dry_run, force=force, with_agents=with_agents)

    def rollback(self, to: At, *, dry_run: bool = False) -> UndoResult:
        """Bring back the facts and sections of an earlier moment, under today's policy.

        Args:
            to: A commit, or a time that is no whole day; see docs/reference/times.md.
            dry_run: Write nothing.

        Returns:
            The events, and the commit.

        Raises:
            NotFoundError: The ledger has no such commit.
            UsageError: `to` is neither a commit nor a time, is in the future, or is a whole day.
        """
        return changing.rollback(self._services, to, dry_run=dry_run)

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

        Returns:
            The commit, the fact, and the facts that the cap evicted for it.

        Raises:
            DuplicateFactError: A live fact says the same; the refusal is recorded.
            CapError: There is no room for it; the refusal is recorded.
            RefusedError: Another rule refuses a model's fact; the refusal is recorded.
            UsageError: The text or the category is empty, the confidence outside 0 to 1, or a time is none.
        """
        times = changing.GivenTimes(valid_from, valid_until, expires_at)
        return changing.add_fact(self._services, content, category, confidence, times)

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

        Returns:
            The commit and the fact as it is now.

        Raises:
            NotFoundError: There is no such live fact.
            DuplicateFactError: Another fact says the same.
            RefusedError: It is so already, or a model may not change it so; the refusal is recorded.
            UsageError: There is nothing to change, or a value cannot be one of its kind.
        """
        times = changing.GivenTimes(valid_from, valid_until, expires_at)
        return changing.edit_fact(
            self._services, fact_id, content=content, category=category, confidence=confidence, times=times
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
        return changing.remove_fact(self._services, fact_id, ended=ended, valid_until=valid_until)

    def clear(self, *, all_agents: bool = False) -> Document:
        """Empty the memory and keep its history. Turns recorded so far are not extracted again.

        Args:
            all_agents: Empty the memories of all the user's agents too, each in a commit of its own.

        Returns:
            The empty document.

        Raises:
            UsageError: `all_agents` is given for an agent's memory.
        """
        return changing.clear(self._services, all_agents=all_agents)

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
        return changing.import_document(self._services, document, replace=replace)

    def policy(self) -> PolicyResult:
        """Return the policy.

        Returns:
            The policy in force, and the configured one; before the first commit those that it will record.
        """
        return self._services.policy()

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
        return changing.set_policy(self._services, changes)

    # For hosts.

    @property
    def turns(self) -> Turns:
        """The recorded turns, with the operations of MetaGPT's Memory. They are read when they are asked for."""
        return Turns(self._services, partial(self.record, mode="append"))

    @property
    def own(self) -> DocumentAccess:
        """This memory alone, for a host that hands whole documents back or takes over another program's memory."""
        return DocumentAccess(self._services.alone())

    # Async twins.

    arevert = in_thread(revert)
    arollback = in_thread(rollback)
    aadd_fact = in_thread(add_fact)
    aedit_fact = in_thread(edit_fact)
    aremove_fact = in_thread(remove_fact)
    aclear = in_thread(clear)
    aimport_document = in_thread(import_document)
    apolicy = in_thread(policy)
    aset_policy = in_thread(set_policy)
