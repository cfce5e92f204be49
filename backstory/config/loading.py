"""Settings loader: defaults, a host's file, a YAML file, the environment, then arguments; later ones override.

It keeps the origin of each value. An unknown key and a value out of range are errors, except that an unknown key below
DeerFlow's `backend_config` is only warned of: a new version of DeerFlow may bring new keys. Keys have DeerFlow's names
where DeerFlow has them.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from backstory.config.file import BACKEND, FOREIGN_MODEL, NOT_NEEDED, read_config
from backstory.config.host_file import NAME as HOST_FILE
from backstory.config.host_file import HostFile, read_host_file, uses_server
from backstory.config.model_factory import OWN_PROVIDERS, ForeignModel, ModelLike, ProviderModel, as_model, read_foreign
from backstory.config.settings import NO_EMBEDDER, WEIGHTS, ModelSettings, Settings, kind_of
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue
from backstory.ledger.extraction.models.model import Model

_log = logging.getLogger(__name__)

_PREFIX = "BACKSTORY_"
_NOT_KEYS = frozenset({"TOKENS", "HOME", "MODEL", "REQUIRE", "BIN", "USER", "AGENT"})
_DEERFLOWS_STORE = "file"
"""The `storage_class` in DeerFlow's example configuration."""
_SHOWN = frozenset({"model_name", "model.provider", "model.temperature"})
_SHOWN_CHARACTERS = 100
_MOST_ERRORS = 20
_OF_A_SERVICE = re.compile(r"(^|_)(port$|port_\d|service_(host|port))")
"""Keys as in `BACKSTORY_PORT` and `BACKSTORY_NATS_SERVICE_HOST`, which a Service of such a name brings."""


class Loaded(BaseModel):
    """Settings, and the origin of each value.

    Attributes:
        settings: The settings.
        origin: For each key default, host (with the origin there), file, environment or argument.
        foreign: A model in place of the one in the settings: of another provider, or the host's model for everything.
        host: The host file whose settings are among these; None if there is none.
        no_model: Why the host's model cannot be asked here; None if it can, or another one is configured.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    settings: Settings
    origin: dict[str, str]
    foreign: ForeignModel | None = None
    host: HostFile | None = None
    no_model: str | None = None

    @property
    def model_named(self) -> str | None:
        """The name of a host's model that cannot be asked here, with that remark; None otherwise."""
        if self.host is None or self.host.model is None or self.no_model is None:
            return None
        return f"{self.host.model.name} (it cannot be asked here: see `doctor`)"

    @property
    def own_model(self) -> bool:
        """Whether a model is configured by a name, an address or a key."""
        stated = self.settings.model
        return self.foreign is not None or bool(
            stated.model or stated.base_url or stated.api_key or self.settings.model_name
        )


def load_settings(
    config: str | Path | Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    home: str | Path | None = None,
    as_hosted: bool = False,
) -> Loaded:
    """Load the settings. Keys without an effect, and unknown ones below `backend_config`, are logged as a warning.

    Args:
        config: A YAML file or a mapping.
        arguments: Settings of the caller; None is no value.
        environ: The environment. Default: that of the process.
        home: The home folder, if the caller names it.
        as_hosted: Whether to begin with the settings of the host file in the home.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, a value is out of range, or the host keeps its memory at
            an address that is not known here.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    layers = [("file", read_config(config, env)), ("environment", _from_environment(env)), ("argument", given)]
    values: dict[str, object] = {}
    foreign: ForeignModel | None = None
    origin = dict.fromkeys(Settings.model_fields, "default")
    unneeded: dict[str, str] = {}
    unknown: list[str] = []
    for name, layer in layers:
        for key, value in layer.items():
            if key in NOT_NEEDED:
                unneeded[key] = name
            elif key in Settings.model_fields:
                values[key] = value
                origin[key] = name
                foreign = None if key == "model" else foreign
            elif key == FOREIGN_MODEL and isinstance(value, Mapping):
                foreign = read_foreign(value)
                origin["model"] = name
            elif key.startswith(f"{BACKEND}."):
                unknown.append(_no_such_key(key, name))
            else:
                raise ConfigError(_no_such_key(key, name))
    try:
        settings = Settings.model_validate({**values, **_ours(values)})
    except ValidationError as error:
        raise ConfigError(_messages(error, origin)) from error
    _report(values, origin, unneeded, unknown)
    loaded = Loaded(settings=settings, origin=origin, foreign=foreign)
    host = read_host_file(base_folder(home, settings, env)) if as_hosted else None
    return loaded if host is None else _hosted(loaded, host, values, env)


def _hosted(loaded: Loaded, host: HostFile, values: Mapping[str, object], env: Mapping[str, str]) -> Loaded:
    """Put the settings of a host file below those of the caller; a model replaces the host's as a whole."""
    if "event_store" in host.withheld and loaded.origin["event_store"] == "default":
        raise ConfigError(
            f"{host.host} keeps this memory in an event_store whose address holds a password and is not copied here: "
            "give it with --store URL or BACKSTORY_EVENT_STORE"
        )
    known = {key: stated for key, stated in host.settings.items() if key in Settings.model_fields}
    below: dict[str, object] = {key: stated.value for key, stated in known.items()}
    origin = {**loaded.origin}
    origin |= {key: f"host ({known[key].origin})" for key in known if origin[key] == "default"}
    foreign, no_model = loaded.foreign, None
    if host.model is not None and not loaded.own_model:
        no_model = host.model.missing(env)
        section = host.model.section(env)
        if no_model is None and host.model.configured and host.model.provider in OWN_PROVIDERS:
            below["model"] = section
            origin["model"] = "host"
        else:
            below["model_name"] = host.model.name
            origin["model_name"] = "host"
            foreign = read_foreign(section) if no_model is None else None
    try:
        settings = Settings.model_validate({**below, **values, **_ours({**below, **values})})
        if no_model is not None and origin["embedding_model"].startswith("host") and uses_server(settings):
            # Its address or key may be the model's, and texts must not go to another server than the host's.
            settings = settings.model_copy(update={"embedding_model": NO_EMBEDDER, "embedding_base_url": None})
    except ValidationError as error:
        _log.warning("the host's settings in %s are not used: %s", HOST_FILE, _messages(error, origin))
        return loaded
    return Loaded(settings=settings, origin=origin, foreign=foreign, host=host, no_model=no_model)


def chosen_model(given: ModelLike | None, loaded: Loaded) -> Model | None:
    """Return the model for extraction: the given one, else the configured one; None if there is none to ask.

    Raises:
        ConfigError: The type of `given` is not supported.
    """
    if given is None and loaded.foreign is not None:
        return _provider_model(loaded.foreign)
    if loaded.no_model is not None and (given is None or isinstance(given, str)):
        return None
    return as_model(given, loaded.settings)


def _provider_model(foreign: ForeignModel) -> Model:
    if foreign.provider not in OWN_PROVIDERS:
        return ProviderModel(foreign)
    from backstory.ledger.extraction.models.openai import OpenAIModel

    return OpenAIModel(
        foreign.model, api_key=foreign.api_key, base_url=foreign.base_url, temperature=foreign.temperature
    )


def _ours(values: Mapping[str, object]) -> dict[str, object]:
    """Return replacements for values that only DeerFlow uses."""
    return {"storage_class": ""} if values.get("storage_class") == _DEERFLOWS_STORE else {}


def _report(
    values: Mapping[str, object], origin: Mapping[str, str], unneeded: Mapping[str, str], unknown: Sequence[str]
) -> None:
    if _ours(values):
        _log.warning(
            "storage_class %r (from the %s) is a store of DeerFlow; event_store keeps the memory",
            _DEERFLOWS_STORE,
            origin["storage_class"],
        )
    if unneeded:
        reasons = "; ".join(f"{key} (from the {name}): {NOT_NEEDED[key]}" for key, name in unneeded.items())
        _log.warning("not needed here: %s", reasons)
    for problem in unknown:
        _log.warning("%s; it is ignored", problem)


def _no_such_key(key: str, layer: str) -> str:
    section, _, name = key.partition(".")
    models = [f"model.{inner}" for inner in ModelSettings.model_fields]
    # The prefix that all keys of the backend have would make any two of them alike.
    prefix, sought = (f"{BACKEND}.", name) if section == BACKEND and name else ("", key)
    known = [*Settings.model_fields, *NOT_NEEDED, *models, *([] if prefix else [BACKEND])]
    nearest = difflib.get_close_matches(sought, known, 1, 0.5)
    hint = f"; the nearest is {prefix}{nearest[0]}" if nearest else ""
    if layer == "environment" and _OF_A_SERVICE.search(key):
        hint = "; Kubernetes sets it for a Service: give the pod `enableServiceLinks: false`"
    return f"there is no configuration key {_clipped(key)} (from the {layer}){hint}"


def _messages(error: ValidationError, origin: Mapping[str, str]) -> str:
    errors = error.errors(include_url=False, include_input=True)
    messages = "; ".join(_message(item, origin) for item in errors[:_MOST_ERRORS])
    more = len(errors) - _MOST_ERRORS
    return f"{messages}; and {more} more" if more > 0 else messages


def _message(item: ErrorDetails, origin: Mapping[str, str]) -> str:
    """Name the wrong key, the rule, the value and its origin."""
    if item["type"] == "disagreement":
        values = item["ctx"]["values"].items()
        return f"{', '.join(_stated(key, repr(value), origin) for key, value in values)}: {item['ctx']['rule']}"
    key = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return _no_such_key(key, origin[str(item["loc"][0])])
    # Any value below `model` may be an API key, also under a mistyped name. An address or a command may contain one.
    secret = (key.startswith("model") and key not in _SHOWN) or key.endswith(("_url", "_store", "_upstream", "witness"))
    value = "…" if secret else _clipped(repr(item["input"]))
    kind = kind_of(key)
    if item["type"] == "value_error" or not kind:
        return f"{_stated(key, value, origin)}: {item['msg'].removeprefix('Value error, ')}"
    return f"{key} must be {kind}, got {value} (from the {_layer(key, origin)})"


def _stated(key: str, value: str, origin: Mapping[str, str]) -> str:
    return f"{key} is {value} (from the {_layer(key, origin)})"


def _layer(key: str, origin: Mapping[str, str]) -> str:
    return origin[key.partition(".")[0]]


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _from_environment(env: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in env.items()
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in _NOT_KEYS
    }
    if env.get("BACKSTORY_MODEL") and "model_name" not in found:
        found["model_name"] = env["BACKSTORY_MODEL"]
    return found


def base_folder(home: str | Path | None, settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """Return the home folder: `home`, else `storage_path`, else `$BACKSTORY_HOME`, else ~/.backstory.

    A relative `storage_path` is below the base folder; one that ends in .json means its folder.
    """
    env = os.environ if environ is None else environ
    if home is not None:
        return _expanded(home).absolute()
    base = _expanded(env.get("BACKSTORY_HOME") or "~/.backstory").absolute()
    if settings.storage_path:
        path = _expanded(settings.storage_path)
        folder = path if path.is_absolute() else base / path
        return folder.parent if folder.suffix == ".json" else folder
    return base


def _expanded(path: str | Path) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} names the home folder of an unknown user: {error}") from error


def check_folders(settings: Settings) -> None:
    """Read the files that only an update reads otherwise, so that an error is shown now and not by a worker later.

    Raises:
        ConfigError: A folder of prompts or patterns is missing, or a file in it cannot be used.
    """
    from backstory.ledger.extraction.deerflow_files import agents_with_templates
    from backstory.ledger.extraction.signals import load_signals
    from backstory.ledger.extraction.templates import load_templates
    from backstory.ledger.text.scaffolding import load_scaffolding

    if settings.prompts is not None:
        for agent in (None, *agents_with_templates(settings.prompts)):
            load_templates(settings.prompts, agent)
    if settings.patterns is not None:
        load_signals(settings.patterns)
        load_scaffolding(settings.patterns)


def policy_values(loaded: Loaded) -> dict[str, PolicyValue]:
    """Return the policy keys that the configuration sets; the ledger keeps its own values for the others.

    If one of the three eviction weights is set, all are returned, since they must add up to 1.
    """
    stated = {key for key, origin in loaded.origin.items() if origin != "default"}
    if not stated.isdisjoint(WEIGHTS):
        stated.update(WEIGHTS)
    return {key: getattr(loaded.settings, key) for key in POLICY_KEYS if key in stated}
