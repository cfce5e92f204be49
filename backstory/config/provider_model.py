"""Models of providers that LangChain connects to: what configuration says of one, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import msgspec

from backstory.config.model_factory import as_model
from backstory.config.settings import Settings
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt

OWN_PROVIDERS = (None, "openai")
"""The providers that need no LangChain: every server with the protocol of OpenAI."""


class ForeignModel(msgspec.Struct, frozen=True):
    """A model that LangChain creates. Its repr does not show the API key."""

    provider: str
    model: str
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None

    def __repr__(self) -> str:
        return f"{self.provider}:{self.model}"


def read_foreign(section: Mapping[str, object]) -> ForeignModel:
    """Read the `model` section of a provider other than openai.

    Raises:
        ConfigError: Its model is missing, or a value has a wrong type.
    """
    try:
        return msgspec.convert(dict(section), ForeignModel)
    except msgspec.ValidationError as error:
        raise ConfigError(f"model in backend_config: {error}; a provider other than openai needs its model") from error


def make_chat_model(foreign: ForeignModel) -> object:
    """Create the chat model of a provider with LangChain.

    Raises:
        ConfigError: LangChain fails; the message never contains the API key.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise ConfigError(f"{foreign} needs langchain: pip install 'backstory[langchain]'") from error
    stated = {"api_key": foreign.api_key, "base_url": foreign.base_url, "temperature": foreign.temperature}
    given: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
    try:
        return init_chat_model(foreign.model, model_provider=foreign.provider, **given)
    except Exception as error:  # noqa: BLE001 a provider's package can raise anything
        text = str(error).replace(foreign.api_key, "***") if foreign.api_key else str(error)
        raise ConfigError(f"model {foreign} in backend_config cannot be created: {text}") from None


def missing_package(provider: str) -> str | None:
    """Return the package that LangChain needs for a provider and that is not installed; None if nothing is missing."""
    package = f"langchain_{provider}"
    missing = (name for name in ("langchain", package) if not name.isidentifier() or find_spec(name) is None)
    return next((name.replace("_", "-") for name in missing), None)


class ProviderModel:
    """A model of another provider that is created at its first call, since LangChain takes a second to load."""

    def __init__(self, foreign: ForeignModel) -> None:
        self._foreign = foreign
        self._lock = ForkLock()
        self._made: Model | None = None

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._foreign.model

    def ask(self, prompt: Prompt) -> Answer:
        """See `backstory.ledger.extraction.models.model.Model`."""
        with self._lock:
            if self._made is None:
                self._made = as_model(make_chat_model(self._foreign), Settings())
            made = self._made
        if made is None:
            raise ConfigError(f"LangChain made no chat model of {self._foreign}: check its provider")
        return made.ask(prompt)
