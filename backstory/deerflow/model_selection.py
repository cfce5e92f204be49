"""Which model memory asks: one that is named for it, else the host's."""

from __future__ import annotations

import logging

from backstory.config.model_factory import as_model
from backstory.deerflow.config import Configured
from backstory.deerflow.hooks import Hooks
from backstory.deerflow.model_port import ChatModelPort, ToldModel, foreign_chat_model
from backstory.deerflow.observers import Traces, Watch
from backstory.ledger.extraction.model import Model

__all__ = ["choose_model"]

_log = logging.getLogger(__name__)


def choose_model(configured: Configured, hooks: Hooks, traces: Traces, watch: Watch) -> ToldModel | None:
    """Return the model that is asked, None where there is none.

    A key that merely lies in the environment is taken only where there is no host that could have offered its own.

    Raises:
        ConfigError: what is named, or what the host offers, is no model.
    """
    asked = _named(configured) if configured.own_model else _offered(configured, hooks)
    return None if asked is None else ToldModel(asked, hooks, traces, watch)


def _named(configured: Configured) -> ChatModelPort | Model | None:
    if configured.foreign is not None:
        return foreign_chat_model(configured.foreign)
    named = as_model(None, configured.settings)
    if named is None:
        _log.warning(
            "a model is named for memory, but neither a key nor an address is: nothing is learned until model.api_key, "
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
        _log.warning("the host has no model to offer: what is said is kept, and learned from once there is one")
        return None
    return ChatModelPort(offered)
