"""Thread that keeps open transactions awake: the server ends those that are silent for half a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable

from backstory.ledger.concurrency.forks import start_thread

__all__ = ["BEAT_SECONDS", "STAY_OPEN", "KeptAwake"]

_SILENCE_SECONDS = 30
BEAT_SECONDS = 8.0
STAY_OPEN = (
    f"SET LOCAL idle_in_transaction_session_timeout = {_SILENCE_SECONDS * 1000}; "
    # PostgreSQL 17 and newer know this one.
    "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
)
"""What a transaction says first that stays open."""


class KeptAwake:
    """The open transactions of one store, each by a function that says something in it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Keep nothing awake, in a forked child: what is open is the parent's."""
        self._guard = threading.Lock()
        self._beats: set[Callable[[], None]] = set()
        self._beating = False
        self._stopped = threading.Event()

    def add(self, beat: Callable[[], None]) -> None:
        """Call a function every eight seconds from now on; it raises nothing."""
        with self._guard:
            self._beats.add(beat)
            if self._beating:
                return
            self._beating = True
        if start_thread("backstory-postgres-locks", self._keep_awake) is None:
            self._beating = False

    def discard(self, beat: Callable[[], None]) -> None:
        """Call a function no more."""
        with self._guard:
            self._beats.discard(beat)

    def close(self) -> None:
        """End the thread, unless something is open."""
        with self._guard:
            if not self._beats:
                self._stopped.set()
                self._stopped, self._beating = threading.Event(), False

    def _keep_awake(self) -> None:
        stopped = self._stopped
        while not stopped.wait(BEAT_SECONDS):
            with self._guard:
                beats = list(self._beats)
                if not beats:
                    self._beating = False
                    return
            for beat in beats:
                beat()
