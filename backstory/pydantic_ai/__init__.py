"""Pydantic AI integration: a capability that records runs, and puts the context block into each call of the model.

It needs the extra `backstory[pydantic-ai]`; docs/how-to/pydantic-ai.md describes it. It may import everything but the
other integrations and the command line.
"""

from __future__ import annotations

try:
    from pydantic_ai.capabilities import WrapModelRequestHandler  # noqa: F401 checks for the package and its version
except ImportError as missing:
    raise ImportError(
        "backstory.pydantic_ai needs Pydantic AI 2 or newer: install it with pip install 'backstory[pydantic-ai]'"
    ) from missing

from backstory.pydantic_ai.capability import BackstoryMemory

__all__ = ["BackstoryMemory"]
