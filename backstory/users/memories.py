"""Memories of a home: whose they are, a handle on each, the removal of a user, the archive of all about one."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import IO, TYPE_CHECKING

from backstory.aio import in_thread
from backstory.ledger.core.errors import BackstoryError, ScopeError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, MemoryScope, Scope
from backstory.ledger.learning.sharing import receive_all, try_to_deliver
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle
from backstory.open_files import translate_verbs
from backstory.projections.history.moment import count_scope
from backstory.results import ArchivedUser, FoundOwners, RemovedUser, ScopeSummary
from backstory.services.home_services import HomeServices
from backstory.services.services import ScopeServices
from backstory.users.owners import Owners, agents_of

if TYPE_CHECKING:
    from uuid import UUID


_log = logging.getLogger(__name__)

_SMALL_BYTES = 1 << 16


@translate_verbs
class MemoriesOfHome:
    """The part of a home that hands out memories; see `Backstory`."""

    def __init__(self, services: HomeServices) -> None:
        self.home = services.states.folder
        self.config = services.loaded
        self.store = services.states.store
        self._services = services
        self._owners = Owners(self.store)

    # Memories.

    def memory(
        self,
        user_id: str | int | UUID | None = None,
        agent_name: str | int | UUID | None = None,
        *,
        scope: MemoryScope | None = None,
    ) -> MemoryHandle:
        """Return the memory of a user and an agent.

        A memory without a user is shared by all users, so it has to be asked for: by `scope="global"`, or for all
        calls by a configuration that states `strict_user_scope: false`.

        Args:
            user_id: Any text; a whole number and a UUID count as their text.
            agent_name: Letters, digits and hyphens, 64 at most; None for the user's own memory.
            scope: "global" for the memory of all users, or with an agent for the agent's; "user" needs a user id.

        Returns:
            A handle on the memory, which need not exist yet.

        Raises:
            ScopeError: A name is invalid; there is no user, and the global memory was not asked for, or
                `strict_user_scope` forbids it; or a user is given together with `scope="global"`.
            UsageError: The home is closed.
        """
        if scope not in (None, "user", "global"):
            raise ScopeError(f"scope must be user or global, got {scope!r}")
        owner = Scope.of(user_id, agent_name)
        if scope == "global" and owner.user is not None:
            raise ScopeError(f'user id {owner.user!r} and scope="global" exclude each other: leave one of them out')
        shared = scope == "global" or (scope is None and self.config.origin["strict_user_scope"] != "default")
        if owner.user is None and not shared:
            raise ScopeError(
                'this memory has no user id: give one, memory("ada"); for the memory that all users share write '
                'memory(scope="global")'
            )
        return self.memory_of(owner)

    def memory_of(self, owner: Scope | ScopeSummary) -> MemoryHandle:
        """Return the memory of a scope, such as one of `scopes` or `owners`.

        Args:
            owner: The scope, or its summary.

        Returns:
            A handle on the memory, which need not exist yet.

        Raises:
            ScopeError: A name is invalid, or there is no user where `strict_user_scope` is on.
            UsageError: The home is closed.
        """
        self._services.states.must_be_open()
        scope = Scope.of(owner.user, owner.agent)
        if self.config.settings.strict_user_scope and scope.user is None:
            raise ScopeError("strict_user_scope is on, so every memory needs a user id: give one")
        user = self._writer(Scope(scope.user)) if scope.agent is not None else None

        def agents() -> list[Writer]:
            return list(map(self._writer, agents_of(self.store, scope.user)))

        own, services, settings = self._writer(scope), self._services, self.config.settings
        if settings.shared_summaries:
            self._catch_up(user or own)
        return MemoryHandle(ScopeServices(own, services, user, settings.agent_reads, agents, services.actor))

    def _catch_up(self, users: Writer) -> None:
        """Deliver what agents have shared with a user and a crash, or another process, left undelivered."""
        state = self._services.states(users.scope)
        if not state.caught_up:
            for scope in agents_of(self.store, users.scope.user):
                try:
                    try_to_deliver(self._writer(scope))
                except (BackstoryError, OSError) as error:
                    # The user's memory can be read although this agent's cannot, which its own next use reports.
                    _log.warning("%s: what it shared with the user is not known: %s", scope, error)
            state.caught_up = True
        receive_all(users)

    def scopes(self) -> tuple[ScopeSummary, ...]:
        """Return a summary of every scope of the home.

        Returns:
            User, agent, last commit and number of facts of each.
        """
        return tuple(map(self.summary, self.owners()))

    def summary(self, scope: Scope) -> ScopeSummary:
        """Return a summary of a scope.

        Args:
            scope: One of `owners`.

        Returns:
            User, agent, last commit and number of facts.
        """
        # There may be any number of them, most of them small, so nothing that is read is kept.
        stream, states = scope.stream(LEDGER), self._services.states
        is_small = self.store.state(stream).size < _SMALL_BYTES
        counts = count_scope(self.store, scope, stream, spell_moment(states.clock.now())) if is_small else None
        if counts is None:
            # It has an index to ask, or it is not the scope's log at all, which a writer finds out.
            memory = states.passing_writer(scope).memory()
            counts = memory.seq, len(memory.facts)
        return ScopeSummary(scope.user, scope.agent, *counts)

    def owners(self) -> tuple[Scope, ...]:
        """Return every scope of the home, also those whose logs are damaged.

        Returns:
            The scopes, in the order of their folders.
        """
        self._services.states.must_be_open()
        return self._owners.all()

    def owner_of(self, stream: str) -> Scope | None:
        """Find the memory that a stream of the store belongs to.

        Args:
            stream: Its name, such as `users/ada/ledger`.

        Returns:
            The scope; None if the stream belongs to no memory.

        Raises:
            CorruptLogError: The folder's name is cut short, and the log, which is damaged, does not name the owner.
        """
        self._services.states.must_be_open()
        return self._owners.of(stream)

    def find_owners(
        self,
        prefix: str = "",
        *,
        users: Collection[str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> FoundOwners:
        """Return the scopes whose user's id begins so, without a look at the folders of other users.

        Args:
            prefix: What the user's id begins with; "" also finds the scopes without a user.
            users: Only these users, and no scope without one; None for all.
            after: Only scopes behind this folder, to go on from the last one of an earlier answer.
            limit: How many at most; one more shows whether there are more.

        Returns:
            The scopes, in the order of their folders, and how many users there are in all.

        Raises:
            CorruptLogError: The log of a user with a long id, which the folder's name does not hold, is damaged.
        """
        self._services.states.must_be_open()
        return self._owners.find(prefix, users=users, after=after, limit=limit)

    def forget_user(self, user_id: str | int | UUID, *, dry_run: bool = False) -> RemovedUser:
        """Remove a user altogether: the user's memory and those of the user's agents, their folder and the name.

        `MemoryHandle.forget` leaves a log with redactions, as proof; this leaves only a mark without a name. Handles on
        these memories, also in other processes, see them empty; what they record later begins a new log. What other
        users said about this one stays: `forget(matching=…)` erases it. An interrupted call is completed by the next.

        Args:
            user_id: The user.
            dry_run: Remove nothing.

        Returns:
            What is removed.

        Raises:
            ScopeError: The user id is invalid.
            NotFoundError: There is no such user.
            LockTimeoutError: Another process keeps a log locked; nothing is removed.
            StoreError: A file cannot be removed.
        """
        from backstory.users.removal import forget_user

        self._services.states.must_be_open()
        user = Scope.of(user_id)
        if user.user is None:
            raise ScopeError("forget_user needs a user id: the global memory is emptied with forget(everything=True)")
        return forget_user(user, self._services, memory=self.memory_of, dry_run=dry_run)

    def export_user(self, user_id: str | int | UUID, file: IO[bytes]) -> ArchivedUser:
        """Write everything that is kept about a user to a zip file, for an access request.

        These are the user's memory and those of the user's agents: what is remembered, the conversations, and every
        line of both logs. What other users said about this one is not in it.

        Args:
            user_id: The user.
            file: A binary file to write to.

        Returns:
            What was written.

        Raises:
            ScopeError: The user id is invalid.
            NotFoundError: There is no such user.
        """
        from backstory.users.archive import archive_user

        self._services.states.must_be_open()
        user = Scope.of(user_id)
        if user.user is None:
            raise ScopeError("export_user needs a user id: the global memory is of no user")
        return archive_user(user, file, store=self.store, memory=self.memory_of)

    # Writers.

    def _writer(self, scope: Scope) -> Writer:
        """Return the one writer of a scope. It stays as long as it is in use or was asked for lately."""
        if self.config.settings.shared_summaries and scope.agent is not None:
            self._writer(Scope(scope.user))
        state = self._services.states(scope)
        writer = state.writer
        state.heed_repair()
        if self._services.producer is not None and not state.watched:
            self._services.producer.watch(writer)
            # Where that fails the next caller tries again, or what is pending in it would wait for good.
            state.watched = True
        return writer

    # Async twins.

    aforget_user = in_thread(forget_user)
    aexport_user = in_thread(export_user)
    ascopes = in_thread(scopes)
    asummary = in_thread(summary)
    aowners = in_thread(owners)
    afind_owners = in_thread(find_owners)
    aowner_of = in_thread(owner_of)
