"""Model adapter for DeerFlow: a LangChain chat model, with the host's callbacks around each call.

The host file in the home describes the model without secrets.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from backstory.config.host_file import HostModel
from backstory.config.model_factory import as_model, bill_of, make_chat_model, name_of_chat_model, status_of
from backstory.deerflow.config import Configured
from backstory.deerflow.observers import CallObserver, Hooks, RunTraces, hook_guarded
from backstory.ledger.core.errors import ConfigError, ModelError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, usage_of
from backstory.ledger.learning.observing import CallStarted

_log = logging.getLogger(__name__)

_RUN_NAME = "memory_agent"
"""The name of memory's model calls in DeerFlow's traces."""
_FIRST_REFUSAL, _FIRST_SERVER_ERROR = 400, 500
_TEMPORARY = frozenset({408, 409, 425, 429})


@runtime_checkable
class ModelOfHost(Protocol):
    """The part of a LangChain chat model that is used."""

    def invoke(self, messages: list[object], /, config: dict[str, object] | None = None) -> object:
        """Answer the messages."""


class ChatModelPort:
    """A LangChain chat model that is called with a run configuration."""

    def __init__(self, model: object) -> None:
        """Wrap a chat model.

        Raises:
            ConfigError: It is not a chat model.
        """
        if not isinstance(model, ModelOfHost):
            raise ConfigError(f"the host's model must be a LangChain chat model, got {type(model).__name__}")
        self._model = model

    @property
    def chat_model(self) -> object:
        """The chat model itself."""
        return self._model

    @property
    def name(self) -> str:
        """The name of the model, else of its class."""
        return name_of_chat_model(self._model)

    def invoke(self, messages: list[object], config: dict[str, object]) -> object:
        """Call the model once.

        Raises:
            ModelUnavailableError, ModelRejectedError: The provider failed; its HTTP status decides which.
        """
        try:
            return self._model.invoke(messages, config=config)
        except Exception as error:
            status = status_of(error)
            text = f"{self.name} failed ({type(error).__name__}): {error}"
            is_refusal = status is not None and _FIRST_REFUSAL <= status < _FIRST_SERVER_ERROR
            if is_refusal and status not in _TEMPORARY:
                raise ModelRejectedError(text, status=status) from error
            raise ModelUnavailableError(text, status=status) from error


class ObservedModel:
    """A model with the host's callbacks before and after each call. Errors of the callbacks are only logged.

    Args:
        asked: The model that answers.
        hooks: The host's hooks.
        traces: The trace ids of conversations.
        watch: Knows the scope and the thread of the present call.
    """

    def __init__(self, asked: ChatModelPort | Model, hooks: Hooks, traces: RunTraces, watch: CallObserver) -> None:
        self._asked = asked
        self._callbacks = hooks.callbacks
        self._traces = traces
        self._watch = watch

    @property
    def name(self) -> str:
        """The name of the model that answers."""
        return self._asked.name

    @property
    def chat_model(self) -> object:
        """The LangChain chat model that answers; None if it is another kind of model."""
        return self._asked.chat_model if isinstance(self._asked, ChatModelPort) else None

    def ask(self, prompt: Prompt) -> Answer:
        """See `backstory.ledger.extraction.models.model.Model`."""
        call = self._watch.current
        trace_id = None if call is None else self._traces.of(call.scope, call.thread)
        messages = _messages(prompt)
        config: dict[str, object] = {"run_name": _RUN_NAME}
        with self._traces.bound(trace_id):
            self._notify_before(config, call, trace_id)
            begun = time.monotonic()
            try:
                answer, response = self._answer(prompt, messages, config)
            except BaseException as error:
                self._notify_after(config, messages, None, _provider_error(error), begun)
                raise
            self._notify_after(config, messages, response, None, begun)
        return answer

    def _answer(self, prompt: Prompt, messages: list[object], config: dict[str, object]) -> tuple[Answer, object]:
        if isinstance(self._asked, ChatModelPort):
            response = self._asked.invoke(messages, config)
            return _read(response, self.name), response
        answer = self._asked.ask(prompt)
        return answer, _as_message(answer)

    def _notify_before(self, config: dict[str, object], call: CallStarted | None, trace_id: str | None) -> None:
        if self._callbacks is None:
            return
        with hook_guarded("on_memory_llm_call", "the model is asked all the same"):
            self._callbacks.on_memory_llm_call(
                config,
                thread_id=None if call is None else call.thread,
                user_id=None if call is None else call.scope.user,
                trace_id=trace_id,
                model_name=self.name,
            )

    def _notify_after(
        self,
        config: dict[str, object],
        messages: list[object],
        response: object,
        error: BaseException | None,
        begun: float,
    ) -> None:
        hook = getattr(self._callbacks, "on_memory_llm_result", None)
        if hook is None:
            return
        seconds = time.monotonic() - begun
        result = {"prompt": messages, "response": response, "error": error}
        with hook_guarded("on_memory_llm_result", "the update goes on"):
            hook(config, **result, duration_ms=seconds * 1000, model_name=self.name)

    def close(self) -> None:
        """Close the connections of the model, if it has a `close` method."""
        close = getattr(self._asked, "close", None)
        if callable(close):
            close()


def choose_model(configured: Configured, hooks: Hooks, traces: RunTraces, watch: CallObserver) -> ObservedModel | None:
    """Return the model for extraction; None if there is none.

    An API key in the environment is used only if the host has no hook for a model.

    Raises:
        ConfigError: The configured or offered object is not a model, or LangChain cannot make it.
    """
    asked = _named(configured) if configured.own_model else _offered(configured, hooks)
    return None if asked is None else ObservedModel(asked, hooks, traces, watch)


def _named(configured: Configured) -> ChatModelPort | Model | None:
    if configured.foreign is not None:
        return ChatModelPort(make_chat_model(configured.foreign))
    named = as_model(None, configured.settings)
    if named is None:
        _log.warning(
            "a model is configured for memory, but no key or address: no facts are extracted until model.api_key, "
            "model.base_url, OPENAI_API_KEY or OPENAI_BASE_URL is set"
        )
    return named


def _offered(configured: Configured, hooks: Hooks) -> ChatModelPort | Model | None:
    offered = hooks.host_llm
    if offered is None:
        if hooks.host_llm_factory is None:
            return as_model(None, configured.settings)
        offered = hooks.host_llm_factory()
    if offered is None:
        _log.warning("the host offers no model: turns are recorded, and facts are extracted once there is one")
        return None
    return ChatModelPort(offered)


def _messages(prompt: Prompt) -> list[object]:
    """Return the prompt as LangChain messages, or as pairs without LangChain."""
    try:
        from langchain_core.messages import HumanMessage, SystemMessage
    except ImportError:
        return [("system", prompt.system), ("human", prompt.user)]
    return [SystemMessage(content=prompt.system), HumanMessage(content=prompt.user)]


def _read(response: object, asked: str) -> Answer:
    text = getattr(response, "text", None)
    if not isinstance(text, str):
        content = getattr(response, "content", response)
        text = content if isinstance(content, str) else ""
    if not text.strip():
        raise ModelUnavailableError(f"{asked} gave an empty answer; try again later.")
    metadata = getattr(response, "response_metadata", None)
    said = metadata.get("model_name") if isinstance(metadata, Mapping) else None
    return Answer(str(text), said if isinstance(said, str) and said else asked, bill_of(response))


def _as_message(answer: Answer) -> object:
    """Return an answer as a LangChain message, or as text without LangChain."""
    try:
        from langchain_core.messages import AIMessage
    except ImportError:
        return answer.text
    usage = usage_of(answer)
    tokens_in, tokens_out = usage.input or 0, usage.output or 0
    bill = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    return AIMessage(
        content=answer.text,
        response_metadata={"model_name": answer.model},
        usage_metadata=bill if answer.usage is not None else None,
    )


def _provider_error(error: BaseException) -> BaseException:
    """Return the provider's own error behind a model error."""
    return error.__cause__ or error if isinstance(error, ModelError) else error


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
        configured.settings.named_model,
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
