"""Closing of a home that an integration opened: on request, after its garbage collection, or at exit."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.home import Backstory


class Closing:
    """Closes a home once, and only in the process that opened it."""

    def __init__(self, home: Backstory) -> None:
        self._home = home
        self._pid = os.getpid()
        _open.add(self)

    def now(self) -> None:
        """Close the home and wait for it; a second call does nothing."""
        _open.discard(self)
        if os.getpid() == self._pid:
            self._home.close()

    def in_background(self) -> None:
        """Close the home in a thread, since garbage collection must not wait for the last extraction."""
        try:
            threading.Thread(target=self.now, name="backstory-closing").start()
        except RuntimeError:  # the interpreter is exiting
            self.now()


_open: set[Closing] = set()


def _at_exit() -> None:
    for closing in list(_open):
        closing.now()


atexit.register(_at_exit)
