"""Address of a database: what is connected to, and how it is named in messages, without its secrets."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from backstory.ledger.core.errors import ConfigError

_DEFAULTS = {
    "application_name": "backstory",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A peer that vanished without a word is noticed after some 20 seconds.
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


class PostgresAddress:
    """A connection URL, as `postgresql://user:password@host:port/database?sslmode=…`.

    `label` names the database without user and password.
    """

    def __init__(self, url: str) -> None:
        try:
            stated = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
        except psycopg.ProgrammingError:
            # Its message repeats a part of the address, which may be the password.
            raise ConfigError(
                "event_store is no valid PostgreSQL address: write postgresql://user:password@host:5432/database, "
                "with each special character of the password in percent escapes"
            ) from None
        self.conninfo = make_conninfo("", **(_DEFAULTS | stated))
        place = stated.get("host") or stated.get("hostaddr") or "localhost"
        port = stated.get("port")
        self.label = f"postgresql://{place}{f':{port}' if port else ''}/{stated.get('dbname', '')}"
        self._secrets = sorted(filter(None, map(stated.get, _SECRETS)), key=len, reverse=True)

    def scrubbed(self, text: str) -> str:
        """Return a text on one line, and without the address's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())
