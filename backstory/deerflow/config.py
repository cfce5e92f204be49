"""DeerFlow's `backend_config`, as the settings of a home.

Its keys are ours, so most of the work is done where every configuration is read. What is left: where the home lies,
keys that mean something to DeerFlow's own backend alone, and a model of a provider that only LangChain knows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from backstory.config.loading import Settings, base_folder, load_settings
from backstory.ledger.core.errors import ConfigError

__all__ = ["Configured", "read_backend_config"]

_log = logging.getLogger(__name__)

HOME = "backstory"
"""The folder below DeerFlow's own that is ours."""

_WITHOUT_EFFECT = {
    "failure_policy": "the host reads it itself",
    "storage_class": "it names a store of DeerFlow's; memory is kept by event_store",
}
_NEITHER_STORE = ("file", "deerflow.", "backstory.deerflow")
"""How a `storage_class` begins that is no EventStore of ours, but DeerFlow's word for where its documents lie."""
_USUAL: dict[str, object] = {
    "storage_class": "file",
    "manifest_filename": "memory.json",
    "retrieval_adapter": "fts5",
    "fact_eviction_shadow_enabled": False,
    "eviction_audit_max_entries": 200,
    "watermark_max_keys": 4096,
}
"""Keys that mean nothing here, as DeerFlow's example has them: everybody's file does, so nobody is to be warned."""
_OUR_PROVIDERS = (None, "openai")
_CLOSING_SECONDS = 1.0


class ForeignModel(msgspec.Struct, frozen=True):
    """A model that LangChain has to make; the key is kept out of what is shown."""

    provider: str
    model: str
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None

    def __repr__(self) -> str:
        return f"{self.provider}:{self.model}"


class Configured(msgspec.Struct, frozen=True):
    """What a home is opened with: `stated` are the keys that somebody has given a value.

    `deerflow` is the folder whose older memory is brought over, None where nobody said which. `own_model` says whether
    a model is named for memory itself, so that the host's is not needed.
    """

    home: Path
    deerflow: Path | None
    settings: Settings
    stated: Mapping[str, object]
    own_model: bool
    foreign: ForeignModel | None = None


def read_backend_config(given: Mapping[str, object], mode: str) -> Configured:
    """Read what stands below `backend_config`; a key without a value says nothing.

    Raises:
        ConfigError: a key nobody knows, with the nearest one there is, or a value outside its range.
    """
    usual = sorted(key for key, value in given.items() if key in _USUAL and value == _USUAL[key])
    if usual:
        _log.info("not needed here: %s", ", ".join(usual))
    plain = {key: value for key, value in given.items() if value is not None and key not in usual}
    _drop_theirs(plain)
    foreign = _foreign_model(plain)
    given_too: dict[str, object] = {"mode": mode}
    if "shutdown_flush_timeout_seconds" not in plain:
        # The host drains first, with its own patience; whoever closes the home then has waited already.
        given_too["shutdown_flush_timeout_seconds"] = _CLOSING_SECONDS
    loaded = load_settings({"memory": {"backend_config": plain}}, given_too)
    settings = loaded.settings
    folder = base_folder(None, settings)
    placed = settings.storage_path is not None
    if placed and folder.is_file():
        raise ConfigError(f"storage_path {folder} is a file: name the folder that memory is to lie in")
    model = settings.model
    return Configured(
        home=folder / HOME if placed else folder,
        deerflow=folder if placed else None,
        settings=settings,
        stated={key: getattr(settings, key) for key, origin in loaded.origin.items() if origin != "default"},
        own_model=foreign is not None or bool(model.model or model.base_url or model.api_key or settings.model_name),
        foreign=foreign,
    )


def _drop_theirs(plain: dict[str, object]) -> None:
    told = []
    for key, why in _WITHOUT_EFFECT.items():
        value = plain.get(key)
        if key == "storage_class" and not (isinstance(value, str) and value.startswith(_NEITHER_STORE)):
            continue
        if key in plain:
            del plain[key]
            told.append(f"{key}: {why}")
    if told:
        _log.warning("not needed here: %s", "; ".join(told))


def _foreign_model(plain: dict[str, object]) -> ForeignModel | None:
    """Take the model's section out where another than an OpenAI-compatible server is to be asked."""
    section = plain.get("model")
    if not isinstance(section, Mapping):
        return None
    stated = {str(key): value for key, value in section.items() if value is not None}
    plain["model"] = stated
    if stated.get("provider") in _OUR_PROVIDERS:
        return None
    del plain["model"]
    try:
        return msgspec.convert(stated, ForeignModel)
    except msgspec.ValidationError as error:
        raise ConfigError(f"model in backend_config: {error}; a provider other than openai needs its model") from error
