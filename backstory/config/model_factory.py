"""Model factory: turns a name, an OpenAI client, a LangChain chat model or a function into a model for extraction.

At its end are the models of providers that LangChain connects to: what configuration says of one, and how it is made.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec
import orjson

from backstory.config.settings import Settings
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage, usage_in

OWN_PROVIDERS = (None, "openai")
"""The providers that need no LangChain: every server with the protocol of OpenAI."""

Ask: TypeAlias = Callable[[list[dict[str, str]]], "str | Mapping[str, object]"]
"""A function from chat messages (`role`, `content`) to the answer: its text, or the object that the prompt asks for."""


@runtime_checkable
class ChatModel(Protocol):
    """The part of a LangChain chat model that is used."""

    def invoke(self, messages: list[tuple[str, str]], /) -> object:
        """Answer the messages."""


ModelLike: TypeAlias = "str | Model | ChatModel | Ask | object"


def as_model(given: ModelLike | None, settings: Settings, environ: Mapping[str, str] | None = None) -> Model | None:
    """Return the model for extraction; None without a model object, an API key and an address.

    Args:
        given: A model object, or the name of a model.
        settings: The configuration.
        environ: The environment. Default: that of the process.

    Raises:
        ConfigError: The type of `given` is not supported.
    """
    env = os.environ if environ is None else environ
    stated = settings.model
    if given is None or isinstance(given, str):
        reachable = stated.api_key or stated.base_url or env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL")
        if not reachable:
            return None
        from backstory.ledger.extraction.models.openai import OpenAIModel

        return OpenAIModel(
            given or settings.named_model,
            api_key=stated.api_key,
            base_url=stated.base_url,
            temperature=stated.temperature,
        )
    if callable(getattr(given, "ask", None)) and hasattr(given, "name"):
        return given  # type: ignore[return-value]
    if hasattr(given, "chat") and hasattr(given.chat, "completions"):
        from openai import AsyncOpenAI

        if isinstance(given, AsyncOpenAI):
            raise ConfigError("model is an asynchronous OpenAI client: give an openai.OpenAI")
        from backstory.ledger.extraction.models.openai import OpenAIModel

        return OpenAIModel(settings.named_model, client=given, temperature=stated.temperature)  # type: ignore[arg-type]
    if isinstance(given, ChatModel):
        return _ChatModelPort(given)
    if callable(given):
        return _FunctionPort(given)
    raise ConfigError(
        f"model must be a name, an OpenAI client, a LangChain chat model or a function, got {type(given).__name__}"
    )


class _ChatModelPort:
    """A LangChain chat model as a `Model`."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The name of the model, else of its class."""
        return name_of_chat_model(self._model)

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt, once."""
        try:
            message = self._model.invoke([("system", prompt.system), ("human", prompt.user)])
        except Exception as error:
            raise ModelUnavailableError(f"{self.name} failed: {error}", status=status_of(error)) from error
        return Answer(_text_of(message), self.name, bill_of(message))


def name_of_chat_model(model: object) -> str:
    """Return the name of a LangChain chat model, else of its class."""
    named = (getattr(model, key, None) for key in ("model_name", "model"))
    return next((name for name in named if isinstance(name, str) and name), type(model).__name__)


def status_of(error: Exception) -> int | None:
    """Return the HTTP status that a provider's error names, if it names one."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _text_of(message: object) -> str:
    text: object = getattr(message, "text", None)
    if callable(text) and not isinstance(text, str):
        # A method before LangChain 1; a callable string since then, which warns when called.
        text = text()
    said = text or getattr(message, "content", message)
    return said if isinstance(said, str) else str(said)


def bill_of(message: object) -> Usage | None:
    """Return what an answer of a chat model of LangChain cost, in tokens."""
    return usage_in(getattr(message, "usage_metadata", None), "input_tokens", "output_tokens")


class _FunctionPort:
    """A plain function as a `Model`."""

    def __init__(self, function: Ask) -> None:
        self._function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            raise ConfigError(f"{self.name} is asynchronous: give a plain function")
        try:
            inspect.signature(function).bind([])
        except TypeError:
            raise ConfigError(f"{self.name} must take one argument, the list of messages") from None
        except ValueError:
            pass  # a builtin that does not state its parameters

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt, once."""
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        try:
            answer: object = self._function(messages)
        except Exception as error:
            raise ModelUnavailableError(f"{self.name} failed: {error}") from error
        return Answer(self._text(answer), self.name)

    def _text(self, answer: object) -> str:
        if isinstance(answer, str):
            return answer
        if not isinstance(answer, Mapping):
            raise ModelRejectedError(
                f"{self.name} returned {type(answer).__name__}: return the text of the answer, or a dict such as "
                '{"newFacts": [{"content": …}]}'
            )
        try:
            return orjson.dumps(dict(answer)).decode()
        except TypeError as error:
            raise ModelRejectedError(f"{self.name} returned a dict that cannot be written as JSON: {error}") from error


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


def make_chat_model(foreign: ForeignModel) -> ChatModel:
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
        made: ChatModel = init_chat_model(foreign.model, model_provider=foreign.provider, **given)
    except Exception as error:  # noqa: BLE001 a provider's package can raise anything
        text = str(error).replace(foreign.api_key, "***") if foreign.api_key else str(error)
        raise ConfigError(f"model {foreign} in backend_config cannot be created: {text}") from None
    return made


def missing_package(provider: str) -> str | None:
    """Return the package that LangChain needs for a provider and that is not installed; None if nothing is missing."""
    package = f"langchain_{provider}"
    missing = (name for name in ("langchain", package) if not name.isidentifier() or find_spec(name) is None)
    return next((name.replace("_", "-") for name in missing), None)


class ProviderModel:
    """A model of another provider that is created at its first call, since LangChain takes a second to load.

    A forked child creates its own: over connections that both use, one reads what was answered to the other.
    """

    def __init__(self, foreign: ForeignModel) -> None:
        self._foreign = foreign
        self._lock = ForkLock()
        self._made: tuple[_ChatModelPort, int] | None = None
        """The model, and the process that has created it."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._foreign.model

    def ask(self, prompt: Prompt) -> Answer:
        """See `backstory.ledger.extraction.models.model.Model`."""
        with self._lock:
            if self._made is None or self._made[1] != os.getpid():
                self._made = _ChatModelPort(make_chat_model(self._foreign)), os.getpid()
            made, _ = self._made
        return made.ask(prompt)
