"""Memory handle: the memory of one user and agent, assembled from the parts in `operations`."""

from __future__ import annotations

from functools import partial

import msgspec

from backstory import checks
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.sanitize import MAX_NAME, bounded_name, safe_text
from backstory.ledger.core.scope import Scope
from backstory.metagpt.turns import Turns
from backstory.operations.changing import Changing
from backstory.operations.document_access import DocumentAccess
from backstory.operations.explaining import Explaining
from backstory.operations.forgetting import Forgetting
from backstory.operations.learning import Learning, Reextracting
from backstory.operations.reading import Reading
from backstory.operations.recording import Recording
from backstory.operations.search import Searching
from backstory.operations.undoing import Undoing
from backstory.operations.verification import Verifying
from backstory.projections.index.keyed_commits import digest_of


class MemoryHandle(
    Recording, Learning, Reading, Searching, Explaining, Reextracting, Undoing, Changing, Forgetting, Verifying
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

    # For hosts.

    @property
    def turns(self) -> Turns:
        """The recorded turns, with the operations of MetaGPT's Memory. They are read when they are asked for."""
        return Turns(self._services, partial(self.record, mode="append"))

    @property
    def own(self) -> DocumentAccess:
        """This memory alone, for a host that hands whole documents back or takes over another program's memory."""
        return DocumentAccess(self._services)
