"""Model selection: the model that is configured for memory, else the host's."""

from __future__ import annotations

import logging

from backstory.config.model_factory import as_model
from backstory.deerflow.config import Configured
from backstory.deerflow.hooks import Hooks
from backstory.deerflow.model_port import ChatModelPort, ObservedModel, foreign_chat_model
from backstory.deerflow.observers import CallObserver, Traces
from backstory.ledger.extraction.model import Model

__all__ = ["choose_model"]

_log = logging.getLogger(__name__)


def choose_model(configured: Configured, hooks: Hooks, traces: Traces, watch: CallObserver) -> ObservedModel | None:
    """Return the model for extraction; None if there is none.

    An API key in the environment is used only if the host has no hook for a model.

    Raises:
        ConfigError: The configured or offered object is not a model.
    """
    asked = _named(configured) if configured.own_model else _offered(configured, hooks)
    return None if asked is None else ObservedModel(asked, hooks, traces, watch)


def _named(configured: Configured) -> ChatModelPort | Model | None:
    if configured.foreign is not None:
        return foreign_chat_model(configured.foreign)
    named = as_model(None, configured.settings)
    if named is None:
        _log.warning(
            "a model is configured for memory, but no key or address: no facts are extracted until model.api_key, "
            "model.base_url, OPENAI_API_KEY or OPENAI_BASE_URL is set"
        )
    return named


def _offered(configured: Configured, hooks: Hooks) -> ChatModelPort | Model | None:
    if hooks.host_llm is None and hooks.host_llm_factory is None:
        return as_model(None, configured.settings)
    offered = hooks.host_llm
    if offered is None and hooks.host_llm_factory is not None:
        offered = hooks.host_llm_factory()
    if offered is None:
        _log.warning("the host offers no model: turns are recorded, and facts are extracted once there is one")
        return None
    return ChatModelPort(offered)
