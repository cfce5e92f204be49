"""Thread that keeps open transactions awake: the server ends those that are silent for half a minute."""

from __future__ import annotations

from collections.abc import Callable

from backstory.ledger.concurrency.jobs import Repeated

__all__ = ["BEAT_SECONDS", "STAY_OPEN", "KeptAwake"]

_SILENCE_SECONDS = 30
BEAT_SECONDS = 8.0
STAY_OPEN = (
    f"SET LOCAL idle_in_transaction_session_timeout = {_SILENCE_SECONDS * 1000}; "
    # PostgreSQL 17 and newer know this one.
    "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
)
"""What a transaction says first that stays open."""


class KeptAwake(Repeated):
    """The open transactions of one store, each by a function that says something in it; the store may be used again."""

    _THREAD = "backstory-postgres-locks"

    def __init__(self) -> None:
        super().__init__(BEAT_SECONDS)

    def renew(self) -> None:
        """Keep nothing awake, in a forked child: what is open is the parent's."""
        super().renew()
        self._beats: set[Callable[[], None]] = set()

    def add(self, beat: Callable[[], None]) -> None:
        """Call a function every eight seconds from now on; it raises nothing."""
        with self._changed:
            self._beats.add(beat)
            self._wake()

    def discard(self, beat: Callable[[], None]) -> None:
        """Call a function no more."""
        with self._changed:
            self._beats.discard(beat)

    def _is_wanted(self) -> bool:
        return bool(self._beats)

    def _step(self) -> None:
        with self._changed:
            beats = list(self._beats)
        for beat in beats:
            beat()
