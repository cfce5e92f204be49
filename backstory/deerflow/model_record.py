"""Description of the model that DeerFlow uses for memory, without secrets, for the host file in the home."""

from __future__ import annotations

import os
from collections.abc import Mapping

from backstory.config.host_file import HostModel
from backstory.config.settings import DEFAULT_MODEL
from backstory.deerflow.config import Configured
from backstory.deerflow.model_port import ObservedModel

_PACKAGE = "langchain_"
_SHARED = frozenset({"core", "community"})
"""Packages of LangChain that belong to no provider."""
_ADDRESS = "base_url"
"""The alias or the name of the field with the address in LangChain's chat models."""
_DEEPSEEKS_ADDRESS = "api_base"
"""DeepSeek's models have this one beside that of OpenAI's, which they extend."""


def describe_model(configured: Configured, model: ObservedModel | None) -> HostModel | None:
    """Describe the model; None if there is none, or it is of no provider that LangChain names."""
    if model is None:
        return None
    if model.chat_model is not None and configured.foreign is None:
        return _of_chat_model(model.chat_model, model.name)
    foreign, stated = configured.foreign, configured.settings.model
    if foreign is not None:
        return HostModel.public(
            foreign.provider,
            foreign.model,
            api_key=foreign.api_key or _secret(model.chat_model),
            base_url=foreign.base_url,
            temperature=foreign.temperature,
            configured=True,
        )
    return HostModel.public(
        "openai",
        stated.model or configured.settings.model_name or DEFAULT_MODEL,
        api_key=stated.api_key or os.environ.get("OPENAI_API_KEY"),
        base_url=stated.base_url or os.environ.get("OPENAI_BASE_URL"),
        temperature=stated.temperature,
        configured=True,
    )


def _of_chat_model(model: object, name: str) -> HostModel | None:
    provider = _provider(model)
    if provider is None:
        return None
    base_url = _address(model)
    if base_url is None and provider == "openai":
        base_url = os.environ.get("OPENAI_BASE_URL")
    temperature = getattr(model, "temperature", None)
    return HostModel.public(
        provider,
        name,
        api_key=_secret(model),
        base_url=base_url or None,
        temperature=float(temperature) if isinstance(temperature, int | float) else None,
        configured=False,
    )


def _provider(model: object) -> str | None:
    """Return LangChain's name of a provider, from the package of the class or of one that it extends.

    Azure's models are of the package of OpenAI's, but have an address and a key of another kind.
    """
    if hasattr(model, "azure_endpoint"):
        return None
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        provider = package.removeprefix(_PACKAGE)
        if package.startswith(_PACKAGE) and provider not in _SHARED:
            return provider
    return None


def _address(model: object) -> str | None:
    """Return the address of the server of a chat model, if one is set."""
    fields: Mapping[str, object] = getattr(type(model), "model_fields", {})
    names = [key for key, field in fields.items() if getattr(field, "alias", None) == _ADDRESS]
    found = (getattr(model, key, None) for key in (_DEEPSEEKS_ADDRESS, *names, _ADDRESS))
    return next((value for value in found if isinstance(value, str)), None)


def _secret(model: object) -> str | None:
    """Return the first secret among the fields of a chat model, of which the name of its variable is written."""
    for key in getattr(type(model), "model_fields", {}):
        reveal = getattr(getattr(model, key, None), "get_secret_value", None)
        if callable(reveal) and isinstance(secret := reveal(), str) and secret:
            return secret
    return None
