"""Translator for errors of a process that has too many files open.

Code that opens our own files translates its errors itself. But modules load when they are first needed, which opens
files too, in any method. So the public methods of a class are wrapped once, where the class is made.

It is kept because eight of 24 methods raise a bare OSError or ImportError without it (tests/faults/test_open_files.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import ParamSpec, TypeVar

from backstory.ledger.core.errors import StoreError

_RAN_OUT = (errno.EMFILE, errno.ENFILE)
_SAID = "Too many open files"
"""The words of the system linker, in an ImportError without a number."""

P = ParamSpec("P")
T = TypeVar("T")


def translate_verbs(cls: type[T]) -> type[T]:
    """Wrap the public methods that a class defines itself. An async twin runs a method that is wrapped already."""
    for name, stated in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(stated, classmethod):
            setattr(cls, name, classmethod(_translated(stated.__func__)))
        elif isfunction(stated) and not iscoroutinefunction(stated):
            setattr(cls, name, _translated(stated))
    return cls


def _translated(verb: Callable[P, T]) -> Callable[P, T]:
    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return verb(*args, **kwargs)
        except (OSError, ImportError) as error:
            if not _ran_out(error):
                raise
            raise StoreError(
                f"cannot {verb.__name__}: this process has too many files open ({error}); close some, or raise the "
                "limit (ulimit -n), and try again: nothing of memory was lost"
            ) from error

    return call


def _ran_out(error: OSError | ImportError) -> bool:
    return error.errno in _RAN_OUT if isinstance(error, OSError) else _SAID in str(error)
