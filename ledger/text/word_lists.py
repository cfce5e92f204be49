"""Word lists in TOML files beside this module."""

from __future__ import annotations

import pkgutil

import msgspec


def word_lists(name: str) -> dict[str, list[str]]:
    """Read the lists of a file by their keys."""
    return msgspec.toml.decode(pkgutil.get_data(__name__, f"{name}.toml") or b"", type=dict[str, list[str]])
