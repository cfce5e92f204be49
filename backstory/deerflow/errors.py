"""Our errors in the words of DeerFlow's contract."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deerflow.agents.memory.manager import MemoryConflictError, MemoryCorruptionError, MemoryManagerError

from backstory.ledger.core.errors import (
    BackstoryError,
    ConflictError,
    CorruptLogError,
    LockTimeoutError,
    UsageError,
    WrongExpectedVersionError,
)

__all__ = ["MemoryUnavailableError", "translated"]


class MemoryUnavailableError(MemoryManagerError, OSError):
    """The store cannot be reached, read or written now.

    To whoever guards memory it is a fault of the manager, and to the gateway an error of the operating system.
    """


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise what DeerFlow looks out for instead of what a block raises; a KeyError or ValueError of its own passes.

    Raises:
        MemoryCorruptionError: the log is damaged.
        MemoryConflictError: somebody else wrote first, or holds the lock: worth another try.
        MemoryUnavailableError: the store cannot be reached.
        ValueError: what was asked for can never be.
    """
    try:
        yield
    except MemoryManagerError:
        raise
    except CorruptLogError as error:
        raise MemoryCorruptionError(str(error)) from error
    except (ConflictError, WrongExpectedVersionError, LockTimeoutError) as error:
        raise MemoryConflictError(str(error)) from error
    except UsageError as error:
        raise ValueError(str(error)) from error
    except (BackstoryError, OSError) as error:
        raise MemoryUnavailableError(str(error)) from error
