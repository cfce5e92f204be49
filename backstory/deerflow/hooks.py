"""What a host hands over beside configuration: its model, its tracing, and who is told what memory costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.messages import KeepHidden

__all__ = ["HOOKS", "Callbacks", "Hooks", "Metrics", "TraceContext", "read_hooks"]

Metrics: TypeAlias = "dict[str, object]"
TraceContext: TypeAlias = "Callable[[str], AbstractContextManager[object]]"
"""Binds a trace id for as long as its block runs."""


@runtime_checkable
class Callbacks(Protocol):
    """Who is told of a call of the model before it is made. `on_memory_llm_result`, after it, need not be there."""

    def on_memory_llm_call(
        self,
        invoke_config: dict[str, object],
        *,
        thread_id: str | None,
        user_id: str | None,
        trace_id: str | None,
        model_name: str | None,
    ) -> None:
        """About to ask; what is written into `invoke_config` goes along with the call."""


class Hooks(msgspec.Struct, frozen=True):
    """A host's hooks, each None where it has none.

    `host_llm` is a LangChain chat model, `host_llm_factory` makes one; `offers_model` says that there was a factory, so
    that a host without any model is told from nobody who was asked.
    """

    callbacks: Callbacks | None = None
    keep_hidden: KeepHidden | None = None
    trace_context: TraceContext | None = None
    extraction: Callable[[Metrics], object] | None = None
    host_llm: object | None = None
    host_llm_factory: Callable[[], object] | None = None


HOOKS = (
    "callbacks",
    "should_keep_hidden_message",
    "trace_context_manager",
    "extraction_callback",
    "host_llm",
    "host_llm_factory",
)
"""DeerFlow's names of them."""


def read_hooks(given: Mapping[str, object]) -> Hooks:
    """Return the hooks among what a host gives; whatever else there is is none of our business.

    Raises:
        ConfigError: a hook that cannot be called, or callbacks that nobody could call back.
    """
    callbacks = given.get("callbacks")
    if callbacks is not None and not isinstance(callbacks, Callbacks):
        raise ConfigError(f"callbacks are a {type(callbacks).__name__}; they have a method on_memory_llm_call")
    return Hooks(
        callbacks=callbacks,
        keep_hidden=_called(given, "should_keep_hidden_message"),
        trace_context=_called(given, "trace_context_manager"),
        extraction=_called(given, "extraction_callback"),
        host_llm=given.get("host_llm"),
        host_llm_factory=_called(given, "host_llm_factory"),
    )


def _called(given: Mapping[str, object], name: str) -> Any:
    hook = given.get(name)
    if hook is not None and not callable(hook):
        raise ConfigError(f"{name} is a {type(hook).__name__}; it is something to call")
    return hook
