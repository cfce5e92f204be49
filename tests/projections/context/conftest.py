from __future__ import annotations

import socket
from pathlib import Path

import pytest
from vocabularies import unpack

from backstory.projections.context.counting import load_vocabulary


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("somebody tried the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that tiktoken would take for its cache, with nothing in it."""
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "vocabularies"))
    (tmp_path / "vocabularies").mkdir()
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    return tmp_path / "vocabularies"


@pytest.fixture(scope="session")
def packaged():
    """Counters with real vocabularies, by name, that need no cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        patch.setattr("tiktoken.registry.ENCODINGS", {})
        return {model: load_vocabulary(model) for model in ("gpt-5", "gpt-4")}


@pytest.fixture(scope="session")
def tiktokens(tmp_path_factory: pytest.TempPathFactory):
    """tiktoken's own, by the same names."""
    folder = tmp_path_factory.mktemp("tiktoken")
    for name in ("o200k_base", "cl100k_base"):
        unpack(name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        return {model: load_vocabulary(model) for model in ("gpt-5", "gpt-4")}
