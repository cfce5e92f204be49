"""Removal of a user: logs, folder and name, with all of the user's agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import NotFoundError, StoreError, UnavailableError
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.jsonl.removal import Removals, must_hold_no_links
from backstory.ledger.engines.port import EventStore
from backstory.memory import MemoryHandle
from backstory.results import RemovedScope, RemovedUser
from backstory.services.home_services import HomeServices
from backstory.users.owners import scopes_of

_LOCK_SECONDS = 10.0


def forget_user(
    user: Scope, services: HomeServices, *, memory: Callable[[Scope], MemoryHandle], dry_run: bool
) -> RemovedUser:
    """Remove a user; see `Backstory.forget_user`. Nothing changes where a link would keep the content.

    Args:
        user: The user's scope.
        services: The services of the home.
        memory: Opens a memory.
        dry_run: Remove nothing.
    """
    states = services.states
    home, store = states.folder, states.store
    scopes = scopes_of(store, user)
    folder = home / user.folder
    must_hold_no_links(folder)
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    size = sum(map(_size, files))
    counts = tuple(_counts(memory(scope)) for scope in scopes)
    witness = None if states.witness is None else states.witness.destination.name
    found = RemovedUser(str(user.user), counts, len(files), size, witness=witness)
    if dry_run:
        if not scopes and not folder.exists():
            raise _unknown(user, home, store)
        return found
    services.outbox.discard(scopes)
    for scope in scopes:
        states(scope).purge()
    removed = store.remove(user.folder)
    if next(store.streams(f"{user.folder}/"), None) is not None:
        raise StoreError(f"{store} still holds logs of {user} after their removal: run it again")
    # An engine may keep the logs elsewhere than the read models.
    locks = FileLocks(_LOCK_SECONDS, SystemClock())
    removed = Removals(home, locks, SystemClock()).remove(user.folder) or removed
    services.outbox.discard(scopes)
    for scope in scopes:
        # What another thread of this process has built meanwhile.
        states(scope).purge()
    if not removed:
        raise _unknown(user, home, store)
    return found


def _counts(memory: MemoryHandle) -> RemovedScope:
    """Count what a memory holds; a damaged one is not counted."""
    scope = memory.scope
    try:
        status = memory.status()
    except UnavailableError:
        return RemovedScope(scope.user, scope.agent)
    return RemovedScope(scope.user, scope.agent, status.seq, status.facts, status.turns)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        # A lease of another thread may have ended.
        return path.lstat().st_size
    return 0


def _unknown(user: Scope, home: Path, store: EventStore) -> NotFoundError:
    where = store if store.capabilities().path is None else home
    return NotFoundError(f"no {user} is known in {where}: see `scopes`")
