"""Error translation: from the errors of Backstory to those of DeerFlow's contract."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from deerflow.agents.memory.manager import MemoryConflictError, MemoryCorruptionError, MemoryManagerError

from backstory.ledger.core.errors import (
    BackstoryError,
    ConfigError,
    ConflictError,
    CorruptLogError,
    DuplicateFactError,
    LockTimeoutError,
    NotFoundError,
    RefusedError,
    UsageError,
    WrongExpectedVersionError,
)

_log = logging.getLogger(__name__)

_DUPLICATE = "Duplicate fact"
"""The message by which DeerFlow's gateway and tools recognise a duplicate."""
_GATEWAY = "app.gateway.app"
"""The module of DeerFlow's gateway, which makes the memory manager in its lifespan, before it serves anything."""


class MemoryUnavailableError(MemoryManagerError, OSError):
    """The store cannot be reached, read or written.

    It is a MemoryManagerError for the agent's middleware, and an OSError for the gateway.
    """


@contextlib.contextmanager
def translated(fact_id: str | None = None) -> Iterator[None]:
    """Translate the errors of a block, which may be about a fact. KeyError and ValueError pass.

    Raises:
        KeyError: There is no such fact.
        MemoryCorruptionError: The log is damaged.
        MemoryConflictError: Another process wrote first, or holds the lock; a retry may succeed.
        MemoryUnavailableError: The store cannot be reached.
        ValueError: The request is invalid, or a rule refuses it.
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
    except DuplicateFactError as error:
        raise ValueError(_DUPLICATE) from error
    except (UsageError, RefusedError) as error:
        if fact_id is not None and isinstance(error, NotFoundError):
            raise KeyError(fact_id) from error
        raise ValueError(str(error)) from error
    except (BackstoryError, OSError) as error:
        raise MemoryUnavailableError(str(error)) from error


class GatewayStart:
    """The start of DeerFlow's gateway, which a wrong configuration has to stop.

    The gateway makes the manager when it starts, but logs every Exception of it as a warning and goes on. The same
    error would then break each conversation. Its web server ends on SystemExit only.
    """

    _over = False

    @classmethod
    @contextlib.contextmanager
    def stopped_by_wrong_values(cls) -> Iterator[None]:
        """Turn a ConfigError into SystemExit if the gateway makes its first manager, in its start, in the block.

        Raises:
            SystemExit: The configuration is wrong, and the gateway is starting.
            ConfigError: The configuration is wrong, in another program or later.
        """
        starting = _GATEWAY in sys.modules and not cls._over
        try:
            yield
        except ConfigError as error:
            if not starting:
                raise
            # A provider's package may tell what is wrong in several lines.
            wrong = " ".join(str(error).split())
            said = f"DeerFlow does not start, since the configuration of its memory is wrong: {wrong}"
            _log.critical("%s", said)
            raise SystemExit(said) from None
        finally:
            cls._over = cls._over or starting
