"""Closing what a middleware has opened: when it is told to, when nobody needs it any more, when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.home import Backstory

__all__ = ["Closing"]


class Closing:
    """Closes a home, once; in a forked child it is the parent's to close."""

    def __init__(self, home: Backstory) -> None:
        self._home = home
        self._pid = os.getpid()
        _open.add(self)

    def now(self) -> None:
        """Close it, and wait for that; closing again does nothing."""
        _open.discard(self)
        if os.getpid() == self._pid:
            self._home.close()

    def unused(self) -> None:
        """Close it beside everything else: whoever let go of its last user must not wait for what is learned then."""
        try:
            threading.Thread(target=self.now, name="backstory-closing").start()
        except RuntimeError:  # the interpreter is going down
            self.now()


_open: set[Closing] = set()


def _at_exit() -> None:
    for closing in list(_open):
        closing.now()


atexit.register(_at_exit)
