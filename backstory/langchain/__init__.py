"""Memory for agents of LangChain and LangGraph, in one line: `middleware=[BackstoryMiddleware()]`.

It comes with the extra: `pip install 'backstory[langchain]'`; docs/langchain.md tells what it does and when.
"""

from __future__ import annotations

try:
    import langchain.agents.middleware  # noqa: F401 whether it is there, and new enough
except ImportError as missing:
    raise ImportError(
        "backstory.langchain needs LangChain, 1.2.18 or newer, which is not there: pip install 'backstory[langchain]'"
    ) from missing

from backstory.langchain.middleware import BackstoryMiddleware

__all__ = ["BackstoryMiddleware"]
