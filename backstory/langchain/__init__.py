"""LangChain integration: memory for agents with `middleware=[BackstoryMiddleware()]`, nodes for other graphs.

It needs the extra `backstory[langchain]`; docs/how-to/langchain.md describes it. It may import everything but the other
integrations and the command line.
"""

from __future__ import annotations

try:
    import langchain.agents.middleware  # noqa: F401 checks for a recent version
except ImportError as missing:
    raise ImportError(
        "backstory.langchain needs LangChain 1.2.18 or newer: install it with pip install 'backstory[langchain]'"
    ) from missing

from backstory.langchain.middleware import BackstoryMiddleware
from backstory.langchain.nodes import MemoryNodes, MemoryState

__all__ = ["BackstoryMiddleware", "MemoryNodes", "MemoryState"]
