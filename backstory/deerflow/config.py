"""Reader of DeerFlow's `backend_config`: turns it into the settings of a home.

The common configuration loader reads most keys. This module handles the location of the home, and keys that only
DeerFlow's own backend uses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from backstory.config.loading import Loaded, base_folder, check_folders, load_settings
from backstory.ledger.core.errors import ConfigError

_log = logging.getLogger(__name__)

HOME = "backstory"
"""The folder of the home inside DeerFlow's folder."""

_WITHOUT_EFFECT = {
    "failure_policy": "the host reads it itself",
    "storage_class": "it names a store of DeerFlow; event_store keeps the memory",
}
_DEERFLOW_STORES = ("file", "deerflow.", "backstory.deerflow")
"""Beginnings of a `storage_class` that names a document store of DeerFlow, not an EventStore."""
_USUAL: dict[str, object] = {
    "storage_class": "file",
    "manifest_filename": "memory.json",
    "retrieval_adapter": "fts5",
    "fact_eviction_shadow_enabled": False,
    "eviction_audit_max_entries": 200,
    "watermark_max_keys": 4096,
}
"""Unused keys with their values in DeerFlow's example configuration; these cause no warning."""
_CLOSING_SECONDS = 1.0


class Configured(Loaded):
    """The configuration of a hosted home.

    Attributes:
        home: The home folder.
        deerflow: DeerFlow's folder with an older memory to import; None if none is configured.
    """

    home: Path
    deerflow: Path | None

    @property
    def stated(self) -> Mapping[str, object]:
        """The settings whose origin is not the default."""
        return {key: getattr(self.settings, key) for key, origin in self.origin.items() if origin != "default"}


def read_backend_config(given: Mapping[str, object], mode: str) -> Configured:
    """Read `backend_config`; keys without a value are ignored.

    Raises:
        ConfigError: A value is out of range. An unknown key is only warned of.
    """
    usual = sorted(key for key, value in given.items() if key in _USUAL and value == _USUAL[key])
    if usual:
        _log.info("not needed here: %s", ", ".join(usual))
    plain = {key: value for key, value in given.items() if value is not None and key not in usual}
    _drop_deerflow_keys(plain)
    given_too: dict[str, object] = {"mode": mode}
    if "shared_summaries" not in plain:
        # As DeerFlow's own backend does.
        plain["shared_summaries"] = True
    # Likewise; stated, so that the command line shows an agent what DeerFlow does.
    plain.setdefault("agent_reads", "own")
    plain.setdefault("context_turns", False)
    if "shutdown_flush_timeout_seconds" not in plain:
        # The host calls shutdown_flush first, with its own timeout, so closing needs little more time.
        given_too["shutdown_flush_timeout_seconds"] = _CLOSING_SECONDS
    loaded = load_settings({"memory": {"backend_config": plain}}, given_too)
    settings = loaded.settings
    check_folders(settings)
    folder = base_folder(None, settings)
    placed = settings.storage_path is not None
    if placed and folder.is_file():
        raise ConfigError(f"storage_path must be a folder, got the file {folder}")
    return Configured(
        home=folder / HOME if placed else folder,
        deerflow=folder if placed else None,
        settings=settings,
        origin=loaded.origin,
        foreign=loaded.foreign,
    )


def _drop_deerflow_keys(plain: dict[str, object]) -> None:
    store = plain.get("storage_class")
    dropped = set(_WITHOUT_EFFECT) & set(plain)
    if not (isinstance(store, str) and store.startswith(_DEERFLOW_STORES)):
        dropped.discard("storage_class")
    for key in sorted(dropped):
        del plain[key]
    if dropped:
        _log.warning("not needed here: %s", "; ".join(f"{key}: {_WITHOUT_EFFECT[key]}" for key in sorted(dropped)))
