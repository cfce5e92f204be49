"""Puts this folder on the path, so that tests below it import `serving`; users for tests that share a server."""

from __future__ import annotations

import itertools

import pytest

_numbers = itertools.count(1)


@pytest.fixture
def user() -> str:
    """A user that no other test knows."""
    return f"user-{next(_numbers)}"
