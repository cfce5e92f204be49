"""OpenAI Agents SDK integration: a session that records, and puts the context block into each call of the model.

It needs the extra `backstory[openai-agents]`; docs/how-to/openai-agents.md describes it. It may import everything but
the other integrations and the command line.
"""

from __future__ import annotations

try:
    from agents.run_config import CallModelData  # noqa: F401 checks for the SDK and for a recent version
except ImportError as missing:
    raise ImportError(
        "backstory.openai_agents needs the OpenAI Agents SDK 0.24 or newer: install it with pip install "
        "'backstory[openai-agents]'"
    ) from missing

from backstory.openai_agents.session import BackstorySession

__all__ = ["BackstorySession"]
