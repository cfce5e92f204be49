"""Hooks of a DeerFlow host: its model, its tracing and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.messages import KeepHidden

Metrics: TypeAlias = "dict[str, object]"
TraceContext: TypeAlias = "Callable[[str], AbstractContextManager[object]]"
"""Binds a trace id for the time of a `with` block."""


@runtime_checkable
class Callbacks(Protocol):
    """Callbacks around a model call. A method `on_memory_llm_result` after the call is optional."""

    def on_memory_llm_call(
        self,
        invoke_config: dict[str, object],
        *,
        thread_id: str | None,
        user_id: str | None,
        trace_id: str | None,
        model_name: str | None,
    ) -> None:
        """Called before the model; changes of `invoke_config` apply to the call."""


class Hooks(msgspec.Struct, frozen=True):
    """The hooks of a host, each None if the host has none.

    `host_llm` is a LangChain chat model, and `host_llm_factory` creates one.
    """

    callbacks: Callbacks | None = None
    keep_hidden: KeepHidden | None = None
    trace_context: TraceContext | None = None
    extraction: Callable[[Metrics], object] | None = None
    host_llm: object | None = None
    host_llm_factory: Callable[[], object] | None = None


_CALLED = ("should_keep_hidden_message", "trace_context_manager", "extraction_callback", "host_llm_factory")
HOOKS = ("callbacks", "host_llm", *_CALLED)
"""DeerFlow's names of the hooks."""


def read_hooks(given: Mapping[str, object]) -> Hooks:
    """Return the hooks among a host's arguments; other arguments are ignored.

    Raises:
        ConfigError: A hook is not callable, or the callbacks lack their method.
    """
    callbacks = given.get("callbacks")
    if callbacks is not None and not isinstance(callbacks, Callbacks):
        raise ConfigError(f"callbacks must have a method on_memory_llm_call, got {type(callbacks).__name__}")
    called: list[Any] = [given.get(name) for name in _CALLED]
    for name, hook in zip(_CALLED, called, strict=True):
        if hook is not None and not callable(hook):
            raise ConfigError(f"{name} must be callable, got {type(hook).__name__}")
    keep_hidden, trace_context, extraction, factory = called
    return Hooks(callbacks, keep_hidden, trace_context, extraction, given.get("host_llm"), factory)
