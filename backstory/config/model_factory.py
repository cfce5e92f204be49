"""Model factory: turns a name, an OpenAI client, a LangChain chat model or a function into a model for extraction."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import orjson

from backstory.config.settings import DEFAULT_MODEL, Settings
from backstory.ledger.core.errors import ConfigError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage, usage_in

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
        name = given or stated.model or settings.model_name
        reachable = stated.api_key or stated.base_url or env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL")
        if not reachable:
            return None
        from backstory.ledger.extraction.models.openai import OpenAIModel

        return OpenAIModel(
            name or DEFAULT_MODEL,
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

        name = stated.model or settings.model_name or DEFAULT_MODEL
        return OpenAIModel(name, client=given, temperature=stated.temperature)  # type: ignore[arg-type]
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
