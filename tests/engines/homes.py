"""Homes on an engine: the settings that choose it, for this process and for others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

ENGINES = ("elsewhere", "postgres", "nats")
"""One for tests that keeps nothing in the home, and those with servers."""


class HomesOn(msgspec.Struct, frozen=True):
    """An engine, by the settings that choose it; all homes of a test on it share its streams."""

    settings: Mapping[str, str]

    @property
    def environ(self) -> dict[str, str]:
        """The same in environment variables, with the path to the engine for tests."""
        names = {f"BACKSTORY_{key.upper()}": value for key, value in self.settings.items()}
        return {**names, "PYTHONPATH": str(Path(__file__).parent.parent)}
