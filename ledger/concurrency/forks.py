"""Fork registry: the objects that begin anew in a forked child, and the threads that a child has to start itself.

A child has none of its parent's threads, and every lock in the state in which the fork found it. So each object with a
lock or a thread replaces them in the child. Few register here: a home, for all of its services; an engine, for all of
its connections; and locks that belong to neither. The registry holds weak references only.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

_log = logging.getLogger(__name__)


class Renews(Protocol):
    """An object that knows how to begin anew in a forked child."""

    def renew(self) -> None:
        """Replace every lock and thread, and drop what is the parent's to finish."""


@runtime_checkable
class Pauses(Renews, Protocol):
    """An object whose work must not be cut in half by a fork."""

    def pause(self) -> bool:
        """Wait for a short while until nothing is half done; False where that takes too long."""

    def resume(self) -> None:
        """Go on in the parent after `pause` returned True."""


@runtime_checkable
class Owns(Protocol):
    """An object that registers for others."""

    def parts(self) -> Iterable[Renews]:
        """Return what begins anew in a forked child, the oldest first."""


def register(thing: Renews | Owns) -> None:
    """Have an object, or what it owns, renewed in every forked child; older objects first: newer ones may use them."""
    _registered[next(_numbers)] = thing


class ForkLock:
    """A re-entrant lock for a `with` block; in a forked child no thread of the parent holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        register(self)

    def renew(self) -> None:
        """Replace the lock, unless it is free or the thread that forked holds it and so gives it back."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread | None:
    """Start a daemon thread; None where none can start: the interpreter ends, or there are too many threads."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


_numbers = itertools.count()
_registered: weakref.WeakValueDictionary[int, Renews | Owns] = weakref.WeakValueDictionary()
_paused = threading.local()


def _living() -> list[Renews]:
    # References are copied in one step: other threads register objects meanwhile.
    things = [thing for ref in _registered.valuerefs() if (thing := ref()) is not None]
    parts = (part for thing in things for part in (thing.parts() if isinstance(thing, Owns) else (thing,)))
    # Several homes may name the same part.
    return list({id(part): part for part in parts}.values())


def _before_fork() -> None:
    _paused.things = [thing for thing in reversed(_living()) if isinstance(thing, Pauses) and thing.pause()]


def _after_fork_in_parent() -> None:
    for thing in _paused.things:
        thing.resume()
    del _paused.things


def _after_fork_in_child() -> None:
    for thing in _living():
        try:
            thing.renew()
        except Exception:  # noqa: BLE001 the others begin anew all the same
            _log.exception("%s could not begin anew in a forked child", type(thing).__name__)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
