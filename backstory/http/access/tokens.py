"""Tokens of a server: a file of hashes, by which a request's token is recognised.

A token is `bst_ID_SECRET`. The file holds the id, the sha256 of the secret (which is random, so that no slower hash is
needed), the right and the users. It is read again when it changes, so a revoked token is refused at once. The variable
`BACKSTORY_TOKENS` may hold the same JSON instead, or more of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from backstory.http.access.callers import Caller, Right
from backstory.ledger.core.errors import ConfigError, InputError, NotFoundError, StoreError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.files import lock_beside, put_in_place

__all__ = ["FILE", "VARIABLE", "NewToken", "Token", "TokenFile", "Tokens"]

FILE = "tokens.json"
"""The name of the file in the home folder."""

VARIABLE = "BACKSTORY_TOKENS"

_TOKEN = re.compile(r"bst_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_CHARACTERS = 100
_RIGHTS = {str(right): right for right in Right}


class Token(msgspec.Struct, frozen=True):
    """A token as it is kept; `users` is None for all users."""

    id: str
    name: str
    hash: str
    right: str
    users: tuple[str, ...] | None
    created: str

    @property
    def caller(self) -> Caller:
        """Whom the token stands for."""
        users = None if self.users is None else frozenset(self.users)
        return Caller(f"token:{self.name}", _RIGHTS[self.right], users)


class NewToken(msgspec.Struct, frozen=True):
    """A token that was just made. `token` is its text, which is kept nowhere."""

    id: str
    name: str
    right: str
    users: tuple[str, ...] | None
    token: str


class TokenFile:
    """A file of tokens. Changes are made under a lock beside it and replace it whole; it is readable by its owner only.

    Args:
        path: The file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def tokens(self) -> tuple[Token, ...]:
        """Return the tokens in the order in which they were added.

        Raises:
            ConfigError: The file is damaged.
            StoreError: It cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from error
        return _read(data, str(self.path))

    def add(self, name: str, right: str, users: Iterable[str] | None, *, now: datetime | None = None) -> NewToken:
        """Make a token.

        Args:
            name: A name for it; commits record it as their actor.
            right: read, write or erase.
            users: Whose memories it covers; None for all users and the shared memory.
            now: The time; the machine's unless given.

        Returns:
            The token with its text.

        Raises:
            InputError: The name is taken or no name, or there is no such right.
            ScopeError: A user id is invalid.
            StoreError: The file cannot be written.
        """
        covered = None if users is None else tuple(dict.fromkeys(users))
        if not _is_name(name):
            raise InputError(
                f"the name of a token has 1 to {_MOST_CHARACTERS} characters that can be seen, and no spaces, got "
                f"{name[:_MOST_CHARACTERS]!r}"
            )
        if right not in _RIGHTS:
            raise InputError(f"the right of a token is {', '.join(_RIGHTS)}, got {right!r}")
        if covered is not None and not covered:
            raise InputError("this token would cover no user: name one, or all")
        for user in covered or ():
            Scope.of(user)
        secret = secrets.token_urlsafe(32)
        made = Token(secrets.token_hex(6), name, _hash(secret), right, covered, spell_moment(now or datetime.now(UTC)))
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise InputError(f"there is a token named {name} already: choose another name, or revoke that one")
            tokens.append(made)
        return NewToken(made.id, name, right, covered, f"bst_{made.id}_{secret}")

    def revoke(self, name: str) -> Token:
        """Remove a token, by its name or its id.

        Returns:
            The token.

        Raises:
            NotFoundError: There is none of that name or id.
            StoreError: The file cannot be written.
        """
        with self._changing() as tokens:
            found = [token for token in tokens if token.name == name] or [token for token in tokens if token.id == name]
            if not found:
                raise NotFoundError(f"there is no token {name} in {self.path}: see `backstory token list`")
            tokens.remove(found[0])
            return found[0]

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(lock_beside(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                tokens = list(self.tokens())
                yield tokens
                put_in_place(self.path, msgspec.json.format(msgspec.json.encode({"tokens": tokens})) + b"\n")
            finally:
                os.close(lock)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error


class Tokens:
    """The tokens that a server accepts: those of a file as it is now, and those of the environment.

    Args:
        file: The file, which need not exist.
        environ: The environment.
        on_damage: Gets the error when the file cannot be read; then the tokens that were read before still count.

    Raises:
        ConfigError: The file or the variable is damaged.
        StoreError: The file cannot be read.
    """

    def __init__(
        self, file: TokenFile, environ: Mapping[str, str], on_damage: Callable[[Exception], None] = lambda _: None
    ) -> None:
        self._file = file
        self._on_damage = on_damage
        stated = environ.get(VARIABLE, "")
        self._fixed = _read(stated.encode("utf-8", "surrogateescape"), VARIABLE) if stated.strip() else ()
        self._stamp = self._now()
        self._by_id = self._table(file.tokens())

    def __bool__(self) -> bool:
        """Whether there is any token."""
        self._refresh()
        return bool(self._by_id)

    def caller(self, presented: str) -> Caller | None:
        """Return whom a token stands for; None for an unknown one.

        The time it takes does not depend on how much of a secret is right.
        """
        self._refresh()
        parts = _TOKEN.fullmatch(presented)
        if parts is None:
            return None
        known = self._by_id.get(parts[1])
        kept = known.hash if known is not None else "0" * 64
        right = hmac.compare_digest(_hash(parts[2]), kept)
        return known.caller if known is not None and right else None

    def _refresh(self) -> None:
        now = self._now()
        if now == self._stamp:
            return
        try:
            self._by_id = self._table(self._file.tokens())
        except (ConfigError, StoreError) as error:
            self._on_damage(error)
        self._stamp = now

    def _table(self, tokens: tuple[Token, ...]) -> dict[str, Token]:
        return {token.id: token for token in (*self._fixed, *tokens)}

    def _now(self) -> tuple[int, int, int] | None:
        try:
            stat = self._file.path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...]


def _read(data: bytes, where: str) -> tuple[Token, ...]:
    try:
        tokens = msgspec.json.decode(data, type=_Kept).tokens
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(
            f"{where} holds no tokens: {error}; it is written by `backstory token add`, restore it or remove it"
        ) from error
    for token in tokens:
        if not _is_name(token.name) or token.right not in _RIGHTS or not _HASH.fullmatch(token.hash):
            raise ConfigError(f"{where}: token {token.name!r} has a name, a right or a hash that is none; restore it")
    return tokens


def _is_name(name: str) -> bool:
    # Names are in commits, logs and lists, so they hold nothing that changes how the rest of a line is shown.
    return 0 < len(name) <= _MOST_CHARACTERS and name.isprintable() and " " not in name


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
