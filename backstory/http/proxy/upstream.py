"""Upstream of the proxy: the model server that requests are forwarded to, and the connections to it."""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import AsyncIterator
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from backstory.http.proxy.headers import Headers

_TIMEOUT = httpx.Timeout(600, connect=10, pool=10)
_LIMITS = httpx.Limits(max_connections=1_000, max_keepalive_connections=100)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 compared, not bound

_forwarding: ContextVar[bool] = ContextVar("backstory_forwarding", default=False)


def _says_forwarded(_: logging.LogRecord) -> bool:
    """Keep the addresses of forwarded requests out of the log of httpx: some hold a key in their query."""
    return not _forwarding.get()


class Upstream:
    """Connections to the model server. The caller's key passes through, and is neither kept nor logged.

    Redirects are not followed, and cookies are not kept. `HTTP_PROXY` and its like are heeded.

    Args:
        base_url: The base URL of the server, such as `https://api.openai.com/v1`.
        client: The HTTP client; one of its own by default.
    """

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self.base_url = base_url
        self._client = client
        logging.getLogger("httpx").addFilter(_says_forwarded)

    def request(
        self, method: str, target: bytes, headers: Headers, content: bytes | AsyncIterator[bytes] | None
    ) -> httpx.Request:
        """Return the request to send.

        Args:
            method: The method.
            target: What follows the base URL, with the query, as the client sent it.
            headers: All headers but the host's and the length's.
            content: The body; None for none.

        Raises:
            httpx.InvalidURL: The target cannot be part of an address.
        """
        url = httpx.URL(self.base_url + target.decode("ascii"))
        return httpx.Request(method, url, headers=headers, content=content)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response, whose body is not read yet.

        Raises:
            httpx.HTTPError: There is no response.
        """
        hidden = _forwarding.set(True)
        try:
            # Without an auth of ours, or one of the address would take the place of the caller's key.
            return await self._connected().send(request, stream=True, auth=httpx.Auth(), follow_redirects=False)
        finally:
            _forwarding.reset(hidden)

    def is_at(self, server: tuple[str, int | None] | None, path: str) -> bool:
        """Whether the base URL is this server's own address, so that requests would go in circles.

        Args:
            server: The host and port that a request came in at.
            path: The path under which the proxy is reached.
        """
        url = httpx.URL(self.base_url)
        if server is None or url.path.rstrip("/") != path.rstrip("/"):
            return False
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
        return port == server[1] and (url.host == server[0] or (url.host in _LOOPBACK and server[0] in _LOOPBACK))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        # At the first request: most servers forward none.
        if self._client is None:
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=()))
            self._client = httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS, cookies=jar, verify=_trusted())
        return self._client


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return what says which servers to trust; reading the certificates takes long, so once a process."""
    return httpx.create_ssl_context()
