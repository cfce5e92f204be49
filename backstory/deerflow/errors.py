"""Error translation: from the errors of Backstory to those of DeerFlow's contract."""

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


class MemoryUnavailableError(MemoryManagerError, OSError):
    """The store cannot be reached, read or written.

    It is a MemoryManagerError for the agent's middleware, and an OSError for the gateway.
    """


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate the errors of a block. KeyError and ValueError pass.

    Raises:
        MemoryCorruptionError: The log is damaged.
        MemoryConflictError: Another process wrote first, or holds the lock; a retry may succeed.
        MemoryUnavailableError: The store cannot be reached.
        ValueError: The request is invalid.
    """
    try:
        yield
    except MemoryManagerError:
        raise
    except CorruptLogError as error:
        raise MemoryCorruptionError(
            f"{error}; or clear or import memory, which moves the damaged file aside"
        ) from error
    except (ConflictError, WrongExpectedVersionError, LockTimeoutError) as error:
        raise MemoryConflictError(str(error)) from error
    except UsageError as error:
        raise ValueError(str(error)) from error
    except (BackstoryError, OSError) as error:
        raise MemoryUnavailableError(str(error)) from error
