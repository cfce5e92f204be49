"""Owners of the memories in a home: finds the users and agents that have one, in the order of their folders.

A home may have 100,000 users, so a page of them looks into a few of their folders only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice

from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope, folder_beginnings
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.results import FoundOwners

__all__ = ["Owners", "agents_of", "scopes_of"]


class Owners:
    """The scopes that have a log in a store."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def all(self) -> tuple[Scope, ...]:
        """Return all of them, also those whose logs are damaged.

        Raises:
            CorruptLogError: A folder's name is cut short, and its logs, which are damaged, do not name the owner.
        """
        return self._of(self._store.streams())

    def of(self, stream: str) -> Scope | None:
        """Return the owner of a stream; None if it is that of no memory.

        Raises:
            CorruptLogError: As `all`.
        """
        return next(iter(self._of((stream,))), None)

    def find(self, prefix: str, *, users: Collection[str] | None, after: str | None, limit: int | None) -> FoundOwners:
        """Return a page of those whose user's id begins so; see `Backstory.find_owners`."""
        last = None if after is None else after.split("/")
        owners, count = self._beginning(prefix, users, last)
        behind = (scope for scope in owners if last is None or scope.folder.split("/") > last)
        return FoundOwners(tuple(islice(behind, limit)), count)

    def _beginning(
        self, prefix: str, users: Collection[str] | None, last: Sequence[str] | None
    ) -> tuple[Iterable[Scope], int]:
        """Return owners, some of those before `last` left out, and the number of users before and behind it."""

        def owners_in(folder: str) -> Iterable[Scope]:
            streams = self._store.streams(f"{folder}/") if folder else self._without_user()
            return (scope for scope in self._of(streams) if (scope.user or "").startswith(prefix))

        if users is None:
            names = self._store.folders("users")
            named = _beginning_so(names, prefix) if prefix else names
        else:
            # Where a few are wanted, the folders of all users would be a long list.
            wanted = sorted({Scope(user).folder for user in users if user.startswith(prefix)})
            named = [folder.removeprefix("users/") for folder in wanted if any(self._store.streams(f"{folder}/"))]
        if len(folder_beginnings(prefix)) > 1:
            named = [name for name in named if any(owners_in(f"users/{name}"))]
        begin = 0 if last is None or last[0] != "users" or len(last) == 1 else bisect_left(named, last[1])
        folders = chain(("",) if users is None and not prefix else (), (f"users/{name}" for name in named[begin:]))
        return chain.from_iterable(map(owners_in, folders)), len(named)

    def _without_user(self) -> Iterable[str]:
        return chain(filter(self._exists, (LEDGER, TRANSCRIPT)), self._store.streams("agents/"))

    def _exists(self, stream: str) -> bool:
        try:
            return bool(self._store.state(stream).edition)
        except CorruptLogError:
            return True

    def _of(self, streams: Iterable[str]) -> tuple[Scope, ...]:
        """Return the owners of some streams."""
        found: dict[str, Scope] = {}
        damaged: dict[str, CorruptLogError] = {}
        for stream in streams:
            folder, _, kind = stream.rpartition("/")
            if kind not in (LEDGER, TRANSCRIPT) or folder in found:
                continue
            try:
                owner = Scope.in_folder(folder) or self._named(stream, folder)
            except CorruptLogError as damage:
                damaged[folder] = damage
            else:
                if owner is not None:
                    found[folder] = owner
        for folder, error in damaged.items():
            if folder not in found:
                raise error
        return tuple(found[folder] for folder in sorted(found, key=lambda folder: folder.split("/")))

    def _named(self, stream: str, folder: str) -> Scope | None:
        """Return the scope that a stream's first commit names, where the folder's name is cut short.

        A log that was copied to the folder of another scope, or of none, has no owner.
        """
        first = next(read_commits(self._store, stream), None)
        owner = None if first is None else Scope(first.cause.user, first.cause.agent)
        return owner if owner is not None and owner.folder == folder else None


def agents_of(store: EventStore, user: str | None) -> Sequence[Scope]:
    """Return the scopes of a user's agents that have a log; for None of the agents without a user."""
    prefix = f"{Scope(user).folder}/agents/".lstrip("/")
    names = {stream.removeprefix(prefix).partition("/")[0] for stream in store.streams(prefix)}
    return [Scope(user, name) for name in sorted(names)]


def scopes_of(store: EventStore, user: Scope) -> Sequence[Scope]:
    """Return the scopes of a user that have a log: the agents', and the user's own."""
    own = any(stream.rpartition("/")[0] == user.folder for stream in store.streams(f"{user.folder}/"))
    return [*agents_of(store, user.user), *([user] if own else [])]


def _beginning_so(names: Sequence[str], prefix: str) -> Sequence[str]:
    """Return those of some sorted names that may be those of users whose ids begin so; a long id's name is cut."""
    found: list[str] = []
    for beginning in folder_beginnings(prefix):
        # No name holds a character behind the last one of ASCII.
        first, end = bisect_left(names, beginning), bisect_left(names, beginning + "\x7f")
        found += names[first:end]
    return sorted(found)
