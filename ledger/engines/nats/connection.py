"""Connection to a NATS cluster: one loop in a thread of its own, and requests with their repetitions.

nats-py is asyncio only, and the port is not. So each store runs a loop in a background thread; threads hand it their
requests and wait. What may fail while a leader is elected or a connection is renewed is repeated until a deadline.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypedDict, TypeVar

from backstory.ledger.core.errors import ConfigError, StoreError, UnknownOutcomeError
from backstory.ledger.engines.nats.address import NatsAddress
from backstory.ledger.engines.nats.loop import LoopThread

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_T = TypeVar("_T")

ATTEMPT_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
_PENDING_BYTES = 64 * 1024 * 1024

_kept_from_parents: list[object] = []
"""Clients of a parent process: closing one in a child would disturb the parent's, with which it shares descriptors."""


class PassingError(Exception):
    """A failure that may pass; `unknown` if the request may have been carried out."""

    def __init__(self, reason: str, *, unknown: bool = True) -> None:
        super().__init__(reason)
        self.unknown = unknown


class MissingStreamError(PassingError):
    """The servers know no JetStream stream of a name (yet); its name is the reason."""


class UnheardError(PassingError):
    """No stream accepts the subject of a message: it has no leader just now, or it is sealed."""


class NatsConnection:
    """A process's connection to a cluster; safe for threads. `timeout` bounds each call, in seconds."""

    def __init__(self, address: NatsAddress, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self._fresh()

    def _fresh(self) -> None:
        self._mutex = threading.Lock()
        self._loop: LoopThread | None = None
        self.client: Client | None = None
        self._connecting: asyncio.Lock | None = None
        self._reason: Exception | None = None
        self._failure: StoreError | None = None

    def renew(self) -> None:
        """Connect anew in a forked child; what the parent has open stays the parent's."""
        _kept_from_parents.append((self._loop, self.client))
        self._fresh()

    def close(self) -> None:
        """Close the connection and end the thread; the next request opens them again."""
        with self._mutex:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        with suppress(Exception):
            loop.run(self._disconnect())
        loop.stop()
        loop.join(ATTEMPT_SECONDS)

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        """Carry out a coroutine on the loop, and wait for it."""
        return self._running().run(work)

    def begin(self, work: Coroutine[object, object, object]) -> None:
        """Carry out a coroutine on the loop without waiting for it; not if the connection is closed."""
        loop = self._loop
        if loop is None:
            work.close()
        else:
            loop.begin(work)

    def _running(self) -> LoopThread:
        loop = self._loop
        if loop is not None:
            return loop
        with self._mutex:
            if self._loop is None:
                self._connecting = None
                self._loop = LoopThread("backstory-nats")
                weakref.finalize(self, _stop, self._loop, os.getpid())
            return self._loop

    # On the loop.

    async def repeated(self, attempt: Callable[[float], Awaitable[_T]], *, writes: bool = False) -> _T:
        """Make attempts until one succeeds, or the time is over."""
        deadline, unknown, reason = time.monotonic() + self.timeout, False, ""
        while True:
            try:
                return await attempt(min(ATTEMPT_SECONDS, max(deadline - time.monotonic(), _PAUSE_SECONDS)))
            except PassingError as failure:
                unknown, reason = unknown or failure.unknown, str(failure)
                if time.monotonic() >= deadline:
                    if isinstance(failure, MissingStreamError):
                        raise StoreError(
                            f"{self.address} has lost the JetStream stream {reason}: restore it from a copy"
                        ) from failure
                    break
            await asyncio.sleep(_PAUSE_SECONDS)
        if writes and unknown:
            raise UnknownOutcomeError(
                f"{self.address} did not answer within {self.timeout:g} s ({reason}): the commit may be there or not; "
                "read the head, then decide again"
            )
        raise StoreError(
            f"{self.address} did not answer within {self.timeout:g} s ({reason}): see whether a majority of its "
            "servers is up, with room on their disks"
        )

    async def ask(self, subject: str, data: bytes, seconds: float, headers: dict[str, str] | None = None) -> Msg:
        """Send a request, and return the answer.

        Raises:
            PassingError: None came.
            ConfigError: The servers do not let this user ask.
        """
        client = await self.connected()
        with translated():
            try:
                return await client.request(subject, data, timeout=seconds, headers=headers)
            except TimeoutError:
                refusal = self._reason
                if f'"{subject.lower()}"' in str(refusal):
                    # It explains one silence only: the next request may be allowed, and stored.
                    self._reason = None
                    raise ConfigError(
                        f"{self.address} does not let this user publish to {subject}: give it the rights that "
                        "docs/how-to/nats.md lists"
                    ) from refusal
                await self._leave_if_dead(client)
                raise

    async def _leave_if_dead(self, client: Client) -> None:
        """Drop a connection whose server does not answer a ping, so that the next attempt goes to another one."""
        try:
            await client.flush(1)
        except Exception:  # noqa: BLE001 any failure means the same
            if self.client is client:
                self.client = None
                asyncio.get_running_loop().create_task(_closed(client))

    async def connected(self) -> Client:
        """Return the client, connected.

        Raises:
            ConfigError: The servers refuse the login.
            StoreError: They cannot be reached.
        """
        client = self.client
        if client is not None and not client.is_closed:
            return client
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        failure = self._failure
        async with self._connecting:
            if self.client is None or self.client.is_closed:
                if self._failure is not None and self._failure is not failure:
                    # Another request has waited in vain meanwhile: this one does not wait as long once more.
                    raise self._failure
                try:
                    self.client = await self._connect()
                except StoreError as error:
                    self._failure = StoreError(str(error))
                    raise
            return self.client

    async def _connect(self) -> Client:
        import nats
        from nats.errors import AuthorizationError

        self._reason = None
        told = asyncio.Event()

        async def note(error: Exception) -> None:
            self._reason = error
            if isinstance(error, AuthorizationError) or "uthorization" in str(error):
                told.set()

        connecting = asyncio.ensure_future(
            nats.connect(
                list(self.address.servers),
                error_cb=note,
                name="backstory",
                connect_timeout=2,
                reconnect_time_wait=0.1,
                max_reconnect_attempts=-1,
                ping_interval=5,
                max_outstanding_pings=2,
                pending_size=_PENDING_BYTES,
                **credentials(self.address),
            )
        )
        refused = asyncio.ensure_future(told.wait())
        await asyncio.wait((connecting, refused), timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
        refused.cancel()
        if not connecting.done():
            connecting.cancel()
            # Not for longer: nats-py may wait without end for a half-open TLS connection to close.
            await asyncio.wait((connecting,), timeout=ATTEMPT_SECONDS)
            with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
                connecting.exception()
            if told.is_set():
                raise ConfigError(f"{self.address} refused the login: correct the credentials of event_store")
            raise StoreError(
                f"{self.address} could not be reached within {self.timeout:g} s ({self._reason}): start it, or correct "
                "event_store"
            )
        try:
            return connecting.result()
        except Exception as error:
            raise StoreError(f"{self.address} could not be reached ({error}): start it, or correct event_store") from (
                error
            )

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await _closed(client)


class Login(TypedDict, total=False):
    """The arguments of nats-py that say who connects."""

    token: str
    user: str
    password: str
    nkeys_seed: str
    user_credentials: str
    tls: ssl.SSLContext


def credentials(address: NatsAddress) -> Login:
    """Return how to log in.

    Raises:
        ConfigError: A file cannot be read, or the package for nkeys is missing.
    """
    login = Login()
    if address.token is not None:
        login["token"] = address.token
    if address.user is not None and address.password is not None:
        login["user"], login["password"] = address.user, address.password
    if address.nkey or address.creds:
        try:
            import nkeys  # noqa: F401 nats-py imports it when it logs in, too late for a good error
        except ImportError as error:
            raise ConfigError("event_store names an nkey or creds file: pip install 'backstory[nats]'") from error
    if address.nkey:
        login["nkeys_seed"] = address.nkey
    if address.creds:
        login["user_credentials"] = address.creds
    if address.tls:
        try:
            login["tls"] = ssl.create_default_context(cafile=address.tls_ca)
            if address.tls_cert:
                login["tls"].load_cert_chain(address.tls_cert, address.tls_key)
        except OSError as error:
            raise ConfigError(f"event_store names a file for TLS that cannot be used ({error}): correct it") from error
    return login


@contextmanager
def translated() -> Iterator[None]:
    """Turn the errors of nats-py into ours."""
    try:
        yield
    except Exception as error:
        ours = _ours(error)
        if ours is None:
            raise
        raise ours from error


def _ours(error: Exception) -> Exception | None:
    """Return our error for one of nats-py; None for any other."""
    from nats.errors import Error, MaxPayloadError, NoRespondersError

    if isinstance(error, MaxPayloadError):
        return StoreError("a message is larger than the servers accept: raise max_payload in their configuration")
    if isinstance(error, NoRespondersError):
        return UnheardError("no server leads the stream", unknown=False)
    if isinstance(error, TimeoutError):
        return PassingError("no answer")
    if isinstance(error, Error | OSError):
        return PassingError(str(error) or type(error).__name__)
    return None


def _stop(loop: LoopThread, process: int) -> None:
    """End the loop of a connection that is not referenced any more."""
    if process == os.getpid():
        loop.stop()


async def _closed(client: Client) -> None:
    with suppress(Exception):
        await asyncio.wait_for(client.close(), ATTEMPT_SECONDS)
