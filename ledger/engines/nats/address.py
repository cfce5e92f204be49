"""Address of the NATS engine: the servers, the credentials and the options that its URL states.

    nats://[token@ | user:password@]host[:port],host[:port]…/[prefix]?option=value&…

`tls://` asks for TLS. docs/how-to/nats.md lists the options.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from backstory.ledger.core.errors import ConfigError

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_SHARDS = 1024
_DEFAULT_PORT = 4222
_MOST_PORT = 65535


class NatsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL states.

    `sync` is `always` where the operator states that every server syncs each write; `monitor` are the addresses of the
    servers' monitoring, where that can be looked up. `lease_seconds` is how long a lock or lease outlives its holder.
    """

    servers: tuple[str, ...]
    prefix: str = "backstory"
    token: str | None = None
    user: str | None = None
    password: str | None = None
    nkey: str | None = None
    creds: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    shards: int = 1
    replicas: int = 3
    sync: str = ""
    monitor: tuple[str, ...] = ()
    lease_seconds: int = 12

    def __str__(self) -> str:
        scheme = "tls" if self.tls else "nats"
        return f"{scheme}://{','.join(server.partition('://')[2] for server in self.servers)}/{self.prefix}"


def read_address(url: str) -> NatsAddress:
    """Read a URL.

    Raises:
        ConfigError: It is not one of this engine, or an option is unknown or out of range.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("nats", "tls"):
        raise ConfigError(f"event_store must begin with nats:// or tls://, got {scheme!r}")
    try:
        return _read(scheme, rest)
    except ConfigError:
        login = rest.rpartition("@")[0]
        if not any(mark in login for mark in "/?#"):
            raise
    # Without the reason, which may show a part of the password.
    raise ConfigError("event_store must spell / ? and # in a token, user or password as %2F %3F and %23")


def _read(scheme: str, rest: str) -> NatsAddress:
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError as error:
        raise ConfigError(f"event_store is no URL ({error}): correct it") from error
    if parts.fragment:
        raise ConfigError(f"event_store must not have a #, got {'#' + parts.fragment!r}")
    login, _, hosts = parts.netloc.rpartition("@")
    first, colon, second = (unquote(part) for part in login.partition(":"))
    prefix = parts.path.strip("/") or "backstory"
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"the path of event_store must be letters, digits, - and _, got {prefix!r}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    address = NatsAddress(
        servers=tuple(_server(scheme, host) for host in hosts.split(",")),
        prefix=prefix,
        token=first if login and not colon else None,
        user=first if colon else None,
        password=second if colon else None,
        nkey=options.pop("nkey", None),
        creds=options.pop("creds", None),
        tls=scheme == "tls" or "tls_ca" in options or "tls_cert" in options,
        tls_ca=options.pop("tls_ca", None),
        tls_cert=options.pop("tls_cert", None),
        tls_key=options.pop("tls_key", None),
        shards=_number(options, "shards", 1, _MOST_SHARDS),
        replicas=_number(options, "replicas", 3, 5),
        sync=_sync(options.pop("sync", "")),
        monitor=tuple(filter(None, options.pop("monitor", "").split(","))),
        lease_seconds=_number(options, "lease_seconds", 12, 3600),
    )
    if options:
        raise ConfigError(f"event_store has an unknown option {min(options)!r}: see docs/how-to/nats.md")
    return address


def _server(scheme: str, host: str) -> str:
    name, _, port = host.rpartition(":") if ":" in host.rpartition("]")[2] else (host, "", str(_DEFAULT_PORT))
    if not name or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT or any(mark in name for mark in " /?#@"):
        raise ConfigError(f"event_store must name its servers as host or host:port, got {host!r}")
    return f"{scheme}://{name}:{int(port)}"


def _number(options: dict[str, str], name: str, default: int, most: int) -> int:
    stated = options.pop(name, str(default))
    if not stated.isdecimal() or not 1 <= int(stated) <= most:
        raise ConfigError(f"{name} in event_store must be a whole number from 1 to {most}, got {stated!r}")
    return int(stated)


def _sync(stated: str) -> str:
    if stated not in ("", "always"):
        raise ConfigError(f"sync in event_store must be always or left out, got {stated!r}")
    return stated
