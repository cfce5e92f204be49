"""Redis as a shared cache: a call has a short deadline, and a Redis that does not answer is left alone for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["RedisCache"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TIMEOUT_SECONDS = 0.1
_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_BYTES = 8 << 20


class RedisCache:
    """A `SharedCache` in Redis. Safe for threads and forks.

    After a call that failed or took too long none is made for 5 seconds, then one that is tried; each further failure
    doubles the pause, up to a minute.

    Args:
        url: Where Redis is: `redis://`, `rediss://` or `unix://`.
        elapsed: Returns the seconds since any moment.

    Raises:
        ConfigError: The package `redis` is missing, or the URL is none of Redis.
    """

    def __init__(self, url: str, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._redis = _connected(url)
        self._elapsed = elapsed
        self._pause = 0.0
        self._again = 0.0
        self._lock = ForkLock()

    def get(self, key: str) -> bytes | None:
        """See `SharedCache`; a value of more than 8 MiB counts as none."""

        def read() -> object:
            # Not GET: of a value from another program this reads a part only.
            return self._redis.getrange(key, 0, _MOST_BYTES)

        value = self._tried(read, None)
        return value if isinstance(value, bytes) and 0 < len(value) <= _MOST_BYTES else None

    def put(self, key: str, value: bytes, seconds: int) -> bool:
        """See `SharedCache`."""
        return self._tried(lambda: bool(self._redis.set(key, value, ex=seconds)), other=False)

    def delete(self, key: str) -> bool:
        """See `SharedCache`."""
        return self._tried(lambda: self._redis.delete(key), None) is not None

    def ping(self) -> str | None:
        """Ask Redis for a sign of life, also during a pause.

        Returns:
            None if it answers; otherwise what is wrong.
        """
        from redis.exceptions import RedisError

        try:
            self._redis.ping()
        except (RedisError, OSError) as error:
            return _said(error)
        return None

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _tried(self, call: Callable[[], _T], other: _T) -> _T:
        """Return what a call returns; `other` after a failure, and during a pause."""
        from redis.exceptions import RedisError, ResponseError

        if not self._may_try():
            return other
        try:
            result = call()
        except ResponseError as error:
            # It answers, and at once: such as a key of another type, or a full memory.
            _log.debug("Redis refused a call: %s", error)
            result = other
        except (RedisError, OSError) as error:
            self._failed(error)
            return other
        with self._lock:
            self._pause = 0.0
        return result

    def _may_try(self) -> bool:
        """Whether there is no pause; at its end one caller tries, and the others wait for the outcome of that."""
        with self._lock:
            now = self._elapsed()
            if self._pause and now < self._again:
                return False
            self._again = now + self._pause
            return True

    def _failed(self, error: Exception) -> None:
        with self._lock:
            first = not self._pause
            self._pause = min(self._pause * 2 or _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._again = self._elapsed() + self._pause
        if first:
            _log.warning("Redis does not answer, so memories are read from the log: %s", _said(error))


def _connected(url: str) -> Redis:
    try:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ConfigError("redis_url needs the package redis: pip install 'backstory[redis]'") from error
    try:
        # It connects with the first call.
        client: Redis = Redis.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=_TIMEOUT_SECONDS,
            socket_timeout=_TIMEOUT_SECONDS,
        )
        # Nor does this: it only shows whether there are such options.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"redis_url is no address of Redis: {error}") from error
    return client


def _said(error: Exception) -> str:
    """Say what is wrong, without an address that may hold a password."""
    return f"{type(error).__name__}: {error}" if "@" not in str(error) else type(error).__name__
