"""Changed streams: which have new lines, or other ones, since the last look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backstory.ledger.engines.port import EventStore, StreamState


class StreamChanges:
    """Finds the streams that have changed since the last time it was asked; the first time, none.

    An engine with the capability `changed` is asked one question. In any other each stream is looked at.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._position: str | None = None
        self._known: dict[str, StreamState] | None = None

    def find(self, is_wanted: Callable[[str], bool]) -> Iterator[str]:
        """Yield the names of changed streams, of those that are wanted.

        Args:
            is_wanted: Whether a stream of this name is looked at.

        Raises:
            StoreError: The engine could not be read; the next call finds what this one did not.
        """
        changed = self._store.capabilities().changed
        if changed is not None:
            names, position = changed(self._position)
            yield from filter(is_wanted, names)
            self._position = position
            return
        if self._known is None:
            self._known = dict(self._states(is_wanted))
            return
        for stream, now in self._states(is_wanted):
            if now != self._known.get(stream):
                yield stream
                # Only now: a caller that was interrupted gets it again.
                self._known[stream] = now

    def _states(self, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, StreamState]]:
        for stream in filter(is_wanted, self._store.streams()):
            now = self._store.state(stream)
            if now.edition:
                yield stream, now
