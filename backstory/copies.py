"""Local copies: keeps memory.json, index and vectors of a home up to date with what other machines commit and erase.

Where an engine keeps the logs elsewhere, a home's folder holds copies of the memories that were used here. They follow
when a memory is used again. A process that runs for long lets them follow at once, so that content which another
machine erases does not stay here.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from backstory.ledger.concurrency.jobs import Repeated
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import StreamState, states_of
from backstory.projections.integrity.file_check import scope_folders

if TYPE_CHECKING:
    from backstory.home import Backstory

__all__ = ["COPIES", "LocalCopies"]

_log = logging.getLogger(__name__)

COPIES = ("memory.json", "index.sqlite", "words.index", "facts.index", "vectors.sqlite")
"""Each of these files in a scope's folder is a copy of its memory."""

_POLL_SECONDS = 0.05
_SWEEP_SECONDS = 5.0
"""How often every copy is compared with its logs: an engine does not tell what was removed."""

_SWEEP_ALONE_SECONDS = 1.0
"""The same for an engine that does not tell what has changed, either."""

_SWEEP_PAUSES = 10
"""How many times as long as a sweep takes it pauses at least, where there are very many copies."""

_AT_ONCE = 256
"""How many copies are compared with one question to an engine that answers several."""

_States = tuple[StreamState, StreamState]


class LocalCopies(Repeated):
    """Follows the memories that have a copy in a home's folder; those in use by this process or not.

    An engine that cannot be reached is asked again.

    Args:
        home: The home.
        poll_seconds: How often it asks what has changed.
        sweep_seconds: How often it compares every copy with its logs; as the engine needs it unless given.
    """

    _THREAD = "backstory-copies"

    def __init__(
        self, home: Backstory, *, poll_seconds: float = _POLL_SECONDS, sweep_seconds: float | None = None
    ) -> None:
        tells = home.store.capabilities().changed is not None
        self._home = home
        self._sweep_seconds = (
            (_SWEEP_SECONDS if tells else _SWEEP_ALONE_SECONDS) if sweep_seconds is None else sweep_seconds
        )
        self._known: dict[Scope, _States] = {}
        self._position: str | None = None
        self._again: set[str] = set()
        """The folders of copies that could not be brought up to date."""
        self._next_sweep = 0.0
        """When to compare every copy again, by the machine's monotonic clock."""
        super().__init__(poll_seconds)

    def start(self) -> None:
        """Begin to follow in a thread; logs that are files beside the copies need none."""
        if self._home.store.capabilities().path is None:
            with self._changed:
                self._wake()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow in a thread for the length of a block; the thread ends after the copy that it is writing."""
        self.start()
        try:
            yield
        finally:
            self.end(None)

    def _is_wanted(self) -> bool:
        return not self.ending

    def _step(self) -> None:
        self.look()

    def look(self) -> None:
        """Bring the copies of the memories that are known to have changed up to date; now and then, `sweep`."""
        try:
            self._look()
        except BackstoryError as error:
            # What has changed meanwhile may not be named again.
            self._next_sweep = 0.0
            _log.debug("copies of memories lag behind, which is safe: %s", error)
        if time.monotonic() >= self._next_sweep:
            self.sweep()

    def sweep(self) -> None:
        """Compare each copy with its logs, and bring it up to date."""
        begun = time.monotonic()
        home = self._home.home
        self._follow_folders(
            folder.relative_to(home).as_posix().removeprefix(".") for folder in scope_folders(home, COPIES)
        )
        now = time.monotonic()
        self._next_sweep = now + max(self._sweep_seconds, _SWEEP_PAUSES * (now - begun))

    def _look(self) -> None:
        store = self._home.store
        changed = store.capabilities().changed
        if changed is not None:
            # What changed before the first time is found by the sweep.
            streams, position = changed(self._position)
            folders = {stream.rpartition("/")[0] for stream in streams}
            again, self._again = self._again, set()
            self._follow_folders(
                folder
                for folder in sorted(folders | again)
                if any((self._home.home / folder / name).exists() for name in COPIES)
            )
            self._position = position

    def _follow_folders(self, folders: Iterable[str]) -> None:
        rest = iter(folders)
        while not self.ending and (some := list(islice(rest, _AT_ONCE))):
            owners: dict[str, Scope] = {}
            for folder in some:
                with self._kept_for_later(folder):
                    scope = Scope.in_folder(folder) or self._home.owner_of(f"{folder}/{LEDGER}")
                    if scope is not None:
                        owners[folder] = scope
            try:
                self._follow_owners(owners)
            except BackstoryError:
                # One of them that cannot be read must not keep the others back.
                for folder, scope in owners.items():
                    if not self._is_wanted():
                        return
                    with self._kept_for_later(folder):
                        self._follow_owners({folder: scope})

    def _follow_owners(self, owners: Mapping[str, Scope]) -> None:
        """Bring the copies in some folders up to date, all compared with one question."""
        streams = [scope.stream(kind) for scope in owners.values() for kind in (LEDGER, TRANSCRIPT)]
        states = iter(states_of(self._home.store, streams))
        for (folder, scope), now in zip(owners.items(), zip(states, states, strict=True), strict=True):
            with self._kept_for_later(folder):
                if not self.ending and not self._follow(scope, now):
                    self._again.add(folder)

    @contextlib.contextmanager
    def _kept_for_later(self, folder: str) -> Iterator[None]:
        """Keep a folder for the next look where the work on it fails."""
        try:
            yield
        except BackstoryError as error:
            _log.debug("the copy of a memory in %s lags behind, which is safe: %s", folder or ".", error)
            self._again.add(folder)

    def _follow(self, scope: Scope, now: _States) -> bool:
        """Bring one copy up to date with logs that hold so much; return False where that has to be tried again."""
        known = self._known.get(scope)
        if now == known:
            return True
        gone = known is not None and any(
            before.edition and after.edition != before.edition for before, after in zip(known, now, strict=True)
        )
        if not self._home.refresh(scope, erased=gone):
            return False
        self._known[scope] = now
        return True
